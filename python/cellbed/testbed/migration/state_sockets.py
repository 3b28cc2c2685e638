"""Sockets through which programs transfer their state; docs/reference/state.md has the protocol."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.peers import Admission, accept_some
from cellbed.testbed.nodes.copies import MOST_BYTES

VARIABLE = "CELLBED_STATE"
PIECE = 1 << 20
"""Number of bytes read or written at once."""
_STEP_S, _WAIT_S = 0.004, 0.001
"""Maximum duration of a step, and of a wait within it, seconds: a program fills or empties the buffer of its socket
before the run's next step."""
ANSWER_S = 60.0
"""Maximum time without progress of a program, in either direction, seconds."""
_LONGEST_LINE = 64
_HEADER = re.compile(rb"[0-9]{1,15}")


class StateError(CellbedError):
    """A program that does not follow the protocol."""

    exit_code = 1


class Talk:
    """A non-blocking connection to a program. Methods that wait are generators, and yield meanwhile.

    These methods may raise :class:`StateError`.
    """

    def __init__(self, name: str, connection: socket.socket) -> None:
        self._name, self._socket, self._rest = name, connection, b""
        self._until = self._active = 0.0

    def save(self, verb: bytes, target: int) -> Iterator[None]:
        """Write the state into an open, empty file. verb: ``save all`` for the whole state; ``save`` for changes since
        the last time; ``finish`` pauses the service, then saves the changes."""
        yield from self._send(verb + b"\n")
        left = MOST_BYTES
        with open(target, "wb", closefd=False) as file:
            file.seek(0)
            while length := (yield from self._length()):
                if (left := left - length) < 0:
                    raise StateError(f"{self._name} has more than {MOST_BYTES >> 30} GiB of state")
                while length:
                    if not self._rest:
                        yield from self._receive()
                    file.write(self._rest[:length])
                    done = min(length, len(self._rest))
                    self._rest, length = self._rest[done:], length - done
                    yield from self._pause()

    def load(self, source: int) -> Iterator[None]:
        """Have the program load the state that another program has saved, from an open file."""
        yield from self._send(b"load %d\n" % os.fstat(source).st_size)
        with open(source, "rb", closefd=False) as file:
            file.seek(0)
            while data := file.read(PIECE):
                yield from self._send(data)
                yield from self._pause()
        yield from self._answer(b"loaded")

    def serve(self) -> Iterator[None]:
        """Have the program serve with the loaded state."""
        yield from self._send(b"serve\n")
        yield from self._answer(b"serving")

    @property
    def is_open(self) -> bool:
        """Return whether both ends of the connection are open."""
        poll = select.poll()
        poll.register(self._socket, 0)
        return not poll.poll(0)

    def close(self) -> None:
        """Close the connection: a paused program then serves again."""
        self._socket.close()

    def _send(self, data: bytes) -> Iterator[None]:
        left, self._active = memoryview(data), time.monotonic()
        while left:
            try:
                left = left[self._socket.send(left) :]
                self._active = time.monotonic()
            except BlockingIOError:
                yield from self._pause(select.POLLOUT)
            except OSError as error:
                raise StateError(f"{self._name} does not take state: {error.strerror}") from error

    def _receive(self) -> Iterator[None]:
        while True:
            try:
                data = self._socket.recv(PIECE)
            except BlockingIOError:
                yield from self._pause(select.POLLIN)
                continue
            except OSError as error:
                raise StateError(f"{self._name} does not send state: {error.strerror}") from error
            if not data:
                raise StateError(f"{self._name} has closed {VARIABLE}; its output: raw/{self._name}.err")
            self._rest += data
            self._active = time.monotonic()
            return

    def _pause(self, event: int = 0) -> Iterator[None]:
        """End the step, unless it has time left and the event occurs soon. event: poll event to wait for."""
        if event and time.monotonic() > self._active + ANSWER_S:
            raise StateError(f"{self._name} has not answered at {VARIABLE} within {ANSWER_S:g} s")
        left = self._until - time.monotonic()
        if left > 0:
            poll = select.poll()
            poll.register(self._socket, event)
            if not event or poll.poll(1000 * min(left, _WAIT_S)):
                return
        yield
        self._until = time.monotonic() + _STEP_S

    def _line(self) -> Iterator[None]:
        while b"\n" not in self._rest:
            if len(self._rest) > _LONGEST_LINE:
                raise StateError(f"{self._name} sent {self._rest[:_LONGEST_LINE]!r} where a line belongs")
            yield from self._receive()

    def _length(self) -> Generator[None, None, int]:
        yield from self._line()
        line, _, self._rest = self._rest.partition(b"\n")
        if not _HEADER.fullmatch(line):
            raise StateError(f"{self._name} sent {line!r} where a number of bytes belongs")
        return int(line)

    def _answer(self, wanted: bytes) -> Iterator[None]:
        yield from self._line()
        line, _, self._rest = self._rest.partition(b"\n")
        if line != wanted:
            raise StateError(f"{self._name} answered {line!r} where {wanted!r} was expected")


class StateSockets:
    """A socket for each program that may transfer its state. folder: folder of the sockets."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._listeners: dict[str, tuple[socket.socket, Path, Admission]] = {}
        self._talks: dict[str, Talk] = {}

    def listen(self, program: str, admission: Admission) -> Path:
        """Make the socket of a program, named after the program, if it is missing; return the path.

        admission: check of processes that connect. Errors: ``OSError``.
        """
        if program not in self._listeners:
            path = self._folder / f"state{len(self._listeners)}"
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._listeners[program] = listener, path, admission
            folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:  # a long path does not fit into the address of a socket
                listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            finally:
                os.close(folder)
            path.chmod(0o666)  # programs in a container may run as another user
            listener.listen(8)
        return self._listeners[program][1]

    def talk(self, program: str) -> Talk:
        """Return the first open connection of a program: further connections are refused meanwhile.

        Errors: :class:`StateError`.
        """
        self.accept()
        if program not in self._talks:
            raise StateError(
                f"{program} is not connected to {VARIABLE}: use cellbed.state in it (docs/reference/state.md), or "
                "another strategy"
            )
        return self._talks[program]

    def accept(self) -> None:
        """Accept waiting connections, so that other programs cannot block a service by filling the queue."""
        for program, (listener, _, admission) in self._listeners.items():
            for connection in accept_some(listener):
                before = self._talks.get(program)
                if not admission.admits(connection) or (before is not None and before.is_open):
                    connection.close()
                    continue
                connection.setblocking(False)
                if before is not None:
                    before.close()
                self._talks[program] = Talk(program, connection)

    def is_connected(self, program: str) -> bool:
        """Return whether a program has opened a connection."""
        try:
            self.talk(program)
        except StateError:
            return False
        return True

    def forget(self, program: str) -> None:
        """Close the connection of an ended program: another program of this name may follow."""
        with contextlib.suppress(StateError):
            self.talk(program).close()
            del self._talks[program]

    def close(self) -> None:
        """Close all sockets and connections."""
        for talk in self._talks.values():
            talk.close()
        for listener, *_ in self._listeners.values():
            listener.close()
