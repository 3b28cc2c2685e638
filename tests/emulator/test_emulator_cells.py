"""Users of a radio cell in the emulator, with real sockets."""

import functools
import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cellbed.measure.packets import UDP
from emulator_process import EmulatorProcess, Stages, both, busy, constant, delay, packets, series

RATE = 12_000_000
SLOT_NS = 1_000_000
MS, SECOND = 1_000_000, 1_000_000_000
USERS = 3
EDGE = "100.64.64.2"


def cell_of_users(stages: Stages, folder: Path) -> dict[str, Any]:
    """A configuration: endpoints that share a cell in both directions, tower, edge."""

    def node(name: str, address: str) -> dict[str, Any]:
        return {"name": name, "namespace": "new", "addresses": [f"{address}/32"], "routes": ["0.0.0.0/0"]}

    names = [f"mobile-{user}" for user in range(USERS)]
    directions: list[dict[str, Any]] = []
    for name in names:
        directions += [
            {"name": f"{name}.uplink", "from": name, "to": "tower", "stages": stages},
            {"name": f"{name}.downlink", "from": "tower", "to": name, "stages": stages},
        ]
    directions += [
        {"name": "core.uplink", "from": "tower", "to": "edge", "stages": []},
        {"name": "core.downlink", "from": "edge", "to": "tower", "stages": []},
    ]
    return {
        "namespaces": "auto",
        "vertices": [
            *(node(name, f"100.64.0.{2 + user}") for user, name in enumerate(names)),
            {"name": "tower", "namespace": None},
            node("edge", EDGE),
        ],
        "default_vertex": None,
        "directions": directions,
        "cells": [
            {
                "name": f"macro.{way}",
                "scheduler": {"kind": "round-robin"},
                "slot_ns": SLOT_NS,
                "users": [{"direction": f"{name}.{way}"} for name in names],
            }
            for way in ("uplink", "downlink")
        ],
        "series": str(folder / "series.bin"),
        "packet_log": str(folder / "packets.bin"),
    }


