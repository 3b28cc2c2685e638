"""Shares of fifty endpoints with real UDP traffic in one radio cell, compared with closed forms.

    .venv/bin/python benches/cells.py [--users 50] [--seconds 9]

Every user always has packets waiting. Every second channel is twice as fast, and half of the users have priority. So
shares of the cell follow from the scheduler alone. Times are from the emulator's packet log and do not depend on the
load of this machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from emulator_nodes import bottleneck, inside, start_emulator
from numpy.typing import NDArray

from cellbed.measure.packets import UDP, read_packets

EDGE = "100.64.64.2"
RATE, PAYLOAD, PACKET = 10_000_000, 1400, 1428
SLOT_NS = 1_000_000
SETTLE_NS = 3_000_000_000
SENDER = f"""
import socket, sys, time
begin, times, counts = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3].split(",")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for at, count in zip(map(int, filter(None, times)), map(int, filter(None, counts))):
        time.sleep(max(0, begin + at - time.monotonic_ns()) / 1e9)
        for _ in range(count):
            sender.sendto(bytes({PAYLOAD}), ("{EDGE}", 9))
"""
SINK = f"""
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("{EDGE}", 9))
print("ready", flush=True)
while True:
    receiver.recv(2048)
"""
Flows = list[tuple[list[int], list[int]]]
"""Times of each user's bursts, ns, and number of packets of each burst."""


def cell(users: int, scheduler: str, folder: Path) -> dict[str, Any]:
    """Return endpoints in one cell and an edge; every second channel has twice the rate."""
    names = [f"mobile-{user}" for user in range(users)]
    stages = {name: bottleneck(RATE * (1 + user % 2), 1 << 30) for user, name in enumerate(names)}
    nodes = [*((name, f"100.64.0.{2 + user}") for user, name in enumerate(names)), ("edge", EDGE)]
    places = [
        {"name": name, "namespace": "new", "addresses": [f"{address}/32"], "routes": ["0.0.0.0/0"]}
        for name, address in nodes
    ]
    ups = [{"name": name, "from": name, "to": "edge", "stages": stages[name]} for name in names]
    downs = [{"name": f"to-{name}", "from": "edge", "to": name, "stages": []} for name in names]
    return {
        "namespaces": "auto",
        "vertices": places,
        "default_vertex": None,
        "directions": [*ups, *downs],
        "cells": [
            {
                "name": "cell",
                "scheduler": {"kind": scheduler},
                "slot_ns": SLOT_NS,
                "users": [{"direction": name, "priority": 2 * user // users} for user, name in enumerate(names)],
            }
        ],
        "series": None,
        "packet_log": str(folder / "packets.bin"),
    }


def send(config: dict[str, Any], flows: Flows, seconds: float, folder: Path) -> tuple[NDArray[Any], int]:
    """Send the flows; return the log of the packets that left the users' queues, and the start, ns."""
    with start_emulator(config) as emulator:
        sink = subprocess.Popen(
            [sys.executable, "-ISc", SINK], preexec_fn=inside(emulator, "edge"), stdout=subprocess.PIPE
        )
        assert sink.stdout is not None
        sink.stdout.readline()
        zero = time.monotonic_ns() + 3_000_000_000
        emulator.restart_links(zero)
        senders = [
            subprocess.Popen(
                [sys.executable, "-ISc", SENDER, str(zero), *(",".join(map(str, each)) for each in flow)],
                preexec_fn=inside(emulator, f"mobile-{user}"),
            )
            for user, flow in enumerate(flows)
        ]
        time.sleep(max(0, zero + seconds * 1e9 - time.monotonic_ns()) / 1e9)
        for process in (*senders, sink):
            process.kill()
            process.wait()
        emulator.stop()
    log = np.array(read_packets(folder / "packets.bin"))
    log = log[(log["protocol"] == UDP) & (log["direction"] < len(flows))]
    return np.sort(log, order=["direction", "released"]), zero


def jain(values: NDArray[Any]) -> float:
    """Return Jain's index of fairness: 1 if all values are equal, 1/n if all but one are 0."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def fair_shares(users: int, scheduler: str) -> NDArray[Any]:
    """Return the rate of each saturated user by the closed form, Mbit/s."""
    number = np.arange(users)
    rates = RATE / 1e6 * (1 + number % 2)
    chosen = {"max-rate": number % 2 == 1, "priority": 2 * number // users == 0}.get(scheduler, number >= 0)
    return np.asarray(np.where(chosen, rates / chosen.sum(), 0.0))


def saturate(users: int, scheduler: str, seconds: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the measured rate of each user, Mbit/s, and the closed form."""
    # Offered load of a user, above the highest share.
    each = 2.5 * RATE / users * 2
    gap = round(PACKET * 8e9 / each)
    first = [user * gap // users for user in range(users)]
    count = int(seconds * 1e9 / gap)
    # The first burst is long, so that all users have packets waiting from the start.
    flows: Flows = [([0, *(it + n * gap for n in range(count))], [100, *(1 for _ in range(count))]) for it in first]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = cell(users, scheduler, folder)
        log, zero = send(config, flows, seconds, folder)
    begin, end = full_queue_span(log, zero)
    kept = log[(log["released"] >= begin) & (log["released"] < end)]
    sent = np.bincount(kept["direction"], kept["bytes"], users)
    return sent * 8e3 / (end - begin), fair_shares(users, scheduler)


def full_queue_span(log: NDArray[Any], zero: int) -> tuple[int, int]:
    """Return beginning and end, ns, of the span in which all served users have packets waiting."""
    served = [log[log["direction"] == user] for user in np.unique(log["direction"])]
    # Proportional fair has an averaging window of 1 s: late arrivals have no effect after a few windows.
    begin = max(zero, *(int(mine["arrived"].min()) for mine in served)) + SETTLE_NS
    end = int(log["released"].max())
    for mine in served:
        empty = mine["released"][:-1][mine["arrived"][1:] > mine["released"][:-1]]
        end = min([end, *empty[empty > begin]])
    return begin, int(end)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=9)
    given = parser.parse_args()
    print(f"{given.users} saturated users, Mbit/s (measured / closed form)")
    print(f"{'scheduler':20}{'cell':>18}{'largest error':>15}{'Jain':>16}")
    for scheduler in ("round-robin", "proportional-fair", "max-rate", "priority"):
        got, expected = saturate(given.users, scheduler, given.seconds)
        error = np.abs(got - expected).max() / expected.max()
        total = f"{got.sum():.3f} / {expected.sum():.3f}"
        print(f"{scheduler:20}{total:>18}{error:>15.2%}{f'{jain(got):.4f} / {jain(expected):.4f}':>16}", flush=True)


if __name__ == "__main__":
    main()
