"""A mobile link that replays a recording: the recording's directory, and the method."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field

from cellbed.archive import TraceError, TraceSource, find_folder, obstacle, open_archive
from cellbed.archive.light_rows import latency_offsets, light_rows
from cellbed.scenario.fields import QueueLimit, TextField, quantity
from cellbed.scenario.load_dependent import Conditional, Replay
from cellbed.scenario.mobile import Offset, WholeLink
from cellbed.scenario.queues import DropTail, Queue
from cellbed.scenario.table import EachWay, Path, Table, Ways, written
from cellbed.support.units import DURATION
from cellbed.support.ways import WAYS, Way

if TYPE_CHECKING:
    from cellbed.recordings.derived import ReplayFiles
    from cellbed.recordings.description import CalibratedDirection, Description

Method = Literal["cellreplay", "saturation", "conditional"]
IdleAt = Literal["link", "queue"]
Anchor = Literal["base-delay", "first-packet"]

_DEFAULT_QUEUE = "1 MB"
IDLE_AT: IdleAt = "queue"
ANCHOR: Anchor = "first-packet"
"""The default interpretation of CellReplay's method: as in its authors' tool (docs/explanation/cellreplay.md)."""


@dataclass(frozen=True)
class RecordingSource:
    """A recording in a scenario: an entry of the archive or a directory. It is read when needed.

    name: text written by the user. path: path of the directory, absolute.
    """

    name: str
    path: File

    @cached_property
    def description(self) -> Description:
        """The content of `recording.json`. Raises TraceError ``FILE: reason``."""
        from cellbed.recordings.errors import RecordingError
        from cellbed.recordings.recording import read_description

        try:
            return read_description(self.path)
        except RecordingError as error:
            raise TraceError(str(error)) from None

    @cached_property
    def method(self) -> Method:
        """The default method: ``conditional`` if its trains were recorded, else ``cellreplay``."""
        from cellbed.recordings.derived import is_conditional

        return "conditional" if is_conditional(self.description) else "cellreplay"


def find_calibration(description: Description, way: Way) -> CalibratedDirection | None:
    """Return the calibration of a direction, if any."""
    calibration = description.calibration
    return None if calibration is None else getattr(calibration.directions, way)


def calibration_queue(description: Description, way: Way) -> Queue:
    """Return a drop-tail queue of the calibrated length, B; 1 MB if B is unknown."""
    found = find_calibration(description, way)
    if found is None or not found.queue_bytes:
        return DropTail.model_validate({"kind": "droptail", "limit": _DEFAULT_QUEUE})
    return DropTail.model_construct(kind="droptail", limit=QueueLimit(bytes=max(1500, found.queue_bytes)))


def calibration_idle(description: Description, way: Way, path: File) -> int:
    """Return F of a direction, ns. path: path of the recording. Raises TraceError if F was not calibrated."""
    found = find_calibration(description, way)
    if found is None or found.idle_ns is None:
        raise TraceError(f"{path}: the idle time F of the {way} was not calibrated: set idle, such as '24 ms'")
    return found.idle_ns


def load_replay(
    files: ReplayFiles,
    name: str,
    packet_bytes: int,
    idle: int,
    idle_at: IdleAt = IDLE_AT,
    anchor: Anchor = ANCHOR,
    *,
    synthetic: bool = False,
) -> Replay | Conditional:
    """Return one direction of a recording, read from its derived files.

    name: recording, direction and method. idle, idle_at and anchor concern light rows only.
    synthetic: whether the recorded network was a model. Raises TraceError for unreadable files.
    """
    heavy = TraceSource(name, files.heavy)
    heavy.synthetic = synthetic
    if files.light is None:
        assert files.model is not None, "a method has light rows or a model"
        conditional = Conditional(name, files.model, heavy, packet_bytes)
        _ = heavy.trace, conditional.sha256
        return conditional
    folder = File()
    replay = Replay.model_construct(
        kind="cellreplay",
        light=replace(light_rows(str(files.light), folder), name=f"{name} light rows"),
        heavy=heavy,
        latency_offset=None
        if files.latency_offset is None
        else replace(latency_offsets(str(files.latency_offset), folder), name=f"{name} latency offset"),
        idle=idle,
        idle_at=idle_at,
        anchor=anchor,
        opportunity=packet_bytes,
        overhead=0,
    )
    _ = heavy.trace, [file.content for _, file in replay.files]
    return replay


def _read(text: str, folder: File) -> RecordingSource:
    archive = open_archive()
    path = find_folder(text, folder)
    if archive.has(text) and (path is None or archive.entry(text).recording is not None):
        path = archive.recording(text)
    if path is None:
        why = obstacle(text, folder, "recording").replace("there is no file", "there is no directory")
        raise TraceError(
            f"{why}: write the path of the directory of a recording, or the name of an entry of the archive"
        )
    return RecordingSource(text, path)


_RECORDING = TextField(
    _read,
    lambda source: str(source.name),
    {"minLength": 1, "examples": ["recordings/walk"]},
    lambda _number: "the path of the directory of a recording, or the name of an entry of the archive",
)
_IDLE = quantity(DURATION, "0 s", "1 h")


class _Replayed(Table):
    """Base of the link in a scenario and of one direction."""

    kind: Literal["recording"]
    path: Annotated[RecordingSource, _RECORDING] = Field(
        description="Name of an entry of the archive, or directory of a recording as `cellbed record` makes it."
    )
    method: Method | None = Field(
        None,
        description="Method of replay: CellReplay's; the saturation alone, behind half the minimum round-trip time; or "
        "conditional on each packet's situation. Default: the method for its trains.",
        examples=["conditional"],
    )
    idle_at: IdleAt = Field(
        IDLE_AT,
        description="Place where the idle time F is counted: the queue (as calibrated), or the link, from a packet's "
        "departure to the next arrival.",
    )
    anchor: Anchor = Field(
        ANCHOR,
        description="Origin of light opportunities: the base delay, without or with the offset of the first packet.",
    )

    def _replay(self, way: Way, idle: int | None) -> Replay | Conditional:
        """Return the replay of a direction; derive and read its files.

        Raises TraceError for a faulty recording, a missing F, or an F that does not apply.
        """
        from cellbed.recordings.derived import replay_files
        from cellbed.recordings.errors import RecordingError

        source = self.path
        method = self.method or source.method
        if method == "conditional" and idle is not None:
            raise TraceError("the method conditional has no idle time F: leave out idle, or replay by cellreplay")
        if method == "cellreplay" and idle is None:
            idle = calibration_idle(source.description, way, source.path)
        try:
            files = replay_files(source.path, way, method, name=File(source.name).name)
        except RecordingError as error:
            raise TraceError(_add_place(str(error), source.path)) from None
        packet_bytes = source.description.packet_bytes
        how = (packet_bytes, idle or 0, self.idle_at, self.anchor)
        name = f"{source.name} {way} by {method}"
        return load_replay(files, name, *how, synthetic=source.description.synthetic)


def _add_place(text: str, path: File) -> str:
    return text if str(path) in text else f"{path}: {text}"


class RecordedDirection(_Replayed):
    """One direction of a recording, for a link in virtual time and for changing a live one."""

    way: Way = Field(description="Direction of the recording.", examples=["uplink", "downlink"])
    idle: Annotated[int, _IDLE] | None = Field(
        None, description="F, how long the link must be empty to be cold; left out: the calibrated time."
    )

    def replay(self) -> Replay | Conditional:
        """Return the replay of the direction. Raises TraceError."""
        return self._replay(self.way, self.idle)


class RecordedLink(WholeLink, _Replayed):
    """A last mile that replays a recording, one per endpoint."""

    idle: Annotated[Ways[int | None], EachWay(Annotated[int, _IDLE])] | None = Field(
        None,
        description="F, how long the link must be empty to be cold, each direction its own; left out: as calibrated.",
        examples=["24 ms"],
    )
    queue: Annotated[Ways[Queue | None], EachWay(Queue)] | None = Field(
        None,
        description="Bottleneck queue, one per direction. Default: drop-tail with the calibrated limit, or 1 MB.",
        examples=[{"kind": "droptail", "limit": "1 MB"}],
    )
    start: Offset = Field(written("0 s"), description="Start offset into the recording.")
    loop: bool = Field(True, description="Repeat the recording when it ends.")

    @cached_property
    def up(self) -> Replay | Conditional:
        """The replay of the uplink. Raises TraceError."""
        return self._replay("uplink", getattr(self.idle, "uplink", None))

    @cached_property
    def down(self) -> Replay | Conditional:
        """The replay of the downlink. Raises TraceError."""
        return self._replay("downlink", getattr(self.idle, "downlink", None))

    def complete(self) -> Self:
        """Return the link, by default with the calibrated queues."""
        up, down = (getattr(self.queue, way, None) or calibration_queue(self.path.description, way) for way in WAYS)
        return self.model_copy(update={"queue": Ways(up, down)})

    def misfits(self, duration: int) -> list[tuple[Path, str]]:
        """Return problems of the recording: (path below the link, remedy). duration: duration of the workload, ns."""
        found = super().misfits(duration)
        try:
            end = min(self.up.heavy.trace.duration_ns, self.down.heavy.trace.duration_ns)
        except TraceError as error:
            return [*found, (("path",), str(error))]
        if self.start >= end and not self.loop:
            found.append((("start",), f"the recording ends after {DURATION.format(end)}: write an earlier time"))
        return found
