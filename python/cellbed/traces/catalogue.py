"""Where traces are found: names of the archive, and files by path.

The archive's traces are synthetic and made by `cellbed.traces.generation.examples` when first asked for; they are kept
in the user's data folder. The generator is deterministic, so two processes that make the same file at once write the
same bytes, and the rename that ends the writing makes either of them the winner.
"""

import difflib
import hashlib
import os
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.errors import CellbedError
from cellbed.traces.files import find_file, find_pipe, obstacle
from cellbed.traces.generation.examples import MODELS, Model

if TYPE_CHECKING:
    from cellbed._core import Trace

ARCHIVE = tuple(MODELS)
"""Names of the archive's traces."""


class TraceError(CellbedError):
    """A trace that does not exist or cannot be read. The text names it and says what would be right."""


class TraceSource:
    """A trace as a scenario names it; the file is made, hashed and parsed only when somebody asks.

    name: what the user wrote. synthetic: whether it comes from a model instead of a recording.
    """

    def __init__(self, name: str, file: Path | Model) -> None:
        self.name = name
        self.synthetic = isinstance(file, Model)
        self._file = file

    def __repr__(self) -> str:
        return f"TraceSource({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceSource) and (self.name, self._file) == (other.name, other._file)

    def __hash__(self) -> int:
        return hash((self.name, self._file))

    @cached_property
    def path(self) -> Path:
        """Absolute path of the file. Raises TraceError when an archive file cannot be written."""
        return self._file if isinstance(self._file, Path) else _generated(self._file)

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of the file's bytes."""
        try:
            return _digest(self.path)
        except OSError as error:
            raise TraceError(f"{self.path}: cannot read this trace: {error.strerror}") from error

    @cached_property
    def trace(self) -> "Trace":
        """The parsed trace. Raises TraceError ``FILE:LINE: reason`` when it is malformed."""
        from cellbed._core import TraceFormatError, parse_trace

        try:
            return parse_trace(str(self.path))
        except TraceFormatError as error:
            raise TraceError(str(error)) from error
        except OSError as error:
            raise TraceError(f"{self.path}: cannot read this trace: {error.strerror}") from error


def resolve(text: str, folder: Path) -> TraceSource:
    """The trace called ``text``: a name of the archive, else a file by its path relative to ``folder``.

    Raises TraceError when there is neither.
    """
    if text in MODELS:
        return TraceSource(text, MODELS[text])
    try:
        path = find_file(text, folder) or find_pipe(text, folder)
    except OSError as error:
        raise TraceError(f"'{text}': cannot read this pipe: {error.strerror}") from error
    if path is not None:
        return TraceSource(text, path)
    why = obstacle(text, folder, "trace file")
    if why.startswith("there is no file") and "/" not in text:
        # It may have been meant as a name.
        shown = text if len(text) <= 40 else text[:37] + "…"
        why = f"no trace is called {shown!r} and no such file is in {folder.absolute()}"
    near = difflib.get_close_matches(text[:100], ARCHIVE, n=1)
    known = ", ".join(ARCHIVE)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise TraceError(f"{why}: {hint}write one of {known}, or the path of a file")


def archive_folder() -> Path:
    """The folder of the generated traces: ``$XDG_DATA_HOME/cellbed/traces`` or ``~/.local/share/cellbed/traces``."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # The XDG base directory specification: a relative path is invalid and to be ignored.
    data = Path(base) if base.startswith("/") else Path.home() / ".local" / "share"
    return data / "cellbed" / "traces"


def _generated(model: Model) -> Path:
    folder = archive_folder()
    path = folder / model.name
    if _is_right(path, model):
        return path
    unfinished = folder / f".{model.name}.{os.getpid()}.{threading.get_ident()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(model.text().encode())
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise TraceError(
            f"{folder}: cannot write the trace {model.name} there: {error.strerror}; "
            "set XDG_DATA_HOME to a folder that can be written"
        ) from error
    return path


def _is_right(path: Path, model: Model) -> bool:
    """Whether the file is there and is what this version's model gives: not cut short, edited or of another version."""
    try:
        return _digest(path) == model.sha256
    except OSError:
        return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
