"""Moves of a running program by CRIU: processes, memory and connections keep their state.

The program is stopped (SIGSTOP) and dumped in this state; its restored copy is stopped, too. The move becomes final
when the copy is continued. Until then the copy has not run, and the program at the source can be continued without
loss. While the program is stopped, the source drops the packets of its ports: so the kernel there acknowledges no data
that the snapshot lacks, and resets no connection. Clients' kernels retransmit the packets.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import IO, Any, TypeVar

from cellbed.runformat.events import Journal
from cellbed.scenario.migrations import Migration
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Place, spawn
from cellbed.testbed.machine.state import ENDED, status_of
from cellbed.testbed.migration.account import Account
from cellbed.testbed.migration.channel import Helper, TcpChannel, wait
from cellbed.testbed.migration.criu import VARIABLE, CriuError, find_criu, refusal, replace_addresses
from cellbed.testbed.migration.own_service import OwnService
from cellbed.testbed.migration.snapshot import innermost
from cellbed.testbed.migration.state_sockets import StateSockets
from cellbed.testbed.migration.strategy import MigrationError, Move, Predicted, PredictedSteps, Steps, Strategy
from cellbed.testbed.nodes.backend import Backend, Setup
from cellbed.testbed.nodes.container import INIT, Executed
from cellbed.testbed.nodes.copies import close_after, names_in, read, remove
from cellbed.testbed.nodes.namespace import NamespaceNode
from cellbed.testbed.programs.unmodified import Command, UnmodifiedProgram
from cellbed_node.agent import descendants, list_children, ports_in_use
from cellbed_node.processes import Running, find, kill
from cellbed_node.temporary import temporary_folder

_PROGRAM = "cellbed.testbed.migration.snapshot"
_DUMP = ("--leave-running", "--tcp-established", "--network-lock", "skip", "--manage-cgroups=ignore", "--file-locks")
_RESTORE = ("--tcp-established", "--manage-cgroups=ignore", "--file-locks")
_PATIENCE_S = 60.0
"""Maximum wait for the end of CRIU, seconds, when killing CRIU would damage the program."""
CRIU_S = 600.0
"""Maximum duration of a step of CRIU, seconds; a step reads or writes all memory of the program."""
_STOP_S = 10.0
"""Maximum wait until a process stops or ends, seconds."""
_PROBE_S = 20.0
_LONGEST_LOG = 64 << 20
_PIDFD_GETFD = 438
"""System call number of pidfd_getfd(2), the same on all architectures."""
_TCP_REPAIR = 19


T = TypeVar("T")
Waiting = Generator[None, None, T]
"""Steps that return a result."""


class Restored:
    """A restored program, represented by the holder of its process namespace, which ends as the program does.

    root: the program's first process. home: the program's first working folder, as seen by the program. before: the
    program's process at the source, whose pipes the restored one has.
    """

    def __init__(self, holder: Running, root: int, home: str, before: Running) -> None:
        self._holder, self.root, self.home = holder, root, home
        self.pid = holder.pid
        self.stdin: IO[bytes] | None = before.stdin
        self.stdout: IO[bytes] | None = before.stdout
        self.poll, self.wait = holder.poll, holder.wait

    def send_signal(self, number: int, /) -> None:
        """Send a signal to the program."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.root, number)

    def kill(self) -> None:
        """Send SIGKILL to the holder, and thereby to all processes in its namespace."""
        self._holder.kill()


@dataclass(slots=True)
class Tree:
    """A program with its children at both ends of a move; a service can have several.

    process: the program at the source; root: its first process. images: name of its folder in each folder of images.
    folder, there: descriptors of its working folder at the source and at the target; -1 for programs of cellbed, which
    have none. there_seen: path of `there` for programs at the target; home: path of `folder` for the program.
    holder, dump: the programs that run CRIU at the target and at the source.
    """

    process: Running
    root: int
    images: str
    folder: int = -1
    there: int = -1
    there_seen: str = "/"
    home: str = "/"
    holder: Helper = field(init=False)
    dump: Helper = field(init=False)


@dataclass(frozen=True, slots=True)
class Images:
    """A folder of images, here and at the target, with a folder for each tree. saved, arrived: their descriptors."""

    path: Path
    saved: int
    arrived: int


