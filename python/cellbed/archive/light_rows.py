"""Files of a recording without its heavy trace: light rows, latency offsets by packet size, or a conditional model."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cellbed.archive.errors import TraceError
from cellbed.archive.files import find_file, obstacle
from cellbed.archive.soundness import sha256
from cellbed_node import inputs


@dataclass(frozen=True)
class RecordedFile:
    """A file of a recording, hashed lazily.

    name: text of the user. path: absolute. form: ``light rows`` (time, base delay and delivery opportunities of each
    packet train: Sentosa et al., NSDI 2025, §4.2), ``latency offsets`` (additional delay compared with the recorder's
    packet size, by packet size: §4.4) or ``model``.
    """

    name: str
    path: Path
    form: str

    def check(self) -> None:
        """Read the file, of a model only its bytes. Raises TraceError ``FILE:LINE: reason`` for a malformed file."""
        from cellbed import _core

        parse = {"light rows": _core.parse_light_rows, "latency offsets": _core.parse_latency_offsets, "model": sha256}
        try:
            parse[self.form](inputs.check(self.path))
        except _core.TraceFormatError as error:
            raise TraceError(str(error)) from error
        except OSError as error:
            raise TraceError(f"{self.path}: cannot read this file: {error.strerror}") from error

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of the file's bytes."""
        return sha256(self.path)


def find_recorded(form: str, text: str, folder: Path) -> RecordedFile:
    """Return the file ``text``, relative to ``folder``. Raises TraceError if there is no file."""
    path = find_file(text, folder)
    if path is None:
        what = f"file of {form}"
        raise TraceError(f"{obstacle(text, folder, what)}: write the path of a {what}")
    return RecordedFile(text, path, form)
