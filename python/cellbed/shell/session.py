"""One `cellbed shell`, from setting up the link to putting everything back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellbed.errors import CellbedError
from cellbed.shell import forwarding, helper, nat, resolver, restore, wayout
from cellbed.shell.addresses import (
    HelperNetwork,
    Pair,
    choose_helper_network,
    choose_pair,
    has_ipv6_way_out,
    networks_in_sight,
)
from cellbed.shell.foreground import Foreground, Interrupted, end_inhabitants, hold_signals, interruptible
from cellbed.shell.link import INSIDE, OUTSIDE, ShellLink
from cellbed.testbed.emulator import Emulator
from cellbed.testbed.process import Place, end, spawn
from cellbed.testbed.state import RUN_VARIABLE, Record

DEPTH_VARIABLE = "CELLBED_SHELL"
"""In the command's environment: 1 in a shell, 2 in a shell inside a shell, and so on."""
GATEWAY_VARIABLE = "CELLBED_GATEWAY"
"""In the command's environment: address of the outermost way out, where the host is reached."""

# Runs before each prompt of bash, after the user's own settings; harmless when it runs twice.
_BASH_PROMPT = 'case "$PS1" in "[cellbed"*) ;; *) PS1="[cellbed $CELLBED_SHELL] $PS1";; esac'


@dataclass
class _Surroundings:
    """What a shell has set up around its command. helpers: processes that it cannot do without, by what they are."""

    name: str
    emulator: Emulator
    inside: Place
    pair: Pair
    servants: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)


def run_shell(link: ShellLink, command: Sequence[str] = (), *, offline: bool = False) -> int:
    """Run `command` (default: the user's shell) behind `link` and return its exit status, 128+n for signal n.

    offline: no way out to the host's network. Where there is none anyway, one line on standard error says why.
    Errors: :class:`CellbedError`; nothing is left behind.
    """
    link.check()
    command = list(command) or [_login_shell()]
    way = wayout.WayOut("none") if offline else wayout.find_way_out()
    with contextlib.ExitStack() as stack:
        try:
            with interruptible():
                around = _set_up(link, way, stack)
            if way.kind == "none" and way.reason:
                _say(f"no way out of this shell: {way.reason} (--offline to be silent)")
            return _run(around, command, stack)
        except Interrupted as interrupted:
            return 128 + interrupted.number
        finally:
            hold_signals()


def _set_up(link: ShellLink, way: wayout.WayOut, stack: contextlib.ExitStack) -> _Surroundings:
    try:
        record = Record.create("shell")
    except OSError as error:
        raise CellbedError(
            f"{error.filename}: cannot keep the registry of live shells there: {error.strerror}; set XDG_STATE_HOME"
        ) from error
    stack.callback(record.remove)
    ipv6 = way.kind != "none" and has_ipv6_way_out()
    with _choosing_addresses():
        used = networks_in_sight()
        pair = choose_pair(used)
        outside = "current" if way.kind == "direct" else "new"
        emulator = Emulator.start(link.emulator_config(pair, outside=outside, ipv6_way_out=ipv6))
        stack.callback(emulator.kill)
    inside = Place(emulator.namespace(INSIDE), emulator.user_namespace)
    around = _Surroundings(record.identifier, emulator, inside, pair)
    outer = None if way.kind == "direct" else Place(emulator.namespace(OUTSIDE), emulator.user_namespace)
    translation = nat.Translation(record.identifier, pair, emulator.interface(OUTSIDE))
    if way.kind == "direct":
        namespace = forwarding.network_namespace()
        record.note_undo(restore.command(record.identifier))
        stack.callback(restore.restore, record.identifier, namespace)
        try:
            forwarding.hold(record.identifier, ipv6=ipv6)
        except OSError as error:
            raise CellbedError(f"cannot switch packet forwarding on: {error}") from error
        nat.apply(translation)
    elif way.kind == "helper":
        assert outer is not None
        network = choose_helper_network(used)
        around.servants["the way out"] = _start_helper(way.helpers, outer, network, ipv6, stack)
        nat.apply(nat.Translation(record.identifier, pair, emulator.interface(OUTSIDE), network), outer)
    if way.kind != "none":
        around.inside = Place(
            inside.network_namespace, inside.user_namespace, binds=_name_resolution(around, outer, stack)
        )
    return around


