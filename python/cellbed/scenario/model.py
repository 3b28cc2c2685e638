"""The scenario: nodes, links, transport and workload of a run, checked and with every default filled in.

In the model durations are nanoseconds, sizes bytes, rates bit/s and frequencies events per second. `Scenario.resolved`
gives the same as text with units, the way a user writes it.
"""

import pathlib
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator

from cellbed.scenario.congestion import objection
from cellbed.scenario.core import CORE_LINK, CoreLink
from cellbed.scenario.fields import FILE, quantity, refusal
from cellbed.scenario.forms import PLAIN, table_kind
from cellbed.scenario.mobile import MobileLink
from cellbed.scenario.radio import RadioLink
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.table import Path, Table, written
from cellbed.units import DURATION, FREQUENCY, SIZE

RunTime = Annotated[int, quantity(DURATION, "1 ms", "24 h")]
Wait = Annotated[int, quantity(DURATION, "0 s", "1 h")]
Timeout = Annotated[int, quantity(DURATION, "1 ms", "1 h")]
Memory = Annotated[int, quantity(SIZE, "64 MiB", "16 TiB")]
Rate = Annotated[float, quantity(FREQUENCY, "0 /s", "10000 /s", above=True)]


class NodeClass(Table):
    """Nodes of one class. Each gets these CPUs and this memory."""

    count: int = Field(1, ge=1, le=1000, description="Number of nodes of this class.")
    cpus: float = Field(gt=0, le=1024, description="CPUs of one node; 0.5 is half a CPU.", examples=[1.0])
    memory: Memory = Field(description="Memory of one node.", examples=["512 MiB"])


class Nodes(Table):
    """The node classes of the SPEC-RG reference architecture."""

    endpoint: NodeClass = Field(description="Devices on the mobile network, which send the requests.")
    edge: NodeClass | None = Field(None, description="Nodes near the tower.")
    cloud: NodeClass | None = Field(None, description="Nodes in a data centre.")


class CoreLinks(Table):
    """Links from the tower to the remote nodes: a one-way delay, or round-trip times that vary."""

    edge: Annotated[CoreLink, CORE_LINK] | None = Field(
        None, description="Between tower and edge: a preset, a one-way delay, or a table."
    )
    cloud: Annotated[CoreLink, CORE_LINK] | None = Field(
        None, description="Between tower and cloud: a preset, a one-way delay, or a table."
    )


AnyMobileLink = Annotated[
    Annotated[MobileLink, Tag(PLAIN)] | Annotated[RadioLink, Tag("radio")] | Annotated[RecordedLink, Tag("recording")],
    Discriminator(table_kind),
]
"""Described direction by direction; or generated or recorded as a whole, with a ``kind``."""


class Links(Table):
    """The path of a packet: mobile link, then core link."""

    mobile: AnyMobileLink = Field(description="Endpoint to tower, the last mile.")
    core: CoreLinks = Field(written({}), description="Tower to edge or cloud.")


class Transport(Table):
    """Settings of the nodes' TCP."""

    congestion_control: str | None = Field(
        None,
        pattern="^[a-z][a-z0-9_-]{0,14}$",
        description="TCP congestion control of every node. Default: the kernel's.",
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
    on: Literal["edge", "cloud"] = Field(description="Node class that runs the service.")
    arrivals: Literal["periodic", "poisson", "closed"] = Field(
        "periodic",
        description="Open loop with fixed intervals or as a Poisson process; closed loop: a request follows a reply.",
    )
    rate: Rate | None = Field(None, description="Requests per second of each endpoint.", examples=["8 /s"])
    timeout: Timeout = Field(written("10 s"), description="A slower reply counts as late, a missing one as timed out.")
    drain: Wait = Field(written("5 s"), description="Time to wait for replies after the last request.")
    model: Annotated[pathlib.Path, FILE] | None = Field(
        None, description="ONNX model to run. Default: MobileNetV2 with seeded weights."
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Worker processes of each remote node. Default: one per whole CPU.",
        examples=[2],
    )
    images: int = Field(100, ge=1, le=10000, description="Number of photographs in the data bank.")


class Scenario(Table):
    """A run of cellbed: nodes, links and workload."""

    name: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the scenario, also the prefix of run folders.",
        examples=["offload-lte"],
    )
    duration: RunTime = Field(description="Duration of the workload.", examples=["60 s"])
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of every random choice.")
    nodes: Nodes = Field(description="Node classes, their number and size.")
    links: Links = Field(description="Links between the nodes.")
    transport: Transport = Field(written({}), description="Settings of the transport layer.")
    workload: ImageClassification = Field(description="The application and its load.")

    def resolved(self) -> dict[str, Any]:
        """The scenario with every default written out, as JSON-able values that read like the file; None for absent."""
        return self.model_dump(mode="json")

    def completed(self) -> Self:
        """The scenario with the defaults that depend on other keys filled in."""
        links = self.links.model_copy(update={"mobile": self.links.mobile.completed()})
        served_by = getattr(self.nodes, self.workload.on)
        if self.workload.workers is not None or served_by is None:
            return self.model_copy(update={"links": links})
        workload = self.workload.model_copy(update={"workers": max(1, int(served_by.cpus))})
        return self.model_copy(update={"links": links, "workload": workload})

    def misfits(self) -> list[tuple[Path, str]]:
        """Conflicts between keys: (path of the key, problem and remedy)."""
        found: list[tuple[Path, str]] = []
        for remote in ("edge", "cloud"):
            if getattr(self.nodes, remote) is not None and getattr(self.links.core, remote) is None:
                found.append((("links", "core", remote), f"missing, but [nodes.{remote}] exists: {_CORE_HINT}"))
        workload = self.workload
        if getattr(self.nodes, workload.on) is None:
            other = "edge" if workload.on == "cloud" else "cloud"
            instead = f', or write on = "{other}"' if getattr(self.nodes, other) is not None else ""
            text = f"'{workload.on}' has no nodes: add [nodes.{workload.on}] with cpus and memory{instead}"
            found.append((("workload", "on"), text))
        if workload.arrivals == "closed" and workload.rate is not None:
            found.append((("workload", "rate"), "a closed loop has no rate: remove this key"))
        if workload.arrivals != "closed" and workload.rate is None:
            text = f'missing: {workload.arrivals} arrivals need one; write rate = "8 /s"'
            found.append((("workload", "rate"), text))
        mobile: Path = ("links", "mobile")
        return found + [((*mobile, *path), text) for path, text in self.links.mobile.misfits(self.duration)]


_CORE_HINT = 'write a preset such as "base-edge", or a one-way delay such as "3 ms"'
