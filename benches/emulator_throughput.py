"""How much one TCP flow gets through the emulator, at what cost, and how exact a delay is.

Run ``python benches/emulator_throughput.py`` (root, or a user who may open /dev/net/tun; needs iperf3 and ip). Every
figure stands beside one of the same run: the flow beside plain veth, the delay beside a bare timer. Repetitions are
interleaved, so that a busy moment of the machine does not fall on one case alone; medians are shown, with the range.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cellbed._core import enter
from cellbed.testbed.emulator import Emulator

ADDRESSES = {"endpoint": "100.64.0.2", "edge": "100.64.64.2"}
VETH_ADDRESSES = {"endpoint": "10.0.0.1", "edge": "10.0.0.2"}

#: Share of a full-sized IP packet that is TCP payload (40 bytes of headers, 12 of timestamps).
PAYLOAD_SHARE = 1448 / 1500

#: Absolute deadlines at the probe's rate and nothing else; lateness in ns, one JSON list.
BARE_TIMER = """
import ctypes, json, os, sys, time
ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK, 1 ns
if sys.argv[3] == "fifo":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
interval, count = int(sys.argv[1]), int(sys.argv[2])
due, late = time.monotonic_ns(), []
for _ in range(count):
    due += interval
    time.sleep(max(0, due - time.monotonic_ns()) / 1e9)  # clock_nanosleep to an absolute time
    late.append(time.monotonic_ns() - due)
print(json.dumps(late))
"""


def configuration(stages: list[dict[str, Any]], folder: Path | None = None) -> dict[str, Any]:
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


def bottleneck(bit_rate: int | None) -> list[dict[str, Any]]:
    schedule: dict[str, Any] = {"kind": "constant", "bit_rate": bit_rate} if bit_rate else {"kind": "unlimited"}
    return [
        {
            "kind": "bottleneck",
            "schedule": schedule,
            "queue": {"kind": "droptail", "packets": None, "bytes": 1_000_000},
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


def one_flow(emulator: Emulator, address: str, seconds: float) -> dict[str, float]:
    """One TCP flow from endpoint to edge, its first second left out: Mbit/s of payload, share of a core, RTT in ms."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "--forceflush"], preexec_fn=inside(emulator, "edge"), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        pass
    busy, begin = cpu_seconds(emulator.pid), time.monotonic()
    client = subprocess.run(
        ["iperf3", "-c", address, "-t", str(seconds), "-O", "1", "-J"],
        preexec_fn=inside(emulator, "endpoint"),
        stdout=subprocess.PIPE,
        check=False,
    )
    share = (cpu_seconds(emulator.pid) - busy) / (time.monotonic() - begin)
    server.communicate(timeout=10)
    result = json.loads(client.stdout)
    if "error" in result:
        sys.exit(f"error: iperf3: {result['error']}")
    sender = result["end"]["streams"][0]["sender"]
    return {
        "goodput": result["end"]["sum_received"]["bits_per_second"] / 1e6,
        "cpu": share,
        "retransmits": sender.get("retransmits", 0),
        "rtt": sender.get("mean_rtt", 0) / 1e3,
        "longest_rtt": sender.get("max_rtt", 0) / 1e3,
    }


@contextlib.contextmanager
def running(config: dict[str, Any]) -> Iterator[Emulator]:
    emulator = Emulator.start(config)
    try:
        yield emulator
    finally:
        emulator.kill()


def flow_cases(folder: Path) -> dict[str, Callable[[float], dict[str, float]]]:
    """The cases by name; each takes seconds and measures once."""

    def veth(offload: bool) -> Callable[[float], dict[str, float]]:
        def measure(seconds: float) -> dict[str, float]:
            with running(configuration([])) as emulator:
                connect_by_veth(emulator, offload)
                return one_flow(emulator, VETH_ADDRESSES["edge"], seconds)

        return measure

    def emulated(bit_rate: int | None, log: bool = False) -> Callable[[float], dict[str, float]]:
        def measure(seconds: float) -> dict[str, float]:
            with running(configuration(bottleneck(bit_rate), folder if log else None)) as emulator:
                result = one_flow(emulator, ADDRESSES["edge"], seconds)
                if bit_rate:
                    result["asked"] = bit_rate / 1e6
                    result["of_asked"] = result["goodput"] / PAYLOAD_SHARE / result["asked"]
                return result

        return measure

    cases = {"veth": veth(True), "veth, per packet": veth(False)}
    cases["unlimited"] = emulated(None)
    cases["unlimited, logged"] = emulated(None, log=True)
    for name, bit_rate in [("1 Gbit/s", 10**9), ("100 Mbit/s", 10**8), ("12 Mbit/s", 12 * 10**6)]:
        cases[name] = emulated(bit_rate)
    return cases


