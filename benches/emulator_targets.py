"""Each figure that the emulator must reach, beside the achieved one and a baseline of the same run.

Run ``python benches/emulator_targets.py`` (root, or a user who may open /dev/net/tun; needs iperf3 and ip). The cases
of a group take turns. Medians are shown with the range.

``--only far`` is a link of 10 Gbit/s with a round-trip time of 112 ms (COSM-IC, Table I) and 140 MB in flight: TCP and
a UDP stream in real time, and TCP in virtual time. This group runs only if it is named.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import tempfile
import time
from functools import partial
from pathlib import Path as File
from typing import Any, Literal

from emulator_exactness import delay_cases, release_cases
from emulator_links import bring_up_case, full_links_case
from emulator_nodes import (
    ADDRESSES,
    PAYLOAD_SHARE,
    VETH_ADDRESSES,
    Case,
    Stages,
    bottleneck,
    configuration,
    connect_by_veth,
    delay_stage,
    measure_flow,
    start_emulator,
    trace_stages,
    write_trace,
)
from measuring import Figures, format_range, interleave

from cellbed.link import Link
from cellbed.path import Path, Tcp

FAR_RATE, FAR_TRIP_MS, FAR_BYTES = 10**10, 112, 140_000_000
"""The far link: bit/s, round-trip time (ms), and bandwidth-delay product (bytes), also the limit of its queue."""

#: Options of iperf3 for a stream of datagrams at the far link's rate.
UDP = ("-u", "-b", str(FAR_RATE))


def flow_over(stages: Stages, bit_rate: int, back: Stages | None = None, **changes: Any) -> Case:
    """Return a case with one TCP flow over `stages`, and `back` in the other direction.

    The window fills a path of 100 ms and no queue is shorter, so that the sender's loss recovery has no effect.
    """
    window = max(4_000_000, bit_rate // 80)

    def measure(seconds: float) -> Figures:
        config = configuration(stages) | changes
        config["directions"][1]["stages"] = stages if back is None else back
        for vertex in config["vertices"]:
            vertex["sysctls"] |= {
                "net.ipv4.tcp_rmem": f"4096 131072 {window}",
                "net.ipv4.tcp_wmem": f"4096 131072 {window}",
            }
        with start_emulator(config) as emulator:
            result = measure_flow(emulator, ADDRESSES["edge"], seconds)
        result["asked"] = bit_rate / 1e6
        result["of_asked"] = result["goodput"] / PAYLOAD_SHARE / result["asked"]
        return result

    return measure


def trace_cases(folder: File) -> dict[str, Case]:
    """Return flows over traces of several rates, without and with a delay."""
    cases: dict[str, Case] = {}
    for delay in (0, 20):
        for gigabits in (0.1, 0.5, 1, 2, 4, 10):
            rate = round(gigabits * 1e9)
            stages = trace_stages(write_trace(folder, rate), max(8_000_000, rate // 40))
            if delay:
                stages.append(delay_stage(delay))
            cases[f"trace, {gigabits:g} Gbit/s" + (f", {delay} ms" if delay else "")] = flow_over(stages, rate)
    return cases


def chain_case() -> dict[str, Case]:
    """Return a flow over eight chained groups of loss (probability 0), rate and delay, with only a delay back."""
    one = [{"kind": "loss", "probability": 0.0, "seed": 1}, *bottleneck(10**9, 25_000_000), delay_stage(0.1)]
    return {"24 stages, 1 Gbit/s": flow_over(one * 8, 10**9, back=[delay_stage(0.8)])}


def veth_case(seconds: float, *options: str, omitted: int = 1) -> Figures:
    """Measure a flow over a veth pair: by default TCP, else by these options of iperf3."""
    with start_emulator(configuration([])) as emulator:
        connect_by_veth(emulator, True)
        return measure_flow(emulator, VETH_ADDRESSES["edge"], seconds, omitted, options)


def logging_cases(folder: File) -> dict[str, Case]:
    """Return flows over a trace of 1 Gbit/s without and with the files of a run."""
    stages = trace_stages(write_trace(folder, 10**9), 25_000_000)
    files = {"series": str(folder / "series.bin"), "packet_log": str(folder / "packets.bin")}
    return {
        "1 Gbit/s, no log": flow_over(stages, 10**9),
        "1 Gbit/s, log": flow_over(stages, 10**9, **files),
    }


def far_cases() -> dict[str, Case]:
    """Return the cases of the far link."""
    config = configuration([*bottleneck(FAR_RATE, FAR_BYTES), delay_stage(FAR_TRIP_MS / 2)])
    for vertex in config["vertices"]:
        window = f"4096 131072 {4 * FAR_BYTES}"
        vertex["sysctls"] |= {"net.ipv4.tcp_rmem": window, "net.ipv4.tcp_wmem": window}

    def real(*options: str, omitted: int = 5) -> Case:
        def measure(seconds: float) -> Figures:
            with start_emulator(config) as emulator:
                return measure_flow(emulator, ADDRESSES["edge"], seconds, omitted, options)

        return measure

    def virtual(control: Literal["cubic", "bbr"]) -> Case:
        def measure(seconds: float) -> Figures:
            link = Link(rate="10 Gbit/s", queue="140 MB", delay="56 ms")
            began, size = time.process_time(), round(seconds * FAR_RATE / 8)
            download = Path(link, link).downloads(
                sizes=[size], tcp=Tcp(control, receive_window=4 * FAR_BYTES, send_buffer=4 * FAR_BYTES)
            )
            took = int(download.taken[0]) / 1e9
            return {"goodput": size * 8e-6 / took, "cpu": (time.process_time() - began) / took}

        return measure

    cases = {f"TCP {law}": real("-C", law) for law in ("cubic", "bbr")}
    # iperf3 also counts UDP losses of omitted seconds.
    cases |= {"UDP": real(*UDP, omitted=0), "UDP, veth": lambda seconds: veth_case(seconds, *UDP, omitted=0)}
    return cases | {"virtual cubic": virtual("cubic"), "virtual bbr": virtual("bbr")}


def groups(folder: File) -> dict[str, dict[str, Case]]:
    """Return all cases by group and name."""
    return {
        "trace": {"veth": veth_case} | trace_cases(folder),
        "log": logging_cases(folder),
        "chain": chain_case(),
        "links": {"512 links brought up": bring_up_case(512), "links loaded at once": full_links_case()},
        "delay": delay_cases(),
        "release": release_cases(folder),
        "far": far_cases(),
    }


GROUPS = ("trace", "log", "chain", "links", "delay", "release", "far")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=4, help="length of each measurement (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each case (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group; may be given several times")
    parser.add_argument("--match", default="", help="only cases with this in their name")
    arguments = parser.parse_args()
    for program, package in (("iperf3", "iperf3"), ("ip", "iproute2")):
        if shutil.which(program) is None:
            sys.exit(f"error: {program} is missing; install the package {package}")
    print(f"{socket.gethostname()}: {os.cpu_count()} cores; medians of {arguments.repeat} (range); delays in µs")
    with tempfile.TemporaryDirectory() as folder:
        for group, cases in groups(File(folder)).items():
            if group not in (arguments.only or GROUPS[:-1]):
                continue
            chosen = {name: partial(case, arguments.seconds) for name, case in cases.items() if arguments.match in name}
            for name, figures in interleave(chosen, arguments.repeat).items():
                print(f"{name:44}", ", ".join(show(figures, key) for key in figures[0]), flush=True)


def show(figures: list[Figures], key: str) -> str:
    """Return a figure with its range as text."""
    values = [run[key] for run in figures]
    return f"{key} {format_range(values, 3 if max(values) < 10 else 1 if max(values) < 10_000 else 0)}"


if __name__ == "__main__":
    main()
