"""The network of a shell: the two ends of its link, addresses, translation and forwarding.

The network helper (``crates/nethelper``) creates the network, and removes it when this process ends, even after
SIGKILL. For a privileged user, the helper is a fork of this process. For an ordinary user with the permission, it is a
program with the necessary capabilities.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, NoReturn

from cellbed.shell.helper import NetworkError
from cellbed.shell.wayout import Pair
from cellbed.testbed.machine.privilege import NETWORK_HELPER
from cellbed.testbed.machine.process import Place, spawn
from cellbed_node.processes import last_line

_PATIENCE_S = 20.0
# The dynamic linker removes these from the environment of a program with capabilities (ld.so(8)).
_REMOVED = (
    "LD_",
    "MALLOC_",
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "LOCPATH",
    "NIS_PATH",
    "NLSPATH",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "TMPDIR",
    "TZDIR",
)


@dataclass(slots=True)
class Gateway:
    """The network of one shell. Use :meth:`start` and :meth:`close`.

    pair: addresses of both ends. outer: place of the outer end, ``None`` for the current namespaces. ipv6: whether IPv6
    leads beyond the gateway. device, inner_device: names of the devices. table: name of the packet filter's table.
    """

    pid: int
    granted: bool
    outer: Place | None
    pair: Pair
    ipv6: bool
    device: str
    inner_device: str
    table: str
    _socket: socket.socket
    _tuns: tuple[int, ...]
    _netlinks: tuple[int, ...]
    _namespace: int

    @classmethod
    def start(
        cls, request: Sequence[str], *, granted: bool = False, connect: Callable[[Place], None] | None = None
    ) -> Gateway:
        """Have the helper create a network. request: arguments of ``serve``.

        granted: use the installed helper. connect: with ``--private``, connects the namespaces of the outer end to the
        host before they are used; without it, they stay isolated.
        Errors: :class:`NetworkError`, and the errors of `connect`; nothing is left behind.
        """
        pid, ours, errors = _fork(["serve", *request], granted)
        place = None
        try:
            event, descriptors = _receive(ours, errors)
            if event["event"] == "private":
                user = f"/proc/{pid}/ns/user" if event["user_namespace"] else None
                place = Place(f"/proc/{pid}/ns/net", user)
                if connect is not None:
                    connect(place)
                    ours.sendall(b"go\n")
                event, descriptors = _receive(ours, errors)
        except BaseException:
            ours.close()
            _reap(pid)
            raise
        finally:
            os.close(errors)
        outer, inner, outer_netlink, inner_netlink, namespace = descriptors
        return cls(
            pid,
            granted,
            place,
            Pair(
                IPv4Address(event["gateway"]),
                IPv4Address(event["inside"]),
                IPv6Address(event["gateway_ipv6"]),
                IPv6Address(event["inside_ipv6"]),
            ),
            event["ipv6"],
            event["device"],
            event["inner_device"],
            event["table"],
            ours,
            (inner, outer),
            (inner_netlink, outer_netlink),
            namespace,
        )

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The devices inside and outside, as entries of the emulator's configuration."""
        devices = zip((self.inner_device, self.device), self._tuns, self._netlinks, strict=True)
        return [{"name": name, "descriptor": tun, "netlink": netlink} for name, tun, netlink in devices]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Return the descriptors that the emulator must inherit."""
        return (*self._tuns, *self._netlinks)

    @property
    def namespace_inode(self) -> int:
        """The inode number of the inner network namespace."""
        return os.fstat(self._namespace).st_ino

    def hand_over(self) -> None:
        """Close the descriptors that the emulator has inherited: the devices then end with the emulator."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self._tuns = self._netlinks = ()

    def lead_names_to(self, port: int) -> None:
        """Redirect DNS queries at the gateway to a server there on `port`. Errors: :class:`NetworkError`."""
        try:
            self._socket.sendall(b"names %d\n" % port)
        except OSError as error:
            raise NetworkError(f"the network helper has ended: {error.strerror}") from error
        _receive(self._socket, None)

    def spawn(
        self, command: Sequence[str], *, environment: Mapping[str, str], binds: Sequence[tuple[str, str]]
    ) -> subprocess.Popen[bytes]:
        """Start `command` inside, with the standard streams of this process.

        binds: as in :class:`Place`. Errors: ``OSError`` as in :func:`cellbed.testbed.machine.process.spawn`.
        """
        if self.granted:
            return self._spawn_granted(command, environment, binds)
        return spawn(
            command, self.inner(binds), environment=environment, stdin=None, own_session=False, keep_capabilities=True
        )

    def inner(self, binds: Sequence[tuple[str, str]] = ()) -> Place:
        """Return the place inside, for a user who is privileged there. binds: as in :class:`Place`."""
        user = self.outer.user_namespace if self.outer is not None else None
        return Place(f"/proc/{os.getpid()}/fd/{self._namespace}", user, tuple(binds))

    def _spawn_granted(
        self, command: Sequence[str], environment: Mapping[str, str], binds: Sequence[tuple[str, str]]
    ) -> subprocess.Popen[bytes]:
        report, report_write = os.pipe()
        removed = [f"{name}={value}" for name, value in environment.items() if name.startswith(_REMOVED)]
        if removed:
            if shutil.which(command[0], path=environment.get("PATH")) is None:
                raise FileNotFoundError(command[0])
            command = ["/usr/bin/env", *removed, *command]
        resolv_conf = [
            word for source, target in binds if target == "/etc/resolv.conf" for word in ("--resolv-conf", source)
        ]
        request = ["enter", str(self._namespace), str(report_write), *resolv_conf, "--", *command]
        try:
            process = subprocess.Popen(
                [str(NETWORK_HELPER), *request], env=dict(environment), pass_fds=(self._namespace, report_write)
            )
        finally:
            os.close(report_write)
        with os.fdopen(report, "rb") as file:
            text = file.read()
        if not text:
            return process
        process.wait()
        problem = json.loads(text)
        kinds = {127: FileNotFoundError, 126: PermissionError}
        raise kinds.get(problem["status"], OSError)(problem["message"])

    def close(self) -> None:
        """Have the helper remove the network, and wait for its end."""
        self.hand_over()
        os.close(self._namespace)
        self._socket.close()
        _reap(self.pid)


