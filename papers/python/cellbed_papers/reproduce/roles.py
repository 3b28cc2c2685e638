"""The recordings that play the roles of a publication's networks: given, in the archive, or stand-ins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cellbed import CellbedError
from cellbed.extension.files import inputs, printable, temporary_folder, write_whole
from cellbed.extension.traces import ENDINGS, Order, make_traces, open_archive, replayable, resolve, series
from cellbed_papers.publication import Input, Recorded, Role, Swept, SweptPublication

_MOST_NAMED = 5
OPPORTUNITY_BIT_MS = 12e6
"""Rate of an opportunity of 1500 bytes each millisecond, bit/s."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording that a user names for a role. source: an entry of the archive, or a file or folder. text: as written
    by the user."""

    role: Role
    source: str | Path
    text: str

    def traces(self, folder: Path) -> dict[str, str]:
        """Return the traces by direction, as scenarios name them; converted ones are in `folder`."""
        name = f"{self.role.name}-recorded"
        if isinstance(self.source, Path):
            found = {way: str(path) for way, path in make_traces(self.source, folder, name).items()}
        else:
            parts = open_archive().entry(self.source).parts
            found = {way: f"{self.source}.{way}" for way, part in ENDINGS.items() if part in parts}
        if math.isinf(self.role.most):
            return found
        return {way: _limit(trace, self.role.most, folder / f"{name}-limited.{way}") for way, trace in found.items()}


def traces(
    publication: SweptPublication, chosen: Sequence[Swept | Recorded], folder: Path, given: Sequence[str] = ()
) -> tuple[dict[Input, str], list[str]]:
    """Return the trace of each direction of each role in the chosen experiments, as scenarios name it, and notes.

    A trace is a given recording's, else an entry's of the user's archive, else a stand-in. Converted recordings and
    generated stand-ins are written to `folder`. given: folders of recordings, or ``ROLE=ENTRY`` or ``ROLE=PATH`` for
    one. Errors: :class:`CellbedError`, OSError.
    """
    recordings, notes = find_recordings(publication, given)
    found: dict[Input, str] = {}
    wanted = repr(chosen) + repr(publication.scenario)
    for role in publication.roles:
        ways = [way for way in ENDINGS if mark(f"{role.name}.{way}") in wanted]
        if not ways:
            continue
        own: dict[str, tuple[str, str]] = {}
        for each in (recording for recording in recordings if recording.role == role):
            for way, trace in each.traces(folder).items():
                if way in own:
                    raise CellbedError(f"--traces: {role.name}.{way} is both {own[way][1]} and {each.text}")
                own[way] = trace, f"{each.text} (given)"
            if not own.keys() & set(ways):
                notes.append(f"{each.text} is not played: {role.name} needs {' and '.join(ways)}.")
        if role.entry and not own.keys() >= set(ways) and open_archive().has(role.entry):
            stored = Recording(role, role.entry, role.entry).traces(folder)
            own = {way: (trace, f"{role.entry}.{way} (archive)") for way, trace in stored.items()} | own
        for way in ways:
            trace, text = own.get(way) or _stand_in(role, way, folder)
            found[Input(f"{role.name}.{way}", text, way not in own)] = trace
    return found, notes


def find_recordings(publication: SweptPublication, given: Sequence[str]) -> tuple[list[Recording], list[str]]:
    """Return a user's recordings of a publication's roles, and notes on other files. Errors: :class:`CellbedError`."""
    roles = {_normalize(name): role for role in publication.roles for name in (*role.files, role.name)}
    found, notes = [], []
    for text in given:
        name, equals, source = text.partition("=")
        path, folder = Path(source), Path(text)
        if not roles:
            raise CellbedError(f"--traces: {publication.name} has no recordings")
        if folder.is_dir():
            others = []
            for each in sorted(folder.iterdir()):
                shown = printable(each.name, kept="")
                if (role := roles.get(_normalize(each.name.partition(".")[0]))) is not None:
                    found.append(Recording(role, each, shown))
                else:
                    others.append(shown)
            if others:
                shown = ", ".join(others[:_MOST_NAMED]) + ", …" * (len(others) > _MOST_NAMED)
                notes.append(f"{text}: no role has these names, which are not played: {shown}.")
        elif not equals:
            raise CellbedError(f"--traces {text}: not a folder: give the one with the recordings' files, or ROLE=NAME")
        elif _normalize(name) not in roles:
            names = ", ".join(role.name for role in publication.roles)
            raise CellbedError(f"--traces {text}: '{name}' is no role of {publication.name}: write one of {names}")
        else:
            if not open_archive().has(source) and not path.exists():
                raise CellbedError(f"--traces {text}: neither an entry of `cellbed traces ls` nor a file")
            known = source if open_archive().has(source) else path
            found.append(Recording(roles[_normalize(name)], known, source))
    return found, notes


def mark(name: str) -> str:
    """Return the placeholder of a direction of a role in a publication's scenario: ``{trace:ROLE.up}``."""
    return f"{{trace:{name}}}"


def _normalize(name: str) -> str:
    return name.casefold().replace("_", "-")


def _stand_in(role: Role, way: str, folder: Path) -> tuple[str, str]:
    """Return a stand-in, as scenarios write it, and its description."""
    if isinstance(role.model, Mapping):
        return role.model[way], f"stand-in: {role.stand_in or f'constant {role.model[way]}'}"
    path = folder / f"{role.name}.{way}"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = ENDINGS[way]
        generated = role.model.make(Order(role.model.name, 1, role.model.duration_ns))[part]
        with temporary_folder() as temporary:
            made = series.write(generated, temporary / "series.parquet", part, lambda part, share: None)
            write_whole(path, partial(replayable.write_text, made.series))
    return str(path.absolute()), f"stand-in: {role.stand_in or f'generator {role.model.name}'}"


def _limit(trace: str, bit_s: float, path: Path) -> str:
    """Write a trace without the opportunities of each millisecond above a rate; return its path."""
    import numpy as np

    source = resolve(trace, Path())
    source.check()
    at, counts = np.unique(np.loadtxt(inputs.check(source.path), np.int64, ndmin=1), return_counts=True)
    most = np.floor((at + 1) * bit_s / OPPORTUNITY_BIT_MS) - np.floor(at * bit_s / OPPORTUNITY_BIT_MS)
    counts = np.minimum(counts, most.astype(np.int64))
    counts[-1] = max(1, counts[-1])  # the end of the loop
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, partial(np.savetxt, X=np.repeat(at, counts), fmt="%d"))
    return str(path.absolute())
