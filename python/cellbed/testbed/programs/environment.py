"""The machine and the versions of a run: ``environment.json``."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.laws.law import CONGESTION_SETTING, name_of
from cellbed.scenario.model import SLOW_START_AFTER_IDLE

if TYPE_CHECKING:
    from cellbed.testbed.plan import Plan

LIBRARIES = ("numpy", "onnx", "onnxruntime", "paho-mqtt", "pillow", "polars", "pydantic")


def environment(plan: Plan) -> dict[str, Any]:
    """Return the environment of the run: versions, kernel, processor, trace hashes, seed, TCP settings."""
    control = plan.scenario.transport.congestion_control
    asked = plan.scenario.transport.sysctls(None if control is None else name_of(control))
    traces: dict[str, str] = {}
    for direction in plan.directions:
        traces |= direction.recordings()
    return {
        "cellbed": version("cellbed"),
        "python": platform.python_version(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
        "mosquitto": _mosquitto_version(
            shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        ),
        "kernel": platform.release(),
        "distribution": _distribution(),
        "machine": platform.machine(),
        "processor": processor(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "congestion_control": asked.get(CONGESTION_SETTING) or host_congestion_control(),
        "slow_start_after_idle": asked.get(SLOW_START_AFTER_IDLE) or _sysctl(SLOW_START_AFTER_IDLE),
        "traces": traces,
        "seed": plan.scenario.seed,
        "load_average_before": os.getloadavg()[0],
    }


def host_congestion_control() -> str:
    """Return the default congestion control of new network namespaces on this host."""
    return _sysctl(CONGESTION_SETTING) or "unknown"


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", name.replace(".", "/")).read_text(encoding="utf-8").strip()
    except OSError:
        return None


@functools.cache
def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@functools.cache
def _mosquitto_version(path: str | None) -> str | None:
    import subprocess

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
    """Return the name of this machine's processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or None
