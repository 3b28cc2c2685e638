"""Mahimahi's shells: each parses the original's command line, and runs a shell behind a link."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cellbed.shell.foreground import Foreground
from cellbed.shell.link import ShellDirection, ShellLink, Stage
from cellbed.shell.mahimahi.arguments import (
    CommandLine,
    LinkQueue,
    MahimahiError,
    Replayed,
    UsageError,
    find_trace,
    number,
    parse_queue,
    read,
)
from cellbed.shell.meter import ShellMeter
from cellbed.shell.session import GATEWAY_VARIABLE, Serve, run_shell
from cellbed.support.ways import WAYS
from cellbed_node.processes import die_with_parent

BASE_VARIABLE = "MAHIMAHI_BASE"
"""In the command's environment: address of the outermost gateway, at which the host is reached."""
PREFIX_VARIABLE = "MAHIMAHI_SHELL_PREFIX"
"""In the command's environment: descriptions of the shells around the command, as a prefix of the prompt."""

# Bash evaluates this before each prompt, then the caller's PROMPT_COMMAND.
_PROMPT = f'case "$PS1" in *"${PREFIX_VARIABLE}"*) ;; *) PS1="${PREFIX_VARIABLE}$PS1";; esac'
_SECOND = 1e9
_MILLISECOND = 1e6
_MOST_LINKS = 40
"""Maximum number of symbolic links that the kernel follows in a path (path_resolution(7))."""
_METERS = {
    "uplink": ("meter-uplink", "meter-uplink-delay", "meter-all"),
    "downlink": ("meter-downlink", "meter-downlink-delay", "meter-all"),
}
_JOINING = ("mm-link", "mm-delay", "mm-loss", "mm-onoff", "mm-intermittent", "mm-meter")
"""Commands that may join the emulator of the shell around them."""
_around: ShellLink | None = None
"""Link of the shell around this process's, if one emulator has both."""
_LINK_USAGE = """\
Usage: mm-link UPLINK DOWNLINK [OPTION]... [COMMAND]

Run COMMAND (default: the user's shell) behind a link.

UPLINK, DOWNLINK: trace file (one packet delivery opportunity per line, in ms), or a constant rate such as 12mbit.

  --once                                     stop when both traces have ended
  --uplink-log=FILE --downlink-log=FILE      log every packet and every opportunity
  --uplink-queue=TYPE --downlink-queue=TYPE  infinite (default), droptail, drophead, codel or pie
  --uplink-queue-args=ARGS --downlink-queue-args=ARGS
                                             "NAME=NUMBER, ...": packets, bytes; target, interval (codel) and
                                             qdelay_ref, max_burst (pie) in ms
  --meter-uplink --meter-uplink-delay --meter-downlink --meter-downlink-delay --meter-all
                                             show rate, queue and delay in the terminal"""
_OURS_USAGE = """
  --publish=[ADDRESS:]PORT[:INSIDE][/udp]    make a server inside reachable at a port outside
  --seed=NUMBER                              seed of random decisions (default: a new one in each run)"""


def link(arguments: Sequence[str]) -> int:
    """Run ``mm-link``: deliver packets at the opportunities of a trace."""
    line = read(
        arguments,
        _LINK_USAGE + _OURS_USAGE,
        2,
        short={"u": "uplink-log", "d": "downlink-log"},
        long=(
            "uplink-log=", "downlink-log=", "once", "uplink-queue=", "downlink-queue=", "uplink-queue-args=",
            "downlink-queue-args=", "meter-uplink", "meter-downlink", "meter-uplink-delay", "meter-downlink-delay",
            "meter-all",
        ),
        anywhere=True,
    )  # fmt: skip
    once = line.has("once")
    traces = [find_trace(name) for name in line.words]
    seed = _seed(line)
    queues = [
        parse_queue(
            line.options.get(f"{way}-queue", "infinite"),
            line.options.get(f"{way}-queue-args", ""),
            f"--{way}-queue",
            seed,
        )
        for way in WAYS
    ]
    for remark in dict.fromkeys(remark for queue in queues for remark in queue.remarks):
        print(f"mm-link: {remark}", file=sys.stderr)
    command_line = " ".join(_quote(word) for word in ("mm-link", *arguments))
    directions = []
    for way, trace, queue in zip(WAYS, traces, queues, strict=True):
        stage = {
            "kind": "bottleneck",
            "schedule": {"kind": "trace", "path": trace.path, "looped": not once},
            "queue": dict(queue.config),
            "mahimahi": True,
        }
        log = _log(line.options.get(f"{way}-log"), way.capitalize(), trace, queue, command_line)
        descriptors = (trace.descriptor, None if log is None else log["descriptor"])
        directions.append(
            ShellDirection(
                (stage,),
                f"{trace.name}, {queue.words}",
                mahimahi_log=log,
                descriptors=tuple(it for it in descriptors if it is not None),
            )
        )
    return run(line, ShellLink(*directions), "[link] ", seconds=max(it.duration_s for it in traces) if once else None)


