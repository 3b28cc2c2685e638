"""Chromium's log of its network, which locates each object in the bytes of its connection.

The browser counts the bytes of its sockets before TLS. The log has these counts in the order of reads and writes,
between the events of requests. Stamps of the log are whole milliseconds of CLOCK_MONOTONIC and serve only for ordering;
stamps of objects come from the DevTools protocol. Offsets are exact over HTTP/1.1. Over HTTP/2, offsets of interleaved
replies have the resolution of the socket read (at most some 17 kB) that completed the record. Over HTTP/3, offsets are
numbers of datagrams (:class:`cellbed_node.ledger.Request`).
"""

import base64
import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed_node import inputs

_TYPE = re.compile(r'"type":([0-9]+)\}$')
_BEGIN, _END = 1, 2
_MS = 1_000_000
_RECORD = 22
"""Bytes of a TLS 1.3 record besides its content: header, type, tag (RFC 8446, §5.2)."""


@dataclass(slots=True)
class Exchange:
    """A request and its reply on a connection, with offsets as in :class:`cellbed_node.ledger.Request`."""

    uplink_start: int
    uplink_end: int | None = None
    downlink_start: int | None = None
    downlink_end: int | None = None


@dataclass(slots=True)
class Wire:
    """A connection. begun_ns, open_ns: when it began to open, and was open including TLS; hello, flight: as in
    :class:`cellbed_node.tls.Clear`. exchanges: by URL, in the order of requests. passed: received bytes that belong to
    earlier replies, or to no reply."""

    begun_ns: int = 0
    open_ns: int | None = None
    local_port: int | None = None
    remote_port: int | None = None
    hello: int | None = None
    flight: int | None = None
    sent: int = 0
    received: int = 0
    exchanges: dict[str, list[Exchange]] = field(default_factory=dict)
    passed: int = 0
    secured: bool = False
    shared: bool = False
    unsent: deque[Exchange] = field(default_factory=deque)
    streams: dict[int, Exchange] = field(default_factory=dict)
    replying: set[int] = field(default_factory=set)

    def begin(self, url: str) -> Exchange:
        """Return a new exchange, whose request is sent next."""
        found = Exchange(self.sent)
        self.exchanges.setdefault(url, []).append(found)
        return found


