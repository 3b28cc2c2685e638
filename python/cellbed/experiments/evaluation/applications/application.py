"""Applications that measure a network: a server on one node, a client on another, and what the client measures.

An application runs as two processes, which start this module, or in virtual time over a
:class:`cellbed.simulation.Path`. The processes follow :mod:`cellbed.workloads.lifecycle`; the client writes an event
``{"event": "sample", "measure": …, "value": …}`` for every sample.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads import lifecycle
from cellbed.workloads.lifecycle import announce

if TYPE_CHECKING:
    from cellbed.simulation import Path as NetworkPath
    from cellbed.workloads.kind import Node

Measured = tuple[str, float | None]
"""A measure's name and a sample: seconds or Mbit/s, ``None`` where it was never completed."""

SECOND = 1_000_000_000
PATIENCE_NS = 120 * SECOND
"""How long a transfer may take in virtual time."""
_SESSION_NICE = -10


class Application:
    """Base of the applications, which are frozen dataclasses: their fields are the parameters, all JSON-able.

    name: in options and results.
    """

    name: ClassVar[str]

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds."""
        raise NotImplementedError

    def measures(self) -> list[str]:
        """Return names of what the application measures, in the order of reports."""
        raise NotImplementedError

    def groups(self) -> dict[str, dict[str, str]]:
        """Measures that are also reported together, as the mean of the sizes of their errors: for each name of a group
        the short names of its measures."""
        return {}

    @classmethod
    def quick(cls) -> Self:
        """Return a shortened application, for a first look."""
        return cls()

    def missing(self) -> str | None:
        """What the application needs and this machine lacks, in a sentence; ``None`` if nothing."""
        return None

    def simulate(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Run over a path in virtual time. seed: of the order and the pauses."""
        raise NotImplementedError

    def serve(self, address: str, folder: Path) -> None:
        """Run the server until standard input ends. folder: for its files."""
        raise NotImplementedError

    def client(self, address: str, seed: int, folder: Path) -> Callable[[], Iterator[Measured]]:
        """Prepare the client of the server at `address`; the function returned runs it."""
        raise NotImplementedError

    def prefer_client(self) -> None:
        """Give the client's process the priority that its measurements need."""
        run_first()

    def processes(self, client: Node, server: Node, folder: Path, seed: int) -> list[Process | Command]:
        """Return the programs of one run, whose files lie in `folder`."""
        started: list[Process | Command] = []
        for role, node in (("serve", server), ("run", client)):
            config = {
                "role": role,
                "class": [type(self).__module__, type(self).__name__],
                "application": self.described(),
                "address": str(server.ipv4),
                "seed": seed,
                "folder": str(folder),
            }
            file = folder / f"{role}.json"
            file.write_text(json.dumps(config), encoding="utf-8")
            started.append(
                # Both load their libraries at the same time; the client needs its server only when it begins.
                Process(
                    name=f"{self.name}.{role}",
                    node=node.name,
                    program=[sys.executable, "-P", "-m", __name__],
                    arguments=["--config", str(file)],
                    load=role == "run",
                    env={"TMPDIR": str(folder), "HOME": str(folder)},
                )
            )
        return started

    def described(self) -> dict[str, Any]:
        """Return name and parameters as JSON has them; :meth:`from_description` is the inverse."""
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]

    @classmethod
    def from_description(cls, description: Mapping[str, Any]) -> Self:
        """Return the application with the parameters of a description; keys it does not know are ignored."""
        known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in description.items()}
        return cls(**{key: value for key, value in values.items() if key in known})


def nanoseconds(seconds: float) -> int:
    """Return seconds as virtual time has them."""
    return round(seconds * SECOND)


def seconds(taken: Sequence[int]) -> list[float | None]:
    """Virtual durations in seconds; a negative one was never completed."""
    return [value / SECOND if value >= 0 else None for value in taken]


def run_first() -> None:
    """Let this process, with the threads that it will have, run before all ordinary ones, where the user may.

    On a busy machine a program that waits for a packet is otherwise woken up some milliseconds late, now and then a
    hundred: as much as the networks that are compared differ by. For programs that do little but wait: one that
    computes would leave nothing to others. Niceness does not help, since Linux shares the processor among sessions
    first (sched(7), "The autogroup feature").
    """
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def prefer_session() -> None:
    """Let this session, with the programs that it will have, have most of the processor when it needs it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_SESSION_NICE), encoding="utf-8")


def in_thread(serve: Callable[[], object]) -> None:
    """Announce readiness and serve until standard input ends."""
    threading.Thread(target=serve, daemon=True).start()
    announce("ready")
    commands = lifecycle.Commands()
    while not commands.closed:
        commands.wait()


def main(config: dict[str, Any]) -> None:
    """Run the server (``role`` "serve") or the client ("run") of an application."""
    module, name = config["class"]
    kind: type[Application] = getattr(importlib.import_module(module), name)
    which = kind.from_description(config["application"])
    address, folder = config["address"], Path(config["folder"])
    if config["role"] == "serve":
        run_first()
        which.serve(address, folder)
        return
    # A browser's driver takes its time over the exit of Python's interpreter.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    which.prefer_client()
    run = which.client(address, config["seed"], folder)
    announce("ready")
    if not lifecycle.Commands().wait():
        return
    for measure, value in run():
        announce("sample", measure=measure, value=value)
    announce("done")


if __name__ == "__main__":
    lifecycle.run(main)
