"""Each figure that the emulator is asked for, beside what it achieves and a baseline of the same run.

Run ``python benches/emulator_targets.py`` as ``emulator_throughput.py``, whose parts it uses; ``--only trace`` and the
like choose. Repetitions are interleaved; medians are shown, with the range.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from emulator_exactness import delay_cases, release_cases
from emulator_links import brought_up, most_loaded
from emulator_nodes import (
    ADDRESSES,
    VETH_ADDRESSES,
    Case,
    Figures,
    Stages,
    bottleneck,
    configuration,
    connect_by_veth,
    cpu_seconds,
    delay_stage,
    inside,
    start_emulator,
    trace_stages,
    write_trace,
)
from emulator_throughput import PAYLOAD_SHARE, one_flow

from cellbed.testbed.links.emulator import Emulator

#: Sends datagrams of 36 bytes payload (64 bytes of IPv4) as fast as it can, over a connected socket.
RECEIVE_UDP = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)  # SO_RCVBUFFORCE
sock.bind((sys.argv[1], 9999))
print("ready", flush=True)
while True:
    sock.recv(64)
"""
SEND_UDP = """
import socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect((sys.argv[1], 9999))
end, data, count = time.monotonic() + float(sys.argv[2]), bytes(36), 0
while time.monotonic() < end:
    for _ in range(256):
        try:
            sock.send(data)
            count += 1
        except OSError:
            pass
print(count)
"""


