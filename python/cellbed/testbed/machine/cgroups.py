"""CPU and memory limits of nodes, enforced by control groups: version 2, or version 1 if there is no other.

Each run gets a folder per hierarchy, with a folder per node in it. The location depends on the user. Root's folders are
at the top. An ordinary user's folders are in the group that systemd delegates to the session, or in the
``cellbed-<uid>`` folders that ``sudo cellbed grant`` hands over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.privilege import user_name
from cellbed_node.temporary import hold

if TYPE_CHECKING:
    from cellbed_node.agent import Limits

SCOPE_VARIABLE = "CELLBED_SCOPE"
"""Environment variable of a command that already runs in a separate scope."""

CONTROLLERS = ("cpu", "cpuacct", "memory")
PROCESSES = "pids"
"""An optional controller. Without it, only the user's own limit of processes applies."""
MOST_PROCESSES = 4096
"""Maximum number of processes and threads of a node; a whole run has at most half of the machine's limit."""

_LARGEST_WEIGHTS = {"cpu.weight": "10000", "cpu.shares": "262144"}
"""Largest share of the processors beside other groups and programs, by file of version 2 (cgroup-v2.rst) and of version
1 (sched-design-CFS.rst). Nodes go before other programs, up to their limits."""

ASIDE = "supervisor"
"""Name of the group for earlier processes, a sibling of the groups of runs (version 2)."""


Enforcement = bool | Literal["overcommit"]
"""Enforcement of CPU and memory limits; ``"overcommit"`` accepts nodes that exceed the machine."""


class LimitsError(CellbedError):
    """This user cannot enforce limits here. The text contains the limit, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Resource use of a node, cumulative since its start; ``None`` if the kernel does not report it.

    cpu_ns: CPU time. memory_bytes: memory in use now. periods, throttled_periods, throttled_ns: CPU bandwidth
    control. oom_kills: processes killed at the memory limit. time_ns: time of the sample; ``None`` for now.
    """

    cpu_ns: int | None
    memory_bytes: int | None
    periods: int | None
    throttled_periods: int | None
    throttled_ns: int | None
    oom_kills: int | None
    time_ns: int | None = None


class Group:
    """The control group of one node: one folder (version 2) or one per controller (version 1).

    folders: controller name to folder; all the same folder in version 2.
    """

    def __init__(self, folders: dict[str, Path], version: int) -> None:
        self.folders = folders
        self.version = version

    @property
    def join_files(self) -> tuple[str, ...]:
        """Files of the group: a process that writes ``0`` into all of them becomes subject to the limits."""
        return tuple(str(folder / "cgroup.procs") for folder in self._unique())

    def contains(self, process: int) -> bool:
        """Return whether a process is subject to the limits."""
        return all(str(process) in _read(folder / "cgroup.procs").split() for folder in self._unique())

    def limit(self, cpus: float | None, memory_bytes: int | None) -> None:
        """Set the limits: CPUs (1.5: one and a half CPUs' time) and bytes; ``None`` for no limit."""
        self._limits.limit(cpus, memory_bytes)

    def limits(self) -> tuple[float | None, int | None]:
        """Return the limits that the kernel reports: (CPUs, bytes), ``None`` for no limit."""
        return self._limits.limits()

    @cached_property
    def _limits(self) -> Limits:
        from cellbed_node.agent import Limits  # not needed by shells

        return Limits(self.folders, self.version)

    @property
    def refused_processes(self) -> int:
        """Return the number of processes and threads refused because of MOST_PROCESSES."""
        events = _read(self.folders.get(PROCESSES, self.folders["cpu"]) / "pids.events").splitlines()
        return next((int(line.split()[1]) for line in events if line.startswith("max ")), 0)

    def sample(self) -> Sample:
        """Return the resource use of the node's processes so far."""
        return Sample(**self._limits.sample())

    def lift_cpu_limit(self) -> None:
        """Give the node's processes all processors, so that even thousands of them end soon."""
        for folder in self._unique():
            lift_cpu_limits(folder)

    def remove(self) -> None:
        """Kill the node's processes and remove the group."""
        for folder in self._unique():
            remove(folder)

    def _unique(self) -> list[Path]:
        return list(dict.fromkeys(self.folders.values()))


