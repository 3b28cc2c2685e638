"""The ports of a running program, and its connections, as this machine's kernel has them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_TABLES = ("tcp", "tcp6", "udp", "udp6")
_ESTABLISHED, _WITHOUT_PEER = "01", ("0A", "07")
"""States of sockets (include/net/tcp_states.h): those that listen (TCP), or have no peer (UDP), are served."""


def family_of(process: int) -> list[int]:
    """Return a process and all that it has started, and they in turn."""
    found, waiting = [], [process]
    while waiting:
        found.append(each := waiting.pop())
        with contextlib.suppress(OSError):
            for thread in os.scandir(f"/proc/{each}/task"):
                waiting += map(int, Path(thread, "children").read_text(encoding="utf-8").split())
    return found


def served_ports(process: int, *, by_any: bool = False) -> tuple[frozenset[int], frozenset[int]]:
    """Return the TCP and the UDP ports that a process, or one that it has started, serves. by_any: or any other process
    in its network."""
    family = family_of(process)
    links = {link for each in family for link in _sockets(each)}
    # The first process of a container is the runtime's, in the same network.
    rows = [each for each in _rows(family[-1]) if by_any or f"socket:[{each[2]}]" in links]
    tcp, udp = (frozenset(port for port, found, _ in rows if found == state) for state in _WITHOUT_PEER)
    return tcp, udp


def established(process: int, ports: frozenset[int]) -> int:
    """Return the number of TCP connections to these ports in the network of a process."""
    return sum(port in ports and state == _ESTABLISHED for port, state, _ in _rows(process))


def _sockets(process: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{process}/fd"):
            with contextlib.suppress(OSError):
                yield str(Path(entry).readlink())


def _rows(process: int) -> Iterator[tuple[int, str, str]]:
    """Return the sockets of a process's network: local port, state and inode."""
    for table in _TABLES:
        lines = list[str]()
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/net/{table}").read_text(encoding="utf-8").splitlines()[1:]
        for line in lines:
            match line.split():
                case [_, local, remote, state, *rest] if len(rest) > 5:
                    if state not in _WITHOUT_PEER or remote.endswith(":0000"):
                        yield int(local.rpartition(":")[2], 16), state, rest[5]
