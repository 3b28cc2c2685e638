"""Shares and flow times of fifty endpoints with real UDP traffic in one radio cell, compared with closed forms.

    .venv/bin/python benches/cells.py [--users 50] [--seconds 9] [--flow-seconds 40]

Saturated: every user always has packets waiting; every second channel is twice as fast, and half of the users have
priority. Shares of the cell follow from the scheduler alone. Flows: bursts of packets come at random times. The closed
form of their mean time is processor sharing for round robin, E[S] / (1 - load) (Kleinrock, 1976, Queueing Systems II,
section 4.4), and SRPT for shortest-remaining (Schrage & Miller, 1966). Times are from the emulator's packet log and do
not depend on the load of this machine. A last table has flow times by size, of the same cell in virtual time.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from emulator_nodes import bottleneck, inside, start_emulator
from numpy.typing import NDArray

from cellbed import Cell
from cellbed.measure.packets import UDP, read_packets

EDGE = "100.64.64.2"
RATE, PAYLOAD, PACKET = 10_000_000, 1400, 1428
SLOT_NS = 1_000_000
SETTLE_NS = 3_000_000_000
LOAD, MEAN_PACKETS = 0.6, 20
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
"""For each user the times of its bursts, ns, and their numbers of packets."""


def cell(users: int, scheduler: str, *, faster: bool, folder: Path) -> dict[str, Any]:
    """Return endpoints in one cell and an edge. faster: every second channel has twice the rate."""
    names = [f"mobile-{user}" for user in range(users)]
    stages = {name: bottleneck(RATE * (1 + (faster and user % 2)), 1 << 30) for user, name in enumerate(names)}
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
    """Return Jain's index of fairness: 1 where all are equal, 1/n where one has everything."""
    return float(values.sum() ** 2 / (len(values) * (values**2).sum()))


