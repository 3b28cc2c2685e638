"""The evaluation on a live network: runs of a scenario, in turn over its interface and over replays of recordings."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

import cellbed
from cellbed import CellbedError, Scenario
from cellbed.extension.files import inputs, write_json, write_whole
from cellbed.extension.verbs import StatusLine
from cellbed_papers.evaluation.applications import Application
from cellbed_papers.evaluation.evaluate import COLUMNS, check_settings
from cellbed_papers.evaluation.network import REFERENCE
from cellbed_papers.evaluation.table import Table, table

PROFILE = "live"
"""Name of the only condition."""


class Requests(Application):
    """The requests of one application of the scenario. Measure: the latency, seconds."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    def measures(self) -> list[str]:
        """Return the latency of the application's requests."""
        return [f"latency of {self.name}"]


@dataclass(frozen=True, slots=True)
class LivePlan:
    """The settings of an evaluation on a live network.

    scenario: its ``[links.mobile]`` is live. record: makes a recording of its network in a directory. trials, methods:
    number, and methods of replay. recordings: number; trials use them in turn. seed: seed of the order of runs.
    """

    scenario: Scenario
    record: Callable[[Path], object]
    methods: tuple[str, ...]
    trials: int
    recordings: int
    seed: int

    def variant(self, network: str, recording: Path, trial: int) -> Scenario:
        """Return the scenario over a network. A replay has the servers on this machine, right behind the link: the
        recording contains the whole path to them."""
        seed = {"seed": self.seed + trial}
        if network == REFERENCE:
            return self.scenario.changed(seed)
        link = {"kind": "recording", "path": str(recording.absolute()), "method": network}
        groups: dict[str, Any] = self.scenario.resolved()["nodes"]
        remote = {name: group["class"] for name, group in groups.items() if group["class"] != "endpoint"}
        core: dict[str, str] = dict.fromkeys(remote.values(), "0 ms")
        here = {f"nodes.{name}.backend": None for name in remote}
        return self.scenario.changed({**seed, "links.mobile": link, "links.core": core, **here})


def recorder(scenario: Scenario, server: str, secret: Path, length: str) -> Callable[[Path], object]:
    """Return a function that records the network at a scenario's interface with the trains that every method needs.

    server, secret, length: as for `cellbed record`. Errors: :class:`CellbedError`.
    """
    options = ["--secret", str(secret), "--duration", length, "--for", "conditional", "--quiet"]

    def record(path: Path) -> None:
        words = [*options, "--interface", scenario["links.mobile.interface"], "--out", str(path)]
        done = subprocess.run([sys.executable, "-P", "-m", "cellbed", "record", server, *words], check=False)
        if done.returncode:
            raise CellbedError(f"no recording was made in {path}: exit status {done.returncode} of cellbed record")

    return record


def evaluate(plan: LivePlan, folder: Path, terminal: StatusLine) -> tuple[Table, int]:
    """Run the missing runs of an evaluation; return the table of all samples and the number of failed runs.

    Each trial runs over the live network and each replay, in random order, so that a drift of the network affects all
    alike. Errors: :class:`CellbedError` if no recording can be made.
    """
    failed = 0
    networks = (REFERENCE, *plan.methods)
    (folder / "samples").mkdir(parents=True, exist_ok=True)
    check_settings(folder, {"scenario": plan.scenario.as_dict(), "methods": [*plan.methods], "seed": plan.seed})
    paths: list[Path] = []
    for trial in range(plan.trials):
        number = trial % plan.recordings
        recording = folder / "recordings" / str(number + 1)
        if not recording.exists():
            terminal.state(f"recording {number + 1} of {plan.recordings}")
            recording.parent.mkdir(exist_ok=True)
            plan.record(recording)
        for network in random.Random(f"{plan.seed}/{trial}").sample(networks, len(networks)):
            path = folder / "samples" / f"{trial + 1}-{network}.parquet"
            terminal.state(f"trial {trial + 1} of {plan.trials}: {network}")
            try:
                if not path.exists():
                    run = cellbed.run(plan.variant(network, recording, trial), out=folder / "runs" / network)
                    write_whole(path, _samples(run.requests, trial, number, network).write_parquet)
                paths.append(path)
            except CellbedError as error:
                failed += 1
                terminal.note(f"trial {trial + 1}, {network}: {error}")
    whole = pl.concat([pl.read_parquet(inputs.check(path)) for path in paths] or [pl.DataFrame(schema=COLUMNS)])
    applications: Sequence[Application] = [Requests(name) for name in whole["application"].unique(maintain_order=True)]
    found = table(whole, applications, (PROFILE,), plan.methods)
    write_json(folder / "table.json", found.json())
    return found, failed


def _samples(requests: pl.DataFrame, trial: int, recording: int, network: str) -> pl.DataFrame:
    """Return a run's requests with the columns of :data:`COLUMNS`; of a request without a good reply, no value."""
    latency = pl.when(pl.col("status") == "ok").then(pl.col("latency_s"))
    return requests.select(
        profile=pl.lit(PROFILE),
        trial=pl.lit(trial, pl.Int64),
        recording=pl.lit(recording, pl.Int64),
        network=pl.lit(network),
        application=pl.col("app").cast(pl.String),
        position_ns=pl.lit(0, pl.Int64),
        seed=pl.lit(0, pl.Int64),
        measure=pl.format("latency of {}", pl.col("app")),
        index=pl.int_range(pl.len(), dtype=pl.Int64),
        value=latency,
        refused=pl.lit(None, pl.String),
    )
