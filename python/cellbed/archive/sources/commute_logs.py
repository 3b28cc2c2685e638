"""Bandwidth logs of commuters: Norwegian HSDPA of 2010/11, and the Belgian 4G of 2015/16, which took over its format.

A line is the time of day, the experiment's time in ms, latitude, longitude, bytes received since the line before and ms
since the line before; so its rate holds for the time that ends with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part
from cellbed.archive.sources.source import Listing, Recording, RemoteFile, Source, named, put_rate
from cellbed.support import inputs

_NS = 1_000_000
_COLUMNS = ("of_day", "experiment_ms", "latitude", "longitude", "bytes", "elapsed_ms")
_WHOLE = ("experiment_ms", "bytes", "elapsed_ms")


def _fill(path: Path, draft: Draft) -> None:
    import polars as pl

    # Columns are aligned by several spaces in places, and numbers padded with zeros.
    six = r"\s+".join(rf"(?P<{name}>-?[0-9.]+)" for name in _COLUMNS)
    file = inputs.checked(path)
    lines = pl.read_csv(
        file, has_header=False, new_columns=["line"], separator="\x1f", quote_char=None, infer_schema=False
    )
    rows = lines.select(pl.col("line").str.extract_groups(rf"^\s*{six}\s*$")).unnest("line")
    rows = rows.select(pl.col(_WHOLE).cast(pl.Int64))
    if bad := rows["elapsed_ms"].null_count():
        at = int(rows.with_row_index().filter(pl.col("elapsed_ms").is_null())["index"][0]) + 1
        raise TraceError(f"{path.name}:{at}: {bad} lines of this log do not have six numbers, this one first")
    timed = rows.filter(pl.col("elapsed_ms") > 0)
    end = pl.col("elapsed_ms").cum_sum()
    series = timed.select(
        at_ns=(end - pl.col("elapsed_ms")) * _NS,
        bit_s=pl.col("bytes") * 8_000.0 / pl.col("elapsed_ms"),
    )
    put_rate(draft, "downlink", series, int(timed["elapsed_ms"].tail(1).sum()) * _NS)
    if lost := rows.height - timed.height:
        draft.notes.append(f"{lost} of {rows.height} lines last no time and are left out")
    clock = int(rows["experiment_ms"][-1]) - int(rows["experiment_ms"][0]) + int(rows["elapsed_ms"][0])
    if (gone := clock - int(timed["elapsed_ms"].sum())) > 1000:
        draft.notes.append(f"the log has gaps of {gone / 1000:.0f} s together, which are left out")


_ROUTE = re.compile(r"(bus|car|ferry|metro|train|tram)\.(.+)")
_REPORT = re.compile(r"report\.(\d{4}-\d\d-\d\d)_(\d{4})([A-Z]*)\.log")
_NORWEGIAN_MOBILITY = {"car": "driving", "metro": "subway"}


def _norway(folder: Path, _way: Part) -> Iterator[Recording]:
    for path in sorted(folder.rglob("report.*.log")):
        report, route = _REPORT.fullmatch(path.name), _ROUTE.fullmatch(path.parent.name)
        if report is None or route is None:
            continue
        about = About(
            origin="recorded",
            technology="3g",
            operator="Telenor",
            place=f"Norway: {route[2]}",
            date=report[1],
            mobility=_NORWEGIAN_MOBILITY.get(route[1], route[1]),
            method="bytes of TCP payload received in about a second each, while video segments are downloaded",
            licence=NORWAY.licence,
            source=NORWAY.page,
            citation=NORWAY.citation,
        )
        name = named("norway-3g", path.parent.name, report[1], report[2])
        yield Recording(name, path.relative_to(folder).as_posix(), about, partial(_fill, path))


NORWAY = Source(
    name="norway-3g",
    title="The Norwegian HSDPA logs: Telenor's 3G on bus, car, ferry, metro, train and tram around Oslo",
    page="https://datasets.simula.no/hsdpa-tcp-logs/",
    licence="not stated",
    terms=(
        "The data set's page asks for nothing that could be read. Cite the paper; ask the authors before passing the "
        "logs on."
    ),
    citation=(
        "H. Riiser, P. Vigmostad, C. Griwodz, P. Halvorsen. Commute Path Bandwidth Traces from 3G Networks: Analysis "
        "and Applications. ACM MMSys 2013"
    ),
    layout=(
        "MEANS.FROM-TO/report.YYYY-MM-DD_HHMMZONE.log; a line: seconds since 1970, ms of the experiment, latitude, "
        "longitude, bytes since the line before, ms since the line before."
    ),
    checked="the data set's page, with its example of a log; names of folders and files as public code lists them",
    convert=_norway,
    doubt=(
        "The server's pages are read for the names of the files; where they are now, and how they look, is as public "
        "code of others has it. A copy is at http://skuld.cs.umass.edu/traces/mmsys/2013/pathbandwidth/, whose lists "
        "of files were not looked at: download by hand and use --from. No checksum is published."
    ),
    remote=Listing("https://datasets.simula.no/downloads/hsdpa-tcp-logs/", _ROUTE.pattern, _REPORT.pattern),
)

_LOG = re.compile(r"report_(bicycle|bus|car|foot|train|tram)_(\d+)\.log")
_BELGIAN_MOBILITY = {"car": "driving", "foot": "walking", "bicycle": "cycling"}


def _belgium(folder: Path, _way: Part) -> Iterator[Recording]:
    for path in sorted(folder.rglob("report_*.log")):
        found = _LOG.fullmatch(path.name)
        if found is None:
            continue
        about = About(
            origin="recorded",
            technology="4g",
            place="Ghent, Belgium",
            date=_date(path),
            mobility=_BELGIAN_MOBILITY.get(found[1], found[1]),
            method="bytes received by HTTP in about a second each; the server's own link had 100 Mbit/s",
            licence=BELGIUM.licence,
            source=BELGIUM.page,
            citation=BELGIUM.citation,
        )
        name = named("belgium-4g", found[1], found[2])
        yield Recording(name, path.relative_to(folder).as_posix(), about, partial(_fill, path))


def _date(path: Path) -> str | None:
    """Return the day of a log's first line, which begins with milliseconds since 1970."""
    import datetime

    with inputs.opened(path) as file:
        word = file.read(20).split(maxsplit=1)[:1]
    if not word or not word[0].isdigit() or len(word[0]) != 13:
        return None
    return datetime.datetime.fromtimestamp(int(word[0]) / 1000, datetime.UTC).date().isoformat()


BELGIUM = Source(
    name="belgium-4g",
    title="The Belgian 4G/LTE bandwidth logs: Ghent on foot, by bicycle, bus, tram, train and car",
    page="https://users.ugent.be/~jvdrhoof/dataset-4g/",
    licence="not stated",
    terms=(
        "The data set's page asks for nothing that could be read. Cite the paper; ask the authors before passing the "
        "logs on."
    ),
    citation=(
        "J. van der Hooft, S. Petrangeli, T. Wauters, R. Huysegems, P. R. Alface, T. Bostoen, F. De Turck. "
        "HTTP/2-Based Adaptive Streaming of HEVC Video Over 4G/LTE Networks. IEEE Communications Letters 20(11), 2016"
    ),
    layout=(
        "report_MEANS_NNNN.log with MEANS of bicycle, bus, car, foot, train, tram; a line: ms since 1970, ms of the "
        "experiment, latitude, longitude, bytes since the line before, ms since the line before."
    ),
    checked="the data set's page, with its example of a log; names of files as public code lists them",
    convert=_belgium,
    doubt="The operator is not named. No checksum is published.",
    remote=(RemoteFile("https://users.ugent.be/~jvdrhoof/dataset-4g/logs/logs_all.zip", "logs_all.zip"),),
)
