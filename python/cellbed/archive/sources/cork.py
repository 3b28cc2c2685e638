"""The Irish drives of University College Cork: 4G of 2018 and 5G of 2020, logged by a phone each second."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.sources.source import (
    Checksum,
    Recording,
    RemoteFile,
    Source,
    entry_name,
    git_files,
    put,
)
from cellbed_node import inputs

_SECOND = 1_000_000_000
_CLOCK_STEP_NS = 2 * _SECOND
"""Step of clocks that phones set back; one of the 83 recordings of 2020 has it."""
_FILE = re.compile(r"([A-Z])_(\d{4})\.(\d\d)\.(\d\d)_(\d\d)\.(\d\d)\.(\d\d)\.csv")
_STAMP = "%Y.%m.%d_%H.%M.%S"
_GENERATIONS = {"5G": "5g", "LTE": "4g", **dict.fromkeys(("UMTS", "HSPA", "HSPA+", "HSDPA", "HSUPA"), "3g")}
"""Generation of the network type with most time: some drives of the 5G set never had 5G."""
_MOBILITY = {
    "static": "stationary",
    "pedestrian": "walking",
    "car": "driving",
    "driving": "driving",
    "bus": "bus",
    "train": "train",
}


def _convert(source: Source, technology: str, folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("*.csv")):
        found = _FILE.fullmatch(path.name)
        if found is None:
            continue
        words = [each for each in path.relative_to(folder).parent.parts if each.lower() not in _TOP]
        is_video = source.name == "cork-5g" and "Download" not in words
        date = "-".join(found.group(2, 3, 4))
        about = source.about(
            technology=technology,
            operator=f"{found[1]} (made anonymous)",
            place="Ireland, around Cork",
            date=date,
            mobility=next((_MOBILITY[word.lower()] for word in words if word.lower() in _MOBILITY), None),
            method="bit rate that G-NetTrack Pro shows on a phone while it downloads, about each second",
            note="A video session: its pauses and rates are the player's, not the network's." if is_video else None,
        )
        # Downloads are what is usually taken, so only the others are named.
        words = [word for word in words if word != "Download"]
        name = entry_name(source.name, *words, found[1], date, "".join(found.group(5, 6, 7)))
        yield Recording(name, path.relative_to(folder).as_posix(), about, partial(_fill, path))


_TOP = ("dataset", "lte_dataset", "5g-production-dataset")


def _fill(path: Path, draft: Draft) -> None:
    """DL_bitrate is in kbit/s. UL_bitrate counts acknowledgements and requests, and does not measure the uplink."""
    import polars as pl

    table = pl.read_csv(inputs.check(path), null_values=["-", ""], infer_schema=False, truncate_ragged_lines=True)
    pings = pl.col("PINGAVG") if "PINGAVG" in table.columns else pl.lit(None)
    rows = table.select(
        at_ns=pl.col("Timestamp").str.to_datetime(_STAMP, time_unit="ns").cast(pl.Int64),
        bit_s=pl.col("DL_bitrate").cast(pl.Float64) * 1e3,
        round_trip_ns=(pings.cast(pl.Float64) * 1e6).round().cast(pl.Int64),
        mode=pl.col("NetworkMode"),
    )
    rows = rows.drop_nulls("at_ns")
    steps = rows["at_ns"].diff().drop_nulls()
    if not rows.height or (steps < -_CLOCK_STEP_NS).any():
        raise TraceError(f"{path.name}: its times run backwards, or there are none")
    if back := int((steps < 0).sum()):
        draft.notes.append(f"the phone's clock was set back {back} times, by 2 s at most; time stands still there")
    rows = rows.with_columns(pl.col("at_ns").cum_max() - int(rows["at_ns"][0]))
    # Several rows of a second, from events of the phone, contain nearly the same values.
    rates = rows.drop_nulls("bit_s").group_by("at_ns", maintain_order=True).agg(pl.col("bit_s").mean())
    put(draft, "downlink", rates, _SECOND)
    answered = rows.drop_nulls("round_trip_ns")
    if answered.height:
        put(draft, "round-trip", answered, _SECOND)
    modes = rows.drop_nulls("mode").group_by("mode").len().sort("len", "mode", descending=True).rows()
    if modes:
        shares = ", ".join(f"{mode} {count / rows.height:.0%}" for mode, count in modes)
        note = f"{draft.about.note or ''} On {shares} of the rows.".strip()
        technology = _GENERATIONS.get(modes[0][0], draft.about.technology)
        draft.about = draft.about.model_copy(update={"technology": technology, "note": note})


CORK_4G: Source = Source(
    name="cork-4g",
    title="University College Cork's 4G: two Irish operators; stationary, walking, car, bus and train",
    page="https://zenodo.org/records/1219679",
    licence="CC-BY-4.0",
    terms="Cite the paper.",
    citation=(
        "D. Raca, J. J. Quinlan, A. H. Zahran, C. J. Sreenan. Beyond Throughput: a 4G LTE Dataset with Channel and "
        "Context Metrics. ACM MMSys 2018"
    ),
    layout=(
        "Dataset/MOBILITY/OPERATOR_YYYY.MM.DD_HH.MM.SS.csv with MOBILITY of static, pedestrian, car, bus, train; "
        "columns Timestamp, NetworkMode, DL_bitrate and UL_bitrate in kbit/s, State and radio figures."
    ),
    checked=(
        "public code that reads it, and the 2020 set, which has the same columns; the archive itself was not at hand"
    ),
    convert=lambda folder: _convert(CORK_4G, "4g", folder),
    doubt="The licence and the MD5 come from quotations of the Zenodo record.",
    remote=(
        RemoteFile(
            "https://zenodo.org/records/1219679/files/LTE_Dataset.zip?download=1",
            "LTE_Dataset.zip",
            Checksum("md5", "27da16b90a94ded3511bad9682f2e166"),
        ),
    ),
)

_COMMIT = "306d92eba81cb4f1195d8b8eba625666a02a10ec"

CORK_5G: Source = Source(
    name="cork-5g",
    title="University College Cork's 5G: an Irish operator; stationary and driving, downloads and video",
    page="https://github.com/uccmisl/5Gdataset",
    licence="GPL-3.0",
    terms="The licence is the repository's. Cite the paper.",
    citation=(
        "D. Raca, D. Leahy, C. J. Sreenan, J. J. Quinlan. Beyond Throughput, The Next Generation: a 5G Dataset with "
        "Channel and Context Metrics. ACM MMSys 2020"
    ),
    layout=(
        "5G-production-dataset/APPLICATION/MOBILITY/[TITLE/]OPERATOR_YYYY.MM.DD_HH.MM.SS.csv with APPLICATION of "
        "Download, Amazon_Prime, Netflix and MOBILITY of Static, Driving; columns as the set of 2018, and pings "
        "(PINGAVG, ms)."
    ),
    checked="the archive itself (83 recordings)",
    convert=lambda folder: _convert(CORK_5G, "5g", folder),
    doubt="That bit rates are in kbit/s is from the paper of 2018; neither README nor header states it.",
    usual=r"(^|/)Download/",
    remote=git_files(
        "uccmisl/5Gdataset", _COMMIT, {"5G-production-dataset.zip": "0eb79f8507753a5fd512096221f5e87d098abcbd"}
    ),
)
