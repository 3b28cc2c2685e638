"""Cost of predictions, reports, comparisons and simulations as work grows. `performance.py` runs these cases."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from measuring import Figures

from cellbed.measure import links, packets
from cellbed.measure.run_folder import read_run
from cellbed_datacentre import simulate

CELLBED = (sys.executable, "-P", "-m", "cellbed")

#: Endpoints fetch a page of 2 kB from an ordinary web server over LTE. Each sends 14 requests per second.
SCENARIO = """
name = "pages"
duration = "{seconds} s"
[nodes.endpoint]
count = {endpoints}
cpus = 1.0
memory = "256 MiB"
[nodes.edge]
cpus = 2.0
memory = "512 MiB"
[links.mobile]
up = "lte-suburban.up"
down = "lte-suburban.down"
[links.core]
edge = "base-edge"
[apps.pages]
kind = "http"
url = "http://{{server.address}}:8080/page"
rate = "14 /s"
[apps.pages.server]
on = "edge"
command = "python3 -m http.server --protocol HTTP/1.1 8080"
copy_in = {{ "page" = "page" }}
ready = {{ port = 8080 }}
"""
SWEEP = """
name = "{name}"
scenario = "{scenario}"
repetitions = {trials}
[factors.rate]
key = "apps.pages.rate"
levels = ["14 /s"]
"""

#: The network of the pHost paper at load 0.6, with the flow sizes of CDF_aditya.txt of the public simulator: packets,
#: an unused 1, and the share of flows up to that size.
FABRIC = {
    "seed": 1,
    "topology": {"kind": "leaf-spine", "racks": 9, "hosts_per_rack": 16, "spines": 4, "buffer": "36864 B"}
    | {"host_rate": "10 Gbit/s", "core_rate": "40 Gbit/s", "hop_delay": "200 ns"},
    "transport": {"kind": "phost"},
    "traffic": {"flows": 100_000, "load": 0.6, "sizes": "sizes.txt"},
}
SIZES = """
1 1 0
1 1 0.5
2 1 0.6
3 1 0.7
5 1 0.75
7 1 0.8
40 1 0.8125
72 1 0.825
137 1 0.85
267 1 0.9
1187 1 0.95
2107 1 1
"""

PORTS = 20
"""Distance of the ports of two repetitions."""
PERIODS = 1_000
"""Maximum number of repetitions with different ports."""

Limit = tuple[str, float]


def cost(*command: str) -> Figures:
    """Run a command. Return its seconds, processor seconds with its children's, and largest resident set, MiB."""
    began = time.monotonic()
    with subprocess.Popen(
        [*CELLBED, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"cellbed {' '.join(command)} failed: {errors.strip()}")
    return {
        "seconds": time.monotonic() - began,
        "processor_s": usage.ru_utime + usage.ru_stime,
        "memory_mib": usage.ru_maxrss / 1024,
    }


def repeat(run: Path, folder: Path, requests: int) -> int:
    """Write a run of at least `requests` requests into `folder`: the records of a short run, repeated.

    Each repetition has new connections; the short run has up to 20 per endpoint. Return the number of requests.
    """
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


def cases(folder: Path) -> Iterator[tuple[str, Callable[[], Figures], Sequence[Limit]]]:
    """Return the cases: name, what measures once, and the largest values of figures."""

    def scenario(name: str, endpoints: int, seconds: int) -> str:
        path = folder / f"{name}.toml"
        path.write_text(SCENARIO.format(endpoints=endpoints, seconds=seconds))
        (folder / "page").write_bytes(bytes(2000))
        return str(path)

    def new_folder() -> Path:
        return folder / f"run-{time.monotonic_ns()}"

    @cache
    def profile() -> str:
        out = new_folder()
        cost("run", scenario("short", 2, 10), "--out", str(out))
        return str(next(out.iterdir()))

    def predict(name: str, endpoints: int, seconds: int) -> tuple[Figures, Path]:
        known, out = profile(), new_folder()
        figures = cost("run", scenario(name, endpoints, seconds), "--virtual", "--profile", known, "--out", str(out))
        return figures, next(out.iterdir())

    def trials(count: int) -> Figures:
        name, known = f"sweep-{time.monotonic_ns()}", profile()
        file = folder / f"{name}.toml"
        file.write_text(SWEEP.format(name=name, scenario=Path(scenario("trial", 2, 18)).name, trials=count))
        options = ("--virtual", "--profile", known, "--out", str(folder), "--jobs", "1")
        return cost("sweep", str(file), *options)

    def reported() -> Figures:
        run = new_folder()
        repeat(predict("small", 2, 18)[1], run, 1_000_000)
        return cost("report", str(run), "--open", "no")

    def compared() -> Figures:
        run = predict("small", 2, 18)[1]
        return cost("compare", *(shutil.copytree(run, new_folder()).as_posix() for _ in range(50)))

    def trial() -> Figures:
        few, many = trials(5), trials(25)
        return {"processor_s": (many["processor_s"] - few["processor_s"]) / 20}

    def simulation() -> Figures:
        (folder / "sizes.txt").write_text(SIZES)
        began = time.process_time()
        found = simulate(FABRIC, folder=folder)
        took = time.process_time() - began
        return {"processor_s": took, "hops per µs": found.packet_hops / took / 1e6}

    yield "a predicted trial of 504 requests", trial, [("processor_s", 0.1)]
    yield "a prediction of 100,800 requests", lambda: predict("large", 20, 360)[0], [("processor_s", 15.0)]
    yield "the report of 1,000,000 requests", reported, [("seconds", 20.0), ("memory_mib", 1024.0)]
    yield "a comparison of 50 runs of 504 requests", compared, [("seconds", 10.0)]
    yield "100,000 flows of pHost", simulation, [("processor_s", 6.0)]
