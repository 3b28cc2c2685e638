"""Migrations of running services, on schedule or by a policy: application, target node and strategy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, Field, WithJsonSchema

from cellbed.laws.law import Law
from cellbed.scenario.applications import Application
from cellbed.scenario.cells import Cell
from cellbed.scenario.core import CORE_RATE
from cellbed.scenario.fields import CONGESTION_CONTROL, quantity, refusal
from cellbed.scenario.mobile import Offset
from cellbed.scenario.nodes import NodeGroup
from cellbed.scenario.policies import AnyPolicy
from cellbed.scenario.policies.policy import Place
from cellbed.scenario.sites import cell_visits
from cellbed.scenario.table import Path, Table
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, SIZE

_MEMORY = "memory moves between nodes of one kind on this machine, and between containers of one image"


class StrategyTraits:
    """The properties of a :class:`~cellbed.testbed.migration.strategy.Strategy` that scenarios need."""

    moves_memory: ClassVar[bool] = False
    """True if the program itself moves with its connections, and no other program replaces it."""
    unused_keys: ClassVar[Mapping[str, str]] = {}
    """Keys of the transfer without effect, and the reason."""

    @classmethod
    def lacks(cls) -> str | None:
        """Return what this machine lacks for this strategy, with the package to install; ``None`` if nothing. Called
        before anything starts. Implementations try with a test program, because the answers of tools mislead."""
        return None


def load_strategy(name: str) -> type[Any]:
    """Return the class of a strategy: an entry point of the group ``cellbed.strategies``. Errors: CellbedError."""
    if (entry := entries("strategies").get(name)) is None:
        raise CellbedError(f"there is no strategy '{name}': install the package that has it")
    return cast(type[Any], entry.load())


def _check_strategy(name: str) -> str:
    if name not in (names := entries("strategies")):
        raise refusal(f"'{name}': {did_you_mean(name, names)}write one of {', '.join(names)}")
    return name


Span = Annotated[int, quantity(DURATION, "0 s", "24 h")]


class MigrationModel(Table):
    """Parameters of a predicted migration (``--virtual``) that do not depend on links."""

    size: Annotated[int, quantity(SIZE, "1 B", "1 TB")] | None = Field(
        None, description="Bytes of the state or snapshot, as sent.", examples=["2 GB"]
    )
    dirty_rate: Annotated[int, quantity(BIT_RATE, "0 bit/s", "1000 Gbit/s")] | None = Field(
        None,
        description="Rate at which the service changes its state, of `state` and `pre-copy`.",
        examples=["400 Mbit/s"],
    )
    start: Span | None = Field(None, description="Time to start, or prepare, at the target.", examples=["500 ms"])
    save: Span | None = Field(None, description="Time to save the whole state or memory.", examples=["2 s"])
    overhead: Span | None = Field(None, description="Time of each transfer without the links'.", examples=["200 ms"])
    finish: Span | None = Field(
        None,
        description="The same for the transfer while the service is paused; of `pre-copy` with its snapshot.",
        examples=["200 ms"],
    )
    restore: Span | None = Field(None, description="Time from the last byte to service.", examples=["500 ms"])
    switch: Span | None = Field(None, description="Time to move the address.", examples=["50 ms"])
    stop: Span | None = Field(None, description="Time until it has ended at the source.", examples=["100 ms"])


class Migration(Table):
    """A service that moves to another node while it runs, with its name and address."""

    app: str = Field(description="Application whose server moves.", examples=["shop"])
    to: str = Field(
        "", description="Name of the target node. Required unless the policy has nodes.", examples=["edge-0"]
    )
    at: Offset | None = Field(
        None, description="Begin, from the start of the workload. Or a policy.", examples=["20 s"]
    )
    policy: AnyPolicy | None = Field(None, description="Policy that chooses its begin and target node. Or a time.")
    strategy: Annotated[
        str,
        AfterValidator(_check_strategy),
        WithJsonSchema({"type": "string", "enum": list(entries("strategies"))}),
    ] = Field(description="Strategy of the move.", examples=["redeploy"])
    congestion_control: Annotated[Law | str, CONGESTION_CONTROL] | None = Field(
        None, description="TCP congestion control of the transfer. Default: the source's."
    )
    connections: int = Field(1, ge=1, le=64, description="Number of TCP connections of the transfer.")
    compression: int = Field(0, ge=0, le=19, description="Level of zstd of the transfer; 0: not compressed.")
    rate: Annotated[int, CORE_RATE] | None = Field(
        None, description="Maximum rate of the transfer. Default: none.", examples=["200 Mbit/s"]
    )
    model: MigrationModel | None = Field(
        None, description="Parameters of predictions. Default: measured ones, of a profile."
    )

    def targets(self) -> list[str]:
        """Return the possible target nodes."""
        return [self.to] if self.policy is None else [*([self.to] if self.to else []), *self.policy.targets()]

    @property
    def traits(self) -> type[StrategyTraits]:
        """Return the properties of the strategy."""
        return load_strategy(self.strategy)

    @property
    def when(self) -> str:
        """Return the begin of the migration in words."""
        return f"at {DURATION.format(self.at or 0)}" if self.policy is None else f"by {self.policy}"

    def __str__(self) -> str:
        """Return the migration in a line."""
        return f"{self.strategy} of {self.app} to {' or '.join(self.targets())}"


def server_of(application: Application, groups: Mapping[str, NodeGroup]) -> str | None:
    """Return the name of the node of an application's only server; ``None`` if there is not exactly one server node."""
    role = application.server
    if role is None or role.on not in groups or groups[role.on].count != 1 or application.more_servers:
        return None
    return f"{role.on}-0"


