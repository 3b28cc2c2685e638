"""Sweeps of real runs: killed, interrupted, continued, extended."""

import contextlib
import json
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import psutil
import pytest

import cellbed
import in_process
from run_commands import command, needs_limits
from scenario_text import scenario_head, server_keys

pytestmark = [pytest.mark.needs_tun, needs_limits]

SCENARIO = scenario_head(
    mobile={"up": "lte-suburban.up", "down": "lte-suburban.down", "base_delay": "2 ms"},
    core={"edge": "1 ms"},
    name="short",
    duration="500 ms",
    workload={
        "kind": "http",
        "server": server_keys("python3 -m http.server 8080", 8080),
        "url": "http://{server.address}:8080/",
        "rate": "10 /s",
        "drain": "10 s",
    },
)
SWEEP = """\
name = "short"
scenario = "short.toml"
repetitions = REPETITIONS

[factors.rate]
key = "workload.rate"
levels = LEVELS
"""


def write(folder: Path, levels: list[str], repetitions: int) -> None:
    (folder / "short.toml").write_text(SCENARIO)
    text = SWEEP.replace("LEVELS", json.dumps(levels)).replace("REPETITIONS", str(repetitions))
    (folder / "sweep.toml").write_text(text)


class Folder:
    """The folder of the sweep, as a user sees it."""

    def __init__(self, parent: Path, jobs: int) -> None:
        self.parent, self.path, self.jobs = parent, parent / "sweeps" / "short", jobs

    def begun(self) -> subprocess.Popen[bytes]:
        # A machine that is busy must not decide how often a trial is run.
        words = command("sweep", "sweep.toml", "--repeats", 0, "--jobs", self.jobs)
        return subprocess.Popen(words, cwd=self.parent, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)

    def done(self) -> dict[str, int]:
        """The runs that have been kept, by key, with what distinguishes each from another one."""
        return {path.parent.name: path.stat().st_ino for path in self.path.glob("trials/*/trial.json")}

    def at_work(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether a trial of this sweep, not of a killed one before it, is in the middle of its run."""
        begun = False
        with contextlib.suppress(psutil.Error):  # ended meanwhile
            children = psutil.Process(process.pid).children()
            begun = any("cellbed.experiments.child" in child.cmdline() for child in children)
        return begun and any(self.path.glob("running/*/*/run.json"))


def kill_interrupt_and_finish(folder: Folder, trials: int) -> dict[str, int]:
    """Kill, interrupt and finish a sweep: at the end all trials are there, and none was run twice to its end."""
    kept: dict[str, int] = {}
    for stop, more in ((signal.SIGKILL, 1), (signal.SIGINT, 1)):
        process = folder.begun()
        before = len(folder.done())
        while len(folder.done()) < before + more or not folder.at_work(process):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(stop)
        _, errors = process.communicate()
        assert process.returncode == (130 if stop == signal.SIGINT else -stop), errors
        assert b"Traceback" not in errors  # of its runs either, which end after it
        assert kept.items() <= folder.done().items()
        kept = folder.done()
    assert b"run the same command to continue" in errors
    assert 2 <= len(kept) < trials
    table = pl.read_parquet(folder.path / "trials.parquet")
    assert set(table["key"]) == set(kept), "the interrupted sweep has written its dataset"
    process = folder.begun()
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    found = folder.done()
    assert kept.items() <= found.items()
    assert len(found) == trials
    return found


def check(folder: Folder, points: int, repetitions: int) -> pl.DataFrame:
    """Each trial once, each of one attempt."""
    table = cellbed.Sweep.load(folder.path).trials
    wanted = [(point, repetition) for point in range(points) for repetition in range(1, repetitions + 1)]
    assert table.select("point", "repetition").rows() == wanted
    assert table["key"].n_unique() == len(wanted) == len(folder.done())
    assert set(table["attempts"]) == {1}
    assert not list(folder.path.glob("attempts/*"))
    assert not list(folder.path.glob("running/*"))
    return table


@pytest.mark.slow
@pytest.mark.timeout(900)  # a dozen runs, on a machine that may be busy
def test_a_sweep_killed_and_interrupted_loses_and_doubles_no_trial(tmp_path: Path) -> None:
    write(tmp_path, ["10 /s", "20 /s"], 2)
    folder = Folder(tmp_path, jobs=1)
    found = kill_interrupt_and_finish(folder, 4)
    table = check(folder, 2, 2)
    assert table["requests"].to_list() == [5, 5, 10, 10]
    assert table.group_by("repetition").agg(pl.col("seed").n_unique())["seed"].to_list() == [1, 1]
    assert table["start_s"].n_unique() == 2
    run = cellbed.Sweep.load(folder.path).run(table["key"][0])
    assert len(run.requests) == 5
    assert run.scenario["seed"] == table["seed"][0]

    # A level more: only its trials are run.
    write(tmp_path, ["10 /s", "15 /s", "20 /s"], 2)
    lines: list[str] = []
    sweep = cellbed.sweep(tmp_path / "sweep.toml", out=tmp_path / "sweeps", repeats=0, progress=lines.append)
    assert len([line for line in lines if " of 6: " in line]) == 2
    assert all("rate = 15 /s" in line for line in lines if " of 6: " in line)
    assert found.items() < folder.done().items()
    check(folder, 3, 2)
    assert sweep.points["rate"].to_list() == ["10 /s", "15 /s", "20 /s"]


def test_a_trial_that_fails_does_not_stop_the_sweep(tmp_path: Path) -> None:
    write(tmp_path, ["10 /s"], 1)
    text = """
name = "short"
scenario = "short.toml"
repetitions = 1
vary_start = false
packet_logs = false
[factors.server]
key = "workload.server.command"
levels = { broken = "sh -c 'exit 3'", sound = "python3 -m http.server 8080" }
"""
    (tmp_path / "sweep.toml").write_text(text)
    words = command("sweep", "sweep.toml", "--repeats", 0, "--json", "--no-limits")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, text=True)
    assert done.returncode == 1, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["failed"], counts["complete"] + counts["disturbed"], counts["trials"]) == (1, 1, 2)
    assert "server = broken, repetition 1: failed: " in done.stderr
    table = cellbed.Sweep.load(tmp_path / "sweeps" / "short").trials
    assert table.select("server", "attempts").rows() == [("broken", 1), ("sound", 1)]
    assert table["status"][0] == "failed"
    assert table["requests"][0] is None

    words = ("sweep", "report", tmp_path / "sweeps" / "short", "--with-disturbed", "--open", "no")
    done = in_process.cellbed(*words, "-m", "latency_p50_s")
    assert (done.returncode, done.stderr) == (0, "")
    assert "failed, left out: server = broken, repetition 1: " in done.stdout
    assert f'href="{table["folder"][1]}/report.html"' in (words[2] / "report.html").read_text()
    run = words[2] / table["folder"][1]
    assert (run / "report.html").is_file()

    # Without its packet log a measured trial keeps its tables.
    assert not list(run.glob("raw/packets.bin*"))
    names = ("requests.parquet", "connections.parquet", "summary.json")
    tables = [(run / name).read_bytes() for name in names]
    assert in_process.cellbed("report", run, "--open", "no").returncode == 0
    assert [(run / name).read_bytes() for name in names] == tables
    assert len(cellbed.load(run).connections) == 5
