"""`cellbed record` beside the recorder's process: campaigns of recordings, samples of place and signal, the check."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from cellbed.recordings.recorder import find_recorder
from cellbed.support.errors import CellbedError, quote
from cellbed.support.units import UnitError
from cellbed_node.processes import die_with_parent

if TYPE_CHECKING:
    from cellbed.experiments.campaign import Clock, Recorded
    from cellbed.experiments.sampling import Sampler

HELP = """
With `cellbed record` alone:
      --every <TIME>  Time from the begin of a recording to the next, such as "2 h"; --out is the campaign's folder
      --for <TIME>    Duration of the campaign, such as "3 days"
      --gps <SOURCE>  Record the position: gpsd, or a device or file with NMEA sentences
      --signal <SOURCE>  Record the signal of an Android phone: adb, or adb:SERIAL; can be repeated for two phones
      --no-check      Do not check the recording at its end (`cellbed recordings check`)
"""
_ENDING_S = 120.0
"""Maximum time from an interrupt to the recorder's end."""
_INTERRUPTED = 130


@dataclass(slots=True)
class Options:
    """The options of this side. every_ns, for_ns: of a campaign, both or none. output: folder of the recording or the
    campaign. gps, signals: sources of positions and of the signal. checks: whether recordings are checked."""

    every_ns: int | None = None
    for_ns: int | None = None
    output: Path | None = None
    gps: str | None = None
    signals: list[str] = field(default_factory=list)
    checks: bool = True

    @property
    def is_empty(self) -> bool:
        """Return whether the recorder alone handles all arguments."""
        return not self.checks and self.every_ns is None and self.gps is None and not self.signals

    def samplers(self) -> list[Sampler]:
        """Return new samplers, not started."""
        from cellbed.experiments.android import AndroidSampler
        from cellbed.experiments.position import PositionSampler

        positions = [] if self.gps is None else [PositionSampler(self.gps)]
        return [*positions, *map(AndroidSampler, self.signals)]


