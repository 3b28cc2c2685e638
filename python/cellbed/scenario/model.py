"""The scenario: nodes, links, transport and workload of a run, checked and with every default filled in.

In the model durations are nanoseconds, sizes bytes, rates bit/s and frequencies events per second. `Scenario.resolved`
gives the same as text with units, the way a user writes it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from cellbed.scenario.congestion import objection
from cellbed.scenario.fields import (
    CAPACITY,
    CORE_DELAY,
    FILE,
    QUEUE_LIMIT,
    Capacity,
    CoreDelay,
    Probability,
    QueueLimit,
    quantity,
    refusal,
)
from cellbed.scenario.units import DURATION, FREQUENCY, SIZE

RunTime = Annotated[int, quantity(DURATION, "1 ms", "24 h")]
Wait = Annotated[int, quantity(DURATION, "0 s", "1 h")]
Timeout = Annotated[int, quantity(DURATION, "1 ms", "1 h")]
OneWayDelay = Annotated[int, quantity(DURATION, "0 s", "60 s")]
QueueTime = Annotated[int, quantity(DURATION, "1 us", "10 s")]
Offset = Annotated[int, quantity(DURATION, "0 s", "24 h")]
Memory = Annotated[int, quantity(SIZE, "64 MiB", "16 TiB")]
Rate = Annotated[float, quantity(FREQUENCY, "0 /s", "10000 /s", above=True)]


def _written(default: object) -> Any:
    """A default as the file would have it; it is validated like the file's own values."""
    return default


class Table(BaseModel):
    """A table of the file: no keys but the known ones, no conversions between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)


class NodeClass(Table):
    """Nodes of one class. Each gets these CPUs and this memory for itself."""

    count: int = Field(1, ge=1, le=1000, description="How many nodes of this class there are.")
    cpus: float = Field(gt=0, le=1024, description="CPUs of one node; 0.5 is half of one.", examples=[1.0])
    memory: Memory = Field(description="Memory of one node.", examples=["512 MiB"])


class Nodes(Table):
    """The node classes of the SPEC-RG reference architecture."""

    endpoint: NodeClass = Field(description="Devices on the mobile network, where requests come from.")
    edge: NodeClass | None = Field(None, description="Nodes near the tower.")
    cloud: NodeClass | None = Field(None, description="Nodes in a data centre.")


class DropTail(Table):
    """A queue that drops what arrives when it is full."""

    kind: Literal["droptail"]
    limit: Annotated[QueueLimit, QUEUE_LIMIT] = Field(
        _written("1 MB"), description="The most that waits in the queue, in bytes or packets."
    )


class DropHead(Table):
    """A queue that drops what has waited longest when it is full."""

    kind: Literal["drophead"]
    limit: Annotated[QueueLimit, QUEUE_LIMIT] = Field(
        _written("1 MB"), description="The most that waits in the queue, in bytes or packets."
    )


class CoDel(Table):
    """Controlled delay (RFC 8289): drops what leaves after too long a wait, until the queue is short."""

    kind: Literal["codel"]
    target: QueueTime = Field(_written("5 ms"), description="The standing delay that is acceptable.")
    interval: QueueTime = Field(
        _written("100 ms"), description="How long the delay must exceed the target before packets are dropped."
    )
    limit: Annotated[QueueLimit, QUEUE_LIMIT] = Field(
        _written("1 MB"), description="The most that waits in the queue, in bytes or packets."
    )


class Pie(Table):
    """PIE (RFC 8033): drops what arrives with a probability that follows the queueing delay."""

    kind: Literal["pie"]
    target: QueueTime = Field(_written("15 ms"), description="The queueing delay that is aimed at.")
    burst: QueueTime = Field(
        _written("150 ms"), description="How long after a quiet time a burst passes without drops."
    )
    limit: Annotated[QueueLimit, QUEUE_LIMIT] = Field(
        _written("1 MB"), description="The most that waits in the queue, in bytes or packets."
    )


class Infinite(Table):
    """A queue that never drops."""

    kind: Literal["infinite"]


Queue = DropTail | DropHead | CoDel | Pie | Infinite


class Loss(Table):
    """Independent loss of packets before the bottleneck."""

    uplink: Probability = Field(
        0.0, description="Probability that a packet of the uplink is lost.", examples=[0.01, "1 %"]
    )
    downlink: Probability = Field(
        0.0, description="Probability that a packet of the downlink is lost.", examples=[0.01, "1 %"]
    )


class MobileLink(Table):
    """The last mile between an endpoint and the tower; each endpoint has one of its own."""

    up: Annotated[Capacity, CAPACITY] = Field(
        description="Uplink capacity: a trace by its name or path, a constant rate, or 'unlimited'."
    )
    down: Annotated[Capacity, CAPACITY] = Field(
        description="Downlink capacity: a trace by its name or path, a constant rate, or 'unlimited'."
    )
    base_delay: OneWayDelay = Field(
        _written("10 ms"), description="One-way delay of the radio access network, each direction."
    )
    queue: Queue = Field(
        _written({"kind": "droptail"}), discriminator="kind", description="Bottleneck queue of each direction."
    )
    loss: Loss = Field(_written({}), description="Random loss of packets.")
    start: Offset = Field(_written("0 s"), description="Offset into the traces at which the workload begins.")
    loop: bool = Field(True, description="Whether the traces start again when they end.")


class CoreLinks(Table):
    """Links from the tower to the remote nodes: one-way delay without a bottleneck."""

    edge: Annotated[CoreDelay, CORE_DELAY] | None = Field(
        None, description="Between tower and edge: a preset or a one-way delay."
    )
    cloud: Annotated[CoreDelay, CORE_DELAY] | None = Field(
        None, description="Between tower and cloud: a preset or a one-way delay."
    )


class Links(Table):
    """The path of a packet: mobile link, then core link."""

    mobile: MobileLink = Field(description="Endpoint to tower, the last mile.")
    core: CoreLinks = Field(_written({}), description="Tower to edge or cloud.")


class Transport(Table):
    """How the nodes' TCP behaves."""

    congestion_control: str | None = Field(
        None,
        pattern="^[a-z][a-z0-9_-]{0,14}$",
        description="TCP congestion control of every node; left out: the kernel's default.",
        examples=["cubic", "bbr"],
    )

    @field_validator("congestion_control")
    @classmethod
    def _is_available(cls, name: str | None, info: ValidationInfo) -> str | None:
        wrong = objection(name, (info.context or {}).get("congestion_controls")) if name is not None else None
        if wrong is not None:
            raise refusal(wrong)
        return name


