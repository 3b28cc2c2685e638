"""The configuration of load generators of all protocols, and transfers in datagrams."""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cellbed_node import generator, machine
from cellbed_node.generator import Generator
from cellbed_node.ledger import Ledger, Request
from cellbed_node.transfers import MOST_OPEN
from cellbed_node.udp import CountingDatagrams

_PORTS = range(10_000, 32_768)
"""Ports of datagram sockets, each used once: the packet log finds a transfer by its port. The kernel chooses from other
ports (``ip_local_port_range``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(generator.Settings):
    """The configuration of the load. client: its number; transfers: each with way, size in bytes, and name in reports;
    bit_rate: over UDP; authorities: over QUIC, file with the trusted certificates."""

    protocol: str
    host: str
    port: int
    client: int
    transfers: Sequence[tuple[str, int, str]]
    bit_rate: int | None
    authorities: str | None


class Flow:
    """A transfer in datagrams over its own socket. due_ns: time of the next :meth:`send`, or ``None``."""

    due_ns: int | None

    def __init__(self, request: Request, ledger: Ledger, socket: CountingDatagrams) -> None:
        self.request, self._ledger, self.socket = request, ledger, socket
        request.local_port, request.remote_port = socket.local_port, socket.remote_port

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self) -> None:
        """Send due datagrams. Errors: ``OSError``."""
        raise NotImplementedError

    def receive(self) -> None:
        """Read received datagrams. Errors: ``OSError``."""
        raise NotImplementedError

    def reply(self, at_ns: int, start: int, end: int, payload: int, error: str | None) -> None:
        """End the transfer. start, end: numbers of its datagrams from the server, half-open."""
        self._ledger.reply(self.request.request, at_ns, error=error, start=start, end=end, payload=payload)


class FlowLoad(Generator):
    """The transfers of one endpoint in datagrams; a protocol overrides :meth:`create` and :meth:`begin`."""

    writers = ()

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.settings = settings
        self._flows: list[Flow] = []
        self._ports = iter(_PORTS)

    def name_of(self, number: int) -> str:
        """Return the name of a transfer in reports."""
        return self.settings.transfers[number % len(self.settings.transfers)][2]

    def begin(self, request: Request, socket: CountingDatagrams) -> Flow:
        """Return a new transfer whose first datagram is due now."""
        raise NotImplementedError

    def issue(self, request: Request) -> None:
        try:
            if len(self._flows) >= MOST_OPEN:
                raise OSError(errno.EMFILE, f"{MOST_OPEN} transfers are under way")
            flow = self.begin(request, self._socket())
        except OSError as error:
            self.ledger.refuse(request, f"no socket: {error.strerror}")
            return
        self.ledger.add(request)
        self._flows.append(flow)
        self._act(flow, flow.send)

    def _socket(self) -> CountingDatagrams:
        """Return a socket with a port that no transfer has used. Errors: ``OSError``."""
        for port in self._ports:
            try:
                return CountingDatagrams(self.settings.host, self.settings.port, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRNOTAVAIL, f"the {len(_PORTS)} ports of the endpoint for them have been used")

    def _act(self, flow: Flow, act: Callable[[], None]) -> None:
        """Call `act` of a transfer; close the socket when the transfer is over or broken."""
        number = flow.request.request
        try:
            act()
        except OSError as error:
            self.ledger.lose(number, f"the connection broke: {os.strerror(error.errno or 0)}")
        if self.ledger.find(number) is None:
            flow.socket.close()
            self._flows.remove(flow)

    @property
    def readers(self) -> Sequence[Any]:
        return self._flows

    @property
    def wake_ns(self) -> int | None:
        return min((flow.due_ns for flow in self._flows if flow.due_ns is not None), default=None)

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        for each in readable:
            if isinstance(each, Flow):
                self._act(each, each.receive)
        now = machine.now_ns()
        for flow in [flow for flow in self._flows if flow.due_ns is not None and flow.due_ns <= now]:
            self._act(flow, flow.send)

    def close(self) -> None:
        for flow in self._flows:
            flow.socket.close()
