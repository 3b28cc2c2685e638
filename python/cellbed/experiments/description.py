"""The description of a run: ``run.json``, and cautions about the traces that it replays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cellbed.archive import TraceError, TraceSource, open_archive
from cellbed.archive.warnings import Replayed, length_warnings, warnings
from cellbed.laws.law import Law, name_of
from cellbed.runformat import folder
from cellbed.runformat.description import (
    REPORTED_COLUMNS,
    REPORTED_MEASURE,
    Composed,
    Description,
    ProgramMeasures,
    Reported,
)
from cellbed.runformat.spans import REPORTED, add_proxy, divide_server, mark_live
from cellbed.scenario.applications import Application
from cellbed.scenario.core import CoreRoundTrips
from cellbed.scenario.load_dependent import trust
from cellbed.scenario.nodes import CLASSES
from cellbed.scenario.recorded import RecordedLink
from cellbed.scenario.roles import LineMeasures
from cellbed.scenario.table import Table
from cellbed.support.readable import alike
from cellbed.support.ways import Way
from cellbed.testbed.nodes.backend import Backend, Clock
from cellbed.testbed.plan import Direction, Plan
from cellbed.testbed.programs.environment import host_congestion_control
from cellbed.testbed.proof.limits import Proof
from cellbed.workloads.kind import Deployment, WithObjects
from cellbed.workloads.registry import workload

if TYPE_CHECKING:
    from cellbed.archive.entry import Entry
    from cellbed.archive.series import Part


MOST_CAUTIONS = 8
"""Maximum sentences on one entry; further starts in the entry, as of staggered endpoints, are not checked."""
_COUNTED = ("marked", "duplicated", "corrupted")


@dataclass(slots=True)
class RunState:
    """The state of a run so far.

    t0_ns: start of the schedule. deaths: sentences on processes of the workload that died and were replaced, or had no
    part in it. emulator: the emulator's account of the run. counted_before: counts of each direction at the start of
    the schedule or the end of the warm-up. clocks: clocks of nodes, if they differ from this machine's. facts: facts
    about nodes, from their back ends. services: names of the spans that services have reported, by application.
    requesting: applications whose clients have reported requests. notes: sentences for readers of the run. duration_ns:
    duration of the schedule, if it ended early. clock: virtual if the run is a prediction. laws: laws by their names in
    samples of flows, if these differ. migrations: accounts so far.
    """

    status: str = "running"
    t0_ns: int | None = None
    first_request_s: float | None = None
    proof: list[Proof] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    emulator: dict[str, Any] | None = None
    counted_before: dict[str, dict[str, Any]] = field(default_factory=dict)
    clocks: dict[str, Clock] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    services: dict[str, tuple[str, ...]] = field(default_factory=dict)
    requesting: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)
    duration_ns: int | None = None
    clock: Literal["real", "virtual"] = "real"
    laws: dict[str, Law | str] = field(default_factory=dict)
    migrations: list[dict[str, Any]] = field(default_factory=list)

    def know_nodes(self, nodes: Mapping[str, Backend]) -> None:
        """Copy clocks and facts from the nodes, which may report better values later."""
        self.clocks = {name: node.clock for name, node in nodes.items() if node.clock != Clock()}
        self.facts = {name: node.facts for name, node in nodes.items() if node.facts}

    def counts_since(self, now: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the counts of each direction since the start of the schedule. now: total counts."""
        return {name: _since(self.counted_before.get(name, {}), counts) for name, counts in now.items()}


def _since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    dropped = {why: total - before.get("dropped", {}).get(why, 0) for why, total in after["dropped"].items()}
    return {"dropped": dropped, **{what: after[what] - before.get(what, 0) for what in _COUNTED}}


