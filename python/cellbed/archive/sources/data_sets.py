"""The public data sets, each with the conversion of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.sources.source import Imported, Recording, Source, entry_name, load_source, put
from cellbed_node import inputs

_SECOND = 1_000_000_000

# The recordings that come with Mahimahi, and KPN's recordings in the same format.

_OPERATORS = {"ATT": "AT&T", "TMobile": "T-Mobile", "Verizon": "Verizon"}
_GENERATIONS = {"LTE": "4g", "UMTS": "3g", "EVDO": "3g"}
_SETTINGS = {
    "KPN_5G": ("kpn-5g", "5g", None),
    "KPN_5G_low_band": ("kpn-5g-window", "5g", "window"),
    "KPN_4G": ("kpn-lte", "4g", None),
}
"""Entry name, technology and obstacle of each file that presets of the publication use (appendix A.5)."""


def _mahimahi(folder: Path) -> Iterator[Recording]:
    for stem, files in _pairs(folder):
        operator, standard, *how = [*stem.split("-"), ""]
        if operator not in _OPERATORS or standard not in _GENERATIONS:
            continue
        year = next((word for word in how if word.isdecimal()), None)
        about = MAHIMAHI.about(
            technology=_GENERATIONS[standard],
            operator=_OPERATORS[operator],
            place="United States",
            date=year,
            mobility="driving" if "driving" in how else None,
            method=f"Saturator (delivery opportunities in whole milliseconds), {standard}",
        )
        yield Recording(entry_name(stem), files[0].name, about, Imported(files, "mahimahi"))


def _pairs(folder: Path) -> Iterator[tuple[str, tuple[Path, ...]]]:
    """Yield the files that end in ``.up`` and ``.down``, paired by stem."""
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in (".up", ".down"):
            found.setdefault(path.stem, {})[path.suffix] = path
    yield from ((stem, tuple(files.values())) for stem, files in found.items())


def _kpn(folder: Path) -> Iterator[Recording]:
    for stem, files in _pairs(folder):
        if stem not in _SETTINGS:
            continue
        name, technology, obstacle = _SETTINGS[stem]
        about = KPN.about(
            technology=technology,
            operator="KPN",
            place="Amsterdam, The Netherlands (52.320949, 4.875078), 230 m from the cell tower",
            mobility="stationary",
            obstacle=obstacle,
            method="saturatr with a feedback device (delivery opportunities in whole milliseconds)",
            note=(
                "The publication (table 5.1) dates its recordings 17 June and traces of up to 120 s; the repository "
                "has this file since 8 June 2025 and it is longer, so it need not be the one that was evaluated."
                if stem == "KPN_5G"
                else None
            ),
        )
        yield Recording(name, files[0].name, about, Imported(files, "mahimahi"))


MAHIMAHI, KPN = load_source("mahimahi", _mahimahi), load_source("kpn", _kpn)

# The recordings published with CellReplay.

_HEAVY = "up-heavy-pdo"
_FILES = {_HEAVY, "down-heavy-pdo", "up-delay-light-pdo", "down-delay-light-pdo"}
_US_OPERATORS = {"tmobile": "T-Mobile", "t-mobile": "T-Mobile", "verizon": "Verizon"}


def _cellreplay(folder: Path) -> Iterator[Recording]:
    for heavy in sorted(folder.rglob(_HEAVY)):
        if not {path.name for path in heavy.parent.iterdir()} >= _FILES:
            continue
        of = heavy.parent.relative_to(folder)
        words = [each for each in of.parts if each != "traces"]
        operator = next((_US_OPERATORS[word.lower()] for word in words if word.lower() in _US_OPERATORS), None)
        setting = words[-1] if words and words[-1].lower() not in _US_OPERATORS else None
        about = CELLREPLAY.about(
            technology="5g",
            operator=operator,
            place="United States",
            mobility=setting if setting in ("stationary", "walking", "driving") else None,
            method="CellReplay: packet trains and saturation at the same time",
            note=None if setting in ("stationary", "walking", "driving", None) else f"Setting: {setting}.",
        )
        yield Recording(entry_name("cellreplay", *words), of.as_posix(), about, Imported((heavy.parent,), "cellreplay"))


CELLREPLAY = load_source("cellreplay", _cellreplay)

# 4G and 5G mmWave in Minneapolis: runs of Lumos5G in the version of “A Variegated Look at 5G in the Wild” (SIGCOMM
# 2021).

_LUMOS_FILE = re.compile(r"([45])g_trace_(?:(?P<run>\d+)_)?(?P<how>walking|driving)(?:_(?P<loop>\d+_\w+))?")


def _in_the_wild(folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("?g_trace_*")):
        found = _LUMOS_FILE.fullmatch(path.name)
        if found is None or not path.is_file():
            continue
        fifth = found[1] == "5"
        about = IN_THE_WILD.about(
            technology=f"{found[1]}g",
            band="mmwave" if fifth else None,
            operator="Verizon",
            place="Minneapolis, United States",
            date="2020",
            mobility=found["how"],
            method="throughput of TCP downlink by iPerf, each second",
            note="Of Lumos5G, processed by the authors. The date is when Lumos5G was published.",
        )
        number = found["run"] or found["loop"] or ""
        name = entry_name("5g-in-the-wild", f"{found[1]}g", found["how"], number.replace("_", "-"))
        yield Recording(name, path.relative_to(folder).as_posix(), about, partial(_fill_from_lumos, path))


def _fill_from_lumos(path: Path, draft: Draft) -> None:
    """Write the rates of a file. Each line has a time in s and a rate in Mbit/s."""
    file = inputs.check(path)
    lines = pl.read_csv(
        file, has_header=False, new_columns=["line"], separator="\x1f", quote_char=None, infer_schema=False
    )
    words = lines.select(pl.col("line").str.strip_chars().str.extract_groups(r"^(?<s>[0-9.]+)\s+(?<rate>[0-9.]+)$"))
    rows = words.unnest("line").select(pl.col("s", "rate").cast(pl.Float64))
    if bad := rows["rate"].null_count():
        at = int(rows.with_row_index().filter(pl.col("rate").is_null())["index"][0]) + 1
        raise TraceError(f"{path.name}:{at}: not a time and a rate; number of such lines: {bad}")
    if (rows["s"].diff() < 0).any():
        raise TraceError(f"{path.name}: the times decrease")
    at_ns = ((pl.col("s") - float(rows["s"][0])) * _SECOND).round().cast(pl.Int64)
    # A few seconds occur twice.
    series = rows.group_by(at_ns.alias("at_ns"), maintain_order=True).agg(bit_s=pl.col("rate").mean() * 1e6)
    put(draft, "downlink", series, _SECOND)


IN_THE_WILD = load_source("5g-in-the-wild", _in_the_wild)

# The Irish drives of University College Cork: 4G of 2018 and 5G of 2020, logged by a phone each second.

_CLOCK_STEP_NS = 2 * _SECOND
"""Maximum backward step of a phone's clock, ns; one of the 83 recordings of 2020 has such a step."""
_CORK_FILE = re.compile(r"([A-Z])_(\d{4})\.(\d\d)\.(\d\d)_(\d\d)\.(\d\d)\.(\d\d)\.csv")
_STAMP = "%Y.%m.%d_%H.%M.%S"
_NETWORK_TYPES = {"5G": "5g", "LTE": "4g", **dict.fromkeys(("UMTS", "HSPA", "HSPA+", "HSDPA", "HSUPA"), "3g")}
"""Generation of each network type. A drive has its most frequent type: some drives of the 5G set never had 5G."""
_MOBILITY = {
    "static": "stationary",
    "pedestrian": "walking",
    "car": "driving",
    "driving": "driving",
    "bus": "bus",
    "train": "train",
}


