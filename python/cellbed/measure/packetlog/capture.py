"""A live capture of a link's packets as pcapng: complete packets, as the node at its end sends and receives them.

The packet log has neither contents nor TCP flags. So packets are captured by a packet socket (packet(7)) at the node's
interface, in its network namespace. Packets dropped by the link are missing on the receiving side. With segmentation
offload the kernel hands over several segments as one packet of up to 64 KiB, whose checksum is not filled in.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

_ETH_P_ALL = 0x0003
_SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 35, 33
_PACKET_STATISTICS, _SOL_PACKET = 6, 263
_OUTGOING = 4
_BUFFER = 32 << 20
_LARGEST = 1 << 17


@dataclass(frozen=True, slots=True)
class Tap:
    """A choice of packets to capture.

    device: network device of the node in its namespace; outgoing, incoming: names of the directions that begin and end
    at the node, ``None`` to leave a direction out.
    """

    device: str
    outgoing: str | None
    incoming: str | None


@dataclass(frozen=True, slots=True)
class Captured:
    """The result of a capture. lost: packets that the kernel dropped because the reader was too slow."""

    packets: int
    lost: int


def capture(tap: Tap, file: IO[bytes], until: int, most: int) -> Captured:
    """Capture in the network namespace of this process until `until` is readable, Ctrl-C or SIGTERM.

    file: open for writing; each packet can be read from the file at once. most: maximum bytes kept per packet.
    Errors: ``OSError``; ``BrokenPipeError`` if the reader of `file` has ended.
    """
    names: dict[bool, int] = {}
    file.write(section())
    for outgoing, name, end in ((True, tap.outgoing, "in"), (False, tap.incoming, "out")):
        if name is not None:
            names[outgoing] = len(names)
            file.write(interface(f"{name} {end}"))
    file.flush()
    count = 0
    # With protocol 0, no packets are queued until the socket is bound to the device.
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as source:
        for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
            with suppress(OSError):  # the second option needs rights over the whole machine
                source.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        source.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        source.bind((tap.device, _ETH_P_ALL))
        source.setblocking(False)
        asked, ask = os.pipe2(os.O_NONBLOCK)
        signal.set_wakeup_fd(ask)  # a handler would run after the wait if the signal came just before the wait
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        watched = [source.fileno(), until, asked]
        while select.select(watched, [], [])[0] == watched[:1]:
            count += _drain(source, names, file, most)
        count += _drain(source, names, file, most)
        _, lost = struct.unpack("II", source.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
    return Captured(count, lost)


def _drain(source: socket.socket, names: dict[bool, int], file: IO[bytes], most: int) -> int:
    """Write the waiting packets; return their number."""
    count = 0
    while True:
        try:
            content, ancillary, _, address = source.recvmsg(_LARGEST, socket.CMSG_SPACE(16))
        except BlockingIOError:
            file.flush()
            return count
        number = names.get(address[2] == _OUTGOING)
        if number is None:
            continue
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
        file.write(packet(number, seconds * 10**9 + nanoseconds, content[:most], len(content)))
        count += 1


# Blocks of pcapng (draft-ietf-opsawg-pcapng)

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_RAW_IP = 101  # LINKTYPE_RAW
_SHB_APPLICATION, _IF_NAME, _IF_RESOLUTION = 4, 2, 9
_NANOSECONDS = 9  # 10^-9 s


def section() -> bytes:
    """Return the first block of a file."""
    body = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
    return _block(_SECTION, body + _option(_SHB_APPLICATION, b"cellbed") + _option(0, b""))


def interface(name: str) -> bytes:
    """Return the block that describes the next interface, with raw IP packets and times in ns."""
    options = _option(_IF_NAME, name.encode()) + _option(_IF_RESOLUTION, bytes([_NANOSECONDS]))
    return _block(_INTERFACE, struct.pack("<HHI", _RAW_IP, 0, 0) + options + _option(0, b""))


def packet(number: int, time_ns: int, captured: bytes, length: int) -> bytes:
    """Return the block of one packet. number: its interface; captured: its first bytes; length: its full length."""
    head = struct.pack("<IIIII", number, time_ns >> 32, time_ns & 0xFFFFFFFF, len(captured), length)
    return _block(_PACKET, head + captured + bytes(-len(captured) % 4))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("<I", len(body) + 12)
    return struct.pack("<I", kind) + length + body + length