def describe(path: Path, plan: Plan, state: RunState, started: datetime, *, limits: bool) -> None:
    """Write ``run.json`` into the run's folder."""
    scenario = plan.scenario
    folder.write_json(
        path / "run.json",
        {
            "format": 1,
            "name": scenario.name,
            "clock": state.clock,
            "status": state.status,
            "t0_ns": state.t0_ns,
            "started": started.isoformat(timespec="seconds"),
            "duration_ns": state.duration_ns or scenario.duration,
            "skip_ns": scenario.skip,
            "drain_ns": max((each.drain for each in scenario.applications.values()), default=0),
            "limits_enforced": limits,
            "no_limits": not limits,
            "first_request_s": state.first_request_s,
            "seed": scenario.seed,
            "congestion_control": {
                "name": name_of(scenario.transport.congestion_control or host_congestion_control()),
                "asked": scenario.transport.congestion_control is not None,
            },
            "laws": [
                {"name": name_of(law), "runs_as": name, "shown": list(law.shown) if isinstance(law, Law) else []}
                for name, law in state.laws.items()
            ],
            "applications": [
                (replace(each, spans=mark_live(each.spans)) if scenario.live is not None else each).as_json()
                for each in _describe_applications(plan, state)
            ],
            "nodes": [
                {
                    **node.config,
                    "addresses": [str(node.ipv4), str(node.ipv6)],
                    **(
                        {"congestion_control": name_of(own)}
                        if (own := scenario.nodes[node.group].congestion_control)
                        else {}
                    ),
                    "limits_enforced": limits,
                    **({"clock": asdict(state.clocks[node.name])} if node.name in state.clocks else {}),
                    **({"facts": state.facts[node.name]} if node.name in state.facts else {}),
                }
                for node in plan.nodes
            ],
            "directions": [
                {
                    "index": index,
                    "name": direction.name,
                    "link": direction.link,
                    "way": direction.way,
                    "from": direction.source,
                    "to": direction.target,
                    "description": direction.description,
                    "changes": _changes(direction),
                    "outages_ns": [list(outage) for outage in direction.parameters.outages],
                    "moves": [{"at_ns": at, "from": source, "to": target} for at, source, target in direction.moves],
                    "trace": direction.trace,
                    "played": asdict(direction.played) if direction.played else None,
                    "round_trips": asdict(direction.round_trips) if direction.round_trips else None,
                }
                for index, direction in enumerate(plan.directions)
            ],
            "cells": [
                {
                    "name": cell.name,
                    "cell": cell.cell,
                    "way": cell.way,
                    "description": str(cell),
                    "users": list(cell.users),
                    "visits_ns": cell.visits,
                }
                for cell in plan.cells
            ],
            "sites": plan.serving_cells,
            "migrations": state.migrations,
            "proof": [proof.as_dict() for proof in state.proof],
            "emulator": state.emulator,
            "notes": state.notes,
            "warnings": alike(state.warnings),
            "deaths": state.deaths,
        },
    )


def deployments(plan: Plan) -> list[Deployment]:
    """Return the applications of the scenario on the nodes of the plan."""
    shared = {name: service.address for name, service in plan.services.items()}
    addresses = {name: str(shared.get(name, nodes[0].ipv4)) for name, nodes in plan.servers.items() if nodes}
    return [
        Deployment(
            name=name,
            table=table,
            number=number,
            clients=[node for group in table.client_groups for node in plan.nodes_of_group(group)],
            servers=plan.servers[name],
            start_ns=table.start,
            stop_ns=table.stop or plan.scenario.duration,
            addresses=addresses,
            shared=shared.get(name),
        )
        for number, (name, table) in enumerate(plan.scenario.applications.items())
    ]


