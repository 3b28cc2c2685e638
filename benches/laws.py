"""Congestion control laws in the kernel beside the same laws in virtual time, and beside the kernel's own.

Downloads by iperf3 over each link: throughput and mean round trip of each law, in real time (as root) and predicted.
The last column is prediction over kernel. With several flows, also Jain's index of their bytes, and the convergence:
the first second of the time with an index of at least 0.9 in every 5 s. Disturbed trials count: run the bench on an
idle machine. --virtual: only the table of several flows, in virtual time. --cpu: instead, the CPU time of each
law's programs per acknowledgement. --authors: instead, 1, 2, 4 flows in virtual time beside the figures of `AUTHORS`.

    sudo python benches/laws.py [--links "20 Mbit/s" PATH/Verizon-LTE-short ...] [--laws NAME ...] [--repetitions 3]
    sudo python benches/laws.py --flows 2 4 8 16 --seconds 60 [--virtual]
    sudo python benches/laws.py --cpu
    python benches/laws.py --authors
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.experiments.laws import Comparison
from cellbed.experiments.sweep.library import Sweep
from cellbed.laws.kernel import load_law
from cellbed.laws.law import Law, load_shipped
from cellbed.measure.packets import read_packets

CONVERGED, WINDOW_S = 0.9, 5
CPU_BYTES, CPU_ROUNDS = 1 << 26, 9
"""Size of a transfer over the loopback, bytes, and number of transfers of each law."""
PAIRS = {"reno-cellbed": "reno", "cubic-both": "cubic", "htcp-cellbed": "htcp", "highspeed-cellbed": "highspeed"}
"""Our laws, with the kernel's law of the same kind."""


IP_BYTES = 1500 / 1448
"""IP bytes of a full segment per byte of data."""


@dataclass(frozen=True, slots=True)
class Authors:
    """Figures of the authors' own code: flows over 20 Mbit/s, 40 ms, 400 kB, in 60 s without the first 10 s.

    The code ran unmodified in an event simulation of packets of 1,500 bytes; flows begin 0 to 1 ms apart.

    source: repository and commit, or file. points: number of flows -> Mbit/s of IP bytes, mean time in the bottleneck
    with transmission (ms), Jain's index.
    """

    source: str
    points: dict[int, tuple[float, float, float]]


