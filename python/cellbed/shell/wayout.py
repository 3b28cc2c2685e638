"""The way from the outer end of a shell's link to the host's network, for this user on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from cellbed.shell import helper
from cellbed.testbed.machine.privilege import is_granted, may_configure_network
from cellbed_node.processes import find

GRANT = "sudo cellbed grant USER --network"


@dataclass(frozen=True, slots=True)
class WayOut:
    """The path of packets behind the link.

    kind: ``"direct"``, the outer end lies in the caller's network namespace, which translates addresses; ``"granted"``,
    the same by the installed network helper; ``"helper"``, it lies in a private namespace that another program connects
    by sockets; ``"none"``, it leads nowhere.
    helpers: names of the helpers to try, in order. reason: why there is none and what would help.
    """

    kind: Literal["direct", "granted", "helper", "none"]
    helpers: tuple[str, ...] = ()
    reason: str = ""


def find_way_out(*, granted: bool = True) -> WayOut:
    """Return the way out that this user has. granted: the network helper may be used."""
    return choose(
        privileged=may_configure_network(),
        root=os.geteuid() == 0,
        granted=granted and is_granted(os.geteuid()),
        translation=find("nft") is not None,
        helpers=tuple(helper.find_helpers()),
    )


def choose(*, privileged: bool, root: bool, granted: bool, translation: bool, helpers: tuple[str, ...]) -> WayOut:
    """Return the way out, given what there is.

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