def delay_error(seconds: float) -> dict[str, dict[str, float]]:
    """Errors in µs of a delay of 20 ms at 200 datagrams/s, with a bare timer running at the same time.

    The interval of 4.9937 ms moves the phase evenly over the milliseconds.
    """
    interval, size = 4_993_700, 200
    stages = [{"kind": "delay", "fixed_ns": 20_000_000}]
    flow = {
        "from": "endpoint",
        "to": "edge",
        "bytes": size,
        "bit_rate": size * 8 * 10**9 // interval,
        "duration_ns": round(seconds * 1e9),
        "family": 4,
    }
    with running(configuration(stages)) as emulator:
        count = str(round(seconds * 1e9 / interval))
        scheduling = "fifo" if os.geteuid() == 0 else "ordinary"  # as the emulator's event loop
        timer = subprocess.Popen(
            [sys.executable, "-c", BARE_TIMER, str(interval), count, scheduling], stdout=subprocess.PIPE
        )
        [seen] = emulator.probe([flow], seconds + 30)
        bare = json.loads(timer.communicate()[0])
        account = emulator.stop()
    pairs = zip(seen["sent_ns"], seen["received_ns"], strict=True)
    one_way = [received - sent - 20_000_000 for sent, received in pairs if received is not None]
    lateness = account["lateness_ns"]
    return {
        "one-way delay, program to program": quantiles(one_way),
        "emulator alone (written after departure)": {key: lateness[key] / 1e3 for key in ("p50", "p99", "max")},
        "bare timer": quantiles(bare),
    }


def quantiles(nanoseconds: list[int]) -> dict[str, float]:
    ordered = sorted(nanoseconds)
    return {
        "p50": ordered[len(ordered) // 2] / 1e3,
        "p99": ordered[len(ordered) * 99 // 100] / 1e3,
        "max": ordered[-1] / 1e3,
        "min": ordered[0] / 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=4, help="length of each flow (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each case (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every repetition")
    arguments = parser.parse_args()
    for program in ("iperf3", "ip"):
        if shutil.which(program) is None:
            sys.exit(f"error: {program} is missing; install the package {'iproute2' if program == 'ip' else program}")

    flows: dict[str, list[dict[str, float]]] = {}
    delays: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = flow_cases(Path(folder))
        for _ in range(arguments.repeat):
            for name, measure in cases.items():
                flows.setdefault(name, []).append(measure(arguments.seconds))
            for name, errors in delay_error(arguments.seconds).items():
                delays.setdefault(name, []).append(errors)
    if arguments.json:
        print(json.dumps({"flows": flows, "delay_error_us": delays, "cores": os.cpu_count()}))
        return

    veth = statistics.median(run["goodput"] for run in flows["veth, per packet"])
    print(f"one TCP flow (reno), {os.cpu_count()} cores shared with iperf3; medians of {arguments.repeat} (range)")
    print(f"{'':20} {'goodput, Mbit/s':>24} {'of asked':>9} {'of the 2nd':>10} {'emulator, cores':>16}")
    for name, runs in flows.items():
        goodput = [run["goodput"] for run in runs]
        median = statistics.median(goodput)
        spread = f"{median:8.1f} ({min(goodput):.1f}–{max(goodput):.1f})"
        asked = f"{statistics.median(run['of_asked'] for run in runs):.1%}" if "of_asked" in runs[0] else ""
        cpu = f"{statistics.median(run['cpu'] for run in runs):.2f}" if not name.startswith("veth") else ""
        print(f"{name:20} {spread:>24} {asked:>9} {median / veth:10.1%} {cpu:>16}")
    print("\ndelay of 20 ms at 200 datagrams/s of sweeping phase: error in µs; medians")
    print(f"{'':42} {'p50':>8} {'p99':>8} {'max':>8}")
    for name, runs in delays.items():
        p50, p99, most = (statistics.median(run[key] for run in runs) for key in ("p50", "p99", "max"))
        print(f"{name:42} {p50:8.1f} {p99:8.1f} {most:8.1f}")


if __name__ == "__main__":
    main()
