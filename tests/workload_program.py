"""A program of a workload on this machine, driven as the supervisor of a run does."""

import contextlib
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import Any

from cellbed.testbed.process import Process

PATIENCE = 60.0  # seconds until a test gives up; nothing is asserted about it


class Program:
    """A running process of the workload."""

    def __init__(self, process: Process, log: Path) -> None:
        self.name = process.name
        self.log = log
        with log.open("wb") as errors:
            self.popen = subprocess.Popen(
                process.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **process.env},
                bufsize=0,
            )

    def say(self, **line: int) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(line).encode() + b"\n")

    def await_event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        assert self.popen.stdout is not None
        deadline = time.monotonic() + PATIENCE
        line = b""
        while select.select([self.popen.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            byte = self.popen.stdout.read(1)
            assert byte, f"{self.name} ended: {self.log.read_text()}"
            if byte != b"\n":
                line += byte
                continue
            event = json.loads(line)
            line = b""
            if event["event"] == name:
                return event
        raise AssertionError(f"{self.name}: no {name}: {self.log.read_text()}")

    def stop(self) -> int:
        """Close its standard input; its exit status."""
        assert self.popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.popen.stdin.close()
        try:
            return self.popen.wait(PATIENCE)
        finally:
            self.popen.kill()
            self.popen.wait()
