"""The folder of a run: what was asked, on what machine, and everything that was measured."""

from __future__ import annotations

import json
import os
import platform
import shutil
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.errors import CellbedError
from cellbed.scenario.model import CONGESTION_CONTROL, SLOW_START_AFTER_IDLE

if TYPE_CHECKING:
    from cellbed.testbed.plan import Plan

RESERVE = Path("raw", "reserve")
"""A file in the folder of an unfinished run. It is removed before ``run.json`` is written for the last time, so that a
disk that became full during the run has room for that."""
RESERVE_BYTES = 1 << 18
LIBRARIES = ("numpy", "onnx", "onnxruntime", "paho-mqtt", "pillow", "polars", "pydantic")


def create(parent: Path, name: str, now: datetime) -> Path:
    """Make a new folder ``<name>-<date>-<time>`` below `parent`; a number is added where it exists already."""
    parent = parent.absolute()
    stem = f"{name}-{now:%Y%m%d-%H%M%S}"
    number = 1
    while True:
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            (path / "raw").mkdir()
            (path / RESERVE).write_bytes(bytes(RESERVE_BYTES))
            return path
        except FileExistsError:
            # Also a symbolic link to nothing.
            if not parent.is_dir():
                raise CellbedError(f"{parent} is not a folder; choose another place with --out") from None
            number += 1
        except OSError as error:
            shutil.rmtree(path, ignore_errors=True)
            raise CellbedError(f"cannot write to {parent}: {error.strerror}; choose another place with --out") from None


def release_reserve(path: Path) -> None:
    """Make room for the last ``run.json`` of a run; see :data:`RESERVE`."""
    (path / RESERVE).unlink(missing_ok=True)


def is_unstarted(path: Path) -> bool:
    """Whether a folder looks like that of a run before its workload started: nothing in it but what a run writes first.

    It has no ``run.json`` then, by which a run's folder is known otherwise.
    """
    names = {entry.name.removesuffix(".tmp") for entry in path.iterdir()}
    described = {"run.json", "scenario.toml", "scenario.resolved.json", "environment.json"}
    return "raw" in names <= {"raw", "events.jsonl", "live.json", *described}


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole or not at all: to a temporary file, then renamed."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8", "backslashreplace")
        temporary.rename(path)
    finally:  # also after an interrupt
        temporary.unlink(missing_ok=True)


def environment(plan: Plan) -> dict[str, Any]:
    """On what the run was measured: versions, kernel, processor, trace hashes, seed, settings of TCP."""
    asked = plan.scenario.transport.sysctls()
    traces: dict[str, str] = {}
    for direction in plan.directions:
        traces |= direction.recordings()
    return {
        "cellbed": version("cellbed"),
        "python": platform.python_version(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
        "mosquitto": _mosquitto_version(),
        "kernel": platform.release(),
        "distribution": _distribution(),
        "machine": platform.machine(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "congestion_control": asked.get(CONGESTION_CONTROL) or host_congestion_control(),
        "slow_start_after_idle": asked.get(SLOW_START_AFTER_IDLE) or _sysctl(SLOW_START_AFTER_IDLE),
        "traces": traces,
        "seed": plan.scenario.seed,
        "load_average_before": os.getloadavg()[0],
    }


def host_congestion_control() -> str:
    """The congestion control that new network namespaces of this host begin with."""
    return _sysctl(CONGESTION_CONTROL) or "unknown"


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name.replace(".", "/")).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _mosquitto_version() -> str | None:
    import subprocess

    path = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if path is None:
        return None
    output = subprocess.run(
        [path, "-h"], capture_output=True, encoding="utf-8", errors="replace", check=False
    ).stdout.split()
    return output[2] if len(output) > 2 and output[1] == "version" else None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def processor() -> str | None:
    """The name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None
