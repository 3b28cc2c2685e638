"""Faults on schedule: of nodes, links and programs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from cellbed.scenario.fields import quantity
from cellbed.scenario.mobile import Offset
from cellbed.scenario.nodes import TOWER_CLASS, NodeGroup
from cellbed.scenario.table import Table
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION

Length = Annotated[int, quantity(DURATION, "1 ms", "24 h")]


@dataclass(frozen=True, slots=True)
class Names:
    """The names in a scenario: nodes with their groups, applications, and links."""

    nodes: Mapping[str, NodeGroup]
    apps: Sequence[str]
    links: Sequence[str]


class _Fault(Table):
    """The base of faults."""

    at: Offset = Field(description="Begin, from the start of the workload.", examples=["20 s"])

    def misfits(self, names: Names) -> Iterator[tuple[str, str]]:
        """Yield unknown names: (key, what to do)."""
        raise NotImplementedError


class Lasting(_Fault):
    """A fault with an end."""

    length: Length = Field(alias="for", description="Duration.", examples=["5 s"])


class NodeFault(Lasting):
    """A fault of a node: a crash of its programs and links, a pause of its programs, or a full disk."""

    kind: Literal["crash", "pause", "full-disk"] = Field(
        description="crash: its programs are killed, its packets are lost, and its services start again afterwards. "
        "pause: its programs are paused. full-disk: its programs cannot write files."
    )
    node: str = Field(description="Name of the node.", examples=["edge-0"])

    def misfits(self, names: Names) -> Iterator[tuple[str, str]]:
        nodes = names.nodes
        if self.node not in nodes:
            yield "node", f"no node is called '{self.node}': {did_you_mean(self.node, nodes)}{_list_names(nodes)}"
        elif self.kind == "full-disk" and nodes[self.node].disk is None:
            group = self.node.rpartition("-")[0]
            yield "node", f'{self.node} has no disk of limited size: write disk = "64 MiB" in [nodes.{group}]'

    def __str__(self) -> str:
        """Return the fault in a line."""
        return f"{self.kind} of {self.node} for {DURATION.format(self.length)}"


class LinkFault(Lasting):
    """A link without coverage; see ``outage`` of a link."""

    kind: Literal["outage"] = Field(description="Nothing leaves the bottleneck of the link; packets wait in its queue.")
    link: str = Field(description="Name of a link, or of one of its directions.", examples=["mobile-0"])

    def misfits(self, names: Names) -> Iterator[tuple[str, str]]:
        links = names.links
        link, _, way = self.link.rpartition(".") if self.link.endswith(("link",)) else (self.link, "", "")
        if link not in links or way not in ("", "uplink", "downlink"):
            yield "link", f"no link is called '{self.link}': {did_you_mean(self.link, links)}{_list_names(links)}"

    def __str__(self) -> str:
        """Return the fault in a line."""
        return f"outage of {self.link} for {DURATION.format(self.length)}"


class ProgramFault(_Fault):
    """Programs that are killed and started again."""

    kind: Literal["restart"] = Field(description="The programs are killed, and start again at once.")
    program: str = Field(
        description="An application, for the programs of its servers; or the beginning of a program's name.",
        examples=["shop", "shop.edge-0"],
    )

    def misfits(self, names: Names) -> Iterator[tuple[str, str]]:
        app, _, node = self.program.partition(".")
        if app not in names.apps:
            near = did_you_mean(app, names.apps)
            yield "program", f"no application is called '{app}': {near}{_list_names(names.apps)}"
        if node and (name := node.split(".")[0]) not in names.nodes:
            near = did_you_mean(name, names.nodes)
            yield "program", f"no node is called '{name}': {near}{_list_names(names.nodes)}"

    def __str__(self) -> str:
        """Return the fault in a line."""
        return f"restart of {self.program}"


Fault = Annotated[NodeFault | LinkFault | ProgramFault, Field(discriminator="kind")]


def link_name(group: str, table: NodeGroup, index: int) -> str:
    """Return the name of the link of a node."""
    if table.node_class == "endpoint":
        return f"mobile-{index if group == 'endpoint' else f'{group}-{index}'}"
    return f"{'core' if table.site is None else 'port'}-{group}-{index}"


def site_link(site: str) -> str:
    """Return the name of the core link of a site."""
    return f"site-{site}"


def fault_misfits(
    faults: Sequence[Fault],
    groups: Mapping[str, NodeGroup],
    apps: Sequence[str],
    duration: int,
    sites: Sequence[str] = (),
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield problems of the faults of a workload of `duration` ns: (path of the key, what to do). sites: names of the
    core links of sites."""
    ends: dict[str, int] = {}
    each = [(name, group, index) for name, group in groups.items() for index in range(group.count)]
    nodes = {f"{name}-{index}": group for name, group, index in each}
    names = Names(nodes, apps, [*(link_name(*it) for it in each if it[1].node_class != TOWER_CLASS), *sites])
    for index, fault in enumerate(faults):
        yield from (((index, key), text) for key, text in fault.misfits(names))
        if fault.at >= duration:
            yield (index, "at"), f"the workload ends after {DURATION.format(duration)}: write an earlier time"
    for index, fault in sorted(enumerate(faults), key=lambda each: each[1].at):
        if isinstance(fault, NodeFault):
            if fault.at <= ends.get(fault.node, -1):
                text = f"another fault of {fault.node} lasts until {DURATION.format(ends[fault.node])}"
                yield (index, "at"), f"{text}: write a later time"
            ends[fault.node] = fault.at + fault.length


def _list_names(names: Mapping[str, object] | Sequence[str]) -> str:
    few = list(names)[:8]
    return f"there are {', '.join(few)}{' …' if len(names) > 8 else ''}" if few else "there are none"
