"""Recognition of files by their first bytes, their names, or the user's options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cellbed
from cellbed.archive.entry import Draft, Step
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.format import Format, Options, Progress, move_contents, scratch
from cellbed.archive.importers.formats import FORMATS
from cellbed.archive.soundness import sha256
from cellbed.support.near_names import did_you_mean
from cellbed_node import inputs

_HEAD = 1 << 16
_PACKED = {
    b"\x1f\x8b": "gzip: gunzip it",
    b"\x28\xb5\x2f\xfd": "zstd: unzstd it",
    b"\xfd7zXZ": "xz: unxz it",
    b"BZh": "bzip2: bunzip2 it",
    b"PK\x03\x04": "zip: unzip it",
}
_OPTION_NAMES = {"interval_ns": "--interval", "duration_ns": "--duration", "idle_ns": "--idle"}


@dataclass(frozen=True)
class Importer:
    """The importer of recognised files. why: the reason."""

    paths: tuple[Path, ...]
    format: Format
    why: str

    @property
    def what(self) -> str:
        """The recognised format and the reason."""
        return f"{_file_names(self.paths)}: {self.format.title}, as {self.why}"

    @property
    def work(self) -> int:
        """The approximate number of bytes that `read` will report."""
        return self.format.passes * sum(path.stat().st_size for path in self.paths if path.is_file())

    def read(
        self, paths: Sequence[Path], draft: Draft, options: Options | None = None, progress: Progress | None = None
    ) -> None:
        """Write the series of files into the draft, with a step of its history and notes on assumptions.

        paths: the recognised ones. progress: called with the number of bytes read.

        Raises TraceError, with nothing in the draft that was not there before.
        """
        options = options or Options()
        self._require_concern(paths, options)
        with scratch(draft) as own:
            if len(paths) == 1:
                self.format.read(paths[0], own, options.for_file(paths[0], is_alone=True), progress)
            else:
                for path in paths:
                    self._read_one_of_several(path, own, options, progress)
            history = _step(self.format, options, {path.name: sha256(path) for path in paths if path.is_file()})
            move_contents(own, draft)
        draft.history.append(history)

    def _read_one_of_several(self, path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
        with scratch(draft) as own:
            self.format.read(path, own, options.for_file(path, is_alone=False), progress)
            if any(part in draft.parts for part in own.parts):
                both = next(part for part in own.parts if part in draft.parts)
                raise TraceError(f"{path}: contains the {both}, as another of the files does: add them one by one")
            own.notes[:] = [f"{path.name}: {note}" for note in own.notes]
            move_contents(own, draft)

    def _require_concern(self, paths: Sequence[Path], options: Options) -> None:
        for name in options.asked():
            if name not in self.format.options:
                shown = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
                raise TraceError(f"{_file_names(paths)}: {shown} does not apply to {self.format.title}: omit it")


def recognise(paths: Sequence[Path], as_format: str | None = None, formats: Sequence[Format] = FORMATS) -> Importer:
    """Return the importer for files that belong to one recording: one file, or one for each direction.

    as_format: the name of their format; left out, it is recognised by their contents.

    Raises TraceError for unreadable files, unknown formats and ambiguous ones.
    """
    if not paths:
        raise TraceError("no file was named")
    paths = tuple(paths)
    for path in paths:
        _require_readable(path, allow_folder=len(paths) == 1)
    if as_format is not None:
        return Importer(paths, _format_by_name(as_format, formats), f"by --as {as_format}")
    found = [(format, why) for format in formats if (why := _evidence(format, paths)) is not None]
    if len(found) == 1:
        return Importer(paths, *found[0])
    if not found:
        raise TraceError(f"{_file_names(paths)}: {_explain_unknown(paths, formats)}")
    guesses = " or ".join(f"{format.title} ({why}; --as {format.name})" for format, why in found)
    raise TraceError(f"{_file_names(paths)}: ambiguous format: {guesses}: choose one with --as FORMAT")


def _evidence(format: Format, paths: tuple[Path, ...]) -> str | None:
    each = [format.evidence(path, _head(path)) for path in paths]
    return None if None in each else each[0]


def _format_by_name(name: str, formats: Sequence[Format]) -> Format:
    known = {format.name: format for format in formats}
    if name in known:
        return known[name]
    hint = did_you_mean(name, known)
    raise TraceError(f"unknown format '{name:.40}': {hint}formats: {', '.join(known)}")


def _require_readable(path: Path, *, allow_folder: bool) -> None:
    try:
        if path.is_dir() and allow_folder:
            return
        if not path.is_file():
            mode = path.stat().st_mode
            raise TraceError(f"{path}: it is a {inputs.kind_of(mode)}, not a file")
        head = _head(path)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not head:
        raise TraceError(f"{path}: it is empty")
    for magic, remedy in _PACKED.items():
        if head.startswith(magic):
            raise TraceError(f"{path}: it is compressed by {remedy} first")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(
            f"{path}: it is UTF-16 text, as PowerShell writes it: `iconv -f UTF-16 -t UTF-8` makes it readable"
        )


def _head(path: Path) -> bytes:
    if path.is_dir():
        return b""
    with inputs.open_file(path) as file:
        return file.read(_HEAD)


def _explain_unknown(paths: tuple[Path, ...], formats: Sequence[Format]) -> str:
    advice = f": if it is one of {', '.join(format.name for format in formats)}, write --as FORMAT"
    if len(paths) > 1:
        return "the files are not all of one known format" + advice
    if paths[0].is_dir():
        return "no recording in this folder"
    return "unknown format" + advice


def _file_names(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _step(format: Format, options: Options, digests: dict[str, str]) -> Step:
    how = {name: _plain(value) for name, value in options.asked().items()}
    return Step(what="imported", how={"format": format.name, **how}, of=digests, tool=f"cellbed {cellbed.__version__}")


def _plain(value: object) -> object:
    return [str(each) if isinstance(each, Path) else each for each in value] if isinstance(value, tuple) else value
