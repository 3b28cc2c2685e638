"""The applications of a scenario: a table of each kind, all of them one tagged union by ``kind``."""

import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field

from cellbed.near_names import did_you_mean
from cellbed.scenario.fields import FILE, quantity
from cellbed.scenario.nodes import Name, NodeGroup
from cellbed.scenario.table import Table, written
from cellbed.units import DURATION, FREQUENCY

Wait = Annotated[int, quantity(DURATION, "0 s", "1 h")]
Moment = Annotated[int, quantity(DURATION, "0 s", "24 h")]
Timeout = Annotated[int, quantity(DURATION, "1 ms", "1 h")]
Rate = Annotated[float, quantity(FREQUENCY, "0 /s", "10000 /s", above=True)]
Groups = Mapping[str, NodeGroup]


class Application(Table):
    """What every application has: the node groups of its programs, and when its load runs."""

    client: Name | None = Field(
        None, description="Node group of the clients. Default: the only group of endpoints.", examples=["endpoint"]
    )
    server: Name | None = Field(None, description="Node group of the servers.", examples=["edge"])
    start: Moment = Field(written("0 s"), description="When its load starts, from the start of the workload.")
    stop: Moment | None = Field(None, description="When its load ends. Default: with the workload.", examples=["30 s"])

    def completed(self, groups: Groups) -> Self:
        """The application with the defaults that depend on the nodes filled in."""
        return self.model_copy(update={"client": self.client or next(iter(_endpoints(groups)), None)})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[str, str]]:
        """Keys that do not fit each other, the nodes or the workload's `duration` (ns): (key, what to do)."""
        endpoints = _endpoints(groups)
        if self.client is not None:
            yield from group_misfits("client", self.client, groups)
        elif len(endpoints) != 1:
            listed = (
                f"write one of {', '.join(endpoints)}" if endpoints else "add [nodes.endpoint] with cpus and memory"
            )
            yield "client", f"missing, and there are {len(endpoints) or 'no'} groups of endpoints: {listed}"
        if self.server is not None:
            yield from group_misfits("server", self.server, groups)
        if self.start >= duration:
            yield "start", f"the workload ends after {DURATION.format(duration)}: write an earlier time"
        if self.stop is not None and not self.start < self.stop <= duration:
            yield "stop", f"not after 'start' and at most the duration, {DURATION.format(duration)}"


def _endpoints(groups: Groups) -> list[str]:
    return [name for name, group in groups.items() if group.node_class == "endpoint"]


def group_misfits(key: str, name: str, groups: Groups) -> Iterator[tuple[str, str]]:
    """What is wrong with the name of a node group at `key`."""
    if name not in groups:
        hint = did_you_mean(name, list(groups))
        yield (
            key,
            f"'{name}' has no nodes: {hint}add [nodes.{name}] with cpus and memory, or write one of "
            + ", ".join(groups),
        )


class ImageClassification(Application):
    """Photographs go from the endpoints to a remote node over MQTT and come back as classes."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"arrivals": {"const": "closed"}}, "required": ["arrivals"]},
            "then": {"properties": {"rate": False}},
            "else": {"required": ["rate"]},
            "anyOf": [{"required": ["server"]}, {"required": ["on"]}],
        }
    )

    kind: Literal["image-classification"]
    on: Name | None = Field(None, description="The same as 'server'.", examples=["edge"])
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

    def completed(self, groups: Groups) -> Self:
        """The application with the defaults that depend on the nodes filled in."""
        filled = super().completed(groups)
        server = self.server or self.on
        served_by = groups.get(server or "")
        workers = self.workers or (max(1, int(served_by.cpus)) if served_by is not None else None)
        return filled.model_copy(update={"workers": workers, "server": server, "on": None})

    def misfits(self, groups: Groups, duration: int) -> Iterator[tuple[str, str]]:
        """As of :class:`Application`."""
        yield from super().misfits(groups, duration)
        if self.on is not None:
            yield from group_misfits("on", self.on, groups)
            if self.server is not None:
                yield "on", "the same as 'server': remove one of the two"
        elif self.server is None:
            yield "server", 'missing: write the node group that runs the service, server = "edge"'
        if self.arrivals == "closed" and self.rate is not None:
            yield "rate", "a closed loop has no rate: remove this key"
        if self.arrivals != "closed" and self.rate is None:
            yield "rate", f'missing: {self.arrivals} arrivals need one; write rate = "8 /s"'

    def __str__(self) -> str:
        """The application in a line."""
        rate = f" at {self.rate:g} /s per endpoint" if self.rate else ""
        return f"{self.kind} on {self.server}, {self.arrivals}{rate}"


AnyApplication = ImageClassification
"""With a second kind: ``Annotated[ImageClassification | Other, Field(discriminator="kind")]``."""
