"""How fast recordings of other programs become series, and in how much memory, beside reading their bytes.

Each file is made here, about as large as asked, and imported in a process of its own, so that its peak memory is its
own; interleaved with that, the same bytes are only read, and hashed as an import does it. CPU time counts besides the
time that passes, since the machine may be shared. Then `cellbed traces add` takes it, which also checks the series,
makes their statistics and hashes them; its memory is printed, too. The targets: 200 MB/s for Mahimahi's text; 100 MB
for any import but Parquet, which Polars holds in memory.

    python benches/import.py [--size MB] [--rounds N] [--only FORMAT] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

IMPORT = """
import json, resource, sys, time
from pathlib import Path
from cellbed.recordings.importing import recognise
from cellbed.archive.entry import Draft
from cellbed.archive.entry import About
from cellbed.archive.importers import Options
source, folder = map(Path, sys.argv[1:])
folder.mkdir()
begin, cpu = time.monotonic(), time.process_time()
draft = Draft(folder, About(origin="recorded"))
recognise([source]).read([source], draft, Options(**json.loads(sys.stdin.read())))
ended = time.monotonic() - begin, time.process_time() - cpu
peak = next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
written = sum(series.path.stat().st_size for series in draft.parts.values())
print(json.dumps({"s": ended[0], "cpu_s": ended[1], "peak_kib": peak, "parquet": written}))
"""

ADD = """
import atexit, json, os, sys, time
from pathlib import Path
def tell():
    peak = next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
    told.write_text(json.dumps({"s": time.monotonic() - begin, "cpu_s": time.process_time(), "peak_kib": peak}))
source, folder = map(Path, sys.argv[1:])
told, begin = folder.with_suffix(".json"), time.monotonic()
os.environ["XDG_DATA_HOME"] = str(folder)
atexit.register(tell)
sys.argv = ["cellbed", "traces", "add", str(source), "--name", "bench"]
from cellbed.cli.main import main
main()
"""

READ = """
import hashlib, json, sys, time
begin, cpu = time.monotonic(), time.process_time()
with open(sys.argv[1], "rb") as file:
    if sys.argv[2] == "hash":
        hashlib.file_digest(file, "sha256")
    while file.read(1 << 20):
        pass
