"""Numbered datagrams between two nodes of an emulator, as their sockets see them."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from emulator_process import EDGE, EmulatorProcess

#: Sends `count` numbered datagrams of `size` bytes of payload, `group` of them as one super-packet, after a line of
#: input.
SEND = """
import socket, struct, sys, time
address, count, size, interval, traffic_class, group = sys.argv[1], *map(int, sys.argv[2:])
v6 = ":" in address
sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
if v6:
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, traffic_class)
else:
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, traffic_class)
if group > 1:
    sock.setsockopt(socket.IPPROTO_UDP, 103, size)  # UDP_SEGMENT
print("ready", flush=True)
sys.stdin.readline()
due = time.monotonic()
for first in range(0, count, group):
    numbers = range(first, min(first + group, count))
    sock.sendto(b"".join(struct.pack(">I", number).ljust(size, b"Z") for number in numbers), (address, 40009))
    due += interval * group / 1e9
    time.sleep(max(0, due - time.monotonic()))
"""

#: Takes datagrams until the input ends and none waits; tells number, ECN field and whether the rest is whole of each.
#: As root, it has room for all that come while it has no processor (SO_RCVBUFFORCE).
RECEIVE = """
import json, select, socket, struct, sys
v6 = ":" in sys.argv[1]
sock = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
try:
    sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
except PermissionError:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
if v6:
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
else:
    sock.setsockopt(socket.IPPROTO_IP, 13, 1)  # IP_RECVTOS
sock.bind((sys.argv[1], 40009))
print("ready", flush=True)
received, ended = [], False
while True:
    ready, _, _ = select.select([sock] if ended else [sock, sys.stdin], [], [], 0 if ended else None)
    if sock in ready:
        data, ancillary, _, _ = sock.recvmsg(65536, 64)
        received.append((struct.unpack(">I", data[:4])[0], ancillary[0][2][0] & 3, data[4:] == b"Z" * (len(data) - 4)))
    elif ended:
        break
    ended = ended or sys.stdin in ready
print(json.dumps(received))
"""


@dataclass
class Arrivals:
    """What came out of the socket, once the ``with`` block is left.

    numbers, ecn, whole: of each datagram its number, the ECN field of its IP header, and whether it is as it was sent.
    """

    numbers: list[int] = field(default_factory=list)
    ecn: list[int] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)


@contextlib.contextmanager
def receiving(emulator: EmulatorProcess, family: int = 4) -> Iterator[Arrivals]:
    """Let the edge take datagrams while the block runs."""
    arrivals = Arrivals()
    receiver = subprocess.Popen(
        [sys.executable, "-c", RECEIVE, EDGE[family]],
        preexec_fn=emulator.inside("edge"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with receiver:
        assert receiver.stdout.readline() == "ready\n"
        yield arrivals
        output, _ = receiver.communicate(timeout=200)
    for number, ecn, whole in json.loads(output):
        arrivals.numbers.append(number)
        arrivals.ecn.append(ecn)
        arrivals.whole.append(whole)


def send(emulator: EmulatorProcess, count: int, *, size: int = 1000, interval_ns: int = 0, traffic_class: int = 0,
         group: int = 1, family: int = 4, on_ready: Callable[[], None] = lambda: None) -> dict[str, Any]:  # fmt: skip
    """Send from the endpoint, and wait until all have left the uplink or died in it. The uplink's status then.

    on_ready: called when the sender runs and has sent nothing.
    """
    options = [str(option) for option in (count, size, interval_ns, traffic_class, group)]
    before = ended(emulator.status()["mobile.uplink"])
    sender = subprocess.Popen(
        [sys.executable, "-c", SEND, EDGE[family], *options],
        preexec_fn=emulator.inside("endpoint"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with sender:
        assert sender.stdout.readline() == "ready\n"
        on_ready()
        sender.communicate("\n")
    assert sender.returncode == 0
    deadline = time.monotonic() + 200
    while ended(status := emulator.status()["mobile.uplink"]) < before + count:
        assert time.monotonic() < deadline, status
        time.sleep(0.01)
    return status


def ended(status: dict[str, Any]) -> int:
    """Packets that came into a direction and are no longer there."""
    dropped: dict[str, int] = status["dropped"]
    return int(status["delivered"]) - int(status["duplicated"]) + sum(dropped.values())
