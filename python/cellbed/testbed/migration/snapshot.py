"""The program that runs CRIU in the namespaces of a node; ``python -m cellbed.testbed.migration.snapshot CONFIG``.

It prints JSON lines: ``ready`` first, then ``done``, the exit status of CRIU. There are three roles:

* ``dump``: enters all namespaces of a process, and dumps the process and its children at each line of input;
* ``hold``: makes a process namespace with private files and free process ids in the node. At a line of input, it
  restores a program there. It then ends when the program ends, with the same status;
* ``pages``: relays the pages of a restored program, which CRIU fetches over a connection.

CRIU may be invisible in the namespaces. It is started through a descriptor of this machine's root folder, and finds its
images through a descriptor of their folder. A container's programs can write to all files that CRIU finds by a path:
so CRIU loads neither configuration nor plugins, and its loader no preloaded libraries.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.migration.criu import Criu, lazy_pages
from cellbed.testbed.migration.pages import relay
from cellbed.testbed.migration.transfer import report
from cellbed.testbed.nodes.copies import names_in

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _NEW_PROCESSES = 0x20000, 0x20000000
_BIND, _RECURSIVE_PRIVATE = 4096, 16384 | 262144
_DIE_WITH_PARENT = 1
_KEEP_CAPABILITIES, _AMBIENT, _RAISE = 8, 47, 2
_CAPABILITIES_VERSION = 0x20080522
_SYS_RESOURCE = 24
"""Constants of linux/prctl.h and linux/capability.h."""
_BYTES_SENT = struct.Struct("=Q"), 200
"""``tcpi_bytes_sent`` of ``tcp_info`` (linux/tcp.h) and its offset."""
_TCP_INFO = 11
_EXECUTABLE = 16
_PRELOADED, _CACHE = b"/etc/ld.so.preload", b"/run/criu.kdat"
"""Files that the loader and CRIU read in the namespace, where a program of a container could have written them."""
_PAGEMAP = re.compile(r"pagemap-(\d+)\.img")
_EVERY_S = 0.005


def _call(name: str, *arguments: Any) -> int:
    """Call a function of the C library. Errors: ``OSError``."""
    result: int = getattr(_LIBC, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def _enter(process: int, names: Sequence[str]) -> None:
    opened = [os.open(f"/proc/{process}/ns/{name}", os.O_RDONLY) for name in names]
    for descriptor in opened:
        _call("setns", descriptor, 0)
        os.close(descriptor)


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    _call("mount", source.encode(), target.encode(), kind.encode() if kind else None, flags, None)


def _fork() -> int:
    """Fork; the child dies with its parent."""
    child = os.fork()
    if child == 0:
        _call("prctl", _DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    return child


def _become(user: int, group: int) -> None:
    """Take the user and group of a program, and keep all capabilities, also beyond the next execution."""
    os.setgroups([])
    os.setresgid(group, group, group)
    _call("prctl", _KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setresuid(user, user, user)
    permitted = _capabilities()
    words = [permitted & 0xFFFFFFFF] * 3 + [permitted >> 32] * 3  # effective, permitted, inheritable
    _call("capset", struct.pack("=Ii", _CAPABILITIES_VERSION, 0), struct.pack("=6I", *words))
    for number in range(permitted.bit_length()):
        if permitted >> number & 1:
            _call("prctl", _AMBIENT, _RAISE, number, 0, 0)


def _capabilities() -> int:
    """Return the capabilities that this process may have, as a bit mask."""
    return int(_status("self", "CapPrm"), 16)


def _copy_program(program: str, unread: bytes) -> int:
    """Return a descriptor of a copy of a program where the path of a file is empty, so that it does not read it."""
    try:
        made = os.memfd_create("criu", os.MFD_CLOEXEC | _EXECUTABLE)
    except OSError:  # Linux before 6.3
        made = os.memfd_create("criu")
    with open(made, "wb", closefd=False) as file:
        file.write(Path(program).read_bytes().replace(unread, bytes(len(unread))))
    return made


class _Tool:
    """CRIU, to be started in other namespaces. root, program, images: inherited descriptors."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._criu = Criu(**config["criu"])
        self._root = os.open("/", os.O_PATH)
        self._loader = _copy_program(self._criu.loader, _PRELOADED)
        # Outside containers, the cache is safe and saves 0.1 s.
        self._program = _copy_program(self._criu.program, _CACHE if config.get("inside") is not None else b"")
        self.user: tuple[int, int] | None = None

    def run(self, arguments: Sequence[str], images: int) -> NoReturn:
        """Become CRIU. images: descriptor of the folder of its images and its log."""
        Path("/tmp").mkdir(exist_ok=True)  # CRIU tests mounts there; an image may lack the folder
        _, *command, _ = self._criu.command(f"/proc/self/fd/{self._root}")
        for each in (images, self._root, self._program):
            os.set_inheritable(each, True)
        folder = f"/proc/self/fd/{images}"
        verb, *options = arguments
        if self.user is not None:
            _become(*self.user)
            options.append("--unprivileged")
        options += ["--no-default-config", "--libdir", "/proc/self/fdinfo"]
        command = ["criu", "--inhibit-cache", *command, f"/proc/self/fd/{self._program}", verb, "-D", folder]
        command += ["-o", f"{verb}.log", "-v3", *options]
        # Drop other variables that name files, such as XDG_RUNTIME_DIR.
        environment = {"GNUTLS_SYSTEM_PRIORITY_FILE": "", RUN_VARIABLE: os.environ[RUN_VARIABLE]}
        os.execve(self._loader, command, environment)


