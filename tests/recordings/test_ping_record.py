"""Round trips to hosts are recorded as they were, go on after a crash, and are a core network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.pings.echoes import Echoes
from cellbed.pings.file import FileError, Header, RecordFile, name_of
from cellbed.scenario import load
from cellbed.testbed.plan import make_plan
from in_process import cellbed
from scenario_text import GOOD

MS = 1_000_000
S = 1000 * MS
PING = """#!{python}
import sys, time
interval, number = float(sys.argv[sys.argv.index("-i") + 1]), 0
while True:
    number += 1
    if number % 5:
        line = f"64 bytes from {{sys.argv[-1]}}: icmp_seq={{number}} ttl=64 time=0.125 ms"
    else:
        line = f"no answer yet for icmp_seq={{number}}"
    print(f"[{{time.time():.6f}}] {{line}}", flush=True)
    time.sleep(interval)
"""
"""A ping of which each fifth probe gets no answer."""


def path_with_ping(folder: Path) -> str:
    """A search path with that ping."""
    (folder / "ping").write_text(PING.format(python=sys.executable))
    (folder / "ping").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with that ping."""
    return os.environ | {"PATH": path_with_ping(tmp_path_factory.mktemp("bin"))}


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "cellbed", "ping-record", *words, "--out", str(folder)]


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line[:1].isdigit()]


