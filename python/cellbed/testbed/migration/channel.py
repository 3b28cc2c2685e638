"""The channel of a migration: files from source to target as ordinary TCP traffic over the emulated links.

Two programs (:mod:`~cellbed.testbed.migration.transfer`) run in the nodes' network namespaces and control groups. For
other machines, the namespaces are those through which the machines' packets come. The programs inherit connections that
this process has made.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cellbed.testbed.machine.events import EventProcess
from cellbed.testbed.machine.process import sockets_at, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.migration.strategy import MigrationError, Steps
from cellbed.testbed.migration.transfer import PATIENCE_S, STALL_S, prepare
from cellbed.testbed.nodes.backend import Backend
from cellbed_node.processes import kill

_PROGRAM = "cellbed.testbed.migration.transfer"
_ATTACH_FILTER = 26


class Helper(EventProcess):
    """A program of cellbed for a node: in the node's place, or in the namespace before its machine."""

    def __init__(self, node: Backend, module: str, config: Mapping[str, Any], *, descriptors: Sequence[int] = ()):
        """Start the program. module: module of cellbed; config: its argument, as JSON. descriptors: inherited
        descriptors.

        Errors: ``OSError``.
        """
        self.name, self.node = module.rpartition(".")[2], node.name
        process = spawn(
            [sys.executable, "-P", "-m", module, json.dumps(config)],
            node.place or node.setup.place,
            environment={**os.environ, RUN_VARIABLE: node.setup.run},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            keep_capabilities=True,
            descriptors=descriptors,
        )
        super().__init__(process, Path(os.devnull))

    def command(self, **command: Any) -> None:
        """Send a command to the program. After its end, commands are ignored."""
        with contextlib.suppress(BrokenPipeError):
            self.send(command)

    def collect(self) -> None:
        """Read the program's output so far. Errors: :class:`MigrationError` after an ``error`` of the program."""
        while not self.ended and self.is_readable():
            self.read()
        for event in self.events:
            if "error" in event:
                raise MigrationError(f"{self.node}: {event['error']}")

    def next(self, key: str) -> Any:
        """Take the last printed value of a key; ``None`` if there is none.

        Errors: :class:`MigrationError`, also if the program has ended without this key.
        """
        self.collect()
        found = [event[key] for event in self.events if key in event]
        if found:
            self.events = [event for event in self.events if key not in event]
            return found[-1]
        if self.ended:
            raise MigrationError(f"{self.node}: the program '{self.name}' has ended")
        return None

    def close(self) -> None:
        """End the program."""
        kill(self.process)
        self.request_stop()
        assert self.process.stdout is not None
        self.process.stdout.close()


def wait(helper: Helper, key: str, patience_s: float) -> Generator[None, None, Any]:
    """Wait until a program has printed a key; return the key's value (as the generator's value).

    Errors: :class:`MigrationError`, also if the program has not printed the key within `patience_s`.
    """
    deadline = time.monotonic() + patience_s
    while (value := helper.next(key)) is None:
        if time.monotonic() > deadline:
            raise MigrationError(f"{helper.node}: '{helper.name}' has not reported '{key}' within {patience_s:g} s")
        yield
    return value


