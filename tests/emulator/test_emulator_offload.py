"""Super-packets on a real path: what programs, the packet log and a capture see."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emulator_process import EmulatorProcess, Stages, constant, delay, line_of_two, packets
from emulator_transfers import transfer

#: Writes what passes the device to a capture file (raw IP), until its input ends.
CAPTURE = """
import select, socket, struct, sys, time
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
sock.bind(("cellbed0", 0))
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 17, 101))
    print("ready", flush=True)
    ended = False
    while True:
        ready, _, _ = select.select([sock] if ended else [sock, sys.stdin], [], [], 0.2 if ended else None)
        if sock in ready:
            packet, now = sock.recv(1 << 17), time.time_ns()
            file.write(struct.pack("<IIII", *divmod(now, 10**9), len(packet), len(packet)) + packet)
        elif ended:
            break
        ended = ended or sys.stdin in ready
"""


def lossy() -> Stages:
    return [{"kind": "loss", "probability": 0.01, "seed": 3}, constant(200_000_000, 200_000), delay(3)]


@pytest.mark.parametrize("family", [4, 6])
def test_data_arrives_through_loss_and_queue(family: int, tmp_path: Path) -> None:
    with EmulatorProcess(line_of_two(lossy(), lossy(), tmp_path)) as emulator:
        emulator.ready()
        transfer(emulator, 2_000_000, family)
        account = emulator.stop()
    assert account["refused"] == 0
    assert all(interface["dropped"] == 0 for interface in account["interfaces"].values())
    log = packets(tmp_path)
    assert log["bytes"].max() <= 1500
    uplink = log[(log["direction"] == 0) & (log["protocol"] == 6)]
    assert (uplink["drop"] == 2).any()
    # The delivered segments cover the stream without a gap; sequence numbers are counted from the SYN's.
    core = log[(log["direction"] == 1) & (log["protocol"] == 6)]
    assert covered(core) == 2_000_000
    assert (log["observed"] >= log["departed"]).all()


def covered(log: np.ndarray[Any, np.dtype[Any]]) -> int:
    """Bytes of the stream up to the first that is in no packet."""
    first = int(log["tcp_sequence"][0]) + 1
    begin = (log["tcp_sequence"].astype(np.int64) - first) % 2**32
    reached = 0
    for start, length in sorted(zip(begin.tolist(), log["payload"].tolist(), strict=True)):
        if length and start <= reached:
            reached = max(reached, start + length)
    return reached


def captured(capture: Path) -> None:
    """Write what the edge's device shows of two transfers as a file of packets."""
    with EmulatorProcess(line_of_two([constant(400_000_000), delay(2)], [delay(2)])) as emulator:
        emulator.ready()
        sniffer = subprocess.Popen(
            [sys.executable, "-c", CAPTURE, str(capture)],
            preexec_fn=emulator.inside("edge", keep_capabilities=True),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with sniffer:
            if sniffer.stdout.readline() != b"ready\n":
                pytest.skip("this user may not capture packets in a node")
            for family in (4, 6):
                transfer(emulator, 3_000_000, family)
            sniffer.communicate()


BROKEN = ("_ws.malformed", "ip.checksum.status")
REPEATED = ("lost_segment", "retransmission", "out_of_order", "ack_lost_segment", "duplicate_ack")


def test_a_capture_decodes(tmp_path: Path) -> None:
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is missing: cannot decode a capture")
    capture = tmp_path / "edge.pcap"
    fields = [*BROKEN, *(f"tcp.analysis.{each}" for each in REPEATED), "tcp.dstport", "tcp.len"]
    options = ["-o", "ip.check_checksum:TRUE", "-d", "tcp.port==40007,data", "-T", "fields"]
    command = [tshark, "-r", str(capture), *options, *(word for each in fields for word in ("-e", each))]
    # TCP sends again what a busy machine keeps for longer than its timer; that is no fault of the packets' path.
    for _ in range(20):
        captured(capture)
        decoded = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        rows = [line.split("\t") for line in decoded.splitlines()]
        # A good checksum, or the header of IPv6, which has none.
        assert {(malformed, checksum) for malformed, checksum, *_ in rows} == {("", "1"), ("", "")}
        repeated = [row for row in rows if any(row[2:7])]
        if not repeated:
            break
    assert repeated == []
    lengths = [int(length) for *_, port, length in rows if port == "40007"]
    assert sum(lengths) == 6_000_000
    assert max(lengths) > 1448  # or the capture shows nothing of super-packets
