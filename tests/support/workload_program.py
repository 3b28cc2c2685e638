"""A program of a workload on this machine, driven as the supervisor of a run does."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed_node.processes import die_with_parent

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it


class Program:
    """A running process of the workload."""

    def __init__(self, process: Process | Command, log: Path) -> None:
        self.name = process.name
        self.log = log
        own = isinstance(process, Process)
        self._connects = isinstance(process, Process) and process.load
        self._port = None if isinstance(process, Process) else process.ready.port
        with log.open("wb") as errors:
            self.popen = subprocess.Popen(
                process.argv if isinstance(process, Process) else process.command,
                stdin=subprocess.PIPE if own else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(process.env if isinstance(process, Process) else process.environment)},
                bufsize=0,
                preexec_fn=die_with_parent,
            )

    def say(self, **line: int) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(line).encode() + b"\n")

    def await_event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        assert self.popen.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while self._port is not None:
            assert self.popen.poll() is None, f"{self.name} ended: {self.log.read_text()}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return {}
            assert time.monotonic() < deadline, f"{self.name}: {self.log.read_text()}"
            time.sleep(0.005)
        line = b""
        while select.select([self.popen.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            byte = self.popen.stdout.read(1)
            assert byte, f"{self.name} ended: {self.log.read_text()}"
            if byte != b"\n":
                line += byte
                continue
            event = json.loads(line)
            line = b""
            if event["event"] == name == "ready" and self._connects:
                self.say(connect_ns=time.monotonic_ns())
                return self.await_event("connected")
            if event["event"] == name:
                return event
        raise AssertionError(f"{self.name}: no {name}: {self.log.read_text()}")

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        if self.popen.stdin is None:
            self.popen.terminate()
        else:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.close()
        self.popen.send_signal(signal.SIGCONT)
        try:
            return self.popen.wait(PATIENCE)
        finally:
            self.popen.kill()
            self.popen.wait()
