"""The model of all kinds that offload over MQTT: a broker with the service behind it.

The broker's messages have the right protocol and lengths; the service takes as long as in the samples.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import IO, TYPE_CHECKING, Any

from cellbed.runformat.records import SERVICES
from cellbed.workloads.cache import silent
from cellbed.workloads.kind import Deployment
from cellbed.workloads.offloading import kind
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Model, Packets, Sample, Sampling, Setting, answered, nanoseconds
from cellbed.workloads.virtual.world import TURNAROUND_NS, Program, Service, Socket, World
from cellbed_node import lifecycle
from cellbed_node.offloading.endpoint import Displayed, Endpoint, Inputs, OffloadedRequest, Settings
from cellbed_node.offloading.small_broker import (
    CONNACK,
    CONNACK_BODY,
    CONNECT,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    length,
    packet,
    read_length,
    take_packet,
)

if TYPE_CHECKING:
    import polars as pl

_RESPONSE_TOPIC, _CORRELATION_DATA = 0x08, 0x09


class Broker:
    """A server of MQTT 5 for QoS 0 only. It acknowledges connections and subscriptions, passes messages to a service,
    and sends each reply to the client that asked."""

    def __init__(self, service: _Service) -> None:
        self._service = service

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        rest = bytearray()

        def received(data: bytes) -> None:
            rest.extend(data)
            while (taken := take_packet(rest)) is not None:
                self._process(connection, *taken)

        return received

    def _process(self, connection: Socket, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == CONNECT:
            connection.send(packet(CONNACK, CONNACK_BODY))
        elif kind == SUBSCRIBE:
            connection.send(packet(SUBACK, body[:2] + bytes((0, 0))))
        elif kind == PUBLISH:
            properties, payload = _parse_publish(body)
            topic = properties.get(_RESPONSE_TOPIC, b"")
            correlation = properties.get(_CORRELATION_DATA, b"")

            def reply(text: bytes) -> None:
                connection.send(publish(topic, correlation, text))

            self._service.request(correlation, payload, reply)


def publish(topic: bytes, correlation: bytes, payload: bytes) -> bytes:
    """Return the packet of a message with correlation data (MQTT 5.0, §3.3)."""
    properties = bytes((_CORRELATION_DATA,)) + _text(correlation)
    return packet(PUBLISH << 4, _text(topic) + length(len(properties)) + properties + payload)


def _text(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def _parse_publish(body: bytes) -> tuple[dict[int, bytes], bytes]:
    """Return properties and payload of a message of QoS 0 whose properties are texts."""
    at = 2 + int.from_bytes(body[:2], "big")
    size, at = read_length(body, at) or (0, at)
    end, properties = at + size, {}
    while at < end:
        size = int.from_bytes(body[at + 1 : at + 3], "big")
        properties[body[at]] = body[at + 3 : at + 3 + size]
        at += 3 + size
    return properties, body[end:]


class _Service:
    """The service behind a broker: one queue, and workers. A worker decodes and computes one request at a time.

    place: host and port of the broker, at first. inputs: name of the input of each payload. record: the file of its
    log.
    """

    def __init__(
        self, world: World, place: Service, workers: int, draw: Draw, inputs: dict[int, str], record: IO[str]
    ) -> None:
        self._world, self._place, self._draw, self._inputs, self._record = world, place, draw, inputs, record
        self._free = list(range(workers))
        self._queue: deque[tuple[int, bytes, Sample, Callable[[bytes], None]]] = deque()

    def request(self, correlation: bytes, payload: bytes, reply: Callable[[bytes], None]) -> None:
        """Process a request. reply: called with the packet of the reply."""
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
            run = self._world.places.get(self._place, self._place[0]).processors.run
            dequeued_ns = self._world.now_ns + sample["dispatch"]
            start_ns = run(dequeued_ns, sample["decode"])
            end_ns = run(start_ns, sample["inference"])
            sent_ns = run(end_ns, sample["reply"])
            # The broker forwards the reply.
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
            text = sample["output"].encode()
            size = sample.get("bytes_down", len(text))  # if a reply is no text, only its length counts
            content = text[:size].ljust(size, b"\0")
            self._world.at(enters_ns, lambda content=content, reply=reply: reply(content))  # type: ignore[misc]
            self._world.at(sent_ns, lambda worker=worker, line=line: self._done(worker, line))  # type: ignore[misc]

    def _done(self, worker: int, line: dict[str, Any]) -> None:
        self._record.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._free.append(worker)
        self._free.sort()
        self._dispatch()


class _Timed:
    """Inputs whose pre-processing takes time in a program; see :class:`cellbed_node.offloading.endpoint.Inputs`.

    known: receives the name of the input of each payload.
    """

    def __init__(
        self,
        names: Sequence[str],
        payload_of: Callable[[str, float], bytes],
        draw: Draw,
        known: dict[int, str],
        endpoint: str,
    ) -> None:
        self.names, self._payload_of = names, payload_of
        self._draw, self._known, self._endpoint = draw, known, endpoint
        self._numbers = itertools.count()
        self.program: Program | None = None

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        content = self._payload_of(name, scale)
        self._known[hash(content)] = name
        if self.program is not None:
            request = f"{self._endpoint}/preprocessing/{next(self._numbers)}"
            self.program.spend(self._draw.sample(request, name, len(content))["preprocessing"])
        return content


class _TimedDisplay(_Timed):
    """Timed inputs whose replies are displayed, which takes time, too."""

    def show(self, request: OffloadedRequest, reply: bytes) -> None:
        assert self.program is not None
        sample = self._draw.sample(f"{self._endpoint}/{request.request}", request.input, request.bytes_up)
        self.program.spend(sample["display"])
        request.output, request.correct = sample["output"], sample["correct"]


class Offloading(Model):
    """The model: a broker with the service behind it."""

    moves = True

    def __init__(self, its: kind.Kind) -> None:
        self.kind = its
        self.sampling = Sampling(_samples, _KEYS, *its.profile, queued=True, files=("model", "code"))

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        world, draw = setting.world, setting.draw(each)
        port, known = kind.PORT + each.number, dict[int, str]()
        for node in each.servers:
            file = each.file(setting.raw, node, SERVICES)
            record: IO[str] = setting.stack.enter_context(lifecycle.open_record(file))
            host = world.hosts[node.name]
            workers = each.table.workers or max(1, math.ceil(node.cpus))
            broker = Broker(_Service(world, (host, port), workers, draw, known, record))
            world.listen(host, port, broker, each.name)
        inputs: Inputs = importlib.import_module(self.kind.client).open_inputs(
            self.kind.bank(each.table, setting.cache, silent)
        )
        payload_of = cache(inputs.payload)
        timing = _TimedDisplay if isinstance(inputs, Displayed) else _Timed
        configure = partial(self.kind.endpoint_settings, cache=setting.cache, port=port)
        for node, settings in zip(each.clients, setting.clients(each, configure, Settings), strict=True):
            timed = timing(inputs.names, payload_of, draw, known, node.name)
            generator = Endpoint(settings, timed)
            client = Client(world, world.hosts[node.name], generator, each, draw)
            timed.program = client.program
            yield client


_PARTS = {
    # generator: from the intended time until the program begins. receive: from the last packet to the program.
    "generator": "generator",
    "receive": "endpoint_receive",
    "preprocessing": "preprocessing",
    "remote_stack": "remote_stack",
    "dispatch": "server_queue",
    "decode": "decode",
    "inference": "inference",
    "remote_reply": "remote_reply",
}
"""Parts of a request's latency, by the name of the part of a sample."""
_KEYS = frozenset(_PARTS) | {"reply", "input", "bytes_up", "output"}


