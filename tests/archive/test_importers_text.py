"""Readers of text of other programs: tables, reports of iperf3, and output of ping."""

import json
from pathlib import Path
from typing import Any

import pytest

from cellbed.archive import TraceError
from cellbed.archive.entry import About, Draft
from cellbed.archive.importers import Options
from cellbed.recordings.importing import recognise
from recorded_files import HSDPA, MS, SECOND, half


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "draft").mkdir()
    return tmp_path


def imported(folder: Path, as_format: str | None, content: str | bytes, options: Options | None = None) -> Draft:
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
    ("text", "reason"),
    [
        ("0,x\n1,1\n", "line 2: `x` is not a number"),
        ("1,1\nnow,1\n", "line 3: `now` is not a possible time in the assumed unit: for another unit, --column time="),
        ("12:00:00,1\n12:00:01,1\n", "line 2: `12:00:00` is not a possible time"),
        ("0,1 Mbit/s\n1,2 Mbit/s\n", "line 2: `1 Mbit/s` is not a number"),
        ("nan,1\n1,1\n", "line 2: `nan` is not a possible time"),
        ("1,1\n99999999999999999999,1\n", "line 3: `99999999999999999999` is not a possible time"),
        ("1,1\n1e12,1\n", "line 3: `1e12` is not a possible time"),
        ("1,1\n9223372036.854775807,1\n", "line 3: its time is 9223372035.85 s after the row above"),
        ("1,1\n\n0,1\n", "line 4: its time is 1 s before"),
        ("0,1\n1,-1\n", "line 3: impossible rate of -1000000 bit/s"),
        ("0,1\n1,inf\n", "line 3: `inf` is not a number"),
        ("0,1\n1,1e7\n", "line 3: impossible rate"),
        ("0,1\n1,2\n2,3\n0,4\n1,5\n2,6\n", "line 5: its time is 2 s before the row above: another run begins"),
        ("9,1\n8,2\n7,3\n6,4\n", "line 3: its time is 1 s before the row above: sort by time"),
        ("0,1\n1,\n", "line 3: missing rate: write --missing zero"),
        ("0,1\n0,1\n", "write --duration"),
        (f"0,1\n1,{'7' * (2 << 20)}\n", "not a row of a table: field larger than"),
    ],
)
def test_a_refused_table_names_line_and_value(folder: Path, text: str, reason: str) -> None:
    assert reason in refusal(folder, "csv", "time_s,downlink_mbps\n" + text)


ROWS = [f"{second},{second + 1}" for second in range(6)]


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ("2,x", "`x` is not a number"),
        ("2,inf", "`inf` is not a number"),
        ("2,-3", "impossible rate of -3000000 bit/s"),
        ("2,1e9", "impossible rate of 1e+15 bit/s"),
        ("2", "`(a row of 1 cell)` is not a possible time"),
        ("2,3,7", "`(a row of 3 cells)` is not a possible time"),
        ("two,3", "`two` is not a possible time"),
        ("-2,3", "its time is 3 s before the row above"),
        ("1000,3", "its time is 999 s after the row above"),
        ("9e17,3", "`9e17` is not a possible time"),
        ('"2,3', "`(a row of"),
        ("time_s,downlink_mbps", "`time_s` is not a possible time"),
    ],
)
def test_an_odd_row_of_a_table_is_left_out_and_named(folder: Path, odd: str, reason: str) -> None:
    lines = [*ROWS[:2], odd, *ROWS[3:]]
    draft = imported(folder, "csv", "\n".join(["time_s,downlink_mbps", *lines, ""]))
    kept = [rate for _, rate in rows(draft, "downlink")]
    assert kept == [1e6, 2e6, 4e6, 5e6, 6e6] or (odd[0] == '"' and kept == [1e6, 2e6, 3e6, 4e6, 5e6, 6e6])
    assert odd[0] == '"' or f"line 4: {reason}" in " ".join(draft.notes)


def test_a_first_row_out_of_order_is_left_out(folder: Path) -> None:
    for odd in ("1e9,9", "-1e9,9"):
        draft = imported(folder, "csv", "\n".join(["time_s,downlink_mbps", odd, *ROWS, ""]))
        assert rows(draft, "downlink") == [(n * SECOND, (n + 1) * 1e6) for n in range(6)]


