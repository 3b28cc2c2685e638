"""`recording.json`: method, network and calibration of a recording.

Unknown keys are kept, so that a recording of a later revision can be read and written without loss. `version` increases
when the meaning of existing keys changes.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from cellbed.support.extensions import FileKind
from cellbed.support.ways import WAYS

FORMAT: Final = "cellbed-recording"
VERSION: Final = 1

Workload = Literal["light", "heavy"]
"""Packet trains with pauses in between, or saturation (Sentosa et al., "CellReplay", NSDI 2025, §4.2)."""

Activity = Literal[Workload, "downloads"]
"""A workload, or downloads by TCP."""

Nanos = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(ge=1, le=65535)]
Count = Annotated[int, Field(ge=0)]


class Part(BaseModel):
    """A part of the description: no conversions between types, unknown keys are kept."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)


class Train(Part):
    """`up` packets of the client back to back; the first to arrive is answered by `down` packets back to back."""

    up: Annotated[int, Field(ge=1, le=65535)]
    down: Annotated[int, Field(ge=0, le=65535)]
    up_bytes: Bytes = Field(description="IP length of each packet of the client.")
    down_bytes: Bytes = Field(description="IP length of each packet of the server.")
    gap_ns: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Time from its first packet to the next train's, in place of the plan's gap."
    )


class TrainPlan(Part):
    """Trains in rotation."""

    rotation: Annotated[tuple[Train, ...], Field(min_length=1)] = Field(
        description="Taken in this order, over and over."
    )
    gap_ns: Annotated[int, Field(ge=1)] = Field(description="Between the first packets of consecutive trains.")
    jitter: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Each gap is drawn evenly from gap · (1 ± jitter)."
    )
    count: Count | None = Field(default=None, description="Trains in all; null: until stopped.")
    seed: Count = Field(default=0, description="Seed of the jitter.")


class Fixed(Part):
    """Packets at a fixed rate."""

    method: Literal["fixed"] = "fixed"
    rate_bps: Annotated[int, Field(ge=1)] = Field(description="Counting IP lengths, bit/s.")


class Adaptive(Part):
    """A number of packets in flight that keeps the delay between two bounds (Winstein et al., NSDI 2013, §4.1)."""

    method: Literal["adaptive"] = "adaptive"
    least_delay_ns: Nanos
    most_delay_ns: Nanos


Saturation = Annotated[Fixed | Adaptive, Field(discriminator="method")]


class Light(Part):
    """The parameters of the light workload."""

    interface: str | None = None
    plan: TrainPlan | None = Field(default=None, description="Null where it is not known, as in files of another tool.")


class Heavy(Part):
    """The parameters of the heavy workload; null for a direction without saturation, or with an unknown kind."""

    interface: str | None = None
    uplink: Saturation | None = None
    downlink: Saturation | None = None


class Span(Part):
    """The time span of a workload or of downloads."""

    workload: Activity
    start_ns: int
    end_ns: int

    @model_validator(mode="after")
    def _forward(self) -> Span:
        if self.end_ns < self.start_ns:
            raise ValueError(f"ends at {self.end_ns} ns, before its start at {self.start_ns} ns")
        return self


class Clock(Part):
    """The server's clock as the client estimates it: server − client, `offset_ns` at time zero, grows by `drift_ppm`.

    The server's stamps in the files are converted to the client's clock by it.
    """

    offset_ns: int
    drift_ppm: float
    uncertainty_ns: Nanos


class Clocks(Part):
    """Clocks of each workload's connection; null where they were not estimated."""

    light: Clock | None = None
    heavy: Clock | None = None


class Length(Part):
    """The arrivals within trains of one length in the calibration: R_N(i) (CellReplay §4.4)."""

    length: Annotated[int, Field(ge=1)]
    trials: Count
    mean_arrival_ns: tuple[float, ...]
    last_error_ns: Annotated[float, Field(ge=0)] | None = Field(
        default=None, description="Standard error of the last of these."
    )


class LengthError(Part):
    """The relative error of the estimate by trains of this length, over all other lengths."""

    length: Annotated[int, Field(ge=1)]
    mean_error: float


class Gap(Part):
    """Arrival of the last packet of a train, with this gap between trains."""

    gap_ns: Nanos
    last_ns: float
    last_error_ns: Annotated[float, Field(ge=0)] | None = Field(default=None, description="Standard error of it.")


class CalibratedDirection(Part):
    """The calibration of one direction (CellReplay §4.4)."""

    train: Annotated[int, Field(ge=1)] = Field(description="U or D: packets of a train.")
    least_gap_ns: Nanos | None = Field(default=None, description="G_min.")
    idle_ns: Nanos | None = Field(default=None, description="F.")
    queue_bytes: Count | None = Field(default=None, description="B; null if the queue did not overflow.")
    queue_at_least_bytes: Count | None = Field(default=None, description="Content of the queue then.")
    saturated_bps: Annotated[float, Field(ge=0)] | None = None
    saturated_error_bps: Annotated[float, Field(ge=0)] | None = Field(default=None, description="Standard error of it.")
    slowest_bps: Annotated[float, Field(ge=0)] | None = Field(default=None, description="Rate of the slowest second.")
    watched_ns: Nanos = Field(default=0, description="Duration of the search for the slowest second.")
    lengths: tuple[Length, ...] = ()
    errors: tuple[LengthError, ...] = ()
    gaps: tuple[Gap, ...] = ()


