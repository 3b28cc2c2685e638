"""Changes that make the machine usable for an ordinary user: planned, done and undone for `cellbed grant`.

First everything is planned as a list of changes, each of which can describe, do and undo itself. A journal gets what is
needed to undo a change before the change is done, so an interrupted grant can be undone, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cellbed import inputs
from cellbed.doctor.kernel import RESTRICTIONS, restricted_namespaces, setting_path
from cellbed.doctor.limits import VERSION_1, systemd_delegates, version_1, version_2
from cellbed.doctor.machine import Machine
from cellbed.errors import CellbedError
from cellbed.testbed import privilege
from cellbed.testbed.cgroups import ASIDE, divide
from cellbed.testbed.privilege import COMPILED_HELPER, NETWORK_HELPER, NETWORK_USERS

ALLOWED = "net.ipv4.tcp_allowed_congestion_control"
SYSCTL_FILE = "/etc/sysctl.d/60-cellbed.conf"
UDEV_FILE = "/etc/udev/rules.d/60-cellbed.rules"
DELEGATE_FILE = "/etc/systemd/system/user@.service.d/60-cellbed.conf"
NETWORK_CAPABILITIES = struct.pack(
    "<IIIII", 0x0200_0001, 1 << privilege.CAP_NET_ADMIN | 1 << privilege.CAP_SYS_ADMIN, 0, 0, 0
)
"""Both capabilities permitted and effective (``struct vfs_cap_data`` of version 2, capabilities(7))."""
_JOURNAL = "/var/lib/cellbed/grants.json"


@dataclass(frozen=True, slots=True)
class Mode:
    """Other permissions of a file."""

    path: str
    mode: int
    before: int

    def __str__(self) -> str:
        return f"{self.path}: mode {self.before:04o} becomes {self.mode:04o} (until the device is made anew)"

    def do(self, machine: Machine) -> None:
        """Set the permissions."""
        machine.path(self.path).chmod(self.mode)

    def undo(self, machine: Machine) -> None:
        """Set those from before."""
        with contextlib.suppress(FileNotFoundError):
            machine.path(self.path).chmod(self.before)


@dataclass(frozen=True, slots=True)
class File:
    """A file of ours in the system's configuration. before: what was there, ``None`` for nothing."""

    path: str
    text: str
    before: str | None

    def __str__(self) -> str:
        return f"{self.path}: {' / '.join(line for line in self.text.splitlines() if line[:1] != '#')}"

    def do(self, machine: Machine) -> None:
        """Write the file."""
        _write(machine.path(self.path), self.text)

    def undo(self, machine: Machine) -> None:
        """Put back what was there."""
        if self.before is None:
            machine.path(self.path).unlink(missing_ok=True)
        else:
            _write(machine.path(self.path), self.before)