def test_hosts_are_probed_and_figures_are_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    words = ("127.0.0.1", "localhost", "--interval", "10 ms", "--timeout", "10 ms", "--duration", "1 s", "--json")
    done = subprocess.run(
        command(tmp_path, *words), env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    summaries = json.loads(done.stdout)
    assert [each["host"] for each in summaries] == ["127.0.0.1", "localhost"]
    for summary in summaries:
        assert summary["sent"] == len(lines(Path(summary["file"]))) > 5
        assert summary["lost"] == summary["sent"] // 5
        assert summary["median"] == summary["p99"] == 125_000


def test_a_record_goes_on_after_a_kill_and_becomes_a_core_network(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "pings"
    words = ("127.0.0.1", "--interval", "10 ms")
    path = folder / "127.0.0.1.csv"
    running = subprocess.Popen(command(folder, *words), env=environment)
    deadline = time.monotonic() + 60
    while not (path.exists() and len(lines(path)) > 5) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = lines(path)
    with path.open("a") as file:
        file.write("12.3")  # as if the kill had cut a line short
    again = subprocess.Popen(command(folder, *words), env=environment, stdout=subprocess.PIPE, text=True)
    while len(lines(path)) <= len(before) + 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    refused = subprocess.run(
        command(folder, *words), env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    again.send_signal(signal.SIGINT)
    printed, _ = again.communicate(timeout=60)
    assert again.returncode == 0
    assert str(path) in printed
    assert refused.returncode == 2
    assert "another cellbed ping-record writes to this file" in refused.stderr
    after = lines(path)
    assert after[: len(before)] == before
    times = [float(line.split(",")[0]) for line in after]
    assert times == sorted(set(times))
    (tmp_path / "scenario.toml").write_text(
        GOOD.replace('edge = "base-edge"', 'edge = { kind = "round-trips", record = "pings/127.0.0.1.csv" }')
    )
    plan = make_plan(load(tmp_path / "scenario.toml"))
    assert "round trips of pings/127.0.0.1.csv" in next(
        way.description for way in plan.directions if way.name == "core-edge-0.uplink"
    )


def test_ping_that_is_missing_or_fails_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for script, words in ((None, "iputils-ping"), ("#!/bin/sh\necho no permission >&2; exit 2\n", "no permission")):
        if script is not None:
            (tmp_path / "bin" / "ping").write_text(script)
            (tmp_path / "bin" / "ping").chmod(0o755)
        environment = os.environ | {"PATH": str(tmp_path / "bin")}
        done = subprocess.run(
            command(tmp_path / "pings", "127.0.0.1"), env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert words in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("nobody.invalid",), "nobody.invalid: "),
        (("x" * 300,), "write a host name or address"),
        (("127.0.0.1", "--interval", "1 ms"), "floods"),
        (("127.0.0.1", "--family", "5"), "unknown IP version 5"),
        (("127.0.0.1", "--interval", "soon"), "soon"),
    ],
)
def test_what_cannot_be_asked_is_said_and_leaves_nothing(
    tmp_path: Path, words: tuple[str, ...], complaint: str
) -> None:
    folder = tmp_path / "pings"
    done = cellbed("ping-record", *words, "--out", folder)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert not folder.exists()


STARTED = datetime(2026, 1, 1, tzinfo=UTC)
HEADER = Header("example.org", "192.0.2.7", "icmp", STARTED, 1.0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("something of the user's\n", "not a record of cellbed ping-record"),
        (HEADER.text().replace("icmp", "tcp:443"), "has by 'tcp:443'"),
        (HEADER.text().replace("host: example.org", "host: other"), "has host 'other'"),
        (HEADER.text().replace("interval_s: 1", "interval_s: 0.1"), "has interval_s '0.1' and not '1'"),
        (HEADER.text().replace("2026-01-01", "2126-01-01"), "in the future"),
        (HEADER.text().replace("# started: 2026-01-01T00:00:00Z\n", ""), "started"),
        (HEADER.text() + "1.0,fast\n", ":9: '1.0,fast'"),
    ],
)
def test_a_file_that_is_no_record_of_this_is_left_alone(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "example.org.csv"
    path.write_text(content)
    with pytest.raises(FileError, match=complaint):
        RecordFile(path, HEADER)
    assert path.read_text() == content


def test_a_pipe_or_a_device_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "example.org.csv"
    path.symlink_to("/dev/zero")
    with pytest.raises(FileError, match="a device, not a file"):
        RecordFile(path, HEADER)


@given(samples=st.lists(st.one_of(st.none(), st.integers(0, 10**11)), max_size=30), cut=st.integers(0, 40))
def test_what_was_written_is_read_again_however_it_was_cut(
    tmp_path_factory: pytest.TempPathFactory, samples: list[int | None], cut: int
) -> None:
    path = tmp_path_factory.mktemp("record") / "example.org.csv"
    written = [(index * S, None if trip is None else trip) for index, trip in enumerate(samples)]
    file = RecordFile(path, HEADER)
    file.append(written)
    file.close()
    content = path.read_bytes()
    kept = max(len(HEADER.text()), len(content) - cut)
    path.write_bytes(content[:kept])
    again = RecordFile(path, HEADER)
    again.close()
    assert again.samples == written[: len(again.samples)]
    assert len(again.samples) >= len(written) - cut // 2 - 1


def sequence(*lines: str) -> list[tuple[int, int | None]]:
    """The results of lines of ping, each with its time in s; a probe a second, lost after two."""
    echoes = Echoes(0, S, 2)
    return [result for line in lines for result in echoes.read(f"[{line}".encode())]


def answer(at: float, number: int, ms: float = 250) -> str:
    return f"{at:.6f}] 64 bytes from host (192.0.2.7): icmp_seq={number % 2**16} ttl=57 time={ms:g} ms"


def missing(at: float, number: int) -> str:
    return f"{at:.6f}] no answer yet for icmp_seq={number}"


def test_a_probe_has_the_time_at_which_it_was_sent_and_is_lost_after_the_timeout() -> None:
    quarter = 250 * MS
    assert sequence(answer(1.25, 1), answer(2.25, 2)) == [(S, quarter), (2 * S, quarter)]
    assert sequence("PING host", "1.0] From 192.0.2.9 icmp_seq=1 Destination Host Unreachable") == []
    # An answer within the timeout is one, and later ones wait for it; one that comes later is not.
    late = sequence(missing(2, 1), answer(2.25, 2), answer(2.5, 1, 1500))
    assert late == [(S, 1500 * MS), (2 * S, quarter)]
    lost = sequence(missing(2, 1), answer(2.25, 2), answer(3.25, 3), answer(4.0, 1, 3000))
    assert lost == [(S, None), (2 * S, quarter), (3 * S, quarter)]
    assert sequence(answer(1.25, 1), answer(1.35, 1)) == [(S, quarter)]  # a copy


def test_numbers_of_probes_go_on_beyond_16_bits() -> None:
    found = sequence(*(answer(number + 0.25, number) for number in range(1, 2**16 + 20)))
    assert found == [(number * S, 250 * MS) for number in range(1, 2**16 + 20)]


@pytest.mark.parametrize(("host", "name"), [("Example.org", "example.org.csv"), ("::1", "--1.csv"), ("a/b", "a-b.csv")])
def test_files_are_named_after_their_hosts(host: str, name: str) -> None:
    assert name_of(host) == name
    assert os.sep not in name
