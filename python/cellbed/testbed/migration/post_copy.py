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
from collections.abc import Iterable
from pathlib import Path

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
        self._pages: list[Helper] = []
        self._faults: dict[int, tuple[int, int]] = {}
        """Duplicates of descriptors for page faults, each with a process of CRIU and its descriptor."""

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
            config = {"role": "pages", "connection": far.fileno(), "images": arrived}
            self._pages.append(self.start(move.target, descriptors, **config))
        return near

    def before_restore(self) -> Waiting[list[str]]:
        for pages in self._pages:
            pages.command()
            yield from wait(pages, "serving", CRIU_S)
        return ["--lazy-pages"]

    def after_restore(self, *, failed: bool = False) -> None:
        # When the last descriptor for page faults is closed, the kernel fills missing pages with zeros. With
        # duplicates of these descriptors, the copy blocks instead if CRIU fails, until the copy is ended.
        if failed:
            self._release(list(self._faults))
            return
        for process in (each for pages in self._pages for each in list_children(pages.process.pid)):
            for number, duplicate in duplicate_descriptors(process, lambda name: name == "anon_inode:[userfaultfd]"):
                self._faults[duplicate] = process, number

    def complete(self, move: Move) -> Steps:
        begin, sent, since = move.channel.sent_bytes, dict.fromkeys(range(len(self.trees)), 0), time.monotonic()
        waiting = list(self._pages)
        with move.phase("pages"):
            try:
                while waiting:
                    ended = {pages: status for pages in waiting if (status := pages.next("done")) is not None}
                    if any(ended.values()):
                        raise MigrationError("criu lost the connection of the pages")
                    waiting = [each for each in waiting if each not in ended]
                    # CRIU closes a descriptor when a process has all of its pages. A duplicate would then block the
                    # process at its next new page, and keep CRIU from sending pages to other processes.
                    self._release([duplicate for duplicate, of in self._faults.items() if _has_closed(*of)])
                    for number, tree in enumerate(self.trees):
                        with contextlib.suppress(MigrationError):  # the connection closes when it ends
                            if (now_sent := tree.dump.next("sent")) is not None:
                                sent[number], since = now_sent, time.monotonic()
                    move.channel.sent_bytes = begin + sum(sent.values())
                    if waiting and time.monotonic() > since + STALL_S:
                        raise MigrationError(f"no page has been sent for {STALL_S} s")
                    yield
            except MigrationError as error:
                raise MigrationError(
                    f"{error}: {move.app} continues at {move.source.name} as it was when it was stopped; what it has "
                    f"done at {move.target.name} is lost"
                ) from error
            self._release(list(self._faults))

    def _release(self, duplicates: Iterable[int]) -> None:
        for each in duplicates:
            del self._faults[each]
            os.close(each)


def _has_closed(process: int, number: int) -> bool:
    """Return whether a process has closed a descriptor, other than by its end."""
    folder = Path(f"/proc/{process}/fd")
    with contextlib.suppress(OSError):
        return folder / str(number) not in folder.iterdir() and any(folder.iterdir())
    return False
