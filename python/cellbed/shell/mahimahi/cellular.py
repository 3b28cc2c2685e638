"""``mm-cellular``, the replay shell of the CellReplay tool, with the same command line.

The command line is the tool's; what happens to packets follows the paper (Sentosa et al., NSDI 2025, §4.3), which the
tool leaves in places: packets may have any size, both directions count time from the start of the command,
`--loss-rate` loses packets, and a link that drops a packet continues as before.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellbed.archive import resolve
from cellbed.archive.light_rows import latency_offsets, light_rows
from cellbed.runformat.stages import describe
from cellbed.scenario.load_dependent import Replay
from cellbed.shell import ShellDirection, ShellLink, run_shell
from cellbed.shell.mahimahi.arguments import UsageError
from cellbed.shell.mahimahi.queues import LinkQueue, parse_queue
from cellbed.testbed.links.stages import Parameters, Playing, bottleneck_stage, chance_stage, derived_seed

USAGE = """\
Usage: mm-cellular NUM_ARGS LIGHT_UP LIGHT_DOWN HEAVY_UP HEAVY_DOWN [OPTION]... [COMMAND]

NUM_ARGS is the number of words before COMMAND, mm-cellular included.

Options = --once
          --psize-latency-offset-up=FILE --psize-latency-offset-down=FILE
          --long-to-short-timer-up=MS --long-to-short-timer-down=MS
          --start-timestamp=MS
          --loss-rate=PROBABILITY
          --packet-log-folder=FOLDER
          --uplink-queue=TYPE --downlink-queue=TYPE
          --uplink-queue-args=ARGS --downlink-queue-args=ARGS

          TYPE = infinite | droptail | drophead | codel | pie
          ARGS = "NAME=NUMBER[, NAME2=NUMBER2, ...]"
"""

_MS = 1_000_000
_SEED = 1
_FLAGS = ("once",)
_VALUES = (
    *(f"psize-latency-offset-{way}" for way in ("up", "down")),
    *(f"long-to-short-timer-{way}" for way in ("up", "down")),
    *(f"{way}link-queue{end}" for way in ("up", "down") for end in ("", "-args")),
    *("start-timestamp", "loss-rate", "packet-log-folder"),
)

_Side = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Cellular:
    """A parsed command line.

    command: empty for the user's shell. packet_log: file for ``cellbed log``. remarks: as of :class:`LinkQueue`.
    """

    link: ShellLink
    command: tuple[str, ...]
    packet_log: Path | None
    remarks: tuple[str, ...]


def parse(arguments: Sequence[str], folder: Path) -> Cellular:
    """Read a command line without its first word; the recording's files are read, so that a malformed one is refused.

    folder: where relative paths start. Errors: :class:`CellbedError`.
    """
    if arguments and arguments[0] == "--help":
        raise _usage("")
    if not arguments or not _is_number(arguments[0]):
        raise _usage("NUM_ARGS, the first argument, must be the number of words before COMMAND, mm-cellular included")
    own, command = arguments[1 : max(0, int(arguments[0]) - 1)], tuple(arguments[max(1, int(arguments[0]) - 1) :])
    files, options = _sorted(own)
    if len(files) != 4:
        raise _usage(
            f"{len(files)} files among the first {arguments[0]} words; "
            "expected four: LIGHT_UP LIGHT_DOWN HEAVY_UP HEAVY_DOWN"
        )
    playing = Playing(_whole(options, "start-timestamp") * _MS, "once" not in options)
    loss = _probability(options.get("loss-rate", "0"))

    remarks: list[str] = []

    def direction(way: _Side, light: str, heavy: str) -> ShellDirection:
        offsets = options.get(f"psize-latency-offset-{way}")
        recording = Replay.model_construct(
            kind="cellreplay",
            light=light_rows(light, folder),
            heavy=resolve(heavy, folder),
            latency_offset=None if offsets is None else latency_offsets(offsets, folder),
            idle=_whole(options, f"long-to-short-timer-{way}") * _MS,
            opportunity=1400,
            overhead=0,
        )
        for _, file in recording.files:
            _ = file.content
        _ = recording.heavy.trace
        queue = _queue(options, way)
        remarks.extend(queue.remarks)
        stages = [bottleneck_stage(Parameters(recording), playing, lambda _: _SEED) | {"queue": dict(queue.config)}]
        if loss > 0:
            stages.insert(0, chance_stage("loss", loss, derived_seed(_SEED, f"{way}link.loss")))
        return ShellDirection(tuple(stages), describe(stages))

    link = ShellLink(direction("up", files[0], files[2]), direction("down", files[1], files[3]), prefix="cellular")
    log_folder = options.get("packet-log-folder")
    return Cellular(link, command, None if log_folder is None else folder / log_folder / "packets.bin", tuple(remarks))


def cellular(arguments: Sequence[str]) -> int:
    """``mm-cellular``: replay a recording whose delays and rates depend on the load."""
    asked = parse(arguments, Path.cwd())
    for remark in asked.remarks:
        print(f"mm-cellular: {remark}", file=sys.stderr)
    return run_shell(asked.link, asked.command, packet_log=asked.packet_log)


def _sorted(own: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Files, and options by name; they may stand in any order, as getopt has it."""
    files: list[str] = []
    options: dict[str, str] = {}
    rest = iter(own)
    for word in rest:
        if not word.startswith("--"):
            files.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        if name in _FLAGS and not equals:
            options[name] = ""
        elif name in _VALUES:
            given = value if equals else next(rest, None)
            if given is None:
                raise _usage(f"--{name} needs a value")
            options[name] = given
        else:
            raise _usage(f"unknown option {shlex.quote(word)}")
    return files, options


def _queue(options: Mapping[str, str], way: _Side) -> LinkQueue:
    option = f"{way}link-queue"
    kind, arguments = options.get(option, "infinite"), options.get(f"{option}-args", "")
    return parse_queue(kind, arguments, f"--{option}", derived_seed(_SEED, option))


def _whole(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not _is_number(text):
        raise _usage(f"--{name}: invalid time {shlex.quote(text)}: write a whole number of ms")
    return int(text)


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise _usage(f"--loss-rate: invalid probability {shlex.quote(text)}: write a number from 0 to 1")
    return value


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def _usage(text: str) -> UsageError:
    return UsageError(text, USAGE)