@pytest.mark.parametrize(
    "text",
    [
        "0.0  1\n1.0  2\n2.0  3\n",
        "   0.000   1.00\n   1.000   2.00\n  12.000   3.00  \n",
        "time_s downlink_mbps\n0   1\n1   2\n2   3\n",
        "time_s,downlink_mbps\n0,1,\n1,2,\n2,3,\n",
        "time_s,downlink_mbps,,\n0,1\n1,2\n2,3\n",
        "0,1,\n1,2,\n2,3,\n",
        "sep=;\nTime;Downlink\n0;1\n1;2\n2;3\n",
        "Date;2025-03-01\nTime;Downlink\n0;1\n1;2\n2;3\n",
        "Device: x\nLog of today\nTime;Downlink\ns;Mbit/s\n0;1,0\n1;2,0\n2;3,0\n3;3,0\n4;3,0\n",
    ],
)
def test_tables_of_other_programs_are_recognised(folder: Path, text: str) -> None:
    columns = {"time": "1:s", "downlink": "2:Mbit/s"}
    draft = imported(folder, None, text, Options(columns=columns))
    assert [rate for _, rate in rows(draft, "downlink")][:3] == [1e6, 2e6, 3e6]


@pytest.mark.parametrize(
    "time",
    ["2021-04-30 12:00:00,25", "20210430T120000.25Z", "2021-04-30t12:00:00.25z", "2021-W17-5T12:00:00.25",
     "2021W175T120000,25Z", "2021-120T12:00:00.25", "2021120T140000.25+02", "2021.04.30_12.00.00.25",
     "2021-04-30T14:00:00.250+02:00", "2021-04-30 12:00:00.25 UTC", "2021/04/30 12:00:00:25",
     "2021-04-30T07:00:00.25-0500", "2021-04-30 12:00:00.25 GMT"],
)  # fmt: skip
def test_times_with_the_year_first_are_read_in_any_form(folder: Path, time: str) -> None:
    text = f"time;rtt_ms\n2021-04-30T12:00Z;1\n{time};2\n"
    draft = imported(folder, None, text)
    assert rows(draft, "round-trip")[1][0] == SECOND // 4
    assert draft.about.date == "2021-04-30T12:00:00Z"
    days = imported(folder, "csv", "time;rtt_ms\n2021-04-30 12;1\n2021-05-01;2\n2021-13-01;3\n2021-05-02;2\n")
    assert [at_ns // (12 * 3600 * SECOND) for at_ns, _ in rows(days, "round-trip")] == [0, 1, 3]


def test_a_rate_held_over_a_hole_is_noted(folder: Path) -> None:
    text = "time_s,downlink_mbit_s\n0,100\n1,100\n2,900\n12,100\n13,100\n"
    notes = " ".join(imported(folder, "csv", text).notes)
    assert "line 4: 900 Mbit/s hold for 10 s, 10 times as long as usual (mean 671 Mbit/s, of the rows 260" in notes
    text = text.replace("12,", "4,").replace("13,", "5,")
    assert "times as long" not in " ".join(imported(folder, "csv", text).notes)


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
    whole = json.dumps({"start": start, "intervals": [], "end": {}}, indent="\t")
    for end in (f"\n{whole}", f"\n{json.dumps(json.loads(whole))}\n"):
        again = imported(folder, "iperf3", text + end)  # --json-stream-full-output
        assert lengths(again) == {"downlink": (3, 3 * SECOND)}
        assert not any("truncated" in note or "left out" in note for note in again.notes)
    odd = text.replace("\n", "\nwarning: x\n", 1).replace('"end": 2', '"end": "x"')
    draft = imported(folder, "iperf3", odd)
    assert rows(draft, "downlink") == [(0, 8e6), (2 * SECOND, 8e6)]
    assert "1 line is no part of the report and left out: line 2: `warning: x`" in draft.notes
    assert "1 row of the downlink is left out: line 4: malformed sum.end: Input should be" in " ".join(draft.notes)
    assert "line 5: another test begins there" in refusal(folder, "iperf3", f"{text}\n{text}")


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ("warning: JSON data length overflow\n", "", "line 1: `warning: JSON data length overflow`"),
        (
            "",
            "\niperf3: error - unable to send: Broken pipe\n",
            "line 2: `iperf3: error - unable to send: Broken",
        ),
        ('parameters:\n{\n"tcp": true\n}\n', "", "`parameters:`; line 2: a document that is no report"),
        ("\x1b[F\x1b[?25h", "\x1b[0m", None),
    ],
)
def test_lines_around_a_report_are_left_out_and_named(folder: Path, before: str, after: str, note: str | None) -> None:
    draft = imported(folder, None, before + report(intervals=upload(jitter_ms=float("nan"))) + after)
    assert rows(draft, "uplink") == [(0, 8e6), (SECOND, 8e6)]
    assert [each for each in draft.notes if ("no part of the report" in each and (note or "?") in each) or not note]


