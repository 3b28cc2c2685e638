"""Methods that make a network from a recording: those of `cellbed recordings`, and the tool of CellReplay's authors."""

from __future__ import annotations

import bisect
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from cellbed import CellbedError
from cellbed.extension.files import inputs
from cellbed.extension.recorded import (
    MTU,
    WAYS,
    Calibration,
    Recording,
    Train,
    TrainPlan,
    base_delay,
    conditional_plan,
    export,
    fit_plan,
    heavy_text,
    opportunities,
    queue_config,
    queue_limit,
    recorded_queue,
    replay_stage,
)
from cellbed.path import OutsideProgram, Tcp
from cellbed_papers.evaluation.network import Network, Stages

STATIONARY_GAP_NS, MOBILE_GAP_NS = 50_000_000, 100_000_000
"""G without movement, and for a moving device, ns (Sentosa et al., NSDI 2025, §4.4)."""

LIGHT_SHARE = 0.25
"""Maximum share of the paper's trains in the saturated rate."""
_PACKET_BYTES = 1400
_SHORTEST = 2
"""Minimum length of the paper's trains that are shortened."""
_JITTER = 0.1
"""Variation of G, so that trains do not keep meeting the same phase of the radio's frames."""
TOOL, PROGRAM = "mm-cellular", "MM_CELLULAR"
"""The tool of CellReplay's authors, and the variable that names a program with its queues in virtual time.

The program is a :class:`cellbed.path.OutsideProgram` with the arguments of ``mm-cellular`` without the first and the
command. Direction 0 is the uplink. As the tool's shell, it carries packets of at most 1392 bytes.
"""


@dataclass(frozen=True, slots=True)
class Method:
    """A method of replaying a recording.

    plan: trains of its recordings, by the calibration and whether the device moves. network: makes the replay of a
    recording, with the recorded queue; writes its files into a folder, which must not exist.
    """

    plan: Callable[[Calibration, bool], TrainPlan]
    network: Callable[[Recording, Path], Network]


def paper_plan(calibration: Calibration, mobile: bool) -> TrainPlan:
    """Return trains of the calibrated lengths every G: 50 or 100 ms, but at least G_min.

    Trains take at most a quarter of the saturated rate: longer ones are shortened. The paper states only that trains
    must be light. During a dip of the signal they would queue, and half of the wait would count as base delay. Longer
    gaps would not help: a device sleeps in them, and its sleep would count as base delay.
    """
    gap_ns = MOBILE_GAP_NS if mobile else STATIONARY_GAP_NS
    lengths, gaps = [], [gap_ns]
    for way in WAYS:
        if (each := getattr(calibration.directions, way)) is None:
            raise CellbedError(f"the recording's {way} was not calibrated: record it again with a calibration")
        interval_ns = _PACKET_BYTES * 8e9 / (LIGHT_SHARE * each.saturated_bps) if each.saturated_bps else 0.0
        lengths.append(max(_SHORTEST, min(each.train, int(gap_ns / interval_ns) if interval_ns else each.train)))
        gaps += [each.least_gap_ns or 0, round(lengths[-1] * interval_ns)]
    train = Train(up=lengths[0], down=lengths[1], up_bytes=_PACKET_BYTES, down_bytes=_PACKET_BYTES)
    return TrainPlan(rotation=(train,), gap_ns=max(gaps), jitter=_JITTER)


def _replay_as_mahimahi(recording: Recording, folder: Path) -> Network:
    """Return half the minimum round-trip time, then the saturated link (Netravali et al., "Mahimahi", ATC 2015)."""
    folder.mkdir(parents=True)
    if (delay := base_delay(recording)) is None:
        raise CellbedError("no train of the recording was answered: its round-trip time is not known")
    ways: list[Stages] = []
    for way in WAYS:
        trace = folder / f"{way}.trace"
        trace.write_text(heavy_text(opportunities(recording, way, MTU)), encoding="utf-8")
        schedule = {"kind": "trace", "path": str(trace), "looped": True, "offset_ns": 0}
        queue = queue_config(recorded_queue(recording.description, way, queue_limit(recording, way)), 0)
        bottleneck = {"kind": "bottleneck", "schedule": schedule, "queue": queue, "mahimahi": True}
        ways.append(({"kind": "delay", "fixed_ns": delay}, bottleneck))
    return Network("saturation", ways[0], ways[1])


def _replay(method: Literal["cellreplay", "conditional"], recording: Recording, folder: Path) -> Network:
    """Return the network of ``kind = "recording"``."""
    folder.mkdir(parents=True)
    uplink, downlink = ((replay_stage(recording, way, method, folder),) for way in WAYS)
    return Network(method, uplink, downlink)


def _replay_by_tool(recording: Recording, folder: Path) -> Network:
    if not (program := os.environ.get(PROGRAM)):
        raise CellbedError(f"{TOOL} is left out: {PROGRAM} names no program with its queues in virtual time")
    # As the export's README says: F as calibrated, queues without limit.
    words = shlex.split(export(recording, "cellreplay", folder, name=TOOL).notes[0])[2:-1]
    # The tool interpolates wrongly before its first light row, so it starts at a row of both directions.
    rows = [{int(line.split()[0]) for line in inputs.text(folder / light).splitlines()} for light in words[:2]]
    starts = sorted(rows[0] & rows[1])

    def start(position_ns: int) -> OutsideProgram:
        at = starts[max(0, bisect.bisect_right(starts, position_ns // 1_000_000) - 1)]
        return OutsideProgram([str(Path(program).absolute()), *words, f"--start-timestamp={at}"], folder)

    # Segments of an interface with an MTU of 1392 bytes.
    return Network(TOOL, outside=start, tcp=Tcp(segment=1340))


METHODS: dict[str, Method] = {
    "saturation": Method(paper_plan, _replay_as_mahimahi),
    "cellreplay": Method(paper_plan, partial(_replay, "cellreplay")),
    "conditional": Method(
        lambda calibration, _: fit_plan(conditional_plan(), calibration), partial(_replay, "conditional")
    ),
    TOOL: Method(paper_plan, _replay_by_tool),
}
"""Every method by its name."""
