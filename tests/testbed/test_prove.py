"""The proof notices a link or a limit that is not what was asked."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.scenario import load
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.cgroups import Group
from cellbed.testbed.machine.contention import contention, describe
from cellbed.testbed.machine.process import Place
from cellbed.testbed.nodes.backend import Setup
from cellbed.testbed.nodes.namespace import NamespaceNode
from cellbed.testbed.plan import Plan, make_plan
from cellbed.testbed.proof import prediction
from cellbed.testbed.proof.limits import Limited, Proof, ProofError, prove_limits
from cellbed.testbed.proof.links import _rate_proof, prove_links
from cellbed.testbed.proof.prediction import Clock
from in_process import cellbed
from run_commands import needs_limits, run
from scenario_text import scenario_head

MS = 1_000_000


def scenario(core: Any = "base-edge", **endpoint: Any) -> str:
    """A scenario of images. core: delay of its core link; endpoint: keys of its endpoints."""
    return scenario_head(
        {"endpoint": endpoint, "edge": {"cpus": 1.0, "memory": "512 MiB"}},
        mobile={"up": "12 Mbit/s", "down": "lte-suburban.down"},
        core={"edge": core},
        name="proof",
        duration="1 s",
        workload={"kind": "image-classification", "on": "edge", "rate": "1 /s"},
    )


def plan(folder: Path, text: str) -> Plan:
    (folder / "scenario.toml").write_text(text)
    return make_plan(load(folder / "scenario.toml"))


@pytest.fixture
def groups() -> Iterator[list[Group]]:
    groups = cgroups.open_groups(f"run-test-{os.getpid()}", lambda path: None)
    yield [groups.create(f"endpoint-{number}") for number in range(12)]
    groups.remove()


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@needs_limits
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set the weight of a group beside all others")
def test_nodes_go_before_other_programs(groups: list[Group]) -> None:
    processor = min(os.sched_getaffinity(0))
    spin = [sys.executable, "-I", "-c", f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"]

    def join() -> None:
        for file in groups[0].join_files:
            Path(file).write_text("0")

    started = [subprocess.Popen(spin, preexec_fn=join if first else None) for first in (True, False, False, False)]
    try:
        while sum(used := [processor_seconds(process.pid) for process in started]) < 2:
            time.sleep(0.05)
        own, *others = used
    finally:
        for process in started:
            process.kill()
            process.wait()
    # With equal weights, the node would have a quarter, or half if the kernel makes a group of the session's processes.
    assert own > 4 * sum(others)


def test_equal_lines_of_many_nodes_are_one() -> None:
    failed = [Proof(f"phone-{n} CPU limit", 0.2, 0.1 + n / 999, "CPUs", ok=False) for n in range(64)]
    _, phones = str(ProofError(failed)).splitlines()
    assert phones.endswith("phone-0 CPU limit: expected 0.2 CPUs, measured 0.1 CPUs (and 63 more like this)")


def test_a_busy_machine_is_named_as_the_cause_of_a_failed_proof() -> None:
    assert describe(1.2, 2, 0.3, 0.0) == ""
    assert describe(1.2, 2, None, 0.0) == ""
    failed = [Proof("mobile-0.uplink rate", 62.3, 31.31, "Mbit/s", ok=False)]
    assert "does not match the scenario" in str(ProofError(failed))
    for busy in (describe(29.0, 2, 0.98, 0.0), describe(0.5, 2, 0.9, 0.0), describe(0.5, 2, None, 0.4)):
        text = str(ProofError(failed, busy))
        assert text.startswith("the testbed could not be measured, so the workload was not started:\n  mobile-0.uplink")
        assert "the machine is busy, which may be the cause: load" in text
    assert contention() == "" or contention().startswith("the machine is busy")


def test_limits_that_exceed_the_machine_are_errors_of_their_lines(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    plan(tmp_path, scenario(cpus=cpus + 0.5, memory="8 TiB"))
    path = tmp_path / "scenario.toml"
    done = cellbed("run", path, "--dry-run")
    errors = [line.removeprefix("error: ") for line in done.stderr.splitlines()]
    assert done.returncode == 2
    assert [line.split(": ")[1] for line in errors] == ["nodes.endpoint.cpus", "nodes.endpoint.memory"]
    assert f": {cpus}.5 CPUs, but this machine has {cpus}: write at most {cpus}, or" in errors[0]
    assert all(line.startswith(f"{path}:") and "--overcommit" in line for line in errors)
    run("up", path, "--out", tmp_path / "runs", status=2)
    assert not (tmp_path / "runs").exists()
    for option in ("--overcommit", "--no-limits", "--virtual"):
        assert cellbed("run", path, "--dry-run", option).returncode == 0
    # Nodes that each fit may exceed the machine together.
    plan(tmp_path, scenario(cpus=cpus, count=64))
    done = cellbed("run", path, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")


@needs_limits
@pytest.mark.needs_tun
def test_a_limit_that_nothing_can_exceed_is_not_called_measured(tmp_path: Path, groups: list[Group]) -> None:
    cpus = len(os.sched_getaffinity(0))
    for asked, missed in ((cpus, []), (cpus + 6, ["endpoint-0 CPU limit"])):
        planned = plan(tmp_path, scenario(cpus=asked))
        group, node = groups[0], planned.node("endpoint-0")
        emulator = Emulator.start(planned.emulator_config())
        group.limit(node.cpus, node.memory_bytes)
        place = Place(emulator.namespace(node.name), emulator.user_namespace, (), group.join_files)
        limit, memory = prove_limits([Limited(node, group, NamespaceNode(Setup(node.name, place, group=group)))], cpus)
        emulator.stop()
        assert (limit.state, limit.measured, memory.state) == ("not proved", None, "holds")
        assert str(limit) == (f"endpoint-0 CPU limit not proved: the machine has {cpus} CPUs, so nothing can exceed it")
        assert [proof.what for proof in (limit, memory) if not proof.reached] == missed


def proved(asked: Plan, real: Plan | None = None) -> dict[str, Proof]:
    """The proofs of links, by name. real: the links that there are, where they are others."""
    emulator = Emulator.start((real or asked).emulator_config())
    proofs = prove_links(asked, emulator)
    emulator.stop()
    return {proof.what: proof for proof in proofs}


@pytest.mark.needs_tun
def test_many_links_are_measured_at_the_same_time_and_one_that_is_off_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = plan(tmp_path, scenario(count=40))
    config = asked.emulator_config()
    (off,) = (direction for direction in config["directions"] if direction["name"] == "mobile-7.uplink")
    (delay,) = (stage for stage in off["stages"] if stage["kind"] == "delay")
    delay["fixed_ns"] += 5_000_000
    emulator = Emulator.start(config)
    probes: list[int] = []
    probe = emulator.probe
    monkeypatch.setattr(emulator, "probe", lambda flows, timeout: (probes.append(len(flows)), probe(flows, timeout))[1])
    proofs = prove_links(asked, emulator)
    emulator.stop()
    assert [proof.what for proof in proofs if not proof.ok] == ["mobile-7.uplink delay"]
    assert len(proofs) == 2 * (40 + 1) + 2 * 40  # delays of all links, rates of the limited ones
    assert max(probes) >= 24
    # All delays are measured, and the rates of some equal links.
    assert [proof.note for proof in proofs if not proof.proved] == ["measured on 32 of 40 equal links"] * (2 * 8)
    assert all(proof.what.endswith("rate") for proof in proofs if not proof.proved)


@needs_limits
@pytest.mark.needs_tun
def test_limits_as_asked_are_accepted_and_others_noticed(tmp_path: Path, groups: list[Group]) -> None:
    # Four nodes at the same time: as asked, with another limit, and two with programs outside their groups.
    asked = plan(tmp_path, scenario(cpus=0.3, count=4, memory="64 MiB"))
    emulator = Emulator.start(asked.emulator_config())
    limited = []
    for number, (group, join) in enumerate(zip(groups[:4], [True, True, False, False], strict=True)):
        node = asked.node(f"endpoint-{number}")
        group.limit(0.8 if number == 1 else node.cpus, node.memory_bytes)
        place = Place(emulator.namespace(node.name), emulator.user_namespace, (), group.join_files if join else ())
        limited.append(Limited(node, group, NamespaceNode(Setup(node.name, place, group=group))))
    proofs = prove_limits(limited, 2)
    emulator.stop()
    assert [proof.what for proof in proofs] == [
        f"endpoint-{number} {kind} limit" for number in range(4) for kind in ("CPU", "memory")
    ]
    assert {proof.what for proof in proofs if not proof.ok} == {
        "endpoint-1 CPU limit",
        *(f"endpoint-{number} {kind} limit" for number in (2, 3) for kind in ("CPU", "memory")),
    }


@needs_limits
@pytest.mark.needs_tun
def test_some_of_many_equal_nodes_are_measured_and_the_settings_of_all_read(
    tmp_path: Path, groups: list[Group]
) -> None:
    asked = plan(tmp_path, scenario(cpus=0.2, count=12, memory="64 MiB"))
    emulator = Emulator.start(asked.emulator_config())
    limited = []
    for number, group in enumerate(groups):
        node = asked.node(f"endpoint-{number}")
        group.limit(0.3 if number == 5 else node.cpus, node.memory_bytes)
        place = Place(emulator.namespace(node.name), emulator.user_namespace, (), group.join_files)
        limited.append(Limited(node, group, NamespaceNode(Setup(node.name, place, group=group))))
    proofs = prove_limits(limited, 2)
    emulator.stop()
    assert [str(proof) for proof in proofs if not proof.ok] == [
        "endpoint-5 CPU limit: expected 0.2 CPUs, measured 0.3 CPUs (the kernel reports another limit)"
    ]
    notes = [proof.note for proof in proofs if not proof.proved]
    assert notes == ["measured on 8 of 11 equal nodes, settings read back on all"] * (2 * 3)


KINDS = {
    "steps and drawn delays": """
