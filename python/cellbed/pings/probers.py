"""Sockets that probe a host: ICMP echo, or the TCP handshake for hosts without ICMP."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Protocol

from cellbed.pings import echo
from cellbed.support.errors import CellbedError

_SO_TIMESTAMPNS = 35
_TCP_INFO_RTT = struct.Struct("=68xI")
"""`tcpi_rtt` of `struct tcp_info` (linux/tcp.h): µs, here that of the handshake."""

Answers = list[tuple[int, int]]
"""Number of the probe, round-trip time in ns."""


class PingError(CellbedError):
    """Probes that are not permitted. The text has reason and remedy."""


class Prober(Protocol):
    """Asks one host."""

    @property
    def by(self) -> str:
        """Name of the method, for the record."""

    def send(self, number: int) -> None:
        """Send a probe. An unreachable network is a lost probe."""

    def descriptors(self) -> list[tuple[int, bool]]:
        """Return the descriptors to wait for: (file descriptor, whether for writing)."""

    def answers(self) -> Answers:
        """Answers since the last call."""

    def close(self) -> None:
        """Give the sockets back."""


class Icmp:
    """Echo requests over a socket that an ordinary user may open (`net.ipv4.ping_group_range`), else a raw one.

    Arrivals are stamped by the kernel, so that a late wake-up of this process is not measured.
    """

    def __init__(self, family: int, address: str) -> None:
        self._family = family
        domain, protocol = (
            (socket.AF_INET, socket.IPPROTO_ICMP) if family == 4 else (socket.AF_INET6, socket.IPPROTO_ICMPV6)
        )
        self._identifier: int | None = None
        try:
            self._socket = socket.socket(domain, socket.SOCK_DGRAM, protocol)
        except PermissionError:
            self._socket = self._raw(domain, protocol)
            self._identifier = int.from_bytes(os.urandom(2))
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        try:
            self._socket.connect((address, 0))
        except OSError as error:
            self._socket.close()
            raise PingError(
                f"{address}: {error.strerror}: is there a route, and does this machine have IPv{family}?"
            ) from error
        self._sent: dict[int, tuple[int, int]] = {}

    @property
    def by(self) -> str:
        """ICMP."""
        return "icmp"

    @staticmethod
    def _raw(domain: int, protocol: int) -> socket.socket:
        try:
            return socket.socket(domain, socket.SOCK_RAW, protocol)
        except PermissionError as error:
            raise PingError(
                "this user may not send echo requests: run sudo sysctl -w net.ipv4.ping_group_range='0 2147483647', "
                "or measure by TCP's handshake with --tcp 443"
            ) from error

    def send(self, number: int) -> None:
        """Send a request."""
        self._sent[number] = time.clock_gettime_ns(time.CLOCK_REALTIME), time.monotonic_ns()
        while len(self._sent) > 10_000:
            del self._sent[next(iter(self._sent))]
        with contextlib.suppress(OSError):
            self._socket.send(echo.request(self._family, self._identifier or 0, number))

    def descriptors(self) -> list[tuple[int, bool]]:
        """Return the socket."""
        return [(self._socket.fileno(), False)]

    def answers(self) -> Answers:
        """Replies that have come."""
        found: Answers = []
        while True:
            try:
                message, ancillary, _, _ = self._socket.recvmsg(2048, 64)
            except BlockingIOError:
                return found
            except OSError:
                # An ICMP error, such as an unreachable network; the probe will time out.
                continue
            number = echo.answered(self._family, message, self._identifier)
            sent = None if number is None else self._sent.pop(number, None)
            if number is not None and sent is not None:
                found.append((number, self._round_trip(sent, ancillary)))

    @staticmethod
    def _round_trip(sent: tuple[int, int], ancillary: list[tuple[int, int, bytes]]) -> int:
        elapsed = time.monotonic_ns() - sent[1]
        for _, kind, data in ancillary:
            if kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("=qq", data[:16])
                stamped = int(seconds) * 10**9 + int(nanoseconds) - sent[0]
                # The wall clock that the kernel stamps with may have been set meanwhile.
                if 0 < stamped <= elapsed:
                    return stamped
        return elapsed

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@dataclass
class Tcp:
    """Connections that end at once: from SYN to SYN-ACK, or to the refusal. port: that of the host."""

    family: int
    address: str
    port: int
    _open: dict[int, tuple[socket.socket, int]] = field(default_factory=dict)

    @property
    def by(self) -> str:
        """TCP and the port."""
        return f"tcp:{self.port}"

    def send(self, number: int) -> None:
        """Begin a connection. An old pending one is given up."""
        while len(self._open) >= 64:
            self._open.pop(next(iter(self._open)))[0].close()
        attempt = socket.socket(socket.AF_INET if self.family == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        attempt.setblocking(False)
        begun = time.monotonic_ns()
        code = attempt.connect_ex((self.address, self.port))
        if code not in (0, errno.EINPROGRESS, errno.ECONNREFUSED):
            attempt.close()
            return
        self._open[number] = (attempt, begun)

    def descriptors(self) -> list[tuple[int, bool]]:
        """Return the pending connections."""
        return [(attempt.fileno(), True) for attempt, _ in self._open.values()]

    def answers(self) -> Answers:
        """Handshakes that are over."""
        found: Answers = []
        for number, (attempt, begun) in list(self._open.items()):
            now = time.monotonic_ns()
            code = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code not in (0, errno.ECONNREFUSED):
                attempt.close()
                del self._open[number]
                continue
            measured = None if code else _handshake(attempt)
            if code == 0 and measured is None:
                continue
            found.append((number, min(measured or now - begun, now - begun)))
            # Reset in place of FIN, so that neither end keeps the connection.
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            attempt.close()
            del self._open[number]
        return found

    def close(self) -> None:
        """Give up pending connections."""
        for attempt, _ in self._open.values():
            attempt.close()
        self._open.clear()


def _handshake(attempt: socket.socket) -> int | None:
    """Return the handshake's round-trip time in ns as measured by the kernel; None while pending."""
    try:
        attempt.getpeername()
    except OSError:
        return None
    information = attempt.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT.size)
    return int(_TCP_INFO_RTT.unpack(information)[0]) * 1000


def resolve(host: str, family: int | None) -> tuple[int, str]:
    """Family (4 or 6) and address of a host. Raises PingError when it has none."""
    wanted = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}[family]
    try:
        found = socket.getaddrinfo(host, None, wanted, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a valid host name"
        raise PingError(f"{host}: {reason}: write a host name or address") from error
    domain, _, _, _, address = found[0]
    return (4 if domain == socket.AF_INET else 6), str(address[0])