def _cork(source: Source, technology: str, folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("*.csv")):
        found = _CORK_FILE.fullmatch(path.name)
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
        # Downloads are converted by default, so the name contains only other kinds.
        words = [word for word in words if word != "Download"]
        name = entry_name(source.name, *words, found[1], date, "".join(found.group(5, 6, 7)))
        yield Recording(name, path.relative_to(folder).as_posix(), about, partial(_fill_from_cork, path))


_TOP = ("dataset", "lte_dataset", "5g-production-dataset")


def _fill_from_cork(path: Path, draft: Draft) -> None:
    """Write the downlink's rates and the round-trip times of a file.

    DL_bitrate is in kbit/s. UL_bitrate counts acknowledgements and requests, and does not measure the uplink.
    """
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
        raise TraceError(f"{path.name}: no times, or times that decrease")
    if back := int((steps < 0).sum()):
        draft.notes.append(f"the phone's clock was set back {back} times, by 2 s at most; times are constant there")
    rows = rows.with_columns(pl.col("at_ns").cum_max() - int(rows["at_ns"][0]))
    # Events of the phone add rows to a second, with nearly the same values.
    rates = rows.drop_nulls("bit_s").group_by("at_ns", maintain_order=True).agg(pl.col("bit_s").mean())
    put(draft, "downlink", rates, _SECOND)
    answered = rows.drop_nulls("round_trip_ns")
    if answered.height:
        put(draft, "round-trip", answered, _SECOND)
    modes = rows.drop_nulls("mode").group_by("mode").len().sort("len", "mode", descending=True).rows()
    if modes:
        shares = ", ".join(f"{mode} {count / rows.height:.0%}" for mode, count in modes)
        note = f"{draft.about.note or ''} On {shares} of the rows.".strip()
        technology = _NETWORK_TYPES.get(modes[0][0], draft.about.technology)
        draft.about = draft.about.model_copy(update={"technology": technology, "note": note})


