#!/usr/bin/env python3
"""Check that paths of nodes are followed in one module only, by descriptors.

A program of a node can replace each folder of such a path by a link. Outside of ``MODULE`` no code joins a path onto
the root, or the folder, of a process, or onto a descriptor; in ``ROOMS`` none walks trees by path. Trees are removed
by ``remove_tree`` alone: what Python has for it is recursive, and programs make folders deeper than its stack.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE = "python/cellbed/testbed/nodes/copies.py"
ROOMS = re.compile(r"python/(cellbed/testbed/(nodes|migration|programs|proof)/|cellbed_node/agent)")
JOINED = re.compile(
    r"/proc/(\{[^}]*\}|%\w|\$\w+|\$\{\w+\}|self|thread-self)/(root|cwd)\b"
    r"|/proc/self/fd/\{[^}]*\}/"
    r"|[\"'](root|cwd)[\"']\s*\)?\s*/"
)
TREES = re.compile(r"\b(os\.walk|extractall?)\((?!.*dir_fd)")
RECURSIVE = re.compile(r"\b(rmtree|copytree|TemporaryDirectory)\b[(,]")
ALLOWED = re.compile(r"# path of this machine: \S|\.bind\(")
"""A comment at the end of a line whose path no program of a node controls, with the reason; a socket's address."""


def lines(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with a finding."""
    for number, line in enumerate(text.splitlines(), 1):
        if ALLOWED.search(line):
            continue
        if JOINED.search(line):
            yield number, f"a path below the root of a process or a descriptor; open it with {Path(MODULE).name}"
        if ROOMS.match(path) and TREES.search(line):
            yield number, f"a tree is walked by path; use {Path(MODULE).name}, or dir_fd"
        if RECURSIVE.search(line) and not path.endswith("cellbed_node/temporary.py"):
            yield number, "a recursive function for trees; use remove_tree or temporary_folder, or cp(1)"


def main() -> int:
    """Check the files of the arguments, or all sources; return 1 if there are findings."""
    sources = ["git", "ls-files", "*python/*.py", "*crates/*/src/*.rs"]
    listed = subprocess.run(sources, capture_output=True, text=True, check=True)
    found = 0
    for path in sys.argv[1:] or listed.stdout.splitlines():
        if path == MODULE:
            continue
        for number, message in lines(path, Path(path).read_text(encoding="utf-8")):
            print(f"{path}:{number}: {message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
