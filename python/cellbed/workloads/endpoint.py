"""The endpoint of an image classification: takes photographs at intended times, sends them, and stamps what happens.

Run as ``python -m cellbed.workloads.endpoint --config FILE.json``; :class:`Settings` describes the file. One thread and
one event loop: a delay of the loop is a delay of the application and appears in the stamps. It waits with
select(2), whose time-outs are in microseconds; those of epoll are whole milliseconds.
"""

import gc
import random
import select
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paho.mqtt.client import MQTTMessage

from cellbed import prctl
from cellbed.workloads import jpeg, lifecycle
from cellbed.workloads.arrivals import Arrivals, schedule
from cellbed.workloads.ledger import Ledger, Request
from cellbed.workloads.lifecycle import WorkloadError, announce
from cellbed.workloads.mqtt import REPLY_ERROR, SECOND, Connection, request_properties
from cellbed.workloads.photographs import open_bank
from cellbed.workloads.tcp_info import tcp_info

_PROGRESS_INTERVAL = SECOND // 2


@dataclass(frozen=True, slots=True)
class Settings:
    """An endpoint's configuration. Times in nanoseconds; ``record``: the file of finished requests.

    most_client_bytes: payload that may wait in the client for the socket; what comes on top is lost, and counted.
    """

    endpoint: str
    broker_host: str
    broker_port: int
    request_topic: str
    photographs: str
    record: str
    arrivals: Arrivals
    rate: float | None
    phase: float
    duration_ns: int
    timeout_ns: int
    seed: int
    connect_patience_ns: int = 30 * SECOND
    most_client_bytes: int = 64 << 20


