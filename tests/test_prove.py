"""The proof notices a link or a limit that is not what was asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.scenario import load
from cellbed.testbed import cgroups
from cellbed.testbed.cgroups import Group, LimitsError
from cellbed.testbed.emulator import Emulator
from cellbed.testbed.plan import Plan, make_plan
from cellbed.testbed.process import Place
from cellbed.testbed.prove import prove_limits
from cellbed.testbed.prove_links import prove_links

SCENARIO = """
name = "proof"
duration = "1 s"
[nodes.endpoint]
cpus = {cpus}
memory = "{memory}"
[nodes.edge]
cpus = 1.0
memory = "512 MiB"
[links.mobile]
up = "{up}"
down = "lte-suburban.down"
base_delay = "{delay}"
[links.core]
edge = "base-edge"
[workload]
kind = "image-classification"
on = "edge"
rate = "1 /s"
"""


def plan(folder: Path, **changes: object) -> Plan:
    values = {"cpus": 0.5, "memory": "256 MiB", "up": "12 Mbit/s", "delay": "10 ms", **changes}
    path = folder / "scenario.toml"
    path.write_text(SCENARIO.format(**values))
    return make_plan(load(path))


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        groups = cgroups.open_groups(f"run-test-{os.getpid()}", lambda path: None)
    except LimitsError as error:
        pytest.skip(str(error).splitlines()[0])
    yield groups.create("endpoint-0")
    groups.remove()


needs_tun = pytest.mark.skipif(not os.access("/dev/net/tun", os.R_OK | os.W_OK), reason="/dev/net/tun cannot be opened")


@needs_tun
@pytest.mark.parametrize("up", ["12 Mbit/s", "lte-suburban.up", "unlimited"])
def test_links_as_asked_are_accepted(tmp_path: Path, up: str) -> None:
    asked = plan(tmp_path, up=up)
    emulator = Emulator.start(asked.emulator_config(None, None))
    proofs = list(prove_links(asked, emulator, lambda text: None))
    emulator.stop()
    assert [str(proof) for proof in proofs if not proof.ok] == []
    named = {proof.what for proof in proofs}
    assert {"mobile-0.uplink delay", "mobile-0.downlink rate", "core-edge-0.downlink delay"} <= named


@needs_tun
@pytest.mark.parametrize(
    ("real", "wrong"),
    [
        ({"up": "11 Mbit/s"}, "mobile-0.uplink rate"),
        ({"up": "lte-suburban.up"}, "mobile-0.uplink rate"),
        ({"up": "unlimited"}, "mobile-0.uplink rate"),
        ({"delay": "14 ms"}, "mobile-0.uplink delay"),
        ({"delay": "9 ms"}, "mobile-0.downlink delay"),
    ],
)
def test_a_link_that_is_off_is_noticed(tmp_path: Path, real: dict[str, str], wrong: str) -> None:
    asked = plan(tmp_path)
    emulator = Emulator.start(plan(tmp_path, **real).emulator_config(None, None))
    proofs = list(prove_links(asked, emulator, lambda text: None))
    emulator.stop()
    assert wrong in {proof.what for proof in proofs if not proof.ok}


@needs_tun
def test_limits_as_asked_are_accepted_and_others_noticed(tmp_path: Path, group: Group) -> None:
    asked = plan(tmp_path)
    emulator = Emulator.start(asked.emulator_config(None, None))
    node = asked.node("endpoint-0")
    place = Place(emulator.namespace(node.name), emulator.user_namespace, (), group.join_files)
    group.limit(node.cpus, node.memory_bytes)
    assert [str(proof) for proof in prove_limits(node, group, place, 2) if not proof.ok] == []

    group.limit(0.8, node.memory_bytes)
    wrong = [proof.what for proof in prove_limits(node, group, place, 2) if not proof.ok]
    assert wrong == ["endpoint-0 CPU limit"]

    # A place outside the group: the limit is set, but the node's programs would not come under it.
    group.limit(node.cpus, node.memory_bytes)
    outside = Place(emulator.namespace(node.name), emulator.user_namespace, (), ())
    wrong = [proof.what for proof in prove_limits(node, group, outside, 2) if not proof.ok]
    assert wrong == ["endpoint-0 CPU limit", "endpoint-0 memory limit"]
    emulator.stop()
