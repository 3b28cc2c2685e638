#!/usr/bin/env python3
"""Check that functions of some packages have at most 60 lines and 6 parameters."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("testbed/migration", "workloads", "experiments/virtual", "experiments/real_run.py", "experiments/run.py")
MOST_LINES, MOST_PARAMETERS = 60, 6


def main() -> int:
    """Print each larger function; return 1 if there is one."""
    root = Path(__file__).parents[1] / "python/cellbed"
    files = [
        file for name in PACKAGES for file in ([root / name] if name.endswith(".py") else (root / name).rglob("*.py"))
    ]
    found = [text for file in sorted(files) for text in check(file)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


def check(file: Path) -> Iterator[str]:
    """Yield the functions of a file that exceed a limit."""
    for each in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (each.end_lineno or each.lineno) - each.lineno + 1
            names = {it.arg for it in (*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs)} - {
                "self",
                "cls",
            }
            if lines > MOST_LINES or len(names) > MOST_PARAMETERS:
                yield f"{file}:{each.lineno}: {each.name}: {lines} lines, {len(names)} parameters"


if __name__ == "__main__":
    sys.exit(main())
