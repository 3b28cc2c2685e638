"""Sites: places of edge and cloud nodes, and the servers of clients that move from site to site."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from cellbed.scenario.applications import Application
from cellbed.scenario.cells import Cell
from cellbed.scenario.core import CORE_LINK, CORE_RATE, CoreLink, CoreTable, constant_delay
from cellbed.scenario.fields import quantity
from cellbed.scenario.nodes import Name, NodeGroup
from cellbed.scenario.table import Path, Table, written
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION


class Site(Table):
    """A place of edge and cloud nodes, which share a switch and one core link."""

    core: Annotated[CoreLink, CORE_LINK] = Field(
        description="Link between the site and the tower, shared by its nodes: a preset, a one-way delay, or a table.",
        examples=["eu-west-3"],
    )
    delay: Annotated[int, quantity(DURATION, "0 s", "1 s")] = Field(
        written("25 us"),
        description="One-way delay of each node's port, between node and switch: two nodes are twice as far apart.",
    )
    rate: Annotated[int, CORE_RATE] = Field(
        written("10 Gbit/s"), description="Rate of each node's port, in each direction."
    )


Sites = dict[Name, Site]
Cells = Mapping[str, Cell]
Groups = Mapping[str, NodeGroup]
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Migration:
    """A move of a server that follows its clients. at: begin, ns from the start of the schedule; length: time at no
    site, ns; group: group of the server; source, target: sites."""

    at: int
    length: int
    group: str
    source: str
    target: str


def cell_visits(group: NodeGroup) -> list[tuple[int, str]]:
    """Return the cells of a group of endpoints, with times of leaving the previous cell, ns; empty without a cell."""
    first = [(0, group.cell)] if group.cell is not None else []
    return [*first, *((handover.at, handover.cell) for handover in group.route)]


def sites_of(cells: Cells, group: NodeGroup) -> list[tuple[int, str | None]]:
    """Return the sites of a group's cells, with times of leaving the previous cell, ns; ``None``: the tower."""
    return [(at, cells[name].site) for at, name in cell_visits(group)]


def at_site(groups: Groups, site: str | None) -> list[str]:
    """Return the groups of nodes at a site, in the order of the file."""
    return [name for name, group in groups.items() if site is not None and group.site == site]


def instances(cells: Cells, groups: Groups, application: Application) -> list[str]:
    """Return the groups of an application's servers: with the policy nearest, the group with the same index at each
    site."""
    if application.server is None:
        return []
    if application.edge_policy != "nearest":
        return list(dict.fromkeys((application.server.on, *application.more_servers)))
    at = [at_site(groups, site) for _, site in sites_of(cells, groups[_client(application, groups)])]
    place = at[0].index(application.server.on)
    return list(dict.fromkeys(names[place] for names in at))


def migrations(sites: Mapping[str, Site], cells: Cells, groups: Groups, application: Application) -> list[Migration]:
    """Return the migrations of a server that follows its clients: when they are at a new site, its state is sent there;
    then it continues."""
    if application.edge_policy != "follow-me" or application.server is None:
        return []
    group = groups[_client(application, groups)]
    found = []
    for ((_, source), (_, target)), handover in zip(pairwise(sites_of(cells, group)), group.route, strict=True):
        assert source is not None  # ensured by `site_misfits`
        assert target is not None
        if source != target:
            length = transfer(sites[source], sites[target], application.state or 0)
            found.append(Migration(handover.enters, length, application.server.on, source, target))
    return found


