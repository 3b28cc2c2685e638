#!/usr/bin/env python3
"""Check that doc comments begin with a verb or a noun phrase, not with a noun clause (What, Which, How …)."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CLAUSE = re.compile(r"(What|Which|How|Whether|Who|Where|Whose)\b")
RUST = re.compile(r"\s*//[/!] ?(.*)")
MESSAGE = "a doc comment begins with a noun clause; begin with an imperative verb, a noun phrase or 'Return whether'"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Not rewritten yet; remove what is done.
PENDING = re.compile(r"(benches|tests)/")


def rust_lines(text: str) -> Iterator[int]:
    """Yield the lines of a Rust file whose doc comment begins with a clause."""
    previous = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = RUST.match(line)
        if comment and not previous and CLAUSE.match(comment[1]):
            yield number
        previous = comment is not None


def python_lines(text: str) -> Iterator[int]:
    """Yield the lines of a Python file on which a docstring begins with a clause."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and CLAUSE.match(ast.get_docstring(node) or ""):
            yield node.body[0].lineno


def main() -> int:
    """Check the files of the arguments, or all tracked ones; return 1 if there are findings."""
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.py"], capture_output=True, text=True, check=True)
    found = 0
    for path in sys.argv[1:] or [name for name in listed.stdout.splitlines() if not PENDING.match(name)]:
        text = Path(path).read_text(encoding="utf-8")
        for line in sorted((rust_lines if path.endswith(".rs") else python_lines)(text)):
            print(f"{path}:{line}: {MESSAGE}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