def fair_shares(users: int, scheduler: str) -> NDArray[Any]:
    """Return Mbit/s of each saturated user by the closed form."""
    number = np.arange(users)
    rates = RATE / 1e6 * (1 + number % 2)
    chosen = {"max-rate": number % 2 == 1, "priority": 2 * number // users == 0}.get(scheduler, number >= 0)
    return np.asarray(np.where(chosen, rates / chosen.sum(), 0.0))


def saturate(users: int, scheduler: str, seconds: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Measure Mbit/s of each user; return them and the closed form."""
    # Above the highest share.
    each = 2.5 * RATE / users * 2
    gap = round(PACKET * 8e9 / each)
    first = [user * gap // users for user in range(users)]
    count = int(seconds * 1e9 / gap)
    # First a stock, so that all wait from the start on.
    flows: Flows = [([0, *(it + n * gap for n in range(count))], [100, *(1 for _ in range(count))]) for it in first]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = cell(users, scheduler, faster=True, folder=folder)
        log, zero = send(config, flows, seconds, folder)
    begin, end = full_queue_span(log, zero)
    kept = log[(log["released"] >= begin) & (log["released"] < end)]
    sent = np.bincount(kept["direction"], kept["bytes"], users)
    return sent * 8e3 / (end - begin), fair_shares(users, scheduler)


def full_queue_span(log: NDArray[Any], zero: int) -> tuple[int, int]:
    """Return the longest span, ns, while all served users have packets waiting."""
    served = [log[log["direction"] == user] for user in np.unique(log["direction"])]
    # Proportional fair forgets late arrivals after some times its window of 1 s.
    begin = max(zero, *(int(mine["arrived"].min()) for mine in served)) + SETTLE_NS
    end = int(log["released"].max())
    for mine in served:
        empty = mine["released"][:-1][mine["arrived"][1:] > mine["released"][:-1]]
        end = min([end, *empty[empty > begin]])
    return begin, int(end)


def flow_times(users: int, scheduler: str, seconds: float, seed: int = 1) -> tuple[NDArray[Any], float, float]:
    """Measure times from the arrival of a flow's first packet to the departure of its last; mean size, s, and load."""
    random = np.random.default_rng(seed)
    size = PACKET * 8 / RATE * MEAN_PACKETS
    count = random.poisson(LOAD / size * seconds)
    starts, counts = np.sort(random.uniform(0, seconds, count)), random.geometric(1 / MEAN_PACKETS, count)
    owners = random.integers(0, users, count)
    flows: Flows = [
        ((starts[owners == user] * 1e9).astype(int).tolist(), counts[owners == user].tolist()) for user in range(users)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, _ = send(cell(users, scheduler, faster=False, folder=folder), flows, seconds + 2, folder)
    found = []
    for user, (_, sizes) in enumerate(flows):
        mine = log[log["direction"] == user]
        ends = np.cumsum(sizes)
        ends = ends[ends <= len(mine)]
        begins = np.r_[0, ends[:-1]]
        found.append((mine["arrived"][begins], (mine["released"][ends - 1] - mine["arrived"][begins]) / 1e9))
    begun, times = (np.concatenate(column) for column in zip(*found, strict=True))
    mean = float(counts.mean()) * PACKET * 8 / RATE
    return times[np.argsort(begun)], mean, mean * count / seconds


def srpt(mean: float, load: float) -> float:
    """Return the mean flow time of SRPT for exponential sizes, s (Schrage & Miller, 1966), by the trapezoidal rule."""
    x = np.linspace(0, 30 * mean, 30_001)
    density, step = np.exp(-x / mean) / mean, x[1] - x[0]
    rate = load / mean

    def integral(values: NDArray[Any]) -> NDArray[Any]:
        return np.r_[0.0, np.cumsum((values[1:] + values[:-1]) / 2 * step)]

    below = rate * integral(x * density)
    square = rate * (integral(x**2 * density) + x**2 * np.exp(-x / mean))
    waiting, residence = square / (2 * (1 - below) ** 2), integral(1 / (1 - below))
    return float(integral((waiting + residence) * density)[-1])


def times_by_size(scheduler: str, load: float, seconds: float, seed: int = 1) -> dict[int, float]:
    """Return the mean flow time by the time that a flow takes alone, both ms, in virtual time. Flows come as a Poisson
    process, to the users in turn; each size has a third of the load."""
    random = np.random.default_rng(seed)
    users, sizes = 100, np.array([2, 20, 200])
    weights = 1 / sizes
    weights /= weights.sum()
    count = random.poisson(load * seconds * 1e3 / float(weights @ sizes))
    starts = np.sort(random.integers(0, int(seconds * 1e9), count))
    packets = random.choice(sizes, count, p=weights)
    by_user = [np.arange(user, count, users) for user in range(users)]
    arrivals = [np.repeat(starts[flows], packets[flows]) for flows in by_user]
    link = {"rate": "10 Mbit/s", "queue": {"kind": "infinite"}}
    shared = Cell([link] * users, scheduler=scheduler).run(arrivals, 1250)
    found: dict[int, list[NDArray[Any]]] = {int(size): [] for size in sizes}
    for flows, outcomes in zip(by_user, shared.users, strict=True):
        took = (outcomes.departed[np.cumsum(packets[flows]) - 1] - starts[flows]) / 1e6
        for size, all_of_size in found.items():
            all_of_size.append(took[packets[flows] == size])
    return {size: float(np.concatenate(each).mean()) for size, each in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=9)
    parser.add_argument("--flow-seconds", type=float, default=40)
    given = parser.parse_args()
    print(f"{given.users} saturated users, Mbit/s (measured / closed form)")
    print(f"{'scheduler':20}{'cell':>18}{'largest error':>15}{'Jain':>16}")
    for scheduler in ("round-robin", "proportional-fair", "max-rate", "priority"):
        got, expected = saturate(given.users, scheduler, given.seconds)
        error = np.abs(got - expected).max() / expected.max()
        total = f"{got.sum():.3f} / {expected.sum():.3f}"
        print(f"{scheduler:20}{total:>18}{error:>15.2%}{f'{jain(got):.4f} / {jain(expected):.4f}':>16}", flush=True)
    print("\nmean flow time, ms (measured, 95 % / closed form at the measured load)")
    for scheduler in ("round-robin", "proportional-fair", "shortest-remaining"):
        times, mean, load = flow_times(given.users, scheduler, given.flow_seconds)
        closed = srpt(mean, load) if scheduler == "shortest-remaining" else mean / (1 - load)
        # Flows at about the same time are not independent.
        blocks = [each.mean() for each in np.array_split(times, 20)]
        half = 2.09 * float(np.std(blocks, ddof=1)) / math.sqrt(20)
        name = "SRPT" if scheduler == "shortest-remaining" else "processor sharing"
        figures = f"{times.mean() * 1e3:8.1f} ± {half * 1e3:.1f} / {closed * 1e3:.1f}"
        print(f"{scheduler:20}{figures} ({name}, {len(times)} flows, load {load:.2f})", flush=True)
    print("\nmean flow time by the time that a flow takes alone, ms (virtual time)")
    for load in (0.5, 0.8):
        closed_forms = {size: size / (1 - load) for size in (2, 20, 200)}
        print(f"load {load}: {'processor sharing':20}{closed_forms}")
        for scheduler in ("round-robin", "proportional-fair"):
            means = {size: round(mean, 1) for size, mean in times_by_size(scheduler, load, 2_000).items()}
            print(f"load {load}: {scheduler:20}{means}", flush=True)


if __name__ == "__main__":
    main()
