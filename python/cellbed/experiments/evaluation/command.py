"""`cellbed evaluate replay` behind its command line: options to plan, the loop, the table."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TextIO

from cellbed.experiments.evaluation.applications.application import Application
from cellbed.experiments.evaluation.applications.downloads import Downloads, Player
from cellbed.experiments.evaluation.applications.pages import Pages
from cellbed.experiments.evaluation.applications.round_trips import RoundTrips
from cellbed.experiments.evaluation.applications.trains import Trains
from cellbed.experiments.evaluation.evaluate import Evaluation, Plan, tools
from cellbed.experiments.evaluation.methods import METHODS
from cellbed.experiments.evaluation.network import ITSELF
from cellbed.experiments.evaluation.order import Step
from cellbed.experiments.evaluation.results import Results, write_json
from cellbed.experiments.evaluation.terminal import show
from cellbed.experiments.sweep.runner import words
from cellbed.scenario.radio import PROFILES
from cellbed.support.console import Console
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.status_line import StatusLine
from cellbed.support.units import DURATION
from cellbed.support.worker_pool import processors
from cellbed.testbed.clean import clean
from cellbed.testbed.machine.signals import Interruption

APPLICATIONS: dict[str, type[Application]] = {
    each.name: each for each in (RoundTrips, Trains, Downloads, Pages, Player)
}
QUICK_PROFILES = ("midband-good", "lowband-driving")
QUICK_TRIALS, VIRTUAL_TRIALS, REAL_TRIALS = 3, 40, 10
RECORDINGS = 5
"""Of each condition, where they are made in virtual time; over sockets each takes minutes."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; lists as texts with commas, ``None`` for all; budget: ``None`` for no end."""

    profiles: str | None
    applications: str | None
    methods: str | None
    trials: int | None
    recordings: int | None
    length: str
    seed: int
    virtual: bool
    record_virtually: bool
    quick: bool
    conditions: bool
    jobs: int
    budget: str | None
    results: Path | None
    as_json: bool

    def plan(self) -> Plan:
        """Errors: :class:`CellbedError` that names the option and what there is."""
        chosen = _chosen("--applications", self.applications, APPLICATIONS)
        made = [APPLICATIONS[name].quick() if self.quick else APPLICATIONS[name]() for name in chosen]
        course = _duration("--length", self.length)
        virtually = self.virtual or self.record_virtually or self.quick
        return Plan(
            profiles=_chosen("--profiles", self.profiles, QUICK_PROFILES if self.quick else PROFILES, PROFILES),
            methods=_chosen("--methods", self.methods, (*METHODS, ITSELF)),
            applications=tuple(_possible(made, self.virtual)),
            trials=self.trials or (QUICK_TRIALS if self.quick else VIRTUAL_TRIALS if self.virtual else REAL_TRIALS),
            recordings=self.recordings or (RECORDINGS if virtually and not self.quick else 1),
            course_ns=course,
            seed=self.seed,
            virtual=self.virtual,
            recorded_virtually=virtually,
        )


def run(options: Options, output: TextIO) -> int:
    """Run or continue an evaluation and print its table.

    Returns the exit status: 1 if steps failed, 130 after Ctrl-C.

    Errors: :class:`CellbedError`.
    """
    plan = options.plan()
    until = time.monotonic() + _duration("--budget", options.budget) / 1e9 if options.budget else math.inf
    cores = processors()
    if not plan.virtual and options.jobs > max(1, cores // 2):
        print(f"--jobs {options.jobs} on {cores} cores: programs of different steps compete for cores", file=sys.stderr)
    kind = "virtual" if plan.virtual else "real"
    folder = options.results or Path(f"evaluation-{kind}-{datetime.now():%Y%m%d-%H%M%S}")  # noqa: TID251
    clean()
    results = Results(folder, plan.settings())
    evaluation = Evaluation(plan, results, _Lines())
    interrupted = False
    with Interruption() as interruption:
        try:
            with tools(plan) as (recorder, perform):
                evaluation.prepare(recorder)
                evaluation.run(perform, options.jobs, until)
        except KeyboardInterrupt:
            interrupted = True
        interruption.shield()
        results.export()
        table = evaluation.table()
        write_json(folder / "table.json", table.json())
    if options.as_json:
        print(json.dumps(table.json(), indent=1), file=output)
    else:
        show(table, plan.methods, conditions=options.conditions, console=Console(file=output, highlight=False))
    if interrupted or evaluation.failed:
        what = "interrupted" if interrupted else f"{evaluation.failed} steps failed"
        print(f"{what}; resume with --results {folder} and the same options", file=sys.stderr)
        return 130 if interrupted else 1
    if left := len(evaluation.missing()):
        print(f"{left} steps are left; resume with --results {folder} and the same options", file=sys.stderr)
    print(folder.absolute(), file=sys.stderr)
    return 0


class _Lines(StatusLine):
    """Progress: one line that is redrawn on a terminal, else a line for each trial and condition."""

    def __init__(self) -> None:
        super().__init__()
        self._before: tuple[str, int] | None = None

    def phase(self, text: str) -> None:
        super().note(text)

    def note(self, text: str) -> None:
        super().note(f"  {text}")

    def progress(self, begun: int, total: int, step: Step, left_s: float | None) -> None:
        ahead = "" if left_s is None else f", {words(left_s)} left"
        where = f"{begun} of {total} steps{ahead}: trial {step.trial + 1}, {step.profile}"
        self.state(f"{where}, {step.application.name} on {step.network}")
        if not self.redrawn and self._before != (step.profile, step.trial):
            super().note(where)
        self._before = step.profile, step.trial


def _duration(option: str, text: str) -> int:
    try:
        return int(DURATION.parse(text))
    except ValueError as error:
        raise CellbedError(f"{option}: {error}") from None


def _possible(applications: Iterable[Application], virtual: bool) -> Iterable[Application]:
    """Return the applications that this machine can run; the requirements of the others are printed."""
    for each in applications:
        missing = None if virtual else each.missing()
        if missing is None:
            yield each
        else:
            print(f"{each.name} are left out: {missing}", file=sys.stderr)


def _chosen(
    option: str, text: str | None, default: Iterable[str], known: Iterable[str] | None = None
) -> tuple[str, ...]:
    if text is None:
        return tuple(default)
    there = tuple(known if known is not None else default)
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in there:
            hint = did_you_mean(name, there)
            raise CellbedError(f"{option}: '{name}' is not known: {hint}there is {', '.join(there)}")
    if not names:
        raise CellbedError(f"{option}: names nothing: there is {', '.join(there)}")
    return tuple(dict.fromkeys(names))
