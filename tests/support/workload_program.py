"""A program of a workload on this machine, driven as the supervisor of a run does."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cellbed.scenario import parse
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.http import kind as http
from cellbed.workloads.kind import Deployment
from cellbed.workloads.websocket import kind as websocket
from cellbed_node.processes import die_with_parent
from scenario_text import NODES, to_toml

PATIENCE = 200.0  # seconds until a test gives up; nothing is asserted about it


class Program:
    """A running process of the workload."""

    def __init__(self, process: Process | Command, log: Path) -> None:
        self.name = process.name
        self.log = log
        own = isinstance(process, Process)
        self._connects = isinstance(process, Process) and process.load
        self._port = None if isinstance(process, Process) else process.ready.port
        with log.open("wb") as errors:
            self.popen = subprocess.Popen(
                process.argv if isinstance(process, Process) else process.command,
                stdin=subprocess.PIPE if own else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **(process.env if isinstance(process, Process) else process.environment)},
                bufsize=0,
                preexec_fn=die_with_parent,
            )

    def say(self, **line: int) -> None:
        self.popen.stdin.write(json.dumps(line).encode() + b"\n")

    def await_event(self, name: str) -> dict[str, Any]:
        """The next event of this name."""
        deadline = time.monotonic() + PATIENCE
        while self._port is not None:
            assert self.popen.poll() is None, f"{self.name} ended: {self.log.read_text()}"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)):
                return {}
            assert time.monotonic() < deadline, f"{self.name}: {self.log.read_text()}"
            time.sleep(0.005)
        line = b""
        while select.select([self.popen.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
            byte = self.popen.stdout.read(1)
            assert byte, f"{self.name} ended: {self.log.read_text()}"
            if byte != b"\n":
                line += byte
                continue
            event = json.loads(line)
            line = b""
            if event["event"] == name == "ready" and self._connects:
                self.say(connect_ns=time.monotonic_ns())
                return self.await_event("connected")
            if event["event"] == name:
                return event
        raise AssertionError(f"{self.name}: no {name}: {self.log.read_text()}")

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        if self.popen.stdin is None:
            self.popen.terminate()
        else:
            with contextlib.suppress(BrokenPipeError):
                self.popen.stdin.close()
        self.popen.send_signal(signal.SIGCONT)
        try:
            return self.popen.wait(PATIENCE)
        finally:
            self.popen.kill()
            self.popen.wait()


LOOPBACK = IPv4Address("127.0.0.1")
SECOND = 1_000_000_000
SCENARIO = f'name = "http"\nduration = "1 s"\n{NODES}\n[workload]\nkind = "http"\nserver = "edge"\n'


@dataclass(frozen=True)
class Node:
    name: str
    node_class: str
    cpus: float = 1.0
    ipv4: IPv4Address = LOOPBACK


Load = Callable[..., list[dict[str, Any]]]
"""Runs an endpoint over HTTP, given a URL and keys; returns its requests."""


@contextmanager
def _server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on loopback that calls `serve` with each connection, then closes it."""

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                serve(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join(PATIENCE)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def load(
    folder: Path, kind: str, url: str, *, authorities: str | None = None, **keys: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run an endpoint with the keys of a scenario's table; return its requests by number, and its messages.

    The counts of the endpoint must agree with its requests.
    """
    keys = {"url": url, **({"rate": "30 /s"} if "arrivals" not in keys else {}), **keys}
    text = SCENARIO.replace('"http"\nserver', f'"{kind}"\nserver')
    text += "".join(f"{key} = {to_toml(value)}\n" for key, value in keys.items())
    table = parse(text, source="x.toml", folder=folder).applications["workload"]
    nodes = [Node("endpoint-0", "endpoint")], [Node("edge-0", "edge")]
    deployment = Deployment("web", table, 0, *nodes, 0, SECOND, authorities=authorities)
    module = http if kind == "http" else websocket
    (process,) = module.processes(deployment, folder, cache=folder, seed=1)
    files = [deployment.file(folder, deployment.clients[0], f"{name}.jsonl") for name in ("requests", "messages")]
    files[0].unlink(missing_ok=True)
    program = Program(process, folder / "log")
    try:
        program.await_event("ready")
        t0 = time.monotonic_ns()
        program.say(t0_ns=t0, end_ns=t0 + deployment.stop_ns, drain_ns=30 * SECOND)
        done = program.await_event("done")
    finally:
        program.stop()
    requests, messages = (
        [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [] for file in files
    )
    statuses = Counter(request["status"] for request in requests)
    assert done["sent"] == len(requests)
    assert done["completed"] == statuses["ok"] + statuses["late"]
    assert done["lost"] == statuses["lost"]
    return sorted(requests, key=lambda request: request["request"]), messages


GREETER = """
from concurrent.futures import ThreadPoolExecutor

import grpc

class Greeter(grpc.GenericRpcHandler):
    def service(self, details):
        def once(request, context):
            if details.method.endswith("Refuse"):
                context.abort(grpc.StatusCode.NOT_FOUND, "no\\nsuch é")
            return request

        def many(requests, context):
            for request in requests:
                yield from [request] * 3

        if details.method == "/a.Greeter/Many":
            return grpc.stream_stream_rpc_method_handler(many)
        return grpc.unary_unary_rpc_method_handler(once) if details.method.startswith("/a.Greeter/") else None

server = grpc.server(ThreadPoolExecutor(2), handlers=[Greeter()])
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
server.wait_for_termination()
"""
"""Says each message of a call again; "Many" three times; "Refuse" not."""
