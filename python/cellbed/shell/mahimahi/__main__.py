"""The entry point of launchers from `cellbed mahimahi install`: ``python -m cellbed.shell.mahimahi NAME ARGUMENT…``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    # Do this first: `pkill mm-delay` and `killall mm-link` look for this process name (proc(5), comm).
    with contextlib.suppress(OSError, IndexError):
        Path("/proc/self/comm").write_text(sys.argv[1], encoding="utf-8")

from cellbed.shell.mahimahi.arguments import UsageError
from cellbed.support.errors import CellbedError
from cellbed.support.standard_streams import open_standard_streams

COMMANDS = {
    "mm-link": "shells.link",
    "mm-delay": "shells.delay",
    "mm-loss": "shells.loss",
    "mm-onoff": "shells.onoff",
    "mm-intermittent": "shells.intermittent",
    "mm-meter": "shells.meter",
    "mm-cellular": "cellular.cellular",
    "mm-webrecord": "sites.webrecord",
    "mm-webreplay": "sites.webreplay",
    "mm-throughput-graph": "graphs.throughput_graph",
    "mm-delay-graph": "graphs.delay_graph",
}
"""Module and function of each command. Shells must start quickly, and import only their command's module."""


def main(arguments: Sequence[str]) -> int:
    """Run the command named by the first argument, with the others; return its exit status, 1 after an error."""
    open_standard_streams()
    name, *rest = arguments or ("",)
    if name not in COMMANDS:
        print(f"error: unknown command '{name}'; write one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 1
    try:
        module, _, function = COMMANDS[name].partition(".")
        status: int = getattr(import_module(f"cellbed.shell.mahimahi.{module}"), function)(rest)
        return status
    except UsageError as error:
        if not str(error):
            print(error.usage, file=sys.stdout if "--help" in rest else sys.stderr)
            return 0 if "--help" in rest else 1
        print(f"{name}: {error}\n\n{error.usage}", file=sys.stderr)
    except CellbedError as error:
        print(f"{name}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
