"""Post-copy: the program runs at the target at once. Its memory follows, pages in use first.

A service that has run at the target cannot return to the source without loss, since its new state is at the target. If
the source's pages can no longer be fetched, the service continues at the source in the state where it was stopped,
and the error reports the loss.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time

from cellbed.testbed.migration.channel import Helper, connect, wait
from cellbed.testbed.migration.checkpoint import CRIU_S, Checkpoint, Waiting, duplicate_descriptors
from cellbed.testbed.migration.strategy import MigrationError, Move, Steps
from cellbed.testbed.migration.transfer import STALL_S
from cellbed_node.agent import list_children

_PIPE_BYTES = 4 << 20
"""Size of the pipe through which CRIU reads pages, rounded up as the kernel does. With a smaller pipe, CRIU fails on
page requests."""


class PostCopy(Checkpoint):
    """Registers, connections and the list of pages move while the program is stopped; pages follow."""

    on_demand = True
    unused_keys = dict.fromkeys(("connections", "compression"), "'post-copy' uses one connection, not compressed")

    def __init__(self) -> None:
        super().__init__()
        self._pages: Helper | None = None
        self._faults: list[int] = []

    @staticmethod
    def obstacle() -> str | None:
        ends = os.pipe()
        try:
            fcntl.fcntl(ends[0], fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            return f"CRIU needs pipes of {_PIPE_BYTES >> 20} MiB: sudo sysctl -w fs.pipe-max-size={_PIPE_BYTES}"
        finally:
            for end in ends:
                os.close(end)
        return None

    def prepare(self, move: Move, arrived: int) -> Waiting[socket.socket | None]:
        channel = move.channel
        try:
            ends = yield from connect(move.source, move.target, control=channel.control, rate_bps=channel.rate_bps)
        except OSError as error:
            raise MigrationError(f"cannot connect for pages on demand: {error}") from error
        (near,), (far,) = ends
        self.held.callback(near.close)
        with far:
            descriptors = (far.fileno(), arrived)
            self._pages = self.start(move.target, descriptors, role="pages", connection=far.fileno(), images=arrived)
        return near

    def before_restore(self) -> Waiting[list[str]]:
        assert self._pages is not None
        self._pages.command()
        yield from wait(self._pages, "serving", CRIU_S)
        return ["--lazy-pages"]

    def after_restore(self, *, failed: bool = False) -> None:
        # When the last descriptor for page faults is closed, the kernel fills missing pages with zeros. With
        # duplicates of these descriptors, the copy blocks instead if CRIU fails, until the copy is ended.
        if failed:
            self._release()
            return
        assert self._pages is not None
        for process in list_children(self._pages.process.pid):
            self._faults += duplicate_descriptors(process, lambda name: name == "anon_inode:[userfaultfd]")

    def complete(self, move: Move, dump: Helper) -> Steps:
        assert self._pages is not None
        begin, sent, since = move.channel.sent_bytes, 0, time.monotonic()
        with move.phase("pages"):
            try:
                status = None
                while status is None:
                    status = self._pages.next("done")
                    with contextlib.suppress(MigrationError):  # the connection closes when it ends
                        if (now_sent := dump.next("sent")) is not None:
                            sent, since = now_sent, time.monotonic()
                    move.channel.sent_bytes = begin + sent
                    if status is None and time.monotonic() > since + STALL_S:
                        raise MigrationError(f"no page has been sent for {STALL_S} s")
                    yield
                if status != 0:
                    raise MigrationError("criu lost the connection of the pages")
            except MigrationError as error:
                raise MigrationError(
                    f"{error}: {move.app} continues at {move.source.name} as it was when it was stopped; what it has "
                    f"done at {move.target.name} is lost"
                ) from error
            self._release()

    def _release(self) -> None:
        for descriptor in self._faults:
            os.close(descriptor)
        self._faults.clear()
