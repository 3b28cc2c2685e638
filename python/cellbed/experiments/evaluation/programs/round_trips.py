"""Round trips of UDP packets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

from cellbed.experiments.evaluation.applications import ROUND_TRIP, Measured, RoundTrips

PORT = 7007
HEADERS = 28
"""Bytes of the IPv4 and UDP headers."""
PATIENCE_S = 3.0
"""How long an answer may take."""


def serve(address: str) -> None:
    """Send back every packet that comes, from a thread."""
    echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    echo.bind((address, PORT))

    def answer() -> None:
        while True:
            packet, sender = echo.recvfrom(65536)
            echo.sendto(packet, sender)

    threading.Thread(target=answer, daemon=True).start()


def run(address: str, application: RoundTrips) -> Iterator[Measured]:
    """The round-trip time of each packet in order, seconds; ``None`` for one without an answer."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect((address, PORT))
    padding = bytes(application.bytes - HEADERS - 8)
    sent: list[int] = []
    found: list[float | None] = [None] * application.packets
    begin = time.monotonic_ns()
    interval = round(application.interval_s * 1e9)
    for number in range(application.packets):
        _collect(link, begin + number * interval, sent, found)
        sent.append(time.monotonic_ns())
        link.send(struct.pack("!Q", number) + padding)
    _collect(link, time.monotonic_ns() + round(PATIENCE_S * 1e9), sent, found)
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
