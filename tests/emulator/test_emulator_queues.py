"""Queues that tell flows apart, with real flows, and where packets may be lost beside the path model."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cellbed.measure.disturbance import MAGIC, RECORD
from cellbed.measure.packets import read_records
from emulator_datagrams import SEND
from emulator_process import EDGE, EMULATE, EmulatorProcess, both, busy, constant, delay, line_of_two, packets

QUANTUM = 1514
"""Bytes of a turn of a flow of FQ-CoDel (RFC 8290, §5.2.3)."""
#: Takes connections and what they send until it is killed.
SINK = """
import socket, sys, threading
def take(connection):
    while connection.recv(1 << 20):
        pass
with socket.create_server((sys.argv[1], 40011)) as server:
    print("ready", flush=True)
    while True:
        threading.Thread(target=take, args=(server.accept()[0],), daemon=True).start()
"""
SOURCE = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 40011)) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        connection.send(bytes(1 << 16))
"""


def two_bulk_flows_and_a_sparse_one(
    queue: dict[str, Any], folder: Path, *before: dict[str, Any], traffic_class: int = 0
) -> np.ndarray[Any, np.dtype[Any]]:
    """The uplink's packet log; datagrams of 200 bytes every 20 ms are the sparse flow."""
    schedule = {"kind": "constant", "bit_rate": 20_000_000}
    stages = [*before, {"kind": "bottleneck", "schedule": schedule, "queue": queue}, delay(5)]
    with EmulatorProcess(line_of_two(stages, [delay(5)], folder)) as emulator:
        emulator.ready()
        sink = subprocess.Popen(
            [sys.executable, "-c", SINK, EDGE[4]], preexec_fn=emulator.inside("edge"), stdout=subprocess.PIPE
        )
        with sink:
            assert sink.stdout.readline() == b"ready\n"
            bulk, sparse = [SOURCE, EDGE[4], "1"], [SEND, EDGE[4], "45", "172", "20000000", str(traffic_class), "1"]
            with contextlib.ExitStack() as stack:
                sources = [
                    stack.enter_context(
                        subprocess.Popen(
                            [sys.executable, "-c", *words],
                            preexec_fn=emulator.inside("endpoint"),
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                        )
                    )
                    for words in (bulk, bulk, sparse)
                ]
                assert [source.stdout.readline() for source in sources] == [b"ready\n"] * 3
                for source in sources:
                    source.stdin.close()  # they begin together
                assert [source.wait() for source in sources] == [0, 0, 0]
            emulator.stop()
            sink.kill()
    log = packets(folder)
    uplink: np.ndarray[Any, np.dtype[Any]] = log[log["direction"] == 0]
    return uplink


def test_a_limit_of_each_flow_holds_for_each_and_leaves_others_alone(tmp_path: Path) -> None:
    limit = {"kind": "flow-limit", "bit_rate": 4_000_000, "burst_bytes": 15_000, "queue_bytes": 60_000}
    log = two_bulk_flows_and_a_sparse_one({"kind": "droptail", "bytes": 150_000}, tmp_path, limit)
    assert not log["drop"][log["protocol"] == 17].any()
    log = log[log["drop"] == 0]
    sparse = log[log["protocol"] == 17]
    assert (sparse["released"] - sparse["arrived"]).max() < 15_000_000  # two bursts before it
    bulk = [log[log["source_port"] == port] for port in np.unique(log["source_port"][log["protocol"] == 6])]
    assert len(bulk) == 2
    for flow in bulk:
        span = (flow["released"].max() - flow["released"].min()) / 1e9
        assert 8 * flow["bytes"].sum() <= 4e6 * span + 8 * (15_000 + 3000)
        assert flow["bytes"].sum() > 100_000


