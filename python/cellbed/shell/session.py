"""One `cellbed shell`, from setting up the link to putting everything back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cellbed.errors import CellbedError
from cellbed.shell import helper, ip_forwarding, nat, resolver, restore, servant, wayout
from cellbed.shell.addresses import (
    HelperNetwork,
    Pair,
    choose_helper_network,
    choose_pair,
    has_ipv6_way_out,
    networks_in_sight,
)
from cellbed.shell.foreground import Foreground, Interrupted, end_inhabitants, hold_signals, raise_on_signals
from cellbed.shell.link import INSIDE, OUTSIDE, ShellLink
from cellbed.shell.meter import VARIABLE as METER_VARIABLE
from cellbed.shell.meter import MeterError, ShellMeter, shared_terminal, start_meter
from cellbed.shell.publish import Published, ruleset, start_forwarder
from cellbed.testbed.control import control_path
from cellbed.testbed.emulator import Emulator
from cellbed.testbed.process import Place, end, spawn
from cellbed.testbed.state import RUN_VARIABLE, Record

DEPTH_VARIABLE = "CELLBED_SHELL"
"""In the command's environment: 1 in a shell, 2 in a shell inside a shell, and so on."""
GATEWAY_VARIABLE = "CELLBED_GATEWAY"
"""In the command's environment: address of the outermost way out, where the host is reached."""

# Runs before each prompt of bash, after the user's own settings; harmless when it runs twice.
_BASH_PROMPT = 'case "$PS1" in *"[cellbed "*) ;; *) PS1="[cellbed $CELLBED_SHELL] $PS1";; esac'

_program = "cellbed shell"


@dataclass
class _Surroundings:
    """What a shell has set up around its command.

    resolv_conf: what the command sees as ``/etc/resolv.conf`` instead of the host's, if anything.
    servants: processes that serve the command, by what they are. metered: path of the terminal that has its meter.
    """

    name: str
    link: ShellLink
    emulator: Emulator
    pair: Pair
    control: Path
    packet_log: Path | None = None
    resolv_conf: str | None = None
    servants: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    metered: str | None = None

    def place(self, node: str) -> Place:
        """The namespaces of one end of the link."""
        return Place(self.emulator.namespace(node), self.emulator.user_namespace)


def run_shell(
    link: ShellLink,
    command: Sequence[str] = (),
    *,
    offline: bool = False,
    publish: Sequence[Published] = (),
    packet_log: Path | None = None,
    meter: ShellMeter | None = None,
    environment: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None,
    seconds: float | None = None,
    hanging_up: bool = False,
    program: str = "cellbed shell",
) -> int:
    """Run `command` (default: the user's shell) behind `link` and return its exit status, 128+n for signal n.

    offline: no way out to the host's network. Where there is none anyway, one line on standard error says why.
    publish: ports that lead to servers inside.
    packet_log: file for the record of every packet; ``packet_log + ".json"`` says what is in it.
    meter: where to show meanwhile what the link does.
    environment: given the command's environment, the variables to add; :data:`GATEWAY_VARIABLE` and the like are there.
    seconds: after this time the command hangs up (SIGHUP), and with it all that it has left in the shell; the status is
    then 0.
    hanging_up: as of :class:`Foreground`. program: what messages begin with.
    Errors: :class:`CellbedError`; nothing is left behind. Takes over the signals of the process, which ends after it.
    """
    global _program
    _program = program
    command = list(command) or [_login_shell()]
    way = wayout.WayOut("none") if offline else wayout.find_way_out()
    with contextlib.ExitStack() as stack:
        try:
            raise_on_signals()
            around = _set_up(link, way, packet_log, stack)
            with around.emulator.required():
                if publish:
                    _publish(around, publish, way, stack)
                with _metering(around, meter):
                    status = _run(
                        around, command, environment or (lambda _: {}), seconds, Foreground(hanging_up=hanging_up)
                    )
            hold_signals()
            _stop_emulator(around.emulator)
        except Interrupted as interrupted:
            return 128 + interrupted.number
        finally:
            hold_signals()
        return status