def _dump(config: dict[str, Any]) -> None:
    """Dump a process.

    config: *process*, id of the process on this machine; *inside*, as in :func:`_hold`; *folder*, parent of the images'
    folders; *options* of CRIU; *pages*, connection for pages on demand, or null. A line of input has *verb*, ``dump``
    or ``pre-dump``; *images*, name of a folder; and further *options*.
    """
    tool = _Tool(config)
    folder = os.open(config["folder"], os.O_PATH | os.O_DIRECTORY)
    options = ["--tree", str(innermost(config["process"])), *config["options"]]
    connection: socket.socket | None = None
    if config["pages"] is not None:
        connection = socket.socket(fileno=config["pages"])
        connection.settimeout(None)
        options += ["--lazy-pages", "--ps-socket", str(connection.fileno())]
    user = int(_status(config["process"], "Uid"))
    if user and not _capabilities() >> _SYS_RESOURCE & 1:  # required to read others' limits (prlimit(2))
        tool.user = user, int(_status(config["process"], "Gid"))
    if config["inside"] is not None:
        _enter(config["inside"], ("ipc",))  # else CRIU would dump the IPC namespace
    _enter(config["process"], ("pid", "uts", "net", "mnt"))
    report(ready=True)
    while line := sys.stdin.readline():
        command = json.loads(line)
        images = os.open(command["images"], os.O_PATH | os.O_DIRECTORY, dir_fd=folder)
        status, child = _start(tool, [command["verb"], *options, *command["options"]], images)
        if connection is not None:
            if os.read(status, 1):
                report(serving=True)
            _serve_pages(connection, child)
        report(done=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def _serve_pages(connection: socket.socket, child: int) -> None:
    """Report the bytes that CRIU sends until it ends; close the connection when the input ends."""
    form, offset = _BYTES_SENT
    last = 0
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        sent = form.unpack_from(connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256), offset)[0]
        if sent != last:
            report(sent=sent)
        last = sent
        if select.select([sys.stdin], [], [], _EVERY_S)[0]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            return


def _start(tool: _Tool, options: list[str], images: int) -> tuple[int, int]:
    """Start CRIU; return a descriptor that becomes readable once CRIU serves, and its process."""
    status, reporting = os.pipe()
    os.set_inheritable(reporting, True)
    child = _fork()
    if child == 0:
        tool.run([*options, "--status-fd", str(reporting)], images)
    os.close(reporting)
    return status, child


