"""Edge sites of cells, and where clients that move are served."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from cellbed.scenario.applications import Application
from cellbed.scenario.cells import Cell
from cellbed.scenario.core import CoreDelay, CoreFixed
from cellbed.scenario.nodes import NodeGroup
from cellbed.scenario.table import Path
from cellbed.support.near_names import did_you_mean

Cells = Mapping[str, Cell]
Groups = Mapping[str, NodeGroup]
_SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Migration:
    """A server that follows its clients. at, length: ns from the start of the schedule, during which it is at no site;
    group: of the server; source, target: cells."""

    at: int
    length: int
    group: str
    source: str
    target: str


def visited(group: NodeGroup) -> list[tuple[int, str]]:
    """Return the cells of a group of endpoints, and when it leaves the one before, ns; empty without a cell."""
    first = [(0, group.cell)] if group.cell is not None else []
    return [*first, *((handover.at, handover.cell) for handover in group.route)]


def site_of(cells: Cells, group: str) -> str | None:
    """Return the cell at whose site the nodes of an edge group are at the start; ``None``: they are where the sites
    meet."""
    return next((name for name, cell in cells.items() if group in cell.edge), None)


def instances(cells: Cells, groups: Groups, application: Application) -> list[str]:
    """Return the groups on which the servers of an application run: with the policy nearest the one in the same place
    of the list of each cell."""
    if application.server is None:
        return []
    if application.edge_policy != "nearest":
        return [application.server.on]
    stays = [cells[name] for _, name in visited(groups[_client(application, groups)])]
    place = stays[0].edge.index(application.server.on)
    return list(dict.fromkeys(cell.edge[place] for cell in stays))


def migrations(cells: Cells, groups: Groups, application: Application) -> list[Migration]:
    """Return the migrations of a server that follows its clients: when they are in a new cell its state is sent there,
    then it continues."""
    if application.edge_policy != "follow-me" or application.server is None:
        return []
    group = groups[_client(application, groups)]
    return [
        Migration(
            handover.enters,
            transfer(cells[source], cells[handover.cell], application.state or 0),
            application.server.on,
            source,
            handover.cell,
        )
        for (_, source), handover in zip(visited(group), group.route, strict=False)
    ]


def transfer(source: Cell, target: Cell, size: int) -> int:
    """Nanoseconds from the first byte that leaves a site to the last that reaches another one, over an idle path."""
    rates = [core.rate for core in (source.core, target.core) if isinstance(core, CoreFixed) and core.rate is not None]
    return (-(-size * 8 * _SECOND // min(rates)) if rates else 0) + sum(map(_delay, (source.core, target.core)))


def _delay(core: CoreDelay | CoreFixed | None) -> int:
    return 0 if core is None else core.one_way if isinstance(core, CoreDelay) else core.delay.one_way


def _client(application: Application, groups: Groups) -> str:
    client = application.completed(groups).client
    return client.on if client is not None else ""


def site_misfits(
    cells: Cells, groups: Groups, applications: Mapping[str, Application]
) -> Iterator[tuple[str | None, Path, str]]:
    """Yield misfits between sites, groups and policies: (application, path below it or the file, what to do)."""
    owners: dict[str, str] = {}
    edges = [name for name, group in groups.items() if group.node_class == "edge"]
    for name, cell in cells.items():
        where: Path = ("cells", name, "edge")
        for group in cell.edge:
            if group not in edges:
                there = f"write one of {', '.join(edges)}" if edges else f"write class = 'edge' in [nodes.{group}]"
                yield None, where, f"'{group}' is no group of edge nodes: {did_you_mean(group, edges)}{there}"
            elif owners.setdefault(group, name) != name:
                yield None, where, f"'{group}' is at the site of '{owners[group]}': write another group"
        if cell.edge and cell.core is None:
            text = "missing: write the one-way delay from this site to where the sites meet, core = '5 ms'"
            yield None, ("cells", name, "core"), text
    for name, application in applications.items():
        if application.edge_policy != "fixed":
            others = {role.on for other, it in applications.items() if other != name for _, role in it.roles()}
            for key, text in _policy_misfits(cells, groups, application, others):
                yield name, (key,), text


def _policy_misfits(
    cells: Cells, groups: Groups, application: Application, others: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield obstacles to servers that change with the cell: (key, what to do). others: groups of other applications."""
    policy, client = application.edge_policy, groups.get(_client(application, groups))
    if application.server is None:
        yield "server", "missing: write the edge nodes of the cell in which the clients begin"
        return
    if client is None or client.cell is None:
        yield "edge_policy", "the clients are in no cell: write 'cell' and a route in their group"
        return
    served, stays = application.server.on, [name for _, name in visited(client)]
    if any(name not in cells for name in stays):
        return  # reported there
    first = cells[stays[0]]
    if without := [name for name in stays if cells[name].core is None]:
        yield "edge_policy", f"the cell '{without[0]}' has no site: write 'core' in [cells.{without[0]}]"
    elif served not in first.edge:
        there = (
            f"write one of its edge nodes, {', '.join(first.edge)}" if first.edge else f"write edge = '{served}' there"
        )
        yield "server", f"the clients begin in the cell '{stays[0]}': {there}"
    elif policy == "nearest":
        place = first.edge.index(served)
        if without := [name for name in stays if len(cells[name].edge) <= place]:
            there = f"write its group as number {place + 1} of 'edge' in [cells.{without[0]}]"
            yield "edge_policy", f"the site of '{without[0]}' has no instance: {there}"
            return
        for group in (groups[name] for name in instances(cells, groups, application) if name in groups):
            if group.count > 1:
                yield "edge_policy", "each site has one instance: write count = 1 in the groups of edge nodes"
            elif group.backend.routed or group.backend.kind != groups[served].backend.kind:
                yield "edge_policy", "the edge nodes of all cells must be namespaces, or all of them containers"
    elif served in others:
        yield "edge_policy", f"'{served}' has programs of other applications, too: write another group"
    elif application.state is None:
        yield "state", "missing: write the size of what moves with the server, state = '20 MB'"
    else:
        for text in _transfer_misfits(cells, groups, application):
            yield "state", text


def _transfer_misfits(cells: Cells, groups: Groups, application: Application) -> Iterator[str]:
    """Yield problems of the transfers of a server's state."""
    moves = migrations(cells, groups, application)
    for move in moves:
        cores = [cells[name].core for name in (move.source, move.target)]
        if application.state and not any(isinstance(core, CoreFixed) and core.rate is not None for core in cores):
            example = f"core = {{ kind = 'delay', delay = '5 ms', rate = '1 Gbit/s' }} in [cells.{move.target}]"
            yield f"the links between the sites have no rate: write {example}"
            return
    if any(move.at + move.length > after.at for move, after in pairwise(moves)):
        yield "the transfer takes longer than the clients stay in a cell: write a smaller state, or later handovers"