class ImageClassification(Table):
    """Photographs go from the endpoints to a remote node over MQTT and come back as classes."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"arrivals": {"const": "closed"}}, "required": ["arrivals"]},
            "then": {"properties": {"rate": False}},
            "else": {"required": ["rate"]},
        }
    )

    kind: Literal["image-classification"]
    on: Literal["edge", "cloud"] = Field(description="The node class that classifies.")
    arrivals: Literal["periodic", "poisson", "closed"] = Field(
        "periodic",
        description="Open loop at fixed distances or as a Poisson process; or closed: the next after the reply.",
    )
    rate: Rate | None = Field(None, description="Requests per second of each endpoint.", examples=["8 /s"])
    timeout: Timeout = Field(
        _written("10 s"), description="A reply that takes longer counts as late, none at all as timed out."
    )
    drain: Wait = Field(_written("5 s"), description="How long replies are awaited after the last request.")
    model: Annotated[Path, FILE] | None = Field(
        None, description="ONNX model to run; left out: MobileNetV2 with seeded weights."
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Worker processes of each remote node; left out: one per whole CPU of it.",
        examples=[2],
    )
    images: int = Field(100, ge=1, le=10000, description="Photographs in the data bank.")


class Scenario(Table):
    """A run of cellbed: which nodes and links there are and what they do."""

    name: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the scenario; run folders begin with it.",
        examples=["offload-lte"],
    )
    duration: RunTime = Field(description="How long the workload runs.", examples=["60 s"])
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of every random choice.")
    nodes: Nodes = Field(description="Node classes, their number and size.")
    links: Links = Field(description="Links between the nodes.")
    transport: Transport = Field(_written({}), description="Settings of the transport layer.")
    workload: ImageClassification = Field(description="The application and the load on it.")

    def resolved(self) -> dict[str, Any]:
        """The scenario with every default written out, as JSON-able values that read like the file; None for absent."""
        return self.model_dump(mode="json")

    def completed(self) -> Self:
        """The scenario with the defaults that depend on other keys filled in."""
        served_by = getattr(self.nodes, self.workload.on)
        if self.workload.workers is not None or served_by is None:
            return self
        workload = self.workload.model_copy(update={"workers": max(1, int(served_by.cpus))})
        return self.model_copy(update={"workload": workload})

    def misfits(self) -> list[tuple[str, str]]:
        """Keys that are right alone but not together with others: (dotted key, what is wrong and what to do)."""
        found = []
        for remote in ("edge", "cloud"):
            if getattr(self.nodes, remote) is not None and getattr(self.links.core, remote) is None:
                found.append((f"links.core.{remote}", f"missing, though [nodes.{remote}] is there: {_CORE_HINT}"))
        workload = self.workload
        if getattr(self.nodes, workload.on) is None:
            other = "edge" if workload.on == "cloud" else "cloud"
            instead = f', or write on = "{other}"' if getattr(self.nodes, other) is not None else ""
            text = f"'{workload.on}' has no nodes: add [nodes.{workload.on}] with cpus and memory{instead}"
            found.append(("workload.on", text))
        if workload.arrivals == "closed" and workload.rate is not None:
            found.append(("workload.rate", "a closed loop has no rate, replies set it: remove this key"))
        if workload.arrivals != "closed" and workload.rate is None:
            found.append(("workload.rate", f'missing: {workload.arrivals} arrivals need one; write rate = "8 /s"'))
        return found


_CORE_HINT = 'write a preset such as "base-edge", or a one-way delay such as "3 ms"'