def connect(
    source: Backend, target: Backend, *, connections: int = 1, control: str | None = None, rate_bps: int | None = None
) -> Generator[None, None, tuple[list[socket.socket], list[socket.socket]]]:
    """Connect two nodes, or the namespaces before them, over the emulated links; return both ends of the connections.

    Other programs cannot connect meanwhile: the kernel drops packets to the listening sockets unless they are from the
    address and port of the other end. So the sockets look closed, and no flood fills their queues. control, rate_bps:
    as in :class:`TcpChannel`, for all connections. Errors: :class:`MigrationError`, ``OSError``.
    """
    with contextlib.ExitStack() as stack:
        ends: list[list[socket.socket]] = []
        for node in (source, target):
            address = node.setup.addresses[0].partition("/")[0]

            def open_sockets(address: str = address) -> list[socket.socket]:
                made = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(connections)]
                for each in made:
                    each.bind((address, 0))
                return made

            ends.append(sockets_at(node.place or node.setup.place, open_sockets))
            for each in ends[-1]:
                stack.callback(each.close)
                each.setblocking(False)
            yield
        near, listening = ends
        for one, listener in zip(near, listening, strict=True):
            prepare(one, control=control, rate_bps=rate_bps and rate_bps // connections)
            accept_only(listener, *one.getsockname())
            listener.listen(1)
            one.connect_ex(listener.getsockname())
        far: list[socket.socket] = []
        deadline = time.monotonic() + STALL_S
        while len(far) < connections or len(select.select([], near, [], 0)[1]) < connections:
            with contextlib.suppress(BlockingIOError):
                while len(far) < connections:
                    far.append(listening[len(far)].accept()[0])
                    stack.callback(far[-1].close)
            if error := max(one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for one in near):
                raise MigrationError(f"{source.name} cannot connect to {target.name}: {os.strerror(error)}")
            if time.monotonic() > deadline:
                raise MigrationError(f"{source.name} cannot connect to {target.name}: timed out")
            yield
        stack.pop_all()
        for listener in listening:
            listener.close()
        return near, far


def accept_only(listener: socket.socket, address: str, port: int) -> None:
    """Have the kernel drop packets from all other addresses and ports (socket(7), ``SO_ATTACH_FILTER``;
    linux/filter.h)."""
    of_network_header, drop = 0xFFF00000, (0x06, 0, 0, 0)
    program = [
        *((0x20, 0, 0, of_network_header + 12), (0x15, 0, 3, int(IPv4Address(address)))),  # the source address
        *((0x28, 0, 0, 0), (0x15, 0, 1, port), (0x06, 0, 0, 0xFFFFFFFF), drop),  # the source port
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    pointer = struct.pack("HP", len(program), ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)


class TcpChannel:
    """A channel between two nodes, or the namespaces before them, with the migration's settings.

    connections: number of TCP connections. control: the kernel's name of their congestion control; ``None``: the
    source's. level: compression level of zstd; 0: no compression. rate_bps: maximum rate of all connections together.
    """

    def __init__(
        self,
        source: Backend,
        target: Backend,
        *,
        connections: int = 1,
        control: str | None = None,
        level: int = 0,
        rate_bps: int | None = None,
    ) -> None:
        self.sent_bytes, self.control, self.rate_bps = 0, control, rate_bps
        self.on_link_ns = self._began_ns = 0
        self._source, self._target = source, target
        self._level = level
        self._options: dict[str, Any] = {"connections": connections, "control": control, "rate_bps": rate_bps}
        self._helpers: list[Helper] = []
        self._prepared: tuple[int, int, Helper, Helper] | None = None

    def prepare(self, source: int, target: int) -> Steps:
        """Connect, and start the programs in advance for the next :meth:`send` of these files, which then begins
        without delay.

        Errors: :class:`MigrationError`.
        """
        self._prepared = source, target, *(yield from self._start(source, target, waits=True))

    def send(self, source: int, target: int, names: Sequence[str] | None = None) -> Steps:
        """Send a file in place of another file, or files of a folder into another folder: open descriptors.

        names: files and folders to send; default: all. Errors: :class:`MigrationError`, also if no data has arrived for
        10 s; the caller removes files that have arrived.
        """
        try:
            if self._prepared is not None and self._prepared[:2] == (source, target):
                receiver, sender = self._prepared[2:]
                sender.command()
            else:
                receiver, sender = yield from self._start(source, target, names=names)
            self._prepared = None
            before = self.sent_bytes
            deadline = time.monotonic() + PATIENCE_S
            while not receiver.next("received"):
                if (sent := self._count_sent(sender)) is not None:
                    self.sent_bytes, deadline = before + sent, time.monotonic() + PATIENCE_S
                if time.monotonic() > deadline:
                    raise MigrationError(f"{self._source.name}: nothing has been sent for {PATIENCE_S} s")
                yield
            received_ns = time.monotonic_ns()
            while sender.process.poll() is None:
                if time.monotonic() > deadline:
                    raise MigrationError(f"{self._source.name}: the program 'transfer' does not end")
                yield
            self.sent_bytes = before + (self._count_sent(sender) or self.sent_bytes - before)
            self.on_link_ns += received_ns - self._began_ns
        finally:
            self.close()

    def close(self) -> None:
        """End the remaining programs and connections."""
        for helper in self._helpers:
            helper.close()
        self._helpers.clear()

    def _start(
        self, source: int, target: int, *, waits: bool = False, names: Sequence[str] | None = None
    ) -> Generator[None, None, tuple[Helper, Helper]]:
        """Connect, and start and return both programs. waits: the sender waits for a command."""
        try:
            near, far = yield from connect(self._source, self._target, **self._options)
            ends = (self._target, "receive", far, target), (self._source, "send", near, source)
            with contextlib.ExitStack() as stack:
                for each in (*near, *far):
                    stack.callback(each.close)
                listed = stack.enter_context(tempfile.TemporaryFile())  # may be too long for an argument
                listed.write(json.dumps(names).encode())
                listed.flush()
                for node, role, connections, file in ends:
                    numbers = [each.fileno() for each in connections]
                    config = {"role": role, "connections": numbers, "file": file, "level": self._level}
                    config |= {"waits": waits, "names": listed.fileno()}
                    self._helpers.append(Helper(node, _PROGRAM, config, descriptors=(*numbers, file, listed.fileno())))
        except OSError as error:
            raise MigrationError(f"cannot start the transfer: {error}") from error
        receiver, sender = self._helpers[-2:]
        for helper in (receiver, sender) if waits else ():
            yield from wait(helper, "ready", PATIENCE_S)
        return receiver, sender

    def _count_sent(self, sender: Helper) -> int | None:
        """Return the bytes that a sender has sent so far, if its reports have increased. The sender may have ended."""
        sender.collect()
        found: int | None = None
        for event in sender.events:
            found = event.get("sent", found)
            self._began_ns = event.get("began", self._began_ns)
        sender.events.clear()
        return found
