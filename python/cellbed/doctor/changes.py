"""Changes that make the machine usable for an ordinary user: planned, made and undone for `cellbed grant`.

A change is a pair of shell commands, to make and to revert it. The revert command enters a journal before the change is
made, so an interrupted grant can be undone, too.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellbed.doctor.kernel import RESTRICTIONS, namespace_restrictions, setting_path
from cellbed.doctor.limits import VERSION_1, systemd_delegates, version_1, version_2
from cellbed.doctor.machine import Machine, executable
from cellbed.laws.kernel import is_loaded_law
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine import privilege
from cellbed.testbed.machine.cgroups import ASIDE
from cellbed.testbed.machine.privilege import COMPILED_HELPER, NETWORK_HELPER, NETWORK_USERS
from cellbed_node import inputs

ALLOWED = "net.ipv4.tcp_allowed_congestion_control"
SYSCTL_FILE = "/etc/sysctl.d/60-cellbed.conf"
UDEV_FILE = "/etc/udev/rules.d/60-cellbed.rules"
DELEGATE_FILE = "/etc/systemd/system/user@.service.d/60-cellbed.conf"
NETWORK_CAPABILITIES = struct.pack(
    "<IIIII", 0x0200_0001, 1 << privilege.CAP_NET_ADMIN | 1 << privilege.CAP_SYS_ADMIN, 0, 0, 0
)
"""CAP_NET_ADMIN and CAP_SYS_ADMIN, permitted and effective (``struct vfs_cap_data`` version 2, capabilities(7))."""

# give: hands over the delegated files (cgroup-v2.rst, "Model of Delegation"; version 1 has the first two).
# take: moves processes to the parent folder. Only the machine's root group may hold processes and limited children;
# in a container, they move to the group that `divide` made. Process 0 belongs to another PID namespace.
_FUNCTIONS = f"""\
write() {{ mkdir -p "$(dirname "$1")"; printf '%s' "$2" > "$1.tmp"; mv -T "$1.tmp" "$1"; }}
divide() {{
    {shlex.quote(sys.executable)} -P -c 'import pathlib, sys
from cellbed.testbed.machine.cgroups import divide
divide(pathlib.Path(sys.argv[1]))' "$1"
}}
give() {{
    mkdir -p "$1"
    for file in "$1/cgroup.procs" "$1/tasks" "$1/cgroup.threads" "$1/cgroup.subtree_control" "$1"; do
        [ ! -e "$file" ] || chown "$2" "$file"
    done
}}
take() {{
    [ -d "$1" ] || return 0
    above=$(dirname "$1")
    find "$1" -depth -type d | while read -r group; do
        for process in $(cat "$group/cgroup.procs" 2>/dev/null); do
            [ "$process" = 0 ] || echo "$process" > "$above/cgroup.procs" ||
                echo "$process" > "$above/{ASIDE}/cgroup.procs" || :
        done 2>/dev/null
        rmdir "$group"
    done
}}
install_helper() {{
    mkdir -p "$(dirname "$2")" "$(dirname "$3")"
    chmod 755 "$(dirname "$2")" "$(dirname "$3")"
    rm -f "$2.tmp"
    install -m 700 "$1" "$2.tmp"
    {shlex.quote(sys.executable)} -c 'import os, sys
os.setxattr(sys.argv[1], "security.capability", bytes.fromhex("{NETWORK_CAPABILITIES.hex()}"))' "$2.tmp"
    chmod 755 "$2.tmp"
    mv -T "$2.tmp" "$2"
    grep -qx "$4" "$3" 2>/dev/null || echo "$4" >> "$3"
    chmod 644 "$3"
}}
remove_helper() {{
    [ ! -e "$2" ] || sed -i "/^$3\\$/d" "$2"
    [ -s "$2" ] || {{
        rm -f "$1" "$2"
        rmdir "$(dirname "$1")" "$(dirname "$2")" 2>/dev/null || :
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the machine. do, undo: shell commands that make and revert it."""

    do: str
    undo: str

    def __str__(self) -> str:
        return self.do


class GrantError(CellbedError):
    """A grant that failed. The text contains the change and the reason."""

    exit_code = 1


def plan(machine: Machine, caller: int | None = None, *, network: bool = False) -> list[Change]:
    """Return the changes on `machine` that give its user all features; none if the user has them.

    caller: process id of the user's shell, which is moved if only root may move it. network: also install the network
    helper.
    """
    changes = [*_device(machine), *_control_groups(machine, caller), *_settings(machine)]
    return [*changes, *network_helper(machine)] if network else changes


def network_helper(machine: Machine, program: Path = COMPILED_HELPER) -> Iterator[Change]:
    """Yield the changes that let the user use the network helper, in the version compiled as `program`.

    Several users share the installation: it is removed with the last user.
    """
    try:
        content = program.read_bytes()
    except OSError as error:
        raise GrantError(f"{program}: the network helper is not compiled: make setup") from error
    installed, users = machine.path(str(NETWORK_HELPER)), machine.path(str(NETWORK_USERS))
    try:
        current = installed.read_bytes() == content
        current = current and os.getxattr(installed, "security.capability") == NETWORK_CAPABILITIES
    except OSError:
        current = False
    if not current or str(machine.user) not in (machine.read(str(NETWORK_USERS)) or "").split():
        yield Change(
            _command("install_helper", program, installed, users, machine.user),
            _command("remove_helper", installed, users, machine.user),
        )


def do(changes: Sequence[Change], machine: Machine) -> None:
    """Make all changes or none. Errors: :class:`GrantError`, after completed changes are undone."""
    journal = _read_journal(machine)
    before = len(journal)
    journal += [change.undo for change in changes]
    try:
        _write_journal(machine, journal)
    except OSError as error:
        raise GrantError(f"cannot write the journal of grants: {error}; nothing was granted") from error
    try:
        for change in changes:
            if reason := _run(change.do):
                _, failed = _undo(machine, journal, down_to=before)
                rest = "\n  ".join(["this could not be undone:", *failed]) if failed else "nothing was granted"
                raise GrantError(f"cannot do this: {change}\n  {reason}\n  {rest}")
    except KeyboardInterrupt:
        _undo(machine, journal, down_to=before)
        raise


def undo(machine: Machine) -> list[str]:
    """Revert the user's changes in reverse order; return the commands that succeeded.

    Errors: :class:`GrantError` if some changes could not be undone; all others are undone.
    """
    undone, failed = _undo(machine, _read_journal(machine))
    if failed:
        problems = "\n  ".join(failed)
        raise GrantError(
            f"{len(undone)} changes were undone, but not these, which --undo will try again:\n  {problems}"
        )
    return undone


def _undo(machine: Machine, journal: list[str], down_to: int = 0) -> tuple[list[str], list[str]]:
    """Undo the journal from `down_to` on; return the undone entries, and a line for each failure."""
    undone: list[str] = []
    failed: list[str] = []
    for place in reversed(range(down_to, len(journal))):
        if reason := _run(journal[place]):
            failed.append(f"{journal[place]}: {reason}")
        else:
            undone.append(journal.pop(place))
    try:
        _write_journal(machine, journal)
    except OSError as error:
        failed.append(f"cannot write the journal of grants: {error}")
    return undone, failed


def _run(command: str) -> str:
    """Run a command; return why it failed, or an empty text."""
    outcome = subprocess.run(["sh", "-ec", _FUNCTIONS + command], capture_output=True, text=True, check=False)
    return "" if outcome.returncode == 0 else outcome.stderr.strip() or f"status {outcome.returncode}"


def lifts_limits(changes: Sequence[Change], machine: Machine) -> bool:
    """Return whether changes let the user move processes out of an administrator's control groups.

    On version 1, write access to the target group is enough. On version 2, the user also needs write access to the
    common ancestor of both groups (cgroup-v2.rst, "Delegation Containment").
    """
    return "cpu" in version_1(machine) and any(change.do.startswith("give ") for change in changes)


def shell_of(user: int, process: int) -> int | None:
    """Return `process` or its nearest ancestor that belongs to `user`, such as the shell that called sudo."""
    while process > 1:
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
            if ":" in line
        )
        # Compare both the real and the effective id: sudo may keep the user's real id.
        if status["Uid"].split()[:2] == [str(user)] * 2:
            return process
        process = int(status["PPid"])
    return None


def _device(machine: Machine) -> Iterator[Change]:
    device = machine.path("/dev/net/tun")
    if not device.exists():
        raise GrantError("there is no /dev/net/tun: load the kernel's module (modprobe tun), then try again")
    mode = device.stat().st_mode & 0o7777
    if mode & 0o666 != 0o666:
        if machine.find("udevadm") is not None and machine.path("/etc/udev").is_dir():
            yield _file(machine, UDEV_FILE, 'KERNEL=="tun", MODE="0666", OPTIONS+="static_node=net/tun"\n')
        missing = f"[ ! -e {shlex.quote(str(device))} ] || "
        yield Change(
            _command("chmod", f"{mode | 0o666:04o}", device), missing + _command("chmod", f"{mode:04o}", device)
        )


def _control_groups(machine: Machine, caller: int | None) -> Iterator[Change]:
    mounts = version_1(machine)
    name = f"cellbed-{machine.user}"
    if "cpu" in mounts and "memory" in mounts:
        # Not "pids": no run needs it, and a granted folder would free the user from an administrator's process limit.
        for mount in dict.fromkeys(mounts[controller] for controller in VERSION_1 if controller in mounts):
            yield from _folder(machine, f"{mount}/{name}")
        return
    unified = version_2(machine)
    if unified is None:
        return
    delegated = systemd_delegates(machine, unified)
    if delegated is None and not machine.path("/run/systemd/system").exists():
        yield from _folder(machine, f"{unified}/{name}", _command("divide", machine.path(unified)) + "\n")
        if caller is not None and f"/{name}/" not in f"{machine.read(f'/proc/{caller}/cgroup')}/":
            # On version 2 only root may move the shell there, into a subgroup: the first run divides the granted
            # folder, which may then hold no processes. Removing the folder moves the shell out again.
            aside = machine.path(f"{unified}/{name}/{ASIDE}")
            join = f"echo {caller} > {shlex.quote(str(aside / 'cgroup.procs'))}"
            yield Change(f"{_command('give', aside, machine.user)}\n{join}", ":")
    elif not {"cpu", "memory"} <= (delegated or set()):
        text = "[Service]\nDelegate=cpu cpuset io memory pids\n"
        if machine.read(DELEGATE_FILE) != text.strip():
            reload = "\nsystemctl daemon-reload"
            if delegated is not None:
                # A session manager looks for controllers only when it starts.
                runtime = f"XDG_RUNTIME_DIR=/run/user/{machine.user}"
                restart = ("env", runtime, "systemctl", "--user", "daemon-reexec")
                reload += "\n" + _command("runuser", "-u", machine.user_name, "--", *restart)
            file = _file(machine, DELEGATE_FILE, text)
            yield Change(file.do + reload, file.undo + reload)


def _folder(machine: Machine, absolute: str, first: str = "") -> Iterator[Change]:
    """Yield the change that gives a control group to the user. first: a preceding command."""
    path = machine.path(absolute)
    if not path.is_dir() or path.stat().st_uid != machine.user:
        yield Change(first + _command("give", path, machine.user), _command("take", path))


def _settings(machine: Machine) -> Iterator[Change]:
    settings: dict[str, tuple[str, str]] = {}
    allowed = machine.read(setting_path(ALLOWED)) or ""
    available = (machine.read(setting_path("net.ipv4.tcp_available_congestion_control")) or "").split()
    if "cubic" in available and "cubic" not in allowed.split():
        settings[ALLOWED] = f"{allowed} cubic".strip(), allowed
    for name in namespace_restrictions(machine):
        bad, good, _ = RESTRICTIONS[name]
        settings[name] = good, bad
    if settings and machine.path("/etc/sysctl.d").is_dir():
        kept = {line.partition("=")[0].strip(): line for line in (machine.read(SYSCTL_FILE) or "").splitlines()}
        kept |= {name: f"{name} = {_without_laws(value)}" for name, (value, _) in settings.items()}
        yield _file(machine, SYSCTL_FILE, "\n".join([*kept.values(), ""]))
    for name, (value, before) in settings.items():
        path = shlex.quote(str(machine.path(setting_path(name))))
        # If the kernel refused the new value, it also refuses the old one.
        unless = f'[ "$(cat {path})" = {shlex.quote(before)} ] || '
        set_to = "printf %s {} > " + path
        yield Change(set_to.format(shlex.quote(value)), unless + set_to.format(shlex.quote(_without_laws(before))))


def _without_laws(value: str) -> str:
    """Return a setting without laws that runs have loaded: the kernel refuses a list with one that is gone."""
    return " ".join(name for name in value.split() if not is_loaded_law(name))


def _file(machine: Machine, absolute: str, text: str) -> Change:
    """Return the change that writes a file of cellbed in the system's configuration."""
    path = machine.path(absolute)
    revert = _command("write", path, inputs.text(path)) if path.exists() else _command("rm", "-f", path)
    return Change(_command("write", path, text), revert)


def _command(*words: str | int | Path) -> str:
    return shlex.join(map(str, words))


def _journal(machine: Machine) -> Path:
    return machine.path(f"/var/lib/cellbed/grants-{machine.user}.json")


def _read_journal(machine: Machine) -> list[str]:
    path = _journal(machine)
    try:
        journal = inputs.json_value(path)
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise GrantError(f"{path}: cannot read the journal of grants: {error}") from error
    if not isinstance(journal, list) or not all(isinstance(each, str) for each in journal):
        raise GrantError(f"{path}: not a journal of grants; remove it to begin a new one")
    return journal


def _write_journal(machine: Machine, journal: list[str]) -> None:
    path = _journal(machine)
    if not journal:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(journal, indent=1), encoding="utf-8")
    temporary.rename(path)


_NOBODY = 2**32 - 1
"""Upper limit of user identifiers, exclusive (credentials(7))."""


def grant_to(name: str | None, *, network: bool = False, dry_run: bool = False, take_back: bool = False) -> list[str]:
    """Grant a user the requirements of cellbed, or revert the grant; return a line for each change.

    name: login name or numeric identifier; ``None`` for the user who called sudo. network: also the network helper.
    Errors: :class:`GrantError`.
    """
    machine = Machine(user=_user(name, dry_run))
    if os.geteuid() != 0 and not dry_run:
        raise GrantError(f"this needs root:\n  {_sudo(machine.user_name, take_back)}")
    if take_back:
        if dry_run:
            return ["--dry-run has no effect with --undo: nothing was undone; leave out --dry-run to undo"]
        undone = [f"undone: {command}" for command in undo(machine)]
        return undone or [f"nothing was granted to {machine.user_name}"]
    planned = plan(machine, caller=shell_of(machine.user, os.getppid()), network=network)
    if not planned:
        return [f"nothing to do: {machine.user_name} may do everything already"]
    if not dry_run:
        do(planned, machine)
    lines = [f"{'would do' if dry_run else 'done'}: {change}" for change in planned]
    if lifts_limits(planned, machine):
        lines.append(
            f"note: with control groups of version 1, processes of {machine.user_name} can leave CPU and memory limits "
            "that an administrator has set for them (not limits of processes)"
        )
    if any("systemctl" in change.do for change in planned):
        lines.append(f"should `cellbed doctor` still find no limits, {machine.user_name} has to log out and in again")
    if not dry_run:
        lines.append(f"to take it back: {_sudo(machine.user_name, True)}")
    return lines


def _user(name: str | None, dry_run: bool) -> int:
    """Return the numeric identifier of the user. In a container, a user may have no login name."""
    if name is None:
        name = os.environ.get("SUDO_UID") if os.geteuid() == 0 else str(os.geteuid())
    if name is None:
        raise GrantError(f"name the user: {executable()} grant USER")
    try:
        user = pwd.getpwnam(name).pw_uid
    except KeyError:
        if not (name.isascii() and name.isdecimal() and int(name) < _NOBODY):
            raise GrantError(f"this machine has no user called '{name}'") from None
        user = int(name)
    if user == 0 and not dry_run:
        raise GrantError("root needs no grant; name an ordinary user")
    return user


def _sudo(name: str, take_back: bool) -> str:
    return f"sudo {executable()} grant {name}{' --undo' if take_back else ''}"
