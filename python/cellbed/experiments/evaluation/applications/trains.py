"""Trains of UDP packets down the link, each acknowledged when its last packet has arrived."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from cellbed.experiments.evaluation.applications.application import (
    PATIENCE_NS,
    Application,
    Measured,
    in_thread,
    nanoseconds,
    seconds,
)
from cellbed.experiments.evaluation.applications.round_trips import HEADERS

if TYPE_CHECKING:
    from cellbed.simulation import Path as NetworkPath

PORT = 7008
PATIENCE_S = 5.0
_HEADER = struct.Struct("!QQQ")  # train, index, length


def train(length: int) -> str:
    """Return name of the measure: how long a train of `length` packets took."""
    return f"train of {length}"


@dataclass(frozen=True, slots=True)
class Trains(Application):
    """Trains of back-to-back packets down, each acknowledged when its last one has arrived; a gap behind each
    (Sentosa et al., NSDI 2025, §3.2).

    lengths: packets, in random order. trains: of each length.
    """

    name: ClassVar[str] = "trains"
    lengths: tuple[int, ...] = (1, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500)
    trains: int = 5
    bytes: int = 1400
    ack_bytes: int = 100
    gap_s: float = 0.1

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at half a millisecond a packet."""
        return sum(self.trains * (self.gap_s + 0.05 + 0.0005 * length) for length in self.lengths)

    def measures(self) -> list[str]:
        """How long a train of each length took."""
        return [train(length) for length in self.lengths]

    @classmethod
    def quick(cls) -> Self:
        """Few lengths."""
        return cls(lengths=(1, 10, 50, 100, 500), trains=3)

    def simulate(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Run over a path in virtual time."""
        gap, found = nanoseconds(self.gap_s), list[Measured]()
        for length in (length for length in self._order(seed) for _ in range(self.trains)):
            at = path.now + gap
            taken = path.trains(
                at, lengths=[length], packet=self.bytes, acknowledgement=self.ack_bytes, until=at + PATIENCE_NS
            ).completion.tolist()
            found += [(train(length), value) for value in seconds(taken)]
        return found

    def serve(self, address: str, folder: Path) -> None:
        """Send trains to each client that asks for them by a TCP connection, and return how long each took."""
        asked = socket.create_server((address, PORT))

        def answer() -> None:
            while True:
                connection, (client, _) = asked.accept()
                with connection, connection.makefile("rw") as lines:
                    for line in lines:
                        request = json.loads(line)
                        lines.write(json.dumps(_send(address, client, request)) + "\n")
                        lines.flush()

        in_thread(answer)

    def client(self, address: str, seed: int, folder: Path) -> Callable[[], Iterator[Measured]]:
        """Asks for the trains of each length and acknowledges them."""
        return lambda: self._run(address, seed)

    def _run(self, address: str, seed: int) -> Iterator[Measured]:
        link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        link.bind(("0.0.0.0", 0))
        ack = bytes(self.ack_bytes - HEADERS - 8)

        def acknowledge() -> None:
            while True:
                packet, sender = link.recvfrom(65536)
                number, index, length = _HEADER.unpack_from(packet)
                if index + 1 == length:
                    link.sendto(struct.pack("!Q", number) + ack, sender)

        threading.Thread(target=acknowledge, daemon=True).start()
        with socket.create_connection((address, PORT)) as connection, connection.makefile("rw") as lines:
            for length in self._order(seed):
                request = {
                    "port": link.getsockname()[1],
                    "length": length,
                    "bytes": self.bytes,
                    "trains": self.trains,
                    "gap_s": self.gap_s,
                }
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                for value in json.loads(lines.readline()):
                    yield train(length), value

    def _order(self, seed: int) -> list[int]:
        lengths = list(self.lengths)
        random.Random(seed).shuffle(lengths)
        return lengths


def _send(address: str, client: str, request: dict[str, float]) -> list[float | None]:
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    link.bind((address, 0))
    link.connect((client, int(request["port"])))
    length, padding = int(request["length"]), bytes(int(request["bytes"]) - HEADERS - _HEADER.size)
    found: list[float | None] = []
    with link:
        for number in range(int(request["trains"])):
            # The request and the train before are over when this one begins: the link is cold again.
            time.sleep(request["gap_s"])
            packets = [_HEADER.pack(number, index, length) + padding for index in range(length)]
            began = time.monotonic_ns()
            for packet in packets:
                link.send(packet)
            found.append(_await(link, number, began))
    return found


def _await(link: socket.socket, number: int, began: int) -> float | None:
    until = began + nanoseconds(PATIENCE_S)
    while (left := until - time.monotonic_ns()) > 0:
        link.settimeout(left / 1e9)
        try:
            answer = link.recv(2048)
        except TimeoutError:
            return None
        now = time.monotonic_ns()
        if struct.unpack_from("!Q", answer)[0] == number:
            return (now - began) / 1e9
    return None
