"""Mahimahi's traces: one whole number of milliseconds a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.files import each_file
from cellbed.archive.importers.format import Tell, read_by_core
from cellbed.archive.importers.options import Options

_LINES = 200
_MOST = 0.8


class Mahimahi:
    """Traces for `mm-link`: one file, or one for each direction."""

    name = "mahimahi"
    title = "a trace of delivery opportunities (Mahimahi)"
    options = frozenset({"direction"})
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Its lines are whole numbers, except for a few mistakes."""
        stripped = (line.strip() for line in head.split(b"\n")[:_LINES])
        lines = [line for line in stripped if line and not line.startswith(b"#")]
        numbers = sum(line.isdigit() for line in lines)
        if numbers and numbers >= _MOST * len(lines):
            return "its lines hold a whole number each"
        named = len(paths) == 1 and paths[0].suffix in (".up", ".down")
        return f"its name ends in {paths[0].suffix}" if named and lines and lines[0].isdigit() else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, tell: Tell | None) -> None:
        """Opportunities, ms since the start."""
        for path, own, said in each_file(paths, draft, options):
            direction = said.part()
            if direction is None:
                raise TraceError(f"{path}: unknown direction: write --direction uplink or --direction downlink")
            read_by_core(path, own, {"format": "mahimahi", "direction": direction}, tell)


MAHIMAHI = Mahimahi()