def _fork(arguments: list[str], granted: bool) -> tuple[int, socket.socket, int]:
    """Start the helper; return (process id, our end of its socket, file of its standard error)."""
    from cellbed import _core

    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as file:
        errors = os.dup(file.fileno())
    pid = os.fork()
    if pid == 0:
        _become_helper(_core.network_helper, arguments, granted, theirs.fileno(), errors)
    theirs.close()
    return pid, ours, errors


def _become_helper(
    serve: Callable[[list[str]], bool], arguments: list[str], granted: bool, stdin: int, stderr: int
) -> NoReturn:
    """In the child: detach from the terminal, close all descriptors of the parent except the socket, and serve."""
    status = 1
    try:
        os.setsid()
        # `killall -9 mm-delay` must not end the helper, too.
        with contextlib.suppress(OSError):
            Path("/proc/self/comm").write_text(NETWORK_HELPER.name, encoding="utf-8")
        # The helper ends with the parent, not by a signal to the whole group.
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for source, target in ((stdin, 0), (null, 1), (stderr, 2)):
            os.dup2(source, target)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        if granted:
            os.execv(NETWORK_HELPER, [str(NETWORK_HELPER), *arguments])
        status = 0 if serve(arguments) else 1
    except BaseException as error:
        os.write(2, f"{error}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def _receive(ours: socket.socket, errors: int | None) -> tuple[dict[str, Any], list[int]]:
    """Return the helper's next event with its descriptors. Errors: :class:`NetworkError`."""
    text = b""
    descriptors: list[int] = []
    deadline = time.monotonic() + _PATIENCE_S
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([ours], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise NetworkError(f"the network helper did not answer within {_PATIENCE_S:g} s")
        # Read single bytes: the next event may follow immediately.
        part, more, _, _ = socket.recv_fds(ours, 1, 8)
        descriptors += more
        if not part:
            raise NetworkError(_last_line(errors) or "the network helper ended unexpectedly")
        text += part
    event: dict[str, Any] = json.loads(text)
    if event["event"] == "error":
        raise NetworkError(event["message"])
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return event, descriptors


def _last_line(errors: int | None) -> str:
    line = last_line(os.pread(errors, 4096, 0)) if errors is not None else None
    return (line or "").removeprefix("cellbed-net: ")


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
