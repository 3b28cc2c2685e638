"""A worker of the service: decodes a payload, computes the reply, publishes it, and reports the times.

The dispatcher (:mod:`.service`) forks the worker and sends it jobs through a socket, one at a time. The worker answers
each job with a dictionary, and ends when the socket closes.
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection as Channel
from typing import Any

from cellbed_node import processes
from cellbed_node.offloading.mqtt import REPLY_ERROR, Connection, reply_properties
from cellbed_node.offloading.task import ModelError, Task


@dataclass(frozen=True, slots=True)
class Request:
    """A request. correlation: identifies the request in its reply, as a rule by endpoint and number."""

    response_topic: str
    correlation: bytes
    payload: bytes
    received_ns: int


def main(channel: Channel, name: str, broker: tuple[str, int], load: Callable[[], Task]) -> None:
    """Work until the dispatcher closes ``channel``. An unusable model is reported there."""
    processes.die_with_parent()
    try:
        task = load()
    except ModelError as error:
        channel.send({"failed": str(error)})
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
            channel.send({"ready": True})
        if channel in readable:
            try:
                request = channel.recv()
            except (EOFError, OSError):  # the latter within a message
                return
            channel.send(_work(request, task, connection))


def _work(request: Request, task: Task, connection: Connection) -> dict[str, Any]:
    stamps: dict[str, Any] = {"dequeued_ns": time.monotonic_ns()}
    try:
        decoded = task.decode(request.payload)
        stamps["compute_start_ns"] = time.monotonic_ns()
        reply = task.compute(decoded)
        stamps["compute_end_ns"] = time.monotonic_ns()
    # Errors of a payload or a model concern this request only.
    except Exception as error:
        stamps["error"] = str(error).strip().partition("\n")[0][:200]
        reply = REPLY_ERROR + stamps["error"]
    else:
        stamps["output"] = reply if isinstance(reply, str) else None
    properties = reply_properties(request.correlation)
    stamps["reply_sent_ns"] = time.monotonic_ns()
    payload = reply.encode() if isinstance(reply, str) else reply
    if not connection.publish(request.response_topic, payload, properties):
        stamps["reply_sent_ns"] = None
        stamps["error"] = "the broker is not connected"
    return stamps
