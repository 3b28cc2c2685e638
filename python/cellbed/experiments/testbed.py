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

from cellbed.experiments.child import ChildRun, describe, to_scenario
from cellbed.testbed.machine.cgroups import Enforcement
from cellbed_node.processes import die_with_parent

if TYPE_CHECKING:
    from cellbed.library import Scenario

_PATIENCE_S = 10.0
"""Maximum time for the orderly end of a program, seconds; then it is killed."""


class Programs:
    """Programs that a verb of cellbed starts; they end with this process, and at :meth:`close`."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[Any]] = []

    def start(self, verb: Sequence[str], command: Sequence[object], **options: Any) -> subprocess.Popen[Any]:
        """Start ``cellbed VERB -- COMMAND``. options: of :class:`subprocess.Popen`."""
        words = [sys.executable, "-P", "-m", "cellbed", *verb, "--", *map(str, command)]
        process = subprocess.Popen(words, preexec_fn=partial(die_with_parent, signal.SIGTERM), **options)
        self._started.append(process)
        return process

    def run(
        self, verb: Sequence[str], command: Sequence[object], timeout: float | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Start ``cellbed VERB -- COMMAND``, and wait for its end; see :meth:`Testbed.run`."""
        given = options.pop("input", None)
        streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        streams["stdin"] = subprocess.DEVNULL if given is None else subprocess.PIPE
        process = self.start(verb, command, text=True, errors="replace", **streams | options)
        try:
            output, errors = process.communicate(given, timeout)
        finally:
            _end(process)
            self._started.remove(process)
        return subprocess.CompletedProcess([*map(str, command)], process.returncode, output, errors)

    def close(self) -> None:
        """End the programs."""
        while self._started:
            _end(self._started.pop())


def _end(process: subprocess.Popen[Any]) -> None:
    """End a program: in order, or else by force."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Testbed:
    """A standing testbed for the time of a context, as ``cellbed up``. It ends with this process, too::

        with cellbed.Testbed("my.toml") as bed:
            bed.start("edge-0", ["python3", "-m", "http.server", "8080"])
            done = bed.run("endpoint-0", ["curl", "-s", "http://edge-0:8080/"])

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
        self._programs = Programs()

    def __enter__(self) -> Self:
        from cellbed.library import RunError

        self._child = ChildRun(self._asked, self._limits)
        try:
            while self._child.up is None and not self._child.ended:
                self._child.read(0.2)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        if self._child.up is None:
            outcome = self._child.close()
            failure = RunError(outcome["error"] or f"the testbed is {outcome['status']}")
            failure.lacking = outcome.get("lacking", False)
            raise failure
        self.folder = self._child.up
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        from cellbed.library import RunError

        self._programs.close()
        self._child.interrupt()
        while not self._child.ended:
            self._child.read(0.2)
        error = self._child.close()["error"]
        if error is not None and kind is None:
            raise RunError(error)

    def start(self, node: str, command: Sequence[object], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a node, until the end of the context.

        Args:
            node: Name of the node, such as ``edge-0``.
            command: Program and arguments.
            options: Options of :class:`subprocess.Popen`.
        """
        return self._programs.start(self._exec(node), command, **options)

    def run(
        self, node: str, command: Sequence[object], *, timeout: float | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, and return its exit status and output.

        Args:
            node: Name of the node, such as ``endpoint-0``.
            command: Program and arguments.
            timeout: Maximum time, seconds.
            options: Options of :class:`subprocess.Popen`, and ``input``, a text.

        Raises:
            subprocess.TimeoutExpired: The command was ended after `timeout`.
        """
        return self._programs.run(self._exec(node), command, timeout, **options)

    def _exec(self, node: str) -> list[str]:
        return ["exec", "--testbed", self.name, node]

    def __repr__(self) -> str:
        return f"<Testbed {self.name!r}>"
