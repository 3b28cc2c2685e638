"""Nodes, and the applications of a scenario: a table of each kind, all of them one tagged union by ``kind``."""

import pathlib
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field

from cellbed.scenario.fields import FILE, quantity
from cellbed.scenario.table import Table, written
from cellbed.units import DURATION, FREQUENCY, SIZE

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

    def completed(self, nodes: Nodes) -> Self:
        """The application with the defaults that depend on the nodes filled in."""
        served_by = getattr(nodes, self.on)
        if self.workers is not None or served_by is None:
            return self
        return self.model_copy(update={"workers": max(1, int(served_by.cpus))})

    def misfits(self, nodes: Nodes) -> Iterator[tuple[str, str]]:
        """Keys that do not fit each other or the nodes: (key, what is wrong and what to do)."""
        if getattr(nodes, self.on) is None:
            other = "edge" if self.on == "cloud" else "cloud"
            instead = f', or write on = "{other}"' if getattr(nodes, other) is not None else ""
            yield "on", f"'{self.on}' has no nodes: add [nodes.{self.on}] with cpus and memory{instead}"
        if self.arrivals == "closed" and self.rate is not None:
            yield "rate", "a closed loop has no rate: remove this key"
        if self.arrivals != "closed" and self.rate is None:
            yield "rate", f'missing: {self.arrivals} arrivals need one; write rate = "8 /s"'

    def __str__(self) -> str:
        """The application in a line."""
        rate = f" at {self.rate:g} /s per endpoint" if self.rate else ""
        return f"{self.kind} on {self.on}, {self.arrivals}{rate}"


AnyApplication = ImageClassification
"""With a second kind: ``Annotated[ImageClassification | Other, Field(discriminator="kind")]``."""
