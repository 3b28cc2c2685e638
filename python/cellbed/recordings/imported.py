"""Import of a recording from the files of CellReplay's public tool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

import cellbed
from cellbed.recordings.cellreplay import Offsets
from cellbed.recordings.description import (
    CalibratedDirection,
    CalibratedDirections,
    Calibration,
    Compensation,
    Description,
    Heavy,
    Imported,
    Light,
    Train,
    TrainPlan,
)
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.packets import COLUMNS
from cellbed.recordings.recording import Recording
from cellbed.recordings.tool_files import NAMES
from cellbed.support.ways import WAYS, Way
from cellbed_node import inputs

_MS = 1_000_000
_PACKET_BYTES = 1400

Int64 = npt.NDArray[np.int64]
_Rows = list[tuple[int, int, list[int]]]
Parsed = TypeVar("Parsed")


def import_cellreplay(files: dict[str, Path], idle_ns: tuple[int, int] | None = None) -> Recording:
    """Return the recording that the public tool's files were derived from.

    files: the paths by the keys of :data:`cellbed.recordings.tool_files.NAMES`; the offsets are optional. idle_ns: F
        of uplink and downlink, an argument of the tool that is in no file.

    Each light row becomes a train with its answer. Only sums of its times are known. The first uplink packet was sent
    at the row's time and took the base delay; the answer left at its arrival and took the downlink's base delay. The
    sending times of other packets and of saturation are unknown, and so are losses. Exporting gives the same files,
    except for rows whose opportunities are all later than the base delay: their base delay increases accordingly.

    Errors: :class:`RecordingError` that names file and line.
    """
    up, down = (_rows(files[f"light_{way}"]) for way in WAYS)
    _same_trains(up, down, files["light_downlink"])
    heavy = {way: _heavy(files[f"heavy_{way}"]) for way in WAYS}
    offsets = {way: _offsets(files.get(f"latency_offset_{way}")) for way in WAYS}
    tables = {
        "light_uplink": _light(up, [time for time, _, _ in up], "uplink"),
        "light_downlink": _light(down, [time + base + min(after) for time, base, after in up], "downlink"),
        **{f"heavy_{way}": table for way, table in heavy.items()},
    }
    digests = {key: _digest(path) for key, path in files.items()}
    description = Description(
        id=hashlib.sha256("".join(digests[key] for key in sorted(digests)).encode()).hexdigest()[:32],
        started=None,
        duration_ns=max(int(table["arrived_ns"].to_numpy()[-1]) for table in heavy.values()),
        synthetic=False,
        tool=f"cellbed {cellbed.__version__}",
        packet_bytes=_PACKET_BYTES,
        arrangement="together",
        light=Light(plan=_plan(up, down)),
        heavy=Heavy(),
        calibration=_calibration(up, down, idle_ns, offsets),
        imported=Imported(format="cellreplay", files=digests),
    )
    return Recording(description, **tables).counted()


def tool_files(folder: Path) -> dict[str, Path]:
    """Return the files of the tool in a folder by the keys of :data:`~cellbed.recordings.tool_files.NAMES`.

    Errors: :class:`RecordingError` that names the missing file.
    """
    there = {key: path for key, name in NAMES.items() if (path := folder / name).exists()}
    missing = [name for key, name in NAMES.items() if key not in there and not key.startswith("latency_offset")]
    if missing:
        raise RecordingError(f"{folder}: contains no {missing[0]}: a folder with the tool's files is needed")
    return there


def _parse(parser: Callable[[Path], Parsed], path: Path) -> Parsed:
    """Return the content of a file of the tool. Errors: :class:`RecordingError`."""
    from cellbed._core import TraceFormatError

    try:
        return parser(inputs.check(path))
    except TraceFormatError as error:
        raise RecordingError(str(error)) from None
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from None


def _rows(path: Path) -> _Rows:
    from cellbed._core import parse_light_rows

    rows = _parse(parse_light_rows, path)
    for number, (time, _, after) in enumerate(rows, 1):
        if not after:
            raise RecordingError(
                f"{path}: row {number}, of {time / _MS:g} ms, has no opportunity: remove it; of a train that arrived "
                "the first packet is one, at 0"
            )
    return rows


def _same_trains(up: _Rows, down: _Rows, path: Path) -> None:
    for number, (one, other) in enumerate(zip(up, down, strict=False), 1):
        if one[0] != other[0]:
            raise RecordingError(
                f"{path}: row {number} is of {other[0] / _MS:g} ms, the uplink's of {one[0] / _MS:g} ms: "
                "both files must be of the same trains"
            )
    if len(up) != len(down):
        raise RecordingError(f"{path}: {len(down)} rows, but the uplink has {len(up)}: both must be of the same trains")


def _heavy(path: Path) -> pl.DataFrame:
    from cellbed.archive import TraceError, resolve

    try:
        _ = resolve(str(path.absolute()), Path()).trace
        content = inputs.text(path)
    except (TraceError, OSError) as error:
        raise RecordingError(str(error)) from None
    lines = (line.strip() for line in content.splitlines())
    millis = np.array([int(line) for line in lines if line and not line.startswith("#")], np.int64)
    return _table(np.zeros_like(millis), np.arange(len(millis)), np.full_like(millis, -1), millis * _MS)


def _light(rows: _Rows, sent: list[int], way: Way) -> pl.DataFrame:
    """Return the packets of the rows. sent: sending time of the first packet of each row."""
    lengths = np.array([len(after) for _, _, after in rows])
    train = np.repeat(np.arange(1, len(rows) + 1), lengths)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    index = np.arange(int(lengths.sum())) - first
    departed = np.where(index == 0, np.repeat(sent, lengths), -1)
    base = np.array([base for _, base, _ in rows])
    after = np.concatenate([np.asarray(after, np.int64) for _, _, after in rows])
    return _table(train, index, departed, np.repeat(np.asarray(sent) + base, lengths) + after)


def _table(train: Int64, index: Int64, sent: Int64, arrived: Int64) -> pl.DataFrame:
    columns = {
        "train": train,
        "index": index,
        "bytes": np.full(len(sent), _PACKET_BYTES),
        "sent_ns": pl.Series(sent, dtype=pl.Int64).set(pl.Series(sent < 0), None),
        "arrived_ns": arrived,
        "copies": np.ones(len(sent), np.int64),
    }
    return pl.DataFrame(columns).cast(dict(COLUMNS))  # type: ignore[arg-type]


def _plan(up: _Rows, down: _Rows) -> TrainPlan | None:
    """Return the plan that the rows show: the longest trains, and the median gap."""
    gaps = np.diff([time for time, _, _ in up])
    if not len(gaps) or np.median(gaps) < 1:
        return None
    most = (max(len(after) for _, _, after in rows) for rows in (up, down))
    train = Train(**dict(zip(("up", "down"), most, strict=True)), up_bytes=_PACKET_BYTES, down_bytes=_PACKET_BYTES)
    return TrainPlan(rotation=(train,), gap_ns=int(np.median(gaps)))


def _offsets(path: Path | None) -> Offsets:
    from cellbed._core import parse_latency_offsets

    return [] if path is None else _parse(parse_latency_offsets, path)


def _calibration(
    up: _Rows, down: _Rows, idle_ns: tuple[int, int] | None, offsets: dict[Way, Offsets]
) -> Calibration | None:
    if idle_ns is None and not any(offsets.values()):
        return None
    directions = CalibratedDirections()
    if idle_ns is not None:
        lengths = (max(len(after) for _, _, after in rows) for rows in (up, down))
        found = (CalibratedDirection(train=length, idle_ns=idle) for length, idle in zip(lengths, idle_ns, strict=True))
        directions = CalibratedDirections(uplink=next(found), downlink=next(found))
    compensation = Compensation(uplink=tuple(offsets["uplink"]), downlink=tuple(offsets["downlink"]))
    return Calibration(directions=directions, compensation=compensation)


def _digest(path: Path) -> str:
    return hashlib.sha256(inputs.content(path)).hexdigest()
