"""Entries for tests of the archive."""

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

from cellbed.archive import Archive, open_archive
from cellbed.archive.entry import About, Draft, Entry
from cellbed.archive.series import Content, Part, Series

MS = 1_000_000
SECOND = 1000 * MS


def write_opportunities(draft: Draft, part: Part, stamps_ms: Sequence[int], duration_ns: int | None = None) -> None:
    """A series with an opportunity at each of these times."""
    path = draft.folder / f"{part}.parquet"
    table = pl.DataFrame({"at_ns": [stamp * MS for stamp in stamps_ms]}, schema={"at_ns": pl.Int64})
    table.write_parquet(path)
    last = int(stamps_ms[-1] * MS if stamps_ms else 0)
    draft.parts[part] = Series(Content.OPPORTUNITIES, path, last if duration_ns is None else duration_ns)


def write_rates(draft: Draft, part: Part, steps: Sequence[tuple[int, float]], duration_ns: int) -> None:
    """A series with each of these rates (bit/s) from its time (ns) on."""
    path = draft.folder / f"{part}.parquet"
    schema = {"at_ns": pl.Int64, "bit_s": pl.Float64}
    pl.DataFrame(steps, schema=schema, orient="row").write_parquet(path)
    draft.parts[part] = Series(Content.RATE, path, duration_ns)


def write_round_trips(draft: Draft, probes: Sequence[tuple[int, int | None]], duration_ns: int) -> None:
    """A series of probes: when each was sent and how long its answer took, ns; None where none came."""
    path = draft.folder / "round-trip.parquet"
    schema = {"at_ns": pl.Int64, "round_trip_ns": pl.Int64}
    pl.DataFrame(probes, schema=schema, orient="row").write_parquet(path)
    draft.parts["round-trip"] = Series(Content.ROUND_TRIP, path, duration_ns)


def add(archive: Archive, name: str, *, every_ms: int = 1, seconds: int = 1, replace: bool = False,
        parts: Sequence[Part] = ("uplink",), **about: str) -> Entry:  # fmt: skip
    """An entry with an opportunity every so many milliseconds."""
    described = About.model_validate({"origin": "recorded"} | about)
    with archive.draft(described) as draft:
        for part in parts:
            write_opportunities(draft, part, range(every_ms, seconds * 1000 + 1, every_ms))
        return archive.keep(draft, name, replace)


@contextmanager
def copied(archive: Path, folder: Path) -> Iterator[Archive]:
    """Use a copy of an archive as the user's. folder: of the user's data."""
    shutil.copytree(archive, folder / "cellbed" / "traces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield open_archive()


def unfinished(archive: Archive) -> list[str]:
    """The folders of drafts."""
    return [path.name for path in archive.folder.iterdir() if path.name.startswith(".unfinished")]


BEGIN = """
import sys, time
from cellbed.archive import TraceError, open_archive
from cellbed.archive.entry import About
from archive_examples import add, write_opportunities
archive = open_archive()
"""


def start(script: str, *words: str) -> subprocess.Popen[str]:
    """Another process that changes the archive."""
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script), *words],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    )
