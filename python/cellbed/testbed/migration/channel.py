"""The channel of a migration: files from source to target as ordinary TCP traffic over the emulated links.

Two programs (:mod:`~cellbed.testbed.migration.transfer`) run in the nodes' network namespaces and control groups.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cellbed.testbed.machine.process import kill, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.migration.strategy import MigrationError, Steps
from cellbed.testbed.nodes.backend import Backend

_PROGRAM = "cellbed.testbed.migration.transfer"


class Helper:
    """A program of cellbed beside a node, with that node's place: its JSON lines are read without waiting.

    process: the program. events: what it has printed. failure: its ``error``, or why it has ended.
    """

    def __init__(self, node: Backend, module: str, config: Mapping[str, Any], *, descriptors: tuple[int, ...] = ()):
        """Start it. module: of cellbed; config: its argument, as JSON. Errors: ``OSError``."""
        if node.place is None:
            raise OSError(f"{node.name} is another machine")
        self.name, self.node = module.rpartition(".")[2], node.name
        self.events: list[dict[str, Any]] = []
        self._rest = b""
        self._ended = False
        self.process = spawn(
            [sys.executable, "-P", "-m", module, json.dumps(config)],
            node.place,
            environment={**os.environ, RUN_VARIABLE: node.setup.run},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            keep_capabilities=True,
        )

    def command(self, **command: Any) -> None:
        """Send a command to the program. It ignores one that comes after its end."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()

    def close_input(self) -> None:
        """End the program's input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def read(self) -> None:
        """Take what the program has printed meanwhile. Errors: :class:`MigrationError` of its ``error``."""
        assert self.process.stdout is not None
        while not self._ended and select.select([self.process.stdout], [], [], 0)[0]:
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            self._ended = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.events += map(json.loads, lines)
        for event in self.events:
            if "error" in event:
                raise MigrationError(f"{self.node}: {event['error']}")

    def next(self, key: str) -> Any:
        """Return the last value of a key that the program has printed, and forget it; ``None`` if there is none.

        Errors: :class:`MigrationError`, also where the program has ended without it.
        """
        self.read()
        found = [event[key] for event in self.events if key in event]
        if found:
            self.events = [event for event in self.events if key not in event]
            return found[-1]
        if self._ended:
            raise MigrationError(f"{self.node}: the program '{self.name}' has ended")
        return None

    def close(self) -> None:
        """End the program."""
        kill(self.process)
        self.close_input()
        assert self.process.stdout is not None
        self.process.stdout.close()


class TcpChannel:
    """A :class:`~cellbed.testbed.migration.strategy.Channel` between two nodes of this machine.

    address: of the target. connections: number of TCP connections. control: name of their congestion control for the
    kernel; ``None``: that of the source. level: of zstd; 0: not compressed. rate_bps: limit of all connections.
    """

    def __init__(
        self,
        source: Backend,
        target: Backend,
        address: str,
        *,
        connections: int = 1,
        control: str | None = None,
        level: int = 0,
        rate_bps: int | None = None,
    ) -> None:
        self.sent_bytes, self.control, self.rate_bps = 0, control, rate_bps
        self.on_link_ns = self._began_ns = 0
        self._source, self._target = source, target
        self._config = {
            "address": address,
            "connections": connections,
            "control": control,
            "level": level,
            "rate_bps": rate_bps,
        }
        self._helpers: list[Helper] = []
        self._prepared: tuple[Path, Path, Helper, Helper] | None = None

    def prepare(self, source: Path, target: Path) -> Steps:
        """Start the programs for the next :meth:`send`, of these files, and connect them: it then loses no time.

        Errors: :class:`MigrationError`.
        """
        self._prepared = source, target, *(yield from self._connected(source, target, waits=True))

    def send(self, source: Path, target: Path, names: Sequence[str] | None = None) -> Steps:
        """Send a file, or the files of a folder, and write them as `target`; see ``Channel``."""
        is_there = target.exists()
        try:
            if self._prepared is not None and self._prepared[:2] == (source, target):
                receiver, sender = self._prepared[2:]
                sender.command()
            else:
                receiver, sender = yield from self._connected(source, target, waits=False, names=names)
            self._prepared = None
            before = self.sent_bytes
            while not receiver.next("received"):
                self.sent_bytes = before + (self._sent(sender) or self.sent_bytes - before)
                yield
            received_ns = time.monotonic_ns()
            while sender.process.poll() is None:
                yield
            self.sent_bytes = before + (self._sent(sender) or self.sent_bytes - before)
            self.on_link_ns += received_ns - self._began_ns
        except BaseException:
            self.close()
            if not is_there:
                shutil.rmtree(target, ignore_errors=True)
                with contextlib.suppress(OSError):
                    target.unlink()
            raise
        self.close()

    def close(self) -> None:
        """End what still runs."""
        for helper in self._helpers:
            helper.close()
        self._helpers.clear()

    def _connected(
        self, source: Path, target: Path, *, waits: bool, names: Sequence[str] | None = None
    ) -> Generator[None, None, tuple[Helper, Helper]]:
        """Start both programs: the generator's value. waits: the sender connects, and waits for a command."""
        config = {**self._config, "folder": source.is_dir(), "waits": waits}
        receiver = self._start(self._target, {**config, "role": "receive", "path": str(target)})
        while (port := receiver.next("port")) is None:
            yield
        sender = self._start(
            self._source, {**config, "role": "send", "path": str(source), "names": names, "port": port}
        )
        while waits and not sender.next("connected"):
            yield
        return receiver, sender

    def _start(self, node: Backend, config: Mapping[str, Any]) -> Helper:
        try:
            helper = Helper(node, _PROGRAM, config)
        except OSError as error:
            raise MigrationError(f"{node.name}: cannot start the transfer: {error}") from error
        self._helpers.append(helper)
        return helper

    def _sent(self, sender: Helper) -> int | None:
        """Return the bytes that a sender has sent so far, if it has reported more. It may have ended after the last."""
        sender.read()
        found: int | None = None
        for event in sender.events:
            found = event.get("sent", found)
            self._began_ns = event.get("began", self._began_ns)
        sender.events.clear()
        return found
