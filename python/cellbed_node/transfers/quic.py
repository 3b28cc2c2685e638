"""Transfers over QUIC (RFC 9000), each a connection with one stream. The protocol is aioquic's, the sockets are ours.

A request is a line with ``GET`` or ``PUT``, bytes, endpoint and number, then the bytes of an upload. The reply is the
bytes of a download, or the number of received bytes.
"""

import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aioquic.buffer import Buffer  # type: ignore[attr-defined]
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, QuicEvent, StreamDataReceived
from aioquic.quic.logger import QuicLogger, QuicLoggerTrace
from aioquic.quic.packet import QuicPacketType, pull_quic_header

from cellbed_node import lifecycle, machine
from cellbed_node.generator import SECOND
from cellbed_node.ledger import Ledger, Request
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.transfers import LARGEST
from cellbed_node.transfers.flows import Flow, FlowLoad, Settings
from cellbed_node.udp import CountingDatagrams

_PROTOCOL = "cellbed"
"""Name in TLS (ALPN)."""
_MOST = 900
"""Maximum connections of a server; further ones are ignored until one ends."""
_LEAST_INITIAL = 1200
"""Minimum bytes of a client's first datagram (RFC 9000, §14.1)."""
_LINE = re.compile(rb"(GET|PUT) ([0-9]{1,10}) ([A-Za-z0-9_-]{1,100})/([0-9]{1,12})\n")
_LONGEST_LINE = 200


class _Losses(QuicLogger, QuicLoggerTrace):
    """Counts the packets that one end of a connection considers lost, instead of recording events."""

    count = 0

    def __init__(self) -> None:
        QuicLoggerTrace.__init__(self, is_client=True, odcid=b"")

    def start_trace(self, is_client: bool, odcid: bytes) -> QuicLoggerTrace:
        return self

    def end_trace(self, trace: QuicLoggerTrace) -> None:
        pass

    def log_event(self, *, category: str, event: str, data: dict[str, Any]) -> None:
        self.count += event == "packet_lost"


class _End:
    """One end of a connection. process: handles its events; send: sends a datagram."""

    def __init__(
        self,
        configuration: QuicConfiguration,
        process: Callable[[QuicEvent], None],
        send: Callable[[bytes], object],
        **options: Any,
    ) -> None:
        self.losses, self._process, self._send = _Losses(), process, send
        self.quic = QuicConnection(configuration=replace(configuration, quic_logger=self.losses), **options)

    @property
    def due_ns(self) -> int | None:
        """The time of the connection's timer, or slightly later."""
        timer = self.quic.get_timer()
        return None if timer is None else round(timer * SECOND) + _ROUNDING_NS

    def turn(self, data: bytes = b"") -> None:
        """Process a datagram or a due timer, and send. Errors: ``OSError``."""
        now_ns = machine.now_ns()
        if data:
            self.quic.receive_datagram(data, _PEER, now_ns / SECOND)
        elif (due_ns := self.due_ns) is not None and due_ns <= now_ns:
            self.quic.handle_timer(now_ns / SECOND)
        while (event := self.quic.next_event()) is not None:
            self._process(event)
        for datagram, _ in self.quic.datagrams_to_send(now_ns / SECOND):
            self._send(datagram)


_ROUNDING_NS = 1000
"""Maximum rounding error of a time in seconds."""
_PEER = ("", 0)
"""Placeholder for the address of the other end: a socket has only one peer."""


@dataclass(slots=True)
class Transfer(Request):
    """A transfer over QUIC. opening_ns: when its connection began to open; sent_ns: when it was open; packets_lost:
    packets that the client considered lost."""

    step: str | None = None
    opening_ns: int | None = None
    packets_lost: int | None = None


class _Flow(Flow):
    """A transfer at the client."""

    def __init__(
        self,
        transfer: Transfer,
        ledger: Ledger,
        socket: CountingDatagrams,
        settings: Settings,
        configuration: QuicConfiguration,
    ) -> None:
        super().__init__(transfer, ledger, socket)
        way, self._size, _ = settings.transfers[transfer.request % len(settings.transfers)]
        self._transfer, self._up = transfer, way == "upload"
        self._end = _End(configuration, self._process, self._give)
        self._received, self._counted = 0, b""
        self.due_ns = transfer.opening_ns = machine.now_ns()
        self._end.quic.connect(_PEER, now=self.due_ns / SECOND)

    def send(self) -> None:
        self._end.turn()
        self.due_ns = self._end.due_ns

    def receive(self) -> None:
        while self._ledger.find(self.request.request) is not None and (arrived := self.socket.recv()) is not None:
            self._end.turn(arrived[1])
        self.due_ns = self._end.due_ns

    def _give(self, datagram: bytes) -> None:
        with contextlib.suppress(BlockingIOError):  # QUIC treats the datagram as lost
            self.socket.send(datagram)

    def _process(self, event: QuicEvent) -> None:
        transfer, quic, now_ns = self._transfer, self._end.quic, machine.now_ns()
        if isinstance(event, HandshakeCompleted):
            transfer.sent_ns, transfer.bytes_up = now_ns, self._size if self._up else 0
            what = f"{'PUT' if self._up else 'GET'} {self._size} {transfer.endpoint}/{transfer.request}\n"
            content = what.encode() + bytes(transfer.bytes_up)
            quic.send_stream_data(quic.get_next_available_stream_id(), content, end_stream=True)
        elif isinstance(event, StreamDataReceived):
            self._received += len(event.data)
            self._counted = (self._counted + event.data)[:_LONGEST_LINE]
            if event.end_stream:
                whole = self._counted == b"%d" % self._size if self._up else self._received == self._size
                transfer.packets_lost = self._end.losses.count
                transfer.uplink_start, transfer.uplink_end = 0, self.socket.sent
                error = None if whole else "the server has another number of bytes"
                self.reply(now_ns, 0, self.socket.received, 0 if self._up else self._received, error)
                quic.close()
        elif isinstance(event, ConnectionTerminated):
            self._ledger.lose(transfer.request, f"QUIC: {event.reason_phrase or 'the connection was closed'}")


