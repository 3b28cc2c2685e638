"""Files of a CellReplay recording without its heavy trace: light rows, and latency offsets by packet size."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from cellbed.archive.errors import TraceError
from cellbed.archive.files import find_file, obstacle
from cellbed.archive.soundness import sha256
from cellbed_node import inputs

Rows = list[tuple[int, int, list[int]]]
"""Time, base delay and delivery opportunities of each packet train, ns (Sentosa et al., NSDI 2025, §4.2)."""
Offsets = list[tuple[int, int]]
"""Packet size in bytes, and additional delay compared with the recorder's packet size, ns (§4.4)."""

T = TypeVar("T")


@dataclass(frozen=True)
class RecordedFile(Generic[T]):
    """A file of a recording, parsed and hashed lazily.

    name: text of the user. path: absolute. parse: reads the file; :class:`cellbed._core.TraceFormatError` if malformed.
    """

    name: str
    path: Path
    parse: Callable[[Path], T]

    @cached_property
    def content(self) -> T:
        """The parsed file. Raises TraceError ``FILE:LINE: reason`` for a malformed file."""
        from cellbed._core import TraceFormatError

        try:
            return self.parse(inputs.check(self.path))
        except TraceFormatError as error:
            raise TraceError(str(error)) from error
        except OSError as error:
            raise TraceError(f"{self.path}: cannot read this file: {error.strerror}") from error

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of the file's bytes."""
        return sha256(self.path)


def light_rows(text: str, folder: Path) -> RecordedFile[Rows]:
    """Return the light rows in the file ``text``, relative to ``folder``. Raises TraceError if there is no file."""
    from cellbed._core import parse_light_rows

    return RecordedFile(text, _find_file(text, folder, "file of light rows"), parse_light_rows)


def latency_offsets(text: str, folder: Path) -> RecordedFile[Offsets]:
    """Return the latency offsets in the file ``text``, relative to ``folder``. Raises TraceError if there is no
    file."""
    from cellbed._core import parse_latency_offsets

    return RecordedFile(text, _find_file(text, folder, "file of latency offsets"), parse_latency_offsets)


def _find_file(text: str, folder: Path, what: str) -> Path:
    path = find_file(text, folder)
    if path is None:
        raise TraceError(f"{obstacle(text, folder, what)}: write the path of a {what}")
    return path
