"""Reports spans of requests to cellbed, from inside a service. Copy this file into the service: it needs nothing else.

    request = headers.get("Cellbed-Request")       # or spans.of_connection(peer, number), without HTTP
    with spans.span(request, "database"):
        rows = query()

Without cellbed (no ``CELLBED_SPANS`` in the environment) nothing happens. No call waits or raises, also when cellbed
has ended. The protocol: docs/reference/spans.md.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

_socket: socket.socket | None = None
_next_try_ns = 0
_dropped = 0


def report(request: str | None, name: str, begin_ns: int, end_ns: int) -> None:
    """Report that `request` spent the time from `begin_ns` to `end_ns` (``time.monotonic_ns``) in `name`."""
    global _socket, _next_try_ns, _dropped
    path = os.environ.get("CELLBED_SPANS")
    if not path or not request:
        return
    try:
        to = _socket
        if to is None:
            if time.monotonic_ns() < _next_try_ns:
                raise BlockingIOError
            # Threads may connect at the same time, and each sends to its own socket: none drops what it has.
            to = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            to.setblocking(False)
            to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            to.connect(path)
            _socket = to
        lost = f"!dropped {_dropped}\n" if _dropped else ""
        to.send(f"{lost}{request} {name} {begin_ns} {end_ns}\n".encode(), socket.MSG_NOSIGNAL)
        _dropped = 0
    except BlockingIOError:  # cellbed does not keep up, or was not there a moment ago
        _dropped += 1
    except (OSError, ValueError):  # it is not there, or has gone
        _dropped, _socket, _next_try_ns = _dropped + 1, None, time.monotonic_ns() + 1_000_000_000


@contextmanager
def span(request: str | None, name: str) -> Iterator[None]:
    """Report the time that the block takes."""
    begin_ns = time.monotonic_ns()
    try:
        yield
    finally:
        report(request, name, begin_ns, time.monotonic_ns())


def of_connection(peer: tuple[str, int], number: int) -> str:
    """Names a request by its connection: address and port of the client, and how many requests came before on it."""
    return f"{peer[0]}:{peer[1]}/{number}"
