"""What takes long: every shipped scenario end to end, a run killed at many instants, a trace of 100 MB."""

import contextlib
import ipaddress
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.cgroups import LimitsError
from run_commands import command, processes_of

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.toml"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_tun,
]


def groups() -> set[Path]:
    """Control groups of all runs of this user, or a skip where there can be none."""
    try:
        _, bases = cgroups.locate()
    except LimitsError as error:
        pytest.skip(str(error).splitlines()[0])
    return {path for base in set(bases.values()) for path in base.glob("run-*")}


def find_lookups(calls: str) -> list[str]:
    """Return the calls that look up a name, also by way of systemd's resolver or Avahi, over sockets of theirs."""
    return re.findall(r".*(?:htons\(53\)|systemd\.?/?resolve|io\.systemd\.Resolve|avahi).*", calls)


def test_nothing_is_looked_up(tmp_path: Path) -> None:
    """A run with each runtime and the build of its model, and its report, without a network: strace records each
    address that a packet is sent to.

    14 s, because ONNX Runtime's telemetry would resolve the name of its vendor's host after 9 s. The links are slow:
    the proof of fast ones fails where much is traced.
    """
    groups()
    scenario, trace = tmp_path / "scenario.toml", tmp_path / "trace"
    text = (SCENARIOS[0].parent / "smoke.toml").read_text()
    for key, value in (("duration", "14 s"), ("rate", "1 /s"), ("up", "2 Mbit/s"), ("down", "2 Mbit/s")):
        text = re.sub(rf"(?m)^{key} = .*$", f'{key} = "{value}"', text)
    text = text.replace("[workload]", "[apps.photographs]")
    for name, kind in (
        ("pictures", "image-classification"),
        ("sentences", "translation"),
    ):
        text += f'[apps.{name}]\nkind = "{kind}"\nserver = "edge"\nrate = "0.5 /s"\n'
    scenario.write_text(text)
    alone = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    strace = ["strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=connect,sendto,sendmmsg", "-A", "-o", str(trace)]
    able = [*alone, "strace", "-qq", "true"]
    if shutil.which("strace") is None or subprocess.run(able, capture_output=True, check=False).returncode:
        pytest.skip("needs root, and the right to trace a process: strace")
    ask = "getent hosts outer.canary.test; exec unshare --net getent hosts inner.canary.test"
    subprocess.run([*alone, *strace, "sh", "-c", ask], check=False, timeout=200)
    # Both are seen, the second in a network namespace of its own.
    assert len({line.split()[0] for line in find_lookups(trace.read_text())}) == 2
    trace.unlink()
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for words in (["run", scenario, "--out", tmp_path / "runs"], ["report", tmp_path / "runs", "--open", "no"]):
        if words[0] == "report":
            words[1] = next((tmp_path / "runs").iterdir())
        whole = [*alone, *strace, *command(*words)]
        done = subprocess.run(whole, env=env, capture_output=True, text=True, timeout=400, check=False)
        assert done.returncode == 0, done.stderr
    calls = trace.read_text()
    assert not find_lookups(calls)
    addresses = set(re.findall(r'inet_(?:addr\(|pton\(AF_INET6, )"([^"]+)"', calls))
    ours = [ipaddress.ip_network(each) for each in ("127.0.0.0/8", "::1/128", "100.64.0.0/16", "fd63:656c:6c62::/48")]
    assert addresses
    assert [each for each in addresses if not any(ipaddress.ip_address(each) in network for network in ours)] == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_runs(scenario: Path, tmp_path: Path) -> None:
    groups()
    outcome = subprocess.run(
        command("run", scenario, "--out", tmp_path), capture_output=True, text=True, timeout=400, check=False
    )
    if "this machine allows nodes only" in outcome.stderr:
        pytest.skip("the kernel's tcp_allowed_congestion_control lacks the scenario's congestion control")
    assert outcome.returncode == 0, outcome.stderr
    (folder,) = tmp_path.iterdir()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "complete"
    assert all(each["residual"]["median_share"] < 0.01 for each in summary["applications"] if each["residual"])


def descendants(process: int) -> list[int]:
    """All processes below one."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        found += [each for child in children for each in (child, *descendants(child))]
    return found


@pytest.mark.timeout(1200)
def test_a_run_or_a_program_of_it_killed_at_any_instant_leaves_nothing_after_clean(tmp_path: Path) -> None:
    before, moments = groups(), random.Random(3)
    scenario = SCENARIOS[0].parent / "smoke.toml"
    victims = {"run": 0, "program": 0}
    for number in range(30):
        runs = tmp_path / str(number)
        words = command("run", scenario, "--out", runs)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # Up to a random one of the phases that it reports, and a moment into it.
        before_it = [process.stderr.readline() for _ in range(moments.randrange(8))]
        time.sleep(moments.uniform(0, 0.7))
        programs = sorted(descendants(process.pid))
        victim = moments.choice(programs) if programs and moments.random() < 0.6 else process.pid
        victims["run" if victim == process.pid else "program"] += 1
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        _, errors = process.communicate()
        assert "Traceback" not in errors, [*before_it, errors]
        assert subprocess.run(command("clean"), stdout=subprocess.DEVNULL, check=False).returncode == 0
        left = {path for path in groups() - before if f"-{process.pid}-" in path.name}
        assert left == set()
        assert processes_of(f"run-{process.pid}-") == []
        # What is left is a folder with a report, or none where nothing was measured.
        for folder in runs.glob("*"):
            report = subprocess.run(command("report", folder), capture_output=True, text=True, check=False)
            assert report.returncode == 0, report.stderr
    assert min(victims.values()) > 5, victims
