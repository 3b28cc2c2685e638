"""An emulator process as the tests drive it: raw JSON lines, and the binary files it leaves."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from cellbed.measure.links import read_series
from cellbed.measure.packets import RECORD as PACKET
from cellbed.testbed.machine.process import Place

EMULATE = "from cellbed._core import emulate; emulate()"

#: Addresses of the two nodes of :func:`line_of_two`, by family.
ENDPOINT = {4: "100.64.0.2", 6: "fd63:656c:6c62:0::2"}
EDGE = {4: "100.64.64.2", 6: "fd63:656c:6c62:1::2"}

Stages = list[dict[str, Any]]


def delay(milliseconds: float) -> dict[str, Any]:
    return {"kind": "delay", "fixed_ns": round(milliseconds * 1e6)}


def bottleneck(schedule: dict[str, Any], queue_bytes: int | None = None) -> dict[str, Any]:
    queue: dict[str, Any] = {"kind": "infinite"}
    if queue_bytes is not None:
        queue = {"kind": "droptail", "packets": None, "bytes": queue_bytes}
    return {"kind": "bottleneck", "schedule": schedule, "queue": queue}


def constant(bit_rate: int, queue_bytes: int | None = None) -> dict[str, Any]:
    return bottleneck({"kind": "constant", "bit_rate": bit_rate}, queue_bytes)


def line_of_two(uplink: Stages, downlink: Stages, folder: Path | None = None, **changes: Any) -> dict[str, Any]:
    """A configuration: endpoint, tower, edge; `uplink` and `downlink` between the first two, nothing behind."""

    def node(name: str, addresses: dict[int, str]) -> dict[str, Any]:
        return {
            "name": name,
            "namespace": "new",
            "addresses": [f"{addresses[4]}/32", f"{addresses[6]}/128"],
            "routes": ["0.0.0.0/0", "::/0"],
        }

    def direction(name: str, source: str, target: str, stages: Stages) -> dict[str, Any]:
        return {"name": name, "from": source, "to": target, "stages": stages}

    return {
        "namespaces": "auto",
        "vertices": [
            node("endpoint", ENDPOINT),
            {"name": "tower", "namespace": None},
            node("edge", EDGE),
        ],
        "default_vertex": None,
        "directions": [
            direction("mobile.uplink", "endpoint", "tower", uplink),
            direction("core.uplink", "tower", "edge", []),
            direction("core.downlink", "edge", "tower", []),
            direction("mobile.downlink", "tower", "endpoint", downlink),
        ],
        "series": str(folder / "series.bin") if folder else None,
        "packet_log": str(folder / "packets.bin") if folder else None,
    } | changes


class EmulatorProcess:
    """A running emulator; leave the ``with`` block and it is gone."""

    def __init__(self, config: dict[str, Any] | bytes, command: list[str] | None = None, **options: Any) -> None:
        self.process = subprocess.Popen(
            command or [sys.executable, "-c", EMULATE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        line = config if isinstance(config, bytes) else json.dumps(config).encode() + b"\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ready(self) -> dict[str, Any]:
        """Wait for the nodes; skips the test where this machine cannot have them."""
        event = self.event()
        message = event.get("message", "")
        if "/dev/net/tun" in message or "namespace" in message:
            pytest.skip(f"this machine runs no emulator for this user: {message}")
        assert event["event"] == "ready", event
        self.nodes = event["nodes"]
        self.user_namespace = event["user_namespace"]
        return event

    def event(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read().decode() if self.process.stderr else ""
        event: dict[str, Any] = json.loads(line)
        return event

    def command(self, **command: Any) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        return self.event()

    def probe(self, *, source: str = "endpoint", target: str = "edge", bytes: int = 1500, bit_rate: int,
              seconds: float, family: int = 4) -> dict[str, Any]:  # fmt: skip
        """Send one flow; ``sent_ns`` and ``received_ns`` come back."""
        flow = {
            "from": source,
            "to": target,
            "bytes": bytes,
            "bit_rate": bit_rate,
            "duration_ns": round(seconds * 1e9),
            "family": family,
        }
        event = self.command(do="probe", flows=[flow])
        assert event["event"] == "probed", event
        result: dict[str, Any] = event["flows"][0]
        return result

    def status(self) -> dict[str, dict[str, Any]]:
        return {direction["name"]: direction for direction in self.command(do="status")["directions"]}

    def stop(self) -> dict[str, Any]:
        account = self.command(do="stop")
        assert account["event"] == "stopped", account
        assert self.process.wait(200) == 0
        return account

    def inside(
        self, node: str, *, binds: tuple[tuple[str, str], ...] = (), keep_capabilities: bool = False
    ) -> Callable[[], None]:
        """A ``preexec_fn`` that brings a program into a node."""
        place = Place(self.nodes[node]["namespace"], self.user_namespace, binds)
        return lambda: place.enter(keep_capabilities=keep_capabilities)

    def run(self, node: str, program: list[str]) -> str:
        """Output of a program in a node."""
        done = subprocess.run(program, preexec_fn=self.inside(node), stdout=subprocess.PIPE, check=True, text=True)
        return done.stdout


def packets(folder: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Records of the packet log."""
    data = (folder / "packets.bin").read_bytes()
    assert data.startswith(b"cellbed packets1")
    return np.frombuffer(data[16:], PACKET)


def series(folder: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """Records of the series file."""
    return np.sort(read_series(folder / "series.bin"), order=["direction", "start"])


def busy(log: np.ndarray[Any, np.dtype[Any]]) -> list[tuple[int, int]]:
    """Return the times at which packets of a direction or flow waited."""
    gaps = np.flatnonzero(log["arrived"][1:] > log["released"][:-1]) + 1
    begins, ends = np.r_[0, gaps], np.r_[gaps, len(log)] - 1
    return [(int(log["arrived"][one]), int(log["released"][other])) for one, other in zip(begins, ends, strict=True)]


def both(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the times that are in two lists."""
    pairs = [(max(a, c), min(b, d)) for (a, b), (c, d) in itertools.product(one, other)]
    return [(begin, end) for begin, end in pairs if begin < end]
