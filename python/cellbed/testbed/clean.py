"""Put right what a killed command has left: processes, control groups, changes outside, unfinished folders."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cellbed.testbed import cgroups, folder
from cellbed.testbed.by_hand import manual_warning
from cellbed.testbed.state import RUN_VARIABLE, Record, records
from cellbed.traces import TraceError, open_archive
from cellbed.traces.sources.folder import sweep_downloads

_STARTING_S = 60
"""A run whose record lies in another folder of state may still be about to put processes into a group this young."""


def clean() -> list[str]:
    """Undo everything that stale records speak of, and remove what never came into the archive of traces.

    Returns what was done, one line each.

    Safe at any time: live runs, this user's or another's, are not touched.
    """
    done: list[str] = []
    for record in records():
        if record.is_stale():
            done += _clean_record(record)
    done += _clean_orphaned_groups({record.identifier for record in records()})
    with contextlib.suppress(TraceError):  # an archive that cannot be written is nothing to put right
        left = [*open_archive().sweep(), *sweep_downloads()]
        done += [f"removed {path}, which was never finished" for path in left]
    return done


def _clean_record(record: Record) -> list[str]:
    done = []
    killed = _kill_marked(record.identifier)
    if killed:
        done.append(f"{record.identifier}: ended {killed} process{'es' if killed > 1 else ''}")
    for path in map(Path, record.cgroups):
        if path.is_dir():
            cgroups.remove(path)
            done.append(f"{record.identifier}: removed control group {path}")
    for command in reversed(record.undo):
        # What is not there any more needs no undoing, so a failure is no news.
        outcome = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if outcome.returncode == 0:
            done.append(f"{record.identifier}: {' '.join(command)}")
    if record.folder is not None:
        done += [f"{record.identifier}: {line}" for line in _close_folder(Path(record.folder))]
    record.remove()
    if not done:
        done.append(f"{record.identifier}: nothing was left but its record")
    return done


def _kill_marked(identifier: str) -> int:
    """Kill the processes that carry the run's mark in their environment; returns how many there were."""
    mark = f"{RUN_VARIABLE}={identifier}".encode()
    killed: set[int] = set()
    # Twice: a process may have been forking while the first pass went by.
    for _ in range(2):
        for path in Path("/proc").glob("[0-9]*/environ"):
            process = int(path.parent.name)
            if process == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    os.kill(process, signal.SIGKILL)
                    killed.add(process)
        if not killed:
            break
        time.sleep(0.02)
    return len(killed)


def _clean_orphaned_groups(live: set[str]) -> list[str]:
    """Remove empty control groups of runs that have no record any more."""
    done = []
    with contextlib.suppress(cgroups.LimitsError, OSError):
        _, bases = cgroups.locate()
        for base in dict.fromkeys(bases.values()):
            for path in base.glob("run-*"):
                with contextlib.suppress(FileNotFoundError):
                    age_s = time.time() - path.stat().st_mtime  # noqa: TID251 - as the kernel stamps it
                    abandoned = path.name not in live and age_s > _STARTING_S
                    if abandoned and path.is_dir() and not _populated(path):
                        cgroups.remove(path)
                        done.append(f"removed control group {path}")
    return done


def _populated(path: Path) -> bool:
    return any(procs.read_text().strip() for procs in path.rglob("cgroup.procs"))


def _close_folder(path: Path) -> list[str]:
    """Mark the folder of a killed run, so that a report of what it measured says so; drop one that measured nothing."""
    description = path / "run.json"
    if path.is_dir() and not description.exists():
        shutil.rmtree(path, ignore_errors=True)
        return [f"removed {path}, in which nothing was measured"]
    for temporary in path.glob("*.tmp"):
        temporary.unlink(missing_ok=True)
    try:
        content = json.loads(description.read_text())
    except (OSError, ValueError):
        return []
    if content.get("status") != "running":
        return []
    content["status"] = "interrupted"
    warnings = content.setdefault("warnings", [])
    warnings.append("the run was killed; the series end where it was killed")
    by_hand = manual_warning(path, content.get("t0_ns"))
    if by_hand is not None:
        warnings.append(by_hand)
    folder.write_json(description, content)
    return [f"marked {path} as interrupted; see what it measured with: cellbed report {path}"]
