"""Clean up after killed commands: processes, control groups, network settings, unfinished folders."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from cellbed.archive import TraceError, open_archive
from cellbed.archive.unfinished import sweep_cache
from cellbed.runformat import folder
from cellbed.support.errors import CellbedError
from cellbed.support.processes import environments
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.privilege import COMPILED_HELPER, NETWORK_HELPER, is_granted
from cellbed.testbed.machine.state import RUN_VARIABLE, Record, read_records, records
from cellbed.testbed.nodes.container import remove_export
from cellbed_node import inputs
from cellbed_node.temporary import hold, remove_tree, sweep_temporary

_STARTING_S = 60
"""Minimum age of an unlocked group without a record, seconds: a run with another registry may be about to lock it."""


def clean() -> list[str]:
    """Clean up after the killed commands in the registry, and remove unfinished entries of the trace archive.

    Returns a line for each thing that was done, skipped or failed. If the clean-up of a record fails, the record is
    kept for the next clean-up.

    Safe at any time: live runs, this user's or another's, are not touched.
    """
    records, done = read_records()
    for record in records:
        if record.is_stale():
            done += _clean_record(record)
    done += [f"removed {path}, of a killed command" for path in sweep_temporary()]
    done += _clean_network()
    done += _clean_orphaned_groups({record.identifier for record in read_records()[0]})
    with contextlib.suppress(TraceError):  # a read-only archive needs no clean-up
        left = [*open_archive().sweep(), *sweep_cache()]
        done += [f"removed {path}, which was never finished" for path in left]
    return done


@dataclass(frozen=True, slots=True)
class Cached:
    """An entry of the cache folder. bytes: space on the disk. kept: why it stays, or empty."""

    path: Path
    bytes: int
    kept: str = ""


def clean_cache(*, dry_run: bool = False) -> list[Cached]:
    """Remove what is in the cache folder, all of which can be made again, and return the entries.

    Everything stays while a run, testbed or shell of this user lives, and each entry in which a command works. Links
    are removed, never followed. Errors: :class:`CellbedError` if the folder is a link or another user's; ``OSError``.
    """
    root = cache_folder()
    if not os.path.lexists(root):
        return []
    if not _is_own_folder(root):
        raise CellbedError(f"{root}: a link or another user's folder: its files are not removed")
    live = [record.identifier for record in records() if not record.is_stale()]
    found = []
    for path in sorted(root.iterdir()):
        if live:
            kept = f"{live[0]} is live"
        elif path.is_mount():
            kept = "another file system"
        else:
            kept = "a command works in it" if _is_held(path) else ""
        found.append(Cached(path, _disk_usage(path), kept))
        if kept or dry_run:
            continue
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink(missing_ok=True)
    return found


def _is_held(path: Path) -> bool:
    """Return whether a process fills an unfinished folder at a path or in it."""
    hidden = [each for each in (path, *path.glob(".*")) if each.name.startswith(".") and not path.is_symlink()]
    for each in filter(Path.is_dir, hidden):
        try:
            os.close(hold(each))
        except BlockingIOError:
            return True
    return False


def _disk_usage(path: Path) -> int:
    """Return the space on the disk of a file or a tree, bytes."""
    sizes = {}
    paths = [path, *(Path(folder, name) for folder, *inside in os.walk(path) for names in inside for name in names)]
    for each in paths:
        with contextlib.suppress(OSError):
            status = each.lstat()
            sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


def close(record: Record) -> None:
    """Remove the record of a command that ends, and all resources noted in it: an interrupt may have come after a
    resource was made, but before its maker arranged its removal. Errors: ``OSError``."""
    _remove_groups(record)
    _remove_scratch(record)
    record.remove()


def _clean_record(record: Record) -> list[str]:
    for path in record.cgroups:
        if cgroups.is_group(Path(path)):
            cgroups.lift_cpu_limits(Path(path))
    steps: tuple[Callable[[Record], list[str]], ...] = (
        _end_processes,
        _remove_groups,
        _remove_export,
        _remove_scratch,
        _close_folder,
    )
    done: list[str] = []
    failed = False
    for step in steps:
        try:
            done += step(record)
        except (CellbedError, OSError) as error:
            failed = True
            reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
            done.append(f"cannot clean up: {reason}; the next run or `cellbed clean` will try again")
    if not failed:
        with contextlib.suppress(OSError):  # the registry may be read-only: retry in the next clean-up
            record.remove()
    return [f"{record.identifier}: {line}" for line in done or ["nothing was left but its record"]]


def _end_processes(record: Record) -> list[str]:
    killed = kill_marked(record.identifier)
    return [f"ended {killed} process{'es' if killed > 1 else ''}"] if killed else []


def _remove_groups(record: Record) -> list[str]:
    done = []
    for path in map(Path, record.cgroups):
        if cgroups.is_group(path):
            cgroups.remove(path)
            done.append(f"removed control group {path}")
    return done


def _clean_network() -> list[str]:
    """Have the network helper clean up after killed ones in this network namespace, if this user may."""
    if os.geteuid() == 0:
        command = [str(COMPILED_HELPER), "clean"]
    elif is_granted(os.geteuid()):
        command = [str(NETWORK_HELPER), "clean"]
    else:
        return []
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        return [f"cannot remove networks of killed shells: {command[0]} is missing; make it with: make setup"]
    # Without nft(8), cellbed has made no networks on this machine.
    return outcome.stdout.splitlines() if outcome.returncode == 0 else []


def _remove_scratch(record: Record) -> list[str]:
    own = [path for path in (record.scratch, record.pages) if path is not None and _is_own_folder(Path(path))]
    for path in own:
        remove_tree(Path(path))
    return [f"removed {path}" for path in own]


def _remove_export(record: Record) -> list[str]:
    if record.engine is None:
        return []
    name = f"cellbed-{record.identifier}"
    return [f"removed the container {name} of {record.engine}"] if remove_export(record.engine, name) else []


def kill_marked(identifier: str, networks: Collection[int] = ()) -> int:
    """Kill the processes that carry the run's mark in their environment; return their number.

    networks: inodes of network namespaces that the caller holds; their processes are killed before any environment is
    read. A program may overwrite the mark with its title (PostgreSQL): a process in another network, with a working
    folder of the run, is killed, too.
    """
    mark = f"{RUN_VARIABLE}={identifier}".encode()
    killed: set[int] = set()

    def kill(path: Path) -> None:
        if path.name != str(os.getpid()):
            os.kill(int(path.name), signal.SIGKILL)
            killed.add(int(path.name))

    # Two passes: a process may have been forking during the first.
    for _ in range(2):
        for path in Path("/proc").glob("[0-9]*") if networks else ():
            with contextlib.suppress(OSError):
                if (path / "ns/net").stat().st_ino in networks:
                    kill(path)
        for path, variables in environments(identifier):
            with contextlib.suppress(OSError):
                if mark in variables or _lives_in(path, f"cellbed-{identifier}"):
                    kill(path)
        if not killed:
            break
        time.sleep(0.02)
    return len(killed)


def _lives_in(process: Path, scratch: str) -> bool:
    """Return whether a process is in another network than this one, with its working folder in a scratch folder."""
    is_elsewhere = (process / "ns/net").stat().st_ino != Path("/proc/self/ns/net").stat().st_ino
    return is_elsewhere and scratch in (process / "cwd").readlink().parts


def _clean_orphaned_groups(live: set[str]) -> list[str]:
    """Remove control groups of runs without a record here, if no process holds their lock."""
    done = []
    with contextlib.suppress(cgroups.LimitsError, OSError):
        _, bases = cgroups.locate()
        for base in dict.fromkeys(bases.values()):
            for path in (*base.glob("run-*"), *base.glob("testbed-*")):
                with contextlib.suppress(FileNotFoundError):
                    age_s = time.time() - path.stat().st_mtime  # noqa: TID251 - as the kernel stamps it
                    if path.name not in live and age_s > _STARTING_S and not _is_used(path):
                        cgroups.remove(path)
                        done.append(f"removed control group {path}")
    return done


def _is_used(path: Path) -> bool:
    """Return whether a process holds the lock of a control group, or runs in it, such as the rest of a killed run."""
    try:
        os.close(hold(path))
    except BlockingIOError:
        return True
    return any(procs.read_text(encoding="utf-8").strip() for procs in path.rglob("cgroup.procs"))


def _close_folder(record: Record) -> list[str]:
    """Mark the folder of a killed run for its report; remove a folder without measurements."""
    if record.folder is None or not _is_own_folder(Path(record.folder)):
        return []
    path = Path(record.folder)
    description = path / "run.json"
    if not description.exists():
        if not folder.is_unstarted(path):
            return [f"left {path}: it contains files that no run writes"]
        remove_tree(path, ignore_errors=True)
        return [f"removed {path}, which contained no measurements"]
    for temporary in (*path.glob("*.tmp"), path / "live.json"):
        temporary.unlink(missing_ok=True)
    try:
        content = inputs.json_value(description)
    except (OSError, ValueError):
        return []
    if not isinstance(content, dict) or content.get("status") != "running":
        return []
    content["status"] = "interrupted"
    warnings = content.setdefault("warnings", [])
    warnings.append("the run was killed; the series end at that moment")
    folder.release_reserve(path)
    folder.write_json(description, content)
    return [f"marked {path} as interrupted; show its measurements with: cellbed report {path}"]


def _is_own_folder(path: Path) -> bool:
    """Return whether a path is a folder of this user, not a symbolic link."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return False
