"""Tables on the terminal, and the output of ``cellbed run --dry-run``: nodes, links and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from cellbed.support.units import DURATION, SIZE
from cellbed.support.ways import WAYS

if TYPE_CHECKING:
    from cellbed.testbed.plan import Plan

MOST = 4
"""Maximum number of nodes or links of a group listed one by one; a larger group is one row, from first to last."""
T = TypeVar("T")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table; a pipe gets it as wide as its texts. right: headings of columns of numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from cellbed.support.console import Console

    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", no_wrap=heading in right)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    (console if console.is_terminal else Console(width=400)).print(table)


def plan_as_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan for scripts."""
    from cellbed.archive import TraceSource

    return {
        "name": plan.scenario.name,
        "duration_ns": plan.scenario.duration,
        "nodes": [node.config | {"ipv4": str(node.ipv4), "ipv6": str(node.ipv6)} for node in plan.nodes],
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
        "cells": [cell.config for cell in plan.cells],
        "handovers": [asdict(each) for each in plan.moves],
        "faults": [each.model_dump(mode="json", by_alias=True) for each in plan.scenario.faults],
        "migrations": [each.model_dump(mode="json", by_alias=True) for each in plan.scenario.migrations],
        "applications": {name: each.model_dump(mode="json") for name, each in plan.scenario.applications.items()},
    }


def show_plan(plan: Plan, notes: Sequence[str]) -> None:
    """Print the plan as tables, then notes."""
    from rich.table import Table

    from cellbed.support.console import Console, table_width

    console = Console(width=table_width())
    nodes = Table(title="Nodes", title_justify="left", box=None, pad_edge=False)
    for column in ("node", "class", "back end", "CPUs", "memory", "IPv4", "IPv6"):
        nodes.add_column(column, justify="right" if column in ("CPUs", "memory") else "left", no_wrap=column == "node")
    for group_name in plan.scenario.nodes:
        for several in _fold(plan.nodes_of_group(group_name)):
            node = several[0]
            limits = f"{node.cpus:g}", SIZE.format(node.memory_bytes)
            addresses = _span([str(each.ipv4) for each in several]), _span([str(each.ipv6) for each in several])
            name = _span([each.name for each in several])
            nodes.add_row(name, node.node_class, node.backend.kind, *limits, *addresses)
    links = Table(title="\nLinks", title_justify="left", box=None, pad_edge=False)
    for column in ("direction", "from", "to", "what it does"):
        # Descriptions of links may wrap; names must not.
        links.add_column(column, no_wrap=column != "what it does")
    for name, group in plan.scenario.nodes.items():
        ends = {node.name for node in plan.nodes_of_group(name)}.difference(plan.towers)
        joined = [each for each in plan.directions if ends & {each.source, each.target}]
        for ways in zip(*(_fold([each for each in joined if each.way == way]) for way in WAYS), strict=True):
            for several in ways:
                does = several[0].description
                if len(several) > 1 and group.stagger:
                    does += f"; each further one starts {DURATION.format(group.stagger)} later"
                columns = ([getattr(each, key) for each in several] for key in ("name", "source", "target"))
                links.add_row(*map(_span, columns), does)
    for site in plan.directions:
        if not {site.source, site.target} & ({node.name for node in plan.nodes}.difference(plan.towers)):
            links.add_row(site.name, site.source, site.target, site.description)
    console.print(
        f"[bold]{plan.scenario.name}[/]: {DURATION.format(plan.scenario.duration)}, seed {plan.scenario.seed}"
    )
    console.print(nodes)
    console.print(links)
    if plan.cells:
        console.print("\nCells", highlight=False)
    for cell in plan.cells:
        console.print(f"{cell.name}: {cell}", highlight=False)
    for move in plan.moves:
        console.print(f"at {DURATION.format(move.at)}: {move}", highlight=False)
    console.print("\nApplications", highlight=False)
    for name, each in plan.scenario.applications.items():
        when = f", from {DURATION.format(each.start)}" if each.start else ""
        when += f" until {DURATION.format(each.stop)}" if each.stop is not None else ""
        if (service := plan.services.get(name)) is not None:
            how = "each connection to one" if service.spread else "nearest"
            when += f"; {how} of {', '.join(node.name for node in service.nodes)}, all at {service.address}"
        elif each.edge_policy == "follow-me":
            when += f"; follows {each.client.on if each.client else 'its clients'}"
        console.print(f"{name}: {each}{when}", highlight=False)
    if not plan.scenario.applications:
        console.print("none", highlight=False)
    if plan.scenario.faults:
        console.print("\nFaults", highlight=False)
    for fault in sorted(plan.scenario.faults, key=lambda fault: fault.at):
        console.print(f"at {DURATION.format(fault.at)}: {fault}", highlight=False)
    if plan.scenario.migrations:
        console.print("\nMigrations", highlight=False)
    for migration in plan.scenario.migrations:
        console.print(f"{migration.when}: {migration}", highlight=False)
    for note in notes:
        console.print(f"note: {note}", markup=False, highlight=False)


def _fold(group: Sequence[T]) -> list[Sequence[T]]:
    """Return the table rows of a group of equal nodes or links: one row each, or a single row for a large group."""
    return [[each] for each in group] if len(group) <= MOST else [group]


def _span(texts: Sequence[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else f"{texts[0]} … {texts[-1]}"
