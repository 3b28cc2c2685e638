"""Drives across the United States with three phones at once: throughput of 4G and 5G, both directions, and pings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part
from cellbed.archive.sources.source import (
    Checksum,
    Recording,
    RemoteFile,
    Source,
    named,
    published,
    put_rate,
    put_round_trips,
)
from cellbed.support import inputs

if TYPE_CHECKING:
    import polars as pl

_SECOND = 1_000_000_000
_COMMIT = "782b712599f3710f7d3acff57097af6ca14660ae"
_FOLDER = (
    f"https://media.githubusercontent.com/media/NUWiNS/pam2025-multi-carrier-dataset/{_COMMIT}/datasets/processed_files"
)
"""Where GitHub serves files of Git LFS; elsewhere it serves their pointers."""
_OPERATORS = {"atnt": "AT&T", "tmobile": "T-Mobile", "verizon": "Verizon"}
_ROUTES = {"1": "Boston and Los Angeles", "2": "Boston and Atlanta", "3": "Boston and Chicago"}
_RATES = re.compile(r"(atnt|tmobile|verizon)_(?:(day_\d(?:_cst)?)_)?d([123])_(dl|ul)\.csv")
_PINGS = re.compile(r"rtt_(atnt|tmobile|verizon)([23])\.csv")
_PARTS: dict[str, Part] = {"dl": "downlink", "ul": "uplink"}
_STAMP = "%Y-%m-%d %H:%M:%S%.f"
_FIFTH, _FOURTH = "5G KPI PCell RF Frequency [MHz]", "LTE KPI PCell Serving EARFCN(DL)"
_LONGEST_NS = 2 * _SECOND
"""How far apart throughputs are at most, unless they usually are farther; else a test has ended between them."""


def _convert(folder: Path, _way: Part) -> Iterator[Recording]:
    for path in sorted(folder.rglob("*.csv")):
        of = path.relative_to(folder).as_posix()
        if found := _RATES.fullmatch(path.name):
            operator, day, drive, way = found.groups()
            name = named("us-drives", operator, f"drive-{drive}", (day or "").replace("_", "-"), _PARTS[way])
            method = "throughput that XCAL logs on a phone during tests of about half a minute, one behind the other"
            yield Recording(name, of, _about(operator, drive, method), partial(_rates, path, _PARTS[way]))
        elif found := _PINGS.fullmatch(path.name):
            operator, drive = found.groups()
            method = "ping each 200 ms, counted on from the start of each ping; lost ones are not in the file"
            name = named("us-drives", operator, f"drive-{drive}", "round-trip")
            yield Recording(name, of, _about(operator, drive, method), partial(_pings, path))


def _about(operator: str, drive: str, method: str) -> About:
    return About(
        origin="recorded",
        operator=_OPERATORS[operator],
        place=f"United States: between {_ROUTES[drive]}",
        mobility="driving",
        method=method,
        licence=US_DRIVES.licence,
        source=US_DRIVES.page,
        citation=US_DRIVES.citation,
    )


def _rates(path: Path, way: Part, draft: Draft) -> None:
    import polars as pl

    rate = f"Smart Phone Smart Throughput Mobile Network {'DL' if way == 'downlink' else 'UL'} Throughput [Mbps]"
    table = pl.read_csv(inputs.checked(path), infer_schema=False, null_values=["", "nan"], truncate_ragged_lines=True)
    rows = table.select(
        at_ns=pl.col("TIME_STAMP").str.to_datetime(_STAMP, time_unit="ns", strict=False).cast(pl.Int64),
        bit_s=pl.col(rate).cast(pl.Float64) * 1e6,
    )
    measured = rows.drop_nulls().sort("at_ns", maintain_order=True)
    measured = measured.group_by("at_ns", maintain_order=True).agg(pl.col("bit_s").mean())
    if measured.height < 2:
        raise TraceError(f"{path.name}: there are no throughputs with their times in it")
    if lost := rows["bit_s"].count() - rows.drop_nulls().height:
        draft.notes.append(f"{lost} throughputs have no time that can be read and are left out")
    apart = measured["at_ns"].diff().drop_nulls()
    usual = int(apart.quantile(0.5, "nearest") or 0)
    longest = max(_LONGEST_NS, 3 * usual)
    after = pl.col("at_ns").shift(-1) - pl.col("at_ns")
    held = pl.when(after <= longest).then(after).otherwise(usual)
    series = measured.select(at_ns=held.cum_sum() - held, bit_s="bit_s")
    put_rate(draft, way, series, usual)
    draft.about = draft.about.model_copy(update=_networks(table) | {"date": _day(int(measured["at_ns"][0]))})
    gaps = apart.filter(apart > longest)
    if gaps.len():
        minutes = int(gaps.sum()) / 60 / _SECOND
        draft.notes.append(f"{gaps.len() + 1} tests one behind the other; {minutes:.0f} min between them are left out")


def _networks(table: pl.DataFrame) -> dict[str, str]:
    """Technology and band, after the cells that the rows name; with 5G, rows name the LTE cell beside it, too."""
    import polars as pl

    if not {_FIFTH, _FOURTH} <= set(table.columns):
        return {}
    cells = table.select(pl.col(_FIFTH).cast(pl.Float64, strict=False), pl.col(_FOURTH).is_not_null())
    fifth, named_cell = cells[_FIFTH].count(), cells.filter(pl.col(_FIFTH).is_not_null() | pl.col(_FOURTH)).height
    if not named_cell:
        return {}
    most = fifth * 2 >= named_cell
    found = {"technology": "5g" if most else "4g", "note": f"{fifth / named_cell:.0%} of the rows name a cell of 5G."}
    middle = cells[_FIFTH].median()
    if most and isinstance(middle, float):
        found["band"] = "low" if middle < 1000 else "mid" if middle < 7000 else "mmwave"
    return found


def _day(at_ns: int) -> str:
    import datetime

    return datetime.datetime.fromtimestamp(at_ns / _SECOND, datetime.UTC).date().isoformat()


def _pings(path: Path, draft: Draft) -> None:
    import polars as pl

    table = pl.read_csv(inputs.checked(path), infer_schema=False, null_values=[""])
    rows = table.select(
        at_ns=pl.col("Timestamp").cast(pl.Float64).round().cast(pl.Int64) * 1_000_000,
        round_trip_ns=(pl.col("Time (ms)").cast(pl.Float64) * 1e6).round().cast(pl.Int64),
    )
    rows = rows.drop_nulls().sort("at_ns", maintain_order=True)
    if not rows.height:
        raise TraceError(f"{path.name}: there are no round trips in it")
    draft.about = draft.about.model_copy(update={"date": _day(int(rows["at_ns"][0]))})
    put_round_trips(draft, rows.with_columns(pl.col("at_ns") - int(rows["at_ns"][0])), _SECOND // 5)


def _path(name: str) -> str:
    """Return the path of a file in the data set's folder."""
    if found := _PINGS.fullmatch(name):
        return f"extracted_ping_data/{found[1]}/d{found[2]}/{name}"
    operator, way = name.partition("_")[0], name.removesuffix(".csv")[-2:]
    return f"extracted_tput_data/{operator}/{way.upper()}/{name}"


