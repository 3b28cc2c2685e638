"""Start many processes of one program as forks of one process, which has loaded the program's libraries.

Loading its libraries takes a Python program 0.15 s of processor time; a fork takes a few milliseconds. A fork enters
its node before anything else. The CPU time and memory of loading count for no node.

The fork server, ``python -m cellbed.testbed.programs.fork_server MODULE``, reads requests from its standard input, a
socket. It ends with its parent, and its forks end with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import IO

from cellbed.testbed.machine.process import Place
from cellbed_node import lifecycle
from cellbed_node.processes import die_with_parent, kill, last_line

LARGEST_REQUEST = 1 << 16
PATIENCE_S = 60.0
"""Maximum time for the server to load its program and to answer, seconds."""


def _serve() -> list[str]:
    """Fork a process for each request on standard input. In each fork, on its node, return the fork's arguments.

    Errors: ``OSError`` in a fork that cannot enter its node.
    """
    server = os.getpid()
    with socket.socket(fileno=os.dup(0)) as requests:
        # Keep loaded objects shared: the garbage collector must not write to them.
        gc.freeze()
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, LARGEST_REQUEST, 3)
            if not message:
                sys.exit(0)
            request = json.loads(message)
            answer: int | None = None
            if "poll" in request:
                process, status = os.waitpid(request["poll"], os.WNOHANG)
                if process:
                    answer = os.waitstatus_to_exitcode(status)
            elif (answer := os.fork()) == 0:
                break
            for descriptor in descriptors:
                os.close(descriptor)
            requests.send(json.dumps([request["number"], answer]).encode())
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.setsid()
    Place(**request["place"]).enter()
    if os.getppid() != server:  # it ended before this process asked to die with it
        sys.exit(1)
    arguments: list[str] = request["arguments"]
    return arguments


class ForkedProcess:
    """A fork, with the members of ``subprocess.Popen`` that the supervisor needs."""

    def __init__(self, server: ForkServer, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self._server = server
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, or ``None`` while it runs."""
        if self.returncode is None:
            try:
                self.returncode = self._server.ask({"poll": self.pid})
            except OSError:
                self.returncode = -int(signal.SIGKILL)  # killed with the server
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most `timeout` seconds. Errors: ``subprocess.TimeoutExpired``."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.0005
        while (status := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                assert timeout is not None
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return status

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""
        # The process id is still this fork's: the server keeps it until `poll` has seen the end.
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The process whose forks are the processes of one program.

    module: module of the program, with a ``main`` (:mod:`cellbed_node.lifecycle`). environment: environment of server
    and forks.
    """

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE_S)
        self._asked = 0
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cellbed.testbed.programs.fork_server", module],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
                env=environment,
            )

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def start(self, arguments: Sequence[str], place: Place, errors: IO[bytes]) -> ForkedProcess:
        """Start a process at `place` with pipes as standard input and output.

        errors: file for standard error, and for the reason if the process cannot enter its node.
        Errors: ``OSError`` if the server has ended, with the last line of its standard error.
        """
        stdin, write = os.pipe()
        read, stdout = os.pipe()
        descriptors = [stdin, stdout, errors.fileno()]
        try:
            pid = self.ask({"arguments": list(arguments), "place": asdict(place)}, descriptors)
            assert pid is not None
        except BaseException as error:
            os.close(write)
            os.close(read)
            if isinstance(error, OSError):
                raise self._failure(error) from None
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        return ForkedProcess(self, pid, os.fdopen(write, "wb"), os.fdopen(read, "rb"))

    def ask(self, request: dict[str, object], descriptors: Sequence[int] = ()) -> int | None:
        """Send a request and wait for the answer. Errors: ``OSError`` if the server has ended."""
        self._asked += 1
        socket.send_fds(self._socket, [json.dumps({**request, "number": self._asked}).encode()], descriptors)
        while message := self._socket.recv(LARGEST_REQUEST):
            number, answer = json.loads(message)
            if number == self._asked:  # ignore answers to interrupted requests
                value: int | None = answer
                return value
        raise ConnectionResetError("the fork server has ended")

    def _failure(self, error: OSError) -> OSError:
        """Return why a request had no answer; end the server."""
        kill(self._process)
        self._errors.seek(0)
        return OSError(last_line(self._errors.read()) or f"its fork server does not answer: {error}")

    def close(self) -> None:
        """End the server, and thereby all forks."""
        self._socket.close()
        kill(self._process)
        self._errors.close()


def _main(module: str) -> None:
    """Load the program, and run its ``main`` in each fork."""
    die_with_parent()
    importlib.import_module("cellbed._core")  # forks need it to enter their nodes
    program = importlib.import_module(module)
    try:
        arguments = _serve()
    except OSError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    lifecycle.run(program.main, arguments)


if __name__ == "__main__":
    _main(sys.argv[1])
