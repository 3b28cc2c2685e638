"""The two programs of a channel: they transfer a file or folder as a stream of chunks over several TCP connections.

``python -m cellbed.testbed.migration.transfer CONFIG``, JSON. Both inherit the connections and the file or folder: they
open no port and follow no path. They print JSON lines: the receiver prints ``received`` when everything is written. The
sender prints ``began``, a time, and ``sent``, the bytes on the wire so far.

A chunk has a header (its number and length, network byte order), then its bytes, optionally compressed with zstd,
independently of other chunks. Each connection takes the next chunk when it can send, so a slow connection delays no
other. The receiver restores the order.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import stat
import struct
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from queue import Queue
from typing import Any

from cellbed.testbed.nodes.copies import MOST_BYTES, pack, unpack

CHUNK = 256 << 10
AHEAD = 64
"""Maximum number of chunks that the receiver holds while it waits for an earlier one."""
STALL_S = 10
"""Maximum time of a connection without an acknowledgement, seconds."""
PATIENCE_S = 60
"""Maximum time for the other program to start, and for the target to write the received data, seconds."""
EMPTY_BYTES = 10_252
"""Size of a transfer without content, bytes: the shortest archive of tar, and the header of a chunk."""
_HEADER = struct.Struct("!QI")
_SO_MAX_PACING_RATE = 47


class _Chunks(io.RawIOBase):
    """The writing end of the stream: splits the data into chunks."""

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
        """Pass on the remaining data."""
        self._put(bytes(self._buffer))


class _Ordered(io.RawIOBase):
    """The reading end of the stream: chunks in order of their numbers, from all connections."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: dict[int, bytes] = {}
        self._next, self._rest, self._open = 0, b"", 0
        self._failed: Exception | None = None

    def readable(self) -> bool:
        return True

    def set_connections(self, count: int) -> None:
        """Set the number of connections."""
        self._open = count

    def put(self, number: int, chunk: bytes) -> None:
        """Add a chunk; wait while too many chunks are ahead of the missing one."""
        with self._changed:
            self._changed.wait_for(lambda: number < self._next + AHEAD)
            self._chunks[number] = chunk
            self._changed.notify_all()

    def end_connection(self, error: Exception | None) -> None:
        """Record the end of a connection."""
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
    """Set a socket's congestion control, pacing rate (bit/s), and timeout of acknowledgements. Errors: ``OSError``."""
    if control is not None:
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    if rate_bps is not None:
        sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, max(1, rate_bps // 8))
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_S * 1000)


def send(config: dict[str, Any]) -> None:
    """Send a file, or files of a folder. Errors: ``OSError``."""
    connections = _connections(config)
    source: int = config["file"]
    if config["waits"] and not sys.stdin.readline():
        return
    report(began=time.monotonic_ns())
    queue: Queue[tuple[int, bytes] | None] = Queue(2 * len(connections))
    lock = threading.Lock()
    sent_bytes, failed = 0, threading.Event()
    number = 0

    def put(chunk: bytes) -> None:
        nonlocal number
        queue.put((number, chunk))
        number += 1
        if failed.is_set():
            raise OSError("a connection to the target was lost")

    def serve(connection: socket.socket) -> None:
        nonlocal sent_bytes
        compress = _codec(config["level"], sends=True)
        while (taken := queue.get()) is not None:
            if failed.is_set():
                continue  # empty the queue: `put` waits for a free place
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
    if stat.S_ISREG(os.fstat(source).st_mode):
        with open(source, "rb", closefd=False) as file:
            file.seek(0)
            shutil.copyfileobj(file, stream, CHUNK)
    else:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=CHUNK) as archive:
            names: int = config["names"]
            pack(source, json.loads(os.pread(names, os.fstat(names).st_size, 0)), archive)
    stream.finish()
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()  # each write fails after STALL_S; the run does not wait, since it is another process
    if failed.is_set():
        raise OSError("a connection to the target was lost")
    for connection in connections:
        connection.shutdown(socket.SHUT_WR)
    connections[0].settimeout(PATIENCE_S)
    if connections[0].recv(1) != b"!":
        raise OSError("the target ended before it had received all data")


def receive(config: dict[str, Any]) -> None:
    """Receive into an open file or folder. Errors: ``OSError``."""
    connections = _connections(config)
    target: int = config["file"]
    stream = _Ordered()
    stream.set_connections(len(connections))

    def serve(connection: socket.socket) -> None:
        error: Exception | None = None
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            expand = _codec(config["level"], sends=False)
            with connection.makefile("rb") as reader:
                while header := reader.read(_HEADER.size):
                    number, length = _HEADER.unpack(header)
                    chunk = reader.read(min(length, 2 * CHUNK))
                    if len(chunk) < length:
                        raise OSError("a connection ended within a chunk")
                    stream.put(number, expand(chunk))
        except Exception as wrong:  # also errors of zstd
            error = OSError(f"the connection to the source was lost: {wrong}")
        finally:
            stream.end_connection(error)

    for connection in connections:
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
    if stat.S_ISREG(os.fstat(target).st_mode):
        os.ftruncate(target, 0)
        with open(target, "wb", closefd=False) as file:
            file.seek(0)
            while data := stream.read(CHUNK):
                file.write(data)
                if file.tell() > MOST_BYTES:
                    raise OSError(f"the file is larger than {MOST_BYTES >> 30} GiB")
    else:
        with tarfile.open(fileobj=io.BufferedReader(stream, CHUNK), mode="r|") as archive:
            unpack(archive, target)
        while stream.read(CHUNK):
            pass
    connections[0].sendall(b"!")
    report(received=True)


def _connections(config: dict[str, Any]) -> list[socket.socket]:
    connections = [socket.socket(fileno=each) for each in config["connections"]]
    for each in connections:
        each.settimeout(None)
    report(ready=True)
    return connections


def _codec(level: int, *, sends: bool) -> Callable[[bytes], bytes]:
    """Return the function that compresses chunks if `sends`, else the one that decompresses them."""
    if not level:
        return bytes
    import zstandard

    return zstandard.ZstdCompressor(level).compress if sends else zstandard.ZstdDecompressor().decompress


def report(**event: Any) -> None:
    """Print an event as a line of JSON."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run one of the programs; print an error as the last line."""
    config = json.loads(sys.argv[1])
    try:
        (send if config["role"] == "send" else receive)(config)
    except (OSError, tarfile.TarError) as error:
        report(error=f"{getattr(error, 'strerror', None) or error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
