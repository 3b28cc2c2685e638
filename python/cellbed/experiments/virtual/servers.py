"""Servers of a virtual run: an MQTT broker with the service behind it, and an HTTP server.

They speak the protocols of the real ones byte for byte as far as lengths go, and take as long as their
:mod:`profile <cellbed.experiments.virtual.profile>` has it.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import IO, Any, Protocol

import h2.config
import h2.connection
import h2.events
import h11

from cellbed.experiments.virtual.profile import Draw, Sample
from cellbed.experiments.virtual.world import TURNAROUND_NS, Host, SendBuffer, Socket, World
from cellbed.workloads.http.connection import REQUEST_HEADER

_SEGMENT = 1448
"""Bytes of a full packet."""
_CHUNK = 8 << 10
"""Bytes of a DATA frame (nginx: ``http2_chunk_size``)."""
_LEAST_BUFFERED = 16 << 10
"""Bytes that a send buffer takes in any case (``tcp_wmem``)."""
_WRITING_NS = 20_000
"""Between two writes of a server."""
_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _SUBACK = 1, 0x20, 3, 8, 0x90
_RESPONSE_TOPIC, _CORRELATION_DATA = 0x08, 0x09
_CONNACK_BODY = bytes((0, 0, 6, 0x22, 0, 10, 0x21, 0xFF, 0xFF))
"""Of Mosquitto 2 with our configuration: accepted, its largest topic alias and number of messages in flight."""


class Service(Protocol):
    """What takes the requests of a broker."""

    def request(self, topic: str, correlation: bytes, payload: bytes, reply: Callable[[bytes], None]) -> None:
        """A request has arrived. reply: takes the packet of the reply."""


class Broker:
    """A server of MQTT 5: it acknowledges connections and subscriptions, hands the messages to a service, and sends the
    replies to the client that asked. QoS 0 only."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """See :class:`~cellbed.experiments.virtual.world.Server`."""
        rest = bytearray()

        def received(data: bytes) -> None:
            rest.extend(data)
            while (packet := _take_packet(rest)) is not None:
                self._process(connection, *packet)

        return received

    def _process(self, connection: Socket, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == _CONNECT:
            connection.send(_packet(_CONNACK, _CONNACK_BODY))
        elif kind == _SUBSCRIBE:
            connection.send(_packet(_SUBACK, body[:2] + bytes((0, 0))))
        elif kind == _PUBLISH:
            properties, payload = _published(body)
            topic = properties.get(_RESPONSE_TOPIC, b"")
            correlation = properties.get(_CORRELATION_DATA, b"")

            def reply(text: bytes) -> None:
                connection.send(publish(topic, correlation, text))

            self._service.request(topic.decode(), correlation, payload, reply)


def publish(topic: bytes, correlation: bytes, payload: bytes) -> bytes:
    """The packet of a message with correlation data (MQTT 5.0, §3.3)."""
    properties = bytes((_CORRELATION_DATA,)) + _text(correlation)
    return _packet(_PUBLISH << 4, _text(topic) + _length(len(properties)) + properties + payload)


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + _length(len(body)) + body


def _text(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def _length(value: int) -> bytes:
    """A variable byte integer (MQTT 5.0, §1.5.5)."""
    found = bytearray()
    while True:
        value, digit = divmod(value, 128)
        found.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(found)


def _read_length(data: bytes | bytearray, at: int) -> tuple[int, int] | None:
    """The integer at a place and the place behind it; None where it is not complete."""
    value = shift = 0
    while at < len(data):
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    return None


def _take_packet(stream: bytearray) -> tuple[int, bytes] | None:
    """Remove the first packet of a stream, if it is complete: its first byte and its body."""
    found = _read_length(stream, 1)
    if found is None or len(stream) < sum(found):
        return None
    length, begin = found
    first, body = stream[0], bytes(stream[begin : begin + length])
    del stream[: begin + length]
    return first, body


def _published(body: bytes) -> tuple[dict[int, bytes], bytes]:
    """Properties and payload of a message of QoS 0 whose properties are texts."""
    at = 2 + int.from_bytes(body[:2], "big")
    length, at = _read_length(body, at) or (0, at)
    end, properties = at + length, {}
    while at < end:
        size = int.from_bytes(body[at + 1 : at + 3], "big")
        properties[body[at]] = body[at + 3 : at + 3 + size]
        at += 3 + size
    return properties, body[end:]


class Offloaded:
    """The service behind a broker: one queue, and workers that decode and compute, one request each at a time.

    inputs: the name of the input of a payload. record: the file of its log.
    """

    def __init__(
        self, world: World, host: Host, workers: int, draw: Draw, inputs: dict[int, str], record: IO[str]
    ) -> None:
        self._world, self._host, self._draw, self._inputs, self._record = world, host, draw, inputs, record
        self._free = list(range(workers))
        self._queue: deque[tuple[int, bytes, Sample, Callable[[bytes], None]]] = deque()

    def request(self, topic: str, correlation: bytes, payload: bytes, reply: Callable[[bytes], None]) -> None:
        """See :class:`Service`."""
        sample = self._draw.sample(correlation.decode(), self._inputs.get(hash(payload)), len(payload))
        received_ns = self._world.now_ns + sample["remote_stack"]

        def receive() -> None:
            self._queue.append((received_ns, correlation, sample, reply))
            self._dispatch()

        self._world.at(received_ns, receive)

    def _dispatch(self) -> None:
        while self._free and self._queue:
            worker = self._free.pop(0)
            received_ns, correlation, sample, reply = self._queue.popleft()
            run = self._host.processors.run
            dequeued_ns = self._world.now_ns + sample["dispatch"]
            start_ns = run(dequeued_ns, sample["decode"])
            end_ns = run(start_ns, sample["inference"])
            sent_ns = run(end_ns, sample["reply"])
            # The broker passes it on.
            enters_ns = max(sent_ns, end_ns + sample["remote_reply"] - TURNAROUND_NS)
            endpoint, _, number = correlation.decode().rpartition("/")
            line = {
                "request": int(number),
                "endpoint": endpoint,
                "received_ns": received_ns,
                "dequeued_ns": dequeued_ns,
                "compute_start_ns": start_ns,
                "compute_end_ns": end_ns,
                "reply_sent_ns": sent_ns,
                "output": sample["output"],
                "worker": worker,
                "error": None,
            }
            self._world.at(enters_ns, lambda text=sample["output"], reply=reply: reply(text.encode()))  # type: ignore[misc]
            self._world.at(sent_ns, lambda worker=worker, line=line: self._done(worker, line))  # type: ignore[misc]

    def _done(self, worker: int, line: dict[str, Any]) -> None:
        self._record.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._free.append(worker)
        self._free.sort()
        self._dispatch()


class Http:
    """An HTTP server whose requests take their measured time on the processors of its node, without waiting for each
    other otherwise. version: of HTTP. record: file of the spans that its service reports."""

    def __init__(self, world: World, host: Host, version: str, draw: Draw, record: IO[str]) -> None:
        self._world, self._host, self._version, self._draw, self._record = world, host, version, draw, record

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """See :class:`~cellbed.experiments.virtual.world.Server`."""
        return self._http1(connection) if self._version == "1.1" else self._http2(connection)

    def _later(self, request: str, answer: Callable[[Sample], None]) -> None:
        sample = self._draw.sample(request)
        work_ns = max(0, sample["server"] - TURNAROUND_NS)
        begin_ns = self._world.now_ns
        end_ns = self._host.processors.run(begin_ns, work_ns)
        self._world.at(end_ns, lambda: answer(sample))
        endpoint, _, number = request.rpartition("/")
        stretched, at_ns = (end_ns - begin_ns) / max(1, work_ns), begin_ns
        for name, own_ns in sample["services"].items():
            line = {"endpoint": endpoint, "request": int(number), "span": name, "begin_ns": at_ns}
            at_ns += round(own_ns * stretched)
            self._record.write(json.dumps(line | {"end_ns": at_ns}, separators=(",", ":")) + "\n")

    def _http1(self, connection: Socket) -> Callable[[bytes], None]:
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)

        def received(data: bytes) -> None:
            protocol.receive_data(data)
            name = ""
            while (event := protocol.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    headers = dict(event.headers)
                    name = headers[REQUEST_HEADER.lower().encode()].decode()
                elif isinstance(event, h11.EndOfMessage):
                    self._later(name, answer)

        def answer(sample: Sample) -> None:
            headers = [("Content-Length", str(sample["bytes_down"]))]
            if not sample["kept"]:
                headers.append(("Connection", "close"))
            fill = sample["wire_down"] - sample["bytes_down"] - len(f"HTTP/1.1 {sample['code']} \r\n\r\n")
            fill -= sum(len(name) + len(value) + 4 for name, value in headers) + len("x: \r\n")
            if fill > 0:
                headers.append(("x", "x" * fill))
            content = protocol.send(h11.Response(status_code=sample["code"], headers=headers)) or b""
            content += protocol.send(h11.Data(data=bytes(sample["bytes_down"]))) or b""
            content += protocol.send(h11.EndOfMessage()) or b""
            head = sample["head"]
            if head >= min(_SEGMENT, sample["wire_down"]):
                send(content)
                return
            # The server writes its header first, and leaves the algorithm of Nagle on.
            connection.use_nagle()
            connection.send(content[:head])
            self._world.at(self._world.now_ns + _WRITING_NS, lambda: send(content[head:]))

        def send(content: bytes) -> None:
            connection.send(content)
            if protocol.our_state is h11.MUST_CLOSE:
                connection.end()
            else:
                protocol.start_next_cycle()

        return received

    def _http2(self, connection: Socket) -> Callable[[bytes], None]:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        protocol = h2.connection.H2Connection(config)
        protocol.initiate_connection()
        names: dict[int, str] = {}
        bodies: dict[int, int] = {}
        heads, frames, buffer = bytearray(), bytearray(), SendBuffer(connection, _LEAST_BUFFERED)

        def received(data: bytes) -> None:
            for event in protocol.receive_data(data):
                match event:
                    case h2.events.RequestReceived():
                        names[event.stream_id] = str(dict(event.headers)[REQUEST_HEADER.lower()])  # type: ignore[index]
                    case h2.events.DataReceived():
                        protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        stream = event.stream_id
                        self._later(names.pop(stream), lambda sample, stream=stream: answer(stream, sample))  # type: ignore[misc]
            write()

        def answer(stream: int, sample: Sample) -> None:
            headers = [(":status", str(sample["code"])), ("content-length", str(sample["bytes_down"]))]
            protocol.send_headers(stream, headers, end_stream=sample["bytes_down"] == 0)
            if sample["bytes_down"]:
                bodies[stream] = sample["bytes_down"]
            write()

        def write() -> None:
            """Give the socket what it takes: heads before bodies, and these in the order of the replies, as nginx."""
            heads.extend(protocol.data_to_send())
            while heads or frames or bodies:
                room = buffer.room()
                if room <= 0:
                    buffer.want_room()
                    return
                if heads and not frames:
                    frames.extend(heads)
                    heads.clear()
                elif not frames:
                    frame_bodies(room)
                if not frames:  # the client's windows are full
                    return
                connection.send(frames[:room])
                del frames[:room]

        def frame_bodies(room: int) -> None:
            """Frame as much as there is room for, at most to the end of a reply: the client gets a write when it has
            come whole."""
            for stream in list(bodies):
                while len(frames) < room and (window := protocol.local_flow_control_window(stream)) > 0:
                    size = min(window, protocol.max_outbound_frame_size, _CHUNK, bodies[stream])
                    bodies[stream] -= size
                    protocol.send_data(stream, bytes(size), end_stream=bodies[stream] == 0)
                    frames.extend(protocol.data_to_send())
                    if not bodies[stream]:
                        del bodies[stream]
                        return

        connection.on_room = write
        return received
