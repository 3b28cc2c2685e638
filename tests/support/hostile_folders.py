"""Folders that a program of a node changes meanwhile, or makes deeper than Python can walk."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Replaces the folder ARGV[1]/d by a link to ARGV[2] and back, without end.
FLIP = """
import os, sys
os.chdir(sys.argv[1])
os.symlink(sys.argv[2], "link")
print("ready", flush=True)
while True:
    for source, target in (("d", "kept"), ("link", "d"), ("d", "link"), ("kept", "d")):
        os.rename(source, target)
"""


@contextmanager
def flipping(node: Path, outside: Path) -> Iterator[None]:
    """Meanwhile a program replaces the folder ``d`` of a node by a link to another one and back."""
    with subprocess.Popen([sys.executable, "-c", FLIP, node, outside], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield
        finally:
            process.kill()


def make_deep(path: Path, depth: int = 2100) -> Path:
    """Make a folder with one in another, deeper than paths and Python's stack reach, and with a link out of it."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "link").symlink_to("/")
    at = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    return path
