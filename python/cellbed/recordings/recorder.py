"""The recorder: the program ``cellbed-recorder`` (``crates/recorder``), which also runs without Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cellbed.recordings.errors import RecordingError

_PROGRAM = Path(__file__).parents[1] / "testbed" / "cellbed-recorder"


def find_recorder() -> Path:
    """Return the path of the program. Raises RecordingError with the remedy if it was not built."""
    if not _PROGRAM.exists():
        raise RecordingError("the recorder is not built: in the clone of cellbed, run `scripts/setup.sh core`")
    return _PROGRAM


def run_recorder(arguments: Sequence[str | Path]) -> str:
    """Run a verb of the program, with its progress on standard error. Return its output.

    Raises RecordingError with the program's error.
    """
    command = [find_recorder(), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        problem = "the recorder ended before its result"
        try:
            for line in process.stderr:
                if line.startswith("error: "):
                    problem = line.removeprefix("error: ").strip()
                else:
                    sys.stderr.write(line)
            output = process.stdout.read()  # a few lines, which the pipe holds
        finally:
            process.kill()  # after Ctrl-C; has no effect on a program that has ended
    if process.returncode:
        raise RecordingError(problem)
    return output
