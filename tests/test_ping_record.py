"""Round trips to hosts are recorded as they were, go on after a crash, and are a core network."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.pings import echo
from cellbed.pings.file import FileError, Header, RecordFile, name_of
from cellbed.pings.schedule import Probes
from cellbed.scenario import load
from cellbed.testbed.plan import make_plan
from in_process import cellbed
from scenario_text import GOOD

MS = 1_000_000
S = 1000 * MS


def may_ping() -> bool:
    """Whether this user may send echo requests."""
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        try:
            socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP).close()
        except PermissionError:
            continue
        return True
    return False


needs_icmp = pytest.mark.skipif(not may_ping(), reason="this user may not send ICMP echo requests")


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "cellbed", "ping-record", *words, "--out", str(folder)]


def lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line[:1].isdigit()]


@needs_icmp
def test_hosts_are_asked_at_their_times_and_figures_are_printed(tmp_path: Path) -> None:
    words = ("127.0.0.1", "localhost", "--interval", "20 ms", "--duration", "1 s", "--json")
    done = subprocess.run(command(tmp_path, *words), capture_output=True, text=True, timeout=60, check=True)
    for summary in json.loads(done.stdout):
        assert summary["sent"] >= 10
        assert summary["lost"] == 0
        assert 0 < summary["median"] <= summary["p99"] < S
        assert len(lines(Path(summary["file"]))) == summary["sent"]


def test_the_handshake_of_tcp_is_measured_whether_or_not_somebody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for name, port in (("listening", listening.getsockname()[1]), ("closed", closed.getsockname()[1])):
            words = ("127.0.0.1", "--tcp", str(port), "--interval", "20 ms", "--duration", "500 ms", "--json")
            done = subprocess.run(command(tmp_path / name, *words), capture_output=True, timeout=60, check=True)
            (summary,) = json.loads(done.stdout)
            assert summary["sent"] >= 5
            assert summary["lost"] == 0
            assert 0 < summary["median"] < S


def test_a_record_goes_on_after_a_kill_and_becomes_a_core_network(tmp_path: Path) -> None:
    folder = tmp_path / "pings"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        words = ("127.0.0.1", "--tcp", str(listening.getsockname()[1]), "--interval", "10 ms")
        path = folder / "127.0.0.1.csv"
        running = subprocess.Popen(command(folder, *words))
        deadline = time.monotonic() + 60
        while not (path.exists() and len(lines(path)) > 5) and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait()
        before = lines(path)
        with path.open("a") as file:
            file.write("12.3")  # as if the kill had cut a line short
        again = subprocess.Popen(command(folder, *words), stdout=subprocess.PIPE, text=True)
        while len(lines(path)) <= len(before) + 5 and time.monotonic() < deadline:
            time.sleep(0.02)
        refused = subprocess.run(command(folder, *words), capture_output=True, text=True, timeout=60, check=False)
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


@given(st.binary(max_size=80))
def test_no_message_is_taken_for_an_answer(message: bytes) -> None:
    for family in (4, 6):
        assert echo.answered(family, message, None) is None


@given(number=st.integers(0, 2**64 - 1), identifier=st.integers(0, 0xFFFF), family=st.sampled_from([4, 6]))
def test_a_reply_is_known_by_its_number(number: int, identifier: int, family: int) -> None:
    asked = echo.request(family, identifier, number)
    assert echo.answered(family, asked, identifier) is None
    reply = bytes([{4: 0, 6: 129}[family]]) + asked[1:]
    assert echo.answered(family, reply, identifier) == number
    assert echo.answered(family, reply, identifier ^ 1) is None
    assert echo.answered(family, reply[:-1], identifier) is None
    if family == 4:
        assert echo.checksum(asked) == 0
        assert echo.answered(4, b"\x45" + bytes(19) + reply, identifier) == number


@given(st.data())
def test_every_probe_is_decided_once_and_in_order(data: st.DataObject) -> None:
    probes = Probes(interval=100, timeout=250, due=0)
    now, sent, answered, decided = 0, {}, {}, []
    for _ in range(25):
        now += data.draw(st.integers(1, 180))
        if now >= probes.due:
            sent[probes.send(now)] = now
        open_ = [number for number in sent if number not in answered]
        if open_ and data.draw(st.booleans()):
            number = data.draw(st.sampled_from(open_))
            if now - sent[number] < 250:
                answered[number] = now - sent[number]
            probes.answer(number, now - sent[number])
        decided += probes.finished(now)
        assert probes.next_event >= min(probes.due, now)
    decided += probes.finished(now + 10_000)
    assert [at for at, _ in decided] == list(sent.values())
    by_time = {sent[number]: trip for number, trip in answered.items()}
    assert all(trip == by_time[at] for at, trip in decided if at in by_time)


def test_a_machine_that_slept_does_not_flood_afterwards() -> None:
    probes = Probes(interval=100, timeout=250, due=0)
    probes.send(0)
    assert probes.due == 100
    probes.send(1040)
    assert probes.due == 1100


@pytest.mark.parametrize(("host", "name"), [("Example.org", "example.org.csv"), ("::1", "--1.csv"), ("a/b", "a-b.csv")])
def test_files_are_named_after_their_hosts(host: str, name: str) -> None:
    assert name_of(host) == name
    assert os.sep not in name