def _set_up(link: ShellLink, way: wayout.WayOut, packet_log: Path | None, stack: contextlib.ExitStack) -> _Surroundings:
    record = Record.create("shell")
    stack.callback(_forget, record)
    control = control_path(record)
    ipv6 = way.kind != "none" and has_ipv6_way_out()
    with _choosing_addresses():
        used = networks_in_sight()
        pair = choose_pair(used)
        outside: Literal["current", "new"] = "current" if way.kind == "direct" else "new"
        emulator = Emulator.start(
            link.emulator_config(pair, outside=outside, ipv6_way_out=ipv6, packet_log=packet_log, control=control),
            descriptors=(*link.uplink.descriptors, *link.downlink.descriptors),
        )
        stack.callback(emulator.kill)
    around = _Surroundings(record.identifier, link, emulator, pair, control, packet_log)
    try:
        if way.kind == "direct":
            _open_directly(around, record, ipv6, stack)
        elif way.kind == "helper":
            _open_through_helper(around, way.helpers, choose_helper_network(used), ipv6, stack)
        elif way.reason:
            _say(f"no way out of this shell: {way.reason} (--offline to be silent)")
    except (CellbedError, OSError) as error:
        # The command runs all the same: a laptop without a network is a good place to test an application.
        _say(f"no way out of this shell: {error} (--offline to be silent)")
    return around


def _open_directly(around: _Surroundings, record: Record, ipv6: bool, stack: contextlib.ExitStack) -> None:
    """Join the outer end, which lies in the current network namespace, with the networks there."""
    namespace = ip_forwarding.network_namespace()
    record.note_network_namespace(namespace)
    stack.callback(_put_back, record, namespace)
    ip_forwarding.hold(record.identifier, ipv6=ipv6)
    nat.apply(nat.Translation(around.name, around.pair, around.emulator.interface(OUTSIDE)))
    _answer_names(around, None, stack)


def _open_through_helper(
    around: _Surroundings, names: Sequence[str], network: HelperNetwork, ipv6: bool, stack: contextlib.ExitStack
) -> None:
    """Join the outer end, which lies in a namespace of its own, with the host through the first helper that works."""
    outer = around.place(OUTSIDE)
    for name in names:
        try:
            process = helper.start(name, outer, network, ipv6)
            break
        except helper.HelperError:
            if name == names[-1]:
                raise
    stack.callback(end, process)
    around.servants["the way out"] = process
    nat.apply(nat.Translation(around.name, around.pair, around.emulator.interface(OUTSIDE), network), outer)
    _answer_names(around, outer, stack)


def _publish(
    around: _Surroundings, published: Sequence[Published], way: wayout.WayOut, stack: contextlib.ExitStack
) -> None:
    """Let the ports of the current network namespace lead inside."""
    direct = way.kind == "direct"
    process = start_forwarder(published, around.pair, None if direct else around.place(OUTSIDE))
    stack.callback(servant.stop, process)
    around.servants["the forwarder of published ports"] = process
    if direct:
        interface = around.emulator.interface(OUTSIDE)
        try:
            nat.add(ruleset(around.name, interface, around.pair, published, ipv6=has_ipv6_way_out()))
        except CellbedError as error:
            _say(f"TCP to published ports ends in a forwarder before the link, not at the server: {error}")


def _answer_names(around: _Surroundings, outer: Place | None, stack: contextlib.ExitStack) -> None:
    """Where the host's resolver cannot be reached from inside, answer for it at the gateway."""
    if not resolver.RESOLV_CONF.exists():
        return
    text = resolver.RESOLV_CONF.read_text(errors="replace", encoding="utf-8")
    servers = resolver.name_servers(text)
    if not resolver.needs_forwarder(servers):
        return
    process = resolver.start_forwarder(servers, around.pair.gateway, outer)
    if process is not None:
        stack.callback(servant.stop, process)
        around.servants["the name server"] = process
    around.resolv_conf = resolver.inner_resolv_conf(text, around.pair.gateway)


@contextlib.contextmanager
def _metering(around: _Surroundings, meter: ShellMeter | None) -> Iterator[None]:
    if meter is None:
        yield
        return
    try:
        process = start_meter(meter, around.control)
    except MeterError as error:
        _say(str(error))
        yield
        return
    around.metered = shared_terminal(meter.descriptor)
    try:
        yield
    finally:
        servant.stop(process)


