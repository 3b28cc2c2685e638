"""The state of a service that moves to another node: save it here, load it there.

One file of Python's standard library, which a service imports or copies. The protocol is in docs/reference/state.md::

    class Sessions(State):
        def save(self, everything):      # or what has changed since the last call
            with self.lock:
                found, self.changed = self.all if everything else self.changed, {}
                yield pickle.dumps(found)

        def load(self, part):            # each part that another instance has saved, in order
            self.all.update(pickle.loads(part))

    sessions = Sessions()
    sessions.announce()                  # nothing without a testbed
    …
    with sessions.lock:                  # while a request is processed
        …
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import BinaryIO

VARIABLE = "CELLBED_STATE"


class State:
    """The state of a service. A subclass has :meth:`save` and :meth:`load`.

    lock: held while a request is processed. It is taken here for the last time that the state is saved, and kept until
    the service ends, or serves again since it has not moved, so that no request changes what has been saved.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def save(self, everything: bool) -> Iterable[bytes]:
        """Return the whole state, or what has changed since the last call, in parts."""
        raise NotImplementedError

    def load(self, part: bytes) -> None:
        """Take over a part that another instance has saved."""
        raise NotImplementedError

    def announce(self) -> bool:
        """Wait for migrations in a thread of its own; whether there is a testbed that may ask for one."""
        path = os.environ.get(VARIABLE)
        if not path:
            return False
        threading.Thread(target=self._wait, args=(path,), daemon=True).start()
        return True

    def _wait(self, path: str) -> None:
        """Serve one migration after the other: each connection ends with one that has failed, or with the program."""
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                try:
                    connection.connect(path)
                    self._serve(connection)
                except (OSError, EOFError):
                    time.sleep(0.1)

    def _serve(self, connection: socket.socket) -> None:
        stands_still = False
        try:
            with connection.makefile("rb") as reader, connection.makefile("wb") as writer:
                for line in reader:
                    verb, _, rest = line.decode().strip().partition(" ")
                    if verb in ("save", "finish"):
                        if verb == "finish":
                            stands_still = self.lock.acquire()
                        for part in self.save(rest == "all"):
                            _write(writer, part)
                        writer.write(b"0\n")
                    elif verb == "load":
                        left = int(rest)
                        while left:
                            size = int.from_bytes(_read(reader, 8), "big")
                            with self.lock:
                                self.load(_read(reader, size))
                            left -= 8 + size
                        writer.write(b"loaded\n")
                    elif verb == "serve":
                        writer.write(b"serving\n")
                    writer.flush()
        finally:
            if stands_still:
                self.lock.release()


def _write(stream: BinaryIO, part: bytes) -> None:
    """Write a part as one piece of the stream, with its length before it, since the stream has no borders of parts."""
    stream.write(b"%d\n" % (8 + len(part)) + len(part).to_bytes(8, "big"))
    stream.write(part)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError("the testbed has ended")
    return data
