"""Migrations of running services on schedule: which application, to which node, and how."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from cellbed.laws.law import Law
from cellbed.scenario.applications import Application
from cellbed.scenario.core import CORE_RATE
from cellbed.scenario.fields import CONGESTION_CONTROL, refusal
from cellbed.scenario.mobile import Offset
from cellbed.scenario.nodes import NodeGroup
from cellbed.scenario.table import Path, Table
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import DURATION

STRATEGIES = {
    "redeploy": "cellbed.testbed.migration.redeploy:Redeploy",
    "state": "cellbed.testbed.migration.state:StateTransfer",
    "stop-and-copy": "cellbed.testbed.migration.stop_and_copy:StopAndCopy",
    "post-copy": "cellbed.testbed.migration.post_copy:PostCopy",
}
"""The class of each strategy, loaded when it is needed; see :class:`cellbed.testbed.migration.strategy.Strategy`."""


def _known(strategy: str) -> str:
    if strategy not in STRATEGIES:
        raise refusal(f"'{strategy}': {did_you_mean(strategy, STRATEGIES)}write one of {', '.join(STRATEGIES)}")
    return strategy


class Migration(Table):
    """A service that moves to another node while it runs, with its name and address."""

    app: str = Field(description="Application whose server moves.", examples=["shop"])
    to: str = Field(description="Name of the node to which it moves.", examples=["edge-0"])
    at: Offset = Field(description="When it begins, from the start of the workload.", examples=["20 s"])
    strategy: Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": [*STRATEGIES]})] = Field(
        description="How it moves.", examples=["redeploy"]
    )
    congestion_control: Annotated[Law | str, CONGESTION_CONTROL] | None = Field(
        None, description="TCP congestion control of the transfer. Default: that of the source."
    )
    connections: int = Field(1, ge=1, le=64, description="Number of TCP connections of the transfer.")
    compression: int = Field(0, ge=0, le=19, description="Level of zstd of the transfer; 0: not compressed.")
    rate: Annotated[int, CORE_RATE] | None = Field(
        None, description="Maximum rate of the transfer. Default: none.", examples=["200 Mbit/s"]
    )

    def __str__(self) -> str:
        """Return the migration in a line."""
        return f"{self.strategy} of {self.app} to {self.to}"


def server_of(application: Application, groups: Mapping[str, NodeGroup]) -> str | None:
    """Return the name of the node on which the only server of an application runs; ``None`` without such a one."""
    role = application.server
    if role is None or role.on not in groups or groups[role.on].count != 1 or application.more_servers:
        return None
    return f"{role.on}-0"


def migration_misfits(
    migrations: Sequence[Migration],
    groups: Mapping[str, NodeGroup],
    apps: Mapping[str, Application],
    duration: int,
) -> Iterator[tuple[Path, str]]:
    """Yield problems of the migrations of a workload of `duration` ns: (path of the key, what to do)."""
    nodes = {f"{name}-{index}": group for name, group in groups.items() for index in range(group.count)}
    places: dict[str, str] = {}
    last: dict[str, int] = {}
    for index, each in enumerate(migrations):
        if each.app not in apps:
            listed = ", ".join(apps) or "none"
            yield (index, "app"), f"no application is called '{each.app}': {did_you_mean(each.app, apps)}have {listed}"
            continue
        if each.to not in nodes:
            listed = ", ".join(list(nodes)[:8])
            yield (index, "to"), f"no node is called '{each.to}': {did_you_mean(each.to, nodes)}there are {listed}"
            continue
        if each.at >= duration:
            yield (index, "at"), f"the workload ends after {DURATION.format(duration)}: write an earlier time"
        if each.at <= last.get(each.app, -1):
            yield (index, "at"), f"another migration of '{each.app}' begins later: write them in order of time"
        last[each.app] = each.at
        if each.strategy == "post-copy":
            for key, value, usual in (("connections", each.connections, 1), ("compression", each.compression, 0)):
                if value != usual:
                    yield (index, key), "pages on demand come over one connection, as they are: remove this key"
        for key, text in movable_misfits(each, groups, apps[each.app], places.get(each.app)):
            yield (index, key), text
        places[each.app] = each.to


def movable_misfits(
    migration: Migration, groups: Mapping[str, NodeGroup], application: Application, place: str | None
) -> Iterator[tuple[str, str]]:
    """Yield why a service cannot move to an existing node: (key, what to do). place: node on which it is, unless it is
    at its first one."""
    at_first = server_of(application, groups)
    if application.server is None:
        yield "app", f"'{migration.app}' has no server that could move: write one"
    elif at_first is None or application.edge_policy != "fixed" or application.balance != "client":
        yield "app", "only a service with one server moves: write count = 1 in its group, and no edge_policy or balance"
    elif migration.to == (place or at_first):
        yield "to", f"'{migration.app}' is on {migration.to} then already: write another node"
    else:
        for node in (place or at_first, migration.to):
            group = groups[node.rpartition("-")[0]]
            if group.backend.kind not in ("namespace", "container"):
                text = f"{node} is of kind {group.backend.kind}: services move between namespaces and containers"
                yield "to" if node == migration.to else "app", text
