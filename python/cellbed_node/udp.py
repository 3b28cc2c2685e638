"""UDP sockets of load generators, which count datagrams: the number of a datagram locates its packet in the log."""

from __future__ import annotations

from cellbed_node import machine


class CountingDatagrams:
    """A UDP socket for datagrams to and from one address. No other socket of a run has the same pair of ports.

    sent, received: datagrams so far, i.e. the number of the next one.
    """

    def __init__(self, host: str, port: int, local_port: int = 0) -> None:
        """Open the socket. local_port: 0 for a free port. Errors: ``OSError``."""
        self.udp = machine.datagrams(host, port, local_port)
        self.sent = self.received = 0
        self.local_port: int = self.udp.getsockname()[1]
        self.remote_port = port

    def send(self, data: bytes) -> int:
        """Send a datagram, no longer than a packet; return its number. Errors: ``OSError``."""
        self.udp.send(data)
        self.sent += 1
        return self.sent - 1

    def recv(self) -> tuple[int, bytes] | None:
        """Return number and content of the next datagram, ``None`` if there is none. Errors: ``OSError``."""
        try:
            data = self.udp.recv(1 << 16)
        except BlockingIOError:
            return None
        self.received += 1
        return self.received - 1, data

    def close(self) -> None:
        self.udp.close()

    def fileno(self) -> int:
        number: int = self.udp.fileno()
        return number
