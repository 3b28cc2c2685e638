"""One `cellbed shell`: sets up the link, runs the command, and removes the link."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed.laws.kernel import load_law
from cellbed.laws.law import CONGESTION_SETTING, Law
from cellbed.shell import agent, helper, resolver, wayout
from cellbed.shell.foreground import Foreground, Interrupted, end_inhabitants, ignore_signals, raise_on_signals
from cellbed.shell.gateway import Gateway
from cellbed.shell.link import ShellLink
from cellbed.shell.meter import VARIABLE as METER_VARIABLE
from cellbed.shell.meter import ShellMeter, find_terminal, start_meter
from cellbed.shell.publish import Published, start_forwarder, translate
from cellbed.shell.wayout import has_ipv6_way_out
from cellbed.support.errors import CellbedError
from cellbed.support.whole_files import write_whole
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.links.live import control_path
from cellbed.testbed.machine.privilege import user_name
from cellbed.testbed.machine.process import Place, end
from cellbed.testbed.machine.state import RUN_VARIABLE, Record
from cellbed.testbed.testbed import Testbed
from cellbed_node.temporary import temporary_folder

DEPTH_VARIABLE = "CELLBED_SHELL"
"""In the command's environment: 1 in a shell, 2 in a shell inside a shell, and so on."""
GATEWAY_VARIABLE = "CELLBED_GATEWAY"
"""In the command's environment: address of the outermost gateway, at which the host is reached."""

# Bash evaluates this before each prompt, after the user's own settings. Repeated evaluation is harmless.
_BASH_PROMPT = 'case "$PS1" in *"[cellbed "*) ;; *) PS1="[cellbed $CELLBED_SHELL] $PS1";; esac'

_program = "cellbed shell"


@dataclass
class _Surroundings:
    """The resources that a shell has set up around its command.

    resolv_conf: text of the command's ``/etc/resolv.conf``; ``None`` for the host's. agents: processes that serve the
    command, by function. metered: path of the terminal with the command's meter. files: as in :data:`Serve`.
    """

    name: str
    link: ShellLink
    emulator: Emulator
    gateway: Gateway
    control: Path
    packet_log: Path | None = None
    resolv_conf: str | None = None
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    metered: str | None = None
    files: Sequence[tuple[str, str]] = ()


Serve = Callable[[Gateway, contextlib.ExitStack, dict[str, subprocess.Popen[bytes]]], Sequence[tuple[str, str]]]
"""Starts programs that end with the stack, and adds them to the dictionary by function. Returns (source, target) files
that the command sees instead of the host's."""


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
    congestion_control: Law | str | None = None,
    serve: Serve | None = None,
) -> int:
    """Run `command` (default: the user's shell) behind `link` and return its exit status, 128+n for signal n.

    offline: without access to the host's network. If access is impossible, a line on standard error has the reason.
    publish: ports that lead to servers inside.
    packet_log: file for the record of every packet; ``packet_log + ".json"`` describes its contents.
    meter: display of the link's status during the command.
    environment: returns variables to add, given the command's environment with :data:`GATEWAY_VARIABLE` and the like.
    seconds: time until the command and all processes that it left in the shell hang up (SIGHUP); the status is
    then 0.
    hanging_up: as in :class:`Foreground`. program: prefix of messages.
    congestion_control: default of TCP inside; ``None`` for the kernel's.
    serve: starts the programs that serve the command at either end, before the command.
    Errors: :class:`CellbedError`; nothing is left behind. Changes the signal handlers of the process, which must end
    afterwards.
    """
    global _program
    _program = program
    command = list(command) or [_login_shell()]
    for note in dict.fromkeys(link.notes):
        _say(note)
    way = wayout.WayOut("none") if offline else wayout.find_way_out(granted=serve is None)
    with contextlib.ExitStack() as stack:
        try:
            raise_on_signals()
            around = _set_up(link, way, packet_log, stack)
            if congestion_control is not None:
                _set_congestion_control(around, congestion_control, stack)
            with around.emulator.require():
                if serve is not None:
                    around.files = serve(around.gateway, stack, around.agents)
                if publish:
                    _publish(around, publish, way, stack)
                with _run_meter(around, meter):
                    status = _run(
                        around, command, environment or (lambda _: {}), seconds, Foreground(hanging_up=hanging_up)
                    )
            ignore_signals()
            _stop_emulator(around.emulator)
        except Interrupted as interrupted:
            return 128 + interrupted.number
        finally:
            ignore_signals()
        return status