def _describe_applications(plan: Plan, state: RunState) -> Iterator[Description]:
    expected = plan.scenario.expectations()
    spread = {service.nodes[0].group for service in plan.services.values() if service.spread}
    for each in deployments(plan):
        described = _description(each, state)
        if described.balance == "client" and each.table.server is not None and each.table.server.on in spread:
            described = replace(described, balance="connection")  # through the address of the other application
        if (plan.proxies or plan.towers) and not described.reported:
            described = replace(described, spans=add_proxy(described.spans))
        if moved := [target for app, target in _targets(plan, state) if app == each.name]:
            all_servers = dict.fromkeys((*described.servers, *moved))
            described = replace(described, servers=tuple(all_servers), balance="migration")
        described = replace(described, skip_ns=plan.scenario.skip, expectations=expected.get(each.name, ()))
        if isinstance(module := workload(each.table.kind), WithObjects):
            objects = module.describe_objects(described, each.table.model_dump(mode="json"))
            yield described.become(Composed, consists_of=objects.name)
            yield objects
        else:
            yield described


def _targets(plan: Plan, state: RunState) -> Iterator[tuple[str, str]]:
    """Yield the applications that move, on schedule or by command, each with a target node."""
    yield from ((each.app, node) for each in plan.scenario.migrations for node in each.targets())
    yield from ((each["app"], each["target"]) for each in state.migrations)


def _description(deployment: Deployment, state: RunState) -> Description:
    table, services = deployment.table, state.services.get(deployment.name, ())
    described = workload(table.kind).describe(table.model_dump(mode="json"))
    load = [getattr(table, key, None) for key in ("arrivals", "policy")]
    exports = bool(deployment.clients) and getattr(table, "telemetry", False)
    if not described.spans and (exports or deployment.name in state.requesting):
        measures = (*described.measures, REPORTED_MEASURE)
        columns = dict(REPORTED_COLUMNS)
        described = described.become(Reported, spans=REPORTED, client_columns=columns, measures=measures)
    return replace(
        described,
        title=", ".join([described.title, *(str(each) for each in load if isinstance(each, Table))]),
        spans=divide_server(described.spans, services),
        services=services,
        name=deployment.name,
        clients=tuple(node.name for node in deployment.clients),
        servers=tuple(node.name for node in deployment.servers),
        edge_policy=table.edge_policy,
        balance="connection" if table.more_servers else table.balance,
        own=(*described.own, *_program_measures(table)),
        start_ns=deployment.start_ns,
        stop_ns=deployment.stop_ns,
        deadline_ns=getattr(table, "deadline", None),
    )


def _program_measures(table: Application) -> Iterator[ProgramMeasures]:
    for key, role in table.roles():
        if isinstance(role.measures, LineMeasures):
            yield ProgramMeasures(key, line=role.measures.line, units=role.measures.units)
        elif role.measures is not None:
            yield ProgramMeasures(key, file=role.measures)


def _changes(direction: Direction) -> list[dict[str, Any]]:
    """Return the changes of a direction: time, description, and kinds of the changed stages."""
    kinds: dict[int, list[str]] = {}
    for at, _, stage in direction.stage_changes:
        kinds.setdefault(at, []).append(stage["kind"])
    return [{"at_ns": at, "description": text, "kinds": kinds[at]} for at, text in direction.described_changes]


def cautions(plan: Plan) -> list[str]:
    """Return the :func:`notes` and further sentences on the archive entries that the links replay, each once."""
    used: dict[tuple[str, Replayed], tuple[Entry, set[Part]]] = {}
    for direction in plan.directions:
        if not isinstance(direction.capacity, TraceSource):
            continue
        # Ignore an unreadable entry: its replay reports the error.
        with suppress(TraceError):
            if (found := direction.capacity.entry()) is not None:
                entry, part = found
                replayed = Replayed(plan.scenario.duration, direction.playing.start_ns, direction.playing.looped)
                used.setdefault((entry.name, replayed), (entry, set()))[1].add(part)
    noted: dict[str, dict[str, None]] = {}
    left_out: dict[str, int] = {}
    for (name, replayed), (entry, parts) in used.items():
        of_name = noted.setdefault(name, {})
        if len(of_name) >= MOST_CAUTIONS:
            left_out[name] = left_out.get(name, 0) + 1
        else:
            of_name |= dict.fromkeys(f"{name}: {warning}" for warning in warnings(entry, replayed, parts=parts))
    more = [f"{name}: {count} more starts in it are not checked" for name, count in left_out.items()]
    replayed_ones = [
        *(text for of_name in noted.values() for text in of_name),
        *more,
        *dict.fromkeys(_describe_core(plan)),
    ]
    return list(dict.fromkeys([*notes(plan), *replay_warnings(plan), *replayed_ones]))


