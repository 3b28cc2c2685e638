"""Bytes by TCP: files over connections of their own, and the segments of a video over one."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

from cellbed.experiments.evaluation.adaptation import play
from cellbed.experiments.evaluation.applications import Downloads, Measured, Player, download

PORT = 7009
_CHUNK = bytes(1 << 16)
_PATIENCE_S = 120.0


def serve(address: str) -> None:
    """Send as many bytes as each request asks for, from threads."""
    listener = socket.create_server((address, PORT), backlog=256)

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def _answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, contextlib.suppress(OSError):
        while request := connection.recv(8, socket.MSG_WAITALL):
            (left,) = struct.unpack("!Q", request)
            while left > 0:
                left -= connection.send(_CHUNK[: min(left, len(_CHUNK))])


def run(address: str, application: Downloads, seed: int) -> Iterator[Measured]:
    """The files in random order, each from the first SYN to the last byte."""
    for pause, size in application.turns(seed):
        time.sleep(pause)
        began = time.monotonic()
        try:
            with socket.create_connection((address, PORT), timeout=_PATIENCE_S) as connection:
                ended = _fetch(connection, size)
        except OSError:
            yield download(size), None
            continue
        yield download(size), ended - began


def watch(address: str, application: Player, seed: int) -> Iterator[Measured]:
    """The beginning of a video by each rule, over one connection for each."""
    chance = random.Random(seed)
    rules = list(application.rules)
    chance.shuffle(rules)
    for rule in rules:
        with socket.create_connection((address, PORT), timeout=_PATIENCE_S) as connection:

            def fetch(size: int, connection: socket.socket = connection) -> tuple[float, float]:
                began = time.monotonic()
                return began, _fetch(connection, size)

            yield from play(application, rule, fetch)
        time.sleep(1.0)


def _fetch(connection: socket.socket, size: int) -> float:
    """Get `size` bytes; returns when the last one was there, monotonic seconds."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(struct.pack("!Q", size))
    left, buffer = size, bytearray(1 << 18)
    while left > 0:
        count = connection.recv_into(buffer, min(left, len(buffer)))
        if not count:
            raise ConnectionError(f"{left} of {size} bytes are missing")
        left -= count
    return time.monotonic()
