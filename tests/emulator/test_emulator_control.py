"""Changes while the emulator runs: from the configuration, by command, over the control socket."""

import json
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from emulator_datagrams import SEND, receiving, send
from emulator_process import EDGE, EmulatorProcess, constant, delay, line_of_two, packets

LOSS = {"kind": "loss", "probability": 0.0, "seed": 1}
UPLINK = [LOSS, constant(4_000_000), delay(5)]


class Client:
    """Someone who talks to a control socket."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(200)
        self._socket.connect(str(path))
        self._lines = self._socket.makefile("rb")

    def say(self, line: bytes) -> dict[str, Any]:
        self._socket.sendall(line + b"\n")
        answer: dict[str, Any] = json.loads(self._lines.readline())
        return answer

    def ask(self, **command: Any) -> dict[str, Any]:
        return self.say(json.dumps(command).encode())

    def change(self, stage: int, to: dict[str, Any], direction: str = "mobile.uplink") -> dict[str, Any]:
        return self.ask(do="change", direction=direction, stage=stage, to=to)


@pytest.fixture
def control(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


def test_two_clients_are_answered_and_what_is_wrong_is_refused(control: Path, tmp_path: Path) -> None:
    log = tmp_path / "changes.jsonl"
    before_ns = time.monotonic_ns()
    with EmulatorProcess(line_of_two(UPLINK, [], control=str(control), change_log=str(log))) as emulator:
        emulator.ready()
        assert stat.S_IMODE(control.stat().st_mode) == 0o600
        one, other = Client(control), Client(control)
        for line in (b"", b"what?", b"[]", b'{"do":"dance"}', b'{"do":"change"}', b"\xff\x00", b'{"do":"stop"}'):
            answer = one.say(line)
            assert answer["event"] == "refused", line
            assert answer["message"]
        for stage, to, says in [
            (7, delay(1), "there is no stage 7: the direction has 3"),
            (1, delay(1), "stage 1 is of another kind"),
            (1, {"kind": "magic"}, "unknown variant `magic`"),
            (0, LOSS | {"probability": 2}, "outside 0 to 1"),
        ]:
            answer = other.change(stage, to)
            assert answer["event"] == "refused"
            assert says in answer["message"]
        assert 'no direction "moon"; there are mobile.uplink' in other.change(0, LOSS, "moon")["message"]
        assert other.change(0, LOSS | {"probability": 1}) == {"event": "changed"}
        described = one.ask(do="describe")
        assert described["event"] == "description"
        uplink = described["directions"][0]
        assert uplink == {
            "name": "mobile.uplink",
            "from": "endpoint",
            "to": "tower",
            "stages": [LOSS | {"probability": 1}, *UPLINK[1:]],
        }
        send(emulator, 10)
        status = other.ask(do="status")
        assert status["directions"][0]["dropped"]["loss"] == 10
        assert emulator.command(do="describe") == described
        emulator.command(do="change", direction="mobile.uplink", stage=0, to=LOSS)
        emulator.stop()
    assert not control.exists()
    # Every change in force is recorded, from any client; refused ones are not.
    lost = LOSS | {"probability": 1}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["direction"], each["from"], each["to"]) for each in lines] == [
        ("mobile.uplink", LOSS, lost),
        ("mobile.uplink", lost, LOSS),
    ]
    assert before_ns < lines[0]["time_ns"] < lines[1]["time_ns"] < time.monotonic_ns()


def test_a_change_that_cannot_be_recorded_is_reported(control: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    with EmulatorProcess(line_of_two(UPLINK, [], control=str(control), change_log="/dev/full")) as emulator:
        emulator.ready()
        answer = Client(control).change(0, LOSS | {"probability": 1})
        assert answer["event"] == "changed"
        assert "/dev/full: No space left on device" in answer["unrecorded"]
        account = emulator.stop()
    assert account["records_lost"] == 1
    assert "/dev/full" in account["records_problem"]


def test_clients_come_and_go_while_another_stays(control: Path) -> None:
    with EmulatorProcess(line_of_two(UPLINK, [], control=str(control))) as emulator:
        emulator.ready()
        staying = Client(control)
        staying._socket.sendall(b'{"do":')  # half a line holds nobody up
        answers: list[str] = []

        def many() -> None:
            for _ in range(20):
                answers.append(Client(control).ask(do="status")["event"])

        threads = [threading.Thread(target=many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == ["status"] * 80
        assert staying.say(b'"status"}')["event"] == "status"


def test_scheduled_changes_happen_at_their_time_after_every_start(tmp_path: Path) -> None:
    config = line_of_two([constant(100_000_000), delay(5)], [], tmp_path)
    at = 700_000_000
    config["directions"][0]["changes"] = [
        {"at_ns": at, "stage": 1, "to": delay(20)},
        {"at_ns": at, "stage": 0, "to": constant(10_000_000)},
        {"at_ns": 3600 * 10**9, "stage": 0, "to": constant(1)},
    ]

    def stages(emulator: EmulatorProcess) -> Any:
        return emulator.command(do="describe")["directions"][0]["stages"]

    with EmulatorProcess(config) as emulator:
        emulator.ready()
        zeros: list[int] = []

        def start() -> None:
            zeros.append(time.monotonic_ns())
            emulator.command(do="start", at_ns=zeros[-1])

        for _ in range(2):
            with receiving(emulator) as arrivals:
                send(emulator, 300, interval_ns=4_000_000, on_ready=start)
            assert arrivals.numbers == list(range(300))
            assert stages(emulator) == [constant(10_000_000), delay(20)]
        emulator.command(do="change", direction="mobile.uplink", stage=1, to=delay(1))
        assert stages(emulator) == [constant(10_000_000), delay(1)]
        emulator.command(do="start", at_ns=time.monotonic_ns())
        assert stages(emulator) == [constant(100_000_000), delay(5)]
        emulator.stop()
    log = packets(tmp_path)
    uplink = log[log["direction"] == 0]
    for number, zero in enumerate(zeros):
        run = uplink[number * 300 : (number + 1) * 300]
        before, after = run[run["released"] < zero + at], run[run["arrived"] >= zero + at]
        assert len(before) > 0
        assert len(after) > 0
        assert set(before["departed"] - before["released"]) == {5_000_000}
        assert set(after["departed"] - after["released"]) == {20_000_000}
        assert (after["released"] - after["arrived"]).min() >= 1028 * 800  # 10 Mbit/s
        assert (before["released"] - before["arrived"])[0] == 1028 * 80


def test_status_tells_delay_and_queue(control: Path) -> None:
    with EmulatorProcess(line_of_two([constant(1_000_000), delay(30)], [], control=str(control))) as emulator:
        emulator.ready()
        client = Client(control)
        assert client.ask(do="status")["directions"][0]["delay_ns"] is None
        emulator.run("endpoint", [sys.executable, "-c", SEND, EDGE[4], "40", "1222", "0", "0", "1"])
        status = client.ask(do="status")
        uplink = status["directions"][0]
        assert uplink["queue_bytes"] == 1250 * uplink["queue_packets"]
        while (status := client.ask(do="status"))["directions"][0]["delivered"] < 40:
            pass
        uplink = status["directions"][0]
    assert uplink["delivered_bytes"] == 40 * 1250
    assert uplink["queue_packets"] == 0
    assert 40_000_000 < uplink["delay_ns"]["mean"] <= uplink["delay_ns"]["max"] <= 430_000_000
    assert abs(status["time_ns"] - time.monotonic_ns()) < 60e9
    assert (status["unroutable"], status["refused"], status["device_drops"]) == (0, 0, 0)
