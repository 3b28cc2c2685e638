"""How fast statistics of traces are made: of one series on one core beside merely reading it, and of an archive.

Makes series of three kinds in a temporary folder: opportunities of a slow and of a fast link, rates every 10 ms. The
statistics of each are made on one core, in turn with Polars reading and adding up the same columns on one core, which
is what no program that reads Parquet gets around. Then an archive of several gigabytes is surveyed with one process
and with one for each core, files in the page cache. Rates per core are of processor time, which other programs on the
machine hardly change; what 100 GB would take is reckoned from that, and from the time by the clock. With --whole, it
is tried instead.

    python benches/trace_statistics.py [--gigabytes 3] [--rounds 3] [--folder DIR] [--json]
    python benches/trace_statistics.py --whole --gigabytes 100
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed.archive import Archive
from cellbed.archive.entry import About, Entry, Held
from cellbed.archive.entry_file import ENTRY_FILE, entry_text
from cellbed.archive.series import Content, Series
from cellbed.archive.statistics import DEFAULT
from cellbed.archive.survey import plan, survey

ROWS = 40_000_000
PIECE = 4_000_000

STATISTICS = """
import sys, time
from pathlib import Path
from cellbed.archive.series import Content, Series
from cellbed.archive.statistics import statistics
series = Series(Content(sys.argv[2]), Path(sys.argv[1]), int(sys.argv[3]))
began = time.process_time(); statistics(series); print(time.process_time() - began)
"""
READING = """
import sys, time
import polars as pl
began = time.process_time()
pl.scan_parquet(sys.argv[1]).select(pl.all().sum()).collect(engine="streaming"); print(time.process_time() - began)
"""


def rows_of(content: Content) -> int:
    """How many rows a series here has; one of rates has larger ones."""
    return ROWS // 4 if content is Content.RATE else ROWS


def opportunities(path: Path, per_second: float, rows: int) -> Series:
    """A Poisson process."""
    random = np.random.default_rng(1)
    at, last = [], 0.0
    for _ in range(rows // PIECE):
        piece = last + np.cumsum(random.exponential(1e9 / per_second, PIECE))
        last = float(piece[-1])
        at.append(pl.Series(piece.astype(np.int64)))
    pl.DataFrame({"at_ns": pl.concat(at)}).write_parquet(path)
    return Series(Content.OPPORTUNITIES, path, int(last) + 1)


def rates(path: Path, rows: int) -> Series:
    """A rate every 10 ms that wanders."""
    random = np.random.default_rng(2)
    bit_s = np.abs(20e6 + np.cumsum(random.normal(0, 2e5, rows)))
    pl.DataFrame({"at_ns": np.arange(rows) * 10**7, "bit_s": bit_s}).write_parquet(path)
    return Series(Content.RATE, path, rows * 10**7)


def seconds(program: str, *arguments: str) -> float:
    """Processor time that a program says it took, on one core."""
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, "-c", program, *arguments]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def one(series: Series, rows: int, rounds: int) -> dict[str, float]:
    """Medians of the rounds of a series."""
    path, kind = str(series.path), str(series.content)
    found = [(seconds(STATISTICS, path, kind, str(series.duration_ns)), seconds(READING, path)) for _ in range(rounds)]
    made, read = (statistics.median(each) for each in zip(*found, strict=True))
    size = series.path.stat().st_size
    return {
        "file_gigabytes": size / 1e9,
        "bytes_per_row": size / rows,
        "gigabytes_per_second_and_core": size / made / 1e9,
        "million_rows_per_second_and_core": rows / made / 1e6,
        "times_mere_reading": made / read,
    }


def processor_time() -> float:
    """Of this process and of those of its children that have ended, s."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def filled(folder: Path, series: list[Series], gigabytes: float) -> int:
    """An archive of hard links to the series, without statistics; how many bytes it has."""
    size, number = 0, 0
    while size < gigabytes * 1e9:
        each = series[number % len(series)]
        place = folder / f"entry-{number:04}"
        place.mkdir(parents=True)
        os.link(each.path, place / "uplink.parquet")
        held = Held(
            file="uplink.parquet",
            content=each.content,
            sha256="0" * 64,
            duration_ns=each.duration_ns,
            rows=rows_of(each.content),
        )
        entry = Entry(name=place.name, about=About(origin="synthetic"), parts={"uplink": held})
        (place / ENTRY_FILE).write_text(entry_text(entry))
        size += each.path.stat().st_size
        number += 1
    return size


