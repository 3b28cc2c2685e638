"""Parsers of any text of a user or a file give a value or one sentence with the fault."""

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from any_text import NUMBERS, ODD_TEXT, UNITS, many, value_or_sentence, words
from cellbed.measure.comparison import compare
from cellbed.measure.packetlog.log import open_log
from cellbed.measure.packets import MAGIC, RECORD
from cellbed.measure.summary import collect
from cellbed.report import html, terminal
from cellbed.scenario.settings import read_texts
from cellbed.shell import publish
from cellbed.shell.mahimahi import arguments
from cellbed.shell.mahimahi.arguments import TYPES, constant_trace, find_trace, parse_queue, parse_rate
from cellbed.shell.mahimahi.graphs import read_log
from cellbed.shell.options import EachWay, parse_link
from field_faults import TYPES as VALUES
from field_faults import changed, leaves, sample
from predicted_runs import make_run

KEYS = {
    "rate": words(*NUMBERS, *UNITS, "unlimited", "x.csv", "lte", "constant", "burst", ",", "=", "(", ")"),
    "delay": words(*NUMBERS, *UNITS, "±", "normal", "pareto", "uniform", ",", "correlation", "=", "reorder", "x.csv"),
    "loss": words(*NUMBERS, *UNITS, "bursts", "on", "off", ",", "=", "x.csv"),
    "queue": words(
        *NUMBERS, *UNITS, "codel", "fq_codel", "pie", "red", "dualpi2", "infinite", "target", ",", "=", "ecn"
    ),
}


@many
@given(up=KEYS["rate"], delay=KEYS["delay"], loss=KEYS["loss"], queue=KEYS["queue"], start=words(*NUMBERS, *UNITS))
def test_any_options_of_the_shell_are_a_link_or_an_error(
    up: str, delay: str, loss: str, queue: str, start: str, tmp_path: Path
) -> None:
    def parse(**options: Any) -> Any:
        return value_or_sentence(lambda: parse_link(**options, folder=tmp_path))

    parse(uplink=up)
    parse(delay=EachWay(delay))
    parse(loss=EachWay("0", uplink=loss))
    parse(queue=EachWay(queue))
    parse(start=start)


QUEUES = st.tuples(
    st.sampled_from((*TYPES, "red", "")), words("packets", "bytes", "target", "interval", "=", ",", " ", "qdelay_ref")
)
TEXTS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], object]]] = {
    "published port": (words(":", "/", "tcp", "udp", "127.0.0.1", "[::1]", "80", "65536", "*"), publish.parse),
    "number": (words(*NUMBERS, "e", "_"), lambda text: arguments.number(text, "the delay", "usage", most=100)),
    "queue": (QUEUES, lambda it: parse_queue(*it, "--uplink-queue", 1)),
    "trace": (ODD_TEXT | words("/", ".", "12mbit"), find_trace),
}


@pytest.mark.parametrize("kind", TEXTS)
@many
@given(data=st.data())
def test_any_text_of_mahimahis_commands_is_read_or_an_error(kind: str, data: st.DataObject) -> None:
    strategy, read = TEXTS[kind]
    text = data.draw(strategy)
    value_or_sentence(lambda: read(text))


CELLS = st.sampled_from(("0", "1", "2.5", "-1", "nan", "1e400", "1e999999", "9" * 30, "", '"', '"3"', "x", "\x00", "é"))
HEADINGS = st.sampled_from(("time_s", "time_ms", "rate_mbit_s", "rate_bit_s", "delay_ms", "probability", "", "x"))


