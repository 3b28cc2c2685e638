"""Recordings with load-dependent replay, each of one direction of a network."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from cellbed.archive import TraceError, TraceSource, resolve
from cellbed.archive.light_rows import Offsets, RecordedFile, Rows, latency_offsets, light_rows
from cellbed.scenario.fields import TextField, quantity
from cellbed.scenario.table import Table, written
from cellbed.support.units import DURATION, SIZE
from cellbed_node import inputs

_IDLE = Annotated[int, quantity(DURATION, "0 s", "1 h")]


def _show(file: RecordedFile[Rows] | RecordedFile[Offsets] | TraceSource) -> str:
    return file.name


def _file(read: object, what: str, example: str) -> TextField:
    schema = {"minLength": 1, "examples": [example]}
    path = lambda name, file: {name: str(file.path)}  # noqa: E731
    return TextField(read, _show, schema, lambda _number: f"the path of a {what}", path)  # type: ignore[arg-type]


_LIGHT = _file(light_rows, "file of light rows", "recordings/up-delay-light-pdo")
_HEAVY = _file(resolve, "trace", "recordings/up-heavy-pdo")
_OFFSETS = _file(latency_offsets, "file of latency offsets", "recordings/latency-offset-up")


class Replay(Table):
    """Delay and delivery opportunities of a light and of a heavy workload, by the method of CellReplay."""

    kind: Literal["cellreplay"]
    light: Annotated[RecordedFile[Rows], _LIGHT] = Field(
        description="Base delay and delivery opportunities of packet trains: lines `TIME BASE_DELAY PDO PDO …`, in ms."
    )
    heavy: Annotated[TraceSource, _HEAVY] = Field(
        description="Trace of the delivery opportunities under saturation, by its name or path."
    )
    latency_offset: Annotated[RecordedFile[Offsets], _OFFSETS] | None = Field(
        None, description="Additional delay of packets of other sizes than the recorder's: lines `BYTES MS`."
    )
    idle: _IDLE = Field(written("0 ms"), description="F: time for which the link must be empty to become inactive.")
    idle_at: Literal["link", "queue"] = Field(
        "queue",
        description="Place where F is counted: the queue (as calibrated), or the link, from a packet's departure to "
        "the next arrival.",
    )
    anchor: Literal["base-delay", "first-packet"] = Field(
        "first-packet",
        description="Origin of light opportunities: the base delay, without or with the offset of the first packet.",
    )
    opportunity: Annotated[int, quantity(SIZE, "64 B", "64 KiB")] = Field(
        written("1400 B"), description="Capacity of a delivery opportunity: the size of the recorder's packets."
    )
    overhead: Annotated[int, quantity(SIZE, "0 B", "1 KiB")] = Field(
        written("0 B"), description="Charge of a packet in addition to its IP length."
    )

    @property
    def files(self) -> Iterator[tuple[str, RecordedFile[Rows] | RecordedFile[Offsets]]]:
        """Yield the files other than the heavy trace, by their key."""
        yield "light", self.light
        if self.latency_offset is not None:
            yield "latency_offset", self.latency_offset


@dataclass(frozen=True)
class Conditional:
    """A model learnt from a recording, whose replay depends on each packet's situation; the input of the emulator's
    stage ``conditional``.

    name: recording and direction. model: file. heavy: opportunities of saturation, of `opportunity` bytes each, as
    in the model; used to state the rate.
    """

    name: str
    model: Path
    heavy: TraceSource
    opportunity: int

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal digest of the model. Raises TraceError when the file cannot be read."""
        try:
            return inputs.sha256(self.model)
        except OSError as error:
            raise TraceError(f"{self.model}: cannot read this file: {error.strerror}") from error