def test_flow_queueing_keeps_flows_apart(tmp_path: Path) -> None:
    delays = {}
    for kind in ("fqcodel", "droptail"):
        folder = tmp_path / kind
        folder.mkdir()
        queue = {"kind": kind, "seed": 3} if kind == "fqcodel" else {"kind": kind, "bytes": 150_000}
        log = two_bulk_flows_and_a_sparse_one(queue, folder)
        log = log[log["drop"] == 0]
        sparse = log[log["protocol"] == 17]
        delays[kind] = np.percentile(sparse["released"] - sparse["arrived"], 90) / 1e6
        if kind == "fqcodel":
            assert len(sparse) == 45
            bulk = log[log["protocol"] == 6]
            ports = np.unique(bulk["source_port"])
            assert len(ports) == 2
            # While packets of both wait; a busy machine may hold up a sender. The first of a flow has no turn before.
            flows = [bulk[bulk["source_port"] == port] for port in ports]
            begin, end = max(both(*map(busy, flows)), key=lambda it: it[1] - it[0])
            sizes = [flow["bytes"][(flow["released"] > begin) & (flow["released"] <= end)].sum() for flow in flows]
            assert min(sizes) > 20 * QUANTUM
            assert max(sizes) - min(sizes) <= 3 * QUANTUM
    # Behind one packet in service and the other flows' quantum each, not behind all that waits.
    assert delays["fqcodel"] < 3
    assert delays["droptail"] > 10


def test_packets_of_an_urgent_class_pass_those_that_wait(tmp_path: Path) -> None:
    classes = {"kind": "classes", "classes": [{"dscp": [46]}, {"bytes": 150_000}]}
    log = two_bulk_flows_and_a_sparse_one(classes, tmp_path, traffic_class=46 << 2 | 1)
    log = log[log["drop"] == 0]
    sparse, bulk = log[log["protocol"] == 17], log[log["protocol"] == 6]
    # Behind the packet in service alone: 1500 bytes need 0.6 ms.
    assert np.max(sparse["released"] - sparse["arrived"]) < 1_500_000
    assert np.percentile(bulk["released"] - bulk["arrived"], 90) > 10_000_000


def test_an_infinite_queue_drops_beyond_its_share_of_the_memory() -> None:
    """Of the memory that the emulator may use an eighth, 3 KiB for each packet."""
    kibibytes, sent = 600_000, 30_000
    limited = ["sh", "-c", f'ulimit -v {kibibytes}; exec "$0" -c "$1"', sys.executable, EMULATE]
    with EmulatorProcess(line_of_two([constant(8)], []), limited) as emulator:
        emulator.ready()
        emulator.probe(bytes=60, bit_rate=60 * 8 * sent, seconds=1)
        status = emulator.status()["mobile.uplink"]
        # A packet takes a minute to send.
        assert kibibytes // 8 // 3 - 5 < status["queue_packets"] <= kibibytes // 8 // 3
        assert status["dropped"]["queue-full"] > 0
        assert status["queue_packets"] + status["dropped"]["queue-full"] + status["delivered"] == sent
        # The other direction has room.
        assert (
            None not in emulator.probe(source="edge", target="endpoint", bit_rate=1_000_000, seconds=0.1)["received_ns"]
        )
        emulator.stop()


def test_what_a_stopped_emulator_loses_and_for_how_long_it_stood_still_is_recorded(tmp_path: Path) -> None:
    """An emulator that does not run for a while loses what its devices' queues have no room for, and counts it."""
    sent = 24_000  # the queue has 20 000
    program = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n" + (
        f"for _ in range({sent}): s.sendto(b'x', ('{EDGE[4]}', 9))"
    )
    with EmulatorProcess(line_of_two([], [], tmp_path, lateness=str(tmp_path / "lateness.bin"))) as emulator:
        emulator.ready()
        zero = time.monotonic_ns()
        emulator.command(do="start", at_ns=zero)
        stopped = time.monotonic_ns()
        os.kill(emulator.process.pid, signal.SIGSTOP)
        try:
            emulator.run("endpoint", [sys.executable, "-c", program])
            time.sleep(0.2)
            stopped = time.monotonic_ns() - stopped
        finally:
            os.kill(emulator.process.pid, signal.SIGCONT)
        lost = emulator.command(do="status")["device_drops"]
        while emulator.status()["mobile.uplink"]["delivered"] < sent - lost:
            pass
        account = emulator.stop()
    assert 0 < lost < sent
    assert account["interfaces"]["endpoint"]["dropped"] == lost
    assert account["refused"] == 0
    seconds = read_records(tmp_path / "lateness.bin", MAGIC, RECORD)
    seconds = seconds[seconds["start"] >= zero]
    assert seconds["packets"].sum() >= sent - lost  # there are ICMP errors, too
    # It may have been asleep for the 100 ms between two looks at the clock.
    assert seconds["standstill"].max() > stopped - 110_000_000
    assert ((seconds["start"] - zero) % 1_000_000_000 == 0).all()
    assert (seconds["end"][:-1] <= seconds["start"][1:] + 1_000_000_000).all()
