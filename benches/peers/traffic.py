"""Traffic between a command behind a link and this network namespace, and the processes of the command.

The programs behind the link are passed to a bare interpreter as text: their user may lack access to the project.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

#: argv: far end, port, maximum bytes in flight. Sends one TCP flow until the connection ends.
TCP = """
import os, socket, sys
name, port, window = sys.argv[1:4]
flow = socket.socket()
flow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, int(window))  # the kernel takes twice that, for its own needs
flow.setsockopt(socket.IPPROTO_TCP, 13, b"reno")  # TCP_CONGESTION: the same everywhere
flow.connect((os.environ.get(name, name), int(port)))
data = memoryview(bytes(1 << 20))
try:
    while True:
        flow.sendall(data)
except OSError:
    pass
"""

#: argv: far end, port, seconds. Sends datagrams of 36 bytes, 64 with headers, one by one, as fast as the path allows.
DATAGRAMS = """
import os, socket, sys, time
name, port, seconds = sys.argv[1:4]
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((os.environ.get(name, name), int(port)))
data, end, send = bytes(36), time.monotonic() + float(seconds), sender.send
while time.monotonic() < end:
    try:
        for _ in range(256):
            send(data)
    except OSError:
        pass
"""

#: argv: far end, port, count, seed. Sends datagrams with time stamps at random times, 5 ms apart on average.
STAMPS = """
import os, random, socket, struct, sys, time
name, port, count, seed = sys.argv[1:5]
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.connect((os.environ.get(name, name), int(port)))
draw = random.Random(int(seed))
for _ in range(int(count)):
    time.sleep(draw.uniform(0.0, 0.01))
    sender.send(struct.pack("!q", time.monotonic_ns()) + bytes(92))
time.sleep(0.5)
"""


def command_behind(program: str, *arguments: object) -> list[str]:
    """Return the command that runs one of the programs above."""
    # Use the system's interpreter: an ordinary user may lack access to the caller's.
    interpreter = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    return [interpreter, "-I", "-c", program, *map(str, arguments)]


@dataclass
class TcpSink:
    """A receiver that accepts one connection and counts the bytes."""

    received: int = 0
    connected: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("0.0.0.0", 0))
        self.port = self._listener.getsockname()[1]
        self._flow: socket.socket | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            self._flow, _ = self._listener.accept()
        except OSError:
            return
        self.connected.set()
        space = bytearray(1 << 20)
        while True:
            try:
                length = self._flow.recv_into(space)
            except OSError:
                return
            if not length:
                return
            self.received += length

    def close(self) -> None:
        for end in (self._flow, self._listener):
            if end is not None:
                end.close()


class DatagramSink:
    """A receiver that counts datagrams by the socket's drop counter, without processor time."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        self._socket.bind(("0.0.0.0", 0))
        self.port = self._socket.getsockname()[1]

    @property
    def received(self) -> int:
        for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
            columns = line.split()
            if int(columns[1].rpartition(":")[2], 16) == self.port:
                return int(columns[12])
        raise RuntimeError("the socket is not listed")

    def close(self) -> None:
        self._socket.close()


def one_way_delays(receiver: socket.socket, count: int) -> list[int]:
    """Return the delays of up to `count` stamped datagrams, ns. Ends a second after the last datagram."""
    delays: list[int] = []
    receiver.settimeout(5.0)
    while len(delays) < count:
        try:
            data = receiver.recv(2048)
        except TimeoutError:
            break
        delays.append(time.monotonic_ns() - int.from_bytes(data[:8], "big"))
        receiver.settimeout(1.0)
    return delays


def discard_waiting(receiver: socket.socket) -> int:
    """Discard the datagrams that wait in the socket. Return their number."""
    receiver.settimeout(0.0)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while receiver.recv(2048):
            count += 1
    return count


def _child_ids() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found.setdefault(int(fields[1]), []).append(int(entry.name))
    return found


def _is_traffic(pid: int, program: str) -> bool:
    try:
        return program.encode() in (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
    except OSError:
        return False


def split_processes(root: int, program: str) -> tuple[list[int], list[int]]:
    """Divide `root` and its descendants into processes of the emulator and of `program` behind the link.

    A shell's command line also contains the program, so only a process without children counts as `program`.
    """
    children = _child_ids()
    emulator, programs, waiting = [], [], [root]
    while waiting:
        pid = waiting.pop()
        is_leaf = not children.get(pid)
        (programs if is_leaf and _is_traffic(pid, program) else emulator).append(pid)
        waiting += children.get(pid, [])
    return emulator, programs