def _start_helper(
    names: Sequence[str], outer: Place, network: HelperNetwork, ipv6: bool, stack: contextlib.ExitStack
) -> subprocess.Popen[bytes]:
    for name in names:
        try:
            process = helper.start(name, outer, network, ipv6)
        except helper.HelperError:
            if name == names[-1]:
                raise
            continue
        stack.callback(end, process)
        return process
    raise AssertionError("a way out through a helper names at least one")


def _name_resolution(
    around: _Surroundings, outer: Place | None, stack: contextlib.ExitStack
) -> tuple[tuple[str, str], ...]:
    """Make names resolve inside; returns the files that the command has to see instead of the host's."""
    binds = resolver.shortcut_binds()
    if resolver.RESOLV_CONF.exists():
        text = resolver.RESOLV_CONF.read_text(errors="replace")
        servers = resolver.name_servers(text)
        if resolver.needs_forwarder(servers):
            process = resolver.start_forwarder(servers, around.pair.gateway, outer)
            if process is not None:
                stack.callback(end, process)
                around.servants["the name server"] = process
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cellbed-")))
            folder.chmod(0o755)
            inner = folder / "resolv.conf"
            inner.write_text(resolver.inner_resolv_conf(text, around.pair.gateway))
            inner.chmod(0o644)
            binds.append((str(inner), str(resolver.RESOLV_CONF)))
    return tuple(binds)


def _run(around: _Surroundings, command: Sequence[str], stack: contextlib.ExitStack) -> int:
    foreground = Foreground()
    foreground.take_signals()
    namespace = Path(around.inside.network_namespace).stat().st_ino
    # The traces begin with the command.
    around.emulator.restart_links(time.monotonic_ns())
    try:
        process = spawn(
            command,
            around.inside,
            environment=_environment(around),
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
            around.emulator.is_alive()
            _say("the emulator ended unexpectedly; the link is gone, the command is ended")
            foreground.end_command()
            return
        for what, servant in around.servants.items():
            if servant.pid == number:
                servant.wait()
                _say(f"{what} of this shell ended unexpectedly (exit status {servant.returncode})")
                return
        os.waitpid(number, 0)

    status = foreground.wait(process, other_ended)
    if foreground.ended_by is not None:
        hold_signals()
        end_inhabitants(namespace)
        return 128 + foreground.ended_by
    return status


def _environment(around: _Surroundings) -> dict[str, str]:
    depth = os.environ.get(DEPTH_VARIABLE, "")
    nested = depth.isdecimal() and int(depth) > 0
    environment = {**os.environ, RUN_VARIABLE: around.name, DEPTH_VARIABLE: str(int(depth) + 1 if nested else 1)}
    if not nested or GATEWAY_VARIABLE not in environment:
        environment[GATEWAY_VARIABLE] = str(around.pair.gateway)
    before = environment.get("PROMPT_COMMAND", "")
    if _BASH_PROMPT not in before:
        environment["PROMPT_COMMAND"] = f"{_BASH_PROMPT}; {before}" if before else _BASH_PROMPT
    return environment


@contextlib.contextmanager
def _choosing_addresses() -> Iterator[None]:
    """One shell at a time chooses and takes its addresses."""
    folder = forwarding.lease_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "addresses.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _login_shell() -> str:
    shell = os.environ.get("SHELL")
    if not shell:
        with contextlib.suppress(KeyError):
            shell = pwd.getpwuid(os.getuid()).pw_shell
    return shell or "/bin/sh"


def _say(text: str) -> None:
    print(f"cellbed shell: {text}", file=sys.stderr, flush=True)
