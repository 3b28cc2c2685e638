"""A run from the command line to its folder: what a user sees, and what is left when it is disturbed."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from socket import IPPROTO_TCP

import polars as pl
import pytest

from cellbed.measure.packets import read_packets
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.cgroups import LimitsError
from cellbed.testbed.machine.state import records
from cellbed.testbed.programs.supervise import START_STEP_NS
from cellbed.workloads.image_classification import mobilenet
from descendants import descendants, words
from in_process import cellbed
from packet_logs import lateness_s
from run_commands import command, command_line, needs_limits, only_folder, processes_of, run
from scenario_text import write_recorded
from shell_world import wait_until

pytestmark = [pytest.mark.needs_tun, needs_limits]


def latin_1(folder: Path) -> dict[str, str]:
    """The environment of a user whose locale is not UTF-8; empty where no such locale can be made."""
    made = folder / "locales" / "en_US.ISO-8859-1"
    made.parent.mkdir()
    make = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(made)]
    if shutil.which("localedef") is None or subprocess.run(make, check=False, capture_output=True).returncode:
        return {}
    return {"LOCPATH": str(made.parent), "LC_ALL": made.name, "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}


def groups_of(identifier: str) -> list[Path]:
    _, bases = cgroups.locate()
    return [base / identifier for base in set(bases.values()) if (base / identifier).exists()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One complete run with two endpoints, shared by the tests that only look."""
    folder = tmp_path_factory.mktemp("finished")
    cache, temporary = folder / "cache", folder / "temporary"
    for made in (cache, temporary, cache_folder()):
        made.mkdir(parents=True, exist_ok=True)
    (cache / "cellbed").symlink_to(cache_folder())  # making the model and the photographs takes seconds
    env = {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(temporary)}
    run("run", write_recorded(folder, count=2), "--out", folder / "runs", env=env, status=0)
    # ONNX Runtime's telemetry would leave files in both.
    assert [path.name for path in [*cache.iterdir(), *temporary.iterdir()]] == ["cellbed"]
    return only_folder(folder / "runs")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, str]]:
    """A run in another locale whose emulator stood still for a while, one of whose workers was killed, and whose
    terminal closed before its report; its endpoints share a cell: folder, output, and variables of the locale."""
    folder = tmp_path_factory.mktemp("disturbed")
    locale, scenario = latin_1(folder), write_recorded(folder, count=2, duration="4 s")
    drawn = 'base_delay = { kind = "normal", mean = "5 ms", deviation = "1 ms" }'
    text = scenario.read_text().replace('base_delay = "10 ms"', drawn).replace("count = 2", 'count = 2\ncell = "macro"')
    scenario.write_text(text + "\n[cells.macro]\n")
    process = subprocess.Popen(
        command("run", scenario, "--out", folder / "runs", "--strict"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **locale},
    )
    identifier = wait_for_phase(process, "running for")
    programs = {pid: command_line(pid) for pid in processes_of(identifier)}
    (emulator,) = [pid for pid, line in programs.items() if b"import emulate" in line]
    services = [pid for pid, line in programs.items() if b"cellbed_node.offloading.service" in line]
    worker = next(pid for service in services for pid in descendants(service))
    os.kill(worker, signal.SIGKILL)
    os.kill(emulator, signal.SIGSTOP)
    time.sleep(0.5)
    os.kill(emulator, signal.SIGCONT)
    wait_for_phase(process, "writing the report")
    process.send_signal(signal.SIGHUP)  # its terminal closes
    output, errors = process.communicate()
    assert process.returncode == 4, errors
    return only_folder(folder / "runs"), output, locale


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take its rights from a command")
def test_everything_that_a_user_may_not_do_is_reported_at_once(tmp_path: Path) -> None:
    """Before the data of the workload are made."""
    hide = 'mount -t tmpfs none /dev/net && umount -R /sys/fs/cgroup && exec "$@"'
    hidden = command("run", write_recorded(tmp_path), "--out", tmp_path / "runs")
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", hide, "sh", *hidden],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )
    assert done.returncode == 2
    tun, limits, *_ = done.stderr.splitlines()
    assert tun.startswith("error: cannot open /dev/net/tun: No such file or directory: run `sudo cellbed grant USER`")
    assert limits.startswith("CPU and memory limits cannot be enforced here: ")
    assert not (tmp_path / "cache" / "cellbed").exists()


