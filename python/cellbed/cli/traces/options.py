"""Options that several verbs of the archive have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer

_DRAWN: Final = (".png", ".svg", ".html")


def text(words: str, *names: str, metavar: str = "TEXT") -> Any:
    """Return an option with any text."""
    return typer.Option(*names, help=words, metavar=metavar)


def duration(text: str) -> int:
    """Return a duration in ns."""
    from cellbed.support.units import DURATION, UnitError

    try:
        return int(DURATION.parse(text))
    except UnitError as error:
        raise typer.BadParameter(str(error)) from None


def outage(text: str) -> int:
    """Return the minimum silence that counts as an outage, ns."""
    length = duration(text)
    if not length:
        raise typer.BadParameter("the length of an outage must be above 0")
    return length


Outage = Annotated[
    int, typer.Option(parser=outage, metavar="TIME", help="Minimum length of a silence that counts as an outage.")
]


def bit_rate(text: str) -> float:
    """Return a rate in bit/s from the notation of `mm-link` or of scenarios: ``20mbit``, ``20 Mbit/s``."""
    from cellbed.shell.mahimahi.arguments import MahimahiError, parse_rate
    from cellbed.support.units import BIT_RATE, UnitError

    try:
        rate = parse_rate(text)
        return float(BIT_RATE.parse(text) if rate is None else rate)
    except (MahimahiError, UnitError) as error:
        raise typer.BadParameter(str(error)) from None


def entry_names(incomplete: str) -> list[str]:
    """Return the archive's entries whose names begin with `incomplete`, for completion."""
    from cellbed.archive import TraceError, open_archive

    try:
        return [name for name in open_archive().names() if name.startswith(incomplete)]
    except TraceError:
        return []


def entries_and_files(incomplete: str) -> list[str]:
    """Return matching entries and files for completion. Pictures and pages, which contain no trace, are left out."""
    return entry_names(incomplete) + [each for each in _files(incomplete) if not each.endswith(_DRAWN)]


def format_names(incomplete: str) -> list[str]:
    """Return the formats of `add` whose names begin with `incomplete`, for completion."""
    from cellbed.recordings.importing import FORMATS

    return [known.name for known in FORMATS if known.name.startswith(incomplete)]


def entries_and_directions(incomplete: str) -> list[str]:
    """Return matching entries, and the directions of an entry whose name is complete, for completion."""
    name = incomplete.rpartition(".")[0] or incomplete
    return entry_names(incomplete) + [each for each in _directions(incomplete) if each.startswith(f"{name}.")]


def directions_and_files(incomplete: str) -> list[str]:
    """Return matching directions of entries, as in scenarios, and files, for completion."""
    return _directions(incomplete) + _files(incomplete)


def _directions(incomplete: str) -> list[str]:
    name, dot, _ending = incomplete.rpartition(".")
    found = [f"{each}.{way}" for each in entry_names(name if dot else incomplete) for way in ("up", "down")]
    return [each for each in found if each.startswith(incomplete)]


def _files(incomplete: str) -> list[str]:
    folder, _, begin = incomplete.rpartition("/")
    try:
        there = sorted(Path(f"{folder}/" if folder or incomplete[:1] == "/" else ".").iterdir())
    except OSError:
        return []
    before = f"{folder}/" if "/" in incomplete else ""
    return [f"{before}{path.name}{'/' if path.is_dir() else ''}" for path in there if path.name.startswith(begin)]