class NetLog:
    """The connections and exchanges in the log so far. wires: by number in the log, which the DevTools protocol calls
    connectionId."""

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._rest = path, 0, ""
        self._handlers: dict[int, Callable[[int, int, int, dict[str, Any]], None]] = {}
        self.wires: dict[int, Wire] = {}
        self._sessions: dict[int, Wire] = {}
        self._urls: dict[int, str] = {}
        self._jobs: dict[int, int] = {}
        self._sockets: dict[int, int] = {}
        self._open: dict[int, tuple[Wire, Exchange]] = {}
        self._datagrams: dict[int, Wire] = {}
        self._by_port: dict[int, Wire] = {}

    def read(self) -> None:
        """Read the new entries of the log. Errors: ``OSError``, ``ValueError``."""
        with inputs.open_file(self._path) as file:
            file.seek(self._place)
            text = file.read()
        self._place += len(text)
        *lines, self._rest = (self._rest + text.decode("utf-8", "replace")).split("\n")
        for line in lines:
            line = line.rstrip(",\r")
            if line.startswith('{"constants":'):
                self._choose(json.loads(line + "}")["constants"]["logEventTypes"])
            elif (found := _TYPE.search(line)) and (handler := self._handlers.get(int(found[1]))):
                event = json.loads(line)
                handler(event["source"]["id"], event["phase"], int(event["time"]) * _MS, event.get("params") or {})

    def _choose(self, types: dict[str, int]) -> None:
        """Select the methods for events. types: numbers of events by name."""
        own = {name[3:].upper(): getattr(self, name) for name in dir(self) if name.startswith("on_")}
        self._handlers = {types[name]: handler for name, handler in own.items() if name in types}

    # Connections over TCP.

    def on_tcp_connect(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        wire = self.wires.setdefault(source, Wire(begun_ns=at_ns))
        if phase == _END and "local_address" in params:
            wire.local_port, wire.remote_port = _port(params["local_address"]), _port(params["remote_address"])
            wire.open_ns = at_ns

    def on_ssl_connect(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self.wires.get(source)) is not None:
            wire.secured = True
            wire.open_ns = at_ns if phase == _END else None
            wire.flight = wire.received if phase == _END else None
            wire.passed = wire.received

    def on_ssl_handshake_message_received(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        """Count a ticket, which follows the handshake in a separate record."""
        if (wire := self.wires.get(source)) is not None and wire.flight is not None:
            wire.passed += len(base64.b64decode(params["bytes"])) + _RECORD

    def on_socket_bytes_sent(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self.wires.get(source)) is None:
            return
        before, wire.sent = wire.sent, wire.sent + params["byte_count"]
        if wire.secured and wire.hello is None:
            wire.hello = wire.sent
        elif wire.unsent:
            exchange = wire.unsent.popleft()
            exchange.uplink_start, exchange.uplink_end = before, wire.sent

    def on_socket_bytes_received(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self.wires.get(source)) is not None:
            wire.received += params["byte_count"]

    # Requests of HTTP/1.1: each has its connection exclusively.

    def on_url_request_start_job(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if "url" in params:
            self._urls[source] = params["url"]

    def on_http_stream_request_bound_to_job(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        self._jobs[source] = params["source_dependency"]["id"]

    def on_socket_pool_bound_to_socket(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        self._sockets[source] = params["source_dependency"]["id"]

    def on_http_transaction_send_request(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        wire = self.wires.get(self._sockets.get(self._jobs.get(source, -1), -1))
        if wire is None or wire.shared:
            return
        if phase == _BEGIN:
            self._open[source] = wire, wire.begin(self._urls.get(source, ""))
        elif phase == _END and source in self._open:
            self._open[source][1].uplink_end = wire.sent

    def on_http_transaction_read_headers(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if phase == _END and source in self._open:
            wire, exchange = self._open[source]
            exchange.downlink_start, exchange.downlink_end = wire.passed, wire.received
            wire.passed = wire.received

    def on_http_transaction_read_body(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if phase == _END and source in self._open:
            wire, exchange = self._open[source]
            exchange.downlink_end = wire.passed = wire.received

    # HTTP/2: streams of a session, which has a connection.

    def on_http2_session_initialized(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self.wires.get(params["source_dependency"]["id"])) is not None:
            self._sessions[source], wire.shared = wire, True

    def on_http2_session_send_headers(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self._sessions.get(source)) is not None:
            exchange = wire.streams[params["stream_id"]] = wire.begin(_url(params["headers"]))
            wire.unsent.append(exchange)

    def on_http2_session_recv_headers(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self._sessions.get(source)) is None or params["stream_id"] not in wire.streams:
            return
        stream, exchange = params["stream_id"], wire.streams[params["stream_id"]]
        if exchange.downlink_start is None:
            # A record that may begin with another reply is located by its end.
            last = max(wire.received - 1, 0)
            exchange.downlink_start = last if wire.replying else min(wire.passed, last)
            wire.replying.add(stream)
        self._reply(wire, stream, exchange, over=params.get("fin", False))

    def on_http2_session_recv_data(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self._sessions.get(source)) is not None and params["stream_id"] in wire.streams:
            exchange = wire.streams[params["stream_id"]]
            self._reply(wire, params["stream_id"], exchange, over=params.get("fin", False))

    def _reply(self, wire: Wire, stream: int, exchange: Exchange, *, over: bool) -> None:
        exchange.downlink_end = wire.passed = wire.received
        if over:
            wire.replying.discard(stream)

    def on_http2_session_recv_setting(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        """Count a frame that belongs to no reply."""
        if (wire := self._sessions.get(source)) is not None:
            wire.passed = wire.received

    on_http2_session_recv_settings_ack = on_http2_session_recv_window_update = on_http2_session_recv_setting

    # HTTP/3: streams of a QUIC connection, whose datagrams belong to a socket.

    def on_udp_local_address(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        port = _port(params["address"])
        self._datagrams[source] = self._by_port[port] = Wire(begun_ns=at_ns, local_port=port)

    def on_udp_bytes_sent(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self._datagrams.get(source)) is not None:
            wire.sent += 1

    def on_udp_bytes_received(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self._datagrams.get(source)) is not None:
            wire.received += 1

    def on_quic_session_packet_received(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if source not in self.wires and (wire := self._by_port.get(_port(params["self_address"]))) is not None:
            wire.remote_port = _port(params["peer_address"])
            self.wires[source] = wire

    def on_quic_session_crypto_handshake_complete(
        self, source: int, phase: int, at_ns: int, params: dict[str, Any]
    ) -> None:
        if (wire := self.wires.get(source)) is not None:
            wire.open_ns = at_ns

    def on_http3_headers_sent(self, source: int, phase: int, at_ns: int, params: dict[str, Any]) -> None:
        if (wire := self.wires.get(source)) is not None:
            exchange = wire.streams[params["stream_id"]] = wire.begin(_url(params["headers"]))
            exchange.uplink_end = wire.sent + 1

    def on_quic_session_stream_frame_received(
        self, source: int, phase: int, at_ns: int, params: dict[str, Any]
    ) -> None:
        if (wire := self.wires.get(source)) is None:
            return
        if (exchange := wire.streams.get(params["stream_id"])) is not None:
            if exchange.downlink_start is None:
                exchange.downlink_start = wire.received - 1
            exchange.downlink_end = wire.received


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _url(headers: list[str]) -> str:
    """Return the URL in the pseudo-header fields of a request, such as ``:path: /``."""
    its = dict(line[1:].split(": ", 1) for line in headers if line.startswith(":"))
    return f"{its.get('scheme')}://{its.get('authority')}{its.get('path')}"
