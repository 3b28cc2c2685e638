"""Errors that are printed as a message instead of a traceback, and texts of others on a terminal."""

import json
import re

_LONGEST = 2000
"""Characters of a line of an error."""


def printable(text: str, kept: str = "\n") -> str:
    """Return a text that others chose without control characters, which are commands for a terminal.

    They are escaped as in JSON, so that JSON stays JSON. kept: except for these.
    """
    return re.sub(
        r"[^ -~]", lambda it: it[0] if it[0].isprintable() or it[0] in kept else json.dumps(it[0])[1:-1], text
    )


class CellbedError(Exception):
    """An error that the user can correct. The text states the problem, its place, and a remedy.

    Messages quote the input; unprintable characters are escaped, and long lines lose their middle.
    exit_code: the exit status of the command that fails with it.
    """

    exit_code = 2

    def __str__(self) -> str:
        lines = printable(super().__str__()).split("\n")
        return "\n".join(line if len(line) < _LONGEST else f"{line[:1000]} … {line[-500:]}" for line in lines)
