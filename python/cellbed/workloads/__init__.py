"""Workloads: applications on the nodes and the load generators that drive them.

:func:`prepare` and :func:`processes` are what a run needs; :mod:`cellbed.workloads.registry` says what a kind of
workload offers. The processes of a workload import this package at their start, so it imports nothing until it is
asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from cellbed.scenario.model import Scenario
    from cellbed.workloads.registry import Node, Process


def prepare(scenario: Scenario, note: Callable[[str], object]) -> None:
    """Build what the scenario's workload needs and is not in the cache yet, and check what the user gave.

    note: told what takes a moment. Raises CellbedError.
    """
    from cellbed.workloads.cache import cache_folder
    from cellbed.workloads.registry import workload

    workload(scenario.workload.kind).prepare(scenario.workload, cache_folder(), note)


def processes(scenario: Scenario, nodes: Sequence[Node], raw: Path) -> list[Process]:
    """The programs of one run, in order of their stages; their configurations are written into ``raw``."""
    from cellbed.workloads.cache import cache_folder
    from cellbed.workloads.registry import workload

    return workload(scenario.workload.kind).processes(
        scenario.workload,
        nodes,
        raw,
        cache=cache_folder(),
        duration_ns=scenario.duration,
        seed=scenario.seed,
    )


def notes(scenario: Scenario) -> list[str]:
    """Sentences that a report of this scenario's workload must carry."""
    from cellbed.workloads.registry import workload

    return workload(scenario.workload.kind).notes(scenario.workload)
