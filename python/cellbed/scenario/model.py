"""The scenario: nodes, links, transport and workload of a run, checked and with every default filled in.

In the model durations are nanoseconds, sizes bytes, rates bit/s and frequencies events per second. `Scenario.resolved`
gives the same as text with units, the way a user writes it.
"""

from typing import Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from cellbed.scenario.applications import AnyApplication, Nodes
from cellbed.scenario.congestion import objection
from cellbed.scenario.core import CORE_LINK, CoreLink
from cellbed.scenario.fields import quantity, refusal
from cellbed.scenario.forms import PLAIN, table_kind
from cellbed.scenario.mobile import MobileLink
from cellbed.scenario.radio import RadioLink
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.table import Path, Table, written
from cellbed.units import DURATION

RunTime = Annotated[int, quantity(DURATION, "1 ms", "24 h")]


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
    workload: AnyApplication = Field(description="The application and its load.")

    def resolved(self) -> dict[str, Any]:
        """The scenario with every default written out, as JSON-able values that read like the file; None for absent."""
        return self.model_dump(mode="json")

    def completed(self) -> Self:
        """The scenario with the defaults that depend on other keys filled in."""
        links = self.links.model_copy(update={"mobile": self.links.mobile.completed()})
        return self.model_copy(update={"links": links, "workload": self.workload.completed(self.nodes)})

    def misfits(self) -> list[tuple[Path, str]]:
        """Conflicts between keys: (path of the key, problem and remedy)."""
        found: list[tuple[Path, str]] = []
        for remote in ("edge", "cloud"):
            if getattr(self.nodes, remote) is not None and getattr(self.links.core, remote) is None:
                found.append((("links", "core", remote), f"missing, but [nodes.{remote}] exists: {_CORE_HINT}"))
        found += [(("workload", key), text) for key, text in self.workload.misfits(self.nodes)]
        mobile: Path = ("links", "mobile")
        return found + [((*mobile, *path), text) for path, text in self.links.mobile.misfits(self.duration)]


_CORE_HINT = 'write a preset such as "base-edge", or a one-way delay such as "3 ms"'
