#!/usr/bin/env python3
"""Count lines with a pronoun for a noun ("that of", "by which") in source and documentation; fail above the limit."""

import re
import subprocess
import sys
from pathlib import Path

PRONOUN = re.compile(
    r"\b(those|that) of\b|\b(by|of|to|from|in|on|with|after|before) (which|what|whom)\b", re.IGNORECASE
)
LIMIT = 200
"""Lines that the tree may have: lower it with every rewritten file."""


def main() -> int:
    """Print each line found and return 1 if there are more than `LIMIT`."""
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.py", "*.md"], capture_output=True, text=True, check=True)
    found = [
        f"{name}:{number}: {line.strip()}"
        for name in listed.stdout.splitlines()
        if name != "scripts/sentences.py"
        for number, line in enumerate(Path(name).read_text(encoding="utf-8").splitlines(), 1)
        if PRONOUN.search(line)
    ]
    if len(found) <= LIMIT:
        return 0
    print(*found, f"{len(found)} lines put a pronoun for a noun, at most {LIMIT} may: name the noun", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
