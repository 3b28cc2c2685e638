"""The two programs of a channel: files and folders as a stream of chunks over several TCP connections.

``python -m cellbed.testbed.migration.transfer CONFIG``, JSON. Each program prints JSON lines. The receiver prints
``port`` and, when everything is written, ``received``; the sender prints ``began``, the time, and ``sent``, bytes
on the wire so far.

A chunk is a header (its number and length, network byte order) and so many bytes, compressed on its own with zstd if
that is wanted. Each connection takes the next chunk when it can send, so that a slow one delays no other; the receiver
puts them in order.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import socket
import struct
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

CHUNK = 256 << 10
AHEAD = 64
"""Chunks that the receiver holds at most while it waits for an earlier one."""
STALL_S = 10
"""After so many seconds without an acknowledgement, a connection is given up."""
PATIENCE_S = 60
"""Maximum time for the other program to start, and for the target to write what it has received."""
_HEADER = struct.Struct("!QI")
_SO_MAX_PACING_RATE = 47


class _Chunks(io.RawIOBase):
    """The writing end of the stream: cuts what is written into chunks."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._buffer = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        while len(self._buffer) >= CHUNK:
            self._put(bytes(self._buffer[:CHUNK]))
            del self._buffer[:CHUNK]
        return len(data)

    def finish(self) -> None:
        """Pass on the rest."""
        self._put(bytes(self._buffer))


class _Ordered(io.RawIOBase):
    """The reading end of the stream: chunks in order of their numbers, as connections deliver them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: dict[int, bytes] = {}
        self._next, self._rest, self._open = 0, b"", 0
        self._failed: Exception | None = None

    def readable(self) -> bool:
        return True

    def opened(self, count: int) -> None:
        """Set the number of connections."""
        self._open = count

    def put(self, number: int, chunk: bytes) -> None:
        """Add a chunk; wait while too many lie ahead of the one that is missing."""
        with self._changed:
            self._changed.wait_for(lambda: number < self._next + AHEAD)
            self._chunks[number] = chunk
            self._changed.notify_all()

    def closed_one(self, error: Exception | None) -> None:
        """Note the end of a connection."""
        with self._changed:
            self._open -= 1
            self._failed = self._failed or error
            self._changed.notify_all()

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            with self._changed:
                self._changed.wait_for(lambda: self._next in self._chunks or self._open == 0 or self._failed)
                if self._failed is not None:
                    raise self._failed
                self._rest = self._chunks.pop(self._next, b"")
                self._next += 1
                self._changed.notify_all()
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def prepare(sender: socket.socket, *, control: str | None, rate_bps: int | None) -> None:
    """Set a socket's congestion control, pacing rate, bit/s, and patience, s. Errors: ``OSError``."""
    if control is not None:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    if rate_bps is not None:
        sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, max(1, rate_bps // 8))
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_S * 1000)


def send(config: dict[str, Any]) -> None:
    """Send a file or folder. Errors: ``OSError``."""
    connections: list[socket.socket] = []
    began_ns = time.monotonic_ns()
    for _ in range(config["connections"]):
        family = socket.AF_INET6 if ":" in config["address"] else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        rate = config["rate_bps"]
        each = rate and rate // config["connections"]
        prepare(connection, control=config["control"], rate_bps=each)
        connection.settimeout(STALL_S)
        connection.connect((config["address"], config["port"]))
        connection.settimeout(None)
        connections.append(connection)
    if config["waits"]:
        report(connected=True)
        sys.stdin.readline()
        began_ns = time.monotonic_ns()
    report(began=began_ns)
    queue: Queue[tuple[int, bytes] | None] = Queue(2 * len(connections))
    lock = threading.Lock()
    sent_bytes, failed = 0, threading.Event()
    number = 0

    def put(chunk: bytes) -> None:
        nonlocal number
        queue.put((number, chunk))
        number += 1
        if failed.is_set():
            raise OSError("a connection was lost")

    def serve(connection: socket.socket) -> None:
        nonlocal sent_bytes
        compress = _compressor(config["level"])
        while (taken := queue.get()) is not None:
            if failed.is_set():
                continue  # the writer waits for a free place
            chunk = compress(taken[1])
            try:
                connection.sendall(_HEADER.pack(taken[0], len(chunk)) + chunk)
            except OSError as error:
                report(error=f"the connection to the target was lost: {error.strerror or error}")
                failed.set()
                continue
            with lock:
                sent_bytes += _HEADER.size + len(chunk)
                report(sent=sent_bytes)

    threads = [threading.Thread(target=serve, args=(each,), daemon=True) for each in connections]
    for thread in threads:
        thread.start()
    stream = _Chunks(put)
    source = Path(config["path"])
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK) as archive:
        for path in sorted(source.iterdir()) if source.is_dir() else [source]:
            if config["names"] is None or path.name in config["names"]:
                archive.add(path, path.name)
    stream.finish()
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    if failed.is_set():
        raise OSError("a connection was lost")
    for connection in connections:
        connection.shutdown(socket.SHUT_WR)
    connections[0].settimeout(PATIENCE_S)
    if connections[0].recv(1) != b"!":
        raise OSError("the target has not received everything")


def receive(config: dict[str, Any]) -> None:
    """Receive into a folder, or into a file; remove what has arrived after an error. Errors: ``OSError``."""
    target = Path(config["path"])
    is_there = target.exists()
    family = socket.AF_INET6 if ":" in config["address"] else socket.AF_INET
    with socket.create_server((config["address"], 0), family=family) as server:
        server.settimeout(PATIENCE_S)
        report(port=server.getsockname()[1])
        connections = [server.accept()[0] for _ in range(config["connections"])]
    stream = _Ordered()
    stream.opened(len(connections))

    def serve(connection: socket.socket) -> None:
        error: Exception | None = None
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            expand = _expander(config["level"])
            with connection.makefile("rb") as reader:
                while header := reader.read(_HEADER.size):
                    number, length = _HEADER.unpack(header)
                    chunk = reader.read(length)
                    if len(chunk) < length:
                        raise OSError("a connection ended within a chunk")
                    stream.put(number, expand(chunk))
        except (OSError, ValueError, struct.error) as wrong:
            error = OSError(f"the connection to the source was lost: {wrong}")
        finally:
            stream.closed_one(error)

    for connection in connections:
        connection.settimeout(None)
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
    try:
        folder = target if config["folder"] else target.parent
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BufferedReader(stream, CHUNK), mode="r|") as archive:
            for member in archive:
                if not config["folder"]:
                    member.name = target.name
                archive.extract(member, folder, filter="fully_trusted")
        while stream.read(CHUNK):
            pass
    except BaseException:
        if not is_there:
            shutil.rmtree(target, ignore_errors=True)
            with contextlib.suppress(OSError):
                target.unlink()
        raise
    connections[0].sendall(b"!")
    report(received=True)


def _compressor(level: int) -> Callable[[bytes], bytes]:
    if not level:
        return bytes
    import zstandard

    return zstandard.ZstdCompressor(level).compress


def _expander(level: int) -> Callable[[bytes], bytes]:
    if not level:
        return bytes
    import zstandard

    return zstandard.ZstdDecompressor().decompress


def report(**event: Any) -> None:
    """Print an event as a line of JSON."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run one of the programs; an error is its last line."""
    config = json.loads(sys.argv[1])
    try:
        (send if config["role"] == "send" else receive)(config)
    except (OSError, tarfile.TarError) as error:
        report(error=f"{getattr(error, 'strerror', None) or error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
