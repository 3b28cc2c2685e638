"""Import of NR-Scope's log of scheduling messages (Wan et al., "NR-Scope", CoNEXT 2024): a row per grant of a 5G cell.

Capacity is the cell's resources times the bits per resource of the device's grants in the window.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.format import add_metadata, set_start
from cellbed.archive.importers.written import in_quotes, write_series
from cellbed.support.ways import WAYS, Way
from cellbed_node import inputs

FIRST_LINE: Final = b"timestamp,system_frame_index,slot_index,rnti,"
_COLUMNS: Final = (
    *("timestamp", "slot_index", "rnti", "dci_format", "k", "time_length", "frequency_start", "frequency_length"),
    *("transport_block_size", "new_data_indicator", "harq_id"),
)
_FORMATS: Final[dict[Way, list[str]]] = {"uplink": ["0_0", "0_1"], "downlink": ["1_0", "1_1"]}
"""Formats of messages that grant resources (3GPP TS 38.212, §7.3.1)."""
_LARGEST: Final = {"slot_index": 159, "k": 32, "time_length": 14, "frequency_start": 275, "frequency_length": 275}
"""Largest slots, symbols and resource blocks of NR (3GPP TS 38.211, §4.3 and §4.4)."""
_WINDOW_NS: Final = 100_000_000
_FRAME_NS: Final = 10_000_000
_HARQ_NS: Final = 100_000_000
"""Maximum time from a transmission to its repetition: after longer pauses the log may lack a message between them."""
_MOST_WINDOWS: Final = 1 << 22
LOAD: Final = "load.parquet"
"""The load by window of each direction: at_ns, direction, others_share of the resources, others_bit_s, and
retransmitted, the share of all grants that repeat a packet."""


def read(path: Path, device: str | None, part: Way | None, draft: Draft) -> None:
    """Write the capacity of each direction, and the table :data:`LOAD`, into the draft. Raises TraceError.

    device: RNTI of the device, decimal or with 0x; None: all users count as others, and as the device. part: the only
    direction.
    """
    grants = _grants(path)
    own = pl.lit(device is None) if device is None else pl.col("rnti") == _rnti(path, device, grants)
    zero_ns = int(grants["at_ns"].min())  # type: ignore[arg-type]
    grants = grants.with_columns(pl.col("at_ns") - zero_ns, own=own, other=~own if device else pl.lit(True))
    windows = int(grants["at_ns"].max()) // _WINDOW_NS + 1  # type: ignore[arg-type]
    if windows > _MOST_WINDOWS:
        raise TraceError(f"{path}: lasts {windows / 864_000:.0f} days: split it")
    slots = 10
    while slots <= grants["slot_index"].max():  # type: ignore[operator]
        slots *= 2
    loads = []
    for way in WAYS if part is None else (part,):
        of_way = grants.filter(pl.col("dci_format").is_in(_FORMATS[way]))
        if (load := _read_way(path, way, of_way, slots, windows, draft)) is not None:
            loads.append(load)
    if not loads:
        raise TraceError(f"{path}: has no grants of the {part or 'device'}")
    pl.concat(loads).write_parquet(draft.folder / LOAD)
    draft.tables.append(LOAD)
    set_start(draft, zero_ns)
    loaded = "; ".join(note for note in draft.notes if note.startswith(WAYS))
    add_metadata(draft, technology="5g", method="capacity by the cell's schedule, seen by NR-Scope", note=loaded)


def _grants(path: Path) -> pl.DataFrame:
    """Return the grants in order of time. Lines of names, one for each run, and damaged lines are left out."""
    try:
        lines = pl.scan_csv(
            inputs.check(path), infer_schema=False, quote_char=None, truncate_ragged_lines=True, encoding="utf8-lossy"
        )
        missing = [name for name in _COLUMNS if name not in lines.collect_schema().names()]
        if missing:
            raise TraceError(f"{path}: no column {missing[0]}: an older version of NR-Scope wrote it")
        rows = lines.select(_COLUMNS).filter(pl.col("timestamp") != "timestamp").collect()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise TraceError(f"{path}: not a log of NR-Scope: {str(error).splitlines()[0]}") from None
    whole = [name for name in _COLUMNS if name not in ("timestamp", "dci_format")]
    seconds = pl.col("timestamp").cast(pl.Float64, strict=False)
    grants = rows.with_columns(
        pl.col(whole).cast(pl.Int64, strict=False),
        at_ns=pl.when(seconds.is_between(0, 9e9)).then((seconds * 1e9).cast(pl.Int64, strict=False)),
    ).drop_nulls(["at_ns", *whole])
    possible = [pl.col(name).is_between(0, most) for name, most in _LARGEST.items()]
    grants = grants.filter(*possible, pl.col("transport_block_size").is_between(0, 1 << 24)).sort("at_ns")
    if not grants.height or rows.height >= 2 * grants.height:
        raise TraceError(f"{path}: {rows.height - grants.height} of {rows.height} grants cannot be read")
    return grants


def _rnti(path: Path, device: str, grants: pl.DataFrame) -> int:
    try:
        rnti = int(device, 0)
    except ValueError:
        rnti = -1
    if rnti not in grants["rnti"]:
        known = grants["rnti"].value_counts(sort=True)["rnti"][:5].to_list()
        frequent = ", ".join(map(str, known))
        raise TraceError(f"{path}: no grants for --device {in_quotes(device)}: the most frequent RNTIs are {frequent}")
    return rnti


def _read_way(
    path: Path, way: Way, grants: pl.DataFrame, slots: int, windows: int, draft: Draft
) -> pl.DataFrame | None:
    """Write the capacity of a direction. Return its load; None without grants of the device."""
    area = pl.col("frequency_length") * pl.col("time_length")
    used = pl.col("transport_block_size") > 0
    before = [pl.col(name).shift().over("rnti", "harq_id") for name in ("new_data_indicator", "at_ns")]
    repeated = (pl.col("new_data_indicator") == before[0]) & (pl.col("at_ns") - before[1] <= _HARQ_NS)
    grants = grants.with_columns(area=pl.when(used).then(area).otherwise(0), repeated=repeated.fill_null(False))
    index = (grants["at_ns"] // _WINDOW_NS).to_numpy()

    def total(amount: pl.Expr) -> np.ndarray:
        return np.bincount(index, grants.select(amount.cast(pl.Float64)).to_series().to_numpy(), windows)

    own_area, own_bits = total(pl.col("area") * pl.col("own")), total(pl.col("transport_block_size") * pl.col("own"))
    if not own_area.any():
        return None
    sized = grants.filter(pl.col("area") > 0)
    blocks, symbols, used_slots = sized.select(
        (pl.col("frequency_start") + pl.col("frequency_length")).max(),
        pl.col("time_length").max().alias("symbols"),
        ((pl.col("slot_index") + pl.col("k")) % slots).n_unique().alias("slots"),
    ).row(0)
    available = blocks * symbols * used_slots * (_WINDOW_NS // _FRAME_NS)
    per_area = pl.Series(np.divide(own_bits, own_area, out=np.full(windows, np.nan), where=own_area > 0)).fill_nan(None)
    capacity = per_area.fill_null(strategy="forward").fill_null(strategy="backward").to_numpy() * available
    at_ns = np.arange(windows) * _WINDOW_NS
    rates = capacity * 1e9 / _WINDOW_NS
    write_series(draft, way, at_ns, rates, windows * _WINDOW_NS, path, lambda row: f"window {row + 1}")
    new_bits = total(pl.col("transport_block_size") * (pl.col("other") & ~pl.col("repeated")))
    load = {
        "at_ns": at_ns,
        "direction": np.full(windows, way),
        "others_share": np.minimum(total(pl.col("area") * pl.col("other")) / available, 1.0),
        "others_bit_s": new_bits * 1e9 / _WINDOW_NS,
        "retransmitted": total(pl.col("repeated")) / np.maximum(np.bincount(index, minlength=windows), 1),
    }
    users = "all users" if (grants["own"] & grants["other"]).all() else "other users"
    mean, again = float(load["others_share"].mean()), float(grants["repeated"].cast(pl.Float64).mean())  # type: ignore[arg-type]
    draft.notes.append(
        f"{way}: {blocks} resource blocks, {symbols} symbols, {used_slots} of {slots} slots; {users} had {mean:.1%} of "
        f"them; {again:.1%} of the grants were repetitions; {1 - sized.height / grants.height:.1%} had no readable size"
    )
    return pl.DataFrame(load)
