"""Each field of a file of others replaced, one at a time: an import has a result without it, or ends with one error."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import recorded_files as made
from cellbed.archive.entry import About, Draft
from cellbed.archive.importers import Options
from cellbed.archive.soundness import require_sound
from cellbed.recordings.importing import recognise
from cellbed.support.errors import CellbedError
from cellbed.workloads.web import har, mahimahi
from cellbed.workloads.web.archived import write_warc
from cellbed_node.web import warc
from cellbed_node.web.site import Site
from field_faults import json_faults, line_faults, sample, word_faults
from site_examples import BODIES
from site_examples import har as har_example
from site_examples import mahimahi as write_mahimahi

MOST_ROWS = 1 << 21
"""Rows that ping's output may have for its lost probes."""
FAST = 40
"""Faults of each kind of file in `make test`; all of them in `make test-slow`."""
COUNTS = [
    pytest.param(FAST, id="sample"),
    pytest.param(None, id="all", marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
]


def outcome(read: Callable[[], Any]) -> Any:
    """Return what `read` does, or the text of its error, which is one short line."""
    try:
        return read()
    except CellbedError as error:
        reported = str(error)
    assert reported
    assert len(reported) < 2500
    assert "Traceback" not in reported
    assert all(line.isprintable() for line in reported.splitlines()), reported
    return reported


def values_of(folder: Path, name: str, content: bytes, options: Options) -> dict[str, list[float | None]]:
    """Return the values of each series of a file, all of them sound, by an import as a user does it."""
    path = folder / f"walk.{name}"
    path.write_bytes(content)
    draft = Draft(folder / "draft", About(origin="recorded"))
    draft.folder.mkdir(exist_ok=True)
    recognise([path], {"json": "iperf3", "txt": "ping"}.get(name, name)).read([path], draft, options)
    found = {}
    for part, series in draft.parts.items():
        assert require_sound(series) < MOST_ROWS
        table = series.scan().collect()
        found[part] = table[table.columns[-1]].to_list()
        for column in table:
            assert all(value is None or (math.isfinite(value) and value >= 0) for value in column)
        series.path.unlink()
    for note in draft.notes:
        assert len(note) < 2500
        assert note.isprintable()
    return found


ROUND_TRIPS = [20.5, 21.5, 22.5, 23.5, 24.5, 25.5]
PING = "PING h (192.0.2.1) 56(84) bytes of data.\n" + "".join(
    f"[{1_696_500_000 + 3 * second}.020000] 64 bytes from h (192.0.2.1): icmp_seq={second + 1} ttl=57 time={trip} ms\n"
    for second, trip in enumerate(ROUND_TRIPS)
)
PING += "\n--- h ping statistics ---\n6 packets transmitted, 6 received, 0% packet loss, time 5003ms\n"
TABLE = "time_s,downlink_mbit_s,rtt_ms\n" + "".join(f"{n},{n + 1.5},{n + 20.5}\n" for n in range(8))
DATED = "time;downlink_mbit_s\n" + "".join(f"2025-03-01 08:00:0{n},25;{n + 1},5\n" for n in range(8))
TRIPS_NS = [trip * 1e6 for trip in ROUND_TRIPS]
RATES_BIT_S = [(n + 1.5) * 1e6 for n in range(8)]
LINES: dict[str, tuple[str, str, str, list[float], Options]] = {
    "ping -D": ("txt", PING, "round-trip", TRIPS_NS, Options()),
    "ping": ("txt", PING.replace("[", "").replace(".020000]", ""), "round-trip", TRIPS_NS, Options()),
    "commas": ("csv", TABLE, "downlink", RATES_BIT_S, Options(missing="zero")),
    "tabs": ("csv", TABLE.replace(",", "\t"), "downlink", RATES_BIT_S, Options(missing="hold")),
    "dates": ("csv", DATED, "downlink", RATES_BIT_S, Options(missing="zero")),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", LINES)
def test_lines_of_tables_and_ping(tmp_path: Path, kind: str, count: int | None) -> None:
    name, text, part, values, options = LINES[kind]
    for line, content in sample(line_faults(text.encode()), count, kind):
        found = outcome(lambda content=content: values_of(tmp_path, name, content, options))
        if 0 < line <= len(values):  # neither the head nor the statistics
            assert not isinstance(found, str), (found, content)
            # With another number, an answer may be in the place of one other.
            missing = set(values) - {values[line - 1]} - set(found[part])
            assert len(missing) <= (part == "round-trip"), content


@pytest.mark.parametrize("count", COUNTS)
def test_fields_of_reports_of_iperf3(tmp_path: Path, count: int | None) -> None:
    ups = [(n + 1) * 1e6 for n in range(6)]
    good = json.loads(made.iperf3_report((up, 2 * up) for up in ups))
    good["start"]["timestamp"] = {"time": "Tue, 14 Nov 2023 22:13:20 GMT", "timesecs": 1_700_000_000}
    for interval in good["intervals"]:
        interval["streams"] = []
    stream = [{"event": "start", "data": good["start"]}]
    stream += [{"event": "interval", "data": each} for each in good["intervals"]]
    reports: list[tuple[str, Any]] = [("json", good), ("stream", stream)]
    for kind, value in reports:
        for at, odd in sample(json_faults(value), count, kind):
            content = json.dumps(odd) if kind == "json" else "\n".join(map(json.dumps, odd))
            found = outcome(lambda content=content: values_of(tmp_path, "json", content.encode(), Options()))
            number = at[1] if kind == "json" and at[0] == "intervals" and len(at) > 1 else None
            number = int(at[0]) - 1 if kind == "stream" and isinstance(at[0], int) and at[0] else number
            if isinstance(number, int):
                assert not isinstance(found, str), (found, at)
                assert set(found["uplink"]) >= set(ups) - {ups[number]}, at
    for _, content in sample(line_faults(json.dumps(good, indent=1).encode()), count, "lines"):
        outcome(lambda content=content: values_of(tmp_path, "json", content, Options()))


@pytest.mark.parametrize("count", COUNTS)
def test_words_of_captures(tmp_path: Path, count: int | None) -> None:
    packets = made.download(12)
    for name, make, head in (("pcap", made.pcap, 16), ("pcapng", made.pcapng, 28)):
        first = len(make([]))
        starts = [(len(make(packets[:number])), head) for number in range(len(packets))]
        content = make(packets)
        heads = list(word_faults(content, [(0, first), *starts]))
        for number, odd in sample(heads, count, name):
            found = outcome(lambda odd=odd: values_of(tmp_path, "pcap", odd, Options(direction="downlink")))
            if number > 2 and not isinstance(found, str):
                assert len(found["downlink"]) <= 800  # a packet of 1 MiB at most


def read_har(folder: Path, value: Any) -> Site:
    path = folder / "x.har"
    path.write_text(json.dumps(value))
    return har.read(path)


def require_others(site: Site | str, changed: str | None) -> None:
    """Check that the other replies of the example are there, whole, and that each missing one is counted."""
    if isinstance(site, str):
        assert changed is None, site
        return
    whole = {each.url: each for each in site.exchanges}
    for each in site.exchanges:
        assert 200 <= each.status <= 599
        assert each.url.isprintable()
        assert each.url.isascii()
    for line in (*site.left_out.named, *site.remarks):
        assert len(line) < 500
        assert line.isprintable()
    if changed is None:
        return
    assert len(site.exchanges) + site.left_out.count >= len(BODIES) - 1
    for url, (kind, body) in BODIES.items():
        if url != changed:
            assert (gzip.decompress(whole[url].body) if kind == "text/css" else whole[url].body) == body


@pytest.mark.parametrize("count", COUNTS)
def test_fields_of_hars(tmp_path: Path, count: int | None) -> None:
    good = har_example()
    urls = list(BODIES)
    for at, odd in sample(json_faults(good), count and 2 * count, "har"):
        changed = urls[at[2]] if at[:2] == ("log", "entries") and len(at) > 2 and isinstance(at[2], int) else None
        require_others(outcome(lambda odd=odd: read_har(tmp_path, odd)), changed)


@pytest.mark.parametrize("count", COUNTS)
def test_lines_of_warc_files(tmp_path: Path, count: int | None) -> None:
    path, again = tmp_path / "x.warc", tmp_path / "y.warc"
    write_warc(path, read_har(tmp_path, har_example()))
    content = path.read_bytes()
    urls = list(BODIES)
    record, faults = -1, []
    for number, line in enumerate(content.splitlines(keepends=True)):
        record += line.startswith(b"WARC/1.1")
        if len(line) < 200 and (b": " in line or b"HTTP/1.1" in line or line.startswith(b"WARC")):
            faults += [(record, odd) for at, odd in line_faults(content, number)]
    for record, odd in sample(faults, count, "warc"):
        again.write_bytes(odd)
        site = outcome(lambda: warc.read(again, partly=True))
        require_others(site, None)
        # A record whose end is unknown may take the next one with it.
        missing = {urls[at // 2] for at in (record - 1, record) if 0 <= at // 2 < len(urls)}
        assert isinstance(site, str) == (record == 0 and isinstance(site, str)), site
        assert isinstance(site, str) or {each.url for each in site.exchanges} >= set(urls) - missing
    for end in range(0, len(content), max(1, len(content) // (count or 400))):
        again.write_bytes(content[:end])
        require_others(outcome(lambda: warc.read(again, partly=True)), None)


@pytest.mark.parametrize("count", COUNTS)
def test_bytes_of_files_of_mm_webrecord(tmp_path: Path, count: int | None) -> None:
    folder = tmp_path / "recorded"
    write_mahimahi(folder)
    file = folder / "save.8"  # the stylesheet, in chunks
    good = file.read_bytes()
    places = sample(((at, new) for at in range(min(len(good), 600)) for new in (0, 1, 0x7F, 0xFF)), count, "mm")
    for at, new in places:
        file.write_bytes(good[:at] + bytes([new]) + good[at + 1 :])
        site = outcome(lambda: mahimahi.read(folder))
        require_others(site, None)
        assert {each.url for each in site.exchanges} >= {url for url in BODIES if "a.css" not in url}