def test_odd_intervals_are_left_out_and_a_truncated_report_is_read(folder: Path) -> None:
    intervals: list[Any] = [{"sum": half(it, (it + 1) * 1e6, True)} for it in range(6)]
    for place, value in (
        (("sum", "end"), -1),
        (("sum", "start"), 1e9),
        (("sum", "bits_per_second"), -5.0),
        (("sum",), 3),
    ):
        odd = json.loads(json.dumps(intervals))
        inner = odd[2]
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        draft = imported(folder, "iperf3", report(intervals=odd))
        assert [rate for _, rate in rows(draft, "uplink")] == [1e6, 2e6, 4e6, 5e6, 6e6]
        assert "1 row of the uplink is left out: interval 3: " in " ".join(draft.notes)
    text = report(intervals=intervals)
    cut = imported(folder, "iperf3", text[: text.index('"end": 5')])
    assert [rate for _, rate in rows(cut, "uplink")] == [1e6, 2e6, 3e6, 4e6]
    assert "line 1: the report is truncated or damaged: the intervals before were read" in cut.notes


def test_an_impossible_date_of_a_report_is_noted(folder: Path) -> None:
    text = json.loads(report(intervals=upload()))
    text["start"]["timestamp"] = {"timesecs": "soon"}
    draft = imported(folder, "iperf3", json.dumps(text))
    assert draft.about.date is None
    assert "`soon` is not a time since 1970" in " ".join(draft.notes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"start":{},"error":"unable to connect - or use a different port"}', "reports `unable to connect - or use a"),
        ('{"start":{},"intervals":[],"end":{}}', "no intervals: expected a report of iperf3 --json"),
        (report(intervals=[{"sum": half(0, -1.0, True)}]), "interval 1: impossible rate of -1 bit/s"),
        (report(intervals=upload(end=-4)), "interval 1: impossible interval from 0 s to -4"),
        (report(intervals=[{"sum": half(1, 1.0, True)}, {"sum": half(0, 1.0, True)}]), "interval 2: its time is 1 s"),
        (report(intervals=upload(end="1")), "interval 1: malformed sum.end: Input should be a valid number"),
        (report(intervals=upload(end=float("nan"))), "interval 1: malformed sum.end: Input should be a valid number"),
        (report(intervals=upload())[:200], "truncated"),
        (report(intervals=upload()) + "\n" + report(intervals=upload()), "line 2: another report begins there"),
        (report(intervals=upload()).replace(",", ";"), "line 1: the JSON is truncated or damaged"),
        ('{"a":' * 100_000, "not JSON: nested too deeply"),
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
        ("64 字节，来自 192.0.2.1: icmp_seq=1 ttl=57 时间=21.3 毫秒", 21_300_000),
        ("64 байт от 192.0.2.1: icmp_seq=1 ttl=57 время=21.3 мс", 21_300_000),
        ("64 バイト応答 送信元 192.0.2.1: icmp_seq=1 ttl=57 時間=21.3ミリ秒", 21_300_000),
        ("12:00:01.123456 64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=850 us", 850_000),
        ("64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time<1 ms", MS),
        ("64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=812000 ns", 812_000),
        ("64 байт от 192.0.2.1: icmp_seq=1 ttl=57 время=812,5 мкс", 812_500),
        ("64 байт от 192.0.2.1: icmp_seq=1 ttl=57 время=1,5 с", 1_500_000_000),
        ("From 192.0.2.9 icmp_seq=1 Packet too big: mtu=1480", None),
        ("From 192.0.2.9 icmp_seq=1 Frag needed and DF set (mtu = 1480)", None),
        ("Zeitüberschreitung bei icmp_seq 1", None),
    ],
)
def test_answers_of_many_pings_are_understood(folder: Path, line: str, trip_ns: int | None) -> None:
    stamp = "[1696500001.5] " if line.startswith("[") else ""
    draft = imported(folder, "ping", f"{line}\n{stamp}icmp_seq=2 time=1 ms\n")
    assert [trip for _, trip in rows(draft, "round-trip")] == [trip_ns, MS]


