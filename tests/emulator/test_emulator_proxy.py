"""Programs on both sides of a proxy at the tower: what they send arrives, and ends as it would without a proxy."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cellbed.measure.packets import UDP
from cellbed.outcomes import Fate
from emulator_process import EDGE, EmulatorProcess, Stages, constant, delay, line_of_two, packets

MS = 1_000_000
#: Answers each connection, once its end has come, with the digest of what it got and as much data, and then closes it.
SERVER = """
import hashlib, random, socket, socketserver, sys, threading
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        digest, count = hashlib.sha256(), 0
        while data := self.request.recv(1 << 20):
            digest.update(data)
            count += len(data)
        self.request.sendall(digest.digest() + random.Random(2).randbytes(count))
class Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
    request_queue_size = 200
with Server((sys.argv[1], 40007), Handler) as server:
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown())).start()
    server.serve_forever()
"""
#: Opens so many connections at a time, so many times; each sends, ends its own way, and compares what comes back.
CLIENT = """
import concurrent.futures, hashlib, random, socket, sys
address, size, count, workers = sys.argv[1], *map(int, sys.argv[2:])
def once(number):
    data = random.Random(number).randbytes(size)
    with socket.create_connection((address, 40007), timeout=200) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        got = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    return got == hashlib.sha256(data).digest() + random.Random(2).randbytes(size)
with concurrent.futures.ThreadPoolExecutor(workers) as pool:
    print(sum(pool.map(once, range(count))))
