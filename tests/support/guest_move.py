"""A pre-copy migration within a virtual machine, which prints its account as a line of JSON.

Usage: ``python guest_move.py``, as root. The program that moves changes its memory while it runs, and writes its
progress to a file.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from cellbed.testbed.migration.checkpoint import prepare_trial
from cellbed.testbed.migration.pre_copy import PreCopy

WRITER = """
import itertools, os, time, zlib
kept, changed = os.urandom(16 << 20), bytearray(4 << 20)
token, before = os.urandom(8).hex(), zlib.crc32(kept)
with open("progress", "w", buffering=1) as file:
    for number in itertools.count():
        changed[number % 64 * 4096] = number % 251
        whole = zlib.crc32(kept) == before if number % 32 == 0 else True
        print(token, number, whole, file=file)
        time.sleep(0.02)
"""
"""Its random token and the count exist in its memory alone."""


def wait_for_lines(path: Path, count: int) -> list[str]:
    """Wait until a file has so many lines, and return them."""
    deadline = time.monotonic() + 120
    while len(lines := path.read_text().splitlines() if path.exists() else []) < count:
        assert time.monotonic() < deadline, f"{len(lines)} lines of {count}"
        time.sleep(0.1)
    return lines


def move_writer(folder: Path) -> dict[str, Any]:
    """Move a program between two nodes in this process's network namespace; return the account."""
    move = prepare_trial(folder, (sys.executable, "-c", WRITER), "pre-copy")
    move.program.start()
    progress = folder / "work" / "progress"
    try:
        before = wait_for_lines(progress, 20)
        for _ in PreCopy().move(move):
            time.sleep(0.002)
        after = wait_for_lines(progress, len(before) + 200)
    finally:
        move.program.crash()
        if move.started is not None:
            move.started.crash()
    return {**move.account.content, "facts": move.facts, "progress": [line.split() for line in after]}


if __name__ == "__main__":
    place_of_files = Path("/tmp/move")
    place_of_files.mkdir()
    print("account", json.dumps(move_writer(place_of_files)), flush=True)
