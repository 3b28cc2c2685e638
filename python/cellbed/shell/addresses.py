"""Addresses around a shell's link. Those of its two ends are chosen by the network helper (``crates/nethelper``)."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from pathlib import Path

from cellbed.support.errors import CellbedError

HELPERS = IPv4Network("100.127.128.0/17")
"""Networks between a helper such as pasta and the namespace that it connects: shared address space (RFC 6598)."""
_HELPERS_IPV6 = IPv6Address("fd63:656c:6c62:fe00::")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two ends of a shell's link: the gateway is the outer one, the way out."""

    gateway: IPv4Address
    inside: IPv4Address
    gateway_ipv6: IPv6Address
    inside_ipv6: IPv6Address


@dataclass(frozen=True, slots=True)
class HelperNetwork:
    """The network on which a helper connects the outer end of a link to the host, by its number."""

    number: int

    @property
    def network(self) -> IPv4Network:
        """Its 256 addresses."""
        return IPv4Network((int(HELPERS.network_address) + 256 * self.number, 24))

    @property
    def host(self) -> IPv4Address:
        """The helper's end: stands for the host itself. The numbers of both ends are those of slirp4netns(1)."""
        return self.network[2]

    @property
    def namespace(self) -> IPv4Address:
        """The namespace's end."""
        return self.network[100]

    @property
    def host_ipv6(self) -> IPv6Address:
        """The helper's end in IPv6."""
        return _HELPERS_IPV6 + (self.number << 16) + 1

    @property
    def namespace_ipv6(self) -> IPv6Address:
        """The namespace's end in IPv6."""
        return _HELPERS_IPV6 + (self.number << 16) + 2


def choose_helper_network(used: Iterable[IPv4Network]) -> HelperNetwork:
    """Return the first network for a helper that overlaps none in use. Errors: :class:`CellbedError` when there is
    none."""
    taken = _numbers(used, HELPERS, 256)
    for number in range(HELPERS.num_addresses // 256):
        if number not in taken:
            return HelperNetwork(number)
    raise CellbedError(f"no network is free for the shell: every part of {HELPERS} is routed elsewhere on this machine")


def networks_in_sight(proc: Path = Path("/proc")) -> list[IPv4Network]:
    """IPv4 networks of the addresses and routes of the current network namespace, without default routes."""
    found = []
    for name, parse in (("fib_trie", parse_trie), ("route", parse_routes)):
        file = proc / "net" / name
        if file.exists():
            found += parse(file.read_text(encoding="utf-8"))
    return [network for network in found if network.prefixlen > 0]


def parse_trie(text: str) -> list[IPv4Network]:
    """Read the content of ``/proc/net/fib_trie``: a line ``|-- ADDRESS``, then ``/PREFIX SCOPE TYPE`` for each entry.

    It has addresses of the machine, which ``/proc/net/route`` lacks, and takes no other library to read.
    """
    networks = []
    address = "0.0.0.0"
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words and words[0].startswith("/"):
            networks.append(IPv4Network(address + words[0], strict=False))
    return networks


def parse_routes(text: str) -> list[IPv4Network]:
    """Destinations in ``/proc/net/route``: hexadecimal, in the byte order of the machine."""
    networks = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        destination = socket.ntohl(int(fields[1], 16))
        prefix = int(fields[7], 16).bit_count()
        networks.append(IPv4Network((destination, prefix), strict=False))
    return networks


def has_ipv6_way_out(proc: Path = Path("/proc")) -> bool:
    """Return whether the current network namespace has an IPv6 default route through a device."""
    path = proc / "net" / "ipv6_route"
    if not path.exists():
        return False
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            return True
    return False


def _numbers(used: Iterable[IPv4Network], space: IPv4Network, size: int) -> set[int]:
    """Numbers of the blocks of `size` addresses in `space` that overlap a network in use."""
    numbers: set[int] = set()
    begin, end = int(space.network_address), int(space.broadcast_address)
    for network in used:
        # A route to the whole shared address space, as some providers and overlay networks have, leaves no choice.
        if network.prefixlen <= 10:
            continue
        low, high = max(begin, int(network.network_address)), min(end, int(network.broadcast_address))
        numbers.update(range((low - begin) // size, (high - begin) // size + 1) if low <= high else ())
    return numbers
