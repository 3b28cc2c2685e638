"""One end of many TCP connections for ``emulator_links.py``. One program serves all nodes, at minimum cost.

``link_load.py receive NAMESPACE ADDRESS COUNT SECONDS`` listens in one node and prints, as JSON, the bytes of each
connection within SECONDS, beginning a second after the last connection. ``link_load.py send ADDRESS NAMESPACE…`` sends
from each node without end. NAMESPACE is a path under /proc; the caller has entered the user namespace, if there is one.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
import time
from pathlib import Path

PORT = 9998
CHUNK = 1 << 16
CLONE_NEWNET = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)


def enter(namespace: str) -> None:
    with Path(namespace).open() as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            sys.exit(f"error: cannot enter {namespace}: {os.strerror(ctypes.get_errno())}")


def receive(namespace: str, address: str, count: int, seconds: float) -> None:
    enter(namespace)
    listener = socket.create_server((address, PORT), backlog=4096)
    print("listening", flush=True)
    poll = select.epoll()
    ends: dict[int, tuple[socket.socket, str]] = {}
    total: dict[int, int] = {}
    for _ in range(count):
        end, (peer, _) = listener.accept()
        end.setblocking(False)
        ends[end.fileno()], total[end.fileno()] = (end, peer), 0
        poll.register(end, select.EPOLLIN)
    space, begin = bytearray(CHUNK), time.monotonic() + 1
    before, now = dict(total), time.monotonic()
    while now < begin + seconds:
        for descriptor, _ in poll.poll(0.1):
            # The kernel discards the bytes instead of copying them (tcp(7)).
            total[descriptor] += ends[descriptor][0].recv_into(space, CHUNK, socket.MSG_TRUNC)
        now = time.monotonic()
        if now < begin:
            before, started = dict(total), now
    print(json.dumps({ends[end][1]: (total[end] - before[end]) / (now - started) for end in total}))


def send(address: str, namespaces: list[str]) -> None:
    poll, data = select.epoll(), bytes(CHUNK)
    ends: dict[int, socket.socket] = {}
    for namespace in namespaces:
        enter(namespace)
        end = socket.create_connection((address, PORT))
        end.setblocking(False)
        ends[end.fileno()] = end
        poll.register(end, select.EPOLLOUT)
    while True:
        for descriptor, _ in poll.poll():
            try:
                ends[descriptor].send(data)
            except BlockingIOError:
                continue
            except ConnectionError:
                return


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    else:
        send(sys.argv[2], sys.argv[3:])