class CalibratedDirections(Part):
    """Both directions; null is one that was not calibrated."""

    uplink: CalibratedDirection | None = None
    downlink: CalibratedDirection | None = None


Offsets = tuple[tuple[Bytes, int], ...]
"""Size of a packet, and how many ns later than one of the recorder's size it arrives: comp(s)."""


class Compensation(Part):
    """comp(s) of both directions; empty is one that was not calibrated."""

    uplink: Offsets = ()
    downlink: Offsets = ()

    @model_validator(mode="after")
    def _check_increasing(self) -> Compensation:
        for way in WAYS:
            sizes = [size for size, _ in getattr(self, way)]
            if any(low >= high for low, high in pairwise(sizes)):
                raise ValueError(f"the sizes of {way} must increase")
        return self


class RoundTrip(Part):
    """Round-trip times of single packets."""

    p5: float | None = None
    median: float
    p95: float


class Calibration(Part):
    """The result of the calibration before the recording."""

    directions: CalibratedDirections
    compensation: Compensation = Compensation()
    round_trip_ns: RoundTrip | None = None
    verdict: tuple[str, ...] = ()
    unknown: tuple[str, ...] = Field(default=(), description="Facts that could not be established, in sentences.")
    span_ns: Nanos = Field(default=0, description="Duration of the calibration.")
    bytes: Count = Field(default=0, description="Bytes that it sent both ways, by IP lengths.")

    def recorder_json(self) -> str:
        """Return the calibration as ``cellbed calibrate --out`` writes it, for ``cellbed record --calibration``."""
        return json.dumps(_whole(self.model_dump()), indent=1)


def _whole(value: Any) -> Any:
    """Return the same value with whole numbers as integers: the recorder reads no fractions."""
    match value:
        case dict():
            return {key: _whole(each) for key, each in value.items()}
        case list() | tuple():
            return [_whole(each) for each in value]
        case float() if value.is_integer():
            return int(value)
    return value


class Signal(Part):
    """Statements of the user; null is unknown."""

    operator: str | None = None
    technology: str | None = None
    cell: str | None = None
    rsrp_dbm: float | None = None
    place: str | None = None
    mobility: str | None = None
    note: str | None = None


class Position(Part):
    """Medians of the positions during the recording; null is unknown."""

    fixes: Annotated[int, Field(ge=1)] = Field(description="Number of positions.")
    latitude: Annotated[float, Field(ge=-90, le=90)] = Field(description="WGS 84, degrees.")
    longitude: Annotated[float, Field(ge=-180, le=180)]
    altitude_m: float | None = Field(default=None, description="Above mean sea level.")
    speed_m_s: Annotated[float, Field(ge=0)] | None = None
    accuracy_m: Annotated[float, Field(ge=0)] | None = Field(default=None, description="Horizontal error.")


class Counts(Part):
    """Packets of one file. reordered: those that came after one with a higher number (RFC 4737, §3)."""

    sent: Count
    lost: Count
    duplicated: Count
    reordered: Count


class Imported(Part):
    """The origin of a recording that this project's recorder did not make."""

    format: Literal["cellreplay"] = Field(description="The public tool of CellReplay.")
    files: dict[str, str] = Field(description="SHA-256 of each file by its role.")


class Description(Part):
    """The whole of `recording.json`. Times count from the recording's time zero on the client's clock."""

    model_config = ConfigDict(title="A recording of a network by cellbed")

    format: Literal["cellbed-recording"] = FORMAT
    version: Literal[1] = VERSION
    id: Annotated[str, Field(pattern="^[0-9a-f]+$")]
    started: AwareDatetime | None = Field(description="Date and time of time zero, RFC 3339; null if unknown.")
    duration_ns: Annotated[int, Field(ge=1)]
    synthetic: bool = Field(description="True if the network was a model instead of a live one.")
    tool: str
    packet_bytes: Bytes = Field(default=1400, description="IP length of a full packet of the recorder.")
    arrangement: Literal["together", "alternating"] = Field(
        description="Both workloads at once on two devices, or in turn on one."
    )
    spans: tuple[Span, ...] = Field(default=(), description="Time spans of the workloads; none: all the time.")
    light: Light = Light()
    heavy: Heavy = Heavy()
    clock: Clocks = Clocks()
    calibration: Calibration | None = None
    signal: Signal = Signal()
    position: Position | None = None
    counts: dict[str, Counts] = Field(default={}, description="Counts by name of the file without its ending.")
    warnings: tuple[str, ...] = Field(default=(), description="Warnings for users of the recording, in sentences.")
    imported: Imported | None = None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `recording.json`."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Description.model_json_schema()}


RECORDING = FileKind("recording", json_schema)
