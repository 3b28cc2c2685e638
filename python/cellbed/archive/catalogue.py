"""Look-up of traces: names of the archive, and files by path."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.examples import EXAMPLES, MODELS
from cellbed.archive.files import find_file, obstacle
from cellbed.archive.series import ENDINGS, Part
from cellbed.archive.soundness import sha256
from cellbed.archive.store import Archive, open_archive
from cellbed.support.errors import quote
from cellbed_node import inputs

if TYPE_CHECKING:
    from cellbed._core import Trace
    from cellbed.archive.entry import Entry
    from cellbed.archive.statistics import Definition, Statistics

ARCHIVE = tuple(MODELS)
"""Names of the traces that every archive has: the examples."""


class TraceSource:
    """A trace that a scenario names; the file is made, hashed and parsed lazily.

    name: text in the scenario. file: path of a file, or archive, name and direction of an entry. synthetic: whether
    the trace comes from a model instead of a recording.
    """

    def __init__(self, name: str, file: Path | tuple[Archive, str, Part], synthetic: bool = False) -> None:
        self.name, self.synthetic, self._file = name, synthetic, file

    def __repr__(self) -> str:
        return f"TraceSource({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TraceSource) and (self.name, self._file) == (other.name, other._file)

    def __hash__(self) -> int:
        return hash((self.name, self._file))

    @cached_property
    def path(self) -> Path:
        """Absolute path of the file that the engine reads. Raises TraceError if the file cannot be made."""
        if isinstance(self._file, Path):
            return self._file
        from cellbed.archive.replayable import replayable

        archive, name, part = self._file
        return replayable(*archive.series_and_hash(name, part))

    def entry(self) -> "tuple[Entry, Part] | None":
        """Return the trace's entry of the archive, and the direction; None for a file. Raises TraceError."""
        if isinstance(self._file, Path):
            return None
        archive, name, part = self._file
        return archive.entry(name), part

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of an entry's series in the archive, or of a file. Raises TraceError."""
        found = self.entry()
        return sha256(self.path) if found is None else found[0].parts[found[1]].sha256

    @cached_property
    def trace(self) -> "Trace":
        """The parsed trace. Raises TraceError ``FILE:LINE: reason`` for a malformed trace."""
        from cellbed._core import TraceFormatError, parse_trace

        try:
            return parse_trace(str(inputs.check(self.path)))
        except TraceFormatError as error:
            table = f'{{ kind = "series", file = "{self.path.name}" }}'
            hint = f": for a table of rates write {table}" if self.path.suffix.lower() == ".csv" else ""
            raise TraceError(f"{error}{hint}") from error
        except OSError as error:
            raise TraceError(f"{self.path}: cannot read this trace: {error.strerror}") from error

    def check(self) -> None:
        """Read the trace. Raises TraceError."""
        _ = self.trace


def resolve(text: str, folder: Path) -> TraceSource:
    """Return the trace called `text`.

    Args:
        text: A name of the archive, else a path. A path with a slash, ``./walk.up``, is always a file.
        folder: The folder of relative paths.

    Returns:
        The trace.

    Raises:
        TraceError: Neither exists.
    """
    archive = open_archive()
    name, part = entry_and_part(archive, text)
    if part is not None:
        is_example = name in EXAMPLES  # made at first use
        if not is_example:
            archive.series(name, part)
        is_synthetic = is_example or archive.entry(name).about.origin == "synthetic"
        return TraceSource(text, (archive, name, part), is_synthetic)
    path = find_file(text, folder)
    if path is not None:
        return TraceSource(text, path)
    why = obstacle(text, folder, "trace file")
    if why.startswith("there is no file") and "/" not in text:
        # The text may be a misspelt name.
        why = f"unknown trace {quote(text)}, and no such file in {folder.absolute()}"
    hint = _hint(text, archive)
    known = ", ".join(ARCHIVE)
    raise TraceError(
        f"{why}: {hint}write the name of an entry (see `cellbed traces ls`: {known}, …), or the path of a file"
    )


def is_named(text: str) -> bool:
    """Return whether the archive has a trace called ``text``."""
    return entry_and_part(open_archive(), text)[1] is not None


def statistics_of(archive: Archive, name: str, definition: "Definition") -> "dict[Part, Statistics]":
    """Return the statistics of an entry by part; only one direction's if `name` contains it. Raises TraceError.

    Stored statistics of this definition are used.
    """
    from cellbed.archive.entry import second_of_day
    from cellbed.archive.statistics import statistics

    name, only = entry_and_part(archive, name)
    entry = archive.entry(name)
    if only is not None:
        archive.series(name, only)
    starts = second_of_day(entry.about)
    return {
        part: held.statistics
        if held.statistics is not None and definition.matches(held.statistics)
        else statistics(archive.series(name, part), definition, starts)
        for part, held in entry.parts.items()
        if only in (None, part)
    }


def entry_and_part(archive: Archive, text: str) -> tuple[str, Part | None]:
    """Return the name of an entry in ``text``, and the direction, if there is one: ``walk.up``. The entry need not
    exist."""
    name, _, ending = text.rpartition(".")
    return (name, ENDINGS[ending]) if ending in ENDINGS and archive.has(name) else (text, None)


def _hint(text: str, archive: Archive) -> str:
    """Return similar names as a question; empty if there are none."""
    from cellbed.support.near_names import near_names, question

    folded = text.lower()[:100]
    if archive.has(folded):
        ways = _directions(archive, folded)
        has = ", ".join(archive.entry(folded).parts) or "no series"
        alone = "" if len(ways) > 1 else f"the entry '{folded}' has only {has}: "
        return alone + (f"{question(ways)} " if ways else "")
    entries = archive.names()
    near = near_names(folded, sorted({*ARCHIVE, *(f"{name}.{ending}" for name in entries for ending in ENDINGS)}))
    there = [name for name in near if name in _directions(archive, name.rpartition(".")[0])]
    return f"{question(there)} " if there else ""


def _directions(archive: Archive, name: str) -> list[str]:
    """Return the names that scenarios use for the directions of an entry."""
    try:
        parts = archive.entry(name).parts
    except TraceError:
        return []
    return [f"{name}.{ending}" for ending, part in ENDINGS.items() if part in parts]
