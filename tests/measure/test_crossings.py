"""Packets joined from the records of a log, compared with a plain definition over generated logs."""

import random
from typing import Any

import numpy as np
import pytest

from cellbed.measure.packets import RECORD, Crossings, crossings, join_group, make_groups

DESCRIPTION: dict[str, Any] = {
    "nodes": [{"name": "phone"}, {"name": "edge"}, {"name": "cloud"}],
    "directions": [
        {"index": index, "from": begin, "to": end}
        for index, (begin, end) in enumerate(
            [("phone", "tower"), ("tower", "edge"), ("edge", "tower"), ("tower", "phone"), ("tower", "cloud")]
        )
    ],
    "migrations": [{"source": "edge", "target": "cloud", "ports": [80]}],
}
PATHS = {(0, 1): (0, 1), (1, 0): (2, 3), (0, 2): (0, 4)}
MADE = 1 << 63


def generate(seed: int) -> np.ndarray[Any, Any]:
    """Return a log with drops, duplicates, packets of proxies, several protocols, and without its oldest records."""
    draw, records = random.Random(seed), []
    for packet in range(300):
        ends = draw.choice([*PATHS])
        ports = (80, 40_000 + draw.randrange(5)) if ends == (1, 0) else (40_000 + draw.randrange(5), 80)
        made = draw.random() < 0.1
        fixed = (draw.choice([1, 6, 6, 17]), 40 + packet, *ports, draw.randrange(1 << 32), packet, *ends)
        for _ in range(1 + (draw.random() < 0.2)):
            now = packet // 2
            for direction in PATHS[ends][made:]:
                times = (now, now + draw.randrange(30), now + 30 + draw.randrange(100))
                drop = draw.choice([0, 0, 0, 0, 2])
                records.append((packet + MADE * made, *times, times[2] + 5, direction, drop, *fixed))
                now = times[2]
                if drop:
                    break
    log = np.array(records, RECORD)
    return log[np.argsort(log["departed"], kind="stable")][50:]


def define(log: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Return the packets of a log by entry, defined plainly."""
    found = []
    for packet in sorted(set(log["packet"].tolist())):
        copies = [record for record in log if record["packet"] == packet and record["protocol"] in (6, 17)]
        if not copies:
            continue
        chosen = {}
        for record in copies:
            before = chosen.get(int(record["direction"]))
            if before is None or (before["drop"] and not record["drop"]):
                chosen[int(record["direction"])] = record
        hops = [record for record in copies if any(record is each for each in chosen.values())]
        head, tail = hops[0], hops[-1]
        names = [node["name"] for node in DESCRIPTION["nodes"]]
        begin, end = (DESCRIPTION["directions"][hop["direction"]][of] for hop, of in ((head, "from"), (tail, "to")))
        if packet < MADE and begin != names[head["source_vertex"]]:
            continue
        queued = sum(int(hop["released"] - hop["arrived"]) for hop in hops)
        delayed = sum(int(hop["departed"] - hop["released"]) for hop in hops)
        ends = [
            (1 if (head[f"{of}_vertex"], head[f"{of}_port"]) == (2, 80) else int(head[f"{of}_vertex"]))
            << 16 | int(head[f"{of}_port"])
            for of in ("source", "destination")
        ]  # fmt: skip
        found.append(
            {
                "entered": int(head["arrived"]),
                "queued": queued,
                "delayed": delayed,
                "proxied": int(tail["departed"] - head["arrived"]) - queued - delayed,
                "left": int(tail["observed"]),
                "delivered": tail["drop"] == 0 and end == names[tail["destination_vertex"]],
                "dropped": bool(tail["drop"]),
                "source": int(head["source_vertex"]),
                "destination": int(head["destination_vertex"]),
                "source_port": int(head["source_port"]),
                "destination_port": int(head["destination_port"]),
                "sequence": int(head["tcp_sequence"]),
                "payload": int(head["payload"]),
                "protocol": int(head["protocol"]),
                "doubled": len(hops) < len(copies),
                "size": int(head["bytes"]),
                "key": min(ends) << 32 | max(ends),
            }
        )
    return sorted(found, key=lambda each: each["entered"])


def rows(packets: Crossings) -> list[dict[str, Any]]:
    names = [name for name in Crossings.__slots__ if name != "vertices"]
    columns = [getattr(packets, name).tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("seed", range(8))
def test_packets_agree_with_their_plain_definition(seed: int) -> None:
    log = generate(seed)
    expected = define(log)
    assert len(expected) > 150
    assert {True, False} == {each["doubled"] for each in expected} == {each["delivered"] for each in expected}
    assert rows(crossings(log, DESCRIPTION)) == expected


def test_groups_never_divide_a_connection_and_contain_every_living_one() -> None:
    log, since = generate(9), 140
    groups = make_groups(DESCRIPTION, since)
    for part in np.array_split(log, 7):
        groups.count(part.view(np.uint8))
    count = groups.divide(40)
    assert count > 3
    for first in range(0, count, 2):
        groups.collect(log.view(np.uint8), first, first + 2)
    found = [rows(join_group(groups, number, DESCRIPTION)) for number in range(count)]
    whole = rows(crossings(log, DESCRIPTION))
    keys = [{each["key"] for each in group} for group in found]
    assert sum(map(len, keys)) == len(set().union(*keys))
    living = {each["key"] for each in whole if each["entered"] >= since}
    assert living <= set().union(*keys)
    together = [each for group in found for each in group]
    expected = [each for each in whole if each["key"] in set().union(*keys)]
    assert sorted(map(str, together)) == sorted(map(str, expected))
