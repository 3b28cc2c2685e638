"""Congestion control laws in the kernel beside the same laws in virtual time, and beside the kernel's own.

Downloads by iperf3 over each link: throughput and mean round trip of each law, in real time (as root) and predicted.
The last column is prediction over kernel. Real trials that the machine disturbed count; run it on an idle machine.

    sudo python benches/laws.py [--links "20 Mbit/s" PATH/Verizon-LTE-short ...] [--laws NAME ...] [--repetitions 3]
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from cellbed.experiments.laws import Comparison
from cellbed.experiments.sweep.library import Sweep
from cellbed.laws.law import shipped

PAIRS = {"reno-cellbed": "reno", "cubic-both": "cubic"}
"""Laws that are the kernel's own, too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", nargs="+", default=["20 Mbit/s"])
    parser.add_argument("--laws", nargs="+", default=["reno", "cubic", "bbr", *shipped()])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        out = asked.out or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        comparison = Comparison(asked.laws, asked.links, seconds=asked.seconds, repetitions=asked.repetitions)
        file = comparison.write(out, Path.cwd())
        for options in ([], ["--virtual"]):
            command = [sys.executable, "-P", "-m", "cellbed", "sweep", str(file), "--out", str(out), *options]
            subprocess.run(command, check=True, stdout=sys.stderr)
        kernel, virtual = (comparison.results(Sweep.load(out / name)) for name in ("laws", "laws-virtual"))
    show(kernel, virtual)


def show(kernel: pl.DataFrame, virtual: pl.DataFrame) -> None:
    """Print a row for each link and law."""
    print("| link | law | Mbit/s, kernel | virtual | ratio | round trip ms, kernel | virtual | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    both = kernel.join(virtual, on=["link", "flows", "law"], suffix="_virtual", maintain_order="left")
    for row in both.iter_rows(named=True):
        cells = [row["link"], row["law"]]
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


if __name__ == "__main__":
    main()