def _set_up(link: ShellLink, way: wayout.WayOut, packet_log: Path | None, stack: contextlib.ExitStack) -> _Surroundings:
    record = Record.create("shell")
    stack.callback(record.remove)
    control = control_path(record)
    agents: dict[str, subprocess.Popen[bytes]] = {}
    gateway = _open_gateway(link, way, agents, stack)
    stack.callback(gateway.close)
    config = link.emulator_config(gateway.pair, gateway.devices, packet_log=packet_log, control=control)
    bed = stack.enter_context(Testbed(config, record.identifier, descriptors=(*gateway.descriptors, *link.descriptors)))
    gateway.hand_over()
    around = _Surroundings(record.identifier, link, bed.emulator, gateway, control, packet_log, agents=agents)
    if way.kind != "none":
        try:
            _answer_names(around, stack)
        except CellbedError as error:
            _say(f"names do not resolve in this shell: {error}")
    return around


def _set_congestion_control(around: _Surroundings, control: Law | str, stack: contextlib.ExitStack) -> None:
    """Set the congestion control of the shell's namespace through a process inside."""
    name = stack.enter_context(load_law(control)) if isinstance(control, Law) else control
    setting = f"/proc/sys/{CONGESTION_SETTING.replace('.', '/')}"
    process = around.gateway.spawn(
        ["/bin/sh", "-c", 'printf %s "$0" > "$1"', name, setting], environment=dict(os.environ), binds=()
    )
    if process.wait():
        raise CellbedError(f"the congestion control '{name}' cannot be set in this shell: run it as root")


def _open_gateway(
    link: ShellLink, way: wayout.WayOut, agents: dict[str, subprocess.Popen[bytes]], stack: contextlib.ExitStack
) -> Gateway:
    """Return the network of the shell, with access to the host's if possible."""
    request = [link.prefix, *(["--mahimahi"] if link.mahimahi else [])]
    if _depth() > 0:
        request.append("--nested")
    reason = way.reason
    try:
        match way.kind:
            case "direct" | "granted":
                return Gateway.start(request, granted=way.kind == "granted")
            case "helper":
                return _open_through_helper(request, way.helpers, agents, stack)
    except (CellbedError, OSError) as error:
        # The command runs without network access: a laptop without a network is a good place to test an application.
        reason = str(error)
    gateway = Gateway.start([*request, "--private", "--offline"])
    if reason:
        _say(f"no network in this shell: {reason} (--offline suppresses this line)")
    return gateway


def _open_through_helper(
    request: list[str],
    names: Sequence[str],
    agents: dict[str, subprocess.Popen[bytes]],
    stack: contextlib.ExitStack,
) -> Gateway:
    """Return a private namespace for the outer end, connected to the host by the first program that works."""
    ipv6 = has_ipv6_way_out()
    host = ["--host", helper.HOST, *(["--host-ipv6", helper.HOST_IPV6] if ipv6 else [])]
    started: dict[str, subprocess.Popen[bytes]] = {}

    def connect(outer: Place) -> None:
        for name in names:
            try:
                started[name] = helper.start(name, outer, ipv6)
                break
            except helper.NetworkError:
                if name == names[-1]:
                    raise

    try:
        gateway = Gateway.start([*request, "--private", *host], connect=connect)
    except BaseException:
        for process in started.values():
            end(process)
        raise
    [(name, process)] = started.items()
    stack.callback(end, process)
    agents["network access"] = process
    if _depth() == 0:
        _say(
            f"TCP to the outside ends in {name}, in front of the link; for TCP from end to end: "
            f"sudo cellbed grant {user_name(os.getuid())} --network"
        )
    return gateway


def _publish(
    around: _Surroundings, published: Sequence[Published], way: wayout.WayOut, stack: contextlib.ExitStack
) -> None:
    """Make the ports of the current network namespace lead inside."""
    gateway = around.gateway
    process = start_forwarder(published, gateway.pair, gateway.outer)
    stack.callback(agent.stop, process)
    around.agents["the forwarder of published ports"] = process
    if way.kind == "direct" and gateway.outer is None:
        try:
            translate(gateway.table, gateway.device, gateway.pair, published, ipv6=has_ipv6_way_out())
        except CellbedError as error:
            _say(f"TCP to published ports ends in a forwarder before the link, not at the server: {error}")


def _answer_names(around: _Surroundings, stack: contextlib.ExitStack) -> None:
    """Answer DNS queries at the gateway if the host's resolver is not reachable from inside."""
    if not resolver.RESOLV_CONF.exists():
        return
    text = resolver.RESOLV_CONF.read_text(errors="replace", encoding="utf-8")
    servers = resolver.name_servers(text)
    if not resolver.needs_forwarder(servers):
        return
    address = around.gateway.pair.gateway
    process, port = resolver.start_forwarder(servers, address, around.gateway.outer)
    stack.callback(agent.stop, process)
    around.agents["the name server"] = process
    around.gateway.lead_names_to(port)
    around.resolv_conf = resolver.inner_resolv_conf(text, address)