def transfer(source: Site, target: Site, size: int) -> int:
    """Return the time from the first byte leaving a site to the last byte reaching another over an idle path, ns."""
    cores = source.core, target.core
    rates = [core.rate for core in cores if isinstance(core, CoreTable) and core.rate is not None]
    return (-(-size * 8 * _SECOND // min(rates)) if rates else 0) + sum(constant_delay(core) or 0 for core in cores)


def _client(application: Application, groups: Groups) -> str:
    client = application.complete(groups).client
    return client.on if client is not None else ""


def site_misfits(
    sites: Mapping[str, Site], cells: Cells, groups: Groups, applications: Mapping[str, Application]
) -> Iterator[tuple[str | None, Path, str]]:
    """Yield misfits between sites, cells, groups and policies: (application, path below it or the file, what to do)."""
    for name, group in groups.items():
        where: Path = ("nodes", name)
        if group.site is not None and group.node_class == "endpoint":
            text = "only edge and cloud nodes are at a site: remove this key; 'site' in [cells.NAME] places a tower"
            yield None, (*where, "site"), text
        elif group.site is not None and group.core is not None:
            yield None, (*where, "core"), "the nodes of a site share its core link: remove this key, or 'site'"
    asked: dict[Path, str | None] = {("nodes", name): group.site for name, group in groups.items()}
    asked |= {("cells", name): cell.site for name, cell in cells.items()}
    unknown = [(place, site) for place, site in asked.items() if site is not None and site not in sites]
    for place, site in unknown:
        there = f"write one of {', '.join(sites)}" if sites else f"write [sites.{site}] and under it core"
        yield None, (*place, "site"), f"there is no site '{site}': {did_you_mean(site, sites)}{there}"
    # A mistyped name is one mistake, although the intended site is then unused.
    for name in [each for each in sites if each not in asked.values() and not unknown]:
        text = f"no nodes are at this site: write site = '{name}' in a group of edge or cloud nodes, or remove it"
        yield None, ("sites", name), text
    for name, application in applications.items():
        if application.edge_policy != "fixed":
            others = {role.on for other, it in applications.items() if other != name for _, role in it.roles()}
            for key, text in _policy_misfits(sites, cells, groups, application, others):
                yield name, (key,), text


def _policy_misfits(
    sites: Mapping[str, Site], cells: Cells, groups: Groups, application: Application, others: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield obstacles to servers that change with the cell: (key, what to do). others: groups of other applications."""
    policy, client = application.edge_policy, groups.get(_client(application, groups))
    if application.server is None:
        yield "server", "missing: write nodes at the site of the clients' first cell"
        return
    if client is None or client.cell is None:
        yield "edge_policy", "the clients are in no cell: write 'cell' and a route in their group"
        return
    served, stays = application.server.on, [name for _, name in cell_visits(client)]
    if any(name not in cells or cells[name].site not in (None, *sites) for name in stays):
        return  # reported at the cell
    if without := [name for name in stays if cells[name].site is None]:
        yield "edge_policy", f"the cell '{without[0]}' is at no site: write 'site' in [cells.{without[0]}]"
        return
    at = {site: at_site(groups, site) for _, site in sites_of(cells, client) if site is not None}
    first = next(iter(at))
    if served not in at[first]:
        there = f"one of its nodes, {', '.join(at[first])}" if at[first] else f"site = '{first}' in [nodes.{served}]"
        yield "server", f"the clients begin at the site '{first}': write {there}"
    elif policy == "nearest":
        place = at[first].index(served)
        if missing := [site for site, names in at.items() if len(names) <= place]:
            there = f"write site = '{missing[0]}' in a group, as number {place + 1} of those at the site"
            yield "edge_policy", f"the site '{missing[0]}' has no instance: {there}"
            return
        for group in (groups[name] for name in instances(cells, groups, application)):
            if group.count > 1:
                yield "edge_policy", "each site has one instance: write count = 1 in the groups of its nodes"
            elif group.backend.routed or group.backend.kind != groups[served].backend.kind:
                yield "edge_policy", "the instances at all sites must be namespaces, or all of them containers"
    elif served in others:
        yield "edge_policy", f"'{served}' has programs of other applications, too: write another group"
    elif application.state is None:
        yield "state", "missing: write the size of the state that moves with the server, state = '20 MB'"
    elif varying := [site for site in at if constant_delay(sites[site].core) is None]:
        text = f"the core link of the site '{varying[0]}' varies: write kind = 'delay' in [sites.{varying[0]}.core]"
        yield "edge_policy", text
    else:
        for text in _transfer_misfits(sites, migrations(sites, cells, groups, application), application.state):
            yield "state", text


def _transfer_misfits(sites: Mapping[str, Site], moves: list[Migration], state: int) -> Iterator[str]:
    """Yield problems of the transfers of a server's state."""
    for move in moves:
        cores = [sites[name].core for name in (move.source, move.target)]
        if state and not any(isinstance(core, CoreTable) and core.rate is not None for core in cores):
            example = f"core = {{ kind = 'delay', delay = '5 ms', rate = '1 Gbit/s' }} in [sites.{move.target}]"
            yield f"the links between the sites have no rate: write {example}"
            return
    if any(move.at + move.length > after.at for move, after in pairwise(moves)):
        yield "the transfer takes longer than the clients stay in a cell: write a smaller state, or later handovers"
