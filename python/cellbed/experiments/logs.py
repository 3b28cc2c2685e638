"""The output of programs of a live run or testbed, printed and followed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO

from cellbed.support.near_names import did_you_mean
from cellbed.testbed.links.live import LiveError
from cellbed.testbed.machine.state import Record
from cellbed_node import inputs

_SUFFIXES = (".log", ".out", ".err")
_PAUSE_S = 0.1


def print_logs(record: Record, app: str, output: IO[str], *, follow: bool = False) -> None:
    """Print the logs whose names begin with `app`, a line at a time and with the program's name if there are several.

    follow: new lines too, until the run or testbed has ended, or Ctrl-C. Errors: :class:`LiveError` with the nearest
    name.
    """
    raw = Path(record.folder or "", "raw")
    if not _logs(raw, app):
        programs = sorted({path.stem for path in _logs(raw, None)})
        names = [*programs, *{program.split(".")[0] for program in programs}]
        listed = ", ".join(programs[:10]) + (" …" if len(programs) > 10 else "")
        raise LiveError(f"no program '{app}' has a log: {did_you_mean(app, names)}programs: {listed or 'none'}")
    read: dict[Path, int] = {}
    while True:
        ended = record.is_stale() or not record.is_registered()
        logs = _logs(raw, app)
        for path in logs:
            with inputs.open_file(path) as file:
                file.seek(read.get(path, 0))
                content = file.read()
            # The last line waits until it is complete, unless there will be no more.
            whole = content if not follow or ended else content[: content.rfind(b"\n") + 1]
            read[path] = read.get(path, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                output.write(f"{path.stem} | {line}\n" if len(logs) > 1 else f"{line}\n")
        output.flush()
        if not follow or ended:
            return
        time.sleep(_PAUSE_S)


def _logs(raw: Path, app: str | None) -> list[Path]:
    """Return the logs of the program `app`, or of all programs of the application `app`, or all logs."""
    found = sorted(path for path in raw.glob("*.*") if path.suffix in _SUFFIXES and path.name.count(".") > 1)
    return [path for path in found if app is None or path.stem == app or path.name.startswith(f"{app}.")]