@contextlib.contextmanager
def _run_meter(around: _Surroundings, meter: ShellMeter | None) -> Iterator[None]:
    if meter is None:
        yield
        return
    try:
        process = start_meter(meter, around.control)
    except CellbedError as error:
        _say(str(error))
        yield
        return
    around.metered = find_terminal(meter.descriptor)
    try:
        yield
    finally:
        agent.stop(process)


def _run(
    around: _Surroundings,
    command: Sequence[str],
    more_environment: Callable[[Mapping[str, str]], Mapping[str, str]],
    seconds: float | None,
    foreground: Foreground,
) -> int:
    foreground.install_handlers()
    namespace = around.gateway.namespace_inode
    environment = _environment(around)
    environment.update(more_environment(environment))
    # The replay of traces begins with the command.
    started_ns = time.monotonic_ns()
    around.emulator.restart_links(started_ns)
    if around.packet_log is not None:
        _describe_log(around.packet_log, around.link.account(around.gateway.pair, started_ns))
    try:
        with _binds(around) as binds:
            process = around.gateway.spawn(command, environment=environment, binds=binds)
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
        for what, process in around.agents.items():
            if process.pid == number:
                process.wait()
                _say(f"{what} of this shell ended unexpectedly (exit status {process.returncode})")
                return
        os.waitpid(number, 0)
        if number == around.gateway.pid:
            _say("the network helper of this shell ended unexpectedly")

    if seconds is not None:
        foreground.end_after(seconds)
    status = foreground.wait(process, other_ended)
    if foreground.ended_by is not None or foreground.out_of_time:
        ignore_signals()
        end_inhabitants(namespace)
        return 128 + foreground.ended_by if foreground.ended_by is not None else 0
    return status


def _describe_log(packet_log: Path, account: Mapping[str, Any]) -> None:
    path = packet_log.with_name(f"{packet_log.name}.json")
    try:
        write_whole(path, lambda file: file.write_text(json.dumps(account, indent=1) + "\n", encoding="utf-8"))
    except OSError as error:
        raise CellbedError(f"{path}: cannot be written: {error.strerror}; log to another place") from error


def _stop_emulator(emulator: Emulator) -> None:
    """End the emulator in good order, and report packets that the emulator itself lost, by its counters."""
    if not emulator.is_alive():
        return
    try:
        # The kernel needs some 50 ms to end the emulator: meanwhile, the rules around it are removed.
        counters = emulator.counters()
        lines = emulator.losses(emulator.finish(), counters)
    except CellbedError as error:
        lines = [str(error)]
    for line in lines:
        _say(line)


@contextlib.contextmanager
def _binds(around: _Surroundings) -> Iterator[tuple[tuple[str, str], ...]]:
    """Yield the files that the command sees instead of the host's; once mounted there, they may be removed."""
    binds = (*resolver.shortcut_binds(), *around.files)
    if around.resolv_conf is None:
        yield binds
        return
    with temporary_folder() as folder:
        folder.chmod(0o755)
        file = folder / "resolv.conf"
        file.write_text(around.resolv_conf, encoding="utf-8")
        file.chmod(0o644)
        yield (*binds, (str(file), str(resolver.RESOLV_CONF)))


def _environment(around: _Surroundings) -> dict[str, str]:
    environment = {**os.environ, RUN_VARIABLE: around.name, DEPTH_VARIABLE: str(_depth() + 1)}
    if _depth() == 0 or GATEWAY_VARIABLE not in environment:
        environment[GATEWAY_VARIABLE] = str(around.gateway.pair.gateway)
    if around.metered is not None:
        environment[METER_VARIABLE] = around.metered
    before = environment.get("PROMPT_COMMAND", "")
    if _BASH_PROMPT not in before:
        environment["PROMPT_COMMAND"] = f"{_BASH_PROMPT}; {before}" if before else _BASH_PROMPT
    return environment


def _depth() -> int:
    """Return the number of shells around this one."""
    depth = os.environ.get(DEPTH_VARIABLE, "")
    return int(depth) if depth.isascii() and depth.isdecimal() else 0


def _login_shell() -> str:
    shell = os.environ.get("SHELL")
    if not shell:
        with contextlib.suppress(KeyError):
            shell = pwd.getpwuid(os.getuid()).pw_shell
    return shell or "/bin/sh"


def _say(text: str) -> None:
    print(f"{_program}: {text}", file=sys.stderr, flush=True)
