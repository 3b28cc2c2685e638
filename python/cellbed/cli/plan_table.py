"""The output of ``cellbed run --dry-run``: nodes, links and limits."""

from __future__ import annotations

from typing import Any

from cellbed.archive import TraceSource
from cellbed.testbed.plan import Plan
from cellbed.units import DURATION, SIZE


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """The plan for scripts."""
    return {
        "name": plan.scenario.name,
        "duration_ns": plan.scenario.duration,
        "nodes": [
            {
                "name": node.name,
                "group": node.group,
                "class": node.node_class,
                "backend": node.backend.model_dump(mode="json"),
                "cpus": node.cpus,
                "memory_bytes": node.memory_bytes,
                "ipv4": str(node.ipv4),
                "ipv6": str(node.ipv6),
            }
            for node in plan.nodes
        ],
        "directions": [
            {
                "name": direction.name,
                "from": direction.source,
                "to": direction.target,
                "description": direction.description,
                "stages": direction.stages,
                "changes": direction.config.get("changes", []),
                "trace_sha256": direction.capacity.sha256 if isinstance(direction.capacity, TraceSource) else None,
            }
            for direction in plan.directions
        ],
        "faults": [each.model_dump(mode="json", by_alias=True) for each in plan.scenario.faults],
        "applications": {name: each.model_dump(mode="json") for name, each in plan.scenario.applications.items()},
    }


def show_plan(plan: Plan) -> None:
    """Print the plan as tables."""
    from rich.console import Console
    from rich.table import Table

    from cellbed.cli.width import table_width

    console = Console(width=table_width())
    nodes = Table(title="Nodes", title_justify="left", box=None, pad_edge=False)
    for column in ("node", "CPUs", "memory", "IPv4", "IPv6"):
        nodes.add_column(column, justify="right" if column in ("CPUs", "memory") else "left")
    for node in plan.nodes:
        nodes.add_row(node.name, f"{node.cpus:g}", SIZE.format(node.memory_bytes), str(node.ipv4), str(node.ipv6))
    links = Table(title="\nLinks", title_justify="left", box=None, pad_edge=False)
    for column in ("direction", "from", "to", "what it does"):
        # A link's description may wrap; names are not shortened.
        links.add_column(column, no_wrap=column != "what it does")
    for direction in plan.directions:
        links.add_row(direction.name, direction.source, direction.target, direction.description)
    console.print(
        f"[bold]{plan.scenario.name}[/]: {DURATION.format(plan.scenario.duration)}, seed {plan.scenario.seed}"
    )
    console.print(nodes)
    console.print(links)
    console.print("\nApplications", highlight=False)
    for name, each in plan.scenario.applications.items():
        when = f", from {DURATION.format(each.start)}" if each.start else ""
        when += f" until {DURATION.format(each.stop)}" if each.stop is not None else ""
        console.print(f"{name}: {each}{when}", highlight=False)
    if not plan.scenario.applications:
        console.print("none", highlight=False)
    if plan.scenario.faults:
        console.print("\nFaults", highlight=False)
    for fault in sorted(plan.scenario.faults, key=lambda fault: fault.at):
        console.print(f"at {DURATION.format(fault.at)}: {fault}", highlight=False)
