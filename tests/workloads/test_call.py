"""Calls between two Chromiums through coturn: keys, readings, real calls, a relay that dies, and what is left."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from cellbed.experiments.description import deployments
from cellbed.scenario import ScenarioError, parse
from cellbed.testbed.plan import make_plan
from cellbed.workloads.call.kind import BEARABLE, processes
from cellbed_node.call.readings import measures, strains
from in_process import run_scenario
from packet_logs import lateness_s
from run_commands import apply_marks, command
from scenario_text import NODES, tables
from workload_needs import needs_browser, needs_relay, wait_for_content

NAMED = f'name = "call"\nduration = "6 s"\nseed = 3\n{NODES.replace("cpus", "count = 2" + chr(10) + "cpus", 1)}\n'
APP = '[apps.call]\nkind = "call"\nserver = "edge"\n'
RECORD = "*/raw/call.*.requests.jsonl"
SMALL = 'width = 320\nheight = 180\nrate = "10 /s"\nbit_rate = "300 kbit/s"\ntimeout = "30 s"\ndrain = "30 s"\n'


real = apply_marks(pytest.mark.needs_tun, needs_browser, needs_relay)
"""A test with browsers on nodes."""


def test_an_odd_number_of_ends_needs_a_peer(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse(f"{NAMED}{APP}".replace("count = 2", "count = 3"), source="x.toml", folder=tmp_path)
    assert "calls have two ends, and 'endpoint' has 3" in str(refused.value)


def _sample(at_s: float, **counters: float) -> dict[str, object]:
    """Return a sample of a page. counters: by the initial of the report, ``r_bytesReceived``."""
    reports = {"r": "inbound-rtp video", "h": "inbound-rtp audio", "s": "outbound-rtp video"}
    found: dict[str, object] = {"at": 5000 + at_s * 1000, "pair": {"currentRoundTripTime": 0.05}}
    for initial, report in reports.items():
        found[report] = {key[2:]: value for key, value in counters.items() if key.startswith(f"{initial}_")}
    return found


def test_measures_are_growths_of_counters_from_second_to_second() -> None:
    before = _sample(0, r_bytesReceived=1000, r_jitterBufferDelay=1.0, r_jitterBufferEmittedCount=10, r_freezeCount=1)
    before["inbound-rtp audio"] = {"concealedSamples": 480, "totalSamplesReceived": 48_000}
    after = _sample(2, r_bytesReceived=251_000, r_jitterBufferDelay=2.0, r_jitterBufferEmittedCount=60, r_freezeCount=3)
    after["inbound-rtp audio"] = {"concealedSamples": 5280, "totalSamplesReceived": 144_000}
    found = measures([before, after], [(0.1, 80.0), (0.2, 90.0), (0.3, 300.0), (1.5, 70.0)], 5000)
    assert found["received_mbit_s"] == {"values": [1.0], "times_s": [2.0]}
    assert found["jitter_buffer_ms"]["values"] == [20.0]
    assert found["concealed_percent"]["values"] == [5.0]
    assert found["delay_ms"] == {"values": [90.0, 70.0], "times_s": [1.0, 2.0]}
    assert found["freezes"] == {"value": 2.0}
    assert found["concealed_s"]["value"] == pytest.approx(0.1)
    assert "inter_frame_ms" not in found


def broken(samples: list[dict[str, object]], **counts: int) -> set[str]:
    """Limits that a call exceeds."""
    found = strains(samples, 33.3, **counts)
    return {each.measure for each in BEARABLE if each.measure in found and not each.holds(found[each.measure]["value"])}


def test_a_lack_of_processor_time_is_a_strain_and_a_lack_of_bandwidth_none() -> None:
    first = _sample(0, s_totalEncodeTime=0, s_framesEncoded=0)
    last = _sample(10, s_totalEncodeTime=2.0, s_framesEncoded=100)
    last["outbound-rtp video"] |= {"qualityLimitationDurations": {"cpu": 0, "bandwidth": 9}}  # type: ignore[operator]
    assert broken([first, last], due=300, painted=298, unread=2) == set()
    last["outbound-rtp video"]["qualityLimitationDurations"]["cpu"] = 4  # type: ignore[index]
    last["outbound-rtp video"]["totalEncodeTime"] = 4.0  # type: ignore[index]
    found = broken([first, last], due=300, painted=200, unread=50)
    assert found == {"unpainted_percent", "missed_percent", "cpu_limited_percent", "encode_percent"}


PEER = tables(nodes={"office": {"class": "cloud", "cpus": 1.0, "memory": "256 MiB"}})


@real
@pytest.mark.parametrize("peer", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_call_is_measured_from_camera_to_screen_both_ways(tmp_path: Path, peer: bool) -> None:
    text, ends = NAMED + APP + SMALL, ("endpoint-0", "endpoint-1")
    if peer:  # and later than the run
        text = text.replace("count = 2\n", "").replace("[links.mobile]", f"{PEER}\n[links.mobile]")
        text = text.replace("[links.core]", '[links.core]\ncloud = "20 ms"').replace("6 s", "12 s", 1)
        text, ends = f'{text}peer = "office"\nstart = "6 s"\n', ("endpoint-0", "office-0")
    run = run_scenario(tmp_path, text, "--no-limits")
    frames = pl.read_parquet(run / "requests.parquet")
    assert len(frames) == 120
    mobile, office = 0.013, 0.023 if peer else 0.013  # from each end to the relay
    for sender, receiver, uplink, downlink in ((*ends, mobile, office), (*ends[::-1], office, mobile)):
        own = frames.filter(endpoint=sender)
        shown = own.filter(pl.col("status").is_in(["ok", "late"]))
        assert len(shown) > 20, own["error"].value_counts()
        assert set(shown["receiver"]) == {receiver}
        assert (shown["latency_s"] > uplink + downlink).all()
        whole = shown.drop_nulls("residual_s")
        assert len(whole) > 0.8 * len(shown)
        for part in [name for name in whole.columns if name.startswith("part_")]:
            assert (whole[part] >= 0).all(), part
        assert (whole["residual_s"] > -1e-6).all()
        assert whole["residual_s"].median() < 2e-3 + lateness_s(run)  # type: ignore[operator]
        assert (whole["part_uplink_delay"] - uplink).abs().max() < 1e-4  # type: ignore[operator]
        assert (whole["part_downlink_delay"] - downlink).abs().max() < 1e-4  # type: ignore[operator]
    own = pl.read_parquet(run / "measures.parquet")
    for measure in ("delay_ms", "round_trip_ms", "jitter_buffer_ms", "target_delay_ms", "received_mbit_s", "height"):
        assert set(own.filter(measure=measure)["node"]) == set(ends), measure
    assert (own.filter(measure="round_trip_ms")["value"] >= 2e3 * (mobile + office)).all()
    assert {"freezes", "frozen_s", "concealed_s", "cpu_limited_s", "rtcp_round_trip_ms"} <= set(own["measure"])
    assert "Measures of call" in (run / "report.html").read_text()


# Starts a relay in a network of its own, and asks it for permissions (RFC 8656) as a program of a node can.
ASK = """
import hashlib, hmac, ipaddress, json, os, socket, struct, subprocess, sys
subprocess.run(["ip", "-batch", "-"], input=b"link set lo up\\naddr add 100.64.64.2/32 dev lo\\n", check=True)
relay = subprocess.Popen(json.loads(sys.argv[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
there.settimeout(1)
there.connect(("100.64.64.2", 3478))
MAGIC, known = struct.pack("!I", 0x2112A442), {}
def attribute(kind, value): return struct.pack("!HH", kind, len(value)) + value + bytes(-len(value) % 4)
def ask(method, question):
    body = question
    if known:
        body += attribute(6, b"cellbed") + attribute(0x14, known[0x14]) + attribute(0x15, known[0x15])
        key = hashlib.md5(b":".join([b"cellbed", known[0x14], b"cellbed"])).digest()
    name = MAGIC + os.urandom(12)
    if known:
        text = struct.pack("!HH", method, len(body) + 24) + name + body
        body += attribute(8, hmac.new(key, text, hashlib.sha1).digest())
    answer = b""
    while answer[4:20] != name:
        try:
            there.send(struct.pack("!HH", method, len(body)) + name + body)
            answer = there.recv(2000)
            while answer[4:20] != name: answer = there.recv(2000)  # replies to what was sent again
        except OSError: pass  # it has not started
    found, at = {}, 20
    while at < len(answer):
        kind, size = struct.unpack_from("!HH", answer, at)
        found[kind] = answer[at + 4 : at + 4 + size]
        at += 4 + size + -size % 4
    if known and found.get(9, b"")[:4] == b"\\0\\0\\4\\x26":  # 438 (RFC 8489): again, with the reply's nonce
        known[0x15] = found[0x15]
        return ask(method, question)
    return found
known = ask(3, attribute(0x19, b"\\x11\\0\\0\\0"))
relayed = ask(3, attribute(0x19, b"\\x11\\0\\0\\0"))
assert 0x16 in relayed, relayed
for peer in sys.argv[2:]:
    masked = bytes(a ^ b for a, b in zip(ipaddress.ip_address(peer).packed, MAGIC))
    print(peer, 9 not in ask(8, attribute(0x12, b"\\0\\1\\0\\0" + masked)))
relay.kill()
"""


@needs_relay
@pytest.mark.needs_tun
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a network")
def test_a_relay_sends_to_no_address_but_its_own(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(NAMED + APP)
    plan = make_plan(parse((tmp_path / "x.toml").read_text(), source="x.toml", folder=tmp_path))
    (deployment,) = deployments(plan)
    relay, *_ = processes(replace(deployment, scratch=tmp_path), tmp_path, cache=tmp_path, seed=1)
    peers = ("100.64.64.2", "100.64.64.3", "100.64.0.2", "127.0.0.1", "0.0.0.0", "10.0.0.1", "224.0.0.1")
    asking = ["unshare", "--net", sys.executable, "-c", ASK, json.dumps(relay.command), *peers]
    done = subprocess.run(asking, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{peer} {peer == peers[0]}" for peer in peers], done.stderr


@real
@pytest.mark.slow
def test_a_relay_that_dies_ends_in_a_report_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text((NAMED + APP + SMALL).replace("6 s", "25 s").replace('timeout = "30 s"', ""))
    arguments = ("run", tmp_path / "x.toml", "--no-limits", "--out", tmp_path / "r")
    run = subprocess.Popen(command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    ours = wait_for_content(run, tmp_path / "r", RECORD)
    (relay,) = [pid for pid, line in ours.items() if line.startswith(b"turnserver")]
    os.kill(relay, signal.SIGKILL)
    _, errors = run.communicate()
    assert run.returncode == 0, errors
    (folder,) = (tmp_path / "r").iterdir()
    frames = pl.read_parquet(folder / "requests.parquet")
    lost = frames.filter(~pl.col("status").is_in(["ok", "late"])).drop_nulls("error")
    assert any("the connection through the relay" in error for error in lost["error"])
    assert "call.edge-0.server" in (folder / "report.html").read_text()
