"""The meter of a shell: a separate process (:mod:`cellbed.shell.agent`).

The meter shares the terminal with the command. A separate session shields the meter from Ctrl-C and Ctrl-Z.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from cellbed.shell import agent
from cellbed.support.errors import CellbedError
from cellbed.testbed.links.live import Control

VARIABLE = "CELLBED_METER"
"""In the command's environment: path of the terminal whose last lines show a meter."""


@dataclass(frozen=True, slots=True)
class ShellMeter:
    """Options of the display of a shell's link while the command runs.

    descriptor: a terminal or a file. The last lines of a terminal are reserved if the command has the same terminal; a
    file gets a line per second. directions: directions to show, of ``"uplink"`` and ``"downlink"``.
    """

    descriptor: int = 2
    directions: tuple[str, ...] = ("uplink", "downlink")


def open_meter(path: Path) -> ShellMeter:
    """Return a meter in the terminal or file at `path`, which may be a new file. Errors: :class:`CellbedError`."""
    try:
        # Without O_NOCTTY, the terminal could become this process's controlling terminal and send signals.
        return ShellMeter(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o666))
    except OSError as error:
        raise CellbedError(f"--meter-to: {path} cannot be written: {error.strerror}") from error


def find_terminal(descriptor: int) -> str | None:
    """Return the path of the terminal behind `descriptor`, if the command has the same terminal."""
    if not os.isatty(descriptor):
        return None
    terminal = os.ttyname(descriptor)
    return terminal if any(os.isatty(one) and os.ttyname(one) == terminal for one in (0, 1, 2)) else None


def start_meter(meter: ShellMeter, control: Path) -> subprocess.Popen[bytes]:
    """Show the status of the emulator that listens at `control`. The process ends with this one.

    Errors: :class:`CellbedError`.
    """
    terminal = find_terminal(meter.descriptor)
    if terminal is not None and os.environ.get(VARIABLE) == terminal:
        raise CellbedError(
            "this terminal has the meter of the shell around this one already; watch this one from another terminal "
            "with: cellbed meter"
        )
    task = {"control": str(control), "directions": meter.directions, "below": terminal is not None}
    process, _ = agent.start("cellbed.shell.meter", "the meter", task, stderr=meter.descriptor)
    return process


def main() -> None:
    """Show the meter on standard error until standard input, the emulator or the terminal ends."""
    # Imported only in this process: shells without a meter must start quickly.
    from cellbed.measure.meter import REDRAW_S, Meter, display

    task = agent.read_task()
    descriptor = sys.stderr.fileno()
    try:
        with Control(Path(task["control"])) as control:
            meter = Meter(control.status, task["directions"])
            shown = display(descriptor, below=task["below"])
            begin_ns = time.monotonic_ns()
            try:
                shown.show(0.0, meter.read(begin_ns) or [])
                agent.report("ready")
                while not select.select([sys.stdin], [], [], REDRAW_S)[0]:
                    now_ns = time.monotonic_ns()
                    shown.show((now_ns - begin_ns) / 1e9, meter.read(now_ns) or [])
            finally:
                shown.close()
    except (CellbedError, OSError) as error:
        # The emulator or the terminal has ended; other processes report that.
        agent.report("error", str(error))