def flood(emulator: EmulatorProcess, seconds: float) -> None:
    """Let each user send and receive two thirds of the capacity of the cell."""
    flow = {"bytes": 1500, "bit_rate": 2 * RATE // 3, "duration_ns": round(seconds * 1e9), "family": 4}
    ends = [(f"mobile-{user}", "edge") for user in range(USERS)]
    flows = [flow | {"from": source, "to": target} for end in ends for source, target in (end, end[::-1])]
    answer = emulator.command(do="probe", flows=flows)
    assert answer["event"] == "probed", answer


def served(account: dict[str, Any]) -> dict[str, int]:
    """How long each user of the cells has been served, ns."""
    return {user["direction"]: user["served_ns"] for cell in account["cells"] for user in cell["users"]}


def test_users_of_a_cell_share_its_capacity(tmp_path: Path) -> None:
    with EmulatorProcess(cell_of_users([constant(RATE), delay(5)], tmp_path)) as emulator:
        emulator.ready()
        flood(emulator, 0.1)
        before = served(emulator.command(do="status"))
        zero = time.monotonic_ns() + 100 * MS  # in the future, even on a busy machine
        assert emulator.command(do="start", at_ns=zero, offset_ns=0) == {"event": "started"}
        time.sleep(max(zero - time.monotonic_ns(), 0) / SECOND)
        flood(emulator, 0.5)  # ends with nothing in flight: packets in flight at a stop are not logged
        account = emulator.stop()
        end = time.monotonic_ns()
    log, bins = packets(tmp_path), series(tmp_path)
    assert (log["drop"] == 0).all()
    assert min(before.values()) > 0

    ways = {"uplink": [2 * user for user in range(USERS)], "downlink": [2 * user + 1 for user in range(USERS)]}
    for way, directions in ways.items():
        of_way = np.sort(log[np.isin(log["direction"], directions)], order="released")
        # Together no faster than one link, but for what was sent of each user's first packet.
        sent = np.cumsum(of_way["bytes"], dtype=np.int64) * 8e9 / RATE - (of_way["released"] - of_way["released"][0])
        assert (sent - np.minimum.accumulate(sent)).max() <= (USERS + 1) * SLOT_NS
        # A user has the cell for as long as its packets take, since the restart.
        for user, direction in enumerate(directions):
            of_user = log[(log["direction"] == direction) & (log["released"] > zero)]
            after = of_user["arrived"] >= zero
            took, rest = (int(it["bytes"].sum(dtype=np.int64)) * 8e9 / RATE for it in (of_user[after], of_user[~after]))
            # Of packets that were there at the restart, a part may have been sent.
            beyond = served(account)[f"mobile-{user}.{way}"] - took
            assert -10 * len(of_user) <= beyond <= rest + 10 * len(of_user)
        times = [served(account)[f"mobile-{user}.{way}"] for user in range(USERS)]
        assert min(times) > 0
        assert sum(times) <= end - zero
        # While packets of all users wait, each gets a slot in turn. Slots begin anew at the restart.
        flows = log[(log["protocol"] == UDP) & (log["arrived"] >= zero)]
        waiting = functools.reduce(both, (busy(flows[flows["direction"] == each]) for each in directions))
        begin, until = max(waiting, key=lambda it: it[1] - it[0])
        assert until - begin > 10 * USERS * SLOT_NS
        first = -(-(begin - zero) // SLOT_NS) * SLOT_NS + zero
        shared = log[(log["released"] > first) & (log["released"] <= until)]
        leaving = [shared["released"][shared["direction"] == each] - zero for each in directions]
        turns = [np.unique((each - 1) // SLOT_NS) for each in leaving]
        assert all((np.diff(each) == USERS).all() for each in turns)
        assert len({int(each[0]) % USERS for each in turns}) == USERS

    # The series begins with the run, and has the capacity and the bytes of the links.
    for direction in itertools.chain.from_iterable(ways.values()):
        rows = bins[(bins["direction"] == direction) & (bins["start"] >= zero)]
        assert (np.diff(bins["start"][bins["direction"] == direction]) <= 20_000_000).all()
        assert (np.diff(rows["start"]) == 10_000_000).all()
        assert (rows["capacity"][:-1] == RATE // 800).all()
        # A packet that was there at the restart is counted when it leaves.
        left = log[(log["direction"] == direction) & (log["released"] >= zero)]
        assert rows["used"].sum() == left["bytes"][left["released"] < rows["start"][-1] + 10_000_000].sum()


# One user sends packets of 1428 bytes, and says so.
BURST = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for _ in range(100):
        sender.sendto(bytes(1400), (sys.argv[1], 9))
print("sent", flush=True)
"""


def test_a_user_hands_over_with_an_interruption(tmp_path: Path) -> None:
    rate, begin, end = 400_000, 50 * MS, 250 * MS
    config = cell_of_users([{"kind": "gate"}, constant(rate), delay(5)], tmp_path)
    moving = config["directions"][0]
    moving["stages"] = [
        {"kind": "gate", "outages_ns": [[begin, end - begin]], "flushes_ns": [begin]},
        *moving["stages"][1:],
    ]
    up = config["cells"][0]
    mover, stays, other = up["users"]
    priority = {"name": "small.uplink", "scheduler": {"kind": "priority"}}
    small = up | priority | {"users": [other | {"priority": 1}, mover | {"from_ns": end}]}
    config["cells"] = [up | {"users": [mover | {"until_ns": begin}, stays]}, small]
    with EmulatorProcess(config) as emulator:
        emulator.ready()

        def burst(user: int) -> None:
            inside = emulator.inside(f"mobile-{user}")
            subprocess.run(
                [sys.executable, "-c", BURST, EDGE], preexec_fn=inside, check=True, stdout=subprocess.DEVNULL
            )

        time.sleep(2 * end / SECOND)  # the same handover before the start, which must not find packets
        # Each has packets for three seconds and more.
        for user in range(USERS):
            burst(user)
        zero = 0
        while zero <= time.monotonic_ns():  # on a busy machine a start comes too late for its time
            zero = time.monotonic_ns() + 100 * MS
            emulator.command(do="start", at_ns=zero, offset_ns=0)
        while time.monotonic_ns() < zero + begin:
            time.sleep(0.01)
        burst(0)
        enough = max(time.monotonic_ns(), zero + end) + 200 * MS
        while time.monotonic_ns() < enough:
            time.sleep(0.01)
        dropped = {each["name"]: each["dropped"] for each in emulator.command(do="status")["directions"]}
        account = emulator.stop()
    log = packets(tmp_path)
    log = log[log["protocol"] == UDP]
    left = [log[(log["direction"] == 2 * user) & (log["drop"] == 0)] for user in range(USERS)]

    # What waited at the handover is lost at this instant, and nothing leaves in the interruption.
    lost = log[log["drop"] == 4]
    assert set(lost["direction"]) == {0}
    assert set(lost["departed"] - zero) == {begin}
    assert len(lost) == dropped["mobile-0.uplink"]["handover"]
    assert len(lost) + (left[0]["released"] < zero + begin).sum() == 100
    since = left[0]["released"] - zero
    assert not ((since >= begin) & (since <= end)).any()
    # Later packets are the first in the new cell, where the mover is of a higher class than the other user.
    assert (left[0]["arrived"][since > end] >= zero + begin).all()
    assert (since > end).any()
    begun = max(end, (left[0]["arrived"][since > end] - zero).min())
    of_other = left[2]["released"] - zero
    assert (of_other <= begin).any()
    assert not ((of_other > begun + SLOT_NS) & (of_other < since.max())).any()
    # The one that stays has the old cell for itself at once.
    took = 1428 * 8 * SECOND // rate
    assert set(np.diff(left[1]["released"][left[1]["released"] > zero + begin])) == {took}
    visits = {cell["name"]: [user["direction"] for user in cell["users"]] for cell in account["cells"]}
    assert visits == {
        "macro.uplink": ["mobile-0.uplink", "mobile-1.uplink"],
        "small.uplink": ["mobile-2.uplink", "mobile-0.uplink"],
    }
    times = {cell["name"]: [user["served_ns"] for user in cell["users"]] for cell in account["cells"]}
    assert all(map(all, times.values()))


# Sends packets to two addresses in turn until it is killed.
ALTERNATE = """
import itertools, socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in itertools.count():
        sender.sendto(bytes(10), (sys.argv[1 + number % 2], 9))
        time.sleep(0.0025)
        if number == 10: print("sending", flush=True)
"""


def test_a_link_moves_to_another_tower(tmp_path: Path) -> None:
    """Of two towers with a node each, 3 and 4 ms from where they meet, the endpoint leaves one for the other."""
    moment, shared, nodes = 150 * MS, "100.65.0.2", {"north": "100.64.64.2", "south": "100.64.64.3"}

    def way(name: str, source: str, target: str, millis: float) -> dict[str, Any]:
        return {"name": name, "from": source, "to": target, "stages": [delay(millis)]}

    config = cell_of_users([], tmp_path)
    config["vertices"] = [
        config["vertices"][0],
        *(
            {
                "name": name,
                "namespace": "new",
                "addresses": [f"{it}/32"],
                "shared": [f"{shared}/32"],
                "routes": ["0.0.0.0/0"],
            }
            for name, it in nodes.items()
        ),
        *({"name": name, "namespace": None} for name in ("tower.north", "tower.south", "tower")),
    ]
    config["directions"] = [
        way("uplink", "mobile-0", "tower.north", 5)
        | {"moves": [{"at_ns": moment, "from": "mobile-0", "to": "tower.south"}]},
        way("to north", "tower.north", "north", 1),
        way("to south", "tower.south", "south", 1),
        way("north up", "tower.north", "tower", 3),
        way("south up", "tower.south", "tower", 4),
        way("north down", "tower", "tower.north", 3),
        way("south down", "tower", "tower.south", 4),
    ]
    del config["cells"]
    with EmulatorProcess(config) as emulator:
        emulator.ready()
        command = [sys.executable, "-c", ALTERNATE, shared, nodes["north"]]
        inside = emulator.inside("mobile-0")
        with subprocess.Popen(command, preexec_fn=inside, stdout=subprocess.PIPE) as sender:
            assert sender.stdout.readline() == b"sending\n"
            zero = time.monotonic_ns() + SECOND  # so far ahead that a busy machine is in time
            emulator.command(do="start", at_ns=zero, offset_ns=0)

            def moved() -> int:
                status = emulator.status()
                return int(status["south down"]["delivered"] + status["to south"]["delivered"])

            while time.monotonic_ns() < zero + moment:
                time.sleep(0.05)
            before = moved()
            while moved() < before + 20:
                time.sleep(0.05)
            sender.kill()
        time.sleep(0.05)  # the packets under way arrive
        emulator.stop()
    log = packets(tmp_path)
    log = log[log["protocol"] == UDP]
    log = log[np.lexsort((log["departed"], log["packet"]))]
    seen: set[tuple[bool, tuple[int, ...], int]] = set()
    for hops in np.split(log, np.flatnonzero(np.diff(log["packet"])) + 1):
        if hops["arrived"][0] < zero:
            continue
        took = int(hops["departed"][-1] - hops["arrived"][0])
        seen.add((bool(hops["arrived"][0] - zero >= moment), tuple(map(int, hops["direction"])), took // MS))
    # To the shared address, the nearest at that time; to the other one, the way that there is.
    assert seen == {(False, (0, 1), 6), (True, (0, 2), 6), (True, (0, 4, 5, 1), 13)}
