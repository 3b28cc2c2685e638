"""How much one TCP flow gets through the emulator, and at what cost.

Run ``python benches/emulator_throughput.py`` (root, or a user who may open /dev/net/tun; needs iperf3 and ip). Every
figure stands beside plain veth of the same run. Repetitions are interleaved, so that a busy moment of the machine does
not fall on one case alone; medians are shown, with the range.

``--far`` has a link of 10 Gbit/s with a round-trip time of 112 ms (COSM-IC, Table I) instead, 140 MB in flight: one TCP
flow and a UDP stream in real time, and TCP in virtual time, each with its share of the link.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path as File
from typing import Literal

from emulator_nodes import (
    ADDRESSES,
    VETH_ADDRESSES,
    Case,
    bottleneck,
    configuration,
    connect_by_veth,
    cpu_seconds,
    delay_stage,
    inside,
    start_emulator,
)

from cellbed.link import Link
from cellbed.path import Path, Tcp
from cellbed.testbed.links.emulator import Emulator

#: Share of a full-sized IP packet that is TCP payload (40 bytes of headers, 12 of timestamps).
PAYLOAD_SHARE = 1448 / 1500


FAR_RATE, FAR_TRIP_MS, FAR_BYTES = 10**10, 112, 140_000_000
"""Of the far link: bit/s, round-trip time, and the bandwidth-delay product, which is the length of its queue, too."""


def one_flow(
    emulator: Emulator, address: str, seconds: float, omitted: int = 1, options: Sequence[str] = ()
) -> dict[str, float]:
    """One flow from endpoint to edge, its first seconds left out: Mbit/s of payload, share of a core, RTT in ms."""
    server = subprocess.Popen(
        ["iperf3", "-s", "-1", "--forceflush"], preexec_fn=inside(emulator, "edge"), stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        pass
    busy, begin = cpu_seconds(emulator.pid), time.monotonic()
    client = subprocess.run(
        ["iperf3", "-c", address, "-t", str(seconds), "-O", str(omitted), "-J", *options],
        preexec_fn=inside(emulator, "endpoint"),
        stdout=subprocess.PIPE,
        check=False,
    )
    share = (cpu_seconds(emulator.pid) - busy) / (time.monotonic() - begin)
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


def flow_cases(folder: File) -> dict[str, Case]:
    """The cases by name; each takes seconds and measures once."""

    def veth(offload: bool) -> Case:
        def measure(seconds: float) -> dict[str, float]:
            with start_emulator(configuration([])) as emulator:
                connect_by_veth(emulator, offload)
                return one_flow(emulator, VETH_ADDRESSES["edge"], seconds)

        return measure

    def emulated(bit_rate: int | None, log: bool = False) -> Case:
        def measure(seconds: float) -> dict[str, float]:
            with start_emulator(configuration(bottleneck(bit_rate), folder if log else None)) as emulator:
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


def far_cases() -> dict[str, Case]:
    """The cases of the far link."""
    config = configuration([*bottleneck(FAR_RATE, FAR_BYTES), delay_stage(FAR_TRIP_MS / 2)])
    for vertex in config["vertices"]:
        window = f"4096 131072 {4 * FAR_BYTES}"
        vertex["sysctls"] |= {"net.ipv4.tcp_rmem": window, "net.ipv4.tcp_wmem": window}

    def real(*options: str, omitted: int = 5) -> Case:
        def measure(seconds: float) -> dict[str, float]:
            with start_emulator(config) as emulator:
                return one_flow(emulator, ADDRESSES["edge"], seconds, omitted, options)

        return measure

    def virtual(control: Literal["cubic", "bbr"]) -> Case:
        def measure(seconds: float) -> dict[str, float]:
            link = Link(rate="10 Gbit/s", queue="140 MB", delay="56 ms")
            began, size = time.process_time(), round(seconds * FAR_RATE / 8)
            download = Path(link, link).downloads(
                sizes=[size], tcp=Tcp(control, receive_window=4 * FAR_BYTES, send_buffer=4 * FAR_BYTES)
            )
            took = int(download.taken[0]) / 1e9
            return {"goodput": size * 8e-6 / took, "cpu": (time.process_time() - began) / took}

        return measure

    found = {f"TCP {law}": real("-C", law) for law in ("cubic", "bbr")}
    # iperf3 also counts UDP losses of omitted seconds.
    found |= {"UDP": real("-u", "-b", str(FAR_RATE), omitted=0)}
    return found | {"virtual cubic": virtual("cubic"), "virtual bbr": virtual("bbr")}


def show_far(flows: dict[str, list[dict[str, float]]]) -> None:
    print(f"one flow over 10 Gbit/s and {FAR_TRIP_MS} ms, {os.cpu_count()} cores; medians (range)")
    print(f"{'':20} {'goodput, Mbit/s':>26} {'of the link':>11} {'RTT, ms':>8} {'lost':>7} {'cores':>6}")
    for name, runs in flows.items():
        goodput = [run["goodput"] for run in runs]
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        spread = f"{median['goodput']:8.1f} ({min(goodput):.1f}–{max(goodput):.1f})"
        share = median["goodput"] / PAYLOAD_SHARE / FAR_RATE * 1e6
        trip = f"{median['rtt']:.1f}" if "rtt" in median else ""
        lost = f"{median['lost']:.1%}" if "lost" in median else ""
        print(f"{name:20} {spread:>26} {share:11.1%} {trip:>8} {lost:>7} {median['cpu']:6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=4, help="length of each flow (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each case (default: %(default)s)")
    parser.add_argument("--far", action="store_true", help="10 Gbit/s with a round-trip time of 112 ms")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every repetition")
    arguments = parser.parse_args()
    for program in ("iperf3", "ip"):
        if shutil.which(program) is None:
            sys.exit(f"error: {program} is missing; install the package {'iproute2' if program == 'ip' else program}")

    flows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cases = far_cases() if arguments.far else flow_cases(File(folder))
        for _ in range(arguments.repeat):
            for name, measure in cases.items():
                flows.setdefault(name, []).append(measure(arguments.seconds))
    if arguments.json:
        print(json.dumps({"flows": flows, "cores": os.cpu_count()}))
        return

    if arguments.far:
        show_far(flows)
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


if __name__ == "__main__":
    main()