def take_options(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Return the options of this side, and the arguments without them. `--for` with a method of replay stays.

    Raises CellbedError for a malformed value.
    """
    options, others = Options(), list[str]()
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--no-check":
            options.checks = False
            continue
        if name not in ("--every", "--for", "--gps", "--signal", "--out", "--output", "-o"):
            others.append(argument)
            continue
        value = value if equals else next(rest, "")
        if name == "--every":
            options.every_ns = _span(name, value)
        elif name == "--gps":
            options.gps = value
        elif name == "--signal":
            if not re.fullmatch(r"adb(:[\w.:-]{1,100})?", value):
                raise CellbedError(f"--signal: {quote(value)} is no source of a signal: write adb or adb:SERIAL")
            options.signals.append(value)
        elif name != "--for":
            options.output = Path(value)
        elif value[:1].isdigit():
            options.for_ns = _span(name, value)
        else:
            others += [name, value]
    if (options.every_ns is None) != (options.for_ns is None):
        raise CellbedError(
            "a campaign needs --every and --for, such as --every '2 h' --for '3 days'; the length of each recording is "
            "--duration"
        )
    return options, others


def _span(name: str, text: str) -> int:
    from cellbed.experiments.campaign import SPAN

    try:
        return int(SPAN.parse(text))
    except UnitError as error:
        raise CellbedError(f"{name}: {error}") from None


class _Recorder:
    """The recorder's process. Signals that ask for its end are passed on."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.process: subprocess.Popen[str] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.clock.interrupt()
        if self.process is not None:
            self.process.send_signal(number)

    def run(self, arguments: Sequence[str], limit_s: float | None) -> tuple[int, bool, str]:
        """Run the recorder. Return its exit status, whether it was interrupted after `limit_s`, and its errors.

        limit_s: seconds; None: unlimited, and the errors are printed.
        """
        # A separate group gets Ctrl-C only once, from here. It inherits the campaign's lock.
        self.process = subprocess.Popen(
            ["cellbed record", *arguments],
            executable=find_recorder(),
            close_fds=False,
            process_group=0,
            preexec_fn=partial(die_with_parent, signal.SIGINT),
            stdin=subprocess.DEVNULL,
            stderr=None if limit_s is None else subprocess.PIPE,
            text=True,
            errors="replace",
        )
        if self.clock.interrupted:  # before the process was known
            self.process.send_signal(signal.SIGINT)
        late = False
        for end, limit in ((signal.SIGINT, limit_s), (signal.SIGKILL, _ENDING_S)):
            try:
                self.process.communicate(timeout=limit)
                break
            except subprocess.TimeoutExpired:
                late = True
                self.process.send_signal(end)
        _, errors = self.process.communicate()
        return self.process.returncode, late, errors or ""


def record_in_field(options: Options, arguments: Sequence[str], *, as_json: bool) -> int:
    """Make a recording, or a campaign of recordings, with the table of its turns at the end.

    Args:
        options: The options of this side.
        arguments: The recorder's arguments.
        as_json: Whether to print the state as a line of JSON in place of the table.

    Returns:
        The exit status: the recorder's; of a campaign 0 if each time until now was recorded, 1 if one was not, 130 if
        interrupted before the first.
    """
    from cellbed.experiments.campaign import Clock, run_campaign, table
    from cellbed.support.console import Console, table_width

    clock = Clock()
    recorder = _Recorder(clock)
    if options.every_ns is None or options.for_ns is None:
        folder = options.output or Path(f"recording-{clock.now():%Y-%m-%dT%H-%M-%S}")
        return _record(arguments, options, recorder, folder, None)[1]
    quiet = [] if {"--json", "--quiet", "-q"} & {*arguments} else ["--quiet"]

    def record(folder: Path, limit_s: float) -> Recorded:
        return _record([*arguments, *quiet], options, recorder, folder, limit_s)[0]

    folder = options.output or Path("campaign")
    campaign = run_campaign(folder, options.every_ns, options.for_ns, arguments, record, clock)
    if as_json:
        print('{"event":"campaign",' + campaign.model_dump_json(exclude_none=True).removeprefix("{"))
    else:
        Console(width=table_width(), highlight=False).print(table(campaign))
    if clock.interrupted and not campaign.turns:
        return _INTERRUPTED
    return int(any(turn.outcome != "recorded" for turn in campaign.turns))


def _record(
    arguments: Sequence[str], options: Options, recorder: _Recorder, folder: Path, limit_s: float | None
) -> tuple[Recorded, int]:
    """Run the recorder between the begin and the end of the samplers. Return the recording's end and the status."""
    from cellbed.experiments.campaign import Recorded, recorded_seconds
    from cellbed.experiments.sampling import add_samples

    samplers = options.samplers()
    for sampler in samplers:
        sampler.start()
    try:
        status, late, errors = recorder.run([*arguments, "--out", str(folder)], limit_s)
    finally:
        for sampler in samplers:
            sampler.stop()
    # A recorder that refuses an existing folder leaves that folder as it is.
    is_new = folder.is_dir() and (limit_s is not None or status == 0)
    seconds = recorded_seconds(folder) if is_new else None
    if samplers and seconds is not None:
        for warning in add_samples(folder, samplers):
            print(f"note: {warning}", file=sys.stderr)
    if options.checks and seconds is not None and not (recorder.clock.interrupted and limit_s is not None):
        _check(folder, recorder.clock, {*arguments})
    if late:
        text = "nothing was recorded until" if seconds is None else "interrupted when"
        return Recorded(seconds, f"{text} the next time was due"), status
    if status in (0, _INTERRUPTED):
        return Recorded(seconds, "interrupted before anything was recorded" if status else None), status
    *_, last = ["", *errors.strip().splitlines()]
    problem = last.removeprefix("error: ") or f"the recorder ended with status {status}"
    return Recorded(seconds, problem, misused=status == 2), status


def _check(folder: Path, clock: Clock, arguments: set[str]) -> None:
    """Check a new recording. Ctrl-C ends the check alone. arguments: arguments of the recorder."""
    from cellbed.experiments.certification import check_recording
    from cellbed.support.standard_streams import StatusLine

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with StatusLine() as line:
            is_silent = bool(arguments & {"--json", "--quiet", "-q"})
            certificate, note = check_recording(
                folder, lambda share: None if is_silent else line.share("checking the recording", share)
            )
    except (CellbedError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            clock.interrupt()
        print(f"not checked: {error or 'interrupted'}; later: cellbed recordings check {folder}", file=sys.stderr)
        return
    finally:
        signal.signal(signal.SIGINT, handler)
    if "--json" in arguments:
        print('{"event":"checked",' + certificate.model_dump_json(exclude_none=True).removeprefix("{"), flush=True)
    elif not is_silent:
        print("\n".join((*certificate.sentences(), *filter(None, [note]))))
