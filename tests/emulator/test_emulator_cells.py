"""Users of a radio cell in the emulator, with real sockets."""

import functools
import itertools
import json
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


def test_endpoints_share_the_opportunities_of_one_recording(tmp_path: Path) -> None:
    # Recorded were 1500 bytes each millisecond, and 5 ms for a packet alone.
    sizes = [{"bytes": 1500, "samples_ns": [[0, 0]]}]
    model = {
        **{"format": "cellbed-conditional-model", "version": 5, "duration_ns": 10 * SECOND, "opportunity_bytes": 1500},
        **{"opportunity_gaps_us": [1000] * 9_999, "trend_ns": [[0, 5 * MS]], "floor": [[1500, 0]], "neighbours": 1},
        **{"reach": 1.0, "aligned": True, "states": [{"idle_ns": 0, "compensation": [[1500, 0]], "sizes": sizes}]},
        **{"trains": [], "train_neighbours": 1, "ahead_bytes": 0},
        "loss": None,
    }
    (tmp_path / "model").write_text(json.dumps(model))
    stage = {"kind": "conditional", "model": str(tmp_path / "model"), "queue": {"kind": "infinite"}, "looped": True}
    stages: Stages = [stage | {"offset_ns": 0, "seed": 1}]
    with EmulatorProcess(cell_of_users(stages, tmp_path)) as emulator:
        emulator.ready()
        flood(emulator, 0.5)
        emulator.stop()
    log = packets(tmp_path)
    for directions in ([0, 2, 4], [1, 3, 5]):
        flows = log[(log["protocol"] == UDP) & np.isin(log["direction"], directions)]
        waiting = functools.reduce(both, (busy(flows[flows["direction"] == each]) for each in directions))
        begin, until = max(waiting, key=lambda it: it[1] - it[0])
        assert until - begin > 10 * USERS * SLOT_NS
        shared = flows[(flows["released"] > begin) & (flows["released"] <= until)]
        counts = [np.count_nonzero(shared["direction"] == each) for each in directions]
        assert abs(sum(counts) - (until - begin) / MS) <= 1
        assert max(counts) - min(counts) <= 2