@dataclass(frozen=True, slots=True)
class Setting:
    """A kernel setting."""

    name: str
    value: str
    before: str

    def __str__(self) -> str:
        return f"sysctl {self.name}: '{self.before}' becomes '{self.value}'"

    def do(self, machine: Machine) -> None:
        """Write the setting."""
        machine.path(setting_path(self.name)).write_text(self.value, encoding="utf-8")

    def undo(self, machine: Machine) -> None:
        """Write the value from before, unless it is there: a kernel that refused the change refuses this, too."""
        if machine.read(setting_path(self.name)) not in (None, self.before):
            machine.path(setting_path(self.name)).write_text(self.before, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Folder:
    """A control group folder that belongs to the user. controllers: to enable for its children (version 2)."""

    path: str
    user: int
    controllers: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}: made, for user {self.user} (until the machine is restarted)"

    def do(self, machine: Machine) -> None:
        """Make the folder and hand it over."""
        folder = machine.path(self.path)
        if self.controllers:
            divide(folder.parent)
        folder.mkdir(exist_ok=True)
        # The files that delegation concerns (cgroup-v2.rst, "Model of Delegation"; version 1 has the first two).
        for name in ("cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control"):
            with contextlib.suppress(FileNotFoundError):
                os.chown(folder / name, self.user, -1)
        os.chown(folder, self.user, -1)

    def undo(self, machine: Machine) -> None:
        """Remove the folder with the groups below; what still runs in it moves to the folder above."""
        folder = machine.path(self.path)
        if not folder.is_dir():
            return
        below = sorted((path for path in folder.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
        for path in [*below, folder]:
            for process in (
                (path / "cgroup.procs").read_text(encoding="utf-8").split() if (path / "cgroup.procs").exists() else ()
            ):
                if process == "0":  # of another PID namespace; writing 0 would move this process
                    continue
                # Only the machine's own root group holds processes beside limited children, that of a container
                # does not: there they go back to where `divide` put them.
                for above in (folder.parent, folder.parent / ASIDE):
                    with contextlib.suppress(OSError):
                        (above / "cgroup.procs").write_text(process, encoding="utf-8")
                        break
            path.rmdir()


@dataclass(frozen=True, slots=True)
class Join:
    """Move the user's running shell into the folder, because on version 2 only root may move it there.

    path: a child of the granted folder: that one itself is divided by the first run, and holds no processes then.
    """

    path: str
    process: int

    def __str__(self) -> str:
        return f"{self.path}: process {self.process}, your shell, moves in (other shells: call grant from them)"

    def do(self, machine: Machine) -> None:
        """Move the process."""
        Folder(self.path, machine.user).do(machine)
        (machine.path(self.path) / "cgroup.procs").write_text(str(self.process), encoding="utf-8")

    def undo(self, machine: Machine) -> None:
        """Nothing: removing the folder moves it out."""


@dataclass(frozen=True, slots=True)
class Command:
    """A program of the system that makes a change known."""

    command: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.command)

    def do(self, machine: Machine) -> None:
        """Run it."""
        outcome = subprocess.run(self.command, capture_output=True, check=False)
        if outcome.returncode != 0:
            reason = outcome.stderr.decode(errors="replace").strip()
            raise OSError(0, reason or f"status {outcome.returncode}", self.command[0])

    def undo(self, machine: Machine) -> None:
        """Run it again, now that the change is undone."""
        with contextlib.suppress(OSError):
            self.do(machine)


@dataclass(frozen=True, slots=True)
class NetworkHelper:
    """The network helper, installed with its capabilities, and the user in the list of those who may use it.

    program: the compiled helper. Several users share the installation: it is removed with the last user.
    """

    program: str
    user: int

    def __str__(self) -> str:
        return f"{NETWORK_HELPER}: installed with CAP_NET_ADMIN and CAP_SYS_ADMIN; {NETWORK_USERS}: user {self.user}"

    def do(self, machine: Machine) -> None:
        """Install the program, then list the user."""
        target = machine.path(str(NETWORK_HELPER))
        content = Path(self.program).read_bytes()
        for folder in (target.parent, machine.path(str(NETWORK_USERS)).parent):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        temporary = target.with_name(f".{target.name}.tmp")
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700), "wb") as file:
            file.write(content)
        os.setxattr(temporary, "security.capability", NETWORK_CAPABILITIES)
        temporary.chmod(0o755)
        temporary.rename(target)
        self._list({*network_users(machine), self.user}, machine)

    def undo(self, machine: Machine) -> None:
        """Remove the user from the list, and the program after the last user."""
        users = network_users(machine) - {self.user}
        if users:
            self._list(users, machine)
            return
        for path in (NETWORK_USERS, NETWORK_HELPER):
            machine.path(str(path)).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it holds something of others
                machine.path(str(path)).parent.rmdir()

    @staticmethod
    def _list(users: set[int], machine: Machine) -> None:
        path = machine.path(str(NETWORK_USERS))
        _write(path, "".join(f"{user}\n" for user in sorted(users)))
        path.chmod(0o644)


def network_users(machine: Machine) -> set[int]:
    """The users who may use the network helper."""
    return {int(line) for line in (machine.read(str(NETWORK_USERS)) or "").split() if line.isdecimal()}


Change = Mode | File | Setting | Folder | Join | Command | NetworkHelper
_KINDS: dict[str, Callable[..., Change]] = {
    kind.__name__: kind for kind in (Mode, File, Setting, Folder, Join, Command, NetworkHelper)
}


