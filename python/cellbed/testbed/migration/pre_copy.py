"""Pre-copy: the memory is sent while the program runs, then in rounds the pages written meanwhile. The program stops
only for the rest."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import time
from pathlib import Path

from cellbed.testbed.migration.channel import Helper
from cellbed.testbed.migration.checkpoint import Checkpoint, Waiting
from cellbed.testbed.migration.state import MOST_ROUNDS, dirty_rate, is_last
from cellbed.testbed.migration.strategy import Move

_FORGET_WRITES, _IS_WRITTEN = "4", 1 << 55
"""Value for ``clear_refs``, and bit of an entry of ``pagemap`` (admin-guide/mm/soft-dirty.rst of Linux)."""


class PreCopy(Checkpoint):
    """Pre-copy: rounds of CRIU's pre-dump with the pages written since the previous round; then stop-and-copy."""

    @staticmethod
    def obstacle() -> str | None:
        if tracks_writes():
            return None
        return "this kernel does not track changed pages (CONFIG_MEM_SOFT_DIRTY): use state, stop-and-copy or post-copy"

    def rounds(self, move: Move, dump: Helper) -> Waiting[list[str]]:
        before, since = 0, 0.0
        options = ["--track-mem"]
        for number in range(1, MOST_ROUNDS + 1):
            images = move.folder / f"round-{number}"
            saved, arrived = self.folders(move, images.name)
            with move.phase(f"round {number}") as found:
                span, since = time.monotonic() - since, time.monotonic()
                yield from self._dump_program(dump, images, "pre-dump", options)
                size = sum(each.stat().st_size for each in images.glob("pages-*.img"))
                found["pages_bytes"] = size
                if before:
                    move.facts["dirty_rate"] = dirty_rate(size, span)
                yield from move.channel.send(saved, arrived)
            options = ["--track-mem", "--prev-images-dir", f"../{images.name}"]
            if is_last(size, before):
                break
            before = size
        return options


def tracks_writes() -> bool:
    """Return whether the kernel notes which pages a program writes."""
    byte = ctypes.create_string_buffer(1)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text(_FORGET_WRITES, encoding="ascii")
        byte[0] = b"w"
        with Path("/proc/self/pagemap").open("rb") as pages:
            pages.seek(ctypes.addressof(byte) // mmap.PAGESIZE * 8)
            return bool(int.from_bytes(pages.read(8), sys.byteorder) & _IS_WRITTEN)
    return False
