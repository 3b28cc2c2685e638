"""Users and their rights to configure this process's network namespace, with or without the network helper."""

from __future__ import annotations

import fcntl
import os
import pwd
from pathlib import Path

CAP_NET_ADMIN = 12
CAP_SYS_ADMIN = 21
NETWORK_HELPER = Path("/usr/local/libexec/cellbed/cellbed-net")
"""Path at which `cellbed grant USER --network` installs the network helper (``crates/nethelper``)."""
COMPILED_HELPER = Path(__file__).parents[1] / "cellbed-net"
"""Path of the helper without capabilities, compiled by `make setup` or part of a wheel."""
NETWORK_USERS = Path("/etc/cellbed/network-users")
"""File with ids of the users who may use the helper, one per line."""
_NS_GET_USERNS = 0xB701
"""ioctl of namespace files: a descriptor of the user namespace that owns them (ioctl_ns(2))."""


def user_name(user: int) -> str:
    """Return the login name of a user, or the number without one."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def may_configure_network() -> bool:
    """Return whether this process may configure its network namespace, as root and ordinary users' shells may.

    Capabilities alone are not sufficient: they may belong to a user namespace that does not own the network
    namespace.
    """
    return _has_capabilities(Path("/proc/self/status").read_text(encoding="utf-8")) and _owns_network()


def is_granted(user: int) -> bool:
    """Return whether the network helper is installed and may be used by `user`."""
    try:
        lines = NETWORK_USERS.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return False
    return str(user) in lines and os.access(NETWORK_HELPER, os.X_OK)


def _has_capabilities(status: str) -> bool:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            effective = int(value, 16)
            return all(effective >> capability & 1 for capability in (CAP_NET_ADMIN, CAP_SYS_ADMIN))
    return False


def _owns_network() -> bool:
    with Path("/proc/self/ns/net").open("rb") as network:
        try:
            owner = fcntl.ioctl(network, _NS_GET_USERNS)
        except OSError:
            return False
    try:
        ours = Path("/proc/self/ns/user").stat()
        theirs = os.fstat(owner)
    finally:
        os.close(owner)
    return (ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino)