class Checkpoint(Strategy):
    """The common steps of all strategies that use CRIU. Each move has a separate object."""

    moves_memory = True
    on_demand = False
    """True if pages are transferred when the copy requests them."""
    tracks_writes = False
    """True if CRIU notes which pages change after a dump."""

    def __init__(self) -> None:
        self.helpers: list[Helper] = []
        self.trees: list[Tree] = []
        self._dumps: list[Helper] = []
        self._stopped: list[int] = []
        self._arriving: tuple[int, list[str]] = -1, []
        self.held = contextlib.ExitStack()

    @classmethod
    def lacks(cls) -> str | None:
        return _find_obstacle(cls)

    def move(self, move: Move) -> Steps:
        self.trees = self._open(move)
        last = self.folders(move, "images")
        with move.phase("prepare"):
            for tree in self.trees:
                yield from self._start_programs(move, tree, last)
        before = yield from self.rounds(move)
        yield from move.channel.prepare(last.saved, last.arrived)
        begin_ns = time.monotonic_ns()
        with move.phase("snapshot") as found:
            yield from self._save(move, last, before)
            found["snapshot_bytes"] = sum(
                each.stat().st_size for each in last.path.glob("*/*") if not each.is_symlink()
            )
        own = self.trees[0]
        names = files_that_move(move, self._stopped, own) if own.folder >= 0 else []
        with move.phase("transfer"):
            yield from move.channel.send(last.saved, last.arrived)
            if names:
                self._arriving = own.there, sorted({*names} - {*names_in(own.there)})
                yield from move.channel.send(own.folder, own.there, names)
        with move.phase("restore"):
            yield from self._restore(move, last)
        move.facts["stood_still_s"] = (time.monotonic_ns() - begin_ns) / 1e9
        yield from self.complete(move)
        for tree in self.trees:
            self.helpers.remove(tree.holder)  # a holder lives as long as its program
        yield from self._leave(move)
        for name in names:  # else they would come back with the program
            remove(own.folder, name)
        self._close()

    def _open(self, move: Move) -> list[Tree]:
        """Open the folders of the program at both nodes. Errors: :class:`MigrationError`."""
        if isinstance(move.program, OwnService):
            return [Tree(each, root_of(each), str(number)) for number, each in enumerate(move.program.processes)]
        process = move.program.process
        if process is None:
            raise MigrationError(f"{move.program.name} does not run")
        if move.states.is_connected(move.program.name):
            raise MigrationError(f"CRIU cannot move the connection of {move.app} to CELLBED_STATE: use 'state'")
        work = move.program.command.folder or ""
        try:
            folder = self.held.enter_context(close_after(move.source.open_folder(work)))
            there = self.held.enter_context(close_after(move.target.open_folder(work, make=True)))
        except OSError as error:
            raise MigrationError(f"the folder of {move.program.name}: {error}") from error
        seen = move.source.inside(work)
        home = process.home if isinstance(process, Restored) else seen
        # Absolute paths are the same for all namespaces.
        is_shared = seen == "/" or (work.startswith("/") and not move.source.own_files)
        return [
            Tree(process, root_of(process), "0", -1 if is_shared else folder, there, move.target.inside(work), home)
        ]

    def _start_programs(self, move: Move, tree: Tree, images: Images) -> Steps:
        """Start the programs that run CRIU at the target and at the source. Errors: :class:`MigrationError`."""
        inherited = external_files(tree.root) | own_pipes(tree.process, tree.root)
        for each in inherited.values():
            self.held.callback(os.close, each)
        arrived = self.held.enter_context(close_after(os.open(tree.images, os.O_RDONLY, dir_fd=images.arrived)))
        # Programs of cellbed run outside the containers of their nodes.
        is_own = isinstance(move.program, OwnService)
        tree.holder = self.start(
            move.target,
            (arrived, *inherited.values()),
            role="hold",
            images=arrived,
            inherited=inherited,
            inside=None if is_own else move.target.first_process,
            first=str(INIT),
            last_id=_free_number(tree.root),
            bind=(tree.there_seen, tree.home) if tree.there_seen != tree.home else None,
        )
        external = [option for name in inherited if name.startswith("file") for option in ("--external", name)]
        pages = yield from self.prepare(move, arrived)
        tree.dump = self.start(
            move.source,
            () if pages is None else (pages.fileno(),),
            role="dump",
            inside=None if is_own else move.source.first_process,
            process=tree.root,
            folder=str(move.folder),
            options=[*_DUMP, *external],
            pages=None if pages is None else pages.fileno(),
        )
        self._dumps.append(tree.dump)
        if pages is not None:
            pages.close()
        yield from wait(tree.dump, "ready", CRIU_S)
        yield from wait(tree.holder, "ready", CRIU_S)
        tcp, udp = ports_in_use(tree.holder.process.pid)
        if in_use := {*tcp} & move.ports | {*udp} & move.udp_ports:
            raise MigrationError(f"port {min(in_use)} of {move.target.name} is in use already")

    def _save(self, move: Move, images: Images, before: Images | None) -> Steps:
        """Stop and dump the program. before: images of the round before, if there was one."""
        yield from _filter(move, move.source, _LOCKED)
        yield  # let the program accept queued connections
        for tree in self.trees:
            yield from stop(tree.root, self._stopped)
        yield from self.dump("dump", images, before)
        moves = dict(zip(move.source_addresses, move.target_addresses, strict=True))
        for tree in self.trees:
            files = images.path / tree.images / "files.img"
            files.write_bytes(replace_addresses(files.read_bytes(), moves))

    def _restore(self, move: Move, images: Images) -> Steps:
        """Restore the program at the target and continue it. Errors: :class:`MigrationError`."""
        options = [*_RESTORE, *(yield from self.before_restore())]
        # Restored sockets send packets, and clients would reset connections from an unknown address.
        yield from _filter(move, move.target, _LOCKED)
        restored = []
        for tree in self.trees:
            tree.holder.command(options=options)
        for tree in self.trees:
            if (yield from wait(tree.holder, "done", CRIU_S)):
                why = _log(f"/proc/self/fd/{images.arrived}", f"{tree.images}/restore")
                raise MigrationError(f"criu cannot restore {move.app} at {move.target.name}: {why}")
            process = tree.holder.process
            restored.append(Restored(process, _newest_child(process.pid), tree.home, tree.process))
        self.after_restore()
        move.adopt(restored)
        move.switch(established=True)
        yield from _filter(move, move.target, ())
        for each in (process for copy in restored for process in descendants(copy.root)):
            os.kill(each, signal.SIGCONT)

    def _leave(self, move: Move) -> Steps:
        """End the program at the source without sending packets. Errors: :class:`MigrationError`."""
        sockets, stopped = _silence_sockets(self._stopped), self._stopped
        self._stopped = []
        yield from move.leave(grace=False)
        for each in stopped:  # some may lead other sessions
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        deadline = time.monotonic() + _STOP_S
        while running := [each for each in stopped if status_of(each)[0] not in ENDED]:
            if time.monotonic() > deadline:
                raise MigrationError(f"process {running[0]} has not ended {_STOP_S:g} s after SIGKILL")
            yield
        for socket_there in sockets:
            socket_there.close()
        yield from _filter(move, move.source, _SILENT)

    def undo(self, move: Move) -> Steps:
        for helper in self.helpers:
            if helper not in self._dumps:
                helper.close()  # end the copy first
        self.after_restore(failed=True)
        for dump in self._dumps:
            dump.request_stop()
        deadline = time.monotonic() + _PATIENCE_S
        while any(dump.process.poll() is None for dump in self._dumps) and time.monotonic() < deadline:
            yield
        for name in self._arriving[1]:
            remove(self._arriving[0], name)
        self._close()
        if self._stopped:
            with contextlib.suppress(CellbedError):
                yield from _filter(move, move.source, ())
                yield from _filter(move, move.target, ())
        for each in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)

    def predict_end(self, move: Predicted, size: int, stopped_ns: int, beside_ns: int | None = 0) -> PredictedSteps:
        """Send the last images in virtual time, and continue the program at the target. size: bytes. stopped_ns: time
        when it stopped. beside_ns: time of the transfer without the links'."""
        with move.phase("transfer"):
            yield from move.send(size, beside_ns)
        with move.phase("restore"):
            yield move.model.restore or 0
            with move.phase("switch"):
                yield move.model.switch or 0
            move.resume()
        move.facts["stood_still_s"] = (move.now_ns - stopped_ns) / 1e9

    @staticmethod
    def obstacle() -> str | None:
        """Return a limit of this machine that prevents the strategy, with the remedy."""
        return None

    def folders(self, move: Move, name: str) -> Images:
        """Make a folder for images of each tree, here and at the target. Errors: ``OSError``."""
        (move.folder / name).mkdir()
        os.mkdir(name, dir_fd=move.target_folder)
        here = self.held.enter_context(close_after(os.open(move.folder / name, os.O_RDONLY)))
        there = self.held.enter_context(close_after(os.open(name, os.O_RDONLY, dir_fd=move.target_folder)))
        for tree in self.trees:
            for each in (here, there):
                os.mkdir(tree.images, dir_fd=each)
        return Images(move.folder / name, here, there)

    def prepare(self, move: Move, arrived: int) -> Waiting[socket.socket | None]:
        """Start the programs that fetch pages on demand; return the dumping program's connection, if any."""
        yield from ()
        return None

    def rounds(self, move: Move) -> Waiting[Images | None]:
        """Send memory in advance while the program runs; return the last images that were sent."""
        yield from ()
        return None

    def before_restore(self) -> Waiting[list[str]]:
        """Return further options of CRIU for the restoration."""
        yield from ()
        return []

    def after_restore(self, *, failed: bool = False) -> None:
        """Take the last steps before the copy runs, or undo them after a failure."""

    def complete(self, move: Move) -> Steps:
        """Wait until the copy no longer needs the source."""
        yield from ()

    def start(self, node: Backend, descriptors: Sequence[int], **config: Any) -> Helper:
        """Start the program that runs CRIU for a node. descriptors: file descriptors to inherit. config: role and
        settings.

        Errors: :class:`MigrationError`.
        """
        try:
            helper = Helper(node, _PROGRAM, {**config, "criu": asdict(find_criu())}, descriptors=descriptors)
        except OSError as error:
            raise MigrationError(f"{node.name}: cannot start CRIU: {error}") from error
        self.helpers.append(helper)
        return helper

    def dump(self, verb: str, images: Images, before: Images | None) -> Steps:
        """Dump the program into folders. verb: command of CRIU. before: images that have the pages written earlier."""
        options = ["--track-mem"] if self.tracks_writes else []
        for tree in self.trees:
            if before is not None:
                options = ["--track-mem", "--prev-images-dir", f"../../{before.path.name}/{tree.images}"]
            tree.dump.command(verb=verb, images=f"{images.path.name}/{tree.images}", options=options)
        for tree in self.trees:
            deadline = time.monotonic() + CRIU_S
            while (status := tree.dump.next("done")) is None:
                if self.on_demand and tree.dump.next("serving"):
                    break
                if time.monotonic() > deadline:
                    raise MigrationError(f"criu has not dumped the program within {CRIU_S:g} s")
                yield
            else:
                if status != 0 or self.on_demand:
                    raise MigrationError(f"criu cannot dump the program: {_log(str(images.path / tree.images), verb)}")

    def _close(self) -> None:
        for helper in self.helpers:
            helper.close()
        self.helpers.clear()
        self.held.close()