print(json.dumps({"s": time.monotonic() - begin, "cpu_s": time.process_time() - cpu}))
"""


def mahimahi() -> Iterator[bytes]:
    """100 Mbit/s, as it varies."""
    chance = random.Random(1)
    for millis in range(1, 2**32):
        yield b"%d\n" % millis * chance.randint(4, 13)


def capture() -> Iterator[bytes]:
    """A flow over raw IP with the first 64 bytes of each packet."""
    yield struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 64, 101)
    ip = struct.pack(">BBHHHBBH4B4B", 0x45, 0, 1500, 0, 0, 57, 17, 0, 192, 0, 2, 1, 10, 0, 0, 2)
    packet = (ip + struct.pack(">HHHH", 5201, 4000, 1480, 0)).ljust(64, b"\0")
    for n in range(2**32):
        yield struct.pack("<IIII", n // 8000, n % 8000 * 125_000, 64, 1500) + packet


def csv() -> Iterator[bytes]:
    """A row each 10 ms."""
    chance = random.Random(1)
    yield b"time_ms,downlink_mbit_s,rtt_ms\n"
    for n in range(2**32):
        yield b"%d,%.3f,%.2f\n" % (n * 10, chance.random() * 100, 20 + chance.random())


def ping_output() -> Iterator[bytes]:
    """Five a second, with stamps."""
    for n in range(2**32):
        yield b"[%d.%06d] 64 bytes from 192.0.2.1: icmp_seq=%d ttl=57 time=2%d.%d ms\n" % (
            1_700_000_000 + n // 5,
            n % 5 * 200_000,
            n % 65536,
            n % 10,
            n % 7,
        )


def iperf3() -> Iterator[bytes]:
    """An interval each 100 ms, as `--json` lays it out."""
    yield b'{"start":{"connecting_to":{},"test_start":{"protocol":"TCP","num_streams":1,"reverse":1}},"intervals":['
    for n in range(2**32):
        half = {"socket": 5, "start": n / 10, "end": (n + 1) / 10, "seconds": 0.1, "bytes": n % 10**6}
        half |= {"bits_per_second": n % 10**6 * 80.0, "omitted": False, "sender": False}
        yield (b"," if n else b"") + json.dumps({"streams": [half], "sum": half}, indent="\t").encode()


def parquet(path: Path, size: int) -> None:
    """A row each 10 ms in one row group, with incompressible numbers."""
    import numpy as np
    import polars as pl

    chance, rows = np.random.default_rng(1), size // 18
    columns = {
        "time_ms": np.arange(rows) * 10,
        "downlink_mbit_s": chance.random(rows) * 100,
        "rtt_ms": 20 + chance.random(rows),
    }
    pl.DataFrame(columns).write_parquet(path, row_group_size=rows)


KINDS: dict[str, tuple[str, Callable[[], Iterator[bytes]], bytes, dict[str, str]]] = {
    "mahimahi": ("big.up", mahimahi, b"", {}),
    "pcap": ("big.pcap", capture, b"", {}),
    "csv": ("big.csv", csv, b"", {}),
    "ping": ("big.txt", ping_output, b"", {}),
    "iperf3": ("big.json", iperf3, b'],"end":{}}', {}),
    "parquet": ("big.parquet", lambda: iter(()), b"", {}),
}
"""Name of the file, its pieces, its end, and the options."""


def make(path: Path, pieces: Iterator[bytes], end: bytes, size: int) -> None:
    """Write pieces until the file is about so large."""
    written = 0
    with path.open("wb") as file:
        for piece in pieces:
            written += file.write(piece)
            if written >= size:
                break
        file.write(end)


def run(script: str, *arguments: str | Path, told: str = "") -> dict[str, float]:
    """What a script in a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], input=told, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def measure(name: str, size: int, rounds: int) -> dict[str, float]:
    """Medians of one format."""
    file, pieces, end, options = KINDS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / file
        if name == "parquet":
            parquet(path, size)
        else:
            make(path, pieces(), end, size)
        megabytes = path.stat().st_size / 1e6
        imported, read, hashed = [], [], []
        for number in range(rounds):
            imported.append(run(IMPORT, path, Path(folder) / str(number), told=json.dumps(options)))
            read.append(run(READ, path, "read"))
            hashed.append(run(READ, path, "hash"))
        added = Path(folder) / "archive"
        subprocess.run([sys.executable, "-c", ADD, path, added], capture_output=True, text=True, check=True)
        whole: dict[str, float] = json.loads(added.with_suffix(".json").read_text())

    def median(values: list[dict[str, float]], key: str) -> float:
        return statistics.median(value[key] for value in values)

    return {
        "MB": megabytes,
        "MB/s": megabytes / median(imported, "s"),
        "MB/s of CPU": megabytes / median(imported, "cpu_s"),
        "times as long as reading": median(imported, "s") / median(read, "s"),
        "times the CPU of hashing": median(imported, "cpu_s") / median(hashed, "cpu_s"),
        "peak MB": max(value["peak_kib"] for value in imported) * 1024 / 1e6,
        "Parquet MB": imported[0]["parquet"] / 1e6,
        "s to add": whole["s"],
        "s of CPU to add": whole["cpu_s"],
        "peak MB to add": whole["peak_kib"] * 1024 / 1e6,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1000, help="MB of each file (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="imports of each (default 3)")
    parser.add_argument("--only", choices=KINDS, action="append", help="this format; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    found = {name: measure(name, options.size * 10**6, options.rounds) for name in options.only or KINDS}
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, figures in found.items():
        print(f"{name:10}", *(f"{value:8.1f} {what}" for what, value in figures.items()), sep="  ")
    print(f"load average of the last 15 minutes: {os.getloadavg()[2]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
