"""The emulator with real namespaces, devices and sockets."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.machine.process import Place
from emulator_process import EDGE, EMULATE, EmulatorProcess, bottleneck, constant, delay, line_of_two, packets, series
from emulator_transfers import transfer
from run_commands import has_ended
from shell_world import wait_until


def test_no_packet_is_early(tmp_path: Path) -> None:
    with EmulatorProcess(line_of_two([constant(20_000_000), delay(7)], [], tmp_path)) as emulator:
        emulator.ready()
        flow = emulator.probe(bit_rate=10_000_000, seconds=0.5, family=6)
        emulator.stop()
    # 1500 bytes at 20 Mbit/s take 0.6 ms
    one_way = np.array(flow["received_ns"]) - np.array(flow["sent_ns"])
    assert one_way.min() >= 7_600_000
    log = packets(tmp_path)
    assert len(log) == 2 * len(one_way)
    assert (log["observed"] >= log["departed"]).all()
    assert (log["departed"] >= log["released"]).all()
    uplink = log[log["direction"] == 0]
    assert (uplink["departed"] - uplink["released"] == 7_000_000).all()
    assert (uplink["released"] - uplink["arrived"] >= 600_000).all()
    # What leaves a direction arrives at the next one at the same instant of the model.
    core = log[log["direction"] == 1]
    assert (core["packet"] == uplink["packet"]).all()
    assert (core["arrived"] == uplink["departed"]).all()


def test_packets_arrive_when_they_are_sent_even_if_read_later(tmp_path: Path) -> None:
    send = "import socket, time; flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n" + (
        f"for _ in range(3): print(time.monotonic_ns()); flow.sendto(b'x', ('{EDGE[4]}', 9)); time.sleep(0.005)"
    )
    sent, continued = [], []
    with EmulatorProcess(line_of_two([], [], tmp_path)) as emulator:
        emulator.ready()
        for _ in range(20):  # the kernel's stamps begin some time after the nodes are ready
            os.kill(emulator.process.pid, signal.SIGSTOP)
            try:
                sent += [int(line) for line in emulator.run("endpoint", [sys.executable, "-c", send]).split()]
                continued += 3 * [time.monotonic_ns()]
            finally:
                os.kill(emulator.process.pid, signal.SIGCONT)
            while emulator.status()["core.uplink"]["delivered"] < len(sent):
                pass
        emulator.stop()
    arrived = packets(tmp_path)
    arrived = arrived[(arrived["direction"] == 0)]["arrived"]
    assert len(arrived) == len(sent)
    assert (arrived >= np.array(sent)).all()
    assert (arrived[-3:] < np.array(continued[-3:])).all()


def test_constant_rate_is_met_and_the_rest_is_dropped_and_counted(tmp_path: Path) -> None:
    with EmulatorProcess(line_of_two([constant(12_000_000, queue_bytes=30_000)], [], tmp_path)) as emulator:
        emulator.ready()
        flow = emulator.probe(bit_rate=24_000_000, seconds=1.0)
        status = emulator.status()
        account = emulator.stop()
    log = packets(tmp_path)
    uplink = log[(log["direction"] == 0) & (log["drop"] == 0)]
    # 1500 bytes at 12 Mbit/s take 1 ms, from their arrival or after those before, however busy the machine is.
    began = np.maximum(uplink["arrived"][1:], uplink["released"][:-1])
    assert (uplink["released"][1:] - began == 1_000_000).all()
    assert np.count_nonzero(began == uplink["released"][:-1]) > 0
    received = [stamp for stamp in flow["received_ns"] if stamp is not None]
    dropped = status["mobile.uplink"]["dropped"]["queue-full"]
    assert dropped > 0
    assert status["mobile.uplink"]["delivered"] + dropped == len(flow["sent_ns"])
    assert status["core.uplink"]["delivered"] == len(received) == len(uplink)
    assert account["interfaces"]["endpoint"] == {"dropped": 0, "packets": len(flow["sent_ns"])}
    assert account["packets"] == len(flow["sent_ns"])


def test_packets_arrive_from_the_first_on_when_emulators_start_together() -> None:
    """The kernel acknowledges an IPv6 address before it takes packets to it: later the busier the machine is."""
    flow = {"bytes": 100, "bit_rate": 8_000_000, "duration_ns": 10_000_000, "family": 6}
    flows = [flow | {"from": one, "to": other} for one, other in (("endpoint", "edge"), ("edge", "endpoint"))]
    with contextlib.ExitStack() as stack:
        emulators = [stack.enter_context(EmulatorProcess(line_of_two([], []))) for _ in range(16)]
        for emulator in emulators:
            # Before they are ready: nothing is between that and the first packet.
            emulator.process.stdin.write(json.dumps({"do": "probe", "flows": flows}).encode() + b"\n")
            emulator.process.stdin.flush()
        for emulator in emulators:
            emulator.ready()
            assert [None in each["received_ns"] for each in emulator.event()["flows"]] == [False, False]


def test_log_and_series_tell_the_same(tmp_path: Path) -> None:
    loss = {"kind": "loss", "probability": 0.1, "seed": 5}
    config = line_of_two([loss, constant(8_000_000, queue_bytes=15_000), delay(3)], [], tmp_path)
    with EmulatorProcess(config) as emulator:
        emulator.ready()
        zero = time.monotonic_ns() + 50_000_000
        emulator.command(do="start", at_ns=zero, offset_ns=0)
        time.sleep(0.06)
        emulator.probe(bit_rate=16_000_000, seconds=0.4)
        emulator.stop()
    log, bins = packets(tmp_path), series(tmp_path)
    # Idle bins share records: two of the four directions have no packet.
    assert (tmp_path / "series.bin").stat().st_size < 64 * len(bins) * 0.75
    for direction in range(4):
        of_log, of_bins = log[log["direction"] == direction], bins[bins["direction"] == direction]
        of_bins = of_bins[of_bins["start"] >= zero]
        assert (np.diff(of_bins["start"]) == 10_000_000).all()
        assert (of_bins["start"][0] - zero) % 10_000_000 == 0
        end = of_bins["start"][-1] + 10_000_000

        def binned(stamp: str, keep: object, weight: str | None = None, of_log=of_log, end=end) -> list[int]:
            chosen = of_log[keep & (of_log[stamp] < end)]
            place = (chosen[stamp] - zero) // 10_000_000
            weights = chosen[weight] if weight else None
            return np.bincount(place, weights, minlength=(end - zero) // 10_000_000).astype(int).tolist()

        assert of_bins["arrived"].tolist() == binned("arrived", of_log["drop"] < 3, "bytes")
        assert of_bins["dropped_queue"].tolist() == binned("departed", of_log["drop"] == 1)
        assert of_bins["dropped_loss"].tolist() == binned("departed", of_log["drop"] == 2)
        assert of_bins["used"].tolist() == binned("released", of_log["drop"] == 0, "bytes")
    uplink = bins[(bins["direction"] == 0) & (bins["start"] >= zero)]
    assert (uplink["capacity"] == 10_000).all()  # 8 Mbit/s
    assert uplink["queue_peak_bytes"].max() == 15_000
    assert uplink["dropped_queue"].sum() > 0
    assert uplink["dropped_loss"].sum() > 0
    assert (bins[bins["direction"] == 1]["capacity"] == 2**64 - 1).all()


def test_a_packet_without_a_way_is_counted_and_ctrl_c_is_for_other_programs() -> None:
    send_outside = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))"
    with EmulatorProcess(line_of_two([], [])) as emulator:
        emulator.ready()
        emulator.process.send_signal(signal.SIGINT)
        emulator.run("endpoint", [sys.executable, "-c", send_outside])
        deadline = time.monotonic() + 200
        while (status := emulator.command(do="status"))["unroutable"] == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert status["unroutable"] == 1
        assert all(direction["delivered"] == 0 for direction in status["directions"])


@pytest.mark.parametrize("way", ["stdin", "kill"])
def test_nothing_is_left_behind(way: str, tmp_path: Path) -> None:
    control = tmp_path / "control.sock"
    with EmulatorProcess(line_of_two([], [], control=str(control))) as emulator:
        emulator.ready()
        interfaces = "import socket; print([name for _, name in socket.if_nameindex()])"
        assert emulator.run("edge", [sys.executable, "-c", interfaces]) == "['lo', 'cellbed0']\n"
        namespace = Path(emulator.nodes["edge"]["namespace"]).stat()
        if way == "stdin":
            emulator.process.stdin.close()
            assert emulator.process.wait(200) == 0
            emulator.process.stdin = None
            assert not control.exists()
        else:
            emulator.process.kill()
            emulator.process.wait(200)
        # The kernel removes a namespace that nobody holds, and the device with it.
        wait_until(lambda: not is_held(namespace))


def is_held(namespace: os.stat_result) -> bool:
    """Return whether a process is in a namespace, or has a descriptor of it."""
    for path in (path for pattern in ("[0-9]*/ns/net", "[0-9]*/fd/*") for path in Path("/proc").glob(pattern)):
        with contextlib.suppress(OSError):
            if os.path.samestat(path.stat(), namespace):
                return True
    return False


def test_the_emulator_dies_with_its_parent() -> None:
    parent = f"""
