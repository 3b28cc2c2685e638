"""Common parts of the emulator's benchmarks: two nodes behind an emulator, and iperf3 between the nodes."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import Figures, Meter

from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.machine.process import Place

Case = Callable[[float], Figures]
"""Measures once. Argument: duration in seconds."""
Stages = list[dict[str, Any]]

ADDRESSES = {"endpoint": "100.64.0.2", "edge": "100.64.64.2"}
VETH_ADDRESSES = {"endpoint": "10.0.0.1", "edge": "10.0.0.2"}
PAYLOAD_SHARE = 1448 / 1500
"""Share of a full-sized IP packet that is TCP payload (40 bytes of headers, 12 of timestamps)."""


def configuration(stages: Stages, folder: Path | None = None) -> dict[str, Any]:
    """Return the configuration of two nodes with `stages` in each direction."""
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
    """Return a bottleneck of a constant rate, or without a limit if there is no rate."""
    schedule: dict[str, Any] = {"kind": "constant", "bit_rate": bit_rate} if bit_rate else {"kind": "unlimited"}
    return [
        {
            "kind": "bottleneck",
            "schedule": schedule,
            "queue": {"kind": "droptail", "packets": None, "bytes": queue_bytes},
        }
    ]


def inside(emulator: Emulator, node: str, keep_capabilities: bool = False) -> Callable[[], None]:
    """Return the function that a child process calls to enter a node."""
    place = Place(emulator.namespace(node), emulator.user_namespace)
    return lambda: place.enter(keep_capabilities=keep_capabilities)


def connect_by_veth(emulator: Emulator, offload: bool) -> None:
    """Add a veth pair between the nodes, besides the TUN devices. offload: whether super-packets pass whole."""

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


def write_trace(folder: Path, bit_rate: int) -> Path:
    """Write a trace of constant rate: opportunities of 1500 bytes at every millisecond, spread evenly over 120 ms."""
    path = folder / f"{bit_rate}.trace"
    per_ms, total, lines = bit_rate / 12e6, 0, []
    for ms in range(1, 121):
        due = round(per_ms * ms)
        lines += [f"{ms}\n"] * (due - total)
        total = due
    path.write_text("".join(lines))
    return path


def trace_stages(path: Path, queue_bytes: int) -> Stages:
    """Return a bottleneck that plays a trace."""
    return [
        {
            "kind": "bottleneck",
            "schedule": {"kind": "trace", "path": str(path), "looped": True},
            "queue": {"kind": "droptail", "packets": None, "bytes": queue_bytes},
        }
    ]


def delay_stage(milliseconds: float) -> dict[str, Any]:
    """Return a constant delay."""
    return {"kind": "delay", "fixed_ns": round(milliseconds * 1e6)}


@contextlib.contextmanager
def start_emulator(config: dict[str, Any]) -> Iterator[Emulator]:
    """Run an emulator."""
    emulator = Emulator.start(config)
    try:
        yield emulator
    finally:
        emulator.kill()


def start_iperf3_server(emulator: Emulator) -> subprocess.Popen[str]:
    """Start iperf3 at the edge, for one client."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "--forceflush"], preexec_fn=inside(emulator, "edge"), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        pass
    return server


@contextlib.contextmanager
def background(emulator: Emulator, bit_rate: int) -> Iterator[None]:
    """Send TCP at `bit_rate` from endpoint to edge."""
    server = start_iperf3_server(emulator)
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


def measure_flow(
    emulator: Emulator, address: str, seconds: float, omitted: int = 1, options: Sequence[str] = ()
) -> Figures:
    """Send one flow from endpoint to edge; return Mbit/s of payload, share of a core and RTT in ms. The first `omitted`
    seconds are left out."""
    server, meter = start_iperf3_server(emulator), Meter(emulator.pid)
    client = subprocess.run(
        ["iperf3", "-c", address, "-t", str(seconds), "-O", str(omitted), "-J", *options],
        preexec_fn=inside(emulator, "endpoint"),
        stdout=subprocess.PIPE,
        check=False,
    )
    share = meter.share
    server.communicate(timeout=10)
    result = json.loads(client.stdout)
    if "error" in result:
        sys.exit(f"error: iperf3: {result['error']}")
    stream = result["end"]["streams"][0]
    if "udp" in stream:
        lost = stream["udp"]["lost_percent"] / 100
        sent = result["end"]["sum"]["bits_per_second"] / 1e6
        return {"goodput": sent * (1 - lost), "sent": sent, "lost": lost, "cpu": share}
    sender = stream["sender"]
    return {
        "goodput": result["end"]["sum_received"]["bits_per_second"] / 1e6,
        "cpu": share,
        "retransmits": sender.get("retransmits", 0),
        "rtt": sender.get("mean_rtt", 0) / 1e3,
        "longest_rtt": sender.get("max_rtt", 0) / 1e3,
    }


def quantiles(nanoseconds: list[int]) -> Figures:
    """Return quantiles in µs."""
    ordered = sorted(nanoseconds)
    return {
        "p50": ordered[len(ordered) // 2] / 1e3,
        "p99": ordered[len(ordered) * 99 // 100] / 1e3,
        "min": ordered[0] / 1e3,
    }
