"""``mm-cellular``, the replay shell of the CellReplay tool, with the same command line.

The command line is the tool's. The treatment of packets follows the paper (Sentosa et al., NSDI 2025, §4.3), from which
the tool deviates in places. Here, packets may have any size, both directions count time from the start of the command,
`--loss-rate` loses packets, and a link continues unchanged after dropping a packet.
"""

from __future__ import annotations

import getopt
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cellbed.archive import resolve
from cellbed.archive.light_rows import find_recorded
from cellbed.scenario.load_dependent import WHOLE
from cellbed.shell import ShellDirection, ShellLink, run_shell
from cellbed.shell.mahimahi.arguments import UsageError, number, parse_permuted, parse_queue
from cellbed.support.stages import describe
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

    command: empty for the user's shell. packet_log: file for ``cellbed log``.
    """

    link: ShellLink
    command: tuple[str, ...]
    packet_log: Path | None


def parse(arguments: Sequence[str], folder: Path) -> Cellular:
    """Parse a command line without its first word. The recording is read, so that a malformed recording is refused.

    folder: base of relative paths. Errors: :class:`CellbedError`.
    """
    if arguments and arguments[0] == "--help":
        raise _usage("")
    if not arguments or not _is_number(arguments[0]):
        raise _usage("NUM_ARGS, the first argument, must be the number of words before COMMAND, mm-cellular included")
    own, command = arguments[1 : max(0, int(arguments[0]) - 1)], tuple(arguments[max(1, int(arguments[0]) - 1) :])
    try:
        found, files = parse_permuted(list(own), "", ["once", *(f"{name}=" for name in _VALUES)])
    except getopt.GetoptError as error:
        raise _usage(str(error)) from None
    options = {name.removeprefix("--"): value for name, value in found}
    if len(files) != 4:
        raise _usage(
            f"{len(files)} files among the first {arguments[0]} words; "
            "expected four: LIGHT_UP LIGHT_DOWN HEAVY_UP HEAVY_DOWN"
        )
    playing = Playing(_whole(options, "start-timestamp") * _MS, "once" not in options)
    loss = number(options.get("loss-rate", "0"), "loss rate", USAGE, most=1)

    def direction(way: _Side, light: str, heavy: str) -> ShellDirection:
        offsets = options.get(f"psize-latency-offset-{way}")
        recording = WHOLE["cellreplay"].model_construct(
            kind="cellreplay",
            light=find_recorded("light rows", light, folder),
            heavy=resolve(heavy, folder),
            latency_offset=None if offsets is None else find_recorded("latency offsets", offsets, folder),
            idle=_whole(options, f"long-to-short-timer-{way}") * _MS,
            opportunity=1400,
            overhead=0,
        )
        recording.check()
        kind, queue_arguments = options.get(f"{way}link-queue", "infinite"), options.get(f"{way}link-queue-args", "")
        queue = parse_queue(kind, queue_arguments, f"--{way}link-queue", derived_seed(_SEED, f"{way}link-queue"))
        stages = [bottleneck_stage(Parameters(recording), playing, lambda _: _SEED) | {"queue": dict(queue.config)}]
        if loss > 0:
            stages.insert(0, chance_stage("loss", loss, derived_seed(_SEED, f"{way}link.loss")))
        return ShellDirection(tuple(stages), describe(stages))

    link = ShellLink(direction("up", files[0], files[2]), direction("down", files[1], files[3]), prefix="cellular")
    log_folder = options.get("packet-log-folder")
    return Cellular(link, command, None if log_folder is None else folder / log_folder / "packets.bin")


def cellular(arguments: Sequence[str]) -> int:
    """Run ``mm-cellular``: replay a recording whose delays and rates depend on the load."""
    asked = parse(arguments, Path.cwd())
    return run_shell(asked.link, asked.command, packet_log=asked.packet_log)


def _whole(options: Mapping[str, str], name: str) -> int:
    text = options.get(name, "0")
    if not _is_number(text):
        raise _usage(f"--{name}: invalid time {shlex.quote(text)}: write a whole number of ms")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9


def _usage(text: str) -> UsageError:
    return UsageError(text, USAGE)