def test_translated_output_of_ping_is_no_table(folder: Path) -> None:
    lines = [f"64 字节，来自 192.0.2.9: icmp_seq={n} ttl=57 时间=20.5 毫秒\n" for n in range(1, 6)]
    assert len(rows(imported(folder, None, "".join(lines)), "round-trip")) == 5


@pytest.mark.parametrize(
    "line",
    [
        "12 bytes from 192.0.2.1: icmp_seq=2 ttl=57",
        "64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 ti",
        "64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=x ms",
        "64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=-3 ms",
        "64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=99999999999999999999 ms",
        "[100.5] 64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=20 ms",
        "64 bytes from 192.0.2.1: icmp_seq=2 ttl=57 time=99999999 ms",
    ],
)
def test_an_answer_that_cannot_be_read_is_left_out_and_is_no_loss(folder: Path, line: str) -> None:
    draft = imported(folder, "ping", f"{HEAD}{answers(1)}{line}\n{answers(3, 4)}")
    assert rows(draft, "round-trip") == [(0, 20 * MS), (2 * SECOND, 20 * MS), (3 * SECOND, 20 * MS)]
    assert "1 row of the round-trip is left out: " in " ".join(draft.notes)


def test_an_answer_with_an_odd_timestamp_is_left_out(folder: Path) -> None:
    for odd in (at(5, 2), at(1e8, 2)):
        draft = imported(folder, "ping", HEAD + at(100, 1) + odd + at(102, 3) + at(103, 4))
        assert [row for row in rows(draft, "round-trip")] == [(n * SECOND, 20 * MS) for n in (0, 2, 3)]
        assert "left out: answer 2: its time is" in " ".join(draft.notes)


@pytest.mark.parametrize(
    "summary",
    [
        "9 packets transmitted, 1 received, 88.8889% packet loss, time 2003ms",
        "9 packets transmitted, 1 packets received, +2 errors, 88.9% packet loss",
        "已发送 9 个包， 已接收 1 个包, 88.8889% packet loss, time 9012ms",
        "9 paketler iletildi, 1 alındı, %88,8889 paket kaybı",
        "送信パケット数 9, 受信パケット数 1, +1 エラー, 88% パケット損失, 時間 9012ms",
    ],
)
def test_a_summary_in_any_language_counts_lost_probes(folder: Path, summary: str) -> None:
    assert len(rows(imported(folder, "ping", f"{HEAD}{answers(1)}{summary}\n"), "round-trip")) == 9


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
        ("hello\n", ": not output of ping: it has no answer to a ping, such as"),
        ("[1.0] 192.0.2.9 : [0], 64 bytes, 20.0 ms (21.0 avg, 0% loss)\n" * 5, ": not output of ping"),
        ("Reply from 192.0.2.1: bytes=32 time=20ms TTL=57\n" * 5, ": line 1: an answer without a possible"),
        ("12 bytes from 192.0.2.1: icmp_seq=1 ttl=57\n" * 5, ": line 1: an answer without a time"),
        ("no answer yet for icmp_seq=1\nno answer yet for icmp_seq=2\n", ": none of its 2 probes was answered"),
        (f"{HEAD}From 192.0.2.1 icmp_seq=1 Destination Host Unreachable\n", ": none of its 1 probe was answered"),
        (
            HEAD + "\n10 packets transmitted, 9 received, 10% packet loss\n",
            ": a summary without the answers, as of ping",
        ),
        (HEAD + answers(1) + HEAD + answers(1), ": line 3: another ping begins at an unknown time"),
        (at(1, 1) + at(2, 2) + at(3, 3) + answers(4, 5, 6), ": line 1: an answer with a timestamp"),
        (at(100, 1) + at(90, 2), "answer 2: its time is 10 s before the row above"),
        (HEAD + at(100, 1) + HEAD + at(90, 1), ": a ping begins before the last answer of the ping above it"),
        ("x" * 5000, ": line 1: the line is longer than 4096 bytes"),
        (answers(*(it * 30_000 % 65_536 for it in range(20_000))), "probes in 20000 lines: not output of ping"),
        (answers(1, 999_999_999_999_999_999), "line 2: an answer without a possible sequence number"),
        ("[9223372036]icmp_seq=1 time=0ms\n[0]icmp_seq=2 time=9223372036854ms\n", "answer 2: its time is"),
    ],
)
def test_output_that_is_no_ping_is_refused(folder: Path, text: str, reason: str) -> None:
    assert reason in refusal(folder, "ping", text)


