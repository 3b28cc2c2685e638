"""Programs that other commands run on the nodes of a live run or testbed: ``cellbed exec``, packet captures.

Nodes of this machine are entered directly. On other nodes (containers, virtual and other machines), the run itself
starts the programs. It listens at an abstract Unix socket (unix(7)), so there is no file to clean up. A client sends
the command with its standard streams, then signals; it receives the exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from cellbed.runformat import folder
from cellbed.support.errors import CellbedError
from cellbed.support.interruption import wait_with_handlers
from cellbed.support.near_names import did_you_mean
from cellbed.testbed.links.live import LiveError, label, live
from cellbed.testbed.machine.peers import accept_some, peer_of
from cellbed.testbed.machine.process import Place
from cellbed.testbed.machine.state import Record
from cellbed.testbed.nodes.backend import Backend
from cellbed_node import inputs
from cellbed_node.processes import Running, kill

if TYPE_CHECKING:
    from cellbed.testbed.testbed import Testbed

LIVE = "live.json"
"""File in a live run's folder that describes how to reach each node."""
_LARGEST = 1 << 17


class CommandError(CellbedError):
    """A command that is missing on a node (exit code 127), or that may not be run or was not started (126)."""

    def __init__(self, text: str, exit_code: int = 126) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Task(Protocol):
    """A request of another command that the run itself serves, such as a migration."""

    def poll(self) -> dict[str, Any] | None:
        """Return the answer, once available."""

    def cancel(self) -> None:
        """End the task without an answer."""


