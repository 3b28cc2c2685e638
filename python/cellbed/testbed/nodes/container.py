"""Nodes that run an image of Podman or Docker.

The engine only supplies the image: its files are unpacked once into the cache, and no engine, monitor or daemon takes
part in a run. Each node is an overlay over these files. `crun` runs the overlay in the network namespace and control
group that every node has. Overlay and container live in separate namespaces, which end with the node's first process;
that process ends with the calling process (``crates/init``).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Unpack

from cellbed.archive.unfinished import images_folder, make_unfinished
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Place, Streams, signal_inhabitants, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE, Record
from cellbed.testbed.nodes.backend import Setup, Strain
from cellbed.testbed.nodes.copies import close_after, make_folder, open_folder, read, root_of
from cellbed.testbed.nodes.devices import DeviceError, Edits, find_devices
from cellbed.testbed.nodes.namespace import LocalNode
from cellbed_node.agent import Disk
from cellbed_node.processes import find, kill, last_line
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    from cellbed.scenario.nodes import ContainerBackend

RUNTIME = "crun"
INIT = Path(__file__).parents[1] / "cellbed-init"
"""Compiled from ``crates/init``; in containers, its path is :data:`INSIDE`."""
INSIDE = "/.cellbed-init"
START_PATIENCE_S = 60.0
UNUSED_S = 7 * 86_400
"""Minimum age since the last use, seconds, at which an unpacked image is removed."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CAPABILITIES = [
    f"CAP_{name}"
    for name in (
        *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP"),
        *("SETUID", "SYS_CHROOT"),
    )
]
"""Capabilities of a container, from Podman's list."""
_OF_TOWERS = ["CAP_NET_ADMIN", "CAP_NET_RAW"]
"""Capabilities of a tower's container in addition."""
_OF_FIRST = "CAP_NET_BROADCAST"
"""A capability of the first process alone: other programs cannot trace it (ptrace(2)) and prevent its end."""
_ROOT = {"uid": 0, "gid": 0}
_START = """
{ echo 0 > /proc/sys/net/ipv4/ip_unprivileged_port_start
  echo 0 2147483647 > /proc/sys/net/ipv4/ping_group_range; } 2> /dev/null
disk=$1 store=.
if [ "$disk" ]; then store=disk; fi
options=lowerdir=lower,upperdir=$store/upper,workdir=$store/work
if [ "$(id -u)" != 0 ]; then user="--user --map-root-user" options=$options,userxattr; fi
exec unshare $user --mount --propagation private sh -c \
  'options=$1 disk=$2; shift 2
   if [ "$disk" ]; then mount -t tmpfs -o "size=$disk,mode=755" cellbed disk && cp -a upper work disk || exit; fi
   mount -t overlay -o "$options" cellbed root && exec "$@"' sh "$options" "$@"
"""
"""Started in the node's network namespace, where any user may bind to any port, as in an engine's container. The
overlay lies in a mount namespace. For ordinary users, a user namespace where they are root owns that namespace."""


class ContainerError(CellbedError):
    """A container cannot be run here. The text contains the remedy."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image. engine: program that has the image; version: the engine's. config: ``Config`` as engines print it."""

    reference: str
    engine: str
    version: str
    identifier: str
    digest: str
    config: Mapping[str, Any]


@functools.lru_cache(maxsize=256)
def find_image(reference: str, engine: str) -> Image:
    """Return an image of a local engine; ``"auto"`` asks Podman before Docker. Nothing is downloaded.

    Each process, and so each run, asks the engine only once. Errors: :class:`ContainerError`.
    """
    engines = ["podman", "docker"] if engine == "auto" else [engine]
    there = [each for each in engines if find(each) is not None]
    if not there:
        package = "docker.io" if engine == "docker" else "podman"
        raise ContainerError(f"the image '{reference}' needs {' or '.join(engines)}: sudo apt install {package}")
    problem = ""
    for each in there:
        answer = subprocess.run([each, "image", "inspect", "--", reference], capture_output=True, check=False)
        if answer.returncode == 0:
            (found,) = json.loads(answer.stdout)
            (version,) = subprocess.run([each, "--version"], capture_output=True, check=False).stdout.splitlines()[:1]
            identifier = found["Id"].removeprefix("sha256:")
            digests = [each.partition("@")[2] for each in found.get("RepoDigests") or []]
            digest = found.get("Digest") or next(iter(digests), f"sha256:{identifier}")
            return Image(reference, each, version.decode(), identifier, digest, found["Config"] or {})
        problem = problem or f"{each}: {last_line(answer.stderr) or f'exit status {answer.returncode}'}"
    raise ContainerError(
        f"no image '{reference}' for user {os.geteuid()} ({problem}): {there[0]} pull {reference}, or "
        f"{there[0]} build -t {reference} FOLDER; a run downloads nothing"
    )