class Endpoint:
    """One endpoint's event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        bank = open_bank(Path(settings.photographs))
        self._photographs = list(zip((photograph.name for photograph in bank.photographs), bank.load(), strict=True))
        self._choice = random.Random(f"{settings.seed}/{settings.endpoint}/photographs")
        self._due = deque(
            schedule(
                settings.arrivals,
                rate=settings.rate,
                duration_ns=settings.duration_ns,
                seed=settings.seed,
                endpoint=settings.endpoint,
                phase=settings.phase,
            )
        )
        self._closed_loop = settings.arrivals == "closed"
        self._number = 0
        self._record = lifecycle.open_record(Path(settings.record))
        self._ledger = Ledger(settings.timeout_ns, self._record.write)
        self._reply_topic = f"cellbed/replies/{settings.endpoint}"
        self._connection = Connection(
            settings.broker_host,
            settings.broker_port,
            settings.endpoint,
            topic=self._reply_topic,
            on_message=self._replied,
            on_handed_over=lambda socket: self._ledger.handed_over(
                socket.sent.start, socket.sent.end, socket.accepted_ns, socket.accepted_full_ns
            ),
            on_lost=lambda: self._ledger.connection_lost(time.monotonic_ns()),
        )
        self._commands = lifecycle.Commands()
        self._start: dict[str, int] | None = None
        self._next_progress = 0

    def run(self) -> None:
        """Connect, announce readiness, wait for the start, send until the end, drain, report. Raises WorkloadError."""
        try:
            self._get_ready()
            while self._start is None and not self._commands.closed:
                self._wait(None)
            if self._start is not None:
                self._send_and_drain(**self._start)
        finally:
            self._connection.close()
            self._ledger.close(time.monotonic_ns())
            self._record.close()
        announce("done", **self._counts())

    def _get_ready(self) -> None:
        deadline = time.monotonic_ns() + self._settings.connect_patience_ns
        while not self._connection.ready:
            self._wait(deadline)
            if self._commands.closed:
                return
            if time.monotonic_ns() >= deadline:
                raise WorkloadError(
                    f"{self._settings.endpoint}: no MQTT broker answers at {self._settings.broker_host} port "
                    f"{self._settings.broker_port}: {self._connection.trouble or 'connected, but no acknowledgement'}"
                )
        jpeg.preprocess(self._photographs[0][1])  # loads the decoder, so that the first request does not pay for it
        # What is alive now stays alive: the collector need not look at it again during the run.
        gc.collect()
        gc.freeze()
        announce("ready")

    def _send_and_drain(self, t0_ns: int, end_ns: int, drain_ns: int) -> None:
        now = time.monotonic_ns()
        while self._due and t0_ns + self._due[-1] >= end_ns:
            self._due.pop()
        while not self._commands.closed and now < end_ns + drain_ns:
            if self._due and t0_ns + self._due[0] <= now:
                self._send(t0_ns + self._due.popleft())
            if self._closed_loop:
                self._continue_closed_loop(t0_ns, end_ns)
            self._report(now)
            if now >= end_ns and not self._due and not self._ledger.waiting:
                break
            wake = [end_ns if now < end_ns else end_ns + drain_ns, self._next_progress]
            if self._due:
                wake.append(t0_ns + self._due[0])
            if (expiry := self._ledger.next_expiry_ns) is not None:
                wake.append(expiry)
            self._wait(min(wake))
            now = time.monotonic_ns()
            self._ledger.expire(now)
        self._refuse_overdue(t0_ns, now)

    def _continue_closed_loop(self, t0_ns: int, end_ns: int) -> None:
        if not self._due and self._number > 0 and self._ledger.is_over(self._number - 1):
            # A request without a connection is over at once; the pause keeps the loop from spinning on losses.
            due = time.monotonic_ns() + (0 if self._connection.ready else SECOND // 10)
            if due < end_ns:
                self._due.append(due - t0_ns)

    def _send(self, intended_ns: int) -> None:
        name, photograph = self._choice.choice(self._photographs)
        request = Request(self._number, self._settings.endpoint, name, intended_ns)
        self._number += 1
        request.started_ns = time.monotonic_ns()
        try:
            payload = jpeg.preprocess(photograph)
        except jpeg.UnusableImageError as error:
            self._ledger.refuse(request, f"unusable photograph: {error}")
            return
        request.bytes_up = len(payload)
        connected = self._connection.socket
        if connected is None or not self._connection.ready:
            request.sent_ns = time.monotonic_ns()
            self._ledger.refuse(request, "not connected")
            return
        if self._ledger.client_bytes + len(payload) > self._settings.most_client_bytes:
            request.sent_ns = time.monotonic_ns()
            self._ledger.refuse(request, "the client's queue is full")
            return
        correlation = f"{self._settings.endpoint}/{request.request}".encode()
        properties = request_properties(self._reply_topic, correlation)
        request.local_port, request.remote_port = connected.local_port, connected.remote_port
        request.tcp = tcp_info(connected.tcp)
        request.sent_ns = time.monotonic_ns()
        self._ledger.publishing(request, connected.full_ns(request.sent_ns))
        self._connection.publish(self._settings.request_topic, payload, properties)

    def _replied(self, message: MQTTMessage) -> None:
        now = time.monotonic_ns()
        connected = self._connection.socket
        correlation: bytes = getattr(message.properties, "CorrelationData", b"")
        number = correlation.rpartition(b"/")[2]
        if connected is None or not number.isdigit():
            return
        text = message.payload.decode("utf-8", "replace")
        failed = text.startswith(REPLY_ERROR)
        self._ledger.reply(
            int(number),
            now,
            label=None if failed else text,
            error=text.removeprefix(REPLY_ERROR) if failed else None,
            start=connected.received.start,
            end=connected.received.end,
            payload=len(message.payload),
        )

    def _refuse_overdue(self, t0_ns: int, now: int) -> None:
        """Requests that were due but whose turn never came are lost, not forgotten."""
        while self._due and t0_ns + self._due[0] <= now:
            name, _ = self._choice.choice(self._photographs)
            request = Request(self._number, self._settings.endpoint, name, t0_ns + self._due.popleft())
            self._number += 1
            self._ledger.refuse(request, "the endpoint was too busy to send it before the run ended")

    def _report(self, now: int) -> None:
        if now >= self._next_progress:
            self._next_progress = now + _PROGRESS_INTERVAL
            self._record.flush()
            announce("progress", **self._counts())

    def _counts(self) -> dict[str, int]:
        ledger = self._ledger
        return {
            "sent": ledger.issued,
            "completed": ledger.completed,
            "timed_out": ledger.timed_out,
            "lost": ledger.lost,
        }

    def _wait(self, until_ns: int | None) -> None:
        """Sleep until ``until_ns`` or until something can be done, and do it."""
        connection = self._connection
        times = [time for time in (until_ns, connection.wake_ns) if time is not None]
        patience = max(0, min(times) - time.monotonic_ns()) / SECOND if times else None
        readers: list[Any] = [self._commands, *connection.readers]
        readable, writable, _ = select.select(readers, connection.writers, [], patience)
        connection.drive(readable, writable)
        if self._commands in readable:
            for command in self._commands.read():
                try:
                    self._start = {name: int(command[name]) for name in ("t0_ns", "end_ns", "drain_ns")}
                except (KeyError, TypeError, ValueError):
                    raise WorkloadError(f"standard input: not the start of a workload: {command}") from None


def main(config: dict[str, Any]) -> None:
    """Run an endpoint with the configuration of :class:`Settings`."""
    prctl.wake_precisely()
    Endpoint(Settings(**config)).run()


if __name__ == "__main__":
    lifecycle.run(main)
