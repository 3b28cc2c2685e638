"""How fast the recorder saturates a path, and how close together the packets of a train leave.

Run ``python benches/recorder.py`` (root, or a user who may open /dev/net/tun; needs ip). Client and server are
processes in two network namespaces with a plain veth pair between them, on the same two cores. A train's spread is
that of the kernel's stamps of its packets at the other end of the veth, which delivers as fast as it is given.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl
from emulator_nodes import VETH_ADDRESSES, configuration, connect_by_veth, inside, start_emulator

from cellbed.testbed.links.emulator import Emulator

RECORD = [sys.executable, "-m", "cellbed", "record"]


def record(emulator: Emulator, folder: Path, name: str, *arguments: str) -> dict[str, pl.DataFrame]:
    """The tables of a recording from endpoint to edge."""
    secret = folder / "secret"
    if not secret.exists():
        subprocess.run([*RECORD, "secret", str(secret)], check=True, stdout=subprocess.DEVNULL)
    reach = ["--secret", str(secret), "--json"]
    server = subprocess.Popen(
        [*RECORD, "serve", *reach, "--rate", "20 Gbit/s", "--total-rate", "20 Gbit/s", "--listen", "0.0.0.0:7700"],
        preexec_fn=inside(emulator, "edge"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    server.stdout.readline()
    done = subprocess.run(
        [
            *RECORD,
            f"{VETH_ADDRESSES['edge']}:7700",
            *reach,
            "--no-calibration",
            "--out",
            str(folder / name),
            *arguments,
        ],
        preexec_fn=inside(emulator, "endpoint"),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    server.send_signal(signal.SIGINT)
    server.communicate(timeout=20)
    result = json.loads(done.stdout.splitlines()[-1])
    for warning in result["warnings"]:
        print(f"  {warning}")
    return {stem: pl.read_parquet(folder / name / f"{stem}.parquet") for stem in result["counts"]}


def rates(table: pl.DataFrame) -> tuple[float, float, float]:
    """Gbit/s sent and arrived, and the share lost, without the first and the last half second."""
    first, last = table["sent_ns"].min() + 5e8, table["sent_ns"].max() - 5e8  # type: ignore[operator]
    steady = table.filter(pl.col("sent_ns").fill_null(strategy="forward").is_between(first, last))
    bits = steady["bytes"].sum() * 8 / (last - first)
    lost = (steady["copies"] == 0).mean()
    return bits, bits * (1 - lost), lost  # type: ignore[operator, return-value]


def saturation(emulator: Emulator, folder: Path, asked: float, seconds: float) -> None:
    for way in ("uplink", "downlink"):
        other = "downlink" if way == "uplink" else "uplink"
        name = f"{way}-{asked}"
        options = [
            "--only",
            "heavy",
            f"--{way}-rate",
            f"{asked} Gbit/s",
            f"--{other}-rate",
            "0",
            "--duration",
            str(seconds),
        ]
        table = record(emulator, folder, name, *options)[f"heavy-{way}"]
        sent, arrived, lost = rates(table)
        print(f"{way:<9} asked {asked:.1f}  sent {sent:.2f}  arrived {arrived:.2f} Gbit/s  lost {100 * lost:.2f} %")


def spread(emulator: Emulator, folder: Path, seconds: float) -> None:
    options = ["--only", "light", "--light-train", "100:100", "--gap", "50 ms", "--duration", str(seconds)]
    for stem, table in record(emulator, folder, "trains", *options).items():
        whole = (
            table.drop_nulls("arrived_ns")
            .group_by("train")
            .agg(pl.col("arrived_ns"), pl.len())
            .filter(pl.col("len") == 100)
        )
        spans = (
            whole.select((pl.col("arrived_ns").list.max() - pl.col("arrived_ns").list.min()) / 1e3)
            .to_series()
            .to_list()
        )
        quantiles = statistics.quantiles(spans, n=20)
        median, p95 = statistics.median(spans), quantiles[-1]
        print(f"{stem:<15} 100 packets within {median:.0f} µs (p95 {p95:.0f} µs), {len(spans)} trains")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rates", type=float, nargs="*", default=[1.0, 2.0, 2.5, 3.0], help="Gbit/s")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, start_emulator(configuration([])) as emulator:
        connect_by_veth(emulator, offload=True)
        for rate in arguments.rates:
            saturation(emulator, Path(scratch), rate, arguments.seconds)
        spread(emulator, Path(scratch), arguments.seconds)


if __name__ == "__main__":
    main()
