"""The service of every kind that offloads over MQTT: takes requests from the broker and hands them to worker processes.

Run as ``python -m cellbed_node.offloading.service --config FILE.json``; :class:`Settings` describes the file. The
dispatcher has one FIFO queue and gives its head to any free worker: no request waits behind a slow one while another
worker is idle.
"""

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection as Channel
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from paho.mqtt.client import MQTTMessage

from cellbed_node import lifecycle
from cellbed_node.lifecycle import WorkloadError, announce
from cellbed_node.offloading import worker
from cellbed_node.offloading.mqtt import REPLY_ERROR, SECOND, Connection, reply_properties
from cellbed_node.offloading.task import Task
from cellbed_node.offloading.worker import Request

_LAST_PATIENCE_S = 0.5
"""Maximum wait for workers at the end: the programs of a run get a second to end."""
_MOST_DEATHS = 3
"""Maximum number of successive worker deaths without an answer in between."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The service's configuration.

    task: module of the workers' task; options: arguments of its function ``load`` (:mod:`.task`). record: file for the
    log; most_queued_bytes: maximum payload waiting for a worker.
    """

    node: str
    broker_host: str
    broker_port: int
    request_topic: str
    task: str
    options: dict[str, Any]
    workers: int
    record: str
    most_queued_bytes: int = 64 << 20


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int
    channel: Channel
    ready: bool = False
    request: Request | None = None

    def fileno(self) -> int:
        return self.channel.fileno()


class Service:
    """The dispatcher's event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # The module and its imports are loaded once and shared by all workers.
        self._load: Callable[[], Task] = partial(importlib.import_module(settings.task).load, **settings.options)
        self._record = lifecycle.open_record(Path(settings.record))
        self._queue: deque[Request] = deque()
        self._queued_bytes = 0
        self._deaths = 0
        self._ready = False
        self._counts = {"received": 0, "answered": 0, "errors": 0}
        self._connection = Connection(
            settings.broker_host,
            settings.broker_port,
            f"{settings.node}-service",
            topic=settings.request_topic,
            on_message=self._handle_message,
        )
        self._commands = lifecycle.Commands()
        self._workers = [self._fork(number) for number in range(settings.workers)]

    def run(self) -> None:
        """Serve until standard input ends. Raises WorkloadError if the workers cannot serve."""
        try:
            while not self._commands.closed:
                self._turn()
            self._hear_the_last()
        finally:
            self._connection.close()
            for each in self._workers:
                each.channel.close()
            self._record.close()
        announce("done", **self._counts)

    def _turn(self) -> None:
        connection = self._connection
        wake = connection.wake_ns
        patience = max(0, wake - time.monotonic_ns()) / SECOND if wake is not None else None
        readers: list[Any] = [self._commands, *self._workers, *connection.readers]
        readable, writable, _ = select.select(readers, connection.writers, [], patience)
        connection.drive(readable, writable)
        for each in list(self._workers):
            if each in readable:
                self._hear(each)
        if self._commands in readable:
            self._commands.read()
        self._dispatch()
        if not self._ready and connection.ready and all(each.ready for each in self._workers):
            self._ready = True
            announce("ready")

    def _hear_the_last(self) -> None:
        """Log the last reports of workers: a reply may be sent before its worker reports it."""
        until = time.monotonic() + _LAST_PATIENCE_S
        while busy := [each for each in self._workers if each.request is not None]:
            readable, _, _ = select.select(busy, [], [], max(0.0, until - time.monotonic()))
            if not readable:
                return
            for each in readable:
                self._hear(each)

    def _handle_message(self, message: MQTTMessage) -> None:
        now = time.monotonic_ns()
        self._counts["received"] += 1
        topic = getattr(message.properties, "ResponseTopic", "")
        correlation = getattr(message.properties, "CorrelationData", b"")
        request = Request(topic, correlation, bytes(message.payload), now)
        if not topic:
            self._log(request, error="the request has no response topic")
        elif self._queued_bytes + len(message.payload) > self._settings.most_queued_bytes:
            self._refuse(request, "the service's queue is full")
        else:
            self._queue.append(request)
            self._queued_bytes += len(message.payload)

    def _refuse(self, request: Request, error: str) -> None:
        reply = (REPLY_ERROR + error).encode()
        self._connection.publish(request.response_topic, reply, reply_properties(request.correlation))
        self._log(request, error=error)

    def _dispatch(self) -> None:
        for each in self._workers:
            if not self._queue:
                return
            if each.ready and each.request is None:
                request = self._queue.popleft()
                self._queued_bytes -= len(request.payload)
                each.request = request
                # The channel of a dead worker reports its death in the next turn.
                with contextlib.suppress(OSError):
                    each.channel.send(request)

    def _hear(self, each: _Worker) -> None:
        try:
            message = each.channel.recv()
        except (EOFError, OSError):  # the latter within a message
            self._bury(each)
            return
        if "failed" in message:
            raise WorkloadError(message["failed"])
        if "ready" in message:
            each.ready = True
        elif each.request is not None:
            self._deaths = 0
            self._log(each.request, worker=each.number, **message)
            each.request = None

    def _bury(self, each: _Worker) -> None:
        """Report the death of a worker, log its request, and fork another worker."""
        _, status = os.waitpid(each.pid, 0)
        each.channel.close()
        code = os.waitstatus_to_exitcode(status)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        hint = "; is the node's memory limit too small?" if code == -signal.SIGKILL else ""
        trouble = f"worker {each.number} of {self._settings.node} {how}{hint}"
        self._deaths += 1
        if not each.ready or self._deaths > _MOST_DEATHS:
            raise WorkloadError(trouble)
        print(f"{trouble}; starting another", file=sys.stderr, flush=True)
        announce("died", at_ns=time.monotonic_ns(), what=trouble)
        if each.request is not None:
            self._refuse(each.request, trouble)
        self._workers[each.number] = self._fork(each.number)

    def _fork(self, number: int) -> _Worker:
        ours, theirs = Pipe()
        # A fork is safe because this process has one thread. Runtimes that start threads on import are imported only by
        # the workers, in ``load``.
        pid = os.fork()
        if pid == 0:
            _become_worker(theirs, number, self._settings, self._load)
        theirs.close()
        return _Worker(number, pid, ours)

    def _log(self, request: Request, **fields: Any) -> None:
        self._counts["errors" if "error" in fields else "answered"] += 1
        endpoint, _, number = request.correlation.decode("utf-8", "replace").rpartition("/")
        line: dict[str, Any] = {
            "request": int(number) if number.isdecimal() else None,
            "endpoint": endpoint or None,
            "received_ns": request.received_ns,
            "dequeued_ns": None,
            "compute_start_ns": None,
            "compute_end_ns": None,
            "reply_sent_ns": None,
            "output": None,
            "worker": None,
            "error": None,
            **fields,
        }
        self._record.write(json.dumps(line, separators=(",", ":")) + "\n")


def _become_worker(channel: Channel, number: int, settings: Settings, load: Callable[[], Task]) -> None:
    """Run the forked worker, then exit."""
    status = 1
    try:
        # Copies of the dispatcher's sockets would keep them open after its end.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)
        os.closerange(3, channel.fileno())
        os.closerange(channel.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        broker = settings.broker_host, settings.broker_port
        worker.main(channel, f"{settings.node}-worker-{number}", broker, load)
        status = 0
    except SystemExit:
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main(config: dict[str, Any]) -> None:
    """Run a service with the configuration of :class:`Settings`."""
    Service(Settings(**config)).run()


if __name__ == "__main__":
    lifecycle.run(main)