def _free_number(root: int) -> int:
    """Return a number; the next hundred are no ids of the program's processes and threads."""
    tasks = (task.name for process in descendants(root) for task in Path(f"/proc/{process}/task").iterdir())
    used = {innermost(int(task)) for task in tasks}
    return next(least for least in range(300, 1 << 15, 100) if used.isdisjoint(range(least, least + 101)))


def _newest_child(holder: int) -> int:
    """Return the restored program, below the holder of its namespace and next to the namespace's first process. In a
    container, another process lies between holder and program."""
    below = list_children(holder)
    return (below if len(below) > 1 else list_children(below[0]))[-1]


def root_of(process: Running) -> int:
    """Return the id of a program's first process, which CRIU dumps with its children."""
    if isinstance(process, Restored):
        return process.root
    if isinstance(process, Executed):
        return list_children(process.pid)[0]
    return process.pid


def stop(root: int, stopped: list[int]) -> Steps:
    """Stop a process and its children, and wait until they have stopped. stopped: gets all processes that were
    signalled.

    Errors: :class:`MigrationError` for a process that does not stop, such as one that waits for a disk.
    """
    deadline = time.monotonic() + _STOP_S
    while new := [each for each in descendants(root) if each not in stopped]:
        for process in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGSTOP)
        stopped += new
        while running := [process for process in new if status_of(process)[0] not in (*ENDED, "T")]:
            if time.monotonic() > deadline:
                state = status_of(running[0])[0]
                raise MigrationError(f"process {running[0]} does not stop within {_STOP_S:g} s: state {state}")
            yield


