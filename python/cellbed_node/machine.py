"""The machine's clock and sockets for clients. A virtual run has others (`replaced`)."""

import errno
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_RECEIVE_BUFFER = 4 << 20
"""Receive buffer of a UDP socket, bytes, as far as the kernel grants it: an overflow looks like loss."""
now_ns: Callable[[], int] = time.monotonic_ns
_ATTEMPTS = 5
"""Number of readings of two clocks; the closest pair counts."""


def clock_ahead(clock: int) -> int:
    """Return by how many ns a clock is ahead of the monotonic clock."""
    readings = []
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        other = time.clock_gettime_ns(clock)
        after = time.monotonic_ns()
        readings.append((after - before, other - (before + after) // 2))
    return min(readings)[1]


def connect(host: str, port: int) -> Any:
    """Return a TCP socket that connects to an address in the background; it is writable when the attempt has ended.

    Errors: ``OSError`` on immediate failure.
    """
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    found.setblocking(False)
    # Messages are written whole: Nagle's algorithm could only delay the tail of each.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = found.connect_ex((host, port))
    if code not in (0, errno.EINPROGRESS):
        found.close()
        raise OSError(code, os.strerror(code))
    return found


def datagrams(host: str, port: int, local_port: int = 0) -> Any:
    """Return a UDP socket for datagrams to and from one address. local_port: 0 for a free port. Errors: ``OSError``."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    found.setblocking(False)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    try:
        if local_port:
            found.bind(("", local_port))
        found.connect((host, port))
    except OSError:
        found.close()
        raise
    return found


def resolve(host: str, port: int) -> str:
    """Return the address of the host name. Errors: ``OSError``."""
    return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])


@contextmanager
def replace_machine(
    clock: Callable[[], int],
    connecting: Callable[[str, int], Any],
    opening: Callable[..., Any],
    resolving: Callable[[str, int], str],
) -> Iterator[None]:
    """Replace clock and sockets for all clients of this process. connecting: TCP sockets; opening: UDP sockets."""
    global now_ns, connect, datagrams, resolve
    before = now_ns, connect, datagrams, resolve
    now_ns, connect, datagrams, resolve = clock, connecting, opening, resolving  # type: ignore[assignment]
    try:
        yield
    finally:
        now_ns, connect, datagrams, resolve = before