class Groups:
    """The control groups of one run.

    note: called with each folder before it is made, so that a killed run's folders can be found. Each folder is locked
    while the run lives: clean-up with another registry also sees that it is in use.
    """

    def __init__(self, bases: dict[str, Path], version: int, run: str, note: Callable[[Path], None]) -> None:
        self.version = version
        self._top = {controller: base / run for controller, base in bases.items()}
        self._locks: list[int] = []
        for folder in dict.fromkeys(self._top.values()):
            note(folder)
            folder.mkdir(parents=True)
            self._locks.append(hold(folder))
            _limit_processes(folder, int(_read(Path("/proc/sys/kernel/pid_max"))) // 2)
            _prefer(folder.parent)
            _prefer(folder)
            if version == 2:
                _write(folder / "cgroup.subtree_control", _controllers_below(folder))

    @property
    def folders(self) -> list[Path]:
        """The run's folders, one per controller hierarchy."""
        return list(dict.fromkeys(self._top.values()))

    def create(self, node: str) -> Group:
        """Make the group of one node, without limits yet."""
        folders = {controller: top / node for controller, top in self._top.items()}
        for folder in dict.fromkeys(folders.values()):
            folder.mkdir()
            _limit_processes(folder, MOST_PROCESSES)
        return Group(folders, self.version)

    def remove(self) -> None:
        """Kill the remaining processes in the run's groups, and remove the groups."""
        for folder in self.folders:
            remove(folder)
        while self._locks:
            os.close(self._locks.pop())


def enforcement(no_limits: bool, overcommit: bool) -> Enforcement:
    """Return the enforcement selected by a command's options."""
    return False if no_limits else "overcommit" if overcommit else True


def open_groups(run: str, note: Callable[[Path], None]) -> Groups:
    """Make the control groups for a run called `run`.

    Errors: :class:`LimitsError` if this user may not, with the reason and the remedy.
    """
    version, bases = locate()
    try:
        if version == 2:
            divide(bases["cpu"].parent)
            bases["cpu"].mkdir(exist_ok=True)
            divide(bases["cpu"])
        return Groups(bases, version, run, note)
    except OSError as error:
        raise LimitsError(_advice(f"{error.filename or 'the control group'}: {error.strerror}")) from error


def locate() -> tuple[int, dict[str, Path]]:
    """Return the version, and by controller the base folder where this user can make groups. Changes nothing.

    Errors: :class:`LimitsError`.
    """
    mounts = {controller: mount for mount, options in _mounts("cgroup") for controller in options}
    if "cpu" in mounts and "memory" in mounts:
        name = "cellbed" if os.geteuid() == 0 else f"cellbed-{os.getuid()}"
        bases = {controller: mounts.get(controller, mounts["cpu"]) / name for controller in CONTROLLERS}
        for controller, base in bases.items():
            if os.geteuid() != 0 and not os.access(base, os.W_OK):
                raise LimitsError(_advice(f"the {controller} control group (version 1) is not delegated to you"))
        if PROCESSES in mounts and (os.geteuid() == 0 or os.access(mounts[PROCESSES] / name, os.W_OK)):
            bases = {PROCESSES: mounts[PROCESSES] / name, **bases}  # first, so that it is removed first
        return 1, bases
    unified = _version_2_mount()
    if unified is None:
        raise LimitsError(_advice("no control group file system with the cpu and memory controllers is mounted"))
    base = _version_2_base(unified)
    return 2, dict.fromkeys(CONTROLLERS, base)


def divide(folder: Path) -> None:
    """Enable CPU and memory limits for the groups below a version 2 folder.

    A group with limited children must not hold processes itself (cgroup-v2.rst, "No Internal Process Constraint"); only
    the machine's root group may. So its processes are moved into a child: in a scope, this command; in the root of a
    container, all processes. Errors: ``OSError`` if this user may not divide the folder.
    """
    for attempt in range(10):
        try:
            enabled = _read(folder / "cgroup.subtree_control").split()
            wanted = _controllers_below(folder)
            if not set(wanted.replace("+", "").split()) <= set(enabled):
                # Enable both at once: the kernel accepts +cpu alone where processes are, but makes the group a threaded
                # one, which supports neither +memory nor ordinary children (cgroup-v2.rst, "Threads").
                _write(folder / "cgroup.subtree_control", wanted)
            return
        except OSError as error:
            if error.errno == errno.ENOENT:
                raise OSError(error.errno, "has no cpu and memory controllers to delegate", str(folder)) from error
            # Retry: a process may fork while it is being moved.
            if error.errno != errno.EBUSY or attempt == 9:
                raise
        aside = folder / ASIDE
        aside.mkdir(exist_ok=True)
        for process in _read(folder / "cgroup.procs").split():
            if process == "0":  # in another PID namespace; writing 0 would move this process
                continue
            with contextlib.suppress(ProcessLookupError):
                _write(aside / "cgroup.procs", process)


def is_group(folder: Path) -> bool:
    """Return whether a folder is in a file system of control groups."""
    parents = folder.resolve().parents
    return folder.is_dir() and any(mount in parents for mount, _ in (*_mounts("cgroup"), *_mounts("cgroup2")))


def remove(folder: Path) -> None:
    """Kill the processes below a control group folder, and remove it with its children.

    The kernel lists processes of another PID namespace as 0. They cannot be killed from here, and their groups are
    kept.
    """
    with contextlib.suppress(OSError):  # usually empty
        folder.rmdir()
    if not folder.is_dir():
        return
    lift_cpu_limits(folder)
    # Deepest first. List the folders before the first kill: systemd removes a scope once its last process is dead.
    paths = [Path(path) for path, _, _ in os.walk(folder, topdown=False)]
    for path in paths:
        with contextlib.suppress(OSError):
            _limit_processes(path, 0)  # else processes could start others
        _kill(path)
    for path in paths:
        # A group stays busy for a moment after its last process has died.
        for _ in range(200):
            _kill(path)
            try:
                path.rmdir()
                break
            except OSError as error:
                if error.errno != errno.EBUSY:
                    break
                time.sleep(0.01)


def lift_cpu_limits(folder: Path) -> None:
    """Lift the CPU limits of a control group folder and its children: under a limit, a killed process may take minutes
    to end."""
    for path, _, names in os.walk(folder):
        for name, unlimited in (("cpu.max", "max"), ("cpu.cfs_quota_us", "-1")):
            if name in names:
                with contextlib.suppress(OSError):
                    _write(Path(path, name), unlimited)


def _kill(folder: Path) -> None:
    for process in map(int, _read(folder / "cgroup.procs").split()):
        if process == 0:  # kill(0) would kill this process group
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def enter_delegated_scope() -> None:
    """Restart this command in a control group that systemd delegates, if this user needs that.

    With version 2 and systemd, an ordinary user may not divide a session's group, but may divide a transient scope
    (systemd.resource-control(5), ``Delegate=``). Returns if no scope is needed or possible.
    """
    # Not from the environment: after `su`, XDG_RUNTIME_DIR is another user's or missing.
    runtime = f"/run/user/{os.getuid()}"
    if os.geteuid() == 0 or SCOPE_VARIABLE in os.environ or _version_2_mount() is None:
        return
    if not os.access(f"{runtime}/systemd/private", os.W_OK) or shutil.which("systemd-run") is None:
        return
    os.environ[SCOPE_VARIABLE] = "1"
    os.environ["XDG_RUNTIME_DIR"] = runtime  # where systemd-run looks for the session manager
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"]
    os.execvp(scope[0], [*scope, sys.executable, "-P", *sys.argv])


def _version_2_base(unified: Path) -> Path:
    """Return the version 2 folder below which this user can make groups with CPU and memory limits."""
    if os.geteuid() == 0:
        return unified / "cellbed"
    own = Path("/proc/self/cgroup").read_text(encoding="utf-8").strip().splitlines()[-1].split("::", 1)[-1]
    current = unified / own.lstrip("/")
    granted = unified / f"cellbed-{os.getuid()}"
    if os.access(granted / "cgroup.procs", os.W_OK) and granted in (current, *current.parents):
        return granted / "runs"
    if current.name == ASIDE:
        current = current.parent
    if os.access(current / "cgroup.procs", os.W_OK) and current != unified:
        # A scope of `systemd-run --user --scope -p Delegate=yes`: this user may divide it.
        return current / "cellbed"
    raise LimitsError(_advice("the control group (version 2) of this session is not delegated to you"))


def _advice(why: str) -> str:
    command = f"sudo {Path(sys.argv[0]).absolute()} grant {user_name(os.getuid())}"
    if os.geteuid() == 0:
        return f"CPU and memory limits cannot be enforced here: {why}. To run without limits: --no-limits."
    return (
        f"CPU and memory limits cannot be enforced for user {user_name(os.getuid())}: {why}.\n"
        f"  Allow it once with:  {command}\n"
        "  or run without:      --no-limits (stated in the report)"
    )


def parse_mounts(info: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the file systems in a ``mountinfo`` of the kernel: type, mount point, options."""
    for line in info.splitlines():
        before, _, after = line.partition(" - ")
        words = after.split()
        if len(words) >= 3 and len(before.split()) > 4:
            yield words[0], before.split()[4], words[2].split(",")


def _mounts(wanted: str) -> Iterator[tuple[Path, list[str]]]:
    info = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    yield from ((Path(mount), options) for kind, mount, options in parse_mounts(info) if kind == wanted)


def _version_2_mount() -> Path | None:
    for mount, _ in _mounts("cgroup2"):
        controllers = mount / "cgroup.controllers"
        if controllers.exists() and {"cpu", "memory"} <= set(_read(controllers).split()):
            return mount
    return None


def program_parent(group: Group | None, run: str) -> Path | None:
    """Return the version 2 folder for control groups of a node's programs, which identify the programs' sockets: the
    node's version 2 group, else a group of the run, yet to be made; None without version 2."""
    if group is not None and group.version == 2:
        return group.folders["cpu"]
    mount, _ = next(_mounts("cgroup2"), (None, None))
    return mount and mount / "cellbed" / run


def _controllers_below(folder: Path) -> str:
    """Return the version 2 controllers of groups below a folder, in the kernel's format."""
    has_processes = PROCESSES in _read(folder / "cgroup.controllers").split()
    return f"+cpu +memory{f' +{PROCESSES}' * has_processes}"


def _limit_processes(folder: Path, most: int) -> None:
    if (file := folder / "pids.max").exists():
        _write(file, str(most))


def _prefer(folder: Path) -> None:
    """Give a group the largest weight, where this user may."""
    for name, largest in _LARGEST_WEIGHTS.items():
        if (file := folder / name).exists():
            with contextlib.suppress(PermissionError):
                _write(file, largest)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        if error.errno == errno.ENODEV:  # the group was removed after the file was opened
            return ""
        raise
