"""Methods that make a network from a recording: saturation alone, the paper's method, and our method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cellbed import CellbedError
from cellbed.extension.recorded import (
    MTU,
    WAYS,
    Calibration,
    Parameters,
    Playing,
    Recording,
    Stage,
    Train,
    TrainPlan,
    Way,
    base_delay,
    bottleneck_stage,
    calibration_idle,
    calibration_queue,
    conditional_plan,
    heavy_text,
    load_replay,
    opportunities,
    queue_config,
    write_replay_files,
)
from cellbed_papers.evaluation.network import Network

STATIONARY_GAP_NS, MOBILE_GAP_NS = 50_000_000, 100_000_000
"""G without movement, and for a moving device, ns (Sentosa et al., NSDI 2025, §4.4)."""

LIGHT_SHARE = 0.25
"""Maximum share of trains in the saturated rate."""
_PACKET_BYTES = 1400


@dataclass(frozen=True, slots=True)
class Method:
    """A method of replaying a recording.

    plan: trains of its recordings, by the calibration and whether the device moves. direction: stages of one direction
    of a recording, with the calibration's queue; writes the files of the stages into the folder.
    """

    name: str
    plan: Callable[[Calibration, bool], TrainPlan]
    direction: Callable[[Recording, Way, Path], list[Stage]]

    def network(self, recording: Recording, folder: Path) -> Network:
        """Return the replayed network. folder: output directory; must not exist."""
        folder.mkdir(parents=True)
        uplink, downlink = (tuple(self.direction(recording, way, folder)) for way in WAYS)
        return Network(self.name, uplink, downlink)


def paper_plan(calibration: Calibration, mobile: bool) -> TrainPlan:
    """Return trains of the calibrated lengths every G: 50 or 100 ms, but at least G_min.

    Trains take at most a quarter of the saturated rate. The paper states only that trains must be light. During a dip
    of the signal they would queue, and half of the wait would count as base delay.
    """
    up, down = (_require_calibration(calibration, way) for way in WAYS)
    gaps = [MOBILE_GAP_NS if mobile else STATIONARY_GAP_NS]
    for each in (up, down):
        gaps.append(each.least_gap_ns or 0)
        if each.saturated_bps:
            gaps.append(round(each.train * _PACKET_BYTES * 8e9 / (LIGHT_SHARE * each.saturated_bps)))
    train = Train(up=up.train, down=down.train, up_bytes=_PACKET_BYTES, down_bytes=_PACKET_BYTES)
    return TrainPlan(rotation=(train,), gap_ns=max(gaps))


def _saturation(recording: Recording, way: Way, folder: Path) -> list[Stage]:
    """Return half the minimum round-trip time, then the saturated link (Netravali et al., "Mahimahi", ATC 2015)."""
    delay = base_delay(recording)
    if delay is None:
        raise CellbedError("no train of the recording was answered: its round-trip time is not known")
    trace = folder / f"{way}.trace"
    trace.write_text(heavy_text(opportunities(recording, way, MTU)), encoding="utf-8")
    schedule = {"kind": "trace", "path": str(trace), "looped": True, "offset_ns": 0}
    queue = queue_config(calibration_queue(recording.description, way), 0)
    bottleneck = {"kind": "bottleneck", "schedule": schedule, "queue": queue, "mahimahi": True}
    return [{"kind": "delay", "fixed_ns": delay}, bottleneck]


def _derive_stages(method: Literal["cellreplay", "conditional"]) -> Callable[[Recording, Way, Path], list[Stage]]:
    """Return the stages of ``kind = "recording"``."""

    def direction(recording: Recording, way: Way, folder: Path) -> list[Stage]:
        description = recording.description
        files = write_replay_files(recording, way, method, folder)
        idle = calibration_idle(description, way, folder) if method == "cellreplay" else 0
        capacity = load_replay(files, way, description.packet_bytes, idle)
        parameters = Parameters(capacity, calibration_queue(description, way))
        return [bottleneck_stage(parameters, Playing(), lambda _: WAYS.index(way))]

    return direction


def _require_calibration(calibration: Calibration | None, way: Way) -> Any:
    found = getattr(calibration.directions, way) if calibration else None
    if found is None:
        raise CellbedError(f"the recording's {way} was not calibrated: record it again with a calibration")
    return found


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("saturation", paper_plan, _saturation),
        Method("cellreplay", paper_plan, _derive_stages("cellreplay")),
        Method("conditional", lambda calibration, mobile: conditional_plan(), _derive_stages("conditional")),
    )
}
"""Every method by its name."""
