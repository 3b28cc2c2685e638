"""The way from the outer end of a shell's link to the host's network, and the addresses of the link's ends."""

from __future__ import annotations

import os
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal

from cellbed.shell import helper
from cellbed.testbed.machine.privilege import is_granted, may_configure_network
from cellbed_node.processes import find

INSIDE, OUTSIDE = "inside", "outside"
GRANT = "sudo cellbed grant USER --network"


@dataclass(frozen=True, slots=True)
class WayOut:
    """The path of packets behind the link.

    kind: ``"direct"``: the outer end is in the caller's network namespace, which translates addresses. ``"granted"``:
    the same, through the installed network helper. ``"helper"``: the outer end is in a private namespace, which another
    program connects by sockets. ``"none"``: no access.
    helpers: names of the helpers to try, in order. reason: why there is no access, and the remedy.
    """

    kind: Literal["direct", "granted", "helper", "none"]
    helpers: tuple[str, ...] = ()
    reason: str = ""


def find_way_out(*, granted: bool = True) -> WayOut:
    """Return this user's access to the host's network. granted: the network helper may be used."""
    return choose(
        privileged=may_configure_network(),
        root=os.geteuid() == 0,
        granted=granted and is_granted(os.geteuid()),
        translation=find("nft") is not None,
        helpers=tuple(helper.find_helpers()),
    )


def choose(*, privileged: bool, root: bool, granted: bool, translation: bool, helpers: tuple[str, ...]) -> WayOut:
    """Return the best access under these conditions.

    privileged: the current network namespace may be set up. granted: the network helper is installed and may be used.
    translation: nft is installed.
    """
    if not translation:
        return WayOut("none", reason="nft is not installed: sudo apt install nftables")
    if privileged:
        return WayOut("direct")
    if root:
        return WayOut("none", reason="root without CAP_NET_ADMIN over this network namespace, as in a container")
    if granted:
        return WayOut("granted")
    if not helpers:
        reason = f"an ordinary user needs slirp4netns or pasta (sudo apt install slirp4netns), or: {GRANT}"
        return WayOut("none", reason=reason)
    return WayOut("helper", helpers=helpers)


@dataclass(frozen=True, slots=True)
class Pair:
    """The two ends of a shell's link; the outer end is the gateway."""

    gateway: IPv4Address
    inside: IPv4Address
    gateway_ipv6: IPv6Address
    inside_ipv6: IPv6Address

    @property
    def ends(self) -> tuple[tuple[str, IPv4Address, IPv6Address], ...]:
        """Names and addresses of both ends."""
        return (INSIDE, self.inside, self.inside_ipv6), (OUTSIDE, self.gateway, self.gateway_ipv6)


def has_ipv6_way_out() -> bool:
    """Return whether the current network namespace has an IPv6 default route through a device."""
    path = Path("/proc/net/ipv6_route")
    if not path.exists():
        return False
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[0] == "0" * 32 and fields[1] == "00" and fields[9] != "lo":
            return True
    return False