def surveyed(folder: Path, series: list[Series], gigabytes: float, workers: int) -> dict[str, float]:
    """What a survey of such an archive takes."""
    size = filled(folder, series, gigabytes)
    todo = plan(Archive(folder), sorted(path.name for path in folder.iterdir()), DEFAULT)
    began, busy = time.monotonic(), processor_time()
    with closing(survey(Archive(folder), todo.tasks, DEFAULT, workers, lambda size: None)) as results:
        for task, found in results:
            assert isinstance(found, dict), (task, found)
    took, busy = time.monotonic() - began, processor_time() - busy
    return {
        "processes": workers,
        "gigabytes": size / 1e9,
        "seconds": took,
        "processor_seconds": busy,
        "gigabytes_per_processor_second": size / busy / 1e9,
        "minutes_for_100_gigabytes": 100 * took / (size / 1e9) / 60,
        "processor_minutes_for_100_gigabytes": 100 * busy / (size / 1e9) / 60,
    }


def commanded(folder: Path, series: list[Series], gigabytes: float, interrupted_after_s: float) -> dict[str, Any]:
    """The same by `cellbed traces stats --all`, which is interrupted once and then goes on."""
    size = filled(folder / "cellbed" / "traces", series, gigabytes)
    command = [sys.executable, "-P", "-m", "cellbed", "traces", "stats", "--all", "--json"]
    parts: list[dict[str, Any]] = []
    for limit in (interrupted_after_s, None):
        began, busy = time.monotonic(), processor_time()
        process = subprocess.Popen(
            command, env=os.environ | {"XDG_DATA_HOME": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        said, complaint = process.communicate()
        assert process.returncode == (0 if limit is None else 130), complaint.decode()
        told = json.loads(said) if limit is None else complaint.decode().strip()
        took = {"seconds": time.monotonic() - began, "processor_seconds": processor_time() - busy}
        parts.append({**took, "said": told})
    return {
        "gigabytes": size / 1e9,
        "gigabytes_on_the_disk": sum(each.path.stat().st_size for each in series) / 1e9,
        "seconds": sum(part["seconds"] for part in parts),
        "processor_seconds": sum(part["processor_seconds"] for part in parts),
        "parts": parts,
    }


def report(whole: dict[str, Any], as_json: bool) -> None:
    """Print what surveying a whole archive took."""
    load = os.getloadavg()
    if as_json:
        print(json.dumps(whole | {"load_averages": load}, indent=1))
        return
    first, second = whole["parts"]
    print(
        f"{whole['gigabytes']:.1f} GB in entries that are hard links to {whole['gigabytes_on_the_disk']:.2f} GB: "
        f"{whole['seconds']:.0f} s, {whole['processor_seconds']:.0f} s of processors, "
        f"{whole['gigabytes'] / whole['processor_seconds']:.3f} GB per second of a processor"
    )
    print(f"  Ctrl-C after {first['seconds']:.0f} s: {first['said']}")
    print(f"  the rest in {second['seconds']:.0f} s: {second['said']}")
    print(f"  load average of the last 15 minutes: {load[2]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where the series are made; left out: the folder for temporary files"
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="only survey an archive of so many gigabytes, by the command, which is interrupted once; its entries are "
        "hard links to a few files",
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cellbed-statistics-", dir=arguments.folder) as name:
        folder = Path(name)
        kinds = {
            "opportunities, 10 Mbit/s": opportunities(folder / "slow.parquet", 833, ROWS),
            "opportunities, 1 Gbit/s": opportunities(folder / "fast.parquet", 83_333, ROWS),
            "rates every 10 ms": rates(folder / "rates.parquet", rows_of(Content.RATE)),
        }
        if arguments.whole:
            report(commanded(folder / "whole", list(kinds.values())[:2], arguments.gigabytes, 60.0), arguments.json)
            return
        found: dict[str, Any] = {
            kind: one(series, rows_of(series.content), arguments.rounds) for kind, series in kinds.items()
        }
        archives = [
            surveyed(folder / f"archive-{workers}", list(kinds.values())[:2], arguments.gigabytes, workers)
            for workers in sorted({1, os.cpu_count() or 1})
        ]
    load = os.getloadavg()[0]
    if arguments.json:
        print(json.dumps({"series": found, "archives": archives, "load_average": load}, indent=1))
        return
    for kind, figures in found.items():
        print(
            f"{kind}: {figures['gigabytes_per_second_and_core']:.3f} GB/s per core of Parquet "
            f"at {figures['bytes_per_row']:.1f} bytes a row, "
            f"{figures['million_rows_per_second_and_core']:.1f} million rows/s, "
            f"{figures['times_mere_reading']:.1f} times what reading takes"
        )
    for each in archives:
        print(
            f"archive of {each['gigabytes']:.1f} GB, {each['processes']} processes: {each['seconds']:.0f} s, "
            f"{each['processor_seconds']:.0f} s of processors; 100 GB would take "
            f"{each['minutes_for_100_gigabytes']:.0f} min so, or "
            f"{each['processor_minutes_for_100_gigabytes']:.0f} min of one processor"
        )
    print(f"load average of the last minute: {load:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
