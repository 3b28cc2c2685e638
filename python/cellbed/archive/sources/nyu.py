"""NYU-METS: LTE throughput on New York's buses, subway, ferry and railway."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part
from cellbed.archive.sources.source import Recording, Source, git_files, named, published, put_rate
from cellbed.archive.sources.unpack import plain_bytes

if TYPE_CHECKING:
    import polars as pl

_SECOND = 1_000_000_000
_MOST_BYTES = 50_000_000
_COMMIT = "886c73b1398457ba5f87faefe7a9ea3755e713f7"
_REPOSITORY = "NYU-METS/Main"
_RIDES = (
    (r"7Train", "subway", "subway line 7, Queensboro Plaza to Flushing Main Street"),
    (r"QTrain", "subway", "subway line Q, Prospect Park to Coney Island"),
    (r"DTrain", "subway", "subway line D, Prospect Avenue to Stillwell Avenue"),
    (r"Long_Island", "train", "Long Island Rail Road, Woodside to Little Neck"),
    (r"bus57", "bus", "bus B57, Brooklyn to Flushing Avenue"),
    (r"bus62", "bus", "bus B62, MetroTech to Queensboro Plaza"),
    (r"BB16", "bus", "bus B16"),
    (r"BB61", "bus", "bus B61"),
    (r"BB62", "bus", "bus B62"),
    (r"MM15", "bus", "bus M15"),
    (r"TT7", "subway", "subway line 7"),
)


def _convert(folder: Path, way: Part) -> Iterator[Recording]:
    for path in sorted(folder.rglob("*")):
        ride = next((each for each in _RIDES if re.match(each[0], path.name)), None)
        if ride is None or not path.is_file():
            continue
        of = path.relative_to(folder).as_posix()
        if path.suffix == ".csv":
            yield Recording(
                named("nyu-lte", path.stem), of, _about(*ride[1:], way, "2019"), partial(_sample, path, way)
            )
        elif path.name.endswith("txt.gz"):
            note = "The README does not state the unit of the throughput: taken as Mbit/s, as in the sample traces."
            name = named("nyu-lte-2020", re.sub(r"\.?txt\.gz$", "", path.name))
            yield Recording(name, of, _about(*ride[1:], way, "2020", note), partial(_multivariate, path, way))


def _about(mobility: str, line: str, way: Part, year: str, note: str = "") -> About:
    direction = (
        f"Taken for the {way} by the user who fetched it: neither README nor papers state which direction was measured."
    )
    return About(
        origin="recorded",
        technology="4g",
        place=f"New York City, United States: {line}",
        date=year,
        mobility=mobility,
        method="throughput of TCP by iPerf, each second, logged at the server",
        licence=NYU.licence,
        source=NYU.page,
        citation=NYU.citation,
        note=f"{direction} The date is the year of the publication. {note}".strip(),
    )


def _sample(path: Path, way: Part, draft: Draft) -> None:
    import polars as pl

    rows = _table(path, {"rate": pl.Float64, "unit": pl.String})
    units = rows["unit"].str.strip_chars().unique().to_list()
    factors = {"Mbits/sec": 1e6, "Kbits/sec": 1e3, "bits/sec": 1.0}
    if strange := [unit for unit in units if unit not in factors]:
        raise TraceError(f"{path.name}: the unit {strange[0]!r} is not one that iPerf writes")
    factor = pl.col("unit").str.strip_chars().replace_strict(factors, return_dtype=pl.Float64)
    _put(draft, way, path, rows.select(bit_s=pl.col("rate") * factor))


def _multivariate(path: Path, way: Part, draft: Draft) -> None:
    import polars as pl

    names = ("rate", "neighbours", "changed", "rssi", "rsrq", "advance", "speed", "band")
    rows = _table(path, dict.fromkeys(names, pl.Float64))
    _put(draft, way, path, rows.select(bit_s=pl.col("rate") * 1e6))


def _table(path: Path, schema: dict[str, Any]) -> pl.DataFrame:
    import polars as pl

    return pl.read_csv(io.BytesIO(plain_bytes(path, _MOST_BYTES)), has_header=False, schema=schema)


def _put(draft: Draft, way: Part, path: Path, rows: pl.DataFrame) -> None:
    import polars as pl

    if rows["bit_s"].null_count():
        raise TraceError(f"{path.name}: a throughput is missing")
    series = rows.select(at_ns=pl.int_range(pl.len(), dtype=pl.Int64) * _SECOND, bit_s="bit_s")
    put_rate(draft, way, series, _SECOND)


NYU = Source(
    name="nyu",
    title="NYU-METS: LTE in New York's buses, subway and railway",
    page="https://github.com/NYU-METS/Main",
    licence="ODbL-1.0, DbCL-1.0",
    terms="Cite one of the papers.",
    citation=(
        "L. Mei, R. Hu, H. Cao, Y. Liu, Z. Han, F. Li, J. Li. Realtime Mobile Bandwidth Prediction using LSTM Neural "
        "Network and Bayesian Fusion. Computer Networks 182, 2020"
    ),
    layout=(
        "Sample_Traces/RIDE.csv: throughput and its unit, a line a second. Multivariate_Dataset/dataset.zip: "
        "ROUTE/ROUTE.txt.gz with throughput and seven radio figures, a line a second. Dataset/*.rar is not read."
    ),
    checked="the files themselves",
    convert=_convert,
    doubt=(
        "README and papers state that iPerf ran between a phone and a server, logged at the server, but not in which "
        "direction: choose one with --as. The multivariate set's unit is not stated either, so it is "
        "only taken with --all. It is all LTE: the 5G of Mei et al. (Realtime Mobile Bandwidth and Handoff Predictions "
        "in 4G/5G Networks, 2021) is a data set of others, see cork-5g; no 5G of New York University was found. "
        "Delivery opportunities that the university recorded are nyc-2018 and nyc-2019."
    ),
    direction_unknown=True,
    usual=r"\.csv$",
    remote=(
        *git_files(_REPOSITORY, _COMMIT, published("nyu"), "Sample_Traces/"),
        *git_files(
            _REPOSITORY,
            _COMMIT,
            {"dataset.zip": "6df739c80929f57ca11c9fdd6dd16775e38fde12"},
            "Multivariate_Dataset/",
        ),
    ),
)
