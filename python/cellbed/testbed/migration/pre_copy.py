"""Pre-copy: the memory is sent while the program runs, then in rounds the pages written meanwhile. The program stops
only for the rest."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import time
from pathlib import Path

from cellbed.testbed.migration.checkpoint import Checkpoint, Images, Waiting
from cellbed.testbed.migration.state import MOST_ROUNDS, dirty_rate, is_last, predict_rounds
from cellbed.testbed.migration.strategy import Move, Predicted, PredictedSteps
from cellbed.testbed.migration.transfer import EMPTY_BYTES

_FORGET_WRITES, _IS_WRITTEN = "4", 1 << 55
"""Value for ``clear_refs``, and bit of an entry of ``pagemap`` (admin-guide/mm/soft-dirty.rst of Linux)."""


class PreCopy(Checkpoint):
    """Pre-copy: rounds of CRIU's pre-dump with the pages written since the previous round; then stop-and-copy."""

    tracks_writes = True

    @staticmethod
    def obstacle() -> str | None:
        if tracks_writes():
            return None
        return "this kernel does not track changed pages (CONFIG_MEM_SOFT_DIRTY): use state, stop-and-copy or post-copy"

    def rounds(self, move: Move) -> Waiting[Images | None]:
        size, since, images = 0, 0.0, None
        for number in range(1, MOST_ROUNDS + 1):
            before, size_before, images = images, size, self.folders(move, f"round-{number}")
            with move.phase(f"round {number}") as found:
                span, since = time.monotonic() - since, time.monotonic()
                yield from self.dump("pre-dump", images, before)
                size = found["pages_bytes"] = sum(each.stat().st_size for each in images.path.glob("*/pages-*.img"))
                if before is not None:
                    move.facts["dirty_rate"] = dirty_rate(size, span)
                yield from move.channel.send(images.saved, images.arrived)
            if is_last(size, size_before):
                break
        return images

    def predict(self, move: Predicted) -> PredictedSteps:
        model = move.model
        with move.phase("prepare"):
            yield model.start or 0
        change = yield from predict_rounds(move)
        yield from move.prepare(0)
        stopped_ns = move.now_ns
        move.pause()
        with move.phase("snapshot"):
            yield model.finish or 0
        yield from self.predict_end(move, change() + EMPTY_BYTES, stopped_ns)


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