PUBLISHED = {
    "lumos5g": "run_num,seq_num,latitude,nrStatus,Throughput,mobility_mode\n"
    "1,1,44.97,CONNECTED,500.5,walking\n1,2,44.97,CONNECTED,0,walking\n1,3,44.97,NONE,20,walking\n",
    "5gophers": "protocol,num_tcp_conn,seq_num,anonymized_mCid,radio_type,throughput_mbps,nrStatus\n"
    "TCP,8,1,3,5G,500.5,CONNECTED\nTCP,8,2,3,5G,0,CONNECTED\nTCP,8,3,3,4G,20,NONE\n",
    "irish": "Timestamp,Longitude,Latitude,NetworkMode,CQI,DL_bitrate,UL_bitrate,PINGAVG\n"
    "2019.12.14_10.16.30,-8,51,5G,9,500500,90,-\n2019.12.14_10.16.31,-8,51,5G,9,0,90,12\n"
    "2019.12.14_10.16.32,-8,51,LTE,9,20000,90,-\n",
}
"""Invented rows in the layouts of published data sets."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_tables_of_published_data_sets_need_no_options(folder: Path, name: str) -> None:
    draft = imported(folder, "csv", PUBLISHED[name])
    assert rows(draft, "downlink") == [(0, 500.5e6), (SECOND, 0.0), (2 * SECOND, 20e6)]
    assert list(draft.parts) == ["downlink"]


def test_named_columns_precede_those_of_a_published_data_set(folder: Path) -> None:
    draft = imported(folder, "csv", PUBLISHED["irish"], Options(columns={"round-trip": "PINGAVG:ms"}))
    assert list(draft.parts) == ["round-trip"]
    draft = imported(folder, "csv", PUBLISHED["lumos5g"], Options(columns={"downlink": "Throughput:kbit/s"}))
    assert rows(draft, "downlink")[0] == (0, 500.5e3)


def test_several_runs_in_one_table_are_refused_with_a_remedy(folder: Path) -> None:
    again = "".join(f"2,{second},44.97,CONNECTED,7,walking\n" for second in (1, 2, 3))
    assert "another run begins here: write each run into a separate file" in refusal(
        folder, "csv", PUBLISHED["lumos5g"] + again
    )


def test_downloads_on_the_move_have_the_rate_since_the_line_before(folder: Path) -> None:
    draft = imported(folder, "hsdpa", HSDPA)
    assert rows(draft, "downlink") == [(0, 1.984e6), (SECOND, 1.532e6), (2 * SECOND, 0.0)]
    assert lengths(draft)["downlink"] == (3, 3250 * MS)
    assert draft.about.date == "2011-03-13T07:06:39Z"
    odd = HSDPA + b"1300000003 73250 60.1 11.5 x 1000\n1300000004 74250 60.1 11.5 5 0\n"
    draft = imported(folder, "hsdpa", odd)
    assert lengths(draft)["downlink"] == (3, 3250 * MS)
    assert "2 rows of the downlink are left out: line 4: not a sample" in " ".join(draft.notes)
    assert "not a sample" in refusal(folder, "hsdpa", b"1 2 3\n" * 4)