def external_files(root: int) -> dict[str, int]:
    """Return the open files of a program outside its own mounts, such as its output: descriptors of this process, by
    their names for CRIU. A path could lead to another file."""
    found: dict[str, int] = {}
    for process in descendants(root):
        folder = Path(f"/proc/{process}")
        with contextlib.suppress(OSError), close_after(os.pidfd_open(process)) as owner:
            mounts = {line.split()[0] for line in (folder / "mountinfo").read_text(encoding="utf-8").splitlines()}
            for link in (folder / "fd").iterdir():
                details = (folder / "fdinfo" / link.name).read_text(encoding="utf-8").split()
                mount = details[details.index("mnt_id:") + 1]
                name = f"file[{int(mount):x}:{link.stat().st_ino:x}]"
                if str(link.readlink()).startswith("/") and mount not in mounts and name not in found:
                    found[name] = _take(owner, int(link.name))
    return found


def own_pipes(process: Running, root: int) -> dict[str, int]:
    """Return the pipes between a program and this process: descriptors as in :func:`external_files`."""
    ends = [each.fileno() for each in (process.stdin, process.stdout) if each is not None and not each.closed]
    names = {f"pipe:[{os.fstat(each).st_ino}]" for each in ends}
    found: dict[str, int] = {}
    for each in descendants(root) if names else ():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # the process has ended
            for _, duplicate in duplicate_descriptors(each, names.__contains__):
                name = f"pipe:[{os.fstat(duplicate).st_ino}]"
                if found.setdefault(name, duplicate) != duplicate:
                    os.close(duplicate)
    return found