def innermost(process: int) -> int:
    """Return the id of a process or thread in its own namespace."""
    return int(_status(process, "NSpid"))


def _status(process: int | str, key: str) -> str:
    """Return the last word of a key in a process's status."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    return next(line for line in status.splitlines() if line.startswith(f"{key}:")).split()[-1]


def _hold(config: dict[str, Any]) -> None:
    """Make a namespace for a program, restore the program there, and end as the program ends.

    config: *inside*, a process in the node's namespaces, or null; *first*, path of the program for the first process;
    *bind*, source and target of a folder to mount, or null; *last_id*, process id above which ids are free for CRIU;
    *images*, a folder; *inherited*, descriptors by their names for CRIU. The line of input has *options*.
    """
    tool = _Tool(config)
    for each in (config["images"], *config["inherited"].values()):
        os.set_inheritable(each, False)
    first = os.open(config["first"], os.O_RDONLY)
    os.open("/proc/self/ns/mnt", os.O_RDONLY)  # keeps this namespace, and the mounts below the folder
    if config["inside"] is not None:
        _enter(config["inside"], ("pid", "ipc", "uts", "mnt"))
        child = _fork()
        if child:
            _end_like(os.waitpid(child, 0)[1])
    _call("unshare", _NEW_MOUNTS | _NEW_PROCESSES)
    _mount("none", "/", None, _RECURSIVE_PRIVATE)
    if config["bind"] is not None:
        source, target = config["bind"]
        _mount(source, target, None, _BIND)
    end, begin = os.pipe()
    started, starting = os.pipe()
    init = _fork()
    if init == 0:
        os.close(begin)
        _mount("proc", "/proc", "proc", 2 | 4 | 8)
        # CRIU is a process of this namespace, too, and must not take an id of the program.
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(config["last_id"]), encoding="utf-8")
        for descriptor, ours in enumerate((end, starting, os.open("/dev/null", os.O_RDWR))):
            os.dup2(ours, descriptor)
        os.execve(first, ["init", "hold"], {})
    os.close(starting)
    if not os.read(started, 1):
        raise OSError("no process namespace")
    report(ready=True)
    line = sys.stdin.readline()
    if not line:
        return
    command = json.loads(line)
    options = ["restore", "--restore-detached", "--restore-sibling", *command["options"]]
    for name, descriptor in config["inherited"].items():
        options += ["--inherit-fd", f"fd[{descriptor}]:{name}"]
    child = _fork()
    if child == 0:
        for descriptor in config["inherited"].values():
            os.set_inheritable(descriptor, True)
        tool.run(options, config["images"])
    status = os.waitpid(child, 0)[1]
    report(done=os.waitstatus_to_exitcode(status))
    if status:
        return
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended != init:
            _end_like(status)


def _end_like(status: int) -> NoReturn:
    """End with the status of another process."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _pages(config: dict[str, Any]) -> None:
    """Start CRIU's server of page faults at a line of input, and relay its requests over a connection.

    config: *connection*; *images*, a folder.
    """
    tool = _Tool(config)
    images, connection = config["images"], socket.socket(fileno=config["connection"])
    connection.settimeout(None)
    connection.set_inheritable(False)
    if not sys.stdin.readline():
        return
    ours, its = socket.socketpair()
    its.set_inheritable(True)
    status, child = _start(tool, ["lazy-pages", "--page-server", "--ps-socket", str(its.fileno())], images)
    its.close()
    if os.read(status, 1):
        report(serving=True)
    names = sorted((int(found[1]), found[0]) for each in names_in(images) if (found := _PAGEMAP.fullmatch(each)))
    ranges = []
    for process, name in names:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=images), "rb") as file:
            ranges += [(process, *each) for each in lazy_pages(file.read())]
    with connection, ours:
        relay(connection, ours, ranges)
    report(done=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def main() -> None:
    """Run one of the roles; an error is its last line."""
    config = json.loads(sys.argv[1])
    try:
        {"dump": _dump, "hold": _hold, "pages": _pages}[config["role"]](config)
    except (OSError, ValueError) as error:
        report(error=str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
