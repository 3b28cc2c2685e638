"""The log in the words of mm-link, against one written by hand and against the rules, played line by line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed._core import parse_trace
from cellbed.link import Link
from cellbed.measure.packetlog.mahimahi import MS, Opportunities
from cellbed.measure.packets import RECORD
from mahimahi_lines import original_lines

INFINITE = {"kind": "infinite"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mahimahi-log")


class Bottleneck:
    """Our link with Mahimahi's accounting, and the log of what it did."""

    def __init__(
        self, folder: Path, stamps: list[int], queue: dict[str, Any] = INFINITE, *, looped: bool = True
    ) -> None:
        path = folder / "trace"
        path.write_text("".join(f"{stamp}\n" for stamp in stamps))
        schedule = {"kind": "trace", "path": str(path), "looped": looped}
        self.link = Link.of_stages([{"kind": "bottleneck", "schedule": schedule, "queue": queue, "mahimahi": True}])
        self.schedule = Opportunities(parse_trace(path), looped=looped)

    def records(self, packets: list[tuple[float, int]]) -> np.ndarray[Any, np.dtype[Any]]:
        """Records in the order in which packets leave. packets: arrival in ms and IP bytes."""
        times, sizes = zip(*packets, strict=True)
        outcomes = self.link.run(np.array([round(time * MS) for time in times]), sizes)
        records = np.zeros(len(outcomes), RECORD)
        records["packet"], records["bytes"], records["drop"] = outcomes.packet, outcomes.size, outcomes.fate
        for field in ("arrived", "released", "departed"):
            records[field] = np.where(getattr(outcomes, field) < 0, 2**62, getattr(outcomes, field))
        return records[np.argsort(records["departed"], kind="stable")]

    def log(self, packets: list[tuple[float, int]], until_ms: int) -> list[str]:
        """The lines up to but excluding a time."""
        return original_lines(self.records(packets), self.schedule.between(0, until_ms * MS), until_ms * MS)


def test_a_log_written_by_hand(folder: Path) -> None:
    # Opportunities of 1504 bytes at 2, 5, 5, 9 | 11, 14, 14, 18 | …; a packet may use those of later milliseconds only.
    packets = [(0, 1500), (1.9, 100), (2.0, 1396), (5.0, 1500), (8.999, 746), (8.999, 750), (9.5, 1500), (9.5, 1500)]
    assert Bottleneck(folder, [2, 5, 5, 9]).log(packets, 15) == [
        "0 + 1504",
        "1 + 104",
        "2 # 1504",
        "2 - 1504 2",
        "2 + 1400",
        "5 # 1504",
        "5 - 104 4",
        "5 - 1400 3",
        "5 # 1504",  # nobody is there, since both are spent before what comes in this millisecond
        "5 + 1504",
        "8 + 750",
        "8 + 754",
        "9 # 1504",
        "9 - 1504 4",
        "9 + 1504",
        "9 + 1504",
        "11 # 1504",
        "11 - 750 3",
        "11 - 754 3",
        "14 # 1504",
        "14 - 1504 5",
        "14 # 1504",
        "14 - 1504 5",
    ]


def test_what_a_packet_displaces_is_one_line_behind_it(folder: Path) -> None:
    head = {"kind": "drophead", "packets": None, "bytes": 3100}
    packets = [(0, 700), (0, 800), (0, 900), (0.5, 1500), (1, 1500)]
    assert Bottleneck(folder, [4], head).log(packets, 5) == [
        "0 + 704",
        "0 + 804",
        "0 + 904",
        "0 + 1504",  # 704 + 804 + 904 + 1504 are 3916 bytes: two must go
        "0 d 2 1508",
        "1 + 1504",
        "1 d 1 904",
        "4 # 1504",
        "4 - 1504 4",
    ]
    tail = {"kind": "droptail", "packets": 1, "bytes": None}
    assert Bottleneck(folder, [4], tail).log([(0, 700), (0, 800), (2, 60)], 4) == [
        "0 + 704",
        "0 + 804",
        "0 d 1 804",
        "2 + 64",
        "2 d 1 64",
    ]


