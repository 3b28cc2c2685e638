"""Commands of ``cellbed exec`` on nodes that only the run itself reaches: containers, virtual and other machines.

The run listens at an abstract Unix socket (unix(7)), so there is no file to clean up. A client sends the command with
its standard streams, then signals; it gets the exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Running, kill
from cellbed.testbed.machine.state import Record
from cellbed.testbed.nodes.backend import Backend

_LARGEST = 1 << 17


class GuestError(CellbedError):
    """A command that a node did not start, or a run that does not answer."""

    exit_code = 126


class Guests:
    """The run's end. Call :meth:`serve` at short intervals."""

    def __init__(self, nodes: Mapping[str, Backend], identifier: str) -> None:
        self._nodes = nodes
        self._running: dict[socket.socket, Running | None] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(_address(identifier))
        self._listener.listen()
        self._listener.setblocking(False)

    def serve(self) -> None:
        """Start commands, pass signals on, and report exit statuses."""
        with contextlib.suppress(BlockingIOError):
            while True:
                client, _ = self._listener.accept()
                client.setblocking(False)
                self._running[client] = None
        for client, process in list(self._running.items()):
            if not self._is_served(client, process):
                del self._running[client]
                client.close()

    def _is_served(self, client: socket.socket, process: Running | None) -> bool:
        """Return whether a client still waits for something."""
        try:
            message, streams, _, _ = socket.recv_fds(client, _LARGEST, 3)
        except BlockingIOError:
            message, streams = None, []
        except OSError:
            message, streams = b"", []
        if message == b"":  # it has ended
            if process is not None:
                kill(process)
            return False
        try:
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
        _, user, _ = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            raise PermissionError("the testbed belongs to another user")
        stdin, stdout, stderr = streams
        node = self._nodes[request["node"]]
        folder = None if node.own_files else str(request["folder"])
        words = [str(word) for word in request["command"]]
        return node.spawn(words, folder=folder, stdin=stdin, stdout=stdout, stderr=stderr)

    def _answer(self, client: socket.socket, answer: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            client.send(json.dumps(answer).encode())

    def close(self) -> None:
        """End what still runs."""
        for client, process in self._running.items():
            if process is not None:
                kill(process)
            client.close()
        self._listener.close()


def run_as_guest(record: Record, node: str, command: Sequence[str]) -> int:
    """Have a live run or testbed start a command on a node with the standard streams of this process.

    Returns its exit status, 128+n for signal n. SIGINT and SIGTERM are passed on. Errors: :class:`GuestError`.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as run:
        try:
            run.connect(_address(record.identifier))
            request = json.dumps({"node": node, "command": list(command), "folder": str(Path.cwd())}).encode()
            socket.send_fds(run, [request], [0, 1, 2])
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: run.send(json.dumps({"signal": number}).encode()))
            answer = json.loads(run.recv(_LARGEST) or b"{}")
        except (OSError, ValueError) as error:
            raise GuestError(f"{node} cannot be reached: {error}") from error
    if "status" not in answer:
        raise GuestError(f"{node}: {answer.get('failed', 'the testbed has ended')}")
    status: int = answer["status"]
    return status if status >= 0 else 128 - status


def _address(identifier: str) -> bytes:
    return f"\0cellbed-exec-{identifier}".encode()
