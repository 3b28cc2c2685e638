"""Recordings made in virtual time, for the tests of what is done with recordings."""

from dataclasses import replace
from typing import Any

import polars as pl

from cellbed import Link
from cellbed.recordings.description import (
    CalibratedDirection,
    CalibratedDirections,
    Calibration,
    Compensation,
    Fixed,
    Train,
    TrainPlan,
)
from cellbed.recordings.packets import COLUMNS
from cellbed.recordings.recording import Recording
from cellbed.recordings.virtual import Pair, record_virtually

MS = 1_000_000
SECOND = 1_000_000_000
PLAN = TrainPlan(rotation=(Train(up=4, down=6, up_bytes=1400, down_bytes=1400),), gap_ns=50 * MS)
FULL = Fixed(rate_bps=40_000_000)


def pair(up: str = "8 Mbit/s", down: str = "16 Mbit/s", **more: Any) -> Pair:
    """Both directions of a device, with 20 ms each way."""
    asked = {"delay": "20 ms", **more}
    return Link(rate=up, **asked), Link(rate=down, **asked)


def walk(duration_ns: int = 2 * SECOND, **more: Any) -> Recording:
    """A recording of both workloads at once."""
    return record_virtually(pair(**more), pair(**more), PLAN, (FULL, FULL), duration_ns=duration_ns)


def calibrated(recording: Recording) -> Recording:
    """The recording with F of 24 and 21 ms, a queue of 60 kB each way, and comp(s)."""
    directions = CalibratedDirections(
        uplink=CalibratedDirection(train=4, idle_ns=24 * MS, queue_bytes=60_000),
        downlink=CalibratedDirection(train=6, idle_ns=21 * MS, queue_bytes=60_000),
    )
    offsets = ((100, -6_800_000), (1400, 0))
    found = Calibration(directions=directions, compensation=Compensation(uplink=offsets, downlink=offsets))
    return replace(recording, description=recording.description.model_copy(update={"calibration": found}))


def packets(*rows: tuple[int, int, int, int | None, int | None, int]) -> pl.DataFrame:
    """A table of packets: train, index, bytes, sent, arrived, copies."""
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")