def test_what_codel_drops_on_the_way_out_has_no_line(folder: Path) -> None:
    codel = {"kind": "mahimahi-codel", "packets": 100, "target_ns": 5 * MS, "interval_ns": 20 * MS}
    log = Bottleneck(folder, [1], codel).log([(0, 1500)] * 101, 200)
    assert [line for line in log if " d " in line] == ["0 d 1 1504"]  # no room for the last one
    departures = sum(" - " in line for line in log)
    assert 80 < departures < 100  # CoDel dropped the others


def played(
    stamps: list[int], kind: str, limits: tuple[int, int], packets: list[tuple[float, int]], until: int
) -> list[str]:
    """The log by the rules: opportunities up to the millisecond of an arrival are spent, then it comes."""
    lines: list[str] = []
    queue: list[tuple[int, int]] = []
    transit: tuple[int, int, int] | None = None
    turn = base = 0

    def spend(now: int) -> None:
        nonlocal transit, turn, base
        while base + stamps[turn] <= now:
            time, left = base + stamps[turn], 1504
            lines.append(f"{time} # 1504")
            turn += 1
            if turn == len(stamps):
                turn, base = 0, base + stamps[-1]
            while left:
                if transit is None:
                    if not queue:
                        break
                    came, size = queue.pop(0)
                    transit = came, size, size
                came, size, owed = transit
                used = min(left, owed)
                left -= used
                transit = (came, size, owed - used) if used < owed else None
                if transit is None:
                    lines.append(f"{time} - {size} {time - came}")

    for at, ip_bytes in packets:
        now, size = int(at), ip_bytes + 4
        spend(now)
        lines.append(f"{now} + {size}")
        queue.append((now, size))
        gone: list[int] = []
        while kind != "infinite" and (len(queue) > limits[0] or sum(it[1] for it in queue) > limits[1]):
            gone.append(queue.pop(0 if kind == "drophead" else -1)[1])
        if gone:
            lines.append(f"{now} d {len(gone)} {sum(gone)}")
    spend(until - 1)
    return lines


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.sampled_from([0, 0, 1, 1, 2, 7, 40]), min_size=1, max_size=20).filter(any),
    kind=st.sampled_from(["infinite", "droptail", "drophead"]),
    limits=st.tuples(st.integers(1, 6), st.integers(1504, 9000)),
    gaps=st.lists(
        st.tuples(st.sampled_from([0.001, 0.001, 0.3, 1, 5.2, 60]), st.sampled_from([60, 100, 746, 1280, 1500])),
        min_size=1,
        max_size=60,
    ),
)
def test_every_line_is_that_of_the_rules(
    folder: Path, steps: list[int], kind: str, limits: tuple[int, int], gaps: list[tuple[float, int]]
) -> None:
    stamps = np.cumsum(steps).tolist()
    arrivals = np.cumsum([gap for gap, _ in gaps]).round(3).tolist()
    packets = list(zip(arrivals, [size for _, size in gaps], strict=True))
    queue = {"kind": kind} | ({} if kind == "infinite" else {"packets": limits[0], "bytes": limits[1]})
    bottleneck = Bottleneck(folder, stamps, queue)
    until = int(bottleneck.records(packets)["departed"].max()) // MS + 30
    assert bottleneck.log(packets, until) == played(stamps, kind, limits, packets, until)


def test_a_trace_played_once_has_no_opportunities_after_its_end(folder: Path) -> None:
    log = Bottleneck(folder, [0, 3, 3], looped=False).log([(1, 1500), (1, 1500), (1, 1500)], 50)
    assert log[:5] == ["0 # 1504", "1 + 1504", "1 + 1504", "1 + 1504", "3 # 1504"]
    assert log[-3:] == ["3 - 1504 2", "3 # 1504", "3 - 1504 2"]  # the third never leaves
