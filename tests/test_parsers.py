"""Whatever is in a file or on a command line is understood or refused in a sentence, and never anything else.

Texts are right ones with a few changes, which come further than random ones. ``FUZZ_EXAMPLES=100000 pytest
tests/test_parsers.py`` looks longer. The parsers in Rust have fuzz targets, see CONTRIBUTING.md.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed._core import parse_trace, toml_positions
from cellbed.errors import CellbedError
from cellbed.mahimahi.events import read_events
from cellbed.mahimahi.queues import parse_queue
from cellbed.mahimahi.rates import constant_trace, parse_rate
from cellbed.measure.packets import MAGIC, RECORD
from cellbed.packetlog.log import open_log
from cellbed.packetlog.tables import write_csv
from cellbed.scenario import load_text
from cellbed.scenario.settings import read_settings
from cellbed.scenario.units import BIT_RATE, DURATION, FREQUENCY, SIZE, parse_probability

thorough = settings(max_examples=int(os.environ.get("FUZZ_EXAMPLES", "150")), deadline=None)

SCENARIO = """
name = "x"
duration = "60 s"
seed = 1
[nodes.endpoint]
count = 2
cpus = 1.0
memory = "512 MiB"
[nodes.edge]
cpus = 2.0
memory = "2 GiB"
[links.mobile]
up = "lte-suburban.up"
down = { kind = "series", steps = [["0 s", "1 Mbit/s"], ["5 s", "0 bit/s"]], period = "9 s" }
base_delay = { kind = "normal", mean = "10 ms", deviation = "2 ms", correlation = 0.5 }
queue = { uplink = { kind = "codel", target = "5 ms" }, downlink = { kind = "droptail", limit = "100 packets" } }
loss = { uplink = 0.01, downlink = { kind = "gilbert-elliott", to_bad = 0.1, to_good = 0.5 } }
duplication = "1 %"
start = "3 s"
[[links.mobile.changes]]
at = "30 s"
up = "2 Mbit/s"
[links.core]
edge = "base-edge"
[transport]
congestion_control = "reno"
[workload]
kind = "image-classification"
on = "edge"
rate = "8 /s"
"""

MAHIMAHI_LOG = b"""# mahimahi mm-link (uplink) [trace] > log
# command line: mm-link a b
# queue: infinite
# init timestamp: 1700000000000
# base timestamp: 12
12 # 1504
13 + 1504
14 # 1504
14 - 1504 1
15 d 1 1504
"""

TOKENS = [
    *"\0\n\r\t \"'{}[]=,.#+-%_\u00b5\u0130\u2028\ud7ff",
    "nan", "inf", "1e309", "-0", "99999999999999999999", "0x10", "true", "null", "''' ", "[[", "\ufeff", "../", "٣",
]  # fmt: skip


def changed(text: str) -> st.SearchStrategy[str]:
    """The text with up to five pieces cut out, doubled or replaced."""
    place = st.integers(0, len(text))
    piece = st.sampled_from(TOKENS) | st.text(max_size=8)
    edits = st.lists(st.tuples(place, st.integers(0, 12), piece | st.none()), max_size=5)

    def apply(edits: list[tuple[int, int, str | None]]) -> str:
        result = text
        for at, length, new in edits:
            cut = result[at : at + length]
            result = result[:at] + (2 * cut if new is None else new) + result[at + length :]
        return result

    return edits.map(apply)


def refuses_well(parse: Callable[[], object], *kinds: type[Exception]) -> None:
    """Fails unless `parse` works or raises one of these, with a text that does nothing to a terminal."""
    try:
        parse()
    except kinds as error:
        text = str(error)
        assert text
        assert all(character == "\n" or category(character) != "Cc" for character in text), text


@thorough
@given(changed(SCENARIO))
def test_scenarios(text: str) -> None:
    refuses_well(lambda: load_text(text, Path("x.toml")), CellbedError)


@thorough
@given(changed(SCENARIO))
def test_positions_in_toml(text: str) -> None:
    refuses_well(lambda: toml_positions(text), ValueError)


@pytest.mark.parametrize("kind", [DURATION, SIZE, BIT_RATE, FREQUENCY], ids=lambda kind: kind.name)
@thorough
@given(text=st.sampled_from(["12 Mbit/s", "1.5 ms", "512 MiB", "2 /min"]).flatmap(changed))
def test_quantities(kind: Any, text: str) -> None:
    def parse() -> None:
        value = kind.parse(text)
        assert kind.parse(kind.format(value)) == value

    refuses_well(parse, ValueError)
    refuses_well(lambda: parse_probability(text), ValueError)


@thorough
@given(
    st.sampled_from(
        ["rate=12 Mbit/s", "rate=token-bucket rate=1Mbit/s burst=15kB", "delay=normal mean=20ms deviation=3ms",
         "delay=20", "queue=codel target=5ms limit=100 packets", "queue=100 packets", "loss=1 %",
         'loss={ kind = "on-off", on = "1 s", off = "2 s" }', "duplication=0.5", "rate=lte-suburban.up"]
    ).flatmap(changed)
)  # fmt: skip
def test_settings_of_links(word: str) -> None:
    refuses_well(lambda: read_settings([word], Path()), CellbedError)


@thorough
@given(changed(MAHIMAHI_LOG.decode()) | st.text())
def test_logs_of_mahimahi(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")

    def read() -> None:
        for events in read_events(io.BytesIO(data), "log"):
            lengths = {len(column) for column in (events.time, events.kind, events.size, events.delay)}
            assert len(lengths) == 1

    refuses_well(read, CellbedError)


@thorough
@given(
    st.sampled_from(["droptail", "codel", "pie", "infinite", "drophed"]),
    changed('packets=10, bytes=0x500 target="5" interval=100 qdelay_ref=20,max_burst=75'),
)
def test_queues_of_mahimahi(kind: str, arguments: str) -> None:
    refuses_well(lambda: parse_queue(kind, arguments, "--uplink-queue", 1), CellbedError)


@thorough
@given(st.sampled_from(["12mbit", "1.5 Gbit/s", "100kbps"]).flatmap(changed))
def test_rates_of_mahimahi(text: str) -> None:
    def parse() -> None:
        rate = parse_rate(text)
        if rate is not None and rate < 10**7:
            assert constant_trace(rate)

    refuses_well(parse, CellbedError)


@thorough
@given(changed("# a trace\n1\n1\n2\r\n\n5\n4294967295\n") | st.text())
def test_traces(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "some.up"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    def parse() -> None:
        trace = parse_trace(path)
        assert trace.opportunities > 0
        assert trace.next_opportunity(0) <= trace.duration_ns

    refuses_well(parse, ValueError)


@thorough
@given(
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 3 * 64 + 20), st.integers(0, 255)), max_size=6),
    st.integers(0, 16 + 3 * 64),
)
def test_packet_logs(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, changes: list[tuple[int, int]], end: int
) -> None:
    records = np.zeros(3, RECORD)
    records["arrived"], records["released"], records["departed"], records["observed"] = 1, 2, 3, 4
    records["bytes"], records["payload"] = 1500, 1400
    right = bytearray(MAGIC + records.tobytes())
    for place, value in changes:
        if place < len(right):
            right[place] = value
    path = tmp_path_factory.getbasetemp() / "packets"
    for content in (bytes(right[:end]), bytes(right), MAGIC + noise, noise):
        path.write_bytes(content)

        def read() -> None:
            log = open_log(path)
            assert sum(len(records) for records in log.chunks()) == log.count
            write_csv(log, io.BytesIO())

        refuses_well(read, CellbedError)
