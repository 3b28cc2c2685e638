"""Two nodes behind an emulator, and what is measured of them: the ground that the benchmarks stand on."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cellbed._core import enter
from cellbed.testbed.links.emulator import Emulator

Figures = dict[str, float]
#: Measures once, for so many seconds.
Case = Callable[[float], Figures]
Stages = list[dict[str, Any]]

ADDRESSES = {"endpoint": "100.64.0.2", "edge": "100.64.64.2"}
VETH_ADDRESSES = {"endpoint": "10.0.0.1", "edge": "10.0.0.2"}


def configuration(stages: Stages, folder: Path | None = None) -> dict[str, Any]:
    """Two nodes and `stages` each way between them."""
    vertices = [
        {
            "name": name,
            "namespace": "new",
            "addresses": [f"{address}/32"],
            "routes": ["0.0.0.0/0"],
            "sysctls": {"net.ipv4.tcp_congestion_control": "reno"},
        }
        for name, address in ADDRESSES.items()
    ]
    return {
        "namespaces": "auto",
        "vertices": vertices,
        "default_vertex": None,
        "directions": [
            {"name": "uplink", "from": "endpoint", "to": "edge", "stages": stages},
            {"name": "downlink", "from": "edge", "to": "endpoint", "stages": stages},
        ],
        "series": str(folder / "series.bin") if folder else None,
        "packet_log": str(folder / "packets.bin") if folder else None,
    }


def bottleneck(bit_rate: int | None, queue_bytes: int = 1_000_000) -> Stages:
    schedule: dict[str, Any] = {"kind": "constant", "bit_rate": bit_rate} if bit_rate else {"kind": "unlimited"}
    return [
        {
            "kind": "bottleneck",
            "schedule": schedule,
            "queue": {"kind": "droptail", "packets": None, "bytes": queue_bytes},
        }
    ]


def inside(emulator: Emulator, node: str, keep_capabilities: bool = False) -> Callable[[], None]:
    return lambda: enter(
        user_namespace=emulator.user_namespace,
        network_namespace=emulator.namespace(node),
        binds=[],
        cgroups=[],
        keep_capabilities=keep_capabilities,
    )


def connect_by_veth(emulator: Emulator, offload: bool) -> None:
    """A veth pair between the two nodes, beside the TUN devices."""

    def run(node: str, *command: str) -> None:
        subprocess.run(command, preexec_fn=inside(emulator, node, True), check=True, stdout=subprocess.DEVNULL)

    hold = subprocess.Popen(["sleep", "30"], preexec_fn=inside(emulator, "edge"))
    try:
        run("endpoint", "ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", str(hold.pid))
    finally:
        hold.kill()
        hold.wait()
    for node, address in VETH_ADDRESSES.items():
        run(node, "ip", "address", "add", f"{address}/24", "dev", "veth0")
        if not offload:
            run(node, "ip", "link", "set", "veth0", "gso_max_segs", "1")
        run(node, "ip", "link", "set", "veth0", "up")


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads, by the scheduler's own clock: counting ticks deceives where work is periodic."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def write_trace(folder: Path, bit_rate: int) -> Path:
    """A trace of constant rate: opportunities of 1500 bytes at every millisecond, spread evenly over 120 ms."""
    path = folder / f"{bit_rate}.trace"
    per_ms, total, lines = bit_rate / 12e6, 0, []
    for ms in range(1, 121):
        due = round(per_ms * ms)
        lines += [f"{ms}\n"] * (due - total)
        total = due
    path.write_text("".join(lines))
    return path


def trace_stages(path: Path, queue_bytes: int) -> Stages:
    """A bottleneck that plays a trace."""
    return [
        {
            "kind": "bottleneck",
            "schedule": {"kind": "trace", "path": str(path), "looped": True},
            "queue": {"kind": "droptail", "packets": None, "bytes": queue_bytes},
        }
    ]


def delay_stage(milliseconds: float) -> dict[str, Any]:
    return {"kind": "delay", "fixed_ns": round(milliseconds * 1e6)}


@contextlib.contextmanager
def start_emulator(config: dict[str, Any]) -> Iterator[Emulator]:
    emulator = Emulator.start(config)
    try:
        yield emulator
    finally:
        emulator.kill()


@contextlib.contextmanager
def background(emulator: Emulator, bit_rate: int) -> Iterator[None]:
    """UDP at `bit_rate` from endpoint to edge."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "--forceflush"], preexec_fn=inside(emulator, "edge"), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        pass
    client = subprocess.Popen(
        ["iperf3", "-c", ADDRESSES["edge"], "-t", "60", "-b", str(bit_rate)],
        preexec_fn=inside(emulator, "endpoint"),
        stdout=subprocess.DEVNULL,
    )
    time.sleep(1)
    try:
        yield
    finally:
        for process in (client, server):
            process.kill()
            process.communicate()


def quantiles(nanoseconds: list[int]) -> dict[str, float]:
    ordered = sorted(nanoseconds)
    return {
        "p50": ordered[len(ordered) // 2] / 1e3,
        "p99": ordered[len(ordered) * 99 // 100] / 1e3,
        "max": ordered[-1] / 1e3,
        "min": ordered[0] / 1e3,
    }
