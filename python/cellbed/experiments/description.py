"""What is known of a run: ``run.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from cellbed.archive import TraceSource
from cellbed.scenario import Scenario
from cellbed.testbed import folder
from cellbed.testbed.plan import Direction, Plan
from cellbed.testbed.prove import Proof
from cellbed.workloads.registry import workload

_COUNTED = ("marked", "duplicated", "corrupted")


@dataclass(slots=True)
class Known:
    """What is known of a run until now.

    t0_ns: start of the schedule. deaths: processes of the workload that died and were replaced, in words. emulator: its
    account. counted_before: what each direction had counted then.
    """

    status: str = "running"
    t0_ns: int | None = None
    first_request_s: float | None = None
    proof: list[Proof] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)
    emulator: dict[str, Any] | None = None
    counted_before: dict[str, dict[str, Any]] = field(default_factory=dict)

    def counted_since(self, now: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """What each direction has done to packets since the start of the schedule, given what it has counted `now`."""
        return {name: _since(self.counted_before.get(name, {}), counts) for name, counts in now.items()}


def _since(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    dropped = {why: total - before.get("dropped", {}).get(why, 0) for why, total in after["dropped"].items()}
    return {"dropped": dropped, **{what: after[what] - before.get(what, 0) for what in _COUNTED}}


def describe(path: Path, scenario: Scenario, plan: Plan, state: Known, started: datetime, *, limits: bool) -> None:
    """Write ``run.json`` into the run's folder."""
    folder.write_json(
        path / "run.json",
        {
            "format": 1,
            "name": scenario.name,
            "status": state.status,
            "t0_ns": state.t0_ns,
            "started": started.isoformat(timespec="seconds"),
            "duration_ns": scenario.duration,
            "drain_ns": scenario.workload.drain,
            "limits_enforced": limits,
            "no_limits": not limits,
            "first_request_s": state.first_request_s,
            "seed": scenario.seed,
            "congestion_control": {
                "name": scenario.transport.congestion_control or folder.host_congestion_control(),
                "asked": scenario.transport.congestion_control is not None,
            },
            "workload": scenario.resolved()["workload"],
            "notes": workload(scenario.workload.kind).notes(scenario.workload),
            "nodes": [
                {
                    "name": node.name,
                    "class": node.node_class,
                    "cpus": node.cpus,
                    "memory_bytes": node.memory_bytes,
                    "addresses": [str(node.ipv4), str(node.ipv6)],
                    "limits_enforced": limits,
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
                    "trace": {
                        "name": direction.capacity.name,
                        "sha256": direction.capacity.sha256,
                        "synthetic": direction.capacity.synthetic,
                    }
                    if isinstance(direction.capacity, TraceSource)
                    else None,
                    "played": asdict(direction.played) if direction.played else None,
                    "round_trips": asdict(direction.round_trips) if direction.round_trips else None,
                }
                for index, direction in enumerate(plan.directions)
            ],
            "proof": [proof.as_dict() for proof in state.proof],
            "emulator": state.emulator,
            "warnings": state.warnings,
            "deaths": state.deaths,
        },
    )


def _changes(direction: Direction) -> list[dict[str, Any]]:
    """The changes of a direction: when, what it is in words, and the kinds of the stages that are another."""
    kinds: dict[int, list[str]] = {}
    for at, _, stage in direction.stage_changes:
        kinds.setdefault(at, []).append(stage["kind"])
    return [{"at_ns": at, "description": text, "kinds": kinds[at]} for at, text in direction.told_changes]
