"""The client of every kind that offloads over MQTT. It sends inputs to a broker at intended times, and takes the
replies.

The module of a kind defines :class:`Inputs` and calls :func:`program` if run as a program; :class:`Settings` describes
the configuration.
"""

import mmap
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paho.mqtt.client import MQTTMessage

from cellbed_node import generator, inputs, machine
from cellbed_node.generator import SECOND, Generator
from cellbed_node.ledger import Request
from cellbed_node.offloading.mqtt import REPLY_ERROR, Connection, PacketSocket, request_properties
from cellbed_node.tcp import tcp_info


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(generator.Settings):
    """An endpoint's configuration.

    inputs: path of the data bank. most_client_bytes: maximum payload that waits in the client for the socket; further
    requests are lost, and counted.
    """

    broker_host: str
    broker_port: int
    request_topic: str
    inputs: str
    connect_patience_ns: int = 30 * SECOND
    most_client_bytes: int = 64 << 20


class UnusableInputError(ValueError):
    """An input that cannot be sent. The text has the reason."""


class Inputs(Protocol):
    """The inputs of requests of a kind. names: names of the inputs; each request draws one."""

    names: Sequence[str]

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the pre-processed input as sent. `scale`: share of an image's width and height, below 1 if a policy
        reduces it. Raises UnusableInputError."""


@dataclass(slots=True)
class OffloadedRequest(Request):
    """A request: the name of its input, and the text of its reply. arrived_ns: arrival of the reply, before its
    display; correct: whether the reply is the known answer to the input."""

    input: str = ""
    output: str | None = None
    arrived_ns: int | None = None
    correct: int | None = None


@runtime_checkable
class Displayed(Protocol):
    """Inputs whose replies are displayed."""

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        """Display a reply, and note in the request its text and whether it is correct. Raises ValueError if a reply
        cannot be displayed."""


class Endpoint(Generator):
    """One endpoint: its inputs, and its connection to the broker."""

    patience_ns = 0

    def __init__(self, settings: Settings, inputs: Inputs) -> None:
        super().__init__(settings)
        self._settings = settings
        self.patience_ns = settings.connect_patience_ns
        self._inputs = inputs
        self._display = inputs if isinstance(inputs, Displayed) else None
        self._choice = random.Random(f"{settings.seed}/{settings.endpoint}/inputs")
        self._in_client: deque[tuple[Request, int]] = deque()  # published, not yet passed to the kernel
        self._client_bytes = 0  # their payloads
        self._reply_topic = f"cellbed/replies/{settings.endpoint}"
        self._connection = Connection(
            settings.broker_host,
            settings.broker_port,
            settings.endpoint,
            topic=self._reply_topic,
            on_message=self._handle_reply,
            on_handed_over=self._note_sent,
            on_lost=self._connection_lost,
        )

    @property
    def readers(self) -> Sequence[Any]:
        return self._connection.readers

    @property
    def writers(self) -> Sequence[Any]:
        return self._connection.writers

    @property
    def wake_ns(self) -> int | None:
        return self._connection.wake_ns

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        self._connection.drive(readable, writable)

    def close(self) -> None:
        self._connection.close()

    def prepare(self) -> None:
        self._inputs.payload(self._inputs.names[0])  # loads decoders

    @property
    def ready(self) -> bool:
        return self._connection.ready

    @property
    def trouble(self) -> str:
        where = f"{self._settings.broker_host} port {self._settings.broker_port}"
        reason = self._connection.trouble or "connected, but no acknowledgement"
        return f"{self._settings.endpoint}: no MQTT broker answers at {where}: {reason}"

    def create(self, number: int, intended_ns: int) -> OffloadedRequest:
        name = self._choice.choice(self._inputs.names)
        return OffloadedRequest(number, self._settings.endpoint, intended_ns, input=name)

    def issue(self, request: Request) -> None:
        assert isinstance(request, OffloadedRequest)
        try:
            payload = self._inputs.payload(request.input, request.scale)
        except UnusableInputError as error:
            self.ledger.refuse(request, f"unusable input: {error}")
            return
        request.bytes_up = len(payload)
        connected = self._connection.socket
        if connected is None or not self._connection.ready:
            request.sent_ns = machine.now_ns()
            self.ledger.refuse(request, "not connected")
            return
        if self._client_bytes + len(payload) > self._settings.most_client_bytes:
            request.sent_ns = machine.now_ns()
            self.ledger.refuse(request, "the client's queue is full")
            return
        correlation = f"{self._settings.endpoint}/{request.request}".encode()
        properties = request_properties(self._reply_topic, correlation)
        request.local_port, request.remote_port = connected.local_port, connected.remote_port
        request.tcp = tcp_info(connected.tcp)
        request.sent_ns = machine.now_ns()
        self.ledger.add(request)
        self._in_client.append((request, connected.full_ns(request.sent_ns)))
        self._client_bytes += len(payload)
        self._connection.publish(self._settings.request_topic, payload, properties)

    def _note_sent(self, connected: PacketSocket) -> None:
        """Record that the oldest published request has been passed to the kernel."""
        if self._in_client:
            request, full_before = self._in_client.popleft()
            request.uplink_start, request.uplink_end = connected.uplink.start, connected.uplink.end
            request.accepted_ns = connected.accepted_ns
            request.buffer_full_ns = connected.accepted_full_ns - full_before
            self._client_bytes -= request.bytes_up

    def _connection_lost(self) -> None:
        self.ledger.connection_lost(machine.now_ns())
        self._in_client.clear()
        self._client_bytes = 0

    def _handle_reply(self, message: MQTTMessage) -> None:
        now = machine.now_ns()
        connected = self._connection.socket
        correlation: bytes = getattr(message.properties, "CorrelationData", b"")
        number = correlation.rpartition(b"/")[2]
        if connected is None or not number.isdigit():
            return
        request = self.ledger.find(int(number))
        payload = bytes(message.payload)
        error = None
        if payload.startswith(REPLY_ERROR.encode()):
            error = payload.decode("utf-8", "replace").removeprefix(REPLY_ERROR)
        elif isinstance(request, OffloadedRequest) and self._display is not None:
            request.arrived_ns = now
            try:
                self._display.show(request, payload)
            except ValueError as problem:
                error = f"the reply cannot be displayed: {problem}"
            now = machine.now_ns()
        elif isinstance(request, OffloadedRequest):
            request.output = payload.decode("utf-8", "replace")
        self.ledger.reply(
            int(number),
            now,
            error=error,
            start=connected.downlink.start,
            end=connected.downlink.end,
            payload=len(message.payload),
        )


def program(open_inputs: Callable[[Path], Inputs]) -> Callable[[dict[str, Any]], None]:
    """Return the ``main`` of an endpoint's program. open_inputs: opens the data bank at a path."""
    return generator.program(lambda settings: Endpoint(settings, open_inputs(Path(settings.inputs))), Settings)


class Images:
    """The images of a data bank, sent unchanged (:class:`Inputs`)."""

    def __init__(self, folder: Path) -> None:
        """Open the data bank in `folder` mapped, so that many endpoints share its memory."""
        self._images = {path.name: _map_file(path) for path in sorted(folder.iterdir())}
        self.names: Sequence[str] = list(self._images)

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the image of this name. No policy reduces it."""
        return self._images[name][:]


def _map_file(path: Path) -> mmap.mmap:
    with inputs.open_file(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