AUTHORS = {
    "copa": Authors(
        "github.com/venkatarun95/genericCC 18299d6, MarkovianCC, do_ss:auto:0.5, the loop of its sender; each packet "
        "acknowledged. Flows that begin up to 1.5 s apart: 2 have 15.7 to 18.2 Mbit/s, 5.1 to 6.2 ms, 4 have 18.7 to "
        "19.6 Mbit/s, 7.8 to 47 ms",
        {1: (19.99, 2.4, 1.0), 2: (16.95, 5.3, 0.99), 4: (18.97, 22.0, 1.0)},
    ),
    "vegas": Authors(
        "Linux 6, net/ipv4/tcp_vegas.c; every second packet acknowledged",
        {1: (20.0, 3.5, 1.0), 2: (20.0, 8.3, 0.92), 4: (20.0, 20.0, 0.68)},
    ),
    "htcp-cellbed": Authors(
        "Linux 6, net/ipv4/tcp_htcp.c with 250 ticks per second; every second packet acknowledged",
        {1: (20.0, 98.3, 1.0), 2: (20.0, 116.7, 0.98), 4: (20.0, 122.8, 0.99)},
    ),
    "highspeed-cellbed": Authors(
        "Linux 6, net/ipv4/tcp_highspeed.c; every second packet acknowledged",
        {1: (20.0, 125.2, 1.0), 2: (20.0, 121.5, 0.98), 4: (20.0, 129.4, 0.99)},
    ),
    "c2tcp": Authors(
        "github.com/Soheil-ab/c2tcp 4b5b241, c2tcp_pkts_acked of the patch with alpha 2 and without tuner, over "
        "cubic-both; every second packet acknowledged",
        {1: (19.97, 22.7, 1.0), 2: (20.0, 31.6, 0.96), 4: (20.0, 38.6, 0.93)},
    ),
    "bbr3": Authors(
        "Google's tcp_bbr.c, version 3, as in github.com/hrimfaxi/tcp_bbr_modules ee4319e; every second packet "
        "acknowledged",
        {1: (19.33, 2.7, 1.0), 2: (19.55, 42.4, 1.0), 4: (19.55, 53.2, 1.0)},
    ),
    "vivace": Authors(
        "github.com/PCCproject/PCC-Uspace 30c2cfe, PccVivaceSender, utility Vivace; each packet acknowledged",
        {1: (18.93, 0.9, 1.0), 2: (19.54, 4.1, 0.99), 4: (20.0, 145.0, 0.99)},
    ),
    "exll": Authors(
        "github.com/chenhongquan/5G_measurement_tool b44a0e4, tcp_exll.c with its product of rate, alpha and segment "
        "in 64 bits (in 32 it overflows above 10 Mbit/s: 68.7, 117.3, 121.7 ms); every second packet acknowledged",
        {1: (20.0, 6.8, 1.0), 2: (20.0, 43.3, 0.99), 4: (20.0, 123.1, 1.0)},
    ),
    "sprout": Authors(
        "github.com/keithw/sprout c838669, SproutConnection, the loop of sproutbt2 at senders; packets of 1,502 bytes, "
        "forecasts each tick. With data both ways: 16.3, 18.9, 18.4 Mbit/s, 9.1, 21.9, 47.8 ms",
        {1: (16.44, 8.9, 1.0), 2: (20.03, 42.3, 1.0), 4: (20.03, 96.3, 1.0)},
    ),
    "verus": Authors(
        "github.com/yzaki/verus 4b1bbf0, its server with threads in simulated time; packets of 1,478 bytes; 4 flows in "
        "30 s. In real time one flow has 19.1 Mbit/s, 106 ms",
        {1: (18.31, 90.6, 1.0), 2: (19.81, 103.6, 1.0), 4: (19.64, 130.4, 0.91)},
    ),
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", nargs="+", default=["20 Mbit/s"])
    parser.add_argument("--laws", nargs="+", default=["reno", "cubic", "bbr", *load_shipped()])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--flows", nargs="+", type=int, default=[1])
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--authors", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.cpu:
        show_cpu([load_shipped()[name] for name in asked.laws if name in load_shipped()])
        return
    if asked.authors:
        asked.laws, asked.flows, asked.virtual = [name for name in asked.laws if name in AUTHORS], [1, 2, 4], True
        asked.seconds, asked.repetitions = 60, 1
    with contextlib.ExitStack() as stack:
        out = asked.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        comparison = Comparison(
            asked.laws,
            asked.links,
            asked.flows,
            seconds=asked.seconds,
            repetitions=asked.repetitions,
            virtual=asked.virtual,
            queue="400 kB" if asked.authors else "1 MB",
        )
        file = comparison.write(out, Path.cwd())
        clocks = {"laws-virtual": ["--virtual"]} if asked.virtual else {"laws": [], "laws-virtual": ["--virtual"]}
        for options in clocks.values():
            command = [sys.executable, "-P", "-m", "cellbed", "sweep", str(file), "--out", str(out), *options]
            subprocess.run(command, check=True, stdout=sys.stderr)
        found = [results(comparison, out / name) for name in clocks]
    if asked.authors:
        show_authors(found[0])
        return
    if not asked.virtual:
        show(*found)
    if max(asked.flows) > 1:
        show_fairness(found)


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


def show_authors(virtual: pl.DataFrame) -> None:
    """Print a row for each law and number of flows, beside its authors' code, and the sources."""
    print("| law | flows | Mbit/s: theirs, ours | queue, ms | Jain's index |")
    print("|---|---|---|---|---|")
    for row in virtual.sort("law", "flows").iter_rows(named=True):
        if (theirs := AUTHORS[row["law"]].points.get(int(row["flows"]))) is None:
            continue
        ours = (row["throughput_mbit_s"] * IP_BYTES, row["round_trip_s"] * 1e3 - 40, row["fairness"] or 1.0)
        cells = [
            f"{one:.{digits}f}, {two:.{digits}f}" for one, two, digits in zip(theirs, ours, (2, 1, 2), strict=True)
        ]
        print("| " + " | ".join([row["law"], row["flows"], *cells]) + " |")
    for law, authors in AUTHORS.items():
        print(f"{law}: {authors.source}")


def results(comparison: Comparison, folder: Path) -> pl.DataFrame:
    """Return the results of a sweep with converged_s: convergence time of a point's flows, s, as mean over repetitions;
    null if a repetition did not converge."""
    sweep, rows = Sweep.load(folder), []
    for trial in sweep.trials.filter(pl.col("app") == "bulk", pl.col("status") != "failed").iter_rows(named=True):
        at = convergence(sweep.path / trial["folder"], comparison.seconds)
        rows.append({name: trial[name] for name in ("link", "flows", "law")} | {"converged_s": at})
    mean = pl.when(pl.col("converged_s").is_not_null().all()).then(pl.col("converged_s").mean()).alias("converged_s")
    at = pl.DataFrame(rows, infer_schema_length=None).group_by("link", "flows", "law").agg(mean)
    return comparison.results(sweep).join(at, on=["link", "flows", "law"], how="left", maintain_order="left")


def convergence(trial: Path, seconds: int) -> float | None:
    """Return the second from which on the flows of a trial share evenly until the end; ``None``: never."""
    packets = read_packets(trial / "raw" / "packets.bin")
    data = packets[(packets["source_port"] == 5201) & (packets["payload"] > 1000) & (packets["drop"] == 0)]
    data = data[data["direction"] == data["direction"].min()]
    _, flow = np.unique(data["destination_port"], return_inverse=True)
    second = (data["departed"] - data["departed"].min()) // 10**9
    bins = np.zeros((flow.max() + 1, seconds))
    inside = second < seconds
    np.add.at(bins, (flow[inside], second[inside]), data["payload"][inside])
    bins = bins[bins.any(axis=1)]  # without the connection for iperf3's results
    carried = np.lib.stride_tricks.sliding_window_view(bins, WINDOW_S, axis=1).sum(axis=2)
    index = carried.sum(axis=0) ** 2 / (len(carried) * (carried**2).sum(axis=0))
    uneven = np.flatnonzero(index < CONVERGED)
    at = uneven[-1] + 1 if len(uneven) else 0
    return float(at) if at < len(index) else None


def show_fairness(clocks: list[pl.DataFrame]) -> None:
    """Print a row for each link and law: index and convergence in each clock."""
    counts = clocks[0]["flows"].unique(maintain_order=True).to_list()
    print("| link | law | " + " | ".join(f"{count} flows" for count in counts) + " |")
    print("|---" * (2 + len(counts)) + "|")
    for link, law in clocks[0].select("link", "law").unique(maintain_order=True).iter_rows():
        cells = [
            ", ".join(fairness(clock.filter(link=link, law=law, flows=count).row(0, named=True)) for clock in clocks)
            for count in counts
        ]
        print("| " + " | ".join([link, law, *cells]) + " |")


def fairness(row: dict[str, Any]) -> str:
    """Return index and convergence of a point as text."""
    if row["fairness"] is None:
        return "–"
    at = row["converged_s"]
    return f"{row['fairness']:.2f} ({'–' if at is None else f'{at:.3g} s'})"


def show_cpu(laws: list[Law]) -> None:
    """Print the median CPU time, with range, of each law's kernel programs per acknowledgement, and the median ratio to
    the first law's transfer of the same round."""
    statistics = ctypes.CDLL("libbpf.so.1", use_errno=True).bpf_enable_stats(0)  # BPF_STATS_RUN_TIME
    if statistics < 0:
        raise OSError(ctypes.get_errno(), "the kernel keeps no statistics of BPF programs")
    taken = np.array([[cpu_ns(law) for law in laws] for _ in range(CPU_ROUNDS)])
    os.close(statistics)
    print(f"| law | ns per acknowledgement | over {laws[0].name} |\n|---|---|---|")
    for law, each, ratio in zip(laws, taken.T, (taken / taken[:, :1]).T, strict=True):
        print(f"| {law.name} | {np.median(each):.0f} ({each.min():.0f}–{each.max():.0f}) | {np.median(ratio):.2f} |")


def cpu_ns(law: Law) -> float:
    """Return the CPU time of a law's programs per acknowledgement in one transfer over the loopback, ns.

    The programs' statistics are in /proc/self/fdinfo. The most frequent program runs once per acknowledgement.
    """
    with load_law(law) as name, socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
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
