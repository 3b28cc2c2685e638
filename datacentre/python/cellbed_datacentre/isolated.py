"""Simulations with C headers of the user, in a separate process: a header that crashes or never returns ends only it.

``python -m cellbed_datacentre.isolated FILE`` runs the description on its standard input. FILE has the number of the
function of a header that is running.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cellbed_datacentre import _core

_PATIENCE_S = 20
"""Maximum processor time between two reports of progress, which follow every few thousand events."""


def simulate(description: str, headers: Mapping[str, str], progress: Callable[[int], None] | None) -> dict[str, Any]:
    """Run a description as ``_core.simulate`` does.

    headers: names of the headers by the kinds that begin the names of their functions. Raises ValueError for all errors
    of the description and of the headers.
    """
    from cellbed.extension.files import (
        inputs,
        temporary_folder,
    )  # slow to import, which the other process does not need

    with temporary_folder() as folder:
        running = folder / "running"
        running.write_bytes(bytes(4))
        command = [sys.executable, "-P", "-m", __name__, str(running)]
        # In a group of its own, Ctrl-C does not reach it: `progress` raises.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError), process.stdin:
                process.stdin.write(description.encode())
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while isinstance(found := pickle.load(process.stdout), int):
                    if progress is not None:
                        progress(found)
                if isinstance(found, str):
                    raise ValueError(found)
                return dict(found)
            name = _core.called(int.from_bytes(inputs.content(running)[:4], sys.byteorder))
            raise ValueError(_explain(process.wait(), name, headers))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


def _explain(status: int, name: str, headers: Mapping[str, str]) -> str:
    """Return the error of a process that ended without a result, in a function of a header or after it."""
    place = f"{headers[name.partition('_')[0]]}: {name}" if name else f"{', '.join(headers.values())}: the simulation"
    if status == -signal.SIGPROF:
        return f"{place} did not return within {_PATIENCE_S} s of processor time: an endless loop?"
    how = f"crashed ({signal.Signals(-status).name})" if status < 0 else f"ended the process (status {status})"
    cause = "a wrong pointer or index, or a division by zero?" if name else "a write past the end of its state?"
    return f"{place} {how}: {cause}"


def _run(running: Path) -> None:
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a header prints must not mix with the results
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _core.watch(str(running))

    def note(flows: int) -> None:
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE_S)
        try:
            pickle.dump(flows, output)
            output.flush()
        except OSError:
            os._exit(1)  # the other process has ended

    note(0)
    try:
        found: Any = _core.simulate(sys.stdin.buffer.read().decode(), note)
    except ValueError as error:
        found = str(error)
    signal.setitimer(signal.ITIMER_PROF, 0)
    pickle.dump(found, output)
    output.flush()


if __name__ == "__main__":
    _run(Path(sys.argv[1]))