def delay(arguments: Sequence[str]) -> int:
    """Run ``mm-delay``: delay every packet, in each direction."""
    usage = (
        "Usage: mm-delay MILLISECONDS|FILE [COMMAND...]\n\nDelay every packet, in each direction.\n\n"
        f"FILE: CSV file with the columns time_s,delay_ms\n{_OURS_USAGE}"
    )
    line = read(arguments, usage, 1)
    (text,) = line.words
    if Path(text).is_file() and not text.isdecimal():
        from cellbed.shell.options import EachWay, parse_link

        return run(line, parse_link(delay=EachWay(text), folder=Path.cwd()), f"[delay {text}] ")
    milliseconds = number(text, "delay (ms)", usage)
    stage = {"kind": "delay", "fixed_ns": round(milliseconds * _MILLISECOND)}
    direction = ShellDirection((stage,), f"{text} ms")
    return run(line, ShellLink(direction, direction), f"[delay {text} ms] ")


def loss(arguments: Sequence[str]) -> int:
    """Run ``mm-loss``: lose packets of one direction, each with the same probability."""
    usage = (
        "Usage: mm-loss uplink|downlink RATE [COMMAND...]\n\n"
        f"Lose each packet of one direction with probability RATE (0 to 1).\n{_OURS_USAGE}"
    )
    line = read(arguments, usage, 2)
    way, text = line.words
    probability = number(text, "loss rate", usage, most=1)
    stage = {"kind": "loss", "probability": probability, "seed": _seed(line)}
    return run(line, _one_way(way, [stage], f"loss {text}", usage), f"[loss {_short(way)}={text}] ")


def onoff(arguments: Sequence[str]) -> int:
    """Run ``mm-onoff``: deliver and lose packets of one direction in turn, for exponentially distributed times."""
    return _run_by_turns("onoff", arguments, exponential=True)


def intermittent(arguments: Sequence[str]) -> int:
    """Run ``mm-intermittent``: deliver and lose packets of one direction in turn, for fixed times."""
    return _run_by_turns("intermittent", arguments, exponential=False)


def meter(arguments: Sequence[str]) -> int:
    """Run ``mm-meter``: deliver packets at once, and show rate, queue and delay."""
    usage = (
        "Usage: mm-meter [--meter-uplink] [--meter-downlink] [COMMAND...]\n\n"
        f"Show rate, queue and delay of the packets in the terminal.\n{_OURS_USAGE}"
    )
    short = {"u": "meter-uplink", "d": "meter-downlink"}
    line = read(arguments, usage, 0, short=short, long=tuple(short.values()))
    return run(line, ShellLink(), "[meter] ")


def _run_by_turns(name: str, arguments: Sequence[str], *, exponential: bool) -> int:
    """Run a shell in which one direction is on and off in turn. exponential: whether the times are means of exponential
    distributions."""
    mean, words, drawn = ("MEAN-", " on average", ", exponentially distributed") if exponential else ("", "", "")
    usage = (
        f"Usage: mm-{name} uplink|downlink {mean}ON-TIME {mean}OFF-TIME [COMMAND...]\n\n"
        f"Deliver and lose the packets of one direction in turn; times in s{drawn}.\n{_OURS_USAGE}"
    )
    line = read(arguments, usage, 3)
    way, on_text, off_text = line.words
    on, off = number(on_text, "on-time", usage), number(off_text, "off-time", usage)
    if on == off == 0:
        raise UsageError("on-time and off-time cannot both be 0", usage)
    seed = _seed(line)
    stage: Stage = {"kind": "loss", "probability": 1.0 if on == 0 else 0.0, "seed": seed}
    if on and off:
        spells = {"on_ns": round(on * _SECOND), "off_ns": round(off * _SECOND)}
        stage = {"kind": "on-off", **spells, "exponential": exponential, "seed": seed}
    shell = _one_way(way, [stage], f"on for {on_text} s, off for {off_text} s{words}", usage)
    return run(line, shell, f"[{name} ({_short(way)}) on={on_text}s off={off_text}s] ")


def _one_way(way: str, stages: Sequence[Stage], description: str, usage: str) -> ShellLink:
    if way not in WAYS:
        raise UsageError(f"invalid direction '{way}': write uplink or downlink", usage)
    direction = ShellDirection(tuple(stages), description)
    return ShellLink(uplink=direction) if way == "uplink" else ShellLink(downlink=direction)


def _short(way: str) -> str:
    return way.removesuffix("link")


def _seed(line: CommandLine) -> int:
    text = line.options.get("seed")
    if text is None:
        return random.SystemRandom().getrandbits(32)
    if not text.isdecimal() or int(text) >= 2**64:
        raise MahimahiError(f"--seed: invalid seed '{text}': write a whole number below 2^64")
    return int(text)