CORK_4G: Source = load_source("cork-4g", lambda folder: _cork(CORK_4G, "4g", folder))
CORK_5G: Source = load_source("cork-5g", lambda folder: _cork(CORK_5G, "5g", folder))

# The recordings of New York University in the city's cellular networks: delivery opportunities of 2018 and 2019.

_FILE_2018 = re.compile(r"(downlink|uplink)-((3g|4g)-(no|with)-cross-(subway|times)(?:-\d)?)(?:\.pps)?")
_PLACES_2018 = {"subway": ("subway", "the subway"), "times": (None, "Times Square")}


def _nyc_2018(folder: Path) -> Iterator[Recording]:
    found: dict[Path, list[tuple[re.Match[str], Path]]] = {}
    for path in sorted(folder.rglob("*-cross-*")):
        name = _FILE_2018.fullmatch(path.name)
        # The files of four uplinks are empty.
        if name is not None and path.is_file() and path.stat().st_size:
            found.setdefault(path.with_name(name[2]), []).append((name, path))
    for pair in found.values():
        name = pair[0][0]
        paths = tuple(path for _, path in pair)
        mobility, place = _PLACES_2018[name[5]]
        about = NYC_2018.about(
            technology=name[3],
            place=f"New York City, United States: {place}",
            date="2018",
            mobility=mobility,
            method="delivery opportunities in whole milliseconds, prepared for Mahimahi; the method is not stated",
            note=f"The date is of the publication. The file's name contains '{name[4]} cross', unexplained.",
        )
        yield Recording(
            entry_name("nyc-2018", name[2]), paths[0].relative_to(folder).as_posix(), about, Imported(paths, "mahimahi")
        )


_FILE_2019 = re.compile(r"trace-(\d+)-(taxi|bus|home|timessquare)\d*")
_STATIONARY_2019 = {"3457194", "3458374"}
"""Recordings in Times Square (trace-info); in the others the user walked."""
_MOBILITY_2019 = {"taxi": "driving", "bus": "bus", "home": "stationary", "timessquare": "walking"}
_PLACES_2019 = {"taxi": "in a taxi", "bus": "on a bus", "home": "at home", "timessquare": "Times Square"}


def _nyc_2019(folder: Path) -> Iterator[Recording]:
    for path in sorted(folder.rglob("trace-*")):
        name = _FILE_2019.fullmatch(path.name)
        if name is None or not path.is_file():
            continue
        about = NYC_2019.about(
            place=f"New York City, United States: {_PLACES_2019[name[2]]}",
            date="2019",
            mobility="stationary" if name[1] in _STATIONARY_2019 else _MOBILITY_2019[name[2]],
            method="delivery opportunities in whole milliseconds, in Mahimahi's format; the method is not stated",
            note="The README does not state the generation of the networks.",
        )
        of = path.relative_to(folder).as_posix()
        words = ("nyc-2019", name[2], name[1])
        yield Recording(entry_name(*words), of, about, Imported((path,), "mahimahi", "downlink"))


NYC_2018, NYC_2019 = load_source("nyc-2018", _nyc_2018), load_source("nyc-2019", _nyc_2019)

SOURCES: tuple[Source, ...] = (MAHIMAHI, CELLREPLAY, KPN, IN_THE_WILD, CORK_4G, CORK_5G, NYC_2018, NYC_2019)