def _run(
    around: _Surroundings,
    command: Sequence[str],
    more_environment: Callable[[Mapping[str, str]], Mapping[str, str]],
    seconds: float | None,
    foreground: Foreground,
) -> int:
    foreground.take_signals()
    inside = around.place(INSIDE)
    namespace = Path(inside.network_namespace).stat().st_ino
    environment = _environment(around)
    environment.update(more_environment(environment))
    # The traces begin with the command.
    started_ns = time.monotonic_ns()
    around.emulator.restart_links(started_ns)
    if around.packet_log is not None:
        _describe_log(around.packet_log, around.link.account(around.pair, started_ns))
    try:
        with _binds(around) as binds:
            process = spawn(
                command,
                replace(inside, binds=binds),
                environment=environment,
                stdin=None,
                own_session=False,
                keep_capabilities=True,
            )
    except FileNotFoundError:
        _say(f"no command is called '{command[0]}'")
        return 127
    except PermissionError:
        _say(f"'{command[0]}' is not a program that you may run")
        return 126
    except (OSError, subprocess.SubprocessError) as error:
        raise CellbedError(f"cannot start the command inside the shell: {error}") from error

    def other_ended(number: int) -> None:
        if number == around.emulator.pid:
            around.emulator.kill()
            _say("the emulator ended unexpectedly; the link is gone, the command is ended")
            foreground.end_command()
            return
        for what, process in around.servants.items():
            if process.pid == number:
                process.wait()
                _say(f"{what} of this shell ended unexpectedly (exit status {process.returncode})")
                return
        os.waitpid(number, 0)

    if seconds is not None:
        foreground.end_after(seconds)
    status = foreground.wait(process, other_ended)
    if foreground.ended_by is not None or foreground.out_of_time:
        hold_signals()
        end_inhabitants(namespace)
        return 128 + foreground.ended_by if foreground.ended_by is not None else 0
    return status


def _describe_log(packet_log: Path, account: Mapping[str, Any]) -> None:
    path = packet_log.with_name(f"{packet_log.name}.json")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(account, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CellbedError(f"{path}: cannot be written: {error.strerror}; log to another place") from error


def _stop_emulator(emulator: Emulator) -> None:
    """End the emulator in good order and say which packets its account shows as lost by itself."""
    if not emulator.is_alive():
        return
    try:
        # Its end takes the kernel some 50 ms: meanwhile the rules around it are removed.
        overflowed = emulator.overflowed(emulator.counters())
        account = emulator.finish()
    except CellbedError as error:
        _say(str(error))
        return
    for line in overflowed:
        _say(line)
    if account["records_lost"]:
        problem = account["records_problem"] or "the disk was too slow"
        _say(f"the packet log lacks {account['records_lost']} records: {problem}")
    for node, counts in account["interfaces"].items():
        if counts is not None and counts["dropped"]:
            _say(f"{counts['dropped']} packets were lost at the network device {node} of the link, not in it")


@contextlib.contextmanager
def _binds(around: _Surroundings) -> Iterator[tuple[tuple[str, str], ...]]:
    """The files that the command sees instead of the host's; they may go once it has them mounted."""
    binds = tuple(resolver.shortcut_binds())
    if around.resolv_conf is None:
        yield binds
        return
    with tempfile.TemporaryDirectory(prefix="cellbed-") as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, "resolv.conf")
        file.write_text(around.resolv_conf, encoding="utf-8")
        file.chmod(0o644)
        yield (*binds, (str(file), str(resolver.RESOLV_CONF)))


def _put_back(record: Record, namespace: int) -> None:
    try:
        restore.restore(record.identifier, namespace)
        record.network_namespace = None
    except (CellbedError, OSError) as error:
        _say(f"cannot put the network settings back: {error}; try again with: cellbed clean")


def _forget(record: Record) -> None:
    """Forget the shell, unless something is still to be undone."""
    if record.network_namespace is None:
        record.remove()


def _environment(around: _Surroundings) -> dict[str, str]:
    depth = os.environ.get(DEPTH_VARIABLE, "")
    nested = depth.isdecimal() and int(depth) > 0
    environment = {**os.environ, RUN_VARIABLE: around.name, DEPTH_VARIABLE: str(int(depth) + 1 if nested else 1)}
    if not nested or GATEWAY_VARIABLE not in environment:
        environment[GATEWAY_VARIABLE] = str(around.pair.gateway)
    if around.metered is not None:
        environment[METER_VARIABLE] = around.metered
    before = environment.get("PROMPT_COMMAND", "")
    if _BASH_PROMPT not in before:
        environment["PROMPT_COMMAND"] = f"{_BASH_PROMPT}; {before}" if before else _BASH_PROMPT
    return environment


@contextlib.contextmanager
def _choosing_addresses() -> Iterator[None]:
    """One shell at a time chooses and takes its addresses."""
    folder = ip_forwarding.lease_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "addresses.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _login_shell() -> str:
    shell = os.environ.get("SHELL")
    if not shell:
        with contextlib.suppress(KeyError):
            shell = pwd.getpwuid(os.getuid()).pw_shell
    return shell or "/bin/sh"


def _say(text: str) -> None:
    print(f"{_program}: {text}", file=sys.stderr, flush=True)