class GrantError(CellbedError):
    """A grant that failed. The text has the change and the reason."""

    exit_code = 1


def plan(machine: Machine, caller: int | None = None, *, network: bool = False) -> list[Change]:
    """The changes on `machine` that give its user all features; empty if there are none.

    caller: process id of a shell of the user, to be moved where only root may move it. network: also install the
    network helper.
    """
    changes = [*_device(machine), *_control_groups(machine, caller), *_settings(machine)]
    return [*changes, *network_helper(machine)] if network else changes


def network_helper(machine: Machine, program: Path = COMPILED_HELPER) -> Iterator[Change]:
    """The changes that allow the user the network helper, in the version compiled as `program`."""
    try:
        content = program.read_bytes()
    except OSError as error:
        raise GrantError(f"{program}: the network helper is not compiled: make setup") from error
    installed = machine.path(str(NETWORK_HELPER))
    try:
        current = installed.read_bytes() == content
        current = current and os.getxattr(installed, "security.capability") == NETWORK_CAPABILITIES
    except OSError:
        current = False
    if not current or machine.user not in network_users(machine):
        yield NetworkHelper(str(program), machine.user)


def do(changes: Sequence[Change], machine: Machine) -> None:
    """Make all of the changes, or none. Errors: :class:`GrantError`, after completed changes are undone."""
    journal = _read_journal(machine)
    mine = journal.setdefault(str(machine.user), [])
    before = len(mine)
    mine += [[type(change).__name__, asdict(change)] for change in changes]
    try:
        _write_journal(machine, journal)
    except OSError as error:
        raise GrantError(f"cannot write the journal of grants: {_reason(error)}; nothing was granted") from error
    for change in changes:
        try:
            change.do(machine)
        except OSError as error:
            _, failed = _undo(machine, journal, down_to=before)
            rest = "\n  ".join(["this could not be undone:", *failed]) if failed else "nothing was granted"
            raise GrantError(f"cannot do this: {change}\n  {_reason(error)}\n  {rest}") from error
        except KeyboardInterrupt:
            _undo(machine, journal, down_to=before)
            raise


def undo(machine: Machine) -> list[Change]:
    """Revert the changes for the user, the last first; returns the changes that were undone.

    Errors: :class:`GrantError` if a change could not be undone; all others are.
    """
    undone, failed = _undo(machine, _read_journal(machine))
    if failed:
        problems = "\n  ".join(failed)
        raise GrantError(
            f"{len(undone)} changes were undone, but not these, which --undo will try again:\n  {problems}"
        )
    return undone