def _log(name: str | None, way: str, trace: Replayed, queue: LinkQueue, command_line: str) -> Mapping[str, Any] | None:
    """Return the configuration of a log. Errors: :class:`MahimahiError` if the log cannot be written."""
    if not name:
        return None
    try:
        descriptor = _open_log(Path(name))
    except OSError as error:
        raise MahimahiError(f"{name}: cannot write the log: {error.strerror}; name another file") from None
    around = os.environ.get(PREFIX_VARIABLE)
    return {
        "path": str(Path(name).absolute()),
        "descriptor": descriptor,
        "heading": [
            f"mahimahi mm-link ({way}) [{trace.name}] > {name}",
            f"command line: {command_line}",
            f"queue: {queue.words}",
        ],
        "remarks": [f"mahimahi config: {around}"] if around else [],
    }


def _open_log(path: Path) -> int | None:
    """Return a descriptor of a log that the emulator cannot open; ``None`` for a regular file or a FIFO.

    /dev/stdout and the like are descriptors of this process, and a device may be accessible only to its user. Opening a
    FIFO here would wait for its reader, which the command may start. Errors: ``OSError``.
    """
    own = _own_descriptor(path)
    if own is not None:
        return os.dup(own)
    if path.is_fifo():
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return None
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _own_descriptor(path: Path) -> int | None:
    """Return the descriptor of this process behind a path such as /dev/stdout or /dev/fd/63."""
    descriptors = Path("/proc/self/fd").resolve()
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if path.parent == descriptors and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


def _quote(word: str) -> str:
    """Return the word, quoted for a shell, without line breaks: the log has one line for the whole command."""
    return "'" + word.replace("'", "'\\''").replace("\n", "'$'\\n''") + "'"


def run(
    line: CommandLine,
    shell: ShellLink,
    prefix: str,
    *,
    seconds: float | None = None,
    serve: Serve | None = None,
    offline: bool = False,
    more: Mapping[str, str] = MappingProxyType({}),
    program: str = "",
) -> int:
    """Run the shell. prefix: prefix of the prompt. program: prefix of messages; default: ``mm-`` and the first word of
    `prefix`. more: additional environment variables. Others: as in :func:`run_shell`."""
    shown = tuple(way for way in WAYS if line.has(*_METERS[way]))
    shell = replace(shell, around=_around, mahimahi=True)
    if not (shown or line.publish or seconds is not None or program) and (name := _inner_shell(line.command)):
        return _run_within(shell, prefix, name, line.command[1:])
    published = []
    if line.publish:
        from cellbed.shell.publish import parse

        published = [parse(text) for text in line.publish]

    # The caller's PROMPT_COMMAND, without the part that cellbed's shell has added.
    before = os.environ.get("PROMPT_COMMAND", "")

    def environment(inherited: Mapping[str, str]) -> dict[str, str]:
        return {
            **more,
            BASE_VARIABLE: inherited.get(BASE_VARIABLE) or inherited[GATEWAY_VARIABLE],
            PREFIX_VARIABLE: inherited.get(PREFIX_VARIABLE, "") + prefix,
            "PROMPT_COMMAND": before if _PROMPT in before else f"{_PROMPT}; {before}" if before else _PROMPT,
        }

    return run_shell(
        replace(shell, prefix="cellbed" if program else prefix.strip("[] ").split()[0]),
        line.command,
        publish=published,
        meter=ShellMeter(directions=shown) if shown else None,
        environment=environment,
        serve=serve,
        offline=offline,
        seconds=seconds,
        hanging_up=True,
        program=program or f"mm-{prefix.strip('[] ').split()[0]}",
    )


@dataclass(slots=True)
class _Fork:
    """The shell inside this one: a fork of this process, as a command for :class:`Foreground`."""

    pid: int
    returncode: int | None = None

    def wait(self) -> int:
        """Return the exit status; -n after signal n."""
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _inner_shell(command: Sequence[str]) -> str | None:
    """Return the name of the command if it is a shell whose link may join this one's."""
    if not command or any(word.startswith("--p") for word in command):
        return None  # --publish, or an abbreviation: the shell around makes the port reachable
    from cellbed.shell.mahimahi.install import find_launcher

    name = find_launcher(command[0])
    return name if name in _JOINING else None


def _run_within(shell: ShellLink, prefix: str, name: str, arguments: Sequence[str]) -> int:
    """Run the command `name`, a shell inside `shell`, with one emulator for both links.

    Each packet then wakes one emulator only. This process stays as the one that the caller knows.
    """
    global _around
    parent, child = os.getpid(), os.fork()
    if child:
        # The inner shell escalates, and then ends the processes of its namespace.
        foreground = Foreground(hanging_up=True, escalating=False)
        foreground.install_handlers()
        status = foreground.wait(_Fork(child), lambda _: None)
        return status if foreground.ended_by is None else 128 + foreground.ended_by
    die_with_parent()
    if os.getppid() != parent:
        return 128 + signal.SIGKILL
    Path("/proc/self/comm").write_text(name, encoding="utf-8")
    _around = shell
    os.environ[PREFIX_VARIABLE] = os.environ.get(PREFIX_VARIABLE, "") + prefix
    from cellbed.shell.mahimahi.__main__ import main

    return main([name, *arguments])
