"""A standing testbed in a separate process, for the time of a context: :class:`cellbed.Testbed`."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cellbed.experiments.child import ChildRun, describe, to_error, to_scenario
from cellbed.testbed.machine.cgroups import Enforcement
from cellbed_node.processes import die_with_parent

if TYPE_CHECKING:
    from cellbed.library import Scenario

_PATIENCE_S = 10.0
"""Maximum time for the orderly end of a program, seconds; then it is killed."""


class Programs:
    """Programs that a verb of cellbed starts: on a node, or behind a link. They end with this process, too."""

    def __init__(self, *verb: str) -> None:
        self._words = [sys.executable, "-P", "-m", "cellbed", *verb, "--"]
        self._started: list[subprocess.Popen[Any]] = []

    def start(self, command: Sequence[object], **options: Any) -> subprocess.Popen[Any]:
        """Start a command, until :meth:`close`. options: of :class:`subprocess.Popen`."""
        words = [*self._words, *map(str, command)]
        process = subprocess.Popen(words, preexec_fn=partial(die_with_parent, signal.SIGTERM), **options)
        self._started.append(process)
        return process

    def run(
        self, command: Sequence[object], *, timeout: float | None = None, input: str = "", **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, and return its exit status and output. timeout: seconds. options: of
        :class:`subprocess.Popen`. Errors: :class:`subprocess.TimeoutExpired`; then the command has ended, too."""
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        process = self.start(command, text=True, errors="replace", **streams | options)
        try:
            output, errors = process.communicate(input, timeout)
        finally:
            self._started.remove(process)
            _end(process)
        return subprocess.CompletedProcess([*map(str, command)], process.returncode, output, errors)

    def close(self) -> None:
        """End the programs."""
        while self._started:
            _end(self._started.pop())


def _end(process: subprocess.Popen[Any]) -> None:
    """End a program: in order, or else by force."""
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Testbed:
    """A standing testbed for the time of a context, as ``cellbed up``. It ends with this process, too::

        with cellbed.Testbed("my.toml") as bed:
            bed.node("edge-0").start(["python3", "-m", "http.server", "8080"])
            done = bed.node("endpoint-0").run(["curl", "-s", "http://edge-0:8080/"])

    Args:
        scenario: Scenario, its tables, or the path of its file.
        out: Parent of the testbed's folder.
        limits: Enforce CPU and memory limits; ``"overcommit"`` accepts nodes that exceed this machine.
        loads: Start the loads of the applications.
        proof: Measure limits and links before.

    Attributes:
        name: Name of the testbed, for ``cellbed link`` and other commands.
        folder: Folder of the testbed.

    Raises:
        CellbedError: The scenario has problems.
        RunError: The testbed does not come up, or has failed by the end of the context.
    """

    __test__ = False
    """Not a class of tests for pytest."""
    folder: Path

    def __init__(
        self,
        scenario: Scenario | Mapping[str, Any] | Path | str,
        *,
        out: Path | str = "runs",
        limits: Enforcement = True,
        loads: bool = False,
        proof: bool = False,
    ) -> None:
        chosen = to_scenario(scenario)
        self.name = f"{chosen.name[:40]}-{os.getpid()}-{secrets.token_hex(2)}"
        options = {"standing": self.name, "loads": loads, "proof": proof}
        self._asked, self._limits = describe(chosen, out) | {"standing": options}, limits
        self._nodes: dict[str, Programs] = {}

    def __enter__(self) -> Self:
        self._child = ChildRun(self._asked, self._limits)
        try:
            while self._child.up is None and not self._child.ended:
                self._child.read(0.2)
            if self._child.up is None:
                raise to_error(self._child.close())
        except KeyboardInterrupt as interruption:
            self.__exit__(type(interruption))
            raise
        self.folder = self._child.up
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for programs in self._nodes.values():
            programs.close()
        self._child.interrupt()
        while not self._child.ended:
            self._child.read(0.2)
        outcome = self._child.close()
        if outcome["error"] is not None and kind is None:
            raise to_error(outcome)

    def node(self, name: str) -> Programs:
        """Return the programs that this process starts on a node, with methods ``run`` and ``start``."""
        return self._nodes.setdefault(name, Programs("exec", "--testbed", self.name, name))

    def __repr__(self) -> str:
        return f"<Testbed {self.name!r}>"