def unpack_image(image: Image, record: Record) -> tuple[Path, int]:
    """Return the folder with an image's files, and a descriptor; while it is open, the folder is not removed.

    Errors: :class:`ContainerError`.
    """
    place = images_folder() / image.identifier
    place.parent.mkdir(parents=True, exist_ok=True)
    place.parent.chmod(0o700)  # images may contain set-user-ID programs of any owner
    while True:
        with contextlib.suppress(FileNotFoundError):
            held = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(held, fcntl.LOCK_SH)
            os.utime(place)
            return place / "root", held
        _remove_unused(place.parent)
        with make_unfinished(place.parent) as folder:
            _unpack(image, folder / "root", record)
            try:
                folder.rename(place)
            except OSError:
                if not place.is_dir():  # another run may have been faster
                    raise


def _unpack(image: Image, root: Path, record: Record) -> None:
    root.mkdir()
    name = record.note_engine(image.engine)
    # `cellbed clean` ends the marked processes of the engine first: files that they still create could not be removed.
    marked = {**os.environ, RUN_VARIABLE: record.identifier}
    is_root = os.geteuid() == 0
    kept = ["--numeric-owner", "--xattrs", "--xattrs-include=security.capability"]
    tar = ["tar", "-x", *(kept if is_root else ["--no-same-owner", "--exclude=dev/*"]), "-C", str(root)]
    try:
        # The command is never run, but images without a command require one.
        create = ["create", "--name", name, "--pull", "never", "--network", "none", image.identifier, "/"]
        created = subprocess.run([image.engine, *create], capture_output=True, env=marked, check=False)
        if created.returncode != 0:
            why = last_line(created.stderr) or f"exit status {created.returncode}"
            raise ContainerError(f"{image.engine} cannot export the image '{image.reference}': {why}")
        with (
            subprocess.Popen([image.engine, "export", name], stdout=subprocess.PIPE, env=marked) as export,
            subprocess.Popen(tar, stdin=export.stdout, stderr=subprocess.PIPE, env=marked) as unpacking,
        ):
            assert export.stdout is not None
            export.stdout.close()
            # No timeout: an image may be large. The run has not started, and Ctrl-C ends both programs.
            _, errors = unpacking.communicate()
        if export.returncode != 0 or unpacking.returncode != 0:
            why = last_line(errors) or f"{image.engine} export ended with status {export.returncode}"
            raise ContainerError(f"cannot unpack the image '{image.reference}' into {images_folder()}: {why}")
        # No control group blocks device files, and an image may have some for this machine's disks.
        subprocess.run(["find", str(root), "-type", "b,c", "-delete"], check=True)
    finally:
        remove_export(image.engine, name)


def remove_export(engine: str, name: str) -> bool:
    """Remove the engine's container through which an image is unpacked; return whether there was one."""
    if find(engine) is None:
        return False
    answer = subprocess.run([engine, "rm", "--force", name], capture_output=True, check=False)
    return answer.returncode == 0 and name.encode() in answer.stdout


def _remove_unused(images: Path) -> None:
    for place in images.glob("[0-9a-f]*"):
        with contextlib.suppress(OSError):
            if time.time() - place.stat().st_mtime < UNUSED_S:  # noqa: TID251 - as the kernel stamps it
                continue
            held = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(place)
            finally:
                os.close(held)


