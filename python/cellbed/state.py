"""The state of a service that moves to another node: saved on the old node, loaded on the new one.

A single file with only Python's standard library; a service imports or copies it. Protocol: docs/reference/state.md::

    class Sessions(State):
        def save(self, everything):      # or only changes since the last call
            with self.lock:
                found, self.changed = self.all if everything else self.changed, {}
                yield json.dumps(found).encode()

        def load(self, part):            # each part that another instance has saved, in order
            self.all.update(json.loads(part))

    sessions = Sessions()
    sessions.announce()                  # does nothing without a testbed
    …
    with sessions.lock:                  # while a request is processed
        …

A state of fixed size in memory needs neither function: see :class:`Pages`.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from typing import BinaryIO

VARIABLE = "CELLBED_STATE"


class State:
    """The state of a service. A subclass implements :meth:`save` and :meth:`load`.

    Attributes:
        lock: The service holds the lock while it processes a request. This class takes the lock before the last save,
            until the service ends or its move has failed, so that no request changes a saved state.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def save(self, everything: bool) -> Iterable[bytes]:
        """Return the state in parts.

        Args:
            everything: Whether to return the whole state, or only changes since the last call.
        """
        raise NotImplementedError

    def load(self, part: bytes) -> None:
        """Load a part that another instance has saved.

        Args:
            part: A part, in the order of :meth:`save`.
        """
        raise NotImplementedError

    def announce(self) -> bool:
        """Wait for migrations in a separate thread.

        Returns:
            Whether a testbed may ask for migrations.
        """
        path = os.environ.get(VARIABLE)
        if not path:
            return False
        threading.Thread(target=self._wait, args=(path,), daemon=True).start()
        return True

    def _wait(self, path: str) -> None:
        """Serve one migration after another; a connection ends with a failed migration, or with the program."""
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                try:
                    connection.connect(path)
                    self._serve(connection)
                except (OSError, EOFError):
                    time.sleep(0.1)

    def _serve(self, connection: socket.socket) -> None:
        stands_still = False
        try:
            with connection.makefile("rb") as reader, connection.makefile("wb") as writer:
                for line in reader:
                    verb, _, rest = line.decode().strip().partition(" ")
                    if verb in ("save", "finish"):
                        if verb == "finish":
                            stands_still = self.lock.acquire()
                        for part in self.save(rest == "all"):
                            _write(writer, part)
                        writer.write(b"0\n")
                    elif verb == "load":
                        left = int(rest)
                        while left:
                            size = int.from_bytes(_read(reader, 8), "big")
                            with self.lock:
                                self.load(_read(reader, size))
                            left -= 8 + size
                        writer.write(b"loaded\n")
                    elif verb == "serve":
                        writer.write(b"serving\n")
                    writer.flush()
        finally:
            if stands_still:
                self.lock.release()


_USERFAULTFD = {"x86_64": 323, "aarch64": 282, "riscv64": 282}
"""System call number of userfaultfd(2), by machine."""
_USER_MODE_ONLY = 1
# linux/userfaultfd.h: UFFDIO_API and UFFDIO_REGISTER, with UFFD_FEATURE_WP_UNPOPULATED and UFFD_FEATURE_WP_ASYNC, and
# UFFDIO_REGISTER_MODE_WP. linux/fs.h: PAGEMAP_SCAN, with PM_SCAN_WP_MATCHING and PAGE_IS_WRITTEN.
_API, _FEATURES = 0xC018AA3F, 1 << 13 | 1 << 15
_REGISTER, _WRITE_PROTECTED = 0xC020AA00, 2
_SCAN, _PROTECTS, _IS_WRITTEN = 0xC0606610, 1, 2
_REGIONS = 4096
_RANGE = struct.Struct("=QQ")
_PART = 1 << 20