US_DRIVES = Source(
    name="us-drives",
    title="4G and 5G of three operators on three drives across the United States: both directions, and round trips",
    page="https://github.com/NUWiNS/pam2025-multi-carrier-dataset",
    licence="CC0-1.0",
    terms="Cite the paper.",
    citation=(
        "A Large-Scale Study of the Potential of Multi-Carrier Access in the 5G Era. Passive and Active Measurement "
        "Conference (PAM), 2025; its repository is of NUWiNS, Northeastern University"
    ),
    layout=(
        "extracted_tput_data/OPERATOR/DL and UL/OPERATOR_day_DAY_dDRIVE_dl.csv: TIME_STAMP, throughput of the "
        "direction in Mbit/s where there is one, frequencies of the cells; a day of a drive becomes an entry of each "
        "direction. extracted_ping_data/OPERATOR/dDRIVE/rtt_OPERATORDRIVE.csv: Timestamp in ms since 1970, Time (ms)."
    ),
    checked=(
        "the repository's README, which names columns and units, and its scripts, which write and read the files; the "
        "files themselves are in Git LFS and were not at hand"
    ),
    convert=_convert,
    doubt=(
        "Files of the first drive (d1) are inherited from another study and may have another layout; what cannot be "
        "read is left out and named. The interval of XCAL's log is not stated: a rate holds until the next one, and "
        "time between tests is left out. That the address serves the files is as public code of others has it."
    ),
    remote=tuple(
        RemoteFile(f"{_FOLDER}/{_path(name)}", _path(name), Checksum("sha256", digest))
        for name, digest in published("us-drives").items()
    ),
)