import subprocess, sys, time
emulator = subprocess.Popen([sys.executable, "-c", {EMULATE!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
emulator.stdin.write(sys.stdin.buffer.readline()); emulator.stdin.flush()
print(emulator.pid, flush=True)
print(emulator.stdout.readline().decode(), flush=True)
time.sleep(600)
"""
    with EmulatorProcess(line_of_two([], []), [sys.executable, "-c", parent]) as outer:
        pid = int(outer.process.stdout.readline())
        outer.ready()
        outer.process.send_signal(signal.SIGKILL)
        outer.process.wait()
        wait_until(lambda: has_ended(pid))


TRACE = {"kind": "trace", "path": "/no/such.up", "looped": True}
PROXY = {"kind": "split", "buffer_bytes": 1, "uplink": "mobile.uplink", "downlink": "mobile.down"}
LATER = line_of_two([delay(1)], [])
LATER["directions"][0]["changes"] = [{"at_ns": 1, "stage": 5, "to": delay(1)}]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (b"", "no configuration"),
        (b"{\n", "cannot be read"),
        (b"\xff\xfe\n", "configuration"),
        (line_of_two([], [], colour=1), "unknown field `colour`"),
        (line_of_two([constant(0)], []), "mobile.uplink): a constant rate of 0 bit/s lets nothing pass"),
        (line_of_two([bottleneck(TRACE)], []), "open the trace /no/such.up"),
        (line_of_two([], [], series="/no/such/folder/series.bin"), "create /no/such/folder/series.bin"),
        (line_of_two([], [], proxies=[PROXY]), "configuration, proxies: there is no mobile.down"),
        (LATER, "there is no stage 5"),
    ],
)
def test_a_bad_configuration_is_one_clear_error(config: dict[str, object] | bytes, says: str) -> None:
    with EmulatorProcess(config) as emulator:
        output, errors = emulator.process.communicate(timeout=200)
        assert emulator.process.returncode == 1
    event = json.loads(output)
    assert output.count(b"\n") == 1
    if "/dev/net/tun" in event["message"]:
        pytest.skip(event["message"])
    assert event["event"] == "error"
    assert says in event["message"]
    assert errors == b""


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ({"do": "dance"}, "unknown variant `dance`"),
        (
            {"do": "probe", "flows": [{"from": "endpoint", "to": "moon", "bytes": 1500, "bit_rate": 1,
                                       "duration_ns": 1, "family": 4}]},
            '"moon": one of them has no device',
        ),
    ],
)  # fmt: skip
def test_a_bad_command_is_one_clear_error(command: dict[str, object], says: str) -> None:
    with EmulatorProcess(line_of_two([], [])) as emulator:
        emulator.ready()
        event = emulator.command(**command)
        assert event["event"] == "error"
        assert says in event["message"]
        assert emulator.process.wait(200) == 1


def test_entering_what_is_gone_says_so() -> None:
    with pytest.raises(FileNotFoundError, match=r"open /proc/self/fd/999999.* has ended"):
        Place("/proc/self/fd/999999").enter()


def test_nodes_in_a_user_namespace_bind_files_inside_only(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("inside")
    target.write_text("outside")
    with EmulatorProcess(line_of_two([], [], namespaces="user")) as emulator:
        emulator.ready()
        transfer(emulator, 100_000)
        enter = emulator.inside("edge", binds=((str(source), str(target)),), keep_capabilities=True)
        seen = subprocess.run(["cat", str(target)], preexec_fn=enter, stdout=subprocess.PIPE, check=True).stdout
        assert seen == b"inside"
        assert target.read_text() == "outside"
        capabilities = subprocess.run(
            ["grep", "CapEff", "/proc/self/status"], preexec_fn=enter, stdout=subprocess.PIPE, check=True, text=True
        ).stdout
        assert int(capabilities.split()[1], 16) != 0


def test_diagnostics_of_the_emulator_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "cellbed"):
        Emulator.start(line_of_two([], [], namespaces="user")).stop()
    assert any(line.startswith("emulator: ") and "user namespace" in line for line in caplog.messages)