"""
#: Resets a connection after some data, and answers the next one with data and a reset.
RESETS = """
import array, fcntl, socket, struct, sys, termios, time
linger = socket.SO_LINGER, struct.pack("ii", 1, 0)
with socket.create_server((sys.argv[1], 40008)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    count = 0
    try:
        while data := connection.recv(1 << 20):
            count += len(data)
        print("end", flush=True)
    except ConnectionResetError:
        print(f"reset after {count}", flush=True)
    connection, _ = server.accept()
    connection.recv(5)
    connection.sendall(b"x" * 50_000)
    left = array.array("i", [1])
    while left[0]:  # A reset drops what has not been acknowledged.
        time.sleep(0.01)
        fcntl.ioctl(connection, termios.TIOCOUTQ, left)
    connection.setsockopt(socket.SOL_SOCKET, *linger)
    connection.close()
"""
RESET = """
import array, fcntl, socket, struct, sys, termios, time
with socket.create_connection((sys.argv[1], 40008), timeout=200) as connection:
    connection.sendall(b"x" * 30_000)
    left = array.array("i", [1])
    while left[0]:  # A reset drops what has not been acknowledged.
        time.sleep(0.01)
        fcntl.ioctl(connection, termios.TIOCOUTQ, left)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
with socket.create_connection((sys.argv[1], 40008), timeout=200) as connection:
    connection.sendall(b"hello")
    count = 0
    try:
        while data := connection.recv(1 << 20):
            count += len(data)
        print("end", count)
    except ConnectionResetError:
        print("reset", count)
try:
    socket.create_connection((sys.argv[1], 40009), timeout=200)
except ConnectionRefusedError:
    print("refused")
"""
#: Sends to a connection until it is reset.
TALK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 40007), timeout=200) as connection:
    print("open", flush=True)
    try:
        while True:
            connection.sendall(b"x")
            time.sleep(0.01)
    except ConnectionResetError:
        print("reset")
"""
SHARED = "100.65.0.2"
MADE = 1 << 63
"""Smallest number of a packet that a proxy made."""


def proxy(kind: str, **changes: Any) -> dict[str, Any]:
    place = {"uplink": "mobile.uplink", "downlink": "mobile.downlink"}
    times = {"interval_ns": 1_000_000, "horizon_ns": 10_000_000} if kind == "mmcptp" else {}
    return {"kind": kind, "buffer_bytes": 1 << 20, **place, **times, **changes}


def radio(loss: float = 0.0, corruption: float = 0.0) -> Stages:
    return [
        {"kind": "loss", "probability": loss, "seed": 3},
        {"kind": "corruption", "probability": corruption, "seed": 4},
        constant(50_000_000, 200_000),
        delay(3),
    ]


def serve(emulator: EmulatorProcess, program: str, address: str) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-c", program, address],
        preexec_fn=emulator.inside("edge"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout.readline() == "ready\n"
    return server


@pytest.mark.parametrize(("kind", "family"), [("split", 4), ("mmcptp", 6)])
def test_data_arrives_unchanged_both_ways(kind: str, family: int, tmp_path: Path) -> None:
    config = line_of_two(radio(0.01, 0.001), radio(0.01, 0.001), tmp_path, proxies=[proxy(kind)])
    with EmulatorProcess(config) as emulator:
        emulator.ready()
        with serve(emulator, SERVER, EDGE[family]) as server:
            for size, count, workers in ((1_000_000, 2, 2), (2_000, 60, 15)):
                program = [sys.executable, "-c", CLIENT, EDGE[family], *map(str, (size, count, workers))]
                assert emulator.run("endpoint", program) == f"{count}\n"
            server.communicate()
        account = emulator.stop()
    assert account["refused"] == 0
    log = packets(tmp_path)
    assert log["bytes"].max() <= 1500
    # What the radio link has lost is repeated by the proxy, not by the server.
    downlink = log[(log["direction"] == 3) & (log["payload"] > 0)]
    core = log[(log["direction"] == 2) & (log["payload"] > 0)]
    assert (downlink["drop"] != 0).any()
    assert (downlink["packet"] >= MADE).any()
    assert len(core) < len(downlink)


@pytest.mark.parametrize("kind", ["split", "mmcptp"])
def test_resets_and_refusals_pass_behind_the_data_and_datagrams_pass_untouched(kind: str, tmp_path: Path) -> None:
    with EmulatorProcess(line_of_two(radio(), radio(), tmp_path, proxies=[proxy(kind)])) as emulator:
        emulator.ready()
        with serve(emulator, RESETS, EDGE[4]) as server:
            said = emulator.run("endpoint", [sys.executable, "-c", RESET, EDGE[4]]).splitlines()
            assert said == ["reset 50000", "refused"]
            assert server.communicate()[0] == "reset after 30000\n"
        flow = emulator.probe(bit_rate=10_000_000, seconds=0.2)
        emulator.stop()
    assert None not in flow["received_ns"]
    log = packets(tmp_path)
    datagrams = log["packet"][log["protocol"] == UDP]
    assert np.unique(datagrams, return_counts=True)[1].tolist() == [2] * len(flow["sent_ns"])


def towers(kind: str, folder: Path, leaves: Sequence[int], returns: Sequence[int]) -> dict[str, Any]:
    """A configuration: two endpoints share a cell at the tower north, where the edge is, until one moves to the tower
    south 10 ms away, and comes back. An edge at each has the address SHARED. Times in ms."""
    config = line_of_two([], [], folder)
    endpoint, _, edge = config["vertices"]
    shared = {"shared": [f"{SHARED}/32"]}
    config["vertices"] = [
        endpoint,
        endpoint | {"name": "other", "addresses": ["100.64.0.3/32"]},
        edge | shared,
        *({"name": name, "namespace": None} for name in ("north", "south")),
        edge | {"name": "southern", "addresses": ["100.64.64.3/32"], **shared},
    ]
    outages = [[at * MS, 10 * MS] for at in sorted([*leaves, *returns])]
    gate = {"kind": "gate", "outages_ns": outages, "flushes_ns": [at * MS for at in leaves]}

    def direction(source: str, target: str, stages: Stages, **changes: Any) -> dict[str, Any]:
        return {"name": f"{source} to {target}", "from": source, "to": target, "stages": stages, **changes}

    def moves(*ways: tuple[str, str]) -> list[dict[str, Any]]:
        times = sorted([*((at, ways[0]) for at in leaves), *((at, ways[1]) for at in returns)])
        return [{"at_ns": at * MS, "from": source, "to": target} for at, (source, target) in times]

    lossy, *rest = radio(0.005)
    up, down = [("endpoint", it) for it in ("south", "north")], [(it, "endpoint") for it in ("south", "north")]
    config["directions"] = [
        direction("endpoint", "north", [lossy, gate, *rest], moves=moves(*up)),
        direction("north", "endpoint", [lossy, gate, *rest], moves=moves(*down)),
        direction("other", "north", radio(0.005)),
        direction("north", "other", radio(0.005)),
        *(direction(*ends, [delay(2)]) for ends in (("north", "edge"), ("edge", "north"))),
        *(direction(*ends, [delay(10)]) for ends in (("north", "south"), ("south", "north"))),
        *(direction(*ends, [delay(2)]) for ends in (("south", "southern"), ("southern", "south"))),
    ]
    stays = zip([0, *(at + 10 for at in returns)], leaves, strict=False)  # The last one may not return.
    config["cells"] = [
        {
            "name": "north",
            "scheduler": {"kind": "round-robin"},
            "users": [
                {"direction": "north to other"},
                *({"direction": "north to endpoint", "from_ns": a * MS, "until_ns": b * MS} for a, b in stays),
            ],
        }
    ]
    ways = [{"uplink": f"{it} to north", "downlink": f"north to {it}"} for it in ("endpoint", "other")]
    config["proxies"] = [proxy(kind, **way) for way in ways]
    return config


@pytest.mark.parametrize("kind", ["split", "mmcptp"])
def test_data_of_two_in_a_cell_arrive_unchanged_across_handovers(kind: str, tmp_path: Path) -> None:
    config = towers(kind, tmp_path, range(150, 30_000, 300), range(300, 30_000, 300))
    with EmulatorProcess(config) as emulator:
        emulator.ready()
        with serve(emulator, SERVER, EDGE[4]) as server:
            emulator.command(do="start", at_ns=time.monotonic_ns(), offset_ns=0)
            command = [sys.executable, "-c", CLIENT, EDGE[4], "2000000", "2", "2"]
            started = [
                subprocess.Popen(command, preexec_fn=emulator.inside(it), stdout=subprocess.PIPE, text=True)
                for it in ("endpoint", "other")
            ]
            assert [client.communicate()[0] for client in started] == ["2\n"] * 2
            server.communicate()
        account = emulator.stop()
    assert account["refused"] == 0
    log = packets(tmp_path)
    # Handovers have dropped packets, and the proxy has sent from both towers, to the edge by way of the first one, too.
    assert (log["drop"][log["direction"] == 1] == Fate.HANDOVER).any()
    assert {0, 2} <= {*log["source_vertex"][log["direction"] == 7]}


def test_a_handover_to_another_server_of_the_address_resets(tmp_path: Path) -> None:
    with EmulatorProcess(towers("mmcptp", tmp_path, [100], [])) as emulator:
        emulator.ready()
        emulator.command(do="start", at_ns=time.monotonic_ns() + 10**12, offset_ns=0)  # until the client is connected
        with serve(emulator, SERVER, SHARED) as server:
            program, inside = [sys.executable, "-c", TALK, SHARED], emulator.inside("endpoint")
            with subprocess.Popen(program, preexec_fn=inside, stdout=subprocess.PIPE, text=True) as client:
                assert client.stdout.readline() == "open\n"
                emulator.command(do="start", at_ns=time.monotonic_ns(), offset_ns=0)
                assert client.communicate()[0] == "reset\n"
            server.kill()
        emulator.stop()
