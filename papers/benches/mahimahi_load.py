"""Sends packets by a plan through a shell of Mahimahi, both ways. Standard library only: it runs as another user.

    mahimahi_load.py outside FOLDER -- SHELL …    (starts the shell with this program in it, and sends downlink)
    mahimahi_load.py inside FOLDER                (sends uplink)

FOLDER holds ``uplink.plan`` and ``downlink.plan``: lines of seconds and IP bytes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

HEADERS = 28
PORT = 7000


def send(plan: Path, sink: tuple[str, int]) -> None:
    """Send the packets of a plan; late ones at once."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        begin = time.monotonic()
        for line in plan.read_text().splitlines():
            at, size = line.split()
            wait = begin + float(at) - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            sender.sendto(bytes(int(size) - HEADERS), sink)


def absorb(listener: socket.socket) -> None:
    """Receive datagrams, so that the kernel does not report a closed port."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    while True:
        listener.recv(2048)


def open_receiver() -> socket.socket:
    """Return a socket for datagrams."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("0.0.0.0", PORT))
    return listener


def inside(folder: Path) -> None:
    """Send a first datagram, which gives the other side the address, then the plan."""
    gateway = os.environ["MAHIMAHI_BASE"]
    listener = open_receiver()
    listener.sendto(bytes(32), (gateway, PORT))
    threading.Thread(target=absorb, args=(listener,), daemon=True).start()
    send(folder / "uplink.plan", (gateway, PORT))


def outside(folder: Path, shell: list[str]) -> int:
    """Start the shell, wait for the first datagram, then send."""
    listener = open_receiver()
    with subprocess.Popen([*shell, sys.executable, __file__, "inside", str(folder)]) as process:
        listener.settimeout(60)
        _, address = listener.recvfrom(2048)
        listener.settimeout(None)
        threading.Thread(target=absorb, args=(listener,), daemon=True).start()
        threading.Thread(target=send, args=(folder / "downlink.plan", (address[0], PORT)), daemon=True).start()
        return process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "inside":
        inside(Path(sys.argv[2]))
    else:
        sys.exit(outside(Path(sys.argv[2]), sys.argv[4:]))
