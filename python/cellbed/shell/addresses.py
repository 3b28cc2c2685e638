"""Addresses around a shell's link. The network helper (``crates/nethelper``) chooses the addresses of its two ends."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Pair:
    """The two ends of a shell's link: the gateway is the outer one, the way out."""

    gateway: IPv4Address
    inside: IPv4Address
    gateway_ipv6: IPv6Address
    inside_ipv6: IPv6Address


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
