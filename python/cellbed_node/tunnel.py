"""One end of a tunnel through a byte stream: carries the frames of a network device, for a machine over SSH.

This file runs at both ends of the stream: here as a module, and on the machine unchanged and alone, with only Python
3.8 and its standard library. A frame is preceded by its length. The other end is not trusted: its frames reach only the
device, and memory is bounded.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
from pathlib import Path

LENGTH = struct.Struct("!H")
LEAST, MOST = 14, 1518
"""Bytes of a frame: an Ethernet header, a VLAN tag, and a packet of 1500 bytes."""
BACKLOG = 1 << 16
"""Unsent bytes above which no frames are read: they wait in the queue of the device, which drops what is too much."""
_CHUNK = 1 << 16
_TUNSETIFF, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_NEWNET = 0x40000000


class BrokenTunnelError(Exception):
    """The other end sent something that is no frame."""


def open_tap(name: str) -> int:
    """Return a descriptor of the TAP device of this name, which is made if it is missing. Errors: ``OSError``."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
    return device


class Tunnel:
    """Frames between a TAP device and a byte stream in each direction."""

    def __init__(self, device: int, reading: int, writing: int) -> None:
        self._device, self._reading, self._writing = device, reading, writing
        self._incoming, self._outgoing = bytearray(), bytearray()
        for descriptor in (device, reading, writing):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Carry frames until the stream or the device ends. Errors: :class:`BrokenTunnelError`."""
        with contextlib.suppress(OSError):
            while self.turn():
                pass

    def turn(self, timeout_ms: int | None = None) -> bool:
        """Wait for data and carry it. Return whether the stream is open. Errors: ``OSError`` of the stream."""
        wanted = {self._reading: select.POLLIN}
        if self._outgoing:
            wanted[self._writing] = wanted.get(self._writing, 0) | select.POLLOUT
        if len(self._outgoing) < BACKLOG:
            wanted[self._device] = select.POLLIN
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        ready = dict(poll.poll(timeout_ms))
        if ready.get(self._device):
            self._collect()
        if self._outgoing:
            with contextlib.suppress(BlockingIOError):
                del self._outgoing[: os.write(self._writing, self._outgoing)]
        return self._deliver() if ready.get(self._reading, 0) & ~select.POLLOUT else True

    def _collect(self) -> None:
        """Read the waiting frames of the device."""
        with contextlib.suppress(BlockingIOError):
            while len(self._outgoing) < BACKLOG:
                frame = os.read(self._device, MOST + 1)
                if len(frame) <= MOST:
                    self._outgoing += LENGTH.pack(len(frame)) + frame

    def _deliver(self) -> bool:
        """Write received frames to the device. Return whether the stream is open."""
        try:
            data = os.read(self._reading, _CHUNK)
        except BlockingIOError:
            return True
        self._incoming += data
        at = 0
        while len(self._incoming) >= at + LENGTH.size:
            size = LENGTH.unpack_from(self._incoming, at)[0]
            if not LEAST <= size <= MOST:
                raise BrokenTunnelError(f"the other end of the tunnel sent a frame of {size} bytes")
            end = at + LENGTH.size + size
            if len(self._incoming) < end:
                break
            with contextlib.suppress(OSError):  # a frame that the kernel refuses is lost, as on any network
                os.write(self._device, self._incoming[at + LENGTH.size : end])
            at = end
        del self._incoming[:at]
        return bool(data)


def main(reading: int, device: str, mac: str, network: int) -> None:
    """Run the machine's end on standard input and output. network: inode of the network namespace of the node.

    A byte before the first frame confirms that the device is there.
    """
    try:
        _enter(network)
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        quiet = subprocess.DEVNULL
        # The end of a tunnel that carried no packets.
        subprocess.run(["ip", "link", "delete", device], env={"PATH": path}, stdin=quiet, stderr=quiet, check=False)
        tap = open_tap(device)
        subprocess.run(["ip", "link", "set", device, "address", mac], env={"PATH": path}, stdin=quiet, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"no tunnel can be made on this machine: {error}")
    os.write(1, b".")
    Tunnel(tap, reading, 1).run()


def _enter(inode: int) -> None:
    """Enter the network namespace with this inode. Errors: ``OSError``."""
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if path.stat().st_ino == inode:
                namespace = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC)
                if ctypes.CDLL(None, use_errno=True).setns(namespace, _NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
                return
    raise OSError("the node's network namespace has disappeared")


if __name__ == "__main__" and sys.argv[1:]:  # here, in the node's namespace: the stream is a socket
    try:
        Tunnel(open_tap(sys.argv[1]), 0, 0).run()
    except BrokenTunnelError as error:
        print(error, file=sys.stderr)
