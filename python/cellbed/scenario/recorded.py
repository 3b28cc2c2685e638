"""A mobile link that replays a recording: the recording's directory, and the method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field

from cellbed.archive import TraceError, TraceSource, find_folder, obstacle, open_archive
from cellbed.archive.light_rows import RecordedFile
from cellbed.scenario.fields import QueueLimit, TextField
from cellbed.scenario.load_dependent import WHOLE, Conditional, Replay, Trust
from cellbed.scenario.mobile import Offset, WholeLink
from cellbed.scenario.queues import DropTail, Queue
from cellbed.scenario.table import EachWay, Path, Table, Ways, written
from cellbed.support.units import DURATION
from cellbed.support.ways import WAYS, Way

if TYPE_CHECKING:
    from cellbed.recordings.certificate import Certificate
    from cellbed.recordings.derived import ReplayFiles
    from cellbed.recordings.description import CalibratedDirection, Description

Method = Literal["cellreplay", "saturation", "conditional"]

_DEFAULT_QUEUE = "1 MB"
_KEYS: Any = WHOLE["cellreplay"].model_fields
if TYPE_CHECKING:
    IdleAt = str
    Anchor = str
else:
    IdleAt, Anchor = _KEYS["idle_at"].annotation, _KEYS["anchor"].annotation
_Idle = Annotated[int, _KEYS["idle"].metadata[0]]


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
        """The default method: the best one in the certificate; without one, the method for the recording's trains."""
        certificate, _ = self.certificate
        return (certificate.best if certificate else None) or self.method_for_trains

    @cached_property
    def method_for_trains(self) -> Method:
        """``conditional`` if its trains were recorded, else ``cellreplay``."""
        from cellbed.recordings.derived import is_conditional

        return "conditional" if is_conditional(self.description) else "cellreplay"

    @cached_property
    def certificate(self) -> tuple[Certificate | None, str]:
        """The certificate, or ``None`` and the reason why none applies."""
        from cellbed.recordings.certificate import read_certificate

        return read_certificate(self.path)

    def trust(self, method: Method) -> Trust:
        """Return the sentences about the error of the replay by a method."""
        certificate, reason = self.certificate
        if certificate is None:
            return Trust(notes=(f"{self.name}: {reason}: run `cellbed recordings check {self.name}`",))
        if method not in certificate.errors:
            return Trust(notes=(f"{self.name}: its replay by {method} was not checked",))
        return Trust(warnings=tuple(f"{self.name}: {text}" for text in certificate.warnings(method)))


def find_calibration(description: Description, way: Way) -> CalibratedDirection | None:
    """Return the calibration of a direction, if any."""
    calibration = description.calibration
    return None if calibration is None else getattr(calibration.directions, way)


def recorded_queue(description: Description, way: Way, limit: int | None) -> Queue:
    """Return a drop-tail queue with the saturation's limit, else with the calibrated one, B; 1 MB if B is unknown."""
    calibrated = find_calibration(description, way)
    limit = limit or (None if calibrated is None else calibrated.queue_bytes)
    if not limit:
        return DropTail.model_validate({"kind": "droptail", "limit": _DEFAULT_QUEUE})
    return DropTail.model_construct(kind="droptail", limit=QueueLimit(bytes=max(1500, limit)))


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
    *,
    synthetic: bool = False,
    **interpretation: str,
) -> Replay | Conditional:
    """Return one direction of a recording, read from its derived files.

    name: recording, direction and method. idle and interpretation (idle_at, anchor) concern light rows only.
    synthetic: whether the recorded network was a model. Raises TraceError for unreadable files.
    """
    heavy = TraceSource(name, files.heavy, synthetic)
    own: dict[str, Any]
    if files.light is None:
        assert files.model is not None, "a method has light rows or a model"
        kind, own = "conditional", {"model": RecordedFile(f"{name} model", files.model, "model")}
    else:
        kind, own = "cellreplay", {"idle": idle, "overhead": 0, "latency_offset": None, **interpretation}
        own["light"] = RecordedFile(f"{name} light rows", files.light, "light rows")
        if files.latency_offset is not None:
            own["latency_offset"] = RecordedFile(f"{name} latency offset", files.latency_offset, "latency offsets")
    made = WHOLE[kind].model_construct(kind=kind, heavy=heavy, opportunity=packet_bytes, **own)
    replay: Replay | Conditional = made.check()
    replay._queue_bytes = files.queue_bytes
    return replay