def _undo(machine: Machine, journal: dict[str, list[Any]], down_to: int = 0) -> tuple[list[Change], list[str]]:
    """Undo the entries of the user from `down_to` on; returns those undone, and a line for each other one."""
    mine = journal.setdefault(str(machine.user), [])
    undone: list[Change] = []
    failed: list[str] = []
    for entry in reversed(mine[down_to:]):
        try:
            kind, values = entry
            change = _KINDS[kind](**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
        except (AttributeError, KeyError, TypeError, ValueError):
            failed.append(
                f"{machine.path(_JOURNAL)}: unknown entry, by another version of cellbed: {json.dumps(entry)}"
            )
            continue
        try:
            # Commands follow at the end: they apply the changes that are undone before.
            if not isinstance(change, Command):
                change.undo(machine)
        except OSError as error:
            failed.append(f"{change}: {_reason(error)}")
            continue
        mine.remove(entry)
        undone.append(change)
    for change in reversed(undone):
        if isinstance(change, Command):
            change.undo(machine)
    if undone:
        try:
            _write_journal(machine, journal)
        except OSError as error:
            failed.append(_reason(error))
    return undone, failed


def _reason(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


def lifts_limits(changes: Sequence[Change], machine: Machine) -> bool:
    """Whether changes let the user move processes out of an administrator's control groups.

    On version 1 it is enough that the user may write to the group that a process comes to; on version 2 the group above
    both must be the user's, too (cgroup-v2.rst, "Delegation Containment").
    """
    return "cpu" in version_1(machine) and any(isinstance(change, Folder) for change in changes)


def shell_of(user: int, process: int) -> int | None:
    """The nearest process above `process` that belongs to `user`, such as the shell from which sudo was called."""
    while process > 1:
        status = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
            if ":" in line
        )
        # Real and effective: sudo itself may keep the user's as the real one.
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
        yield Mode("/dev/net/tun", mode | 0o666, mode)


def _control_groups(machine: Machine, caller: int | None) -> Iterator[Change]:
    mounts = version_1(machine)
    name = f"cellbed-{machine.user}"
    if "cpu" in mounts and "memory" in mounts:
        # Not "pids": no run needs it, and its folder would let the user leave an administrator's limit of processes.
        for mount in dict.fromkeys(mounts[controller] for controller in VERSION_1 if controller in mounts):
            yield from _folder(machine, Folder(f"{mount}/{name}", machine.user))
        return
    unified = version_2(machine)
    if unified is None:
        return
    delegated = systemd_delegates(machine, unified)
    if delegated is None and not machine.path("/run/systemd/system").exists():
        yield from _folder(machine, Folder(f"{unified}/{name}", machine.user, ("cpu", "memory")))
        if caller is not None and f"/{name}/" not in f"{machine.read(f'/proc/{caller}/cgroup')}/":
            yield Join(f"{unified}/{name}/{ASIDE}", caller)
    elif not {"cpu", "memory"} <= (delegated or set()):
        text = "[Service]\nDelegate=cpu cpuset io memory pids\n"
        if machine.read(DELEGATE_FILE) != text.strip():
            yield _file(machine, DELEGATE_FILE, text)
            yield Command(("systemctl", "daemon-reload"))
            if delegated is not None:
                # The user's running session manager looks for controllers at its start only.
                runtime = f"XDG_RUNTIME_DIR=/run/user/{machine.user}"
                restart = ("env", runtime, "systemctl", "--user", "daemon-reexec")
                yield Command(("runuser", "-u", machine.user_name, "--", *restart))


def _folder(machine: Machine, folder: Folder) -> Iterator[Change]:
    path = machine.path(folder.path)
    if not path.is_dir() or path.stat().st_uid != folder.user:
        yield folder


def _settings(machine: Machine) -> Iterator[Change]:
    settings = []
    allowed = machine.read(setting_path(ALLOWED)) or ""
    available = (machine.read(setting_path("net.ipv4.tcp_available_congestion_control")) or "").split()
    if "cubic" in available and "cubic" not in allowed.split():
        settings.append(Setting(ALLOWED, f"{allowed} cubic".strip(), allowed))
    for name in restricted_namespaces(machine):
        bad, good, _ = RESTRICTIONS[name]
        settings.append(Setting(name, good, bad))
    if settings and machine.path("/etc/sysctl.d").is_dir():
        kept = {line.partition("=")[0].strip(): line for line in (machine.read(SYSCTL_FILE) or "").splitlines()}
        kept |= {setting.name: f"{setting.name} = {setting.value}" for setting in settings}
        yield _file(machine, SYSCTL_FILE, "\n".join([*kept.values(), ""]))
    yield from settings


def _file(machine: Machine, path: str, text: str) -> File:
    before = machine.path(path)
    return File(path, text, inputs.text(before) if before.exists() else None)


def _read_journal(machine: Machine) -> dict[str, list[Any]]:
    try:
        journal = inputs.json_value(machine.path(_JOURNAL))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise GrantError(f"{machine.path(_JOURNAL)}: cannot read the journal of grants: {error}") from error
    if not isinstance(journal, dict) or not all(isinstance(each, list) for each in journal.values()):
        raise GrantError(f"{machine.path(_JOURNAL)}: not a journal of grants; remove it to begin a new one")
    return journal


def _write_journal(machine: Machine, journal: dict[str, list[Any]]) -> None:
    _write(machine.path(_JOURNAL), json.dumps(journal, indent=1))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.rename(path)
