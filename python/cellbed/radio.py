"""The state of a tower's radio links, for programs on its node: the page that the emulator writes."""

from __future__ import annotations

import mmap
import os
import pathlib
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

VARIABLE = "CELLBED_RADIO"
"""Environment variable with the path of the page."""
_HEADER, _SNAPSHOT, _LINK, _WAY = 64, 64, 128, 48
_MAGIC, _VERSION = b"cellbed\0", 1
_UNLIMITED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Way:
    """One direction of a radio link.

    queued_bytes, queued_packets: in the bottleneck queue, with the packet in service. offered_bytes: what the link
    could carry in the last :attr:`Page.window_ns`, alone in its cell; ``None`` without a limit. delivered_bytes,
    dropped_packets: since the start of the emulator. sharers: users of the cell with packets waiting, this one
    included; 1 without a cell. closed: whether the link is in an outage.
    """

    queued_bytes: int
    queued_packets: int
    offered_bytes: int | None
    delivered_bytes: int
    dropped_packets: int
    sharers: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Link:
    """The radio link of an endpoint. here: whether the endpoint is at this tower now."""

    ipv4: IPv4Address
    ipv6: IPv6Address
    here: bool
    uplink: Way
    downlink: Way


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The links at a time, ns of the monotonic clock."""

    time_ns: int
    links: tuple[Link, ...]

    def of(self, address: str) -> Link | None:
        """Return the link of the endpoint with an address."""
        wanted = ip_address(address)
        mapped = getattr(wanted, "ipv4_mapped", None)
        return next((link for link in self.links if (mapped or wanted) in (link.ipv4, link.ipv6)), None)


class Page:
    """The page of a tower's node. window_ns: time over which capacities are counted; interval_ns: minimum time between
    two snapshots."""

    def __init__(self, path: str | None = None) -> None:
        """Map the page.

        Args:
            path: Path of the page; default: in the environment.

        Raises:
            ValueError: The file is no page of this version.
        """
        with pathlib.Path(path or os.environ[VARIABLE]).open("rb") as file:
            self._page = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if len(self._page) < _HEADER or self._page[:8] != _MAGIC:
            raise ValueError("this file is no page of radio links")
        version, self._count, _, self.window_ns, self.interval_ns = struct.unpack_from("<IIQQQ", self._page, 8)
        self._size = _SNAPSHOT + self._count * _LINK
        if version != _VERSION or len(self._page) < _HEADER + 2 * self._size:
            raise ValueError(f"a page of radio links of version {version}, where version {_VERSION} is expected")

    def read(self) -> Snapshot:
        """Return the latest snapshot."""
        while True:
            (number,) = struct.unpack_from("<Q", self._page, 16)
            begin = _HEADER + number % 2 * self._size
            content = self._page[begin : begin + self._size]
            if struct.unpack_from("<Q", self._page, 16) == (number,):
                links = (_link(content, _SNAPSHOT + each * _LINK) for each in range(self._count))
                return Snapshot(struct.unpack_from("<Q", content)[0], tuple(links))


def _link(content: bytes, at: int) -> Link:
    (here,) = struct.unpack_from("<I", content, at + 20)
    ways = (_way(content, at + 32 + number * _WAY) for number in range(2))
    return Link(IPv4Address(content[at + 16 : at + 20]), IPv6Address(content[at : at + 16]), bool(here), *ways)


def _way(content: bytes, at: int) -> Way:
    queued, packets, offered, delivered, dropped, sharers, closed = struct.unpack_from("<QQQQQII", content, at)
    return Way(queued, packets, None if offered == _UNLIMITED else offered, delivered, dropped, sharers, bool(closed))
