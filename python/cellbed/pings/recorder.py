"""Run a `ping` for each host, and write what comes of its probes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from cellbed.pings.echoes import Echoes, Sample
from cellbed.pings.file import Header, RecordFile, name_of
from cellbed.support.errors import CellbedError
from cellbed.support.status_line import StatusLine

_MOST_HOSTS = 256
_SHORTEST = 10_000_000
"""ns: public hosts must not be flooded."""
_LOOK_S = 0.5
"""Time between two checks whether to stop."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class PingError(CellbedError):
    """Probes that are not possible. The text has reason and remedy."""


@dataclass(frozen=True, slots=True)
class HostSummary:
    """Figures of one host's record. Round-trip times are ns, None where nothing was answered.

    late: answers after the timeout, or second ones, in this session.
    """

    host: str
    address: str
    file: str
    sent: int
    lost: int
    late: int
    last: int | None
    median: int | None
    p95: int | None
    p99: int | None


@dataclass(slots=True)
class _Host:
    name: str
    address: str
    file: RecordFile
    echoes: Echoes
    process: subprocess.Popen[bytes]
    _rest: bytes = b""
    _samples: list[Sample] = field(default_factory=list)

    def summary(self) -> HostSummary:
        """Return the figures of the record.

        Percentiles are the smallest value that the share does not exceed (Hyndman & Fan, 1996, type 1).
        """
        samples = [*self.file.samples, *self._samples]
        answered = [trip for _, trip in samples if trip is not None]
        last = samples[-1][1] if samples else None
        shares = np.quantile(answered, (0.5, 0.95, 0.99), method="inverted_cdf") if answered else [None] * 3
        counts = len(samples), len(samples) - len(answered), self.echoes.late
        percentiles = (None if each is None else int(each) for each in shares)
        return HostSummary(self.name, self.address, str(self.file.path), *counts, last, *percentiles)

    def read(self) -> None:
        """Write the results of what ping has printed. Raises PingError where it has ended."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        printed = os.read(self.process.stdout.fileno(), 1 << 16)
        if not printed:
            reason = self.process.stderr.read().decode(errors="replace").strip().replace("\n", "; ")
            raise PingError(
                f"{self.name}: ping ended: {reason or 'no reason given'}; may this user send echo requests? "
                "sudo sysctl -w net.ipv4.ping_group_range='0 2147483647'"
            )
        *lines, self._rest = (self._rest + printed).split(b"\n")
        after = (self._samples or self.file.samples or [(-1, None)])[-1][0] + 1
        decided = [sample for line in lines for sample in self.echoes.read(line) if sample[0] >= after]
        # Times of the wall clock, which may have been set back.
        decided.sort(key=lambda sample: sample[0])
        self._samples += decided
        self.file.append(decided)


def ping_record(
    hosts: Sequence[str],
    out: Path,
    *,
    interval: int,
    timeout: int,
    lasting: int | None,
    family: int | None,
    as_json: bool,
) -> None:
    """Record until Ctrl-C, or for `lasting` ns, with progress on standard error; print a table or JSON at the end.

    Raises PingError and FileError.
    """
    if interval < _SHORTEST:
        raise PingError("an interval below 10 ms floods the hosts: write --interval '10 ms' or more")
    if timeout < 1_000_000:
        raise PingError("a timeout below 1 ms loses every answer: write --timeout '2 s'")
    if family not in (None, 4, 6):
        raise PingError(f"unknown IP version {family}: write --family 4 or --family 6")
    if len(hosts) > _MOST_HOSTS:
        raise PingError(f"{len(hosts)} hosts are too many for one process: write at most {_MOST_HOSTS}")
    end = None if lasting is None else time.monotonic_ns() + lasting
    with _until_signal() as stopped, ExitStack() as stack:
        names = dict.fromkeys(hosts)
        recorded = [stack.enter_context(_recording(name, out, interval, timeout, family)) for name in names]
        _loop(recorded, end, stopped)
        summaries = [host.summary() for host in recorded]
    if as_json:
        print(json.dumps([asdict(summary) for summary in summaries], indent=2))
        return
    _print_table(summaries)
    for summary in summaries:
        print(summary.file)


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """End the record in order at Ctrl-C and SIGTERM."""
    caught: list[int] = []
    before = {number: signal.signal(number, lambda which, _: caught.append(which)) for number in _ENDING}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _recording(host: str, out: Path, interval: int, timeout: int, family: int | None) -> Iterator[_Host]:
    address = _resolve(host, family)
    started = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - for people and for the hours of a day
    command = ["ping", "-n", "-D", "-O", "-i", f"{interval / 1e9:g}", address]
    try:
        # In a session of its own, so that Ctrl-C ends this process first.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"LC_ALL": "C"},
            start_new_session=True,
        )
    except FileNotFoundError:
        raise PingError("ping is not installed: sudo apt install iputils-ping") from None
    with process:
        try:
            file = RecordFile(out / name_of(host), Header(host, address, "icmp", started, interval / 1e9))
            try:
                since = int(file.header.started.timestamp()) * 10**9
                yield _Host(host, address, file, Echoes(since, interval, -(-timeout // interval)), process)
            finally:
                file.close()
        finally:
            process.kill()


def _resolve(host: str, family: int | None) -> str:
    """Return the address of a host. Raises PingError when it has none."""
    wanted = {None: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}[family]
    try:
        return str(socket.getaddrinfo(host, None, wanted, socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a valid host name"
        raise PingError(f"{host}: {reason}: write a host name or address") from error


def _loop(hosts: Sequence[_Host], end: int | None, stopped: Callable[[], bool]) -> None:
    begun = due = time.monotonic_ns()
    with selectors.DefaultSelector() as selector, StatusLine() as line:
        for host in hosts:
            assert host.process.stdout is not None
            selector.register(host.process.stdout, selectors.EVENT_READ, host)
        every = 10**9 if line.redrawn else 60 * 10**9
        while not stopped() and ((now := time.monotonic_ns()) < end if end is not None else True):
            for key, _ in selector.select(_LOOK_S if end is None else min(_LOOK_S, (end - now) / 1e9)):
                key.data.read()
            if (now := time.monotonic_ns()) >= due + every:
                due = now
                text = "; ".join(map(_figures, (host.summary() for host in hosts)))
                if line.redrawn:
                    line.state(text)
                else:
                    line.note(f"{(now - begun) / 1e9:.0f} s: {text}")


def _figures(summary: HostSummary) -> str:
    return f"{summary.host} {_ms(summary.median)} ms, {summary.lost} of {summary.sent} lost"


def _print_table(summaries: Sequence[HostSummary]) -> None:
    width = max(len("host"), *(len(each.host) for each in summaries))
    print(f"{'host':<{width}}  {'sent':>8}  {'lost':>7}  {'last':>9}  {'median':>9}  {'p95':>9}  {'p99':>9}  ms")
    for each in summaries:
        lost = f"{each.lost / each.sent:.2%}" if each.sent else "–"
        times = "  ".join(f"{_ms(value):>9}" for value in (each.last, each.median, each.p95, each.p99))
        print(f"{each.host:<{width}}  {each.sent:>8}  {lost:>7}  {times}")


def _ms(nanoseconds: int | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:.3f}"
