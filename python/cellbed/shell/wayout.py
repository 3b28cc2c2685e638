"""Which way leads from the outer end of a shell's link to the host's network, for this user on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from cellbed.shell import helper, nat
from cellbed.shell.privilege import may_configure_network


@dataclass(frozen=True, slots=True)
class WayOut:
    """How packets go on behind the link.

    kind: ``"direct"``, the outer end lies in the caller's network namespace, which translates addresses; ``"helper"``,
    it lies in a namespace of its own that a helper connects; ``"none"``, it leads nowhere.
    helpers: names of the helpers to try, in order. reason: why there is none and what would help.
    """

    kind: Literal["direct", "helper", "none"]
    helpers: tuple[str, ...] = ()
    reason: str = ""


def find_way_out() -> WayOut:
    """The way out that this user has."""
    return choose(
        privileged=may_configure_network(),
        root=os.geteuid() == 0,
        translation=nat.available(),
        helpers=tuple(helper.installed()),
    )


def choose(*, privileged: bool, root: bool, translation: bool, helpers: tuple[str, ...]) -> WayOut:
    """The way out, given what there is.

    privileged: the current network namespace may be set up. translation: nft or iptables is installed.
    """
    if not translation:
        return WayOut("none", reason="nft is not installed: sudo apt install nftables")
    if privileged:
        return WayOut("direct")
    if root:
        return WayOut("none", reason="root without CAP_NET_ADMIN over this network namespace, as in a container")
    if not helpers:
        return WayOut("none", reason="an ordinary user needs pasta or slirp4netns: sudo apt install passt")
    return WayOut("helper", helpers=helpers)