def find_recording(text: str, folder: File) -> RecordingSource:
    """Return the recording with the name of an archive's entry, or in a directory. folder: base of relative paths.

    Raises TraceError if there is none.
    """
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
    find_recording,
    lambda source: str(source.name),
    {"minLength": 1, "examples": ["recordings/walk"]},
    lambda _number: "the path of the directory of a recording, or the name of an entry of the archive",
)


class _Replayed(Table):
    """Base of the link in a scenario and of one direction."""

    kind: Literal["recording"]
    path: Annotated[RecordingSource, _RECORDING] = Field(
        description="Name of an entry of the archive, or directory of a recording as `cellbed record` makes it."
    )
    method: Method | None = Field(
        None,
        description="Method of replay: CellReplay's; the saturation alone, behind half the minimum round-trip time; or "
        "conditional on each packet's situation. Default: the best by `cellbed recordings check`, or by the "
        "recorded trains.",
        examples=["conditional"],
    )
    idle_at: IdleAt = _KEYS["idle_at"]
    anchor: Anchor = _KEYS["anchor"]

    def _replay(self, way: Way, idle: int | None) -> Replay | Conditional:
        """Return the replay of a direction; derive and read its files.

        Raises TraceError for a faulty recording, a missing F, or an F that does not apply.
        """
        from cellbed.recordings.derived import replay_files
        from cellbed.recordings.errors import RecordingError

        source = self.path
        method = self.method or (source.method if idle is None else source.method_for_trains)
        if method == "conditional" and idle is not None:
            raise TraceError("the method conditional has no idle time F: leave out idle, or replay by cellreplay")
        if method == "cellreplay" and idle is None:
            idle = calibration_idle(source.description, way, source.path)
        try:
            files = replay_files(source.path, way, method, File(source.name).name)
        except RecordingError as error:
            raise TraceError(_add_place(str(error), source.path)) from None
        description = source.description
        loaded = load_replay(
            files,
            f"{source.name} {way} by {method}",
            description.packet_bytes,
            idle or 0,
            synthetic=description.synthetic,
            idle_at=self.idle_at,
            anchor=self.anchor,
        )
        return loaded.trusted(source.trust(method))


def _add_place(text: str, path: File) -> str:
    return text if str(path) in text else f"{path}: {text}"


class RecordedDirection(_Replayed):
    """One direction of a recording, for a link in virtual time and for changing a live one."""

    way: Way = Field(description="Direction of the recording.", examples=["uplink", "downlink"])
    idle: _Idle | None = Field(
        None, description="F, how long the link must be empty to be cold; left out: the calibrated time."
    )

    def replay(self) -> Replay | Conditional:
        """Return the replay of the direction. Raises TraceError."""
        return self._replay(self.way, self.idle)


class RecordedLink(WholeLink, _Replayed):
    """A last mile that replays a recording, one per endpoint."""

    idle: Annotated[Ways[int | None], EachWay(_Idle)] | None = Field(
        None,
        description="F, how long the link must be empty to be cold, each direction its own; left out: as calibrated.",
        examples=["24 ms"],
    )
    queue: Annotated[Ways[Queue | None], EachWay(Queue)] | None = Field(
        None,
        description="Bottleneck queue, one per direction. Default: drop-tail with the recorded limit, else 1 MB.",
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
        """Return the link, by default with the recorded queues."""
        up, down = (getattr(self.queue, way, None) or self._queue(way) for way in WAYS)
        return self.model_copy(update={"queue": Ways(up, down)})

    def _queue(self, way: Way) -> Queue:
        try:
            limit = (self.up if way == "uplink" else self.down).queue_bytes
        except TraceError:  # an error of `misfits`
            limit = None
        return recorded_queue(self.path.description, way, limit)

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