class QuicTransfers(FlowLoad):
    """The transfers of one endpoint over QUIC."""

    def prepare(self) -> None:
        self._configuration = QuicConfiguration(
            alpn_protocols=[_PROTOCOL], server_name=self.settings.host, cafile=self.settings.authorities
        )

    def create(self, number: int, intended_ns: int) -> Transfer:
        return Transfer(number, self._endpoint, intended_ns, step=self.name_of(number))

    def begin(self, request: Request, socket: CountingDatagrams) -> Flow:
        assert isinstance(request, Transfer)
        return _Flow(request, self.ledger, socket, self.settings, self._configuration)


class Server:
    """The transfers at a server. at: schedules a call at a time."""

    def __init__(self, config: dict[str, Any], at: Callable[[int, Callable[[], None]], None]) -> None:
        self._configuration = QuicConfiguration(alpn_protocols=[_PROTOCOL], is_client=False)
        try:
            self._configuration.load_cert_chain(config["certificate"], config["key"])
        except ValueError as error:
            raise WorkloadError(f"{config['certificate']}: no certificate: {error}") from error
        self._record, self._at = lifecycle.open_record(Path(config["record"])), at
        self._open: dict[Any, _Served] = {}

    def receive(self, data: bytes, reply: Callable[[bytes], None], peer: Any) -> None:
        """Process a datagram. reply: sends a datagram back."""
        found = self._open.get(peer)
        if found is None:
            try:
                header = pull_quic_header(Buffer(data=data), self._configuration.connection_id_length)
            except ValueError:
                return
            known = header.version in self._configuration.supported_versions
            begins = known and header.packet_type is QuicPacketType.INITIAL and len(data) >= _LEAST_INITIAL
            if not begins or len(self._open) >= _MOST:
                return
            found = self._open[peer] = _Served(self._configuration, reply, header.destination_cid)
        self._turn(peer, found, data)

    def _turn(self, peer: Any, served: "_Served", data: bytes = b"") -> None:
        served.end.turn(data)
        served.due_ns = served.due_ns if data else None
        if served.over:
            self._open.pop(peer, None)
            self._note(served)
        elif (due_ns := served.end.due_ns) is not None and due_ns != served.due_ns:
            served.due_ns = due_ns
            self._at(due_ns, lambda: self._turn(peer, served) if due_ns == served.due_ns and not served.over else None)

    def _note(self, served: "_Served") -> None:
        if served.stamps:
            line = served.stamps | {"server_packets_lost": served.end.losses.count}
            self._record.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """Record the open connections."""
        for served in self._open.values():
            self._note(served)
        self._record.close()


class _Served:
    """A connection at the server. stamps: fields of its record, empty before the request is complete."""

    def __init__(self, configuration: QuicConfiguration, reply: Callable[[bytes], None], identifier: bytes) -> None:
        self.end = _End(configuration, self._process, reply, original_destination_connection_id=identifier)
        self.over = False
        self.due_ns: int | None = None
        self.stamps: dict[str, Any] = {}
        self._reached_ns = machine.now_ns()
        self._begin, self._received = b"", 0

    def _process(self, event: QuicEvent) -> None:
        if isinstance(event, ConnectionTerminated):
            self.over = True
        if not isinstance(event, StreamDataReceived) or self.stamps:
            return
        self._begin = self._begin if b"\n" in self._begin else (self._begin + event.data)[:_LONGEST_LINE]
        self._received += len(event.data)
        found = _LINE.match(self._begin)
        if self._received > LARGEST + _LONGEST_LINE or (found is None and len(self._begin) == _LONGEST_LINE):
            self.end.quic.close(reason_phrase="not a transfer")
        elif event.end_stream and found is not None:
            way, size, endpoint, number = found.groups()
            self.stamps = {"endpoint": endpoint.decode(), "request": int(number), "reached_ns": self._reached_ns}
            self.stamps["asked_ns"] = machine.now_ns()
            counted = b"%d" % (self._received - found.end())
            reply = counted if way == b"PUT" else bytes(min(int(size), LARGEST))
            self.end.quic.send_stream_data(event.stream_id, reply, end_stream=True)
