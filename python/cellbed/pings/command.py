"""The command: signals, display, and final output."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from cellbed.pings.probers import PingError
from cellbed.pings.recorder import Options, Watch, record
from cellbed.pings.summary import HostSummary
from cellbed.support.errors import printable
from cellbed.support.standard_streams import draw

_MOST_HOSTS = 256
_SHORTEST = 10_000_000
"""ns: public hosts must not be flooded."""


def ping_record(
    hosts: Sequence[str],
    out: Path,
    *,
    interval: int,
    timeout: int,
    lasting: int | None,
    tcp: int | None,
    family: int | None,
    as_json: bool,
) -> None:
    """Record, with progress on standard error; the table or JSON at the end goes to standard output."""
    if interval < _SHORTEST:
        raise PingError("an interval below 10 ms floods the hosts: write --interval '10 ms' or more")
    if timeout < 1_000_000:
        raise PingError("a timeout below 1 ms loses every answer: write --timeout '2 s'")
    if family not in (None, 4, 6):
        raise PingError(f"unknown IP version {family}: write --family 4 or --family 6")
    if len(hosts) > _MOST_HOSTS:
        raise PingError(f"{len(hosts)} hosts are too many for one process: write at most {_MOST_HOSTS}")
    options = Options(out, interval, timeout, lasting, tcp, family)
    with _until_signal() as stopped, _display() as watch:
        summaries = record(hosts, options, watch, stopped)
    if as_json:
        print(json.dumps([asdict(summary) for summary in summaries], indent=2))
        return
    for line in _table(summaries):
        print(line)
    for summary in summaries:
        print(summary.file)


@contextmanager
def _until_signal() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM end the record in order."""
    caught: list[int] = []
    before = {number: signal.signal(number, lambda which, _: caught.append(which)) for number in _ENDING}
    try:
        yield lambda: bool(caught)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _display() -> Iterator[Watch]:
    """In a terminal a table that is redrawn each second; else a line a minute."""
    drawn, due = 0, 10**9
    in_place = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def watch(elapsed: int, figures: Callable[[], Sequence[HostSummary]]) -> None:
        nonlocal drawn, due
        if elapsed < due:
            return
        due = elapsed + (1 if in_place else 60) * 10**9
        summaries = figures()
        if in_place:
            rows = _table(summaries)
            draw(
                (f"\x1b[{drawn}A\r\x1b[J" if drawn else "") + "".join(f"{printable(row)}\n" for row in rows), sys.stderr
            )
            drawn = len(rows)
        else:
            said = "; ".join(
                f"{each.host} {_ms(each.median)} ms, {each.lost} of {each.sent} lost" for each in summaries
            )
            print(f"{elapsed / 1e9:.0f} s: {said}", file=sys.stderr, flush=True)

    try:
        yield watch
    finally:
        if drawn:
            draw(f"\x1b[{drawn}A\r\x1b[J", sys.stderr)


def _table(summaries: Sequence[HostSummary]) -> list[str]:
    width = max(len("host"), *(len(each.host) for each in summaries))
    rows = [f"{'host':<{width}}  {'sent':>8}  {'lost':>7}  {'last':>9}  {'median':>9}  {'p95':>9}  {'p99':>9}  ms"]
    for each in summaries:
        lost = f"{each.lost / each.sent:.2%}" if each.sent else "–"
        times = "  ".join(f"{_ms(value):>9}" for value in (each.last, each.median, each.p95, each.p99))
        rows.append(f"{each.host:<{width}}  {each.sent:>8}  {lost:>7}  {times}")
    return rows


def _ms(nanoseconds: int | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:.3f}"