class Pages(State):
    """A state of fixed size in memory, such as a table, an array or the world of a game.

    The kernel (Linux 6.7 or newer) tracks written pages, also writes by numpy or C. If it cannot (``tracks`` is then
    false), changed pages are found by comparison with a copy. Then the memory is needed twice from the first migration
    on, and the service stops for about one more second per GB.

    Args:
        size: Bytes, rounded up to whole pages.

    Attributes:
        memory: Private and anonymous; initially zeros.
        tracks: Whether the kernel tracks writes; ``None`` before a migration.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.tracks: bool | None = None

    def save(self, everything: bool) -> Iterator[bytes]:
        """Yield the memory, or the pages written since the previous call began, in parts of ranges: offset, length and
        bytes. Writes during this call are also in the next call's parts."""
        if self.tracks is None:
            try:
                self._track()
                self._scan()
                self.tracks = True
            except OSError:
                self._copy, self.tracks = bytearray(len(self.memory)), False
        ranges: Iterable[tuple[int, int]] = self._scan() if self.tracks else self._compare()
        part = bytearray()
        for begin, end in [(0, len(self.memory))] if everything else ranges:
            for start in range(begin, end, _PART):
                data = self.memory[start : min(end, start + _PART)]
                if not self.tracks:
                    self._copy[start : start + len(data)] = data
                part += _RANGE.pack(start, len(data)) + data
                if len(part) >= _PART:
                    yield bytes(part)
                    part.clear()
        if part:
            yield bytes(part)

    def load(self, part: bytes) -> None:
        """Write the pages in a part to the memory."""
        place = 0
        while place < len(part):
            start, length = _RANGE.unpack_from(part, place)
            place += _RANGE.size
            self.memory[start : start + length] = part[place : place + length]
            place += length

    def _track(self) -> None:
        """Make the kernel track written pages. Errors: ``OSError``."""
        library = ctypes.CDLL(None, use_errno=True)
        number = _USERFAULTFD.get(platform.machine(), -1)
        self._faults = library.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
        if self._faults < 0:
            raise OSError(ctypes.get_errno(), "userfaultfd")
        self._begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        fcntl.ioctl(self._faults, _API, bytearray(struct.pack("=3Q", 0xAA, _FEATURES, 0)))
        range_ = struct.pack("=4Q", self._begin, len(self.memory), _WRITE_PROTECTED, 0)
        fcntl.ioctl(self._faults, _REGISTER, bytearray(range_))
        self._pages = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)

    def _scan(self) -> list[tuple[int, int]]:
        """Return the ranges written since the last scan, and restart tracking, atomically. Errors: ``OSError``."""
        found: list[tuple[int, int]] = []
        regions = (ctypes.c_uint64 * (3 * _REGIONS))()
        at, end = self._begin, self._begin + len(self.memory)
        while at < end:
            # size, flags, start, end, walk_end, vec, vec_len, max_pages, and the masks of categories
            places = [96, _PROTECTS, at, end, 0, ctypes.addressof(regions), _REGIONS, 0, 0, _IS_WRITTEN, 0, _IS_WRITTEN]
            request = bytearray(struct.pack("=12Q", *places))
            count = fcntl.ioctl(self._pages, _SCAN, request)
            at = struct.unpack_from("=Q", request, 32)[0]
            found += [(regions[3 * i] - self._begin, regions[3 * i + 1] - self._begin) for i in range(count)]
        return found

    def _compare(self) -> Iterator[tuple[int, int]]:
        """Yield the pages that have changed since the last save."""
        for begin in range(0, len(self.memory), _PART):
            now, before = self.memory[begin : begin + _PART], self._copy[begin : begin + _PART]
            if now != before:
                for page in range(0, len(now), mmap.PAGESIZE):
                    if now[page : page + mmap.PAGESIZE] != before[page : page + mmap.PAGESIZE]:
                        yield begin + page, begin + page + mmap.PAGESIZE


def _write(stream: BinaryIO, part: bytes) -> None:
    """Write a part to the stream, preceded by its length, since the stream does not preserve boundaries of parts."""
    stream.write(b"%d\n" % (8 + len(part)) + len(part).to_bytes(8, "big"))
    stream.write(part)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the testbed has ended")
    return data
