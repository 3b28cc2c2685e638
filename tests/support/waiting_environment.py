"""A program in which the kernel waits while it holds the lock of its memory: a read of its environment waits, too.

It maps a file of a file system of its own (FUSE), which never answers a read. Run as ``python waiting_environment.py
FOLDER``; prints the ids of the processes that must be killed.
"""

import ctypes
import mmap
import os
import struct
import sys
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_long]
_NEW_MOUNTS, _PRIVATE, _RECURSIVE = 0x20000, 1 << 18, 0x4000
_LOOKUP, _GETATTR, _OPEN, _READ, _INIT = 1, 3, 14, 15, 26


def _attributes(node: int) -> bytes:
    mode = 0o40755 if node == 1 else 0o100644
    return struct.pack("=6Q10I", node, mmap.PAGESIZE, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def serve(device: int, reading: int) -> None:
    """Answer requests of the kernel, except those that read: they are noted."""
    opened = 0
    while True:
        request = os.read(device, 1 << 20)
        _, kind, number, node = struct.unpack_from("=IIQQ", request)
        if kind == _READ:
            os.write(reading, b"!")
            continue
        answer = {
            _INIT: struct.pack("=4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, *([0] * 9)),
            _LOOKUP: struct.pack("=4Q2I", 2, 0, 1000, 1000, 0, 0) + _attributes(2),
            _GETATTR: struct.pack("=QII", 1000, 0, 0) + _attributes(node),
            # From the second one on FOPEN_DIRECT_IO and FOPEN_KEEP_CACHE: a map waits for pages that are being read.
            _OPEN: struct.pack("=QII", 0, 3 * min(opened, 1), 0),
        }.get(kind)
        opened += kind == _OPEN
        os.write(device, struct.pack("=IiQ", 16 + len(answer or b""), 0 if answer else -38, number) + (answer or b""))


def main(folder: str) -> None:
    """Mount the file system, read its file in another process, and map it."""
    if _libc.unshare(_NEW_MOUNTS) or _libc.mount(None, b"/", None, _PRIVATE | _RECURSIVE, None):
        sys.exit("cannot unshare mounts")
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if _libc.mount(b"fuse", folder.encode(), b"fuse", 0, options.encode()):
        sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
    noted, reading = os.pipe()
    if (server := os.fork()) == 0:
        serve(device, reading)
    os.close(device)
    if (reader := os.fork()) == 0:
        Path(folder, "file").read_bytes()
    os.read(noted, 1)
    file = os.open(Path(folder, "file"), os.O_RDONLY)
    print(server, reader, os.getpid(), flush=True)
    _libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE, file, 0)


if __name__ == "__main__":
    main(sys.argv[1])
