"""Measuring Broadband America: fixed lines of American homes, measured by boxes that SamKnows sent out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.series import Part
from cellbed.archive.sources.reading import reading
from cellbed.archive.sources.series_files import put_rate, put_round_trips
from cellbed.archive.sources.source import Recording, RemoteFile, Source, named

if TYPE_CHECKING:
    import polars as pl

_HOUR = 3_600_000_000_000
_STAMP = "%Y-%m-%d %H:%M:%S"
_THROUGHPUT = re.compile(r"curr_httpgetmt(_\d{4}_\d\d)?\.csv")
_LATENCY = "curr_udplatency"
_COLUMNS = {
    "curr_httpgetmt": (
        *("unit_id", "dtime", "target", "address", "fetch_time", "bytes_total", "bytes_sec", "bytes_sec_interval"),
        *("warmup_time", "warmup_bytes", "sequence", "threads", "successes", "failures", "location_id"),
    ),
    _LATENCY: (
        *("unit_id", "dtime", "target", "rtt_avg", "rtt_min", "rtt_max", "rtt_std"),
        *("successes", "failures", "location_id"),
    ),
}
"""Of the files of the first years, which have no header."""


def _convert(folder: Path, _way: Part) -> Iterator[Recording]:
    import polars as pl

    for path in sorted(folder.rglob("curr_httpgetmt*.csv")):
        if _THROUGHPUT.fullmatch(path.name) is None:
            continue
        of = path.relative_to(folder).as_posix()
        trips = path.with_name(path.name.replace("curr_httpgetmt", _LATENCY))
        with reading(of):
            tests = _scan(path, "curr_httpgetmt").filter(
                # The FCC's own cleansing of the tests.
                pl.col("successes") > 0,
                pl.col("sequence") <= 5,
                pl.col("bytes_sec_interval") > 0,
            )
            units = tests.group_by("unit_id").len().sort("len", "unit_id", descending=[True, False]).collect()
        latencies = _scan(trips, _LATENCY) if trips.exists() else None
        for unit in units["unit_id"]:
            yield _of_unit(int(unit), of, tests, latencies)


def _scan(path: Path, table: str) -> pl.LazyFrame:
    import polars as pl

    with path.open("rb") as file:
        first = file.readline(4096).decode(errors="replace")
    header = "unit_id" in first
    count = first.count(",") + 1
    names = None if header else list(_COLUMNS[table][:count])
    rows = pl.scan_csv(
        path,
        has_header=header,
        new_columns=names,
        infer_schema=False,
        truncate_ragged_lines=True,
        null_values=["NULL", "\\N", ""],
    )
    numbers = [name for name in rows.collect_schema().names() if name not in ("dtime", "target", "address")]
    return rows.with_columns(
        pl.col(numbers).cast(pl.Float64, strict=False),
        pl.col("dtime").str.to_datetime(_STAMP, time_unit="ns", strict=False),
    ).drop_nulls(["unit_id", "dtime"])


def _of_unit(unit: int, of: str, tests: pl.LazyFrame, latencies: pl.LazyFrame | None) -> Recording:
    month = _month(of)
    about = About(
        origin="recorded",
        technology="fixed",
        place="United States",
        date=month,
        mobility="stationary",
        method=(
            "downlink: HTTP over several connections, each 5 s of the tests of a month, one behind the other; "
            "round trips: hourly means of UDP probes"
        ),
        licence=FCC.licence,
        source=FCC.page,
        citation=FCC.citation,
        note="Time between the tests is left out of the downlink, as Mao et al. (Pensieve, SIGCOMM 2017) do.",
    )

    def fill(draft: Draft) -> None:
        import polars as pl

        mine = tests.filter(pl.col("unit_id") == unit).sort("dtime", "target", "sequence").collect()
        before = pl.col("fetch_time").shift(1, fill_value=0.0).over("dtime", "target")
        length = ((pl.col("fetch_time") - before) * 1e3).round().cast(pl.Int64)
        pieces = mine.with_columns(length_ns=length).filter(pl.col("length_ns") > 0)
        series = pieces.select(
            at_ns=pl.col("length_ns").cum_sum() - pl.col("length_ns"), bit_s=pl.col("bytes_sec_interval") * 8
        )
        put_rate(draft, "downlink", series, int(pieces["length_ns"].tail(1).sum()))
        if latencies is None:
            return
        probes = latencies.filter(pl.col("unit_id") == unit, pl.col("rtt_avg") > 0).sort("dtime").collect()
        if probes.height:
            at = (pl.col("dtime") - pl.col("dtime").first()).dt.total_nanoseconds()
            answers = probes.select(at_ns=at, round_trip_ns=(pl.col("rtt_avg") * 1e3).round().cast(pl.Int64))
            put_round_trips(draft, answers, _HOUR)

    return Recording(named("fcc", month or "", f"unit-{unit}"), f"{of} unit {unit}", about, fill)


def _month(of: str) -> str | None:
    found = re.search(r"(?:^|/)(20\d\d)(0[1-9]|1[0-2])/", of) or re.search(r"_(20\d\d)_(0[1-9]|1[0-2])\.csv", of)
    return f"{found[1]}-{found[2]}" if found else None


FCC = Source(
    name="fcc",
    title="Measuring Broadband America of the FCC: fixed lines, June 2016, or any month by --address",
    status="documented",
    page="https://www.fcc.gov/oet/mba/raw-data-releases",
    licence="not stated",
    terms="Published by the United States' government; no licence is stated in what could be read. Name the FCC.",
    citation="Federal Communications Commission. Measuring Broadband America: raw data releases",
    layout=(
        "YYYYMM/curr_httpgetmt[_YYYY_MM].csv: unit_id, dtime, target, fetch_time in µs, bytes_sec_interval, sequence, "
        "successes…; YYYYMM/curr_udplatency[_YYYY_MM].csv: unit_id, dtime, rtt_avg in µs…. With a header or, in the "
        "first years, without. The units with the most tests become entries."
    ),
    checked="the FCC's pages and public code that reads it; no archive was at hand",
    convert=_convert,
    doubt=(
        "Archives have several gigabytes. Others report of 2026 that the server leads to a search page instead; copies "
        "are in the Internet Archive: use --from. The folder of a month's release is not always its year: public code "
        "of others has June 2016 under /2017/, too (…/2017/data-raw-2016-jun.tar.gz), and later months at "
        ".../YYYY/data-raw-YYYY-mmm.tar.gz until 2023, when the programme ended: give one by --address. No checksum is "
        "published for the raw data."
    ),
    unpacked=r"(^|/)curr_(httpgetmt|udplatency)(_\d{4}_\d\d)?\.csv$",
    most_bytes=20_000_000_000,
    most_unpacked_bytes=40_000_000_000,
    most_entries=50,
    remote=(
        RemoteFile(
            "https://data.fcc.gov/download/measuring-broadband-america/2016/data-raw-2016-jun.tar.gz",
            "data-raw-2016-jun.tar.gz",
        ),
    ),
)
