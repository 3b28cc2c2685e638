"""Many links of 16 Mbit/s around one server: the time to bring them up, and the largest number filled at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emulator_nodes import PAYLOAD_SHARE, Case, bottleneck, configuration, delay_stage, inside, start_emulator
from measuring import Figures, Meter

SERVER = "100.64.64.2"
BIT_RATE = 16_000_000

#: Minimum share of the requested rate for loaded links: of all links together, and of each link.
FULL, FULL_EACH = 0.99, 0.98

#: Window, bytes, for a queue that is never empty: a link holds 40 kB within the round-trip time of 20 ms.
WINDOW = 200_000


def links(count: int) -> dict[str, Any]:
    """Return the configuration of links from one server to separate nodes."""
    nodes = [("server", SERVER)] + [(f"n{i}", f"100.64.{i // 250}.{i % 250 + 2}") for i in range(count)]
    stages = [*bottleneck(BIT_RATE), delay_stage(10)]
    windows = {
        f"net.ipv4.tcp_{name}": f"4096 {WINDOW} {WINDOW}" if name == "rmem" else f"4096 16384 {WINDOW}"
        for name in ("rmem", "wmem")
    }
    config = configuration([])
    config["vertices"] = [
        {
            "name": name,
            "namespace": "new",
            "addresses": [f"{address}/32"],
            "routes": ["0.0.0.0/0"],
            "sysctls": windows,
        }
        for name, address in nodes
    ]
    config["directions"] = [
        {"name": f"{i}.{way}", "from": ends[0], "to": ends[1], "stages": stages}
        for i in range(count)
        for way, ends in (("up", (f"n{i}", "server")), ("down", ("server", f"n{i}")))
    ]
    return config


def bring_up_case(count: int) -> Case:
    """Return a case that brings up links without traffic."""

    def measure(_: float) -> Figures:
        begin = time.monotonic()
        with start_emulator(links(count)) as emulator:
            up = time.monotonic() - begin
            status = Path(f"/proc/{emulator.pid}/status").read_text()
            resident = int(status.split("VmRSS:")[1].split()[0]) / 1024
            meter = Meter(emulator.pid)
            time.sleep(1)
            return {"seconds": up, "MB": resident, "idle": meter.share}

    return measure


def load_links(count: int, seconds: float) -> Figures:
    """Load each link with one TCP flow: shares of the requested rate, processor time, lateness in µs."""
    program = [sys.executable, str(Path(__file__).with_name("link_load.py"))]

    def start(node: str, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*program, *arguments], preexec_fn=inside(emulator, node, True), stdout=subprocess.PIPE, text=True
        )

    with start_emulator(links(count)) as emulator:
        receiver = start("server", "receive", emulator.namespace("server"), SERVER, str(count), str(seconds))
        assert receiver.stdout is not None
        receiver.stdout.readline()
        sender = start("server", "send", SERVER, *(emulator.namespace(f"n{i}") for i in range(count)))
        try:
            time.sleep(0.5)
            meter = Meter(emulator.pid)
            rates = json.loads(receiver.communicate(timeout=seconds + 60)[0])
            share = meter.share
        finally:
            for process in (sender, receiver):
                process.kill()
                process.communicate()
        late = emulator.stop()["lateness_ns"]
    asked = BIT_RATE * PAYLOAD_SHARE / 8
    return {
        "links": count,
        "of_asked": sum(rates.values()) / asked / count,
        "least": min(rates.values()) / asked,
        "Gbit/s": sum(rates.values()) / PAYLOAD_SHARE * 8 / 1e9,
        "cpu": share,
        "late p50": late["p50"] / 1e3,
        "late p99": late["p99"] / 1e3,
    }


def full_links_case(first: int = 16, step: int = 8) -> Case:
    """Return a case that finds the maximum number of full links: doubling from `first`, then bisection to `step`."""

    def measure(seconds: float) -> Figures:
        def full(count: int) -> Figures | None:
            figures = load_links(count, seconds)
            return figures if figures["of_asked"] >= FULL and figures["least"] >= FULL_EACH else None

        return search(full, first, step)

    return measure


def search(full: Callable[[int], Figures | None], first: int, step: int) -> Figures:
    """Return the figures of the largest count for which `full` returns figures."""
    best, low, high = full(first), first, first * 2
    while best is not None and (found := full(high)) is not None:
        best, low, high = found, high, high * 2
    if best is None:
        return {"links": 0}
    while high - low > step:
        middle = (low + high) // 2
        found = full(middle)
        if found is None:
            high = middle
        else:
            best, low = found, middle
    return best
