"""Round trips of UDP packets to an echo server, sent at a fixed interval."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from cellbed.experiments.evaluation.applications.application import (
    Application,
    Measured,
    in_thread,
    nanoseconds,
    seconds,
)

if TYPE_CHECKING:
    from cellbed.simulation import Path as NetworkPath

PORT = 7007
HEADERS = 28
"""Bytes of the IPv4 and UDP headers."""
PATIENCE_S = 3.0
"""How long an answer may take."""
ROUND_TRIP = "round trip"
"""The measure."""


@dataclass(frozen=True, slots=True)
class RoundTrips(Application):
    """UDP packets to an echo server at a fixed interval (Sentosa et al., NSDI 2025, §3.1: 1400 bytes every 50 ms)."""

    name: ClassVar[str] = "round-trips"
    bytes: int = 1400
    interval_s: float = 0.05
    packets: int = 100

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds."""
        return self.packets * self.interval_s

    def measures(self) -> list[str]:
        """Return the round-trip time of each packet."""
        return [ROUND_TRIP]

    def simulate(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Run over a path in virtual time."""
        found = path.round_trips(
            count=self.packets, interval=nanoseconds(self.interval_s), request=self.bytes, answer=self.bytes
        )
        return [(ROUND_TRIP, value) for value in seconds(found.taken.tolist())]

    def serve(self, address: str, folder: Path) -> None:
        """Send back every packet."""
        echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        echo.bind((address, PORT))

        def answer() -> None:
            while True:
                packet, sender = echo.recvfrom(65536)
                echo.sendto(packet, sender)

        in_thread(answer)

    def client(self, address: str, seed: int, folder: Path) -> Callable[[], Iterator[Measured]]:
        """Measures the round-trip time of each packet in order; ``None`` for one without an answer."""
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.connect((address, PORT))
        return lambda: self._run(link)

    def _run(self, link: socket.socket) -> Iterator[Measured]:
        padding = bytes(self.bytes - HEADERS - 8)
        sent: list[int] = []
        found: list[float | None] = [None] * self.packets
        begin = time.monotonic_ns()
        interval = nanoseconds(self.interval_s)
        for number in range(self.packets):
            _collect(link, begin + number * interval, sent, found)
            sent.append(time.monotonic_ns())
            link.send(struct.pack("!Q", number) + padding)
        _collect(link, time.monotonic_ns() + nanoseconds(PATIENCE_S), sent, found)
        for value in found:
            yield ROUND_TRIP, value


def _collect(link: socket.socket, until: int, sent: list[int], found: list[float | None]) -> None:
    """Take answers until the time has come or, once all are sent, all are there."""
    while (left := until - time.monotonic_ns()) > 0 and (len(sent) < len(found) or None in found):
        link.settimeout(left / 1e9)
        try:
            packet = link.recv(65536)
        except TimeoutError:
            return
        now = time.monotonic_ns()
        (number,) = struct.unpack_from("!Q", packet)
        if number < len(sent) and found[number] is None:
            found[number] = (now - sent[number]) / 1e9
