"""What the path model does to packets, seen by real receivers: marks, damage, second copies."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator_datagrams import receiving, send
from emulator_process import EmulatorProcess, Stages, delay, line_of_two, packets

CE = 3


def managed(bit_rate: int, **queue: Any) -> Stages:
    return [{"kind": "bottleneck", "schedule": {"kind": "constant", "bit_rate": bit_rate}, "queue": queue}]


CODEL = managed(8_000_000, kind="codel", ecn=True, target_ns=1_000_000, interval_ns=10_000_000)
DUALPI2 = managed(8_000_000, kind="dualpi2")


@pytest.mark.parametrize(
    ("stages", "ecn", "family", "group"),
    [(CODEL, 2, 4, 20), (CODEL, 2, 6, 1), (DUALPI2, 1, 4, 1), (DUALPI2, 1, 6, 20)],
    ids=["codel-4-super-packets", "codel-6", "dualpi2-4", "dualpi2-6-super-packets"],
)
def test_a_mark_reaches_the_receiver(stages: Stages, ecn: int, family: int, group: int) -> None:
    marked = 0
    for _ in range(10):  # a sender that is held up leaves the queue empty for a time
        with EmulatorProcess(line_of_two(stages, [])) as emulator:
            emulator.ready()
            with receiving(emulator, family) as arrivals:
                # A quarter more than the link carries, with another field beside ECN in the traffic class.
                status = send(emulator, 200, interval_ns=800_000, traffic_class=0xB8 | ecn, group=group, family=family)
            account = emulator.stop()
        assert account["refused"] == 0
        # A sender that was held up sends in a burst, and an overload is answered with drops.
        delivered = 200 - status["dropped"]["congestion"]
        assert len(arrivals.numbers) == delivered
        assert arrivals.numbers == sorted(set(arrivals.numbers))
        assert all(arrivals.whole)
        marked = status["marked"]
        assert Counter(arrivals.ecn) == Counter({CE: marked, ecn: delivered - marked})
        if marked:
            break
    assert marked > 0


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    ("sent", "of_endpoint", "of_edge", "passes"),
    [(46, None, None, True), (45, None, None, False), (0, 46, 0, True), (46, 0, 46, False), (0, None, 46, True)],
)
def test_packets_are_classified_by_their_dscp_or_that_of_their_nodes(
    sent: int, of_endpoint: int | None, of_edge: int | None, passes: bool, family: int
) -> None:
    # Nothing may wait in the second class.
    classes = [{"dscp": [46]}, {"packets": 0}]
    config = line_of_two(managed(8_000_000, kind="classes", classes=classes), [])
    for vertex in config["vertices"]:
        vertex["dscp"] = {"endpoint": of_endpoint, "edge": of_edge}.get(vertex["name"])
    with EmulatorProcess(config) as emulator:
        emulator.ready()
        with receiving(emulator, family) as arrivals:
            status = send(emulator, 20, traffic_class=sent << 2 | 1, group=10, family=family)
        emulator.stop()
    assert status["dropped"]["queue-full"] == (0 if passes else 20)
    assert arrivals.numbers == (list(range(20)) if passes else [])


def test_doubled_packets_come_twice(tmp_path: Path) -> None:
    stages = [{"kind": "duplication", "probability": 0.3, "seed": 4}, delay(2)]
    with EmulatorProcess(line_of_two(stages, [], tmp_path)) as emulator:
        emulator.ready()
        with receiving(emulator) as arrivals:
            status = send(emulator, 200, group=10, interval_ns=100_000)
        emulator.stop()
    assert status["duplicated"] > 20
    times = Counter(arrivals.numbers)
    assert set(times) == set(range(200))
    assert sorted(times.values()) == [1] * (200 - status["duplicated"]) + [2] * status["duplicated"]
    assert all(arrivals.whole)
    log = packets(tmp_path)
    for direction in (0, 1):
        numbers = log["packet"][log["direction"] == direction]
        assert sorted(Counter(numbers.tolist()).values()) == sorted(times.values())


def test_the_receiver_notices_damage(tmp_path: Path) -> None:
    stages = [{"kind": "corruption", "probability": 0.3, "seed": 4}, delay(2)]
    with EmulatorProcess(line_of_two(stages, [], tmp_path)) as emulator:
        emulator.ready()
        with receiving(emulator) as arrivals:
            status = send(emulator, 200, size=200, group=10, interval_ns=100_000)
        seen = emulator.run("edge", ["cat", "/proc/net/snmp"])
        refused = emulator.stop()["refused"]  # without a version that it knows the kernel takes no packet
    assert status["corrupted"] > 20
    assert len(arrivals.numbers) == 200 - status["corrupted"]
    assert all(arrivals.whole)
    counters = snmp(seen)
    assert counters["Udp"]["InCsumErrors"] > 0
    assert counters["Udp"]["InCsumErrors"] + counters["Ip"]["InHdrErrors"] + refused == status["corrupted"]
    log = packets(tmp_path)
    assert len(np.unique(log["packet"][log["direction"] == 1])) == 200  # it went all the way


def snmp(text: str) -> dict[str, dict[str, int]]:
    """The tables of /proc/net/snmp."""
    lines = text.splitlines()
    tables = {}
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        table, _, rest = values.partition(": ")
        tables[table] = dict(zip(names.split()[1:], map(int, rest.split()), strict=True))
    return tables
