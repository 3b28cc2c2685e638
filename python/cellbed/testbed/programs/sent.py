"""Programs of cellbed on other machines' nodes: an archive of Python files, and input files, are sent there.

The machine needs Python, but nothing of cellbed. Files that a program writes are copied into the run's folder at its
end. Their timestamps are by the machine's clock, like all timestamps of programs there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

from cellbed.testbed.machine.process import Process, ProgramError
from cellbed.testbed.nodes.backend import Backend
from cellbed_node import inputs
from cellbed_node.processes import Running
from cellbed_node.temporary import temporary_folder

PACKAGES = ("cellbed_node", "h11", "h2", "hpack", "hyperframe", "paho", "wsproto")
"""Packages, all in pure Python, that load generators, broker and services import."""
ARCHIVE = "cellbed_node.zip"
_MOMENTS = ("connect_ns", "t0_ns", "end_ns")
_IS_RECENT = "import sys; sys.exit(sys.version_info < (3, 11))"


class SentPrograms:
    """The programs of a run that are sent to their nodes. raw: folder for their output files."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._written: list[tuple[Backend, str]] = []
        self._prepared: set[str] = set()

    def start(self, process: Process, node: Backend, errors: Any) -> Running:
        """Start a program. errors: file for its standard error. Errors: ``OSError``, :class:`ProgramError`."""
        if node.name not in self._prepared:
            self._prepare(process, node)
            self._prepared.add(node.name)
        with temporary_folder() as folder:
            config = folder / process.config.name
            moved = self._move_paths(inputs.json_value(process.config), process, node)
            config.write_text(json.dumps(moved), encoding="utf-8")
            node.copy_in(config, config.name)
        return node.spawn(
            ["python3", "-P", "-m", process.module, "--config", process.config.name],
            environment={"PYTHONPATH": ARCHIVE, **process.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )

    def collect(self) -> list[str]:
        """Copy the programs' output files; return a sentence for each file that cannot be copied."""
        problems = []
        for node, name in self._written:
            try:
                with contextlib.suppress(FileNotFoundError):
                    node.read(name, 1)
                    node.copy_out(name, self._raw / name)
            except (OSError, ProgramError) as error:
                problems.append(f"{node.name}: cannot copy {name}, whose requests are missing: {error}")
        return problems

    def _prepare(self, process: Process, node: Backend) -> None:
        """Send the archive. Errors: :class:`ProgramError` if the machine has no recent Python."""
        try:
            node.output(["python3", "-c", _IS_RECENT])
        except OSError:
            raise ProgramError(
                f"{process.name} cannot run on {node.name}: programs of cellbed need Python 3.11 or newer there, as "
                "`python3`"
            ) from None
        with temporary_folder() as folder:
            archive = folder / ARCHIVE
            write_archive(archive)
            node.copy_in(archive, ARCHIVE)

    def _move_paths(self, value: Any, process: Process, node: Backend) -> Any:
        """Return a configuration with paths on the node instead of paths here."""
        if isinstance(value, dict):
            return {name: self._move_paths(each, process, node) for name, each in value.items()}
        if not isinstance(value, str):
            return value
        path = Path(value)
        if path.parent == process.config.parent:
            if (node, path.name) not in self._written:
                self._written.append((node, path.name))
            return path.name
        if value in process.reads:
            name = "-".join(path.parts[-2:])
            node.copy_in(path, name)
            return name
        return value


def write_archive(path: Path) -> None:
    """Write the archive of :data:`PACKAGES`, which Python can import from (``zipimport``)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            assert found is not None
            for place in found.submodule_search_locations or ():
                for file in sorted(Path(place).rglob("*.py")):
                    archive.write(file, Path(name, file.relative_to(place)))


def shift(command: dict[str, Any], ahead_ns: int) -> dict[str, Any]:
    """Return a command with its times on a clock that is ahead by `ahead_ns`."""
    return {name: value + ahead_ns if name in _MOMENTS else value for name, value in command.items()}
