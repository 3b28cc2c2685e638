"""Finished runs and sweeps below a folder, and the scenario files of another."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from cellbed_node import inputs

Json = dict[str, Any]
_MALFORMED = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
_MOST_FILES = 500
"""Maximum number of scenario files listed."""


def entries(folder: Path) -> list[Json]:
    """Return the runs and sweeps in a folder, the latest first.

    key: name of its folder. kind: run, prediction or sweep. name, started, status; report: whether it has a page. Of a
    run with a summary: verdict, and for each application requests, answered, median and p99 (seconds, absent if
    unknown). Of a sweep: trials, the number of runs.
    """
    found = []
    for path in folder.glob("*/"):
        with contextlib.suppress(*_MALFORMED):
            changed = [_changed_ns(path / name) for name in ("run.json", "summary.json", "sweep.toml")]
            if any(changed):
                entry = _read_sweep(path, changed[2]) if changed[2] else _read_run(path, *changed[:2])
                found.append(entry | {"key": path.name, "report": bool(_changed_ns(path / "report.html"))})
    return sorted(found, key=lambda each: str(each["started"]), reverse=True)


def find(folder: Path, key: str) -> Path | None:
    """Return the folder of a listed run or sweep."""
    path = folder / key
    is_name = key == path.name and key not in ("", ".", "..")
    return path if is_name and any((path / name).is_file() for name in ("run.json", "sweep.toml")) else None


@lru_cache(maxsize=4096)
def _read_run(path: Path, described_ns: int, summarised_ns: int) -> Json:
    """Return a run whose files were changed at these times; 0 if there is no such file."""
    run = inputs.json_value(path / "run.json")
    value: Json = {"kind": "prediction" if run.get("clock") == "virtual" else "run", "apps": []}
    value |= {key: str(run[key]) for key in ("name", "status", "started")}
    if summarised_ns:
        summary = inputs.json_value(path / "summary.json")
        value["apps"] = [_read_application(each) for each in summary["applications"]]
        if summary["disturbances"] and value["status"] == "complete":
            value["status"] = "disturbed"
        if expected := summary.get("expectations"):
            value["verdict"] = f"{sum(bool(each['met']) for each in expected)} of {len(expected)} met"
    return value


def _read_application(summary: Json) -> Json:
    counts = summary["requests"]
    value = {"name": str(summary["name"]), "requests": counts["total"], "answered": counts["ok"] + counts["late"]}
    names = {0.5: "median", 0.99: "p99"}
    known = [each for each in summary["percentiles"] if isinstance(each["value"], int | float)]
    return value | {names[each["quantile"]]: each["value"] for each in known if each["quantile"] in names}


def _read_sweep(path: Path, changed_ns: int) -> Json:
    started = datetime.fromtimestamp(changed_ns / 1e9, UTC).isoformat(timespec="seconds")
    trials = sum(1 for _ in path.glob("trials/*"))
    return {"kind": "sweep", "name": path.name, "status": "sweep", "started": started, "trials": trials}


def _changed_ns(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def scenario_files(folder: Path) -> list[str]:
    """Return the scenario files in `folder` and the folders in it, relative to it."""
    found = []
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")])[:_MOST_FILES]:
        with contextlib.suppress(OSError):
            if "[nodes" in inputs.text(path, 1 << 20):
                found.append(str(path.relative_to(folder)))
    return found
