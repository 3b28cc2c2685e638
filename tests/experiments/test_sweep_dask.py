"""Sweeps on a Dask cluster: workers with other home folders, one of them killed in the middle of a trial."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import psutil
import pytest

from cellbed.experiments.sweep.trials import plan
from run_commands import command, needs_limits
from shell_world import wait_until
from test_sweep_run import SCENARIO, write

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.needs_tun,
    needs_limits,
    pytest.mark.timeout(600),  # several runs, on a machine that may be busy
]
UNMEASURED = ["point", "repetition", "key", "seed", "start_s", "rate"]


@dataclass
class Machine:
    """A process with folders of its own, as on another machine."""

    folder: Path
    process: subprocess.Popen[bytes]

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def trials(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []


class Cluster:
    """A scheduler and workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines: list[Machine] = []
        self.file = folder / "scheduler.json"
        self._begin("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file))
        wait_until(self.file.exists)

    def worker(self, *words: str, path: Path | None = None) -> Machine:
        return self._begin(
            "worker", "--scheduler-file", str(self.file), "--nthreads", "1", "--no-nanny", *words, path=path
        )

    def _begin(self, *words: str, path: Path | None = None) -> Machine:
        home = self.folder / f"machine-{len(self.machines)}"
        home.mkdir()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        environment |= {"HOME": str(home), "PYTHONPATH": os.pathsep.join([str(path)] if path else [])}
        if words[0] == "worker":
            words = (*words, "--local-directory", str(home))
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, "--no-dashboard"],
                cwd=home,
                env=environment,
                stdout=log,
                stderr=log,
            )
        self.machines.append(Machine(home, process))
        return self.machines[-1]

    def end(self) -> None:
        for machine in reversed(self.machines):
            machine.process.terminate()
        for machine in self.machines:
            try:
                machine.process.wait(10)
            except (
                subprocess.TimeoutExpired
            ):  # a worker that loses its scheduler at its end may wait for it without limit
                machine.process.kill()
                machine.process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    made = Cluster(tmp_path / "cluster")
    yield made
    made.end()


def write_sweep(folder: Path, duration: str) -> None:
    """A sweep with an input beside the scenario."""
    write(folder, ["10 /s", "20 /s"], 2)
    (folder / "walk.up").write_text("".join(f"{at}\n" for at in range(1, 500)))
    text = SCENARIO.replace("lte-suburban.up", "walk.up").replace("500 ms", duration)
    (folder / "short.toml").write_text(text)


def begun(folder: Path, cluster: Cluster) -> subprocess.Popen[bytes]:
    words = command("sweep", "sweep.toml", "--repeats", 0, "--on", cluster.file)
    return subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.PIPE)


def trial_runs(worker: Machine, folder: Path) -> bool:
    """Whether the worker is in the middle of a trial of the sweep in a folder."""
    runs = [*folder.glob("sweeps/short/running/*/*/run.json")]
    return bool(runs and worker.trials())


def test_a_killed_worker_changes_nothing_of_the_dataset(tmp_path: Path, cluster: Cluster) -> None:
    write_sweep(tmp_path, "500 ms")
    workers = [cluster.worker("--resources", "cellbed=1") for _ in range(2)]
    process = begun(tmp_path, cluster)
    wait_until(lambda: any(trial_runs(worker, tmp_path) for worker in workers) or process.poll() is not None)
    killed = next(worker for worker in workers if worker.trials())
    killed.process.kill()
    killed.process.wait()
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert b"was lost: its trials are run by another one" in errors

    table = pl.read_parquet(tmp_path / "sweeps" / "short" / "trials.parquet")
    trials = sorted(plan(tmp_path / "sweep.toml").trials, key=lambda it: (it.point.number, it.repetition))
    wanted = [
        (it.point.number, it.repetition, it.key, it.seed, (it.offset_ns or 0) / 1e9, it.point.labels["rate"])
        for it in trials
    ]
    assert table.select(UNMEASURED).rows() == wanted, "as the plan, so as a local run"
    assert set(table["attempts"]) == {1}
    assert table["requests"].to_list() == [5, 5, 10, 10]
    assert sorted(path.name for path in tmp_path.glob("sweeps/short/trials/*")) == sorted(table["key"])
    other = next(worker for worker in workers if worker is not killed)

    # A sweep that is interrupted leaves nothing on its workers.
    (tmp_path / "short.toml").write_text((tmp_path / "short.toml").read_text().replace("500 ms", "60 s"))
    process = begun(tmp_path, cluster)
    wait_until(lambda: trial_runs(other, tmp_path) or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    wait_until(lambda: not other.trials())
    assert not list(tmp_path.glob("sweeps/short/running/*"))

    # Nor does one that was killed.
    process = begun(tmp_path, cluster)
    wait_until(lambda: trial_runs(other, tmp_path) or process.poll() is not None)
    process.kill()
    process.communicate()
    wait_until(lambda: not other.trials())


def test_a_cluster_that_cannot_be_used_is_one_error(tmp_path: Path, cluster: Cluster) -> None:
    write_sweep(tmp_path, "500 ms")
    old = tmp_path / "old" / "cellbed-0.0.1.dist-info"
    old.mkdir(parents=True)
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: cellbed\nVersion: 0.0.1\n")
    plain = cluster.worker()

    broken = tmp_path / "without" / "distributed.py"
    broken.parent.mkdir()
    broken.write_text("raise ImportError\n")

    def error(on: object, path: Path | None = None) -> str:
        arguments = ("sweep", tmp_path / "sweep.toml", "--out", tmp_path / "sweeps", "--on", on)
        environment = os.environ | ({"PYTHONPATH": str(path)} if path else {})
        done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1
        return done.stderr

    assert "not the address of a Dask scheduler" in error("host:8786")
    assert "pip install distributed" in error(cluster.file, broken.parent)
    address = json.loads(cluster.file.read_text())["address"]
    wait_until(lambda: "Registered to" in plain.log())
    assert "no worker has the resource 'cellbed'" in (found := error(cluster.file))
    assert "dask worker tcp://127.0.0.1:" in found
    assert "--resources cellbed=1" in found
    cluster.worker("--resources", "cellbed=1", path=tmp_path / "old")
    wait_until(lambda: "Registered to" in cluster.machines[-1].log())
    assert "has cellbed 0.0.1, and this machine cellbed " in error(cluster.file)
    cluster.end()
    assert "no Dask scheduler answers" in error(address.replace("tcp:", "dask:"))
    assert not list(tmp_path.glob("sweeps/short/trials/*"))
