"""A link with a server behind it, in real time: brought up for one application on one network, and gone after it."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.errors import CellbedError
from cellbed.experiments.evaluation.applications import Application, Measured, Pages, described
from cellbed.experiments.evaluation.certificate import Certificate
from cellbed.experiments.evaluation.network import Network, Stages
from cellbed.experiments.evaluation.programs import trains, web
from cellbed.shell.programs import find, run
from cellbed.testbed.backend import NamespaceNode
from cellbed.testbed.folder import host_congestion_control
from cellbed.testbed.process import end
from cellbed.testbed.state import RUN_VARIABLE
from cellbed.testbed.testbed import Testbed

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NEAR, FAR = "near", "far"
ADDRESSES = {NEAR: "100.64.0.2", FAR: "100.64.64.2"}
START_PATIENCE_S = 60.0
CONGESTION_CONTROL = "cubic"
"""What Linux uses unless told otherwise; the host's default may be another."""
SILENCE_S = 300.0
"""How long a client may say nothing: a file may take its time on a weak link."""


class SiteError(CellbedError):
    """An application did not come to its end."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an application runs in beside its network.

    mark: the evaluation's identifier in the registry of live runs, by which `cellbed clean` finds what a killed one
    left. scratch: folder for logs, pages and the browser's files. certificate: of the web server.
    """

    mark: str
    scratch: Path
    certificate: Certificate | None = None


def perform(application: Application, network: Network, seed: int, around: Surroundings) -> list[Measured]:
    """Run an application from the network's time zero on. seed: of the order and the pauses within it.

    Errors: :class:`SiteError` with the last line that a program wrote, and the emulator's.
    """
    scratch, mark = around.scratch, {RUN_VARIABLE: around.mark}
    environment = {**os.environ, **mark, "TMPDIR": str(scratch), "HOME": str(scratch)}
    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(Testbed(configuration(network), around.mark))
        for node in ADDRESSES:
            _choose_congestion_control(bed, node)
        server_task: dict[str, Any] = {"application": application.name, "folder": str(scratch / "nginx")}
        client_task: dict[str, Any] = {"application": described(application), "seed": seed, "browser": browser()}
        if around.certificate is not None:
            server_task |= {"certificate": str(around.certificate.path), "key": str(around.certificate.key)}
            client_task |= {"certificate_hash": around.certificate.hash}
        server = _program(bed.nodes[FAR], "serve", server_task, environment, scratch, stack)
        client = _program(bed.nodes[NEAR], "run", client_task, environment, scratch, stack)
        _await_listening(server, _port(application), scratch / "serve.log")
        events = _events(client, f"the client of {application.name}", scratch / "run.log")
        next(events)
        bed.emulator.restart_links(time.monotonic_ns())
        assert client.stdin is not None
        client.stdin.write(b"\n")
        client.stdin.flush()
        samples: list[Measured] = []
        for event in events:
            if "done" in event:
                break
            samples.append((event["measure"], event["value"]))
        return samples


def configuration(network: Network) -> dict[str, Any]:
    """The emulator's configuration: two nodes with the network between them."""

    def node(name: str) -> dict[str, Any]:
        # What one connection learnt of the link is not to help the next one.
        sysctls = {"net.ipv4.tcp_no_metrics_save": "1"}
        return {
            "name": name,
            "namespace": "new",
            "addresses": [f"{ADDRESSES[name]}/32"],
            "routes": ["0.0.0.0/0"],
            "sysctls": sysctls,
        }

    def direction(name: str, source: str, target: str, stages: Stages) -> dict[str, Any]:
        return {"name": name, "from": source, "to": target, "stages": [dict(stage) for stage in stages]}

    return {
        "namespaces": "auto",
        "vertices": [node(NEAR), node(FAR)],
        "default_vertex": None,
        "directions": [
            direction("uplink", NEAR, FAR, network.uplink),
            direction("downlink", FAR, NEAR, network.downlink),
        ],
        "series": None,
        "packet_log": None,
    }


def browser() -> str | None:
    """Path of Chromium, or ``None`` where there is none."""
    return next((path for name in BROWSERS if (path := find(name))), None)


def needs(application: Application) -> str | None:
    """What an application lacks on this machine, in a sentence; ``None`` if nothing."""
    if not isinstance(application, Pages):
        return None
    if importlib.util.find_spec("playwright") is None:
        return "page loads need the Python package playwright: pip install playwright"
    if browser() is None:
        return "page loads need Chromium: apt-get install chromium"
    if find("nginx") is None:
        return "page loads need nginx as their server: apt-get install nginx-light"
    if find("openssl") is None:
        return "page loads need OpenSSL for their certificate: apt-get install openssl"
    return None


def congestion_control() -> str:
    """The congestion control of all connections: cubic, unless this machine lacks what it takes to choose it."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="utf-8").split()
    chosen = find("ip") is not None and CONGESTION_CONTROL in available
    return CONGESTION_CONTROL if chosen else host_congestion_control()


def _choose_congestion_control(bed: Testbed, node: str) -> None:
    # A socket option or a setting of the namespace needs the host to allow it to everybody; a route does not.
    name = congestion_control()
    if name != host_congestion_control():
        route = ["ip", "route", "replace", "default", "dev", bed.emulator.interface(node), "congctl", name]
        run([str(find("ip")), *route[1:]], place=bed.nodes[node].place)


def _port(application: Application) -> int:
    """A port that the server of the application opens last."""
    return web.PORTS["HTTP/2"] if isinstance(application, Pages) else trains.PORT


def _await_listening(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + START_PATIENCE_S
    while not _listens(server.pid, port):
        if server.poll() is not None or time.monotonic() > until:
            raise SiteError(f"the server did not start{_last_words(log)}")
        time.sleep(0.02)


def _listens(process: int, port: int) -> bool:
    """Whether somebody listens at a TCP port in the network namespace of a process (proc_pid_net(5))."""
    try:
        rows = [line.split() for line in Path(f"/proc/{process}/net/tcp").read_text(encoding="utf-8").splitlines()[1:]]
    except OSError:
        return False
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def _program(
    node: NamespaceNode,
    what: str,
    task: dict[str, Any],
    environment: dict[str, str],
    scratch: Path,
    stack: contextlib.ExitStack,
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", f"{__package__}.programs", what, ADDRESSES[FAR], json.dumps(task)]
    pipe = subprocess.PIPE
    with (scratch / f"{what}.log").open("wb") as log:
        process = node.spawn(command, environment=environment, stdin=pipe, stdout=pipe, stderr=log)
    stack.callback(end, process)
    return process


def _events(process: subprocess.Popen[bytes], name: str, log: Path) -> Iterator[dict[str, Any]]:
    """What a program says, line by line. Errors: :class:`SiteError` if it ends or says nothing for too long."""
    assert process.stdout is not None
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_S):
                raise SiteError(f"{name} sent no output for {SILENCE_S:g} s")
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise SiteError(f"{name} ended unexpectedly{_last_words(log)}")
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


def _last_words(log: Path) -> str:
    said = [line for line in log.read_text(errors="replace", encoding="utf-8").splitlines() if line.strip()]
    return f": {said[-1].strip()}" if said else ""
