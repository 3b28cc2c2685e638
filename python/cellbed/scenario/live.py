"""A live mobile link: packets leave this machine by one of its interfaces, and nothing of the network is shaped."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field

from cellbed.scenario.fields import Unlimited
from cellbed.scenario.table import Path, Table

if TYPE_CHECKING:
    from cellbed.scenario.model import Scenario

_LINK_FAULTS = ("crash", "outage")
"""Kinds of faults that act on links."""
_WHOLE_PATH = "a live link is the whole path to the node"


class LiveLink(Table):
    """A real network between all endpoints and the edge and cloud nodes, which are machines over SSH."""

    kind: Literal["live"]
    interface: str = Field(
        pattern="^[^\\s/:]{1,15}$",
        description="Interface of this machine for packets to edge and cloud nodes.",
        examples=["usb0"],
    )
    shared: bool = Field(
        False, description="Use the interface although this machine's other traffic has no other default route."
    )

    up: ClassVar[Unlimited] = Unlimited()
    down: ClassVar[Unlimited] = Unlimited()
    start: ClassVar[int] = 0
    loop: ClassVar[bool] = True
    changes: ClassVar[tuple[()]] = ()

    def complete(self) -> Self:
        """Return the link itself."""
        return self

    def misfits(self, _duration: int) -> list[tuple[Path, str]]:
        """Return keys that do not fit others: none; see :func:`live_misfits`."""
        return []

    def capacities(self) -> Iterator[tuple[Path, Unlimited]]:
        """Return capacities from files: none."""
        return iter(())


def live_misfits(scenario: "Scenario") -> Iterator[tuple[Path, str]]:
    """Yield the keys of a scenario with a live link that need a shaped network: (path, what to do)."""
    live = scenario.live
    if live is None:
        return
    endpoints = {name: group for name, group in scenario.nodes.items() if group.node_class == "endpoint"}
    for name, group in scenario.nodes.items():
        where: Path = ("nodes", name)
        if name in endpoints:
            if group.backend.kind == "host":
                text = "endpoints send by an interface of this machine: write a backend of this machine"
                yield (*where, "backend"), text
            if group.stagger:
                yield (*where, "stagger"), "a live link replays no trace: remove this key"
            if scenario.links.mobile != live or group.link not in (None, live):
                key: Path = ("links", "mobile") if group.link in (None, live) else (*where, "link")
                yield key, "with a live link, all endpoints use it: write it in [links.mobile] alone"
            continue
        if group.node_class != "tower" and group.backend.kind != "host":
            text = "a live link leads to machines over SSH: write backend = { kind = 'host', ssh = … }"
            yield (*where, "backend"), text
        elif group.backend.kind == "host" and group.backend.nat:
            yield (*where, "backend", "nat"), "a live link sends datagrams to the machine: remove this key"
        for wrong in ("core", "site"):
            if getattr(group, wrong) is not None:
                yield (*where, wrong), f"{_WHOLE_PATH}: remove this key"
    for node_class in ("edge", "cloud"):
        if getattr(scenario.links.core, node_class) is not None:
            yield ("links", "core", node_class), f"{_WHOLE_PATH}: remove this key"
    for index, fault in enumerate(scenario.faults):
        if fault.kind in _LINK_FAULTS:
            text = f"nothing of a live link is shaped, so it has no {fault.kind}: remove this fault"
            yield ("faults", index, "kind"), text
    for name, application in scenario.applications.items():
        if application.server is not None and application.server.on in endpoints and application.client is not None:
            text = "packets between endpoints do not pass a live link: write an edge or cloud group"
            yield (*scenario.path_of(name), "server", "on"), text
