"""The programs of the kind, and the spans of its requests."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cellbed.runformat.description import Description
from cellbed.testbed.process import Process
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.http import kind as http
from cellbed.workloads.kind import Deployment


def prepare(table: Any, cache: Path, note: Note = silent) -> None:
    """Nothing."""


def settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed.workloads.http.load.Settings`)."""
    host, port = deployment.address(deployment.servers[index % len(deployment.servers)]), deployment.table.port
    request = {"version": "1.1", "method": "GET", "target": "/status", "headers": {}, "connections": 1}
    return deployment.load(raw, index, seed) | request | {"host": host, "port": port, "authority": f"{host}:{port}"}


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process]:
    """A load generator on each client."""
    started = []
    for index, node in enumerate(deployment.clients):
        file = deployment.file(raw, node, "status-poll.json")
        file.write_text(json.dumps(settings(deployment, raw, index, seed)), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "cellbed.workloads.http.load"]
        name = f"{deployment.name}.{node.name}.status-poll"
        started.append(Process(name, node.name, command, ["--config", str(file)], stage=1, load=True))
    return started


def describe(table: Mapping[str, Any]) -> Description:
    """As of requests over HTTP."""
    return replace(http.describe({"url": f"http://host:{table['port']}/status"}), kind="status-poll")