def flow_over(stages: Stages, bit_rate: int, back: Stages | None = None, **changes: Any) -> Case:
    """One TCP flow over `stages`, and the way back.

    Its window fills a path of 100 ms and no queue is shorter: how the sender recovers from losses is not the
    emulator's merit or fault.
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
            result = one_flow(emulator, ADDRESSES["edge"], seconds)
        result["asked"] = bit_rate / 1e6
        result["of_asked"] = result["goodput"] / PAYLOAD_SHARE / result["asked"]
        return result

    return measure


def trace_cases(folder: Path, **changes: Any) -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for delay in (0, 20):
        for gigabits in (0.1, 0.5, 1, 2, 4, 10):
            rate = round(gigabits * 1e9)
            stages = trace_stages(write_trace(folder, rate), max(8_000_000, rate // 40))
            if delay:
                stages.append(delay_stage(delay))
            cases[f"trace, {gigabits:g} Gbit/s" + (f", {delay} ms" if delay else "")] = flow_over(
                stages, rate, **changes
            )
    return cases


def chain_case() -> dict[str, Case]:
    """Loss (of nothing), rate and delay, eight times after one another; the way back has delay alone."""
    one = [{"kind": "loss", "probability": 0.0, "seed": 1}, *bottleneck(10**9, 25_000_000), delay_stage(0.1)]
    return {"24 stages, 1 Gbit/s": flow_over(one * 8, 10**9, back=[delay_stage(0.8)])}


def veth_case(seconds: float) -> Figures:
    with start_emulator(configuration([])) as emulator:
        connect_by_veth(emulator, True)
        return one_flow(emulator, VETH_ADDRESSES["edge"], seconds)


def datagrams(over_veth: bool) -> Case:
    """Small datagrams as fast as a program sends them: how many a second arrive, and are read, at the other end."""

    def measure(seconds: float) -> Figures:
        with start_emulator(configuration([])) as emulator:
            if over_veth:
                connect_by_veth(emulator, True)
            address = (VETH_ADDRESSES if over_veth else ADDRESSES)["edge"]
            reader = subprocess.Popen(
                [sys.executable, "-c", RECEIVE_UDP, address],
                preexec_fn=inside(emulator, "edge"),
                stdout=subprocess.PIPE,
            )
            assert reader.stdout is not None
            reader.stdout.readline()
            busy, begin, before = cpu_seconds(emulator.pid), time.monotonic(), receive_counts(emulator)
            done = subprocess.run(
                [sys.executable, "-c", SEND_UDP, address, str(seconds)],
                preexec_fn=inside(emulator, "endpoint"),
                stdout=subprocess.PIPE,
                check=True,
            )
            time.sleep(0.3)
            arrived, read = (now - then for now, then in zip(receive_counts(emulator), before, strict=True))
            span = time.monotonic() - begin - 0.3
            reader.kill()
            reader.communicate()
            return {
                "sent": int(done.stdout) / seconds,
                "arrived": arrived / seconds,
                "read": read / seconds,
                "cpu": (cpu_seconds(emulator.pid) - busy) / span,
            }

    return measure


def receive_counts(emulator: Emulator) -> tuple[int, int]:
    """Datagrams that reached the receiving socket, those included that found its buffer full; those read."""
    text = subprocess.run(
        ["cat", "/proc/self/net/snmp"],
        preexec_fn=inside(emulator, "edge"),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    ).stdout
    names, values = (line.split() for line in text.splitlines() if line.startswith("Udp:"))
    table = dict(zip(names[1:], values[1:], strict=True))
    return int(table["InDatagrams"]) + int(table["InErrors"]), int(table["InDatagrams"])


def idle(seconds: float) -> Figures:
    with start_emulator(configuration([delay_stage(20)])) as emulator:
        time.sleep(0.5)
        busy, begin = cpu_seconds(emulator.pid), time.monotonic()
        time.sleep(seconds)
        return {"cpu": (cpu_seconds(emulator.pid) - busy) / (time.monotonic() - begin)}


def logging_cases(folder: Path) -> dict[str, Case]:
    """1 Gbit/s of a trace without and with the files of a run."""
    stages = trace_stages(write_trace(folder, 10**9), 25_000_000)
    files = {"series": str(folder / "series.bin"), "packet_log": str(folder / "packets.bin")}
    return {
        "1 Gbit/s, no log": flow_over(stages, 10**9),
        "1 Gbit/s, log": flow_over(stages, 10**9, **files),
    }


def modes(folder: Path) -> dict[str, Case]:
    """Flows that meet full queues and losses, with super-packets and cut by the kernel beforehand."""
    trace = write_trace(folder, 10**8)
    loss = {"kind": "loss", "probability": 0.0005, "seed": 1}
    links = {
        "drop-tail of 375 kB": [*trace_stages(trace, 375_000), delay_stage(20)],
        "loss of 0.05 %": [loss, *trace_stages(trace, 8_000_000), delay_stage(20)],
    }
    return {
        f"100 Mbit/s, {name}, {mode}": flow_over(stages, 10**8, back=[delay_stage(20)], offload=mode == "fast")
        for name, stages in links.items()
        for mode in ("fast", "reference")
    }


def groups(folder: Path) -> dict[str, dict[str, Case]]:
    return {
        "trace": {"veth": veth_case} | trace_cases(folder),
        "reference": {f"{name}, per segment": case for name, case in trace_cases(folder, offload=False).items()},
        "modes": modes(folder),
        "log": logging_cases(folder),
        "chain": chain_case(),
        "datagrams": {"64-byte datagrams": datagrams(False), "64-byte datagrams, veth": datagrams(True)},
        "idle": {"idle": idle},
        "links": {"512 links brought up": brought_up(512), "links loaded at once": most_loaded()},
        "delay": delay_cases(),
        "release": release_cases(folder),
    }


GROUPS = ("trace", "reference", "modes", "log", "chain", "datagrams", "idle", "links", "delay", "release")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=4, help="length of each measurement (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each case (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group; may be given several times")
    parser.add_argument("--match", default="", help="only cases with this in their name")
    arguments = parser.parse_args()
    print(f"{socket.gethostname()}: {os.cpu_count()} cores; medians of {arguments.repeat} (range); delays in µs")
    with tempfile.TemporaryDirectory() as folder:
        for group, cases in groups(Path(folder)).items():
            if arguments.only and group not in arguments.only:
                continue
            chosen = {name: case for name, case in cases.items() if arguments.match in name}
            runs: dict[str, list[Figures]] = {name: [] for name in chosen}
            for _ in range(arguments.repeat):
                for name, case in chosen.items():
                    runs[name].append(case(arguments.seconds))
            for name, figures in runs.items():
                print(f"{name:44}", ", ".join(show(figures, key) for key in figures[0]), flush=True)


def show(figures: list[Figures], key: str) -> str:
    values = [run[key] for run in figures]
    median = statistics.median(values)
    digits = 3 if median < 10 else 1 if median < 10_000 else 0
    spread = f" ({min(values):.{digits}f}–{max(values):.{digits}f})" if len(values) > 1 else ""
    return f"{key} {median:.{digits}f}{spread}"


if __name__ == "__main__":
    main()