def files_that_move(move: Move, processes: Sequence[int], tree: Tree) -> list[str]:
    """Return the names in the folder of a program that move with it: all names, or only its open files and folders if
    another program of either node shares the folder.

    Errors: :class:`MigrationError` for a name that another program also uses.
    """
    everything = sorted(each for each in names_in(tree.folder) if not each.startswith(".cellbed-migration-"))
    assert isinstance(move.program, UnmodifiedProgram)
    sharing = [each for each in move.neighbours if each.shares(move.program.command)]
    if not sharing:
        return everything
    own = names_in_use(processes, tree.home)
    for program in sharing:
        if (process := program.process) is None:
            continue
        node = move.source if program.node == move.source.name else move.target
        seen = process.home if isinstance(process, Restored) else node.inside(program.command.folder or "")
        if both := own & names_in_use(descendants(root_of(process)), seen):
            raise MigrationError(
                f"{program.name} uses '{min(both)}' on {program.node}, too: give one of them a `folder`"
            )
    return [name for name in everything if name in own]


def names_in_use(processes: Sequence[int], folder: str) -> set[str]:
    """Return the names in a folder that processes use: open files and folders, mapped files, working folders."""
    found: set[str] = set()
    for process in processes:
        for link in ("cwd", "fd", "map_files"):
            path = Path(f"/proc/{process}/{link}")
            with contextlib.suppress(OSError):
                for each in [path] if link == "cwd" else path.iterdir():
                    with contextlib.suppress(OSError, ValueError):
                        found.update(each.readlink().relative_to(folder).parts[:1])
    return found


def duplicate_descriptors(process: int, is_wanted: Callable[[str], bool]) -> Iterator[tuple[int, int]]:
    """Yield another process's descriptors with duplicates. is_wanted: selects descriptors by the link to their file.

    Errors: ``OSError``.
    """
    with close_after(os.pidfd_open(process)) as owner:
        for link in Path(f"/proc/{process}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if is_wanted(str(link.readlink())):
                    yield int(link.name), _take(owner, int(link.name))


def _take(owner: int, number: int) -> int:
    found: int = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, owner, number, 0)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def _silence_sockets(processes: Sequence[int]) -> list[socket.socket]:
    """Return the processes' sockets, silenced: their end sends no packet, since the connections have moved.

    The kernel closes sockets under repair without a packet (``tcp_disconnect`` in net/ipv4/tcp.c).
    """
    found = []
    for process in processes:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # the process has ended, or is a zombie
            for _, descriptor in duplicate_descriptors(process, lambda name: name.startswith("socket:")):
                found.append(socket.socket(fileno=descriptor))
                with contextlib.suppress(OSError):  # the socket is not TCP, or listens
                    found[-1].setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
    return found


_LOCKED = ("input {} dport", "output {} sport")
"""Packets dropped while the program is stopped: hook of the filter, and field with the program's ports."""
_SILENT = ("output {} flags & rst == rst {} sport",)
"""Packets dropped afterwards at the source: no reset in reply to late packets may close a moved connection."""


