#!/usr/bin/env python3
"""Check doc comments: none begins with a noun clause (What, Which, How …), none of Rust has over 120 characters.

Ruff checks the length of Python's.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

CLAUSE = re.compile(r"(What|Which|How|Whether|Who|Where|Whose)\b")
RUST = re.compile(r"\s*//[/!] ?(.*)")
LONGEST = 120
CLAUSE_FOUND = "a doc comment begins with a noun clause; write a verb, a noun phrase or 'Return whether'"
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Not rewritten yet; remove what is done.
PENDING = re.compile(r"(\w+/)?(benches|tests)/")


def rust_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a Rust file with a finding."""
    previous = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = RUST.match(line)
        if comment and not previous and CLAUSE.match(comment[1]):
            yield number, CLAUSE_FOUND
        if len(line) > LONGEST and line.lstrip().startswith("//"):
            yield number, f"a comment line has more than {LONGEST} characters"
        previous = comment is not None


def python_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a Python file with a finding."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and CLAUSE.match(ast.get_docstring(node) or ""):
            yield node.body[0].lineno, CLAUSE_FOUND


def main() -> int:
    """Check the files of the arguments, or all tracked ones; return 1 if there are findings."""
    listed = subprocess.run(["git", "ls-files", "*.rs", "*.py"], capture_output=True, text=True, check=True)
    found = 0
    for path in sys.argv[1:] or [name for name in listed.stdout.splitlines() if not PENDING.match(name)]:
        text = Path(path).read_text(encoding="utf-8")
        for line, message in sorted((rust_lines if path.endswith(".rs") else python_lines)(text)):
            print(f"{path}:{line}: {message}")
            found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
