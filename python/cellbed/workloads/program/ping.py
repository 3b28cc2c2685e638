"""``ping`` in virtual time: echo requests, which the addressed node answers, and the text that iputils' ping prints."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from cellbed.workloads.virtual.world import SECOND, Datagrams, Host, Program, World

_HEADERS = 28
"""Of IPv4 and ICMP, bytes."""
_ICMP = 8
_LATE_NS = 500_000, 1_500_000
"""By how much a request leaves late, from and to: ping counts in whole milliseconds."""
_SOONEST_NS = 1_000_000
"""A reply that comes sooner after a request does not change how ping waits for the next."""
_JIFFY_NS = 4_000_000
"""Of a kernel with 250 Hz, whose timers have steps of 1, 8, 64, … jiffies, the longer the coarser."""
_LONGEST_WAIT_NS = 10 * SECOND
"""For replies after the last request, where none has come."""


@dataclass(frozen=True, slots=True)
class Options:
    """Of the command line. target: name or address. count: of requests, ``None`` for no end. size: of the data, bytes.
    deadline_ns, wait_ns: for replies altogether, and after the last request. quiet, numeric: of the text."""

    target: str
    count: int | None
    interval_ns: int
    size: int
    deadline_ns: int | None
    wait_ns: int | None
    quiet: bool
    numeric: bool


class Ping:
    """One start of ping. random: by how much each request is late. output: gets the lines that it prints. ended: gets
    its exit status."""

    def __init__(
        self,
        world: World,
        program: Program,
        options: Options,
        random: Random,
        output: Callable[[str], object],
        ended: Callable[[int], None],
    ) -> None:
        self._world, self._host, self._options, self._output = world, program.host, options, output
        self._random, self._ended = random, ended
        self._over = False
        self._heard = self._is_due = False
        self._sent: list[int] = []
        self._targets: list[Host | None] = []
        self._taken: dict[int, int] = {}
        self._doubled = self._pipe = self._acknowledged = 0
        self._requests = Datagrams(world, icmp=True, arrived=self._answer)
        self._answers = Datagrams(world, icmp=True, arrived=self._receive)

    def begin(self) -> None:
        """Send the first request."""
        options, address = self._options, self._world.address_of(self._options.target)
        line = f"PING {options.target} ({address}) {options.size}({options.size + _HEADERS}) bytes of data."
        self._output(line)
        name = self._world.name_of(address)
        is_named = options.target != address and not options.numeric
        self._sender = f"{name} ({address})" if is_named else address
        if options.deadline_ns is not None:
            self._world.at(self._world.now_ns + options.deadline_ns, self._finish)
        self._send()

    def terminate(self) -> int:
        """End it by SIGTERM, which it does not handle: its exit status."""
        self._over = True
        return -15

    def _send(self) -> None:
        options = self._options
        if self._over or self._is_last():
            return
        number = len(self._sent)
        self._sent.append(self._world.now_ns)
        self._pipe = max(self._pipe, number + 1 - self._acknowledged)
        address = self._world.address_of(options.target)
        stays = self._world.is_spread(address) and self._targets
        target = self._targets[0] if stays else self._world.host_of(address, self._host)
        self._targets.append(target)
        if target is not None:
            self._requests.send((self._host, 0), (target, 0), options.size + _HEADERS, number)
        if not self._is_last():
            self._heard = self._is_due = False
            self._world.at(self._world.now_ns + options.interval_ns + self._random.randrange(*_LATE_NS), self._due)
            return
        wait_ns = options.wait_ns if options.wait_ns is not None else _LONGEST_WAIT_NS
        if self._taken:
            wait_ns = max(2 * max(self._taken.values()), options.interval_ns)
        self._world.at(self._world.now_ns + wait_ns, self._finish)

    def _due(self) -> None:
        """Send the next request, if ping waits for its time; without a reply since the last one it waits for a reply,
        at most until a coarse timer of the kernel."""
        if self._heard:
            self._send()
            return
        self._is_due, number = True, len(self._sent)
        steps = 1
        while self._options.interval_ns > 63 * steps * _JIFFY_NS:
            steps *= 8
        late_ns = self._random.randrange(_JIFFY_NS, (1 + steps) * _JIFFY_NS)
        until_ns = self._sent[-1] + self._options.interval_ns + late_ns
        self._world.at(until_ns, lambda: self._send() if number == len(self._sent) else None)

    def _is_last(self) -> bool:
        """Return whether it sends no more; with a deadline it does so until all replies have come."""
        options = self._options
        return options.count is not None and options.deadline_ns is None and len(self._sent) >= options.count

    def _answer(self, number: int) -> None:
        """The kernel of the target answers a request."""
        target = self._targets[number]
        assert target is not None
        self._answers.send((target, 0), (self._host, 0), self._options.size + _HEADERS, number)

    def _receive(self, number: int) -> None:
        if self._over:
            return
        taken_ns = self._world.now_ns - self._sent[number]
        doubled = number in self._taken
        self._doubled += doubled
        self._taken.setdefault(number, taken_ns)
        self._acknowledged = max(self._acknowledged, number + 1)
        if not self._options.quiet:
            text = f"{self._options.size + _ICMP} bytes from {self._sender}: icmp_seq={number + 1} ttl=64"
            self._output(f"{text} time={_milliseconds(taken_ns)} ms{' (DUP!)' if doubled else ''}")
        if self._options.count is not None and len(self._taken) >= self._options.count:
            self._finish()
        self._heard |= self._world.now_ns - self._sent[-1] >= _SOONEST_NS
        if self._heard and self._is_due:
            self._send()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        options, sent, received = self._options, len(self._sent), len(self._taken)
        doubled = f", +{self._doubled} duplicates" if self._doubled else ""
        lost = f"{(sent - received) * 100 / sent:g}% packet loss"
        took = (self._sent[-1] - self._sent[0]) // 1_000_000
        self._output(f"\n--- {options.target} ping statistics ---")
        self._output(f"{sent} packets transmitted, {received} received{doubled}, {lost}, time {took}ms")
        statistics = ""
        if self._taken:
            spans = [taken_ns / 1e6 for taken_ns in self._taken.values()]
            mean = sum(spans) / received
            deviation = math.sqrt(max(0.0, sum(span * span for span in spans) / received - mean * mean))
            statistics = f"rtt min/avg/max/mdev = {min(spans):.3f}/{mean:.3f}/{max(spans):.3f}/{deviation:.3f} ms"
            statistics += f", pipe {self._pipe}" if self._pipe > 1 else ""
        self._output(statistics)
        missing = options.deadline_ns is not None and options.count is not None and received < options.count
        self._ended(1 if not received or missing else 0)


def _milliseconds(span_ns: int) -> str:
    """Return a time as ping prints it: three digits."""
    span = span_ns / 1e6
    return (
        f"{span:.0f}"
        if span >= 99.95
        else f"{span:.1f}"
        if span >= 9.995
        else f"{span:.2f}"
        if span >= 1
        else f"{span:.3f}"
    )