class ContainerNode(LocalNode):
    """A container of an image. cellbed's own programs run outside, in the same network namespace and control group."""

    table: ContainerBackend

    def __init__(self, setup: Setup, table: ContainerBackend) -> None:
        super().__init__(setup, table)
        self._folder = setup.folder
        self._holder: subprocess.Popen[bytes] | None = None
        self._image_lock = self._root = self._store = -1
        self._user: dict[str, Any] = _ROOT
        self._devices = Edits()
        self._spawned = 0

    @staticmethod
    def obstacles(table: ContainerBackend, *, running: bool) -> Iterator[tuple[str, str]]:
        if find(RUNTIME) is None:
            yield "kind", f"a container needs {RUNTIME}: sudo apt install {RUNTIME}"
        if not INIT.exists():
            yield "kind", f"a container needs {INIT.name}: make setup"
        try:
            find_image(table.image, table.engine)
        except ContainerError as error:
            yield "image", str(error)
        try:
            find_devices(table.devices)
        except DeviceError as error:
            yield "devices", str(error)

    @staticmethod
    def missing(
        table: ContainerBackend, command: Sequence[str], environment: Mapping[str, str], folder: str | None
    ) -> str | None:
        # Before the start, only the image's own command is known.
        has_one = command or _own_command(table, find_image(table.image, table.engine))
        return None if has_one else _NO_COMMAND.format(table.image)

    def start(self) -> None:
        assert self.setup.record is not None
        image = find_image(self.table.image, self.table.engine)
        root, self._image_lock = unpack_image(image, self.setup.record)
        self.facts = {"engine": image.version, "digest": image.digest, "image_id": image.identifier}
        self._folder.mkdir(mode=0o700)
        for name in ("disk", "empty", "root", "upper", "work"):
            (self._folder / name).mkdir()
        (self._folder / "lower").symlink_to(root)
        home = "/root"
        if not _is_mapped():
            self._user, home = _user(image.config.get("User", ""), root)
        self._devices = find_devices(self.table.devices)
        given = dict(
            each.partition("=")[::2] for each in (*(image.config.get("Env") or []), *self._devices.environment)
        )
        self._environment = {
            **{"PATH": PATH, "HOME": home, "HOSTNAME": self.name, **given, **self.table.environment},
            **self.setup.variables,
        }
        self._own_command = _own_command(self.table, image)
        self._working_folder = image.config.get("WorkingDir") or "/"
        upper = os.open(self._folder / "upper", os.O_PATH)
        os.close(make_folder(upper, PurePosixPath("/", self._working_folder)))
        os.close(upper)
        (self._folder / "config.json").write_text(json.dumps(self._specification()), encoding="utf-8")
        disk = str(self.setup.disk_bytes or "")
        with (self._folder / "log").open("wb") as log:
            self._holder = spawn(
                ["/bin/sh", "-c", _START, "sh", disk, *self._runtime("run", "--pid-file", "pid", self.name)],
                self._place(),
                environment=self._outer_environment(),
                folder=str(self._folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                keep_capabilities=True,
            )

    def wait_ready(self) -> None:
        assert self._holder is not None
        assert self._holder.stdout is not None
        readable, _, _ = select.select([self._holder.stdout], [], [], START_PATIENCE_S)
        is_ready = bool(readable and self._holder.stdout.readline())
        # The runtime writes this file last.
        while is_ready and not _content(self._folder / "pid"):
            time.sleep(0.001)
            is_ready = self._holder.poll() is None
        if not is_ready:
            why = last_line((self._folder / "log").read_bytes()) or f"not ready within {START_PATIENCE_S:g} s"
            hint = "; if its file system is unsuitable, set TMPDIR to a folder on a disk" if "mount" in why else ""
            raise ContainerError(f"the container {self.name} does not start: {why}{hint}")
        # The descriptor leads to the container's root even after its end.
        self._root = root_of(self._pid)
        # Opened as the runtime's process sees it: programs of the container do not see it.
        with close_after(root_of(self._holder.pid)) as root:
            self._store = open_folder(root, (self._folder / "disk").absolute())
        self._disk = Disk(f"/proc/self/fd/{self._store}")

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        cgroups: Sequence[str] = (),
        **streams: Unpack[Streams],
    ) -> Executed:
        command = list(command) or self._own_command
        if self._holder is None or self._holder.poll() is not None:
            raise OSError(f"the container {self.name} has ended")
        if not command:
            raise OSError(_NO_COMMAND.format(self.table.image))
        self._spawned += 1
        path = self._folder / f"{self._spawned}.json"
        folder = str(PurePosixPath(self._working_folder, folder or ""))
        described = self._process(command, {**self._environment, **(environment or {})}, folder)
        path.write_text(json.dumps(described), encoding="utf-8")
        started = spawn(
            [*self._enter(), *self._runtime("exec", "--process", str(path), self.name)],
            replace(self._place(), cgroups=(*self.place.cgroups, *cgroups)),
            environment=self._outer_environment(),
            **streams,
            keep_capabilities=True,
        )
        return Executed(started)

    def open_store(self) -> int:
        return os.dup(self._store)

    def inside(self, path: str) -> str:
        return str(self._below(path)[1])

    @property
    def first_process(self) -> int:  # type: ignore[override]
        return self._pid

    def signal(self, number: int) -> None:
        assert self._holder is not None
        signal_inhabitants(self.place.network_namespace, number, [self._holder.pid, self._pid])

    def proof_command(self, what: Strain, amount: int) -> list[str]:
        return [INSIDE, what, str(amount)]

    def stop(self) -> None:
        if self._holder is not None:
            for stream in (self._holder.stdin, self._holder.stdout):
                assert stream is not None
                stream.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._holder.wait(5.0)
            kill(self._holder)
        super().stop()
        for descriptor in (self._image_lock, self._root, self._store):
            if descriptor >= 0:
                os.close(descriptor)
        remove_tree(self._folder, ignore_errors=True)  # `cellbed clean` tries again

    @functools.cached_property
    def _pid(self) -> int:
        """Process id on this machine of the container's first process."""
        return int((self._folder / "pid").read_text(encoding="utf-8"))

    def _enter(self) -> list[str]:
        user = f"--user=/proc/{self._pid}/ns/user"
        return ["nsenter", user, "--preserve-credentials"] if _is_mapped() else []

    def _runtime(self, verb: str, *arguments: str) -> list[str]:
        # The testbed makes the control groups, not the runtime.
        state = str(self._folder / "state")
        return [RUNTIME, "--root", state, "--cgroup-manager", "disabled", verb, *arguments]

    def _place(self) -> Place:
        """Return the place of the runtime's processes."""
        # crun needs no control groups here, but version 1 of crun refuses machines with both versions of control
        # groups.
        unified = "/sys/fs/cgroup/unified"
        hidden = ((str(self._folder / "empty"), unified),) if Path(unified).is_dir() else ()
        return replace(self.setup.place, binds=hidden)

    def _outer_environment(self) -> dict[str, str]:
        return {**os.environ, RUN_VARIABLE: self.setup.run}

    def _below(self, path: str) -> tuple[str, PurePosixPath]:
        # Relative paths begin in the container's working folder.
        return f"/proc/self/fd/{self._root}", PurePosixPath("/", self._working_folder, path)

    @property
    def _capabilities(self) -> list[str]:
        return [*CAPABILITIES, *(_OF_TOWERS if self.setup.place.keep_network_capabilities else [])]

    def _process(self, command: Sequence[str], environment: Mapping[str, str], folder: str) -> dict[str, Any]:
        sets = ("bounding", "effective", "permitted", *(() if self._user["uid"] else ("inheritable",)))
        capabilities = dict.fromkeys(sets, self._capabilities)
        if self.setup.place.keep_network_capabilities:
            # Programs of other users than root have them, too.
            capabilities |= {"inheritable": self._capabilities, "ambient": _OF_TOWERS}
        return {
            "args": [INSIDE, "exec", *command],
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": folder,
            "user": self._user,
            "capabilities": capabilities,
        }

    def _specification(self) -> dict[str, Any]:
        """Return the container in the runtime's format (OCI runtime specification 1.0)."""
        binds = [(source, target, "ro") for source, target in self.setup.place.binds]
        binds += [(str(each.source), each.target, "ro" if each.read_only else "rw") for each in self.table.mounts]
        if (group := self.setup.group) is not None:
            # Programs that read their limits, such as Java's runtime, see the node's.
            folders = {"": group.folders["cpu"]} if group.version == 2 else group.folders
            binds += [(str(path), f"/sys/fs/cgroup/{name}".rstrip("/"), "ro") for name, path in folders.items()]
        no = ["nosuid", "noexec", "nodev"]
        first = [*self._capabilities, _OF_FIRST]
        return {
            "ociVersion": "1.0.0",
            "process": {
                **self._process([], {"PATH": PATH, RUN_VARIABLE: self.setup.run}, "/"),
                "args": [INSIDE, "hold"],
                "user": _ROOT,
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), first),
            },
            "root": {"path": "root"},
            "hostname": self.name,
            "mounts": [
                _mount("/proc", "proc", no),
                _mount("/dev", "tmpfs", ["nosuid", "strictatime", "mode=755", "size=65536k"]),
                _mount("/dev/pts", "devpts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]),
                _mount("/dev/shm", "tmpfs", [*no, "mode=1777", "size=65536k"]),
                _mount("/dev/mqueue", "mqueue", no),
                _mount("/sys", "sysfs", [*no, "ro"]),
                _mount("/sys/fs/cgroup", "tmpfs", [*no, "mode=755"]),
                *(_mount(target, "bind", ["rbind", mode], source) for source, target, mode in binds),
                *(_mount(target, "bind", list(options), source) for source, target, options in self._devices.binds),
                _mount(INSIDE, "bind", ["bind", "ro"], str(INIT)),
            ],
            "hooks": {
                name: [hook for other, hook in self._devices.hooks if other == name] for name, _ in self._devices.hooks
            },
            # The container shares the network and user namespaces of the runtime's process.
            "linux": {
                "namespaces": [{"type": each} for each in ("pid", "ipc", "uts", "mount")],
                "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
                "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        }


_NO_COMMAND = "the image '{}' has no command: write one"


def _own_command(table: ContainerBackend, image: Image) -> list[str]:
    """Return the image's command; the table may replace parts."""
    entrypoint, command = table.entrypoint, table.command
    if entrypoint is None:
        entrypoint = image.config.get("Entrypoint") or []
        command = command if command is not None else image.config.get("Cmd")
    return [*entrypoint, *(command or [])]


class Executed:
    """A program in a container, represented by the runtime's process, which forwards signals and ends with the program.

    The program is a child of the runtime's process, and leads a process group.
    """

    def __init__(self, runtime: subprocess.Popen[bytes]) -> None:
        self._runtime = runtime
        self.pid = runtime.pid
        self.stdin: IO[bytes] | None = runtime.stdin
        self.stdout: IO[bytes] | None = runtime.stdout
        self.stderr: IO[bytes] | None = runtime.stderr
        self.send_signal = runtime.send_signal

    def poll(self) -> int | None:
        status = self._runtime.poll()
        return None if status is None else _status(status)

    def wait(self, timeout: float | None = None) -> int:
        return _status(self._runtime.wait(timeout))

    def kill(self) -> None:
        """Send SIGKILL to the process group of the program."""
        started: list[str] = []
        with contextlib.suppress(OSError):
            started = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="utf-8").split()
        for process in map(int, started):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process, signal.SIGKILL)
        self._runtime.kill()


