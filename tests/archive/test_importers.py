"""Recordings of other programs become series: what is recognised, what is made of it, what is said of it."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

import recorded_files as made
from cellbed._core import parse_trace
from cellbed.archive import TraceError
from cellbed.archive.entry import About, Draft
from cellbed.archive.importers import Options
from cellbed.archive.series import Part, Series
from cellbed.archive.soundness import require_sound
from cellbed.recordings.importing import recognise
from cellbed.recordings.tool_files import NAMES
from recorded_files import DEVICE, MS, SECOND, SERVER, Packet
from run_commands import free_port

TO_US = Options(direction="downlink")


@pytest.fixture
def draft(tmp_path: Path) -> Draft:
    return Draft(_new(tmp_path / "draft"), About(origin="recorded"))


def written(draft: Draft, *paths: Path, options: Options | None = None, as_format: str | None = None) -> Draft:
    importer = recognise(paths, as_format)
    importer.read(paths, draft, options)
    for series in draft.parts.values():
        require_sound(series)
    return draft


def file(tmp_path: Path, name: str, content: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def rows(series: Series) -> list[tuple[object, ...]]:
    return series.scan().collect().rows()


def times(draft: Draft, part: Part) -> list[int]:
    return [int(row[0]) for row in rows(draft.parts[part])]  # type: ignore[call-overload]


def refusal(draft: Draft, *paths: Path, options: Options | None = None, as_format: str | None = None) -> str:
    with pytest.raises(TraceError) as refused:
        written(draft, *paths, options=options, as_format=as_format)
    assert list(draft.folder.iterdir()) == []
    assert draft.parts == {}
    reported = str(refused.value)
    assert "\n" not in reported
    return reported


def test_a_trace_of_mahimahi_is_the_same_trace(tmp_path: Path, draft: Draft) -> None:
    path = file(tmp_path, "walk.up", made.MAHIMAHI)
    assert recognise([path]).what == (
        f"{path}: a trace of delivery opportunities (Mahimahi), as its lines hold a whole number each"
    )
    written(draft, path)
    assert times(draft, "uplink") == [0, MS, MS, 7 * MS, 20 * MS]
    assert draft.parts["uplink"].duration_ns == parse_trace(path).duration_ns == 20 * MS
    (step,) = draft.history
    assert step.how == {"format": "mahimahi"}
    assert len(step.of["walk.up"]) == 64


@pytest.mark.parametrize("odd", ["x", "2.5", "-3", "4294967296", "99999999", "0"])
def test_an_odd_line_of_a_trace_is_left_out_and_named(tmp_path: Path, draft: Draft, odd: str) -> None:
    written(draft, file(tmp_path, "walk.up", f"1\n2\n{odd}\n4\n5\n6".encode()))
    assert times(draft, "uplink") == [number * MS for number in (1, 2, 4, 5, 6)]
    assert "1 line is left out: line 3: " in " ".join(draft.notes)


def test_a_trace_without_a_direction_needs_one(tmp_path: Path, draft: Draft) -> None:
    path = file(tmp_path, "walk", made.MAHIMAHI)
    assert refusal(draft, path) == (f"{path}: unknown direction: write --direction uplink or --direction downlink")
    twice = file(tmp_path, "b.up", b"6\n"), file(tmp_path, "c.up", b"6\n")
    assert "another of the files" in refusal(draft, *twice)
    pair = file(tmp_path, "d.up", b"6\n"), file(tmp_path, "d.down", b"6\n")
    assert "another of the files" in refusal(draft, *pair, options=TO_US)
    assert "unknown direction" in refusal(draft, pair[0], options=Options(direction="both"))
    assert times(written(draft, path, options=TO_US), "downlink")[-1] == 20 * MS


@pytest.mark.parametrize("link", made.LINKS)
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_arrivals_of_the_largest_flow_become_opportunities(
    tmp_path: Path, draft: Draft, link: str, kind: str, order: str
) -> None:
    content = (made.pcap if kind == "pcap" else made.pcapng)(made.download(), link, order=order)
    path = file(tmp_path, "walk.cap", content)
    assert recognise([path]).why == f"it has the first four bytes of {kind}"
    written(draft, path)
    assert list(draft.parts) == ["downlink"]
    assert times(draft, "downlink") == [n * MS for n in range(1, 41)]
    reported = "\n".join(draft.notes)
    assert "the flow tcp 10.0.0.2:40000 192.0.2.1:5201" in reported
    assert "choose another with --flow" in reported
    assert "10.0.0.2 was taken for the device, as it began" in reported
    assert "the uplink was left out: its packets have 52 bytes on average" in reported


def test_the_name_of_a_capture_chooses_no_direction_but_those_of_a_pair_do(tmp_path: Path, draft: Draft) -> None:
    content = made.pcap(made.download())
    written(draft, file(tmp_path, "walk.up.pcap", content))
    assert list(draft.parts) == ["downlink"]
    pair = Draft(_new(tmp_path / "pair"), draft.about)
    files = file(tmp_path, "a.up.pcap", content), file(tmp_path, "a.down.pcap", content)
    written(pair, *files, options=Options(each_packet=True))
    assert set(pair.parts) == {"uplink", "downlink"}
    reported = "\n".join(pair.notes)
    assert "the downlink was left out: only the other direction was asked for" in reported
    assert "left out: its packets" not in reported


def test_a_flow_can_be_chosen_and_its_directions_kept(tmp_path: Path, draft: Draft) -> None:
    packets = [
        *(Packet(n * MS, DEVICE, SERVER, bytes=750, hop_limit=64) for n in range(20)),
        *(Packet(n * MS + 5, SERVER, DEVICE) for n in range(20)),
    ]
    path = file(tmp_path, "both.pcap", made.pcap(sorted([*made.download(at_ns=0), *packets], key=lambda it: it.at_ns)))
    for words in ("udp :5201", "udp,192.0.2.1:5201", "10.0.0.2 :5201 UDP"):
        own = written(Draft(_new(tmp_path / words), draft.about), path, options=Options(flow=words))
        assert times(own, "uplink") == [n * MS for n in range(1, 20, 2)]  # two packets an opportunity
        assert times(own, "downlink") == [n * MS + 5 for n in range(20)]
        assert any("no router has passed on the uplink (hop limit 64)" in note for note in own.notes)
    reported = refusal(draft, path, options=Options(flow="udp :9"))
    assert "no flow matches `udp :9`: the largest are tcp 10.0.0.2:40000 192.0.2.1:5201; udp" in reported
    assert "is not an endpoint of the chosen flow" in refusal(draft, path, options=Options(device="10.9.9.9"))
    options = Options(flow="udp :5201", device="192.0.2.1", direction="uplink", each_packet=True)
    assert times(written(draft, path, options=options), "uplink") == [n * MS + 5 for n in range(20)]


def test_a_capture_that_ends_in_a_packet_is_read_up_to_it(tmp_path: Path, draft: Draft) -> None:
    path = file(tmp_path, "cut.pcap", made.pcap(made.download())[:-30])
    written(draft, path)
    assert any("ends in the middle of a packet" in note for note in draft.notes)
    assert "clock was set" in refusal(
        Draft(_new(tmp_path / "two"), draft.about),
        file(tmp_path, "back.pcap", made.pcap([*made.download(), *made.download(at_ns=0)])),
    )


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["pcap", "pcapng"])
@pytest.mark.parametrize("length", [0x7FFFFFFF, 200_000])
def test_a_capture_damaged_in_between_is_read_up_to_the_packet(
    tmp_path: Path, draft: Draft, kind: str, order: str, length: int
) -> None:
    make = made.pcap if kind == "pcap" else made.pcapng
    packets = made.download()
    content, before = (bytearray(make(packets[:count], order=order)) for count in (len(packets), 20))
    at = len(before) + (8 if kind == "pcap" else 4)  # where the 21st says how long it is
    content[at : at + 4] = length.to_bytes(4, "little" if order == "<" else "big")
    written(draft, file(tmp_path, "mid.cap", bytes(content)))
    assert len(times(draft, "downlink")) == sum(each.source == made.SERVER for each in packets[:20])
    assert any("packet 21" in note and "cannot be read beyond this point" in note for note in draft.notes)


@pytest.mark.parametrize("place", [0, 2, 20])
@pytest.mark.parametrize("step_ns", [-(10**12), 10**12, 10**18])
def test_a_packet_with_an_odd_timestamp_is_left_out(tmp_path: Path, draft: Draft, place: int, step_ns: int) -> None:
    packets = [each for each in made.download() if each.source == made.SERVER]
    packets[place] = replace(packets[place], at_ns=packets[place].at_ns + step_ns)
    written(draft, file(tmp_path, "odd.pcap", made.pcap(packets)))
    if place or step_ns > 0:  # the first packet may well be 1000 s earlier
        assert len(times(draft, "downlink" if "downlink" in draft.parts else "uplink")) == len(packets) - 1
        assert any(f"1 packet is left out: packet {place + 1}: its timestamp is" in note for note in draft.notes)


@pytest.mark.parametrize("order", ["<", ">"])
def test_packets_with_odd_lengths_are_read_by_their_header_or_left_out(
    tmp_path: Path, draft: Draft, order: str
) -> None:
    packets = [each for each in made.download() if each.source == made.SERVER]
    content, head = bytearray(made.pcap(packets, order=order)), 24
    kept = packets[0].kept
    for number, length in ((3, kept), (5, 0), (7, kept + 100)):  # on the wire, of 1514 bytes
        at = head + number * (16 + kept) + 12
        content[at : at + 4] = length.to_bytes(4, "little" if order == "<" else "big")
    written(draft, file(tmp_path, "odd.pcap", bytes(content)))
    (part,) = draft.parts
    assert len(times(draft, part)) == len(packets) - 1
    assert any("2 packets have no length on the wire" in note for note in draft.notes)
    assert any("1 packet is left out: packet 8: its IP header claims 1500 bytes" in note for note in draft.notes)


def test_a_report_of_iperf3_gives_rates_of_both_directions(tmp_path: Path, draft: Draft) -> None:
    path = file(tmp_path, "test.json", made.iperf3_report([(1e6, 9e6), (2e6, 8e6)]))
    assert recognise([path]).format.name == "iperf3"
    written(draft, path)
    assert rows(draft.parts["uplink"]) == [(0, 1e6), (SECOND, 2e6)]
    assert rows(draft.parts["downlink"]) == [(0, 9e6), (SECOND, 8e6)]
    assert draft.parts["uplink"].duration_ns == 2 * SECOND
    assert any("the uplink contains what was sent" in note for note in draft.notes)
    swapped = Draft(_new(tmp_path / "swapped"), draft.about)
    written(swapped, path, options=Options(device="server", direction="uplink"))
    assert rows(swapped.parts["uplink"]) == [(0, 9e6), (SECOND, 8e6)]


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--bidir"], {"uplink", "downlink"}),
        (["-R", "-P", "2"], {"downlink"}),
        (["-u", "-b", "5M", "--get-server-output"], {"uplink"}),
    ],
)
def test_what_iperf3_itself_reports_is_read(tmp_path: Path, draft: Draft, words: list[str], parts: set[str]) -> None:
    port = str(free_port())
    server = subprocess.Popen(["iperf3", "-s", "-1", "-p", port, "-J"], stdout=subprocess.PIPE)
    try:
        report = b"Connection refused"
        while b"Connection refused" in report and server.poll() is None:
            command = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", "1", "-i", "0.25", "-J", *words]
            report = subprocess.run(command, capture_output=True, check=False).stdout
        at_server, _ = server.communicate(timeout=200)
    finally:
        server.kill()
    if json.loads(report).get("error"):
        pytest.skip(f"iperf3 says {json.loads(report)['error']}")
    written(draft, file(tmp_path, "client.json", report))
    assert set(draft.parts) == parts
    for series in draft.parts.values():
        assert series.duration_ns == pytest.approx(SECOND, rel=0.5)
        assert all(row[1] >= 0 for row in rows(series))  # type: ignore[operator]
    other = written(Draft(_new(tmp_path / "other"), draft.about), file(tmp_path, "server.json", at_server))
    assert set(other.parts) == parts


RECORD = b"# started: 2026-01-01T06:00:00Z\ntime_s,rtt_ms\n0.0002,11.2\n1.0005,\n2.0004,11.1\n"


@pytest.mark.parametrize(
    ("name", "content", "date", "method"),
    [
        ("host.csv", RECORD, "2026-01-01T06:00:00Z", None),
        ("ping.txt", made.PING, "2023-10-05T10:00:00Z", "ping of h (192.0.2.1)"),
        ("a.csv", b"time,rtt_ms\n2026-01-01T08:00:00+02:00,3\n2026-01-01T08:00:01+02:00,4\n",
         "2026-01-01T06:00:00Z", None),
        ("old.csv", b"time,rtt_ms\n1970-01-01T00:00:09Z,3\n1970-01-01T00:00:10Z,4\n", None, None),
        ("a.pcap", made.pcap(made.download()), "2023-11-14T22:13:20Z", None),
        ("a.json", made.iperf3_report([(1e6, 2e6)]).replace(
            b'"connecting_to"', b'"timestamp": {"timesecs": 1700000000}, "connecting_to"'),
         "2023-11-14T22:13:20Z", None),
        ("b.json", made.iperf3_report([(1e6, 2e6)]), None, None),
    ],
)  # fmt: skip
def test_when_and_how_a_recording_was_made_is_taken_from_it(
    tmp_path: Path, draft: Draft, name: str, content: bytes, date: str | None, method: str | None
) -> None:
    path = file(tmp_path, name, content)
    written(draft, path)
    assert (draft.about.date, draft.about.method) == (date, method)
    assert any("--date" in note for note in draft.notes) == (date is not None)
    said = draft.about.model_copy(update={"date": "2020"})
    assert written(Draft(_new(tmp_path / "said"), said), path).about.date == "2020"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("t;Throughput\n0,0;1,5\n1,0;2\n", {"time": "t:s", "downlink": "Throughput:Mbit/s"}),
        ("at_ms\tDL bitrate_kbps\n0\t1500\n1000\t2000\n", {"downlink": "DL bitrate_kbps"}),
        ("time,downlink_kB/s\n2021-04-30T12:00:00Z,187.5\n2021-04-30T12:00:01Z,250\n", {}),
        ("time,downlink_kBps\n2021-04-30T12:00:00Z,187.5\n2021-04-30T12:00:01Z,250\n", {}),
        ("when,downlink_kB_s\n2021-04-30 12:00:00.5,187.5\n2021-04-30 12:00:01.5,250\n", {"time": "when:iso"}),
        ("5.0 1.5\n6.0 2.0\n", {"time": "1:s", "downlink": "2:Mbps"}),
        ("# by hand\nepoch,x,mbps\n1619784000000,9,1.5\n1619784001000,9,2\n", {"time": "epoch:ms", "downlink": "mbps"}),
        ("seq,tput_mbps,downlink_kbps\n0,1.5,1\n1,2,1\n", {"time": "seq:s", "downlink": "tput_mbps"}),
        ("at_ns,downlink_bit_s\n0,1500000\n1000000000,2e6\n", {}),
    ],
)
def test_columns_are_chosen_by_the_user(tmp_path: Path, draft: Draft, text: str, columns: dict[str, str]) -> None:
    path = file(tmp_path, "x.csv", text.encode())
    written(draft, path, options=Options(columns=columns))
    assert rows(draft.parts["downlink"]) == [(0, 1.5e6), (SECOND, 2e6)]
    assert draft.parts["downlink"].duration_ns == 2 * SECOND


X = "time_s,x\n1,2\n2,3\n"
RATES = "time_s,downlink_mbps\n1,2\n2,3\n"


@pytest.mark.parametrize(
    ("text", "options", "what"),
    [
        ("a,b\n1,2\n", Options(), "no column is called time_s or the like: it has `a`, `b`: write --column time="),
        (
            "time,rate_mbps\n1,2\n2,3\n",
            Options(columns={"time": "time"}),
            "--column `time=time`: missing unit: write",
        ),
        ("time_s,rate_mbps\n1,2\n2,3\n", Options(), "`rate_mbps` has no direction: write --direction"),
        ("time_s,rate_mbits\n1,2\n", Options(direction="uplink"), "--column uplink=rate_mbits:UNIT"),
        ("downlink_mbit_s,x\n1,2\n2,3\n", Options(columns={"time": "1"}), "missing unit"),
        (X, Options(), "no column is called downlink_mbit_s or the like: it has `time_s`, `x`: write --column"),
        ("time_s,downlink_mbps,downlink_kbps\n1,2,2\n2,3,2\n", Options(), "may both be the downlink: write --column"),
        (X, Options(columns={"downlink": "y:bps"}), "no such column"),
        (X, Options(columns={"downlink": "x:furlong"}), "`furlong` is not a unit: write 'downlink=COLUMN:UNIT', with"),
        (X, Options(columns={"up": "x:bps"}), "a column is one of time, uplink, downlink"),
        ("time_s,downlink_mbps\n1,2\n2,\n", Options(), "--missing"),
        (RATES, Options(direction="uplink"), "`downlink_mbps` is of the downlink"),
        (RATES.replace("1,", "1e12,"), Options(), "`1e12` is not a possible time in the assumed unit"),
        (RATES, Options(flow="udp"), "--flow does not apply to a table (CSV): omit it"),
    ],
)
def test_ambiguous_columns_are_refused_with_the_option_to_use(
    tmp_path: Path, draft: Draft, text: str, options: Options, what: str
) -> None:
    assert what in refusal(draft, file(tmp_path, "x.csv", text.encode()), options=options)


@pytest.mark.parametrize("direction", ["uplink", "both", None])
def test_of_a_table_the_direction_that_is_asked_for_is_kept(
    tmp_path: Path, draft: Draft, direction: Literal["uplink", "both"] | None
) -> None:
    path = file(tmp_path, "g2.csv", b"time_s,uplink_Mbps,downlink_Mbps,rtt_ms\n0,1,2,9\n1,2,3,9\n")
    written(draft, path, options=Options(direction=direction))
    ways = {"uplink"} if direction == "uplink" else {"uplink", "downlink"}
    assert set(draft.parts) == {*ways, "round-trip"}
    assert not any("left out" in note for note in draft.notes)


@pytest.mark.parametrize("names", ["time_s,rate_mbps,x", "time_s,uplink_mbps,downlink_mbps"])
def test_of_tables_named_by_direction_each_gives_one(tmp_path: Path, draft: Draft, names: str) -> None:
    files = [file(tmp_path, f"walk.{way}.csv", f"{names}\n0,1,2\n1,2,3\n".encode()) for way in ("up", "down")]
    assert set(written(draft, *files).parts) == {"uplink", "downlink"}


def test_a_parquet_file_gives_what_the_same_csv_gives(tmp_path: Path, draft: Draft) -> None:
    table = pl.read_csv(made.CSV)
    moments = (pl.col("time_s") * 1e9).cast(pl.Int64).cast(pl.Datetime("ns"))
    kinds = {
        "plain": table,
        "moments": table.with_columns(time_s=moments),
        "zoned": table.with_columns(time_s=moments.dt.replace_time_zone("UTC").cast(pl.Datetime("ms", "UTC"))),
        "texts": table.with_columns(time_s=moments.dt.to_string("iso:strict")),
        "spans": table.with_columns(time_s=(pl.col("time_s") * 1e9).cast(pl.Duration("ns"))),
        "lean": table.with_columns(pl.col("downlink_mbit_s").cast(pl.Float32)),
        "exact": table.with_columns(pl.col("downlink_mbit_s").cast(pl.Decimal(20, 3))),
    }
    for name, kind in kinds.items():
        path = tmp_path / f"{name}.parquet"
        kind.write_parquet(path)
        own = written(Draft(_new(tmp_path / name), draft.about), path)
        assert rows(own.parts["downlink"]) == [(0, 10.5e6), (SECOND // 2, 11e6), (SECOND, 0.0)], name
        assert rows(own.parts["round-trip"])[1] == (SECOND // 2, None), name
    backwards = tmp_path / "backwards.parquet"
    table.reverse().write_parquet(backwards)
    assert f"{backwards}: row 2: its time is 0.5 s before" in refusal(draft, backwards)


def test_invalid_parquet_values_are_refused_with_their_place(tmp_path: Path, draft: Draft) -> None:
    good: dict[str, list[object]] = {"time_ms": [0, 1, 2], "downlink_mbit_s": [1.0, 2.0, 3.0]}
    wrong: dict[str, tuple[dict[str, list[object]], str]] = {
        "no time": ({"time_ms": [0, None, None]}, "row 2: `None` is not a possible time"),
        "no moment": (
            {"time_ms": ["2026-01-01T00:00:00Z", "2500-01-01T00:00:01Z", "soon"]},
            "row 2: `2500-01-01T00:00:01Z` is not a possible time as in 2021-",
        ),
        "far away": ({"time_ms": [0, 1 << 62, 1 << 62]}, f"row 2: `{1 << 62}` is not a possible time"),
        "nested": ({"downlink_mbit_s": [[1], [2], [3]]}, "which is not a number"),
        "text": ({"downlink_mbit_s": ["1", "2", "3"]}, "the column 'downlink_mbit_s' contains"),
        "listed time": ({"time_ms": [[0], [1], [2]]}, "which is not a time"),
        "negative": ({"downlink_mbit_s": [1.0, -2.0, -3.0]}, "row 2: impossible rate of -2000000"),
    }
    for name, (change, said) in wrong.items():
        path = tmp_path / f"{name}.parquet"
        pl.DataFrame(good | change).write_parquet(path)
        assert said in refusal(draft, path), name


@pytest.fixture
def cellreplay(tmp_path: Path) -> Path:
    folder = _new(tmp_path / "theirs")
    heavy = "".join(f"{n * 2}\n" for n in range(1, 200)).encode()
    contents = [made.LIGHT_UP, made.LIGHT_DOWN, heavy, heavy]
    for name, content in zip(list(NAMES.values())[:4], contents, strict=True):
        file(folder, name, content)
    return folder


def test_files_of_cellreplay_become_a_recording_with_series(tmp_path: Path, draft: Draft, cellreplay: Path) -> None:
    assert recognise([cellreplay]).format.name == "cellreplay"
    written(draft, cellreplay, options=Options(idle_ns=(24 * MS, 21 * MS)))
    assert draft.recording == "recording"
    assert (draft.folder / "recording" / "recording.json").is_file()
    assert set(draft.parts) == {"uplink", "downlink", "round-trip"}
    assert len(times(draft, "uplink")) == 199 * 1400 // 1500
    again = written(Draft(_new(tmp_path / "again"), draft.about), draft.folder / "recording")
    assert recognise([draft.folder / "recording"]).format.name == "recording"
    assert times(again, "uplink") == times(draft, "uplink")


def test_grants_in_a_log_of_nrscope_become_capacity_and_load(tmp_path: Path, draft: Draft) -> None:
    log = file(tmp_path, "cell.csv", made.nrscope())
    assert "the most frequent RNTIs are 100, 200" in refusal(draft, log, options=Options(device="7"))
    written(draft, log, options=Options(device="0x64"))
    for part in ("uplink", "downlink"):
        assert [rate for _, rate in rows(draft.parts[part])] == pytest.approx([2e6] * 10)
    load = pl.read_parquet(draft.folder / draft.tables[0])
    uplink, downlink = (load.filter(direction=way) for way in ("uplink", "downlink"))
    assert downlink["others_share"].to_list() == pytest.approx([0.3] * 10)
    assert downlink["others_bit_s"].mean() == pytest.approx(38 * 20_000)
    assert downlink["retransmitted"].mean() == pytest.approx(0.12)
    assert uplink.select("others_share", "others_bit_s", "retransmitted").sum().row(0) == (0, 0, 0)
    assert (draft.about.technology, draft.about.date) == ("5g", "2023-11-14T22:13:20Z")
    everyone = written(Draft(_new(tmp_path / "all"), draft.about), log)
    assert pl.read_parquet(everyone.folder / "load.parquet").filter(direction="downlink")[
        "others_share"
    ].mean() == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.gz", b"\x1f\x8b\x08rest", "compressed by gzip: gunzip it first"),
        ("a.txt", "64 bytes from".encode("utf-16"), "UTF-16"),
        ("a.bin", bytes(range(256)), "unknown format: if it is one of"),
        ("a.csv", b"time_s,rtt_ms\n0,1\n1\n2,3\n", "unknown format: if it is one of"),
        ("b.csv", b"time_s,downlink_mbit_s\n0,1\n1,2,3\n2,3\n", "unknown format: if it is one of"),
        ("c.csv", b"# mine\ntime_s,downlink_mbit_s\n", "unknown format: if it is one of"),
        ("a.up", b"0.5\n1.5\n2.5\n", "unknown format: if it is one of"),
        ("a.json", b'{"hello": 1}', "unknown format: if it is one of"),
        ("ping.txt", made.PING_UNANSWERED, "none of its 4 probes was answered"),
        ("cut.parquet", b"PAR1\x15\x04\x15\x10" * 9, "not a readable Parquet file, perhaps truncated: "),
        ("a", b"", "it is empty"),
    ],
)
def test_unrecognised_files_are_refused_with_the_reason(
    tmp_path: Path, draft: Draft, name: str, content: bytes, what: str
) -> None:
    path = file(tmp_path, name, content)
    reported = refusal(draft, path)
    assert what in reported
    assert str(path) in reported


def test_unreadable_files_are_refused_with_the_reason(tmp_path: Path, draft: Draft) -> None:
    assert "cannot be read: No such file" in refusal(draft, tmp_path / "none")
    assert "no recording in this folder" in refusal(draft, _new(tmp_path / "empty"))
    path = file(tmp_path, "a.up", b"1\n")
    assert "unknown format 'pcapp': did you mean 'pcap'?" in refusal(draft, path, as_format="pcapp")
    assert "capture truncated in its header" in refusal(draft, path, as_format="pcap")
    names = file(tmp_path, "a.csv", b"time_s,downlink_mbps\n")
    assert "its first lines are not table rows" in refusal(draft, names, as_format="csv")
    assert "it is a folder, not a file" in refusal(draft, path, tmp_path)


def test_progress_is_reported_and_can_interrupt_the_import(tmp_path: Path, draft: Draft) -> None:
    path = file(tmp_path, "big.up", b"5\n" * 4_500_000)
    importer = recognise([path])
    heard: list[int] = []
    importer.read([path], draft, progress=heard.append)
    assert 0.7 * importer.work < sum(heard) <= importer.work

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    own = Draft(_new(tmp_path / "own"), draft.about)
    with pytest.raises(KeyboardInterrupt):
        importer.read([path], own, progress=interrupt)
    assert list(own.folder.iterdir()) == []
