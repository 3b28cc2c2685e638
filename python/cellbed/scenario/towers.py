"""Nodes of towers: the packets of a tower's radio links pass them, and a program on them may change these packets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cellbed.scenario.nodes import TOWER_CLASS
from cellbed.scenario.table import Path

if TYPE_CHECKING:
    from cellbed.scenario.model import Scenario


def tower_misfits(scenario: "Scenario") -> Iterator[tuple[Path, str]]:
    """Yield keys of nodes of class tower that do not fit: (path, what to do)."""
    sites = {cell.site for cell in scenario.cells.values()}
    places: dict[str | None, str] = {}
    for name, group in scenario.nodes.items():
        where: Path = ("nodes", name)
        if group.node_class != TOWER_CLASS:
            if group.intercept is not None:
                yield (*where, "intercept"), "only a node of class tower gets connections of others: remove this key"
            continue
        if group.count != 1:
            yield (*where, "count"), "a tower has one node: write 1, or one group for each site with a tower"
        if group.backend.routed:
            text = "the packets of a tower pass this machine's kernel: write a namespace or a container"
            yield (*where, "backend"), text
        if (other := places.setdefault(group.site, name)) != name:
            yield (*where, "class"), f"'{other}' is the node of this tower: remove one, or write another 'site'"
        if group.site in scenario.sites and group.site not in sites:
            yield (*where, "site"), f"no tower is at this site: write site = '{group.site}' in a cell of [cells]"
        if scenario.live is not None:
            yield (*where, "class"), "a live link has no tower: remove this group"
    if places:
        for path, link in scenario.mobile_links():
            if getattr(link, "proxy", None) is not None:
                names = ", ".join(places.values())
                yield (*path, "proxy"), f"packets pass the node of the tower ({names}) instead: remove one of the two"
