"""A worker of the service: decodes a payload, computes the reply, publishes it, and reports the times.

It gets its jobs through a socket from the dispatcher (:mod:`.service`) that forked it, one at a time,
and answers each with a line of JSON. It ends when the socket does.
"""

import json
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cellbed_node import processes
from cellbed_node.offloading.mqtt import REPLY_ERROR, Connection, reply_properties
from cellbed_node.offloading.task import ModelError, Task

_LENGTHS = struct.Struct(">III")


@dataclass(frozen=True, slots=True)
class Job:
    """A request as it goes to a worker. correlation: what the reply carries to be recognised."""

    response_topic: str
    correlation: bytes
    payload: bytes

    def write(self, channel: socket.socket) -> None:
        """Send the job to a worker. Raises OSError when the worker is gone."""
        topic = self.response_topic.encode()
        lengths = _LENGTHS.pack(len(topic), len(self.correlation), len(self.payload))
        channel.sendall(b"".join((lengths, topic, self.correlation, self.payload)))


def read_job(channel: socket.socket) -> Job | None:
    """Return the next job, or None when the dispatcher has gone."""
    try:
        topic, correlation, payload = _LENGTHS.unpack(_read(channel, _LENGTHS.size))
        content = _read(channel, topic + correlation + payload)
    except (EOFError, ConnectionError):
        return None
    return Job(
        content[:topic].decode("utf-8", "replace"), content[topic : topic + correlation], content[topic + correlation :]
    )


def main(channel: socket.socket, name: str, broker: tuple[str, int], load: Callable[[], Task]) -> None:
    """Work until the dispatcher closes ``channel``. A model that cannot be used is reported there."""
    processes.die_with_parent()
    try:
        task = load()
    except ModelError as error:
        _answer(channel, {"failed": str(error)})
        return
    connection = Connection(*broker, name)
    announced = False
    while True:
        patience = None if connection.wake_ns is None else max(0, connection.wake_ns - time.monotonic_ns()) / 1e9
        readers: list[Any] = [channel, *connection.readers]
        readable, writable, _ = select.select(readers, connection.writers, [], patience)
        connection.drive(readable, writable)
        if connection.ready and not announced:
            announced = True
            _answer(channel, {"ready": os.getpid()})
        if channel in readable:
            job = read_job(channel)
            if job is None:
                return
            _answer(channel, _work(job, task, connection))


def _work(job: Job, task: Task, connection: Connection) -> dict[str, Any]:
    stamps: dict[str, Any] = {"dequeued_ns": time.monotonic_ns()}
    try:
        decoded = task.decode(job.payload)
        stamps["compute_start_ns"] = time.monotonic_ns()
        reply = task.compute(decoded)
        stamps["compute_end_ns"] = time.monotonic_ns()
    # Any error of a payload or a model concerns this request only.
    except Exception as error:
        stamps["error"] = str(error).strip().partition("\n")[0][:200]
        reply = REPLY_ERROR + stamps["error"]
    else:
        stamps["output"] = reply if isinstance(reply, str) else None
    properties = reply_properties(job.correlation)
    stamps["reply_sent_ns"] = time.monotonic_ns()
    payload = reply.encode() if isinstance(reply, str) else reply
    if not connection.publish(job.response_topic, payload, properties):
        stamps["reply_sent_ns"] = None
        stamps["error"] = "the broker is not connected"
    return stamps


def _answer(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _read(channel: socket.socket, count: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = channel.recv(count - len(chunks))
        if not chunk:
            raise EOFError
        chunks += chunk
    return bytes(chunks)
