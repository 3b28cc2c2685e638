"""How other commands reach the nodes of a live run or testbed: to run programs there, and to capture packets."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cellbed.runformat import folder
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.testbed.links.live import LiveError, label, live
from cellbed.testbed.machine.process import Place
from cellbed.testbed.machine.state import RUN_VARIABLE, Record
from cellbed.testbed.programs.guests import run_as_guest

if TYPE_CHECKING:
    from cellbed.testbed.testbed import Testbed


class CommandError(CellbedError):
    """A command that a node does not have (exit code 127), or that may not be run (126)."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


LIVE = "live.json"
"""In the folder of a run, while it lives: how each node is reached."""


def announce_nodes(path: Path, bed: Testbed) -> None:
    """Write how each node is reached into the folder of a run. Errors: ``OSError``."""
    nodes = {
        name: {
            "place": asdict(node.place) if node.place is not None and not node.own_files else None,
            "network": {
                "network_namespace": bed.emulator.namespace(name),
                "user_namespace": bed.emulator.user_namespace,
            },
            "device": bed.emulator.interface(name),
        }
        for name, node in bed.nodes.items()
    }
    folder.write_json(path / LIVE, {"nodes": nodes})


def nodes_of(record: Record) -> dict[str, Any]:
    """How each node of a live run or testbed is reached; empty while it starts, and for a shell."""
    try:
        nodes: dict[str, Any] = inputs.json_value(Path(record.folder or "", LIVE))["nodes"]
    except (OSError, ValueError, KeyError):
        return {}
    return nodes


def find_node(name: str, record: Record | None) -> tuple[Record, str]:
    """Return the live run or testbed, and the node of it called `name`: any that has it, or `record`.

    Errors: :class:`LiveError` with the nearest name, or where several have such a node.
    """
    there = [record] if record is not None else [each for each in live() if each.folder is not None]
    if not there:
        raise LiveError("nothing is running: start a testbed with `cellbed up`, or a run with `cellbed run`")
    having = [each for each in there if name in nodes_of(each)]
    if len(having) > 1:
        names = ", ".join(map(label, having))
        raise LiveError(f"several testbeds have a node called '{name}': write --testbed with one of {names}")
    if not having:
        known = [node for each in there for node in nodes_of(each)]
        hint = did_you_mean(name, known)
        listed = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
        raise LiveError(f"no node is called '{name}': {hint}nodes: {listed or 'none yet, it is starting'}")
    return having[0], name


def place_of(record: Record, node: str) -> Place:
    """Where programs of a node run. Errors: :class:`LiveError` for a kind of node that another process cannot enter."""
    place = nodes_of(record)[node]["place"]
    if place is None:
        raise LiveError(f"{node} cannot be entered from here: it is not on this machine")
    binds = tuple((source, target) for source, target in place.pop("binds"))
    return Place(binds=binds, cgroups=tuple(place.pop("cgroups")), **place)


def execute(record: Record, node: str, command: Sequence[str]) -> NoReturn:
    """Become `command` on a node: terminal, Ctrl-C and exit status are its own. It ends with its caller and with the
    testbed. On a node that only the testbed reaches, the testbed starts it with the streams of this process.

    Errors: :class:`~cellbed.testbed.programs.guests.GuestError`, :class:`CommandError`.
    """
    if nodes_of(record)[node]["place"] is None:
        sys.exit(run_as_guest(record, node, command))
    program = shutil.which(command[0])
    if program is None:
        known = Path(command[0]).exists()
        why = f"'{command[0]}' is not a program that you may run" if known else f"no command is called '{command[0]}'"
        raise CommandError(why, 126 if known else 127)
    try:
        place_of(record, node).enter()
    except OSError:
        # A user may not move processes from one delegated control group to another (cgroup-v2.rst, "Delegation
        # Containment"): those of the testbed are in the right one.
        sys.exit(run_as_guest(record, node, command))
    # Python ignores it, and so would the command.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(program, list(command), {**os.environ, RUN_VARIABLE: record.identifier})
