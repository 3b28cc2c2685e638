"""Probes all hosts, each at its times, and writes the answers."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cellbed.pings.file import FileError, Header, RecordFile, name_of
from cellbed.pings.probers import Icmp, Prober, Tcp, resolve
from cellbed.pings.schedule import Probes
from cellbed.pings.summary import HostSummary, summarise

Watch = Callable[[int, Callable[[], Sequence[HostSummary]]], None]

_LOOK = 0.5
"""Seconds between two looks at whether to stop."""


@dataclass(frozen=True, slots=True)
class Options:
    """Recording options. interval, timeout, duration: ns; duration None is until stopped. tcp: port, or None for ICMP.

    family: 4, 6, or None for the name's first address. folder: where the files go.
    """

    folder: Path
    interval: int = 10**9
    timeout: int = 2 * 10**9
    duration: int | None = None
    tcp: int | None = None
    family: int | None = None


@dataclass(slots=True)
class _Host:
    name: str
    address: str
    prober: Prober
    probes: Probes
    file: RecordFile
    offset: int
    """The offset from the clock's times to the file's."""
    samples: list[tuple[int, int | None]] = field(default_factory=list)

    def summary(self) -> HostSummary:
        return summarise(
            self.samples,
            host=self.name,
            address=self.address,
            by=self.prober.by,
            file=str(self.file.path),
            late=self.probes.late,
        )

    def keep(self, decided: list[tuple[int, int | None]]) -> None:
        if decided:
            found = [(at + self.offset, trip) for at, trip in decided]
            self.samples += found
            self.file.append(found)


def record(
    hosts: Sequence[str],
    options: Options,
    watch: Watch,
    stopped: Callable[[], bool],
) -> list[HostSummary]:
    """Record until `options.duration` is over or `stopped` says so; the summary of each host's whole record.

    watch: called with the ns since the start, and a function for the figures of each host, at least twice a second.
    Raises PingError and FileError.
    """
    recorded: list[_Host] = []
    begun = _now()
    try:
        for number, host in enumerate(dict.fromkeys(hosts)):
            recorded.append(_begin(host, options, begun + number * options.interval // len(hosts)))
        _loop(recorded, options, begun, watch, stopped)
        return [host.summary() for host in recorded]
    finally:
        for each in recorded:
            each.prober.close()
            each.file.close()


def _begin(host: str, options: Options, due: int) -> _Host:
    family, address = resolve(host, options.family)
    prober: Prober = Icmp(family, address) if options.tcp is None else Tcp(family, address, options.tcp)
    # The time of day is for people and for the hours of a day; durations come from the monotonic clock.
    started = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251
    now = _now()
    try:
        file = RecordFile(
            options.folder / name_of(host), Header(host, address, prober.by, started, options.interval / 1e9)
        )
    except FileError:
        prober.close()
        raise
    begun = int((started - file.header.started).total_seconds()) * 10**9
    if file.samples:
        begun = max(begun, file.samples[-1][0] + 1)
    probes = Probes(interval=options.interval, timeout=options.timeout, due=max(due, now))
    return _Host(host, address, prober, probes, file, begun - now, list(file.samples))


def _loop(
    hosts: list[_Host],
    options: Options,
    begun: int,
    watch: Watch,
    stopped: Callable[[], bool],
) -> None:
    end = None if options.duration is None else begun + options.duration
    while True:
        now = _now()
        over = stopped() or (end is not None and now >= end)
        for host in hosts:
            for number, round_trip in host.prober.answers():
                host.probes.answer(number, round_trip)
            if not over and now >= host.probes.due:
                host.prober.send(host.probes.send(now))
            host.keep(host.probes.finished(now, over=over))
        if over:
            return
        watch(now - begun, lambda: [host.summary() for host in hosts])
        _wait(hosts, min(host.probes.next_event for host in hosts))


def _wait(hosts: list[_Host], until: int) -> None:
    poll = select.poll()
    for host in hosts:
        for descriptor, writing in host.prober.descriptors():
            poll.register(descriptor, select.POLLOUT if writing else select.POLLIN)
    poll.poll(1000 * min(max(0.0, (until - _now()) / 1e9), _LOOK))


def _now() -> int:
    # Continues while the machine sleeps, unlike the monotonic clock.
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
