"""Steps one after another, or concurrently in separate processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from cellbed.experiments.evaluation.applications.application import Measured
from cellbed.experiments.evaluation.network import Network
from cellbed.experiments.evaluation.order import Step
from cellbed.support.errors import CellbedError
from cellbed.support.worker_pool import WorkerPool

Perform = Callable[[Step, Network], list[Measured]]
"""Runs the application of a step on a network that begins where the step does."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a step: what it measured, or why it failed. took_s: seconds."""

    step: Step
    samples: list[Measured]
    error: str | None
    took_s: float


def carry_out(steps: Iterable[tuple[Step, Network]], perform: Perform, jobs: int) -> Iterator[Outcome]:
    """What comes of each step, as soon as it is done; a step is taken from `steps` when it begins.

    jobs: how many at once. Where there are several, `perform` runs in separate processes: what enters a namespace
    must have one thread.
    """
    if jobs == 1:
        for step, network in steps:
            yield _outcome(perform, step, network)
        return
    killed = CellbedError("a process that ran steps was killed: run the command again with the same options to resume")
    under_way: set[Future[Outcome]] = set()
    # What a step has started dies with its process.
    with WorkerPool(jobs, killed) as pool:
        for step, network in steps:
            under_way.add(pool.submit(_outcome, perform, step, network))
            if len(under_way) == jobs:
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)


def _outcome(perform: Perform, step: Step, network: Network) -> Outcome:
    began = time.monotonic()
    try:
        samples, error = perform(step, network), None
    except CellbedError as failed:
        samples, error = list[Measured](), str(failed)
    return Outcome(step, samples, error, time.monotonic() - began)
