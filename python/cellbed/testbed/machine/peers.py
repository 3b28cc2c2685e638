"""Users and network namespaces of the peers of Unix sockets. A node's programs have the node's namespace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Iterator

_SIOCGSKNS = 0x894C
"""From linux/sockios.h: returns a descriptor of a socket's network namespace."""
_AT_ONCE = 16


class Admission:
    """The processes that may connect to a socket of a run.

    namespaces: paths of network namespaces. The kernel keeps the namespace where the peer made its socket, even
    after the peer's end. Without namespaces, the peer must be a process of this user, such as a hub.
    """

    def __init__(self, namespaces: Iterable[str] = ()) -> None:
        self._namespaces = {os.stat(path).st_ino for path in namespaces}  # noqa: PTH116 - a link of /proc

    def admits(self, connection: socket.socket) -> bool:
        """Return whether the peer of a connection is admitted."""
        if not self._namespaces:
            return peer_of(connection)[1] == os.geteuid()
        try:
            namespace = fcntl.ioctl(connection, _SIOCGSKNS)
        except OSError:  # another user's namespace
            return False
        try:
            return os.fstat(namespace).st_ino in self._namespaces
        finally:
            os.close(namespace)


def accept_some(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield some waiting connections of a socket: a flood of connections must not delay the run's other work."""
    with contextlib.suppress(OSError):
        for _ in range(_AT_ONCE):
            yield listener.accept()[0]


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process that connected, or that listens, and its user."""
    process, user, _ = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return process, user
