"""Readers of text of other programs: tables, reports of iperf3, and output of ping."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cellbed.archive import TraceError
from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.importers import Options
from cellbed.recordings.importing import recognise
from recorded_files import MS, SECOND, half


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "draft").mkdir()
    return tmp_path


def imported(folder: Path, as_format: str, content: str | bytes, options: Options | None = None) -> Draft:
    path = folder / "x"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    draft = Draft(folder / "draft", About(origin="recorded"))
    recognise([path], as_format).read([path], draft, options)
    return draft


def rows(draft: Draft, part: str) -> list[tuple[Any, ...]]:
    return next(series for name, series in draft.parts.items() if name == part).scan().collect().rows()


def lengths(draft: Draft) -> dict[str, tuple[int, int]]:
    """The number of rows and the duration of each part."""
    return {part: (len(rows(draft, part)), series.duration_ns) for part, series in draft.parts.items()}


def refusal(folder: Path, as_format: str, content: str | bytes, options: Options | None = None) -> str:
    with pytest.raises(TraceError) as refused:
        imported(folder, as_format, content, options)
    return str(refused.value).removeprefix(str(folder / "x"))


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_rates_and_round_trips_of_one_table_share_its_time(folder: Path, ends: str) -> None:
    text = '# a comment\ntime_s,downlink_mbps,rtt_ms\n5,"1.5",20\n5.5,2,\n ,,\n\n#6,1,1\n6.5,0,30\n'.replace("\n", ends)
    draft = imported(folder, "csv", text)
    assert rows(draft, "downlink") == [(0, 1.5e6), (SECOND // 2, 2e6), (3 * SECOND // 2, 0.0)]
    assert rows(draft, "round-trip") == [(0, 20 * MS), (SECOND // 2, None), (3 * SECOND // 2, 30 * MS)]
    assert lengths(draft)["downlink"] == (3, 5 * SECOND // 2)


@pytest.mark.parametrize(
    ("unit", "first", "second", "ns"),
    [
        ("s", "1696500000.123456789", "1696500000.123456790", 1),
        ("s", "0", "0.0000000015", 2),
        ("ms", "-3", "12,5", 15_500_000),
        ("us", "0", "12.0625", 12_063),
        ("ns", ".5", "5.", 4),
        ("min", "0", "1e-1", 6 * SECOND),
        ("h", "+1", "1.00000000001", 36),
    ],
)
def test_times_with_decimals_are_exact(folder: Path, unit: str, first: str, second: str, ns: int) -> None:
    text = f"time_{unit};rtt_ms\n{first};1\n{second};1\n"
    assert rows(imported(folder, "csv", text), "round-trip")[1][0] == ns


@pytest.mark.parametrize(
    "time",
    ["2021-04-30T12:00:00.25Z", "2021-04-30T14:00:00.250+02:00", "2021-04-30 12:00:00.25", "2021-04-30 12:00:00.25 UTC",
     "2021-04-30 14:00:00.25+0200", "2021-04-30t12:00:00.25z"],
)  # fmt: skip
def test_moments_are_read_with_and_without_a_zone(folder: Path, time: str) -> None:
    text = f"when,rtt_ms\n2021-04-30T12:00:00Z,1\n{time},2\n"
    draft = imported(folder, "csv", text, Options(columns={"time": "when:iso"}))
    assert rows(draft, "round-trip")[1][0] == SECOND // 4
    assert draft.about.date == "2021-04-30T12:00:00Z"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0,x\n1,1\n", "line 2: `x` is not a number"),
        ("1,1\nnow,1\n", "line 3: `now` is not a possible time in the assumed unit: for another unit, --column time="),
        ("nan,1\n1,1\n", "line 2: `nan` is not a possible time"),
        ("1,1\n99999999999999999999,1\n", "line 3: `99999999999999999999` is not a possible time"),
        ("1,1\n1e12,1\n", "line 3: `1e12` is not a possible time"),
        ("1,1\n9223372036.854775807,1\n", "line 3: its time is beyond the 4.29497e+06 s"),
        ("1,1\n\n0,1\n", "line 4: its time is 1 s before"),
        ("0,1\n1,-1\n", "line 3: impossible rate of -1000000 bit/s"),
        ("0,1\n1,inf\n", "line 3: `inf` is not a number"),
        ("0,1\n1,1e7\n", "line 3: impossible rate"),
        ("0,1\n1\n2,1\n3,1\n4,1\n", "line 3: no cell 2: the row has 1"),
        ("0,1\n1,\n", "line 3: missing rate: write --missing zero"),
        ("0,1\n0,1\n", "write --duration"),
        (f"0,1\n1,{'7' * (2 << 20)}\n", "not a row of a table: field larger than"),
    ],
)
def test_a_refused_table_names_line_and_value(folder: Path, text: str, reason: str) -> None:
    assert reason in refusal(folder, "csv", "time_s,downlink_mbps\n" + text)


@pytest.mark.parametrize(("missing", "rate"), [("zero", 0.0), ("hold", 1e6)])
def test_missing_rates_are_what_is_asked(folder: Path, missing: Any, rate: float) -> None:
    draft = imported(folder, "csv", "time_s,downlink_mbps\n0,1\n1,-\n2,1\n", Options(missing=missing))
    assert rows(draft, "downlink")[1] == (SECOND, rate)
    assert "1 row of the downlink had no rate" in draft.notes


def report(who: str = "connecting_to", intervals: Any = (), rest: dict[str, Any] | None = None, **options: int) -> str:
    start = {who: {"host": "h"}, "test_start": {"protocol": "TCP", "num_streams": 1, **options}}
    return json.dumps({"start": start, "intervals": intervals, "end": {}} | (rest or {}))


def upload(**more: Any) -> list[dict[str, Any]]:
    return [{"streams": [half(it, 8e6, True)], "sum": half(it, 8e6, True) | more} for it in (0, 1)]


def test_the_direction_of_a_rate_follows_from_who_sent(folder: Path) -> None:
    two = (2, 2 * SECOND)
    assert lengths(imported(folder, "iperf3", report(intervals=upload()))) == {"uplink": two}
    at_server = report("accepted_connection", upload(), reverse=1)
    assert lengths(imported(folder, "iperf3", at_server)) == {"downlink": two}
    old = report(intervals=upload(sender=None), reverse=1)
    assert lengths(imported(folder, "iperf3", old)) == {"downlink": two}
    both = [
        {"streams": [up, down], "sum": up, "sum_bidir_reverse": down}
        for up, down in ((half(it, 1e6, True), half(it, 9e6, False)) for it in (0, 1))
    ]
    bidirectional = imported(folder, "iperf3", report(intervals=both, bidir=1))
    assert lengths(bidirectional) == {"uplink": two, "downlink": two}
    streams = [{"streams": each["streams"] + each["streams"]} for each in both]
    assert rows(imported(folder, "iperf3", report(intervals=streams)), "downlink") == [(0, 18e6), (SECOND, 18e6)]


def test_arrivals_are_preferred_to_what_was_sent(folder: Path) -> None:
    received = [{"streams": [], "sum": half(0, 5e6, False)}]
    server = json.loads(report("accepted_connection", received))
    draft = imported(folder, "iperf3", report(intervals=upload(), rest={"server_output_json": server}))
    assert rows(draft, "uplink") == [(0, 5e6)]
    assert not any("not what arrived" in note for note in draft.notes)


def test_a_stream_of_events_may_be_truncated(folder: Path) -> None:
    start = {"connecting_to": {}, "test_start": {"reverse": 1}}
    events: list[tuple[str, Any]] = [("start", start)]
    events += [("interval", {"sum": half(it, 8e6, False)}) for it in range(3)]
    text = "\n".join(json.dumps({"event": name, "data": data}) for name, data in events)
    draft = imported(folder, "iperf3", text[:-30])
    assert lengths(draft) == {"downlink": (2, 2 * SECOND)}
    assert any("truncated" in note for note in draft.notes)
    assert refusal(folder, "iperf3", text[:-30] + "\n").startswith(": line 4: ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"start":{},"error":"unable to connect - or use a different port"}', "reports `unable to connect - or use a"),
        ('{"start":{},"intervals":[],"end":{}}', "no intervals: expected a report of iperf3 --json"),
        (report(intervals=[{"sum": half(0, -1.0, True)}]), "interval 1: impossible rate of -1 bit/s"),
        (report(intervals=upload(end=-4)), "interval 1: impossible interval from 0 s to -4"),
        (report(intervals=[{"sum": half(1, 1.0, True)}, {"sum": half(0, 1.0, True)}]), "interval 2: its time is 1 s"),
        (report(intervals=upload(end="1")), "intervals.0.sum.end: Input should be a valid number"),
        (report(intervals=upload(end=float("nan"))), "intervals.0.sum.end: Input should be a finite number"),
        (report(intervals=upload())[:200], "truncated"),
        (report(intervals=upload()) + "{}", "not JSON: trailing characters"),
        ('{"a":' * 100_000, "not JSON: recursion limit exceeded"),
    ],
)  # fmt: skip
def test_a_refused_report_names_place_and_value(folder: Path, text: str, reason: str) -> None:
    assert reason in refusal(folder, "iperf3", text)


@pytest.mark.parametrize(
    ("line", "trip_ns"),
    [
        ("64 bytes from host (192.0.2.1): icmp_seq=1 ttl=57 time=123 ms", 123 * MS),
        ("64 bytes from host (2001:db8::1): icmp_seq=1 ttl=57 time=0.045 ms", 45_000),
        ("64 bytes from 192.0.2.1: icmp_req=1 ttl=57 time=21.3 ms", 21_300_000),
        ("64 bytes from 192.0.2.1: seq=1 ttl=64 time=0.123 ms", 123_000),
        ("16 bytes from 2001:db8::1, icmp_seq=1 hlim=57 time=9.871 ms", 9_871_000),
        ("64 Bytes von 192.0.2.1: icmp_seq=1 ttl=57 Zeit=21,3 ms", 21_300_000),
        ("64 octets de 192.0.2.1 : icmp_seq=1 ttl=57 temps=21.3 ms", 21_300_000),
        ("[1696500000.123456] 64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=21.3 ms", 21_300_000),
        ("[1696500000.123456] no answer yet for icmp_seq=1", None),
        ("From 192.0.2.9 icmp_seq=1 Destination Host Unreachable", None),
        ("Request timeout for icmp_seq 1", None),
        ("64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=99999999999999999999 ms", None),
    ],
)
def test_answers_of_many_pings_are_understood(folder: Path, line: str, trip_ns: int | None) -> None:
    stamp = "[1696500001.5] " if line.startswith("[") else ""
    draft = imported(folder, "ping", f"{line}\n{stamp}icmp_seq=2 time=1 ms\n")
    assert [trip for _, trip in rows(draft, "round-trip")] == [trip_ns, MS]


def answers(*numbers: int) -> str:
    return "".join(f"64 bytes from 192.0.2.1: icmp_seq={number} ttl=57 time=20.0 ms\n" for number in numbers)


def at(seconds: float, number: int) -> str:
    return f"[{seconds:.6f}] {answers(number)}"


HEAD = "PING h (192.0.2.1) 56(84) bytes of data.\n"
OF_BSD = "PING h (192.0.2.1): 56 data bytes\n"


@pytest.mark.parametrize(
    ("text", "count", "duration_ns"),
    [
        (HEAD + answers(3, 5, 4), 5, 5 * SECOND),
        (OF_BSD + answers(1), 2, 2 * SECOND),
        (HEAD + answers(3, 5, 4) + "9 packets transmitted, 3 received, 66% packet loss\n", 9, 9 * SECOND),
        (HEAD + answers(3, 5, 4) + "6 packets transmitted, 3 received, 50% packet loss\n", 5, 5 * SECOND),
        (answers(*(it % 65_536 for it in range(65_530, 65_546))), 16, 16 * SECOND),
        (answers(1) + "no answer yet for icmp_seq=2\n" + answers(2, 3), 3, 3 * SECOND),
        (answers(1, 1), 1, SECOND),
        (answers(1) + answers(2).replace("ms", "ms (DUP!)") + answers(2), 2, 2 * SECOND),
        (at(100, 1) + at(100.2, 2) + at(101, 6), 6, 1_200_000_000),
        (HEAD + at(100, 1) + at(100.2, 2) + HEAD + at(200, 1), 3, 200 * SECOND // 1 - 100 * SECOND + 99_800_000_000),
    ],
)
def test_probes_without_an_answer_are_counted(folder: Path, text: str, count: int, duration_ns: int) -> None:
    assert lengths(imported(folder, "ping", text)) == {"round-trip": (count, duration_ns)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hello\n", ": no answer to a ping, such as"),
        (HEAD + answers(1) + HEAD + answers(1), ": line 3: another ping begins at an unknown time"),
        (at(1, 1) + answers(2), ": line 2: some answers have timestamps"),
        (at(100, 1) + at(90, 2), "clock was set"),
        ("x" * 5000, ": line 1: the line is longer than 4096 bytes"),
        (answers(*(it * 30_000 % 65_536 for it in range(20_000))), "probes in 20000 lines: not output of ping"),
        (answers(1, 999_999_999_999_999_999), "probes in 2 lines"),
        ("[9223372036]icmp_seq=1 time=0ms\n[0]icmp_seq=2 time=9223372036854ms\n", "clock was set"),
    ],
)
def test_output_that_is_no_ping_is_refused(folder: Path, text: str, reason: str) -> None:
    assert reason in refusal(folder, "ping", text)
