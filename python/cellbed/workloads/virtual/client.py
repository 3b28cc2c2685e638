"""A load generator of a real run on its node in virtual time."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.model import Draw
from cellbed.workloads.virtual.world import DatagramSocket, Host, Program, Socket, World
from cellbed_node.generator import Generator

_MOST_TURNS = 100_000
"""Maximum turns of a generator without an end; a generator with more turns is faulty, not busy."""


class Client:
    """A load generator on its node in a world."""

    def __init__(self, world: World, host: Host, generator: Generator, deployment: Deployment, draw: Draw) -> None:
        self._world, self.generator, self._draw = world, generator, draw
        self.program = Program(world, host, deployment.name)
        self.program.on_socket = self._watch
        generator.write_in_blocks()
        self._deployment = deployment
        self._prepared = False
        self._started = False
        self._wake_ns: int | None = None
        self._sleeps = type(generator).turn is Generator.turn
        self._noticed: dict[int, Socket | DatagramSocket] = {}
        """By descriptor: sockets that may have something to read."""
        self.over = False

    @property
    def is_ready(self) -> bool:
        """Return whether the client waits for its start."""
        return self._prepared and self.generator.ready

    def prepare(self) -> None:
        """Begin to connect the generator."""

        def work() -> None:
            self.generator.prepare()
            self._prepared = True
            self._drive()

        self.program.call(work)

    def start(self, t0_ns: int) -> None:
        """Start the load in the generator. t0_ns: start of the schedule."""
        each = self._deployment
        self.generator.start(t0_ns + each.start_ns, t0_ns + each.stop_ns, each.table.drain)
        self.generator.ledger.on_reply = lambda: self.program.spend(self._draw.each[1])
        self._started = True
        self._world.at(t0_ns + each.start_ns, self.wake)

    def finish(self) -> None:
        """Close the generator."""
        self.program.now_ns = max(self.program.now_ns, self._world.now_ns)
        self._world.current = self.program
        self.generator.finish()

    def _watch(self, connection: Socket | DatagramSocket) -> None:
        """Run the generator after an event at `connection`. The delay is as measured for packets that complete
        replies."""
        connection.delay = partial(self._notice_delay_ns, "receive")
        connection.on_event = partial(self._notice, connection)

    def _notice(self, connection: Socket | DatagramSocket) -> None:
        self._noticed[connection.fileno()] = connection
        self.program.call(self._drive)

    def wake(self) -> None:
        """Let the generator process due events."""

        def work() -> None:
            self.program.now_ns += self._notice_delay_ns("generator")
            self._drive()

        self.program.call(work)

    def _drive(self) -> None:
        """Read and write all available data, and process due events."""
        generator = self.generator
        left = dict[int, int]()
        for turn in itertools.count():
            if turn == _MOST_TURNS:
                name = self._deployment.name
                raise CellbedError(f"{name}: `writers` of its load generator lists sockets with nothing to send")
            waiting, readers = self._waiting() if self._noticed else {}, list[Any]()
            if waiting:
                found = [(number, each) for each in generator.readers if (number := each.fileno()) in waiting]
                waiting, readers = {number: waiting[number] for number, _ in found}, [each for _, each in found]
            if writers := generator.writers:
                writers = [each for each in writers if self._world.is_connected(each.fileno())]
            is_idle = (not waiting or waiting == left) and not writers
            if is_idle and ((wake := generator.wake_ns) is None or wake > self.program.now_ns):
                break
            generator.drive(readers, writers)
            left = waiting
        wake = generator.due_ns if self._sleeps else None
        if wake is not None and wake == self._wake_ns and wake > self.program.now_ns:
            pass  # nothing is due before
        elif self._started and not self.over:
            # Each turn begins one request; the next may be due already.
            while (wake := generator.turn()) is not None and wake <= self.program.now_ns:
                pass
            self.over = wake is None
        else:
            wake = None
        if (own := generator.wake_ns) is not None:
            wake = own if wake is None else min(wake, own)
        if wake is not None and (self._wake_ns is None or wake != self._wake_ns or wake <= self._world.now_ns):
            self._wake_ns = wake
            self._world.at(wake, partial(self._wake_up, wake))

    def _wake_up(self, at_ns: int) -> None:
        if self._wake_ns == at_ns:
            self.wake()

    def _waiting(self) -> dict[int, int]:
        """Return the number of bytes to read by descriptor; 0 at the end of a stream."""
        found = {}
        for number, each in list(self._noticed.items()):
            size = None if each.closed else each.waiting
            if size is None:
                del self._noticed[number]
            else:
                found[number] = size
        return found

    def _notice_delay_ns(self, part: str) -> int:
        """Return the time until the program notices an event, ns: from the sample of the request concerned."""
        ledger, host = self.generator.ledger, self.program.host.name
        number = ledger.completed if part == "receive" else ledger.issued
        sample = (self._draw.first(host) if not number else None) or self._draw.sample(f"{host}/{number}")
        return int(sample.get(part, 0))
