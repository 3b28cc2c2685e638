"""Congestion control laws in the kernel beside the same laws in virtual time, and beside the kernel's own.

Downloads by iperf3 over each link: throughput and mean round trip of each law, in real time (as root) and predicted.
The last column is prediction over kernel. With several flows, also Jain's index of their bytes, and their convergence:
the first second from which on the index of every 5 s is at least 0.9. Real trials that the machine disturbed count; run
it on an idle machine. --cpu: instead, the CPU time of each law's programs per acknowledgement.

    sudo python benches/laws.py [--links "20 Mbit/s" PATH/Verizon-LTE-short ...] [--laws NAME ...] [--repetitions 3]
    sudo python benches/laws.py --flows 2 4 8 16 --seconds 60
    sudo python benches/laws.py --cpu
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import polars as pl

from cellbed.experiments.laws import Comparison
from cellbed.experiments.sweep.library import Sweep
from cellbed.laws.kernel import loaded
from cellbed.laws.law import Law, shipped
from cellbed.measure.packets import read_packets

CONVERGED, WINDOW_S = 0.9, 5
CPU_BYTES, CPU_REPETITIONS = 1 << 26, 3
"""Of a transfer over the loopback, and of transfers per law."""
PAIRS = {"reno-cellbed": "reno", "cubic-both": "cubic"}
"""Laws that are the kernel's own, too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", nargs="+", default=["20 Mbit/s"])
    parser.add_argument("--laws", nargs="+", default=["reno", "cubic", "bbr", *shipped()])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--flows", nargs="+", type=int, default=[1])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.cpu:
        show_cpu([law for name, law in shipped().items() if name in asked.laws])
        return
    with contextlib.ExitStack() as stack:
        out = asked.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        comparison = Comparison(
            asked.laws, asked.links, asked.flows, seconds=asked.seconds, repetitions=asked.repetitions
        )
        file = comparison.write(out, Path.cwd())
        for options in ([], ["--virtual"]):
            command = [sys.executable, "-P", "-m", "cellbed", "sweep", str(file), "--out", str(out), *options]
            subprocess.run(command, check=True, stdout=sys.stderr)
        kernel, virtual = (results(comparison, out / name) for name in ("laws", "laws-virtual"))
    show(kernel, virtual)
    if max(asked.flows) > 1:
        show_fairness(kernel, virtual)