up = { kind = "series", steps = [["0 s", "9 Mbit/s"], ["90 ms", "5 Mbit/s"], ["150 ms", "0 bit/s"]], period = "0.16 s" }
base_delay = { kind = "normal", mean = "15 ms", deviation = "2 ms", reorder = true }
queue = { kind = "codel" }
""",
    "bursts and recorded delays": """
up = { kind = "token-bucket", rate = "12 Mbit/s", burst = "20 kB" }
down = "unlimited"
base_delay = { kind = "series", points = [["0 s", "5 ms"], ["400 ms", "30 ms"]] }
queue = { kind = "fqcodel" }
duplication = 0.05
corruption = 0.01
""",
    "managed queues and lost packets": """
up = "8 Mbit/s"
queue = { uplink = { kind = "red" }, downlink = { kind = "pie", target = "1 ms" } }
loss = { kind = "gilbert-elliott", to_bad = "5 %", to_good = "30 %" }
""",
    "short queues and outages": """
up = "8 Mbit/s"
queue = { kind = "droptail", limit = "1500 B" }
loss = { uplink = 0.3, downlink = { kind = "on-off", on = "20 ms", off = "10 s" } }
""",
}


def plan_of(folder: Path, link: str) -> Plan:
    """The scenario with another mobile link; its downlink is a trace where the link has none."""
    replaced = ("up =", *(("down =",) if "down =" in link or "profile =" in link else ()))
    kept = [line for line in scenario().splitlines() if not line.startswith(replaced)]
    kept.insert(kept.index("[links.mobile]") + 1, link)
    return plan(folder, "\n".join(kept))


@pytest.mark.needs_tun
@pytest.mark.parametrize("link", KINDS.values(), ids=KINDS)
def test_links_of_every_kind_are_proved_or_said_not_to_be(tmp_path: Path, link: str) -> None:
    proofs = proved(plan_of(tmp_path, link))
    assert {"mobile-0.uplink delay", "core-edge-0.downlink delay"} <= proofs.keys()
    assert [str(proof) for proof in proofs.values() if not proof.ok] == []
    for proof in proofs.values():
        assert proof.proved or proof.note


PIE = 'queue = { uplink = { kind = "pie" } }'


@pytest.mark.needs_tun
@pytest.mark.parametrize(
    ("asked", "real", "wrong"),
    [
        ('up = "12 Mbit/s"', 'up = "11 Mbit/s"', "mobile-0.uplink rate"),
        pytest.param('up = "12 Mbit/s"', 'up = "unlimited"', "mobile-0.uplink rate", marks=pytest.mark.slow),
        ('up = "12 Mbit/s"', 'up = "12 Mbit/s"\nbase_delay = "14 ms"', "mobile-0.uplink delay"),
        ('up = "12 Mbit/s"', 'up = "12 Mbit/s"\nbase_delay = "7 ms"', "mobile-0.downlink delay"),
        (
            'up = { kind = "series", steps = [["0 s", "12 Mbit/s"]] }',
            # A busy machine can send so little that a faster link seems to be as slow as asked.
            'up = { kind = "series", steps = [["0 s", "10 Mbit/s"]] }',
            "mobile-0.uplink rate",
        ),
        (
            'up = "12 Mbit/s"\nbase_delay = { kind = "uniform", mean = "15 ms", spread = "5 ms" }',
            'up = "12 Mbit/s"\nbase_delay = "25 ms"',
            "mobile-0.uplink delay",
        ),
        pytest.param(
            f'up = "12 Mbit/s"\n{PIE}', f'up = "16 Mbit/s"\n{PIE}', "mobile-0.uplink rate", marks=pytest.mark.slow
        ),
    ],
)
def test_a_link_that_is_off_is_noticed(tmp_path: Path, asked: str, real: str, wrong: str) -> None:
    # "not reached" on a machine that is too busy to send enough, never "holds".
    assert proved(plan_of(tmp_path, asked), plan_of(tmp_path, real))[wrong].state != "holds"


def recording(folder: Path, heavy_ms: int) -> str:
    """A mobile link that replays a recording with an opportunity every `heavy_ms` under saturation."""
    (folder / "light").write_text("".join(f"{at} {12 + at // 200} 0 3 6 9\n" for at in range(0, 2000, 50)))
    (folder / f"heavy-{heavy_ms}").write_text("".join(f"{at}\n" for at in range(heavy_ms, 4001, heavy_ms)))
    up = f'{{ kind = "cellreplay", light = "light", heavy = "heavy-{heavy_ms}", idle = "20 ms" }}'
    return f'up = {up}\ndown = "unlimited"'


@pytest.mark.needs_tun
@pytest.mark.parametrize("kind", ["cellreplay", "radio"])
def test_links_that_depend_on_their_load_are_proved_by_the_model(tmp_path: Path, kind: str) -> None:
    link = recording(tmp_path, 2) if kind == "cellreplay" else 'kind = "radio"\nprofile = "lowband-good"'
    proofs = proved(plan_of(tmp_path, link))
    assert {what: str(proof) for what, proof in proofs.items() if proof.state != "holds"} == {}
    assert "compared with the model" in proofs["mobile-0.uplink rate"].note


@pytest.mark.needs_tun
def test_another_recording_than_the_one_asked_for_is_noticed(tmp_path: Path) -> None:
    proofs = proved(plan_of(tmp_path, recording(tmp_path, 2)), plan_of(tmp_path, recording(tmp_path, 3)))
    assert [what for what, proof in proofs.items() if not proof.ok] == ["mobile-0.uplink rate"]


@pytest.mark.needs_tun
def test_a_link_that_changes_at_once_is_said_not_to_be_proved(tmp_path: Path) -> None:
    link = 'up = "12 Mbit/s"\n[[links.mobile.changes]]\nat = "100 ms"\nup = "1 Mbit/s"\n'
    proofs = proved(plan_of(tmp_path, 'down = "unlimited"\n' + link))
    assert proofs["mobile-0.uplink rate"].state == "not proved"
    assert "changes after 0.1 s" in str(proofs["mobile-0.uplink rate"])
    assert proofs["mobile-0.downlink delay"].state == "holds"


SENT = [round(number * MS / 1.4) for number in range(350)]
"""Of a sender that sends 1.4 datagrams a ms; 12 Mbit/s carry one."""


def rate_state(folder: Path, sent: list[int], received: list[int], link: str = "") -> str:
    """The proof of the rate of the uplink, by when a flow was sent and, from its beginning on, received."""
    path = (plan_of(folder, link) if link else plan(folder, scenario())).path("endpoint-0", "edge-0")
    uplink = next(direction for direction in path if direction.name == "mobile-0.uplink")
    flow = {"sent_ns": sent, "received_ns": [*received, *[None] * (len(sent) - len(received))]}
    return _rate_proof(path, uplink, flow, Clock(0, 0)).state


@pytest.mark.parametrize(
    ("pause_ms", "delivered", "state"), [(0, 250, "holds"), (0, 200, "off"), (40, 250, "not reached"), (40, 200, "off")]
)
def test_a_low_rate_is_off_unless_the_sender_stood_still_as_long(
    tmp_path: Path, pause_ms: int, delivered: int, state: str
) -> None:
    sent = [at + (number > 175) * pause_ms * MS for number, at in enumerate(SENT)]
    received = [100 * MS + number * (250 + pause_ms) * MS // delivered for number in range(delivered)]
    assert rate_state(tmp_path, sent, received) == state


@pytest.mark.parametrize(("carried", "state"), [(30, "holds"), (33, "off"), (27, "off")])
def test_opportunities_together_prove_a_rate(tmp_path: Path, carried: int, state: str) -> None:
    """A 5G cell grants its slots together: here 30 packets each 6 ms, 60 Mbit/s."""
    (tmp_path / "together.up").write_text("".join(f"{at}\n" * 30 for at in range(6, 3001, 6)))
    path = plan_of(tmp_path, link := 'up = "together.up"\nbase_delay = "10 ms"').path("endpoint-0", "edge-0")
    delay_ns = sum(prediction.delays(step.parameters.delay)[0] for step in path)
    received = [at * MS + delay_ns + 20_000 for at in range(102, 180, 6) for _ in range(carried)]
    sent = [round(number * MS / 7) for number in range(550)]
    assert rate_state(tmp_path, sent, received, link) == state


def test_a_slower_link_does_not_hold_where_the_first_arrivals_are_seen_late(tmp_path: Path) -> None:
    # 11 instead of 12 Mbit/s; the first 25 arrivals are seen together.
    received = [100 * MS + max(number, 25) * MS * 12 // 11 for number in range(250)]
    assert rate_state(tmp_path, SENT, received) != "holds"


@pytest.mark.needs_tun
def test_only_the_narrowest_of_two_bottlenecks_is_flooded(tmp_path: Path) -> None:
    proofs = proved(plan(tmp_path, scenario({"kind": "place", "name": "base-edge", "rate": "1 Gbit/s"})))
    assert all(proof.ok for proof in proofs.values()), proofs
    assert proofs["mobile-0.uplink rate"].proved
    core = proofs["core-edge-0.uplink rate"]
    assert not core.proved
    assert "mobile-0.uplink has less capacity" in core.note
