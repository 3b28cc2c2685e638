"""Time and memory of the report of a large run, whose records are those of a short run, repeated.

Run ``python benches/large_run.py RUN --requests 1000000``. RUN: folder of a run, real or predicted, with up to 20
connections per endpoint and whose applications have clients of cellbed, such as of ``cellbed run --example http-lte``.
Each repetition has new connections.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from cellbed.measure import links, packets
from cellbed.measure.run_folder import read_run

PORTS = 20
"""Distance of the ports of two repetitions."""
PERIODS = 1_000
"""Number of repetitions after which ports are used again."""


def repeat(run: Path, folder: Path, requests: int) -> int:
    """Write a run of at least `requests` requests into `folder`; return their number."""
    account, raw = read_run(run), folder / "raw"
    raw.mkdir(parents=True)
    length, t0 = account["duration_ns"], account["t0_ns"]
    tables = {path.name: pl.read_ndjson(path, infer_schema_length=None) for path in run.glob("raw/*.requests.jsonl")}
    count = sum(map(len, tables.values()))
    repeats = range(-(-requests // count))
    for name in ("scenario.toml", "scenario.resolved.json", "environment.json", "events.jsonl"):
        shutil.copy(run / name, folder / name)
    (folder / "run.json").write_text(json.dumps(account | {"duration_ns": length * len(repeats)}))
    servers = np.unique(np.concatenate([table["remote_port"].drop_nulls().to_numpy() for table in tables.values()]))
    for name, table in tables.items():
        stamps = [each for each in table.columns if each.endswith("_ns") and each != "buffer_full_ns"]
        with (raw / name).open("wb") as file:
            for number in repeats:
                later = [pl.col(each) + number * length for each in stamps]
                moved = pl.col("request") + number * len(table), pl.col("local_port") + number % PERIODS * PORTS
                table.with_columns(*later, *moved).write_ndjson(file)
    records = np.concatenate([np.empty(0, packets.RECORD), *packets.packet_parts(run / "raw" / "packets.bin")])
    sent, highest = ~np.isin(records["source_port"], servers), records["packet"].max() + 1
    series = np.concatenate([*packets.record_parts(run / "raw" / "series.bin", links.MAGIC, links.RECORD)])
    series = series[(series["start"] >= t0) & (series["start"] < t0 + length)]
    with (raw / "packets.bin").open("wb") as log, (raw / "series.bin").open("wb") as bins:
        log.write(packets.MAGIC)
        bins.write(links.MAGIC)
        for number in repeats:
            later = records.copy()
            for stamp in ("arrived", "released", "departed", "observed"):
                later[stamp] += number * length
            later["packet"] += np.uint64(number) * highest
            later["source_port"][sent] += number % PERIODS * PORTS
            later["destination_port"][~sent] += number % PERIODS * PORTS
            log.write(later.tobytes())
            moved_series = series.copy()
            moved_series["start"] += number * length
            bins.write(moved_series.tobytes())
    return count * len(repeats)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--requests", type=int, default=1_000_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        run = Path(folder, "large")
        count = repeat(asked.run, run, asked.requests)
        size = sum(path.stat().st_size for path in run.glob("raw/*"))
        command = [sys.executable, "-m", "cellbed", "report", str(run), "--open", "no"]
        begun = time.monotonic()
        started = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(started.pid, 0)
        took = time.monotonic() - begun
        assert status == 0, f"the report failed: {status}"
        page = (run / "report.html").stat().st_size
    print(
        f"{count} requests, {size / 1e6:.0f} MB of records: report in {took:.1f} s, {used.ru_utime:.1f} s of processor"
    )
    print(f"time, {used.ru_maxrss / 1024:.0f} MiB at most; page of {page / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
