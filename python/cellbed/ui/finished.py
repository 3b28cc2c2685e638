"""Finished runs and sweeps below a folder, and the scenario files of another."""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cellbed_node import inputs

Json = dict[str, Any]
_MALFORMED = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
_MOST_FILES = 500
"""Maximum number of scenario files listed."""


class Finished:
    """The runs and sweeps in `folder`, with their files read again only after a change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._known: dict[str, tuple[list[int], Json]] = {}

    def entries(self) -> list[Json]:
        """Return the runs and sweeps, the latest first.

        key: name of the folder. kind: run or sweep. name, started, status; report: whether it has a page. Of a run with
        a summary: verdict, and for each application requests, answered, median and p99 (seconds, absent if unknown). Of
        a sweep: trials, the number of runs.
        """
        found: dict[str, tuple[list[int], Json]] = {}
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.folder):
                with contextlib.suppress(*_MALFORMED):
                    if entry.is_dir() and (value := self._read(Path(entry.path))) is not None:
                        found[entry.name] = value
        self._known = found
        return sorted((value for _, value in found.values()), key=lambda each: str(each["started"]), reverse=True)

    def find(self, key: str) -> Path | None:
        """Return the folder of a listed run or sweep."""
        path = self.folder / key
        is_name = key == path.name and key not in ("", ".", "..")
        return path if is_name and any((path / name).is_file() for name in ("run.json", "sweep.toml")) else None

    def _read(self, path: Path) -> tuple[list[int], Json] | None:
        names = ("run.json", "summary.json", "report.html", "sweep.toml")
        changed = [_changed_ns(path / name) for name in names]
        if path.name in self._known and changed == self._known[path.name][0] and not changed[3]:
            return self._known[path.name]
        value: Json = {"key": path.name, "report": bool(changed[2])}
        if changed[3]:
            return changed, value | _sweep(path, changed[3])
        return (changed, value | _run(path, has_summary=bool(changed[1]))) if changed[0] else None


def _run(path: Path, *, has_summary: bool) -> Json:
    run = inputs.json_value(path / "run.json")
    value: Json = {"kind": "prediction" if run.get("clock") == "virtual" else "run", "name": str(run["name"])}
    value |= {"status": str(run["status"]), "started": str(run["started"]), "apps": []}
    if has_summary:
        summary = inputs.json_value(path / "summary.json")
        value["apps"] = [_application(each) for each in summary["applications"]]
        if summary["disturbances"] and value["status"] == "complete":
            value["status"] = "disturbed"
        if expected := summary.get("expectations"):
            value["verdict"] = f"{sum(bool(each['met']) for each in expected)} of {len(expected)} met"
    return value


def _application(summary: Json) -> Json:
    counts = summary["requests"]
    value = {"name": str(summary["name"]), "requests": counts["total"], "answered": counts["ok"] + counts["late"]}
    for each in summary["percentiles"]:
        name = {0.5: "median", 0.99: "p99"}.get(each["quantile"])
        if name is not None and isinstance(each["value"], int | float):
            value[name] = each["value"]
    return value


def _sweep(path: Path, changed_ns: int) -> Json:
    trials = sum(1 for entry in os.scandir(path / "trials")) if (path / "trials").is_dir() else 0
    started = datetime.fromtimestamp(changed_ns / 1e9, UTC).isoformat(timespec="seconds")
    return {"kind": "sweep", "name": path.name, "status": "sweep", "started": started, "trials": trials}


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def scenario_files(folder: Path) -> list[str]:
    """Return the scenario files in `folder` and the folders in it, relative to it."""
    found = []
    for path in sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")])[:_MOST_FILES]:
        with contextlib.suppress(OSError):
            if "[nodes" in inputs.text(path, 1 << 20):
                found.append(str(path.relative_to(folder)))
    return found