def _status(status: int) -> int:
    """Return a program's exit status from the status of the runtime's process: 128 + n for signal n."""
    return 128 - status if 128 < status < 128 + signal.NSIG else status


def _mount(target: str, kind: str, options: Sequence[str], source: str = "") -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": source or kind, "options": list(options)}


def _is_mapped() -> bool:
    """Return whether containers have a single user: this one, as their root."""
    return os.geteuid() != 0


def _user(text: str, root: Path) -> tuple[dict[str, Any], str]:
    """Return the user of an image in the runtime's format, and the home folder. text: ``USER[:GROUP]``, names or
    numbers."""
    name, _, group = text.partition(":")
    users, groups = ([row.split(":") for row in _lines(root, f"/etc/{file}")] for file in ("passwd", "group"))
    users = [row for row in users if len(row) > 5 and all(map(str.isdecimal, row[2:4]))]
    groups = [row for row in groups if len(row) > 3 and row[2].isdecimal()]
    found = next((row for row in users if (name or "0") in (row[0], row[2])), None)
    if found is None and name and not name.isdecimal():
        raise ContainerError(f"the image's user '{name}' is not in its /etc/passwd")
    uid, gid, home = (int(found[2]), int(found[3]), found[5]) if found else (int(name or 0), 0, "/")
    if group:
        gid = next((int(row[2]) for row in groups if group in (row[0], row[2])), -1)
        if gid < 0 and not group.isdecimal():
            raise ContainerError(f"the image's group '{group}' is not in its /etc/group")
        gid = int(group) if gid < 0 else gid
    more = [int(row[2]) for row in groups if found and found[0] in row[3].split(",")]
    return {"uid": uid, "gid": gid, "additionalGids": more}, home


def _lines(root: Path, path: str) -> list[str]:
    with contextlib.suppress(OSError):
        return read(str(root), PurePosixPath(path)).decode(errors="replace").splitlines()
    return []


def _content(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