@pytest.mark.parametrize("key", ["rate", "delay", "loss"])
@many
@given(
    st.binary(max_size=200)
    | st.tuples(st.lists(HEADINGS, max_size=3), st.lists(st.lists(CELLS, max_size=3), max_size=6)).map(
        lambda it: "\n".join(",".join(line) for line in [it[0], *it[1]]).encode()
    )
)
def test_any_file_is_a_series_or_an_error(key: str, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    value_or_sentence(lambda: read_texts({key: "x.csv"}, tmp_path))


@many
@given(st.binary(max_size=300), st.booleans(), st.integers(0, 3))
def test_any_bytes_are_a_packet_log_or_an_error(tmp_path: Path, content: bytes, begins: bool, records: int) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes((MAGIC if begins else b"") + bytes(records * RECORD.itemsize) + content)

    def read() -> int:
        log = open_log(path)
        assert log.directions_seen() == sorted(set(log.directions_seen()))
        return sum(len(chunk) for chunk in log.chunks())

    count = value_or_sentence(read)
    if begins and count is not None:
        assert count == records + len(content) // RECORD.itemsize


KEYS_OF_ACCOUNTS = st.sampled_from(("directions", "nodes", "index", "name", "t0_ns", "x"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS_OF_ACCOUNTS, inner, max_size=4),
)


@many
@given(JSON)
def test_any_account_beside_a_packet_log_is_read_or_an_error(tmp_path: Path, account: Any) -> None:
    path = tmp_path / "log.bin"
    path.write_bytes(MAGIC + bytes(RECORD.itemsize))
    (tmp_path / "log.bin.json").write_text(json.dumps(account))
    value_or_sentence(lambda: sum(len(chunk) for chunk in open_log(path).chunks()))


LINES = st.sampled_from(
    ["# base timestamp: 0", "# base timestamp: 99999999999999999999", "# queue: infinite", "#", "", "17 + 1504",
     "17 # 1504", "20 - 1504 3", "20 - 1504 30", "21 d 1 1504", "21 d 1", "-1 + 1504", "9223372036854775808 + 1",
     "17 + 1504 0 0", "17\t+\t1504", "17 ? 1504", "x", "\x00", "1e3 + 5", "17 + 1504\r"]
)  # fmt: skip


@many
@given(st.binary(max_size=200) | st.lists(LINES, max_size=8).map(lambda lines: "\n".join(lines).encode()))
@example(b"# base timestamp: 99999999999999999999\n17 + 1504\n")
def test_any_bytes_are_a_log_of_mahimahi_or_an_error(content: bytes) -> None:
    value_or_sentence(lambda: read_log(io.BytesIO(content), "log").events)


WORDS = st.sampled_from(
    ["--", "-", "--help", "--once", "--meter", "--uplink-log=x", "--uplink-log", "--uplink-l", "--publish=8", "-x", "5"]
)
ARGUMENTS = st.lists(WORDS | ODD_TEXT, max_size=6)


@many
@given(ARGUMENTS, st.integers(0, 3), st.booleans())
def test_any_arguments_are_a_command_line_of_mahimahi_or_its_usage(
    given_arguments: list[str], count: int, anywhere: bool
) -> None:
    def read() -> arguments.CommandLine:
        long = ("uplink-log=", "uplink-queue=", "once", "meter")
        return arguments.read(given_arguments, "usage", count, long=long, short={"l": "uplink-log"}, anywhere=anywhere)

    line = value_or_sentence(read)
    assert line is None or len(line.words) == count


@many
@given(words("12", "1.5", "k", "M", "G", "bit", "bps", "bit/s", " ", "b/s"))
def test_any_text_is_a_rate_of_mahimahi_or_none_or_an_error(text: str) -> None:
    rate = value_or_sentence(lambda: parse_rate(text))
    if rate is not None:
        stamps = list(map(int, constant_trace(rate).split()))
        assert stamps == sorted(stamps)
        assert stamps[-1] > 0


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    make_run(path, duration=1, rate=3)
    collect(path)
    return path


def read_with(run: Path, name: str, content: bytes) -> bool:
    """Whether `cellbed report`, `compare` and `log` read a run's folder with this content of a file; else they give an
    error."""
    path = run / name
    before = path.read_bytes() if path.exists() else None

    def read() -> bool:
        with contextlib.redirect_stdout(io.StringIO()):
            collect(run)
            html.write(run)
            terminal.show(run)
            compare([run, run])
            sum(len(chunk) for chunk in open_log(run).chunks())
        return True

    path.write_bytes(content)
    try:
        return value_or_sentence(read) is not None
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@pytest.mark.parametrize("count", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_any_value_in_the_description_of_a_run_is_read_or_an_error(run_folder: Path, count: int) -> None:
    content = json.loads((run_folder / "run.json").read_bytes())
    for key, value in (("sites", True), ("started", 1), ("first_request_s", "soon")):
        assert not read_with(run_folder, "run.json", json.dumps(content | {key: value}).encode())
    for number, (place, _) in enumerate(sample(leaves(content), count, "run")):
        odd = changed(content, place, VALUES[number % len(VALUES)])
        read_with(run_folder, "run.json", json.dumps(odd).encode())


def test_a_run_without_the_lateness_of_its_emulator_is_reported(run_folder: Path) -> None:
    content = json.loads((run_folder / "run.json").read_bytes()) | {"emulator": {"directions": None}}
    assert read_with(run_folder, "run.json", json.dumps(content).encode())


FILES = ("run.json", "environment.json", "scenario.toml", "scenario.resolved.json", "summary.json", "raw/nodes.jsonl",
         "raw/series.bin", "raw/packets.bin", "raw/workload.endpoint-0.requests.jsonl")  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_a_run_is_read_or_an_error(run_folder: Path, name: str) -> None:
    path = run_folder / name
    begin = path.read_bytes()[:150] if path.exists() else b""
    for content in (begin + b"\xff\xfe", *[b"[]\n"] * name.endswith(".json")):
        read_with(run_folder, name, content)
