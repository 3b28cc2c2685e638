"""Trains of UDP packets down the link, each acknowledged when its last packet has come."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

from cellbed.experiments.evaluation.applications import Measured, Trains, train
from cellbed.experiments.evaluation.programs.round_trips import HEADERS

PORT = 7008
PATIENCE_S = 5.0
_HEADER = struct.Struct("!QQQ")  # train, index, length


def serve(address: str) -> None:
    """Send trains to whoever asks by a TCP connection for them, and tell how long each took, from a thread."""
    asked = socket.create_server((address, PORT))

    def answer() -> None:
        while True:
            connection, (client, _) = asked.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    request = json.loads(line)
                    lines.write(json.dumps(_send(address, client, request)) + "\n")
                    lines.flush()

    threading.Thread(target=answer, daemon=True).start()


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
    until = began + round(PATIENCE_S * 1e9)
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


def run(address: str, application: Trains, seed: int) -> Iterator[Measured]:
    """Ask for the trains of each length and acknowledge them."""
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    link.bind(("0.0.0.0", 0))
    ack = bytes(application.ack_bytes - HEADERS - 8)

    def acknowledge() -> None:
        while True:
            packet, sender = link.recvfrom(65536)
            number, index, length = _HEADER.unpack_from(packet)
            if index + 1 == length:
                link.sendto(struct.pack("!Q", number) + ack, sender)

    threading.Thread(target=acknowledge, daemon=True).start()
    lengths = list(application.lengths)
    random.Random(seed).shuffle(lengths)
    with socket.create_connection((address, PORT)) as connection, connection.makefile("rw") as lines:
        for length in lengths:
            request = {
                "port": link.getsockname()[1],
                "length": length,
                "bytes": application.bytes,
                "trains": application.trains,
                "gap_s": application.gap_s,
            }
            lines.write(json.dumps(request) + "\n")
            lines.flush()
            for value in json.loads(lines.readline()):
                yield train(length), value
