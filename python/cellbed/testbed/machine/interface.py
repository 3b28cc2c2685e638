"""The interface of this machine behind a live link. It is read only: its address, routes and name stay as they are."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from cellbed.support.errors import CellbedError
from cellbed_node import inputs

_GET_FLAGS, _GET_ADDRESS, _GET_MTU = 0x8913, 0x8915, 0x8921
"""Requests of an interface's properties (netdevice(7))."""
_UP, _LOOPBACK = 0x1, 0x8
LEAST_MTU = 1330
"""Minimum MTU, bytes: IPv6 needs 1280 in the tunnel (RFC 8200, §5), whose headers have 50."""
_STRICT = 1
"""Value of ``rp_filter`` that makes the kernel drop packets whose source it would reach by another interface."""
_CONF = Path("/proc/sys/net/ipv4/conf")


class InterfaceError(CellbedError):
    """An interface that is not as a live link needs it, or no longer."""

    exit_code = 1


class Interface:
    """An interface, as a context without other runs of this machine on it.

    address: its IPv4 address. mtu: its MTU, bytes.
    """

    def __init__(self, name: str) -> None:
        """Errors: :class:`InterfaceError` without such an interface, or one without an address."""
        self.name = name
        self.mtu: int = struct.unpack_from("i", _ask(name, _GET_MTU), 16)[0]
        self._index, self.address = socket.if_nametoindex(name), _address(name)
        self._claim = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        # The name belongs to the network namespace, and is free again when this process ends, however it ends.
        try:
            self._claim.bind(f"\0cellbed.live.{self.name}")
        except OSError:
            self._claim.close()
            raise InterfaceError(f"'{self.name}' is in use by another run: wait for its end") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._claim.close()

    def problem(self) -> str | None:
        """Return how the interface differs from the one at the start; ``None`` if it does not."""
        try:
            if socket.if_nametoindex(self.name) != self._index:
                return f"'{self.name}' is another interface now"
            address = _address(self.name)
        except InterfaceError as error:
            return str(error)
        except OSError:
            return f"'{self.name}' has disappeared"
        if address != self.address:
            return f"'{self.name}' has the address {address} now, and had {self.address}"
        return None if _flags(self.name) & _UP else f"'{self.name}' is down"

    def counters(self) -> tuple[int, int]:
        """Return the bytes that the interface has received and sent, of all programs of this machine."""
        for line in _lines("dev"):
            name, _, counts = line.partition(":")
            if name.strip() == self.name:
                received, sent = counts.split()[0], counts.split()[8]
                return int(received), int(sent)
        return 0, 0


def obstacle(name: str, *, shared: bool) -> str | None:
    """Return why a live link cannot use an interface, with the remedy; ``None`` if it can.

    shared: whether the interface may have the only default route.
    """
    try:
        if _flags(name) & _LOOPBACK:
            return f"'{name}' leads to this machine itself: write one of {_others(name)}"
        if not _flags(name) & _UP:
            return f"'{name}' is down: sudo ip link set {name} up"
        with Interface(name) as interface:
            if interface.mtu < LEAST_MTU:
                return f"'{name}' has an MTU of {interface.mtu} bytes, and a live link needs {LEAST_MTU}"
    except InterfaceError as error:
        return str(error)
    defaults = sorted(_default_routes())
    if {each for _, each in defaults} == {name} and not shared:
        text = f"'{name}' has this machine's only default route, so other traffic uses it, too"
        return f"{text}: accept this with shared = true, or write another interface"
    if defaults and defaults[0][1] != name and max(map(_filter, ("all", name))) == _STRICT:
        return f"this machine drops replies at '{name}': sudo sysctl -w net.ipv4.conf.{name}.rp_filter=2"
    return None


def _flags(name: str) -> int:
    return int(struct.unpack_from("H", _ask(name, _GET_FLAGS), 16)[0])


def _address(name: str) -> IPv4Address:
    return IPv4Address(_ask(name, _GET_ADDRESS)[20:24])


def _ask(name: str, request: int) -> bytes:
    """Return the kernel's answer about an interface (``struct ifreq``, netdevice(7))."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            return fcntl.ioctl(asking, request, struct.pack("16s24x", name.encode()))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise InterfaceError(f"'{name}' has no IPv4 address") from None
    raise InterfaceError(f"this machine has no interface '{name}': write one of {_others(name)}")


def _others(name: str) -> str:
    found = [each for _, each in socket.if_nameindex() if each not in (name, "lo")]
    return ", ".join(found[:8]) or "those of `ip address`"


def _default_routes() -> Iterator[tuple[int, str]]:
    """Yield metric and interface of each IPv4 default route (``fib_route_seq_show`` in Linux, net/ipv4/fib_trie.c)."""
    for line in _lines("route"):
        name, target, _, _, _, _, metric, mask, *_ = line.split()
        if target == mask == "00000000":
            yield int(metric), name


def _lines(table: str) -> list[str]:
    """Return the lines of a table of the network namespace."""
    return Path("/proc/self/net", table).read_text(encoding="utf-8").splitlines()


def _filter(name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(inputs.text(_CONF / name / "rp_filter"))
    return 0