def _filter(move: Move, node: Backend, dropped: Sequence[str]) -> Steps:
    """Replace the packet filter of a node for the program's ports. dropped: packets to drop; empty for no filter.

    Errors: :class:`MigrationError`.
    """
    name = "inet cellbed_" + move.app.replace("-", "_")
    chains = []
    for number, each in enumerate(dropped):
        hook, _, match = each.partition(" ")
        rules = [
            f"{match.format(*(protocol, protocol))} {{ {', '.join(map(str, sorted(ports)))} }} drop; "
            for protocol, ports in (("tcp", move.ports), ("udp", move.udp_ports))
            if ports and not (protocol == "udp" and "flags" in match)
        ]
        chains.append(f"chain c{number} {{ type filter hook {hook} priority -300; {''.join(rules)}}}\n")
    again = f"table {name} {{\n{''.join(chains)}}}\n" if chains else ""
    if move.ports or move.udp_ports:
        yield from _nft(f"table {name}\ndelete table {name}\n{again}", node)


def _nft(rules: str, node: Backend) -> Steps:
    assert node.place is not None  # CRIU moves between nodes of this machine
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as errors:
        source.write(rules.encode())
        source.seek(0)
        try:
            process = spawn(
                ["nft", "-f", "-"],
                node.place,
                keep_capabilities=True,
                stdin=source,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise MigrationError(f"cannot run nft: {error}") from error
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while process.poll() is None and time.monotonic() < deadline:
                yield
        finally:
            kill(process)
        if process.returncode != 0:
            errors.seek(0)
            why = errors.read().decode(errors="replace").strip().splitlines()
            raise MigrationError(f"nft -f -: {why[0] if why else f'exit status {process.returncode}'}")


def _log(folder: str, verb: str) -> str:
    try:
        return refusal(read(folder, PurePath(f"{verb}.log"), _LONGEST_LOG).decode(errors="replace"))
    except OSError:
        return "it has written no log"


@functools.cache
def _find_obstacle(strategy: type[Checkpoint]) -> str | None:
    try:
        find_criu()
    except CriuError as error:
        return str(error)
    if os.geteuid() != 0:
        return "CRIU needs root: run as root"
    if find("nft") is None:
        return "the packets of a stopped program are held by nft: sudo apt install nftables"
    if (found := strategy.obstacle()) is not None:
        return found
    with temporary_folder() as folder:
        try:
            _try(strategy(), folder)
        except (CellbedError, OSError) as error:
            return f"a trial of CRIU failed ({error}): name another one with {VARIABLE}=/path/to/criu"
    return None


def prepare_trial(folder: Path, command: Sequence[str], strategy: str = "stop-and-copy") -> Move:
    """Return the move of a program within the namespaces of this process; the program has not started. folder: of the
    program (``work``) and of both ends."""
    place = Place(network_namespace="/proc/self/ns/net")
    address = ("127.0.0.1", "::1")
    source, target = (NamespaceNode(Setup(f"trial-{end}", place, addresses=address)) for end in ("source", "target"))
    for name in ("work", "source", "target"):
        (folder / name).mkdir()
    described = Command("trial", "trial", tuple(command), folder=str(folder / "work"))
    settings: dict[str, Any] = {"strategy": strategy, "compression": 0, "rate": None, "congestion_control": None}
    table = Migration.model_construct(None, app="trial", to="target", **settings)
    return Move(
        app="trial",
        table=table,
        program=UnmodifiedProgram(described, source, folder),
        source=source,
        target=target,
        source_addresses=address,
        target_addresses=address,
        ports=frozenset(),
        udp_ports=frozenset(),
        folder=folder / "source",
        target_folder=os.open(folder / "target", os.O_RDONLY),
        channel=TcpChannel(source, target),
        states=StateSockets(folder),
        account=Account(table, 0, "source", Journal(folder)),
        neighbours=(),
        make_program=lambda: UnmodifiedProgram(described, target, folder),
        redirect=lambda _: None,
    )


def _try(strategy: Checkpoint, folder: Path) -> None:
    """Move a sleeping program within the namespaces of this process. Errors: :class:`CellbedError`, ``OSError``."""
    move = prepare_trial(folder, ("sleep", "1000"))
    move.program.start()
    try:
        deadline = time.monotonic() + _PROBE_S
        for _ in strategy.move(move):
            if time.monotonic() > deadline:
                raise MigrationError(f"it took more than {_PROBE_S:g} s")
            time.sleep(0.002)
        if move.started is None or move.started.process is None or move.started.process.poll() is not None:
            raise MigrationError("the restored program has ended")
    except BaseException:
        for _ in strategy.undo(move):
            time.sleep(0.002)
        raise
    finally:
        move.program.crash()
        if move.started is not None:
            move.started.crash()
        move.channel.close()
        move.states.close()
        os.close(move.target_folder)