def _samples(
    application: Mapping[str, Any], requests: pl.DataFrame, _messages: pl.DataFrame, packets: Packets
) -> list[dict[str, Any]]:
    found = [_sample(row) for row in answered(requests).iter_rows(named=True)]
    return _without_queues([sample for sample in found if sample is not None])


def _sample(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the sample of a request; None if one of its parts is unknown."""
    known = {name: row.get(f"part_{part}") for name, part in _PARTS.items()}
    parts: dict[str, Any] = {name: nanoseconds(span) for name, span in known.items() if span is not None}
    if not {"preprocessing", "decode", "inference"} <= parts.keys() or row["reply_sent_ns"] is None:
        return None
    # If the service runs on the endpoint, the handover through the broker takes the place of network stacks.
    parts.setdefault("remote_stack", nanoseconds(row.get("part_handover")))
    parts.setdefault("remote_reply", nanoseconds(row.get("part_return")) // 2)
    parts.setdefault("receive", nanoseconds(row.get("part_return")) // 2)
    parts["reply"] = max(0, row["reply_sent_ns"] - row["compute_end_ns"])
    parts |= {"received": row["received_ns"], "sent": row["reply_sent_ns"]}
    if row.get("part_display") is not None:
        parts |= {"display": nanoseconds(row["part_display"]), "correct": row["correct"]}
        parts["bytes_down"] = row["bytes_down"]
    return parts | {"input": row["input"], "bytes_up": row["bytes_up"], "output": row["output"] or ""}


def _without_queues(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return samples without the time that requests waited for each other: limited to the median of requests that found
    an idle worker."""
    if not samples:
        return samples
    before, idle = 0, []
    for sample in sorted(samples, key=lambda sample: sample["received"]):
        if sample["received"] >= before:
            idle.append(sample["dispatch"])
        before = max(before, sample["sent"])
    longest = sorted(idle)[len(idle) // 2]
    return [
        {key: value for key, value in sample.items() if key not in ("received", "sent")}
        | {"dispatch": min(sample["dispatch"], longest)}
        for sample in samples
    ]