def client_group(application: Application, groups: Mapping[str, NodeGroup]) -> str | None:
    """Return the group of the clients of an application, if there is one."""
    role = application.complete(groups).client
    return role.on if role is not None and role.on in groups else None


def migration_misfits(
    migrations: Sequence[Migration],
    groups: Mapping[str, NodeGroup],
    apps: Mapping[str, Application],
    cells: Mapping[str, Cell],
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
        if bool(each.to) == bool(each.policy is not None and each.policy.targets()):
            text = "the policy has nodes: remove this key" if each.to else "missing: write the name of a node"
            yield (index, "to"), text
            continue
        if unknown := next((node for node in each.targets() if node not in nodes), None):
            listed = ", ".join(list(nodes)[:8])
            text = f"no node is called '{unknown}': {did_you_mean(unknown, nodes)}there are {listed}"
            yield (index, *(("to",) if each.to else ("policy", "nodes"))), text
            continue
        unused = each.traits.unused_keys
        for key in sorted(unused.keys() & each.model_fields_set):
            yield (index, key), f"{unused[key]}: remove this key"
        if (each.at is None) == (each.policy is None):
            yield (index, "at"), "write either a time here, or a policy"
            continue
        if each.policy is not None:
            if sum(other.app == each.app for other in migrations) > 1:
                yield (index, "policy"), f"only the policy moves '{each.app}': remove its other migrations"
            misfits = _policy_misfits(each, each.policy, groups, apps[each.app], cells)
            yield from (((index, *path), text) for path, text in misfits)
            continue
        assert each.at is not None
        if each.at >= duration:
            yield (index, "at"), f"the workload ends after {DURATION.format(duration)}: write an earlier time"
        if each.at <= last.get(each.app, -1):
            yield (index, "at"), f"another migration of '{each.app}' begins then or later: write them in order of time"
        last[each.app] = each.at
        by_criu = next((it.strategy for it in migrations if it.app == each.app and it.traits.moves_memory), None)
        if each.strategy == "state" and by_criu is not None:
            text = f"'{each.app}' also moves by {by_criu}, without `CELLBED_STATE`: write one of both"
            yield (index, "strategy"), text
        for key, text in movable_misfits(each, groups, apps[each.app], places.get(each.app)):
            yield (index, key), text
        places[each.app] = each.to


def candidates(
    migration: Migration, groups: Mapping[str, NodeGroup], application: Application
) -> dict[str, str | None]:
    """Return the possible nodes of a service and their sites, the initial node first."""
    first = server_of(application, groups)
    nodes = dict.fromkeys([*([first] if first is not None else []), *migration.targets()])
    return {node: groups[node.rpartition("-")[0]].site for node in nodes}


def _policy_misfits(
    migration: Migration,
    policy: AnyPolicy,
    groups: Mapping[str, NodeGroup],
    application: Application,
    cells: Mapping[str, Cell],
) -> Iterator[tuple[Path, str]]:
    """Yield problems of a migration by a policy: (path of the key, what to do)."""
    if policy.targets() == [server_of(application, groups)]:
        yield ("policy", "nodes"), f"'{migration.app}' starts there and could never move: add another node"
    for node in migration.targets():
        if migration.to or node != server_of(application, groups):
            move = migration.model_copy(update={"to": node, "policy": None})
            for key, text in movable_misfits(move, groups, application, None):
                yield ("policy", "nodes") if key == "to" and not migration.to else (key,), text
    client = client_group(application, groups)
    visits = [] if client is None else cell_visits(groups[client])
    is_heard = client is not None and not groups[client].backend.routed
    sites = [cells[cell].site for _, cell in visits if cell in cells]
    around = Place(candidates(migration, groups, application), is_heard, sites)
    yield from ((("policy", key), text) for key, text in policy.misfits(around))


def movable_misfits(
    migration: Migration, groups: Mapping[str, NodeGroup], application: Application, place: str | None
) -> Iterator[tuple[str, str]]:
    """Yield why a service cannot move to an existing node: (key, what to do). place: present node; ``None``: the
    initial node."""
    at_first, role = server_of(application, groups), application.server
    if role is None:
        yield "app", f"'{migration.app}' has no server that could move: write one"
    elif at_first is None or application.edge_policy != "fixed" or application.balance != "client":
        yield "app", "only a service with one server moves: write count = 1 in its group, and no edge_policy or balance"
    elif (ways := application.movable_by) is not None and migration.strategy not in ways:
        text = f"write {' or '.join(ways)}" if ways else "choose another application"
        yield "strategy", f"a server of kind '{application.kind}' does not move by {migration.strategy}: {text}"
    elif migration.to == (place or at_first):
        yield "to", f"'{migration.app}' is already on {migration.to} at that time: write another node"
    else:
        source, target = (groups[node.rpartition("-")[0]].backend for node in (place or at_first, migration.to))
        if migration.traits.moves_memory and (source.routed or source.files != target.files):
            yield "strategy", f"{_MEMORY}: write such nodes, or 'state'"
        usual = list(role.misfits(groups[role.on]))
        for path, text in role.misfits(groups[migration.to.rpartition("-")[0]]):
            if (path, text) not in usual:
                yield "to", f"'{migration.app}' cannot run on {migration.to}, since its {'.'.join(path)} is {text}"
        if target.routed and role.tcp:
            yield "to", f"{migration.to} has its own kernel: remove {' and '.join(role.tcp)} of its server"