class Guests:
    """The run's end of the protocol. Call :meth:`serve` at short intervals.

    tasks: functions that begin a task or return its answer, by key of the request. Errors: :class:`CellbedError`.
    """

    def __init__(
        self,
        nodes: Mapping[str, Backend],
        identifier: str,
        tasks: Mapping[str, Callable[[Any], Task | dict[str, str]]] = MappingProxyType({}),
    ) -> None:
        self._nodes, self._tasks = nodes, tasks
        self._running: dict[socket.socket, Running | None] = {}
        self._asked: dict[socket.socket, Task] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(_address(identifier))
        self._listener.listen()
        self._listener.setblocking(False)

    def serve(self) -> None:
        """Start commands, pass signals on, and report exit statuses."""
        for client in accept_some(self._listener):
            if peer_of(client)[1] != os.geteuid():
                client.close()
                continue
            client.setblocking(False)
            self._running[client] = None
        for client, process in list(self._running.items()):
            if not self._is_served(client, process):
                del self._running[client]
                if (task := self._asked.pop(client, None)) is not None:
                    task.cancel()
                client.close()

    def _is_served(self, client: socket.socket, process: Running | None) -> bool:
        """Return whether a client still waits for an answer."""
        try:
            message, streams, _, _ = socket.recv_fds(client, _LARGEST, 3)
        except BlockingIOError:
            message, streams = None, []
        except OSError:
            message, streams = b"", []
        if message == b"":  # the client has ended
            if process is not None:
                kill(process)
            return False
        try:
            if client in self._asked:
                if message is not None:  # a signal
                    return False
                if (answer := self._asked[client].poll()) is not None:
                    del self._asked[client]
                    self._answer(client, answer)
                return answer is None
            if message is not None and process is None and (key := next(iter(json.loads(message)))) in self._tasks:
                task = self._tasks[key](json.loads(message)[key])
                if isinstance(task, dict):
                    self._answer(client, task)
                    return False
                self._asked[client] = task
                return True
            if message is not None and process is None:
                process = self._running[client] = self._start(client, json.loads(message), streams)
            elif message is not None and process is not None and process.poll() is None:
                os.kill(process.pid, json.loads(message)["signal"])
        except (CellbedError, OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
            self._answer(client, {"failed": str(error)})
            return False
        finally:
            for stream in streams:
                os.close(stream)
        status = process.poll() if process is not None else None
        if status is not None:
            self._answer(client, {"status": status})
        return status is None

    def _start(self, client: socket.socket, request: dict[str, Any], streams: list[int]) -> Running:
        stdin, stdout, stderr = streams
        node = self._nodes[request["node"]]
        folder = None if node.own_files else str(request["folder"])
        words = [str(word) for word in request["command"]]
        return node.spawn(words, folder=folder, stdin=stdin, stdout=stdout, stderr=stderr)

    def _answer(self, client: socket.socket, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            client.send(json.dumps(answer).encode())

    def close(self) -> None:
        """End the remaining commands and tasks."""
        for client, process in self._running.items():
            if process is not None:
                kill(process)
            client.close()
        self._listener.close()


def announce_nodes(path: Path, bed: Testbed) -> None:
    """Write to the run's folder how each node is reached. Errors: ``OSError``."""
    nodes = {
        name: {
            "place": asdict(node.place) if node.place is not None and not node.own_files else None,
            "network": {
                "network_namespace": bed.emulator.namespace(name),
                "user_namespace": bed.emulator.user_namespace,
            },
            "device": bed.emulator.interface(name),
            "environment": node.setup.variables,
        }
        for name, node in bed.nodes.items()
    }
    folder.write_json(path / LIVE, {"nodes": nodes})


def nodes_of(record: Record) -> dict[str, Any]:
    """Return how each node of a live run or testbed is reached; empty during its start, and for shells."""
    try:
        nodes: dict[str, Any] = inputs.json_value(Path(record.folder or "", LIVE))["nodes"]
    except (OSError, ValueError, KeyError):
        return {}
    return nodes


def find_node(name: str, record: Record | None) -> tuple[Record, str]:
    """Return a live run or testbed with a node called `name`, and the node. record: the only one to search.

    Errors: :class:`LiveError` with the nearest name, or if several have such a node.
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
    """Return the place of a node's programs. Errors: :class:`LiveError` if other processes cannot enter a node of this
    kind."""
    place = nodes_of(record)[node]["place"]
    if place is None:
        raise LiveError(f"{node} cannot be entered from here: it is not on this machine")
    binds = tuple((source, target) for source, target in place.pop("binds"))
    return Place(binds=binds, cgroups=tuple(place.pop("cgroups")), **place)


def execute(record: Record, node: str, command: Sequence[str]) -> NoReturn:
    """Replace this process by `command` on a node, with terminal, Ctrl-C and exit status. The command ends with its
    caller and with the testbed. If only the testbed reaches the node, the testbed starts it with the streams of this
    process.

    Errors: :class:`CommandError`.
    """
    description = nodes_of(record)[node]
    if description["place"] is None:
        sys.exit(run_as_guest(record, node, command))
    program = shutil.which(command[0])
    if program is None:
        known = Path(command[0]).exists()
        why = f"'{command[0]}' is not a program that you may run" if known else f"no command is called '{command[0]}'"
        raise CommandError(why, 126 if known else 127)
    try:
        place_of(record, node).enter()
    except OSError:
        # A user may not move processes between delegated control groups (cgroup-v2.rst, "Delegation Containment"): the
        # testbed's programs are in the right group.
        sys.exit(run_as_guest(record, node, command))
    # Python ignores SIGPIPE, and the command would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execve(program, list(command), os.environ | description["environment"])


def ask(record: Record, what: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request that takes a while to a live run or testbed, and return the answer. Ctrl-C cancels the request.

    Errors: :class:`CommandError`.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as run:
        try:
            _connect(run, record)
            run.send(json.dumps({what: content}).encode())
            answer: dict[str, Any] = json.loads(run.recv(_LARGEST) or b'{"failed": "the testbed has ended"}')
        except (OSError, ValueError) as error:
            raise CommandError(f"{label(record)} cannot be reached: {error}") from error
    return answer


def run_as_guest(record: Record, node: str, command: Sequence[str]) -> int:
    """Have a live run or testbed start a command on a node with the standard streams of this process.

    Returns its exit status, 128+n for signal n. SIGINT and SIGTERM are passed on. Errors: :class:`CommandError`.
    """
    passed_on = (signal.SIGINT, signal.SIGTERM)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as run, wait_with_handlers() as wait:
        try:
            _connect(run, record)
            request = json.dumps({"node": node, "command": list(command), "folder": str(Path.cwd())}).encode()
            before = signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)  # they follow the request
            try:
                socket.send_fds(run, [request], [0, 1, 2])
                for number in passed_on:
                    signal.signal(number, lambda number, _: run.send(json.dumps({"signal": number}).encode()))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            wait(run)
            answer = json.loads(run.recv(_LARGEST) or b"{}")
        except (OSError, ValueError) as error:
            raise CommandError(f"{node} cannot be reached: {error}") from error
    if "status" not in answer:
        raise CommandError(f"{node}: {answer.get('failed', 'the testbed has ended')}")
    status: int = answer["status"]
    return status if status >= 0 else 128 - status


def _connect(run: socket.socket, record: Record) -> None:
    """Connect to a live run. Errors: ``OSError``, also if the run has ended and another user has its address."""
    run.connect(_address(record.identifier))
    if peer_of(run)[1] != os.geteuid():
        raise PermissionError("another user listens at its address")


def _address(identifier: str) -> bytes:
    return f"\0cellbed-exec-{identifier}".encode()