def test_complete_run_leaves_everything_in_its_folder(finished: Path) -> None:
    texts = ("scenario.toml", "scenario.resolved.json", "run.json", "environment.json", "summary.json", "report.html")
    for name in (*texts, "requests.parquet", "links.parquet", "nodes.parquet"):
        assert (finished / name).stat().st_size > 0, name
    assert not list(finished.glob("*.tmp"))
    assert mobilenet.NOTE in (finished / "report.html").read_text()
    description = json.loads((finished / "run.json").read_text())
    assert description["status"] == "complete"
    assert description["proof"]
    assert all(proof["ok"] for proof in description["proof"])
    environment = json.loads((finished / "environment.json").read_text())
    assert len(environment["traces"]["lte-suburban.up"]) == 64
    assert environment["congestion_control"]


def test_every_request_is_accounted_for_and_its_parts_sum_up(finished: Path) -> None:
    requests = pl.read_parquet(finished / "requests.parquet")
    assert requests.height > 0
    assert set(requests["endpoint"]) == {"endpoint-0", "endpoint-1"}
    answered = requests.filter(pl.col("status") == "ok")
    assert answered.height > 0
    parts = answered.select(pl.sum_horizontal(pl.col("^part_.*$")).alias("parts"), pl.col("latency_s"))
    unexplained = (parts["latency_s"] - parts["parts"]).abs() - lateness_s(finished)
    assert (unexplained / parts["latency_s"]).median() < 0.01  # type: ignore[operator]
    assert answered.select(pl.min_horizontal(pl.col("^part_.*$")).min()).item() >= 0


def test_a_disturbed_run_is_reported_as_such(disturbed: tuple[Path, str, dict[str, str]]) -> None:
    folder, output, _ = disturbed
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    (frozen,) = [reason for reason in summary["disturbances"] if "the machine made workload slower" in reason]
    assert re.search(r"packets or the emulator were up to ([3-9]\d\d ms|[\d.]+ s) late", frozen)
    (killed,) = [reason for reason in summary["disturbances"] if "worker 0 of edge-0 was killed by SIGKILL" in reason]
    assert killed.startswith("at ")
    assert summary["machine"]["standstill_s"] > 0.3
    assert summary["machine"]["foreign_cpus"] >= 0
    assert summary["machine"]["waiting"] >= 0
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    for reason in (frozen, killed):
        assert f"disturbed: {reason}" in output
        assert reason in page
    assert "complete, disturbed" in output
    assert "complete, disturbed" in page
    assert (folder / "disturbance.parquet").stat().st_size > 0
    assert [cell["name"] for cell in summary["cells"]] == ["macro.uplink", "macro.downlink"]
    for cell in summary["cells"]:
        assert sum(user["share"] for user in cell["users"]) == pytest.approx(1)
        assert all(user["packets"] > 0 for user in cell["users"])


def test_one_seed_gives_one_schedule(finished: Path, disturbed: tuple[Path, str, dict[str, str]]) -> None:
    def schedule(folder: Path) -> list[tuple[str, int]]:
        zero = json.loads((folder / "run.json").read_text())["t0_ns"]
        rows = []
        for path in (folder / "raw").glob("*.requests.jsonl"):
            rows += [json.loads(line) for line in path.read_text().splitlines()]
        due = [(row["endpoint"], row["intended_ns"] - zero) for row in rows if "request" in row]
        return sorted(each for each in due if each[1] < 1_000_000_000)

    # A schedule does not know when it will be cut off. Nor does it depend on the locale, nor do the run's files.
    first, second = schedule(finished), schedule(disturbed[0])
    assert run("report", disturbed[0], env=disturbed[2]).returncode == 0
    assert "5 ms ± 1 ms" in (disturbed[0] / "run.json").read_text(encoding="utf-8")
    assert first == second
    assert {endpoint for endpoint, _ in first} == {"endpoint-0", "endpoint-1"}