def replay_warnings(plan: Plan) -> list[str]:
    """Return a sentence for each recording that is replayed with a large error."""
    return list(dict.fromkeys(text for each in plan.directions for text in trust(each.capacity).warnings))


def notes(plan: Plan) -> list[str]:
    """Return sentences on the topology, on programs that are faster than measured or choose TCP settings, on traces
    shorter than the run, and on recordings whose replay was not checked."""
    faster = [
        f"the measured times of servers and pre-processing on {name} are divided by {group.speed:g} (speed)"
        for name, group in plan.scenario.nodes.items()
        if group.speed != 1
    ]
    chosen = [f"{'.'.join(map(str, path))}: {role.tcp_in_words}" for path, role in plan.scenario.roles() if role.tcp]
    unseen = [name for name, group in plan.scenario.nodes.items() if group.backend.routed]
    if unseen and plan.scenario.transport.series:
        chosen.append(f"series: packets sent by {', '.join(unseen)} are not sampled, since other kernels send them")
    if (live := plan.scenario.live) is not None:
        chosen.append(
            f"the network behind {live.interface} is live: nothing is shaped, repetitions differ as the network does, "
            "and it carries all packets of a server in one UDP flow (VXLAN), neither encrypted nor authenticated"
        )
        if sum(group.node_class in CLASSES[1:] for group in plan.scenario.nodes.values()) > 1:
            chosen.append(f"packets between servers pass {live.interface} twice")
    chosen += [f"[cells.{cell.cell}] {cell.way}: {cell.shares}" for cell in plan.cells if cell.shares]
    chosen += plan.scenario.copies()
    unchecked = dict.fromkeys(text for each in plan.directions for text in trust(each.capacity).notes)
    apart = plan.scenario.apart()
    return [*faster, *chosen, *apart, *plan.scenario.idle_replicas(), *_describe_lengths(plan), *unchecked]


def _describe_lengths(plan: Plan) -> Iterator[str]:
    """Yield sentences on traces shorter than the run, and the warnings of replayed recordings."""
    for _, link in plan.scenario.mobile_links():
        if isinstance(link, RecordedLink):
            yield from (f"{link.path.name}: {text}" for text in link.path.description.warnings)
    latest: dict[tuple[Any, Way, bool], int] = {}
    for each in plan.directions:
        key = getattr(each.capacity, "heavy", each.capacity), each.way, each.playing.looped
        if isinstance(key[0], TraceSource):
            latest[key] = max(latest.get(key, 0), each.playing.start_ns)
    for (trace, way, looped), start in latest.items():
        with suppress(TraceError):
            entry, part = trace.entry() or (None, way)
            duration = entry.parts[part].duration_ns if entry else trace.trace.duration_ns
            replayed = Replayed(plan.scenario.duration, 0 if looped else start, looped)
            yield from (
                f"{entry.name if entry else trace.name}: {text}" for text in length_warnings(part, duration, replayed)
            )


def _describe_core(plan: Plan) -> Iterator[str]:
    """Yield sentences on the records of round-trip times that core links replay; of a file only the length is known."""
    remote = [group for group in plan.scenario.nodes.values() if group.node_class in CLASSES[1:]]
    for core in map(plan.scenario.core_link, remote):
        if not isinstance(core, CoreRoundTrips):
            continue
        record, replayed = core.record, Replayed(plan.scenario.duration, core.start)
        texts = length_warnings("round-trip", record.duration, replayed)
        with suppress(TraceError):
            archive = open_archive()
            if archive.has(record.name):
                texts = iter(warnings(archive.entry(record.name), replayed, parts=["round-trip"]))
        yield from (f"{record.name}: {warning}" for warning in texts)
