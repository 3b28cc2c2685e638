"""Reports spans of a service, or requests of a client, to cellbed. Copy this file into the program.

    request = headers.get("Cellbed-Request")       # or spans.of_connection(peer, number), without HTTP
    with spans.span(request, "database"):
        rows = query()

    with spans.request("checkout"):                # in a client
        post(order)

If it is used as a second locustfile (``locust -f locustfile.py,spans.py``), it reports Locust's requests.

Without cellbed (no ``CELLBED_SPANS`` or ``CELLBED_REQUESTS`` in the environment) nothing happens. No call waits or
raises, even after cellbed has ended. Protocols: docs/reference/spans.md and requests.md.
"""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Sender:
    """Sends lines to the socket whose path is in an environment variable."""

    def __init__(self, variable: str) -> None:
        self.variable = variable
        self.socket: socket.socket | None = None
        self.next_try_ns = 0
        self.dropped = 0

    def send(self, line: str) -> None:
        """Send a line without waiting; if that is not possible, drop and count the line."""
        path = os.environ.get(self.variable)
        if not path:
            return
        try:
            to = self.socket
            if to is None:
                if time.monotonic_ns() < self.next_try_ns:
                    raise BlockingIOError
                # Threads may connect at the same time. Each sends to its own socket, so no thread drops its line.
                to = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                to.setblocking(False)
                to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                to.connect(path)
                self.socket = to
            lost = f"!dropped {self.dropped}\n" if self.dropped else ""
            to.send(f"{lost}{line}\n".encode(), socket.MSG_NOSIGNAL)
            self.dropped = 0
        except BlockingIOError:  # cellbed is too slow, or was missing a moment ago
            self.dropped += 1
        except (OSError, ValueError):  # cellbed is missing, or has ended
            self.dropped, self.socket, self.next_try_ns = self.dropped + 1, None, time.monotonic_ns() + 1_000_000_000


_spans, _requests = _Sender("CELLBED_SPANS"), _Sender("CELLBED_REQUESTS")


def report(request: str | None, name: str, begin_ns: int, end_ns: int) -> None:
    """Report a span of a request.

    Args:
        request: Name of the request: value of its header ``Cellbed-Request``, or result of :func:`of_connection`.
        name: Name of the span.
        begin_ns: Begin, by ``time.monotonic_ns``.
        end_ns: End, likewise.
    """
    if request:
        _spans.send(f"{request} {name} {begin_ns} {end_ns}")


@contextmanager
def span(request: str | None, name: str) -> Iterator[None]:
    """Report the block as a span. Arguments: see :func:`report`."""
    begin_ns = time.monotonic_ns()
    try:
        yield
    finally:
        report(request, name, begin_ns, time.monotonic_ns())


def of_connection(peer: tuple[str, int], number: int) -> str:
    """Return the name of a request without HTTP.

    Args:
        peer: Address and port of the client.
        number: Number of earlier requests on its connection.
    """
    return f"{peer[0]}:{peer[1]}/{number}"


def report_request(name: str, begin_ns: int, end_ns: int, outcome: str = "ok", intended_ns: int | None = None) -> None:
    """Report a request of this client.

    Args:
        name: Name of the kind of request.
        begin_ns: Begin, by ``time.monotonic_ns``.
        end_ns: End, likewise.
        outcome: ``ok``, ``failed``, ``timed-out`` or ``lost``.
        intended_ns: Scheduled begin in an open loop; the latency counts from it.
    """
    word = "".join(each if "!" <= each <= "~" else "_" for each in name[:100]) or "_"
    intended = "" if intended_ns is None else f" {intended_ns}"
    _requests.send(f"{word} {begin_ns} {end_ns} {outcome}{intended}")


@contextmanager
def request(name: str, intended_ns: int | None = None) -> Iterator[None]:
    """Report the block as a request; ``TimeoutError``: timed out, ``ConnectionError``: lost, other errors: failed.

    Args:
        name: Name of the kind of request.
        intended_ns: Scheduled begin in an open loop; the latency counts from it.
    """
    begin_ns, outcome = time.monotonic_ns(), "ok"
    try:
        yield
    except BaseException as error:
        kinds = {TimeoutError: "timed-out", ConnectionError: "lost"}
        outcome = next((words for kind, words in kinds.items() if isinstance(error, kind)), "failed")
        raise
    finally:
        report_request(name, begin_ns, time.monotonic_ns(), outcome, intended_ns)


def _report_locust(
    request_type: str, name: str, response_time: float, exception: object = None, start_time: float = 0, **_: Any
) -> None:
    """Report a request of Locust. response_time: ms; start_time: by the wall clock, s; also given for requests that the
    user examines before the event."""
    now = time.monotonic_ns()
    age_ns = round((time.clock_gettime(time.CLOCK_REALTIME) - start_time) * 1e9) if start_time else 0
    begin_ns = now - max(age_ns, round(response_time * 1e6))
    kind = "" if exception is None else type(exception).__name__
    outcomes = {"": "ok", "Timeout": "timed-out", "Connect": "lost", "Disconnect": "lost"}
    outcome = next((words for part, words in outcomes.items() if (part in kind if part else not kind)), "failed")
    report_request(f"{request_type} {name}", begin_ns, begin_ns + round(response_time * 1e6), outcome)


_locust = sys.modules.get("locust")
if _locust is not None and not hasattr(_locust, "cellbed_reports"):
    _locust.cellbed_reports = True  # type: ignore[attr-defined]
    _locust.events.request.add_listener(_report_locust)