def test_interrupt_keeps_what_was_measured_and_leaves_nothing(tmp_path: Path) -> None:
    process, identifier = run_until(tmp_path, "running for")
    time.sleep(1.5)
    found = only_folder(tmp_path / "runs")
    assert run("exec", "--testbed", found, "edge-0", "--", "sh", "-c", "exit 7").returncode == 7
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    folder = only_folder(tmp_path / "runs")
    assert json.loads((folder / "run.json").read_text())["status"] == "interrupted"
    assert (folder / "report.html").exists()
    assert json.loads((folder / "summary.json").read_text())
    wait_until(lambda: not processes_of(identifier))
    assert not groups_of(identifier)


def run_until(tmp_path: Path, phase: str) -> tuple[subprocess.Popen[str], str]:
    """A run of a minute that has reached a phase, and the identifier of its record."""
    process = subprocess.Popen(
        command("run", write_recorded(tmp_path, duration="60 s"), "--out", tmp_path / "runs"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    return process, wait_for_phase(process, phase)


def wait_for_phase(process: subprocess.Popen[str], phase: str) -> str:
    """Read the run's messages until a phase begins; returns the identifier of its record, empty if it has none."""
    said = []
    for line in process.stderr:
        said.append(line)
        if line.startswith(phase):
            break
    else:
        raise AssertionError(f"the run ended before its phase {phase!r}:\n{''.join(said)}")
    mine = [record.identifier for record in records() if record.process == process.pid]
    return mine[0] if mine else "no-record"


def test_a_broker_that_is_killed_while_the_service_starts_is_named(tmp_path: Path) -> None:
    process, identifier = run_until(tmp_path, "starting")
    while not (brokers := [pid for pid in processes_of(identifier) if b"mosquitto\0-c" in words(pid)]):
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(brokers[0], signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "error: workload.edge-0.broker on edge-0 was killed by signal 9" in errors


def test_next_run_cleans_up_after_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In the registry of all others, a run of another test may be the next one.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    process, identifier = run_until(tmp_path, "running for")
    process.kill()
    process.wait()
    outcome = run("run", write_recorded(tmp_path, duration="1 s"), "--out", tmp_path / "again", status=0)
    assert identifier in outcome.stderr
    assert not groups_of(identifier)


def test_control_groups_of_runs_that_are_recorded_elsewhere_are_left_while_they_may_be_starting() -> None:
    try:
        _, bases = cgroups.locate()
        groups = [base / f"run-{age}-without-a-record" for base in set(bases.values()) for age in ("new", "old")]
        for group in groups:
            group.mkdir()
    except (LimitsError, OSError) as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        for group in groups:
            if group.name.startswith("run-old"):
                os.utime(group, (0, 0))
        assert cellbed("clean").returncode == 0
        assert {group.name for group in groups if group.is_dir()} == {"run-new-without-a-record"}
    finally:
        for group in filter(Path.is_dir, groups):
            group.rmdir()


def test_connections_open_at_one_place_of_a_trace_in_runs_and_predictions(tmp_path: Path) -> None:
    # The first opportunity is 900 ms after the begin of the trace, and the base delay is 10 ms.
    (tmp_path / "gap.up").write_text("".join(f"{at}\n" for at in range(900, 2001)))
    scenario = write_recorded(tmp_path, duration="5 s")
    scenario.write_text(scenario.read_text().replace("lte-suburban.up", "gap.up"))
    cellbed("run", scenario, "--no-limits", "--out", tmp_path / "real", status=0)
    real = only_folder(tmp_path / "real")
    cellbed("run", scenario, "--no-limits", "--virtual", "--profile", real, "--out", tmp_path / "predicted", status=0)
    for folder in (real, only_folder(tmp_path / "predicted")):
        log = read_packets(folder / "raw" / "packets.bin")
        first = int(log["departed"][(log["direction"] == 0) & (log["protocol"] == IPPROTO_TCP)].min())
        t0 = json.loads((folder / "run.json").read_text())["t0_ns"]
        assert (first - t0) % START_STEP_NS == (900_000_000 + 10_000_000) % START_STEP_NS