def show(kernel: pl.DataFrame, virtual: pl.DataFrame) -> None:
    """Print a row for each link and law."""
    print("| link | law | Mbit/s, kernel | virtual | ratio | round trip ms, kernel | virtual | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    both = kernel.join(virtual, on=["link", "flows", "law"], suffix="_virtual", maintain_order="left")
    for row in both.iter_rows(named=True):
        cells = [row["link"], row["law"] if row["flows"] == "1" else f"{row['law']}, {row['flows']} flows"]
        for measure, factor in (("throughput_mbit_s", 1.0), ("round_trip_s", 1e3)):
            real, predicted = (row[f"{measure}{end}"] * factor for end in ("", "_virtual"))
            low, high = (row[f"{measure}_{end}"] for end in ("low", "high"))
            interval = "" if low is None else f" ({low * factor:.4g}–{high * factor:.4g})"
            cells += [f"{real:.4g}{interval}", f"{predicted:.4g}", f"{predicted / real:.3f}"]
        print("| " + " | ".join(cells) + " |")
    for link in kernel["link"].unique(maintain_order=True):
        of_link = {row["law"]: row for row in kernel.filter(link=link).iter_rows(named=True)}
        for ours, own in PAIRS.items():
            if ours in of_link and own in of_link:
                ratios = [of_link[ours][name] / of_link[own][name] for name in ("throughput_mbit_s", "round_trip_s")]
                print(f"{link}: {ours} over the kernel's {own}: throughput {ratios[0]:.3f}, round trip {ratios[1]:.3f}")


def results(comparison: Comparison, folder: Path) -> pl.DataFrame:
    """Return the results of a sweep with converged_s: when the flows of a point had converged, s, the mean over
    repetitions, null where one had not."""
    sweep, rows = Sweep.load(folder), []
    for trial in sweep.trials.filter(pl.col("app") == "bulk", pl.col("status") != "failed").iter_rows(named=True):
        at = convergence(sweep.path / trial["folder"], comparison.seconds)
        rows.append({name: trial[name] for name in ("link", "flows", "law")} | {"converged_s": at})
    mean = pl.when(pl.col("converged_s").is_not_null().all()).then(pl.col("converged_s").mean()).alias("converged_s")
    at = pl.DataFrame(rows, infer_schema_length=None).group_by("link", "flows", "law").agg(mean)
    return comparison.results(sweep).join(at, on=["link", "flows", "law"], how="left", maintain_order="left")


def convergence(trial: Path, seconds: int) -> float | None:
    """Return the first second from which on the flows of a trial share evenly; ``None``: never."""
    packets = read_packets(trial / "raw" / "packets.bin")
    data = packets[(packets["source_port"] == 5201) & (packets["payload"] > 1000) & (packets["drop"] == 0)]
    data = data[data["direction"] == data["direction"].min()]
    _, flow = np.unique(data["destination_port"], return_inverse=True)
    second = (data["departed"] - data["departed"].min()) // 10**9
    bins = np.zeros((flow.max() + 1, seconds))
    inside = second < seconds
    np.add.at(bins, (flow[inside], second[inside]), data["payload"][inside])
    carried = np.lib.stride_tricks.sliding_window_view(bins, WINDOW_S, axis=1).sum(axis=2)
    index = carried.sum(axis=0) ** 2 / (len(carried) * (carried**2).sum(axis=0))
    uneven = np.flatnonzero(index < CONVERGED)
    at = uneven[-1] + 1 if len(uneven) else 0
    return float(at) if at < len(index) else None


def show_fairness(kernel: pl.DataFrame, virtual: pl.DataFrame) -> None:
    """Print a row for each link and law: index and convergence in both clocks."""
    both = kernel.join(virtual, on=["link", "flows", "law"], suffix="_virtual", maintain_order="left")
    counts = kernel["flows"].unique(maintain_order=True).to_list()
    print(
        "| link | law | " + " | ".join(f"{count} flows" for count in counts) + " |\n" + "|---" * (2 + len(counts)) + "|"
    )
    for (link, law), rows in both.group_by("link", "law", maintain_order=True):
        cells = [
            ", ".join(
                f"{row[f'fairness{end}']:.2f} ({'–' if (at := row[f'converged_s{end}']) is None else f'{at:.3g} s'})"
                for end in ("", "_virtual")
            )
            if row["fairness"] is not None
            else "–"
            for row in rows.iter_rows(named=True)
        ]
        print("| " + " | ".join([str(link), str(law), *cells]) + " |")


def show_cpu(laws: list[Law]) -> None:
    """Print the CPU time of each law's programs in the kernel per acknowledgement, the least of some transfers."""
    statistics = ctypes.CDLL("libbpf.so.1", use_errno=True).bpf_enable_stats(0)  # BPF_STATS_RUN_TIME
    if statistics < 0:
        raise OSError(ctypes.get_errno(), "the kernel keeps no statistics of BPF programs")
    print("| law | ns per acknowledgement |\n|---|---|")
    for law in laws:
        print(f"| {law.name} | {min(cpu_ns(law) for _ in range(CPU_REPETITIONS)):.0f} |", flush=True)
    os.close(statistics)


def cpu_ns(law: Law) -> float:
    """Return the CPU time of a law's programs per acknowledgement in one transfer over the loopback, ns.

    The programs' statistics are in /proc/self/fdinfo. The one that runs most often does so once per acknowledgement.
    """
    with loaded(law) as name, socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        client.connect(server.getsockname())
        sender = threading.Thread(target=client.sendall, args=[bytes(CPU_BYTES)], daemon=True)
        with server.accept()[0] as receiver:
            sender.start()
            left = CPU_BYTES
            while left:
                left -= len(receiver.recv(1 << 14))
        runs = []
        for entry in Path("/proc/self/fdinfo").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found = dict(re.findall(r"^(run_time_ns|run_cnt):\t(\d+)$", entry.read_text(), re.MULTILINE))
                if found:
                    runs.append((int(found["run_time_ns"]), int(found["run_cnt"])))
    return sum(time for time, _ in runs) / max(count for _, count in runs)


if __name__ == "__main__":
    main()
