"""cellbed beside Mahimahi, Rattan and a plain veth pair: one table from one run, interleaved.

Run ``MAHIMAHI=/path/to/prefix RATTAN=/path/to/rattan python benches/comparison.py`` as root. Mahimahi refuses root and
runs as the user MAHIMAHI_USER (default: nobody). Missing peers are left out and named below the table. Each round
measures every program once; figures are medians over the rounds, with the range.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from measuring import Figures, Meter, format_range
from peers.shells import Link, Shell, all_shells
from peers.traffic import (
    DATAGRAMS,
    STAMPS,
    TCP,
    DatagramSink,
    TcpSink,
    command_behind,
    discard_waiting,
    one_way_delays,
    split_processes,
)
from rich.progress import Progress
from rich.table import Table

from cellbed.support.console import Console

#: Share of a full-sized IP packet that is TCP payload (40 bytes of headers, 12 of timestamps).
PAYLOAD_SHARE = 1448 / 1500


class NotMeasuredError(Exception):
    """A shell failed. The text contains the shell's message."""


@contextlib.contextmanager
def run_behind_link(shell: Shell, link: Link, program: str, arguments: list[object], folder: Path) -> Iterator[int]:
    """Run a program behind a link and yield the started process; end all of its processes afterwards."""
    process = shell.start(link, command_behind(program, *arguments), folder)
    try:
        yield process.pid
    finally:
        # End the command first: all peers clean up then, but not all clean up when killed.
        for pid in split_processes(process.pid, program)[1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                process.wait(10)
                break
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        process.wait()


def _failure(folder: Path, what: str) -> NotMeasuredError:
    lines = (folder / "errors").read_text(errors="replace").strip().splitlines()
    return NotMeasuredError(f"{what}: {lines[0] if lines else 'no message'}")


def one_flow(shell: Shell, link: Link, seconds: float, folder: Path) -> Figures:
    """Measure one TCP flow without its first second and a half."""
    assert link.rate is not None
    sink = TcpSink()
    try:
        with run_behind_link(shell, link, TCP, [shell.far_end, sink.port, link.window], folder) as root:
            if not sink.connected.wait(15):
                raise _failure(folder, "no connection")
            time.sleep(1.5)
            meter, before = Meter(*split_processes(root, TCP)[0]), sink.received
            time.sleep(seconds)
            payload, cores = 8 * (sink.received - before) / meter.elapsed, meter.share
    finally:
        sink.close()
    return {
        "Mbit/s": payload / 1e6,
        "% of the link": 100 * payload / (link.rate * PAYLOAD_SHARE),
        "cores": cores,
    }


def flood(shell: Shell, link: Link, seconds: float, folder: Path) -> Figures:
    """Measure 64-byte datagrams, sent without pauses."""
    sink = DatagramSink()
    try:
        with run_behind_link(shell, link, DATAGRAMS, [shell.far_end, sink.port, seconds + 15], folder) as root:
            deadline = time.monotonic() + 15
            while not sink.received:
                if time.monotonic() > deadline:
                    raise _failure(folder, "no datagram")
                time.sleep(0.02)
            time.sleep(0.5)
            meter, before = Meter(*split_processes(root, DATAGRAMS)[0]), sink.received
            time.sleep(seconds)
            return {"packets/s": (sink.received - before) / meter.elapsed, "cores": meter.share}
    finally:
        sink.close()


def delay(shell: Shell, link: Link, seconds: float, folder: Path) -> Figures:
    """Measure the error of the one-way delay of sparse datagrams, 200 per second at random times, µs."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("0.0.0.0", 0))
        count = int(200 * max(seconds, 2))
        arguments = [shell.far_end, receiver.getsockname()[1], count, int(seconds)]
        with run_behind_link(shell, link, STAMPS, arguments, folder) as root:
            one_way_delays(receiver, 1)
            meter = Meter(*split_processes(root, STAMPS)[0])
            # Listing the processes takes some ms: leave out what came meanwhile.
            count -= 1 + discard_waiting(receiver)
            delays = one_way_delays(receiver, count)
            cores = meter.share
    if len(delays) < count // 2:
        raise _failure(folder, f"only {len(delays)} of {count} datagrams came")
    asked = link.delay_ms * 1_000_000 if shell.name != "plain veth" else 0
    errors = sorted((one_way - asked) / 1000 for one_way in delays)
    return {
        "p50": statistics.median(errors),
        "p99": errors[int(0.99 * (len(errors) - 1))],
        "least": errors[0],
        "lost": float(count - len(delays)),
        "cores": cores,
    }


IDLE = "import time; time.sleep(60)"


def idle(shell: Shell, link: Link, seconds: float, folder: Path) -> Figures:
    """Measure the processor time of an unused link."""
    with run_behind_link(shell, link, IDLE, [], folder) as root:
        time.sleep(2)
        meter = Meter(*split_processes(root, IDLE)[0])
        time.sleep(seconds)
        return {"% of a core": 100 * meter.share}


@dataclass(frozen=True, slots=True)
class Case:
    """A row of the table."""

    name: str
    what: str
    link: Link
    measure: Callable[[Shell, Link, float, Path], Figures]
    show: Callable[[dict[str, list[float]]], str]


def _flow_text(figures: dict[str, list[float]]) -> str:
    cores = statistics.median(figures["cores"])
    return f"{format_range(figures['% of the link'], 1)} %, {cores:.2f} core"


def _veth_text(figures: dict[str, list[float]]) -> str:
    return f"{format_range([value / 1000 for value in figures['Mbit/s']], 1)} Gbit/s"


def _flood_text(figures: dict[str, list[float]]) -> str:
    cores = statistics.median(figures["cores"])
    return f"{format_range([value / 1000 for value in figures['packets/s']], 0)} k/s, {cores:.2f} core"


def _delay_text(figures: dict[str, list[float]]) -> str:
    middle, high, least = (statistics.median(figures[key]) for key in ("p50", "p99", "least"))
    lost = sum(figures["lost"])
    return f"p50 {middle:.0f}, p99 {high:.0f}, least {least:.0f}" + (f", {lost:.0f} lost" if lost else "")


def _idle_text(figures: dict[str, list[float]]) -> str:
    return f"{format_range(figures['% of a core'], 2)} %"


def _rate(rate: int) -> str:
    return f"{rate / 1e9:g} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:g} Mbit/s"


def cases() -> list[Case]:
    """Return all rows, in order."""
    found = [
        Case(
            f"tcp-{rate // 1_000_000}{f'-{delay_ms}ms' if delay_ms else ''}",
            f"one TCP flow, {_rate(rate)}" + (f", {delay_ms} ms each way" if delay_ms else ""),
            Link(rate, delay_ms),
            one_flow,
            _flow_text,
        )
        for delay_ms in (0, 20)
        for rate in (100_000_000, 500_000_000, 1_000_000_000, 2_000_000_000, 4_000_000_000, 10_000_000_000)
        # The kernel's default limit of a window fits 1 Gbit/s over 40 ms.
        if not delay_ms or rate <= 1_000_000_000
    ]
    return [
        *found,
        Case("udp", "datagrams of 64 bytes over 10 Gbit/s", Link(10_000_000_000), flood, _flood_text),
        Case("delay", "error of a one-way delay of 20 ms, µs", Link(delay_ms=20), delay, _delay_text),
        Case("idle", "a link of 12 Mbit/s that nobody uses", Link(12_000_000), idle, _idle_text),
    ]


def enter_network() -> None:
    """Continue in a new network namespace. It is removed at the end, with all remains of peers."""
    if os.geteuid() != 0:
        print("the comparison with peers is left out: their programs set up networks; run it as root")
        sys.exit(0)
    if "CELLBED_BENCH_NETWORK" not in os.environ:
        environment = {**os.environ, "CELLBED_BENCH_NETWORK": "own"}
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], environment)
    subprocess.run(("ip", "link", "set", "lo", "up"), check=True)


def shells_here(folder: Path) -> tuple[list[Shell], list[str]]:
    """Install our replacements of Mahimahi's commands below `folder`. Return the shells, and why others are missing."""
    stand_in = folder / "prefix"
    install = (sys.executable, "-m", "cellbed", "mahimahi", "install", "--prefix", str(stand_in))
    subprocess.run(install, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    present, absent = [], []
    for shell in all_shells(stand_in):
        reason = shell.missing()
        if reason is None:
            present.append(shell)
        else:
            absent.append(f"{shell.name} is left out: {reason}")
    return present, absent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long one measurement lasts (default: 2)")
    parser.add_argument(
        "--only", action="append", metavar="ROW", help="rows whose name begins so, such as tcp, tcp-1000, udp"
    )
    arguments = parser.parse_args()
    rows = [case for case in cases() if not arguments.only or any(case.name.startswith(it) for it in arguments.only)]
    if not rows:
        parser.error(f"no row is called so; there are: {', '.join(case.name for case in cases())}")

    enter_network()
    with tempfile.TemporaryDirectory(prefix="cellbed-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        present, absent = shells_here(folder)
        values: dict[str, dict[str, dict[str, list[float]]]] = {}
        failures: dict[str, dict[str, str]] = {}
        errors = Console(stderr=True)
        with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
            task = progress.add_task("measuring", total=arguments.rounds * len(rows) * len(present))
            for _ in range(arguments.rounds):
                for case in rows:
                    for shell in present:
                        progress.update(task, description=f"{case.name} · {shell.name}")
                        try:
                            figures = case.measure(shell, case.link, arguments.seconds, folder)
                        except NotMeasuredError as failure:
                            failures.setdefault(case.name, {})[shell.name] = str(failure)
                        else:
                            of_shell = values.setdefault(case.name, {}).setdefault(shell.name, {})
                            for key, value in figures.items():
                                of_shell.setdefault(key, []).append(value)
                        progress.advance(task)
    show(rows, present, values, failures, absent, arguments.rounds)


def show(
    rows: list[Case],
    shells: list[Shell],
    values: dict[str, dict[str, dict[str, list[float]]]],
    failures: dict[str, dict[str, str]],
    absent: list[str],
    rounds: int,
) -> None:
    """Print the table; outside of a terminal in Markdown, for documents."""
    console = Console()
    width = None if console.is_terminal else 10_000
    table = Table(title=f"medians of {rounds} rounds (least–most)" if rounds > 1 else "one round")
    header = ["", *(shell.name for shell in shells)]
    lines = []
    for case in rows:
        cells = [case.what]
        for shell in shells:
            figures = values.get(case.name, {}).get(shell.name)
            text = case.show if not (shell.name == "plain veth" and case.measure is one_flow) else _veth_text
            cells.append(text(figures) if figures else "not measured" if case.name in failures else "–")
        lines.append(cells)
    if width is None:
        for column in header:
            table.add_column(column)
        for cells in lines:
            table.add_row(*cells)
        console.print(table)
    else:
        for cells in (header, ["---"] * len(header), *lines):
            print("| " + " | ".join(cells) + " |")
    for case_name, of_case in failures.items():
        for shell_name, reason in of_case.items():
            print(f"{case_name}: {shell_name} failed at least once: {reason}")
    for text in absent:
        print(text)


if __name__ == "__main__":
    main()
