"""TCP connections of load generators: opened without blocking, with counted bytes and the kernel's view of each.

A packet log has sequence numbers: the offset of a message in the byte stream of its connection finds its packets.
"""

import socket
import struct
from typing import Any

from cellbed_node import machine

# struct tcp_info of linux/tcp.h (tcp(7), TCP_INFO): eight one-byte fields, then 24 of 32 bits, then mixed ones; these
# are the positions of the fields used here.
_FIELDS = struct.Struct("=8B24I4Q6I4Q")
TCP_INFO = {"cwnd": 8 + 18, "rtt_us": 8 + 15, "retransmits": 8 + 23, "receive_window_limited_us": 8 + 24 + 4 + 6 + 2}


class CountingSocket:
    """A connected TCP socket that counts its bytes.

    sent, received: bytes so far, i.e. the offset of the next byte in its stream. refused_ns: :meth:`full_ns` at the
    latest send.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.tcp = connected
        self.sent = self.received = 0
        self.local_port: int = connected.getsockname()[1]
        self.remote_port: int = connected.getpeername()[1]
        self.refused_ns = 0
        self._full_since: int | None = None

    def recv(self, buffer_size: int) -> bytes:
        data = self.tcp.recv(buffer_size)
        self.received += len(data)
        return data

    def send(self, buffer: bytes | bytearray | memoryview) -> int:
        begin = machine.now_ns()
        self.refused_ns = self.full_ns(begin)
        self._full_since = begin
        count = self.tcp.send(buffer)  # raises BlockingIOError if nothing fits
        self._full_since = begin if count < len(buffer) else None
        self.sent += count
        return count

    def full_ns(self, now: int) -> int:
        """Return how long TCP's send buffer has refused bytes by `now`, since the connection opened."""
        return self.refused_ns + (0 if self._full_since is None else now - self._full_since)

    def close(self) -> None:
        self.tcp.close()

    def fileno(self) -> int:
        return self.tcp.fileno()

    def setblocking(self, flag: bool) -> None:
        self.tcp.setblocking(flag)


def tcp_info(connection: Any) -> dict[str, int] | None:
    """Return the sender's state: ``cwnd`` in segments, smoothed ``rtt_us``, ``retransmits`` (segments since opening),
    ``receive_window_limited_us`` (time limited by the receiver's window since opening; Linux 4.10).

    None if the connection is gone.
    """
    if not isinstance(connection, socket.socket):  # of a machine in virtual time
        found: dict[str, int] = connection.info
        return dict.fromkeys(TCP_INFO, 0) | found
    try:
        fields = _FIELDS.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size))
    except (OSError, struct.error):
        return None
    return {name: fields[place] for name, place in TCP_INFO.items()}
