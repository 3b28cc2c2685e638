"""The archive with ten thousand entries: how long `cellbed traces ls` takes, with and without a filter.

The whole command by the clock, beside an interpreter that only imports Polars, as the command does, and one that
does nothing; and the processor time of each, which a busy machine changes less. The entries have
statistics like real ones and share one small series.

    python benches/archive.py [--entries N] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from cellbed.archive import Archive
from cellbed.archive.entry import About
from cellbed.archive.entry_file import entry_text
from cellbed.archive.series import Content, Series

VERBS = {
    "ls": ["ls"],
    "ls --tech 5g --mobility driving --min-mean 20mbit": [
        "ls", "--tech", "5g", "--mobility", "driving", "--min-mean", "20mbit",
    ],
    "ls --where … --sort …": [
        "ls", "--where", "downlink_p5_bit_s_100ms > 2e6 AND downlink_outages < 5", "--sort", "downlink_mean_bit_s",
    ],
    "ls --json": ["ls", "--json"],
}  # fmt: skip


def fill(folder: Path, count: int) -> None:
    """Make an archive of so many entries."""
    archive = Archive(folder)
    with archive.draft(About(origin="recorded", place="somewhere")) as draft:
        for part in ("uplink", "downlink"):
            path = draft.folder / f"{part}.parquet"
            stamps = pl.int_range(1, 60_001, eager=True).alias("at_ns") * 1_000_000
            stamps.to_frame().write_parquet(path)
            draft.parts[part] = Series(Content.OPPORTUNITIES, path, 60 * 10**9)
        first = archive.keep(draft, "drive-0")
    generator = random.Random(1)
    for number in range(1, count):
        name = f"drive-{number}"
        about = {
            "technology": generator.choice(["3g", "4g", "5g"]),
            "mobility": generator.choice(["stationary", "walking", "driving", "train"]),
            "operator": generator.choice(["KPN", "Vodafone", "T-Mobile"]),
            "place": generator.choice(["Delft", "Cork", "Oslo", "Ghent"]),
        }
        parts = {}
        for part, held in first.parts.items():
            figures = _scaled(held.statistics or {}, generator.lognormvariate(0, 1))
            parts[part] = held.model_copy(update={"statistics": figures})
        entry = first.model_copy(update={"name": name, "about": first.about.model_copy(update=about), "parts": parts})
        (folder / name).mkdir()
        for held in parts.values():
            (folder / name / held.file).hardlink_to(folder / "drive-0" / held.file)
        (folder / name / "entry.toml").write_text(entry_text(entry))


def _scaled(figures: dict[str, Any], factor: float) -> dict[str, Any]:
    def scaled(value: Any) -> Any:
        if isinstance(value, list):
            return [scaled(each) for each in value]
        return float(f"{value * factor:.6g}") if isinstance(value, float) else value

    return {key: scaled(value) for key, value in figures.items()}


def once(command: Sequence[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of a command by the clock, and of processor time."""
    begin = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000, help="how many (default 10000)")
    parser.add_argument("--rounds", type=int, default=7, help="of each command (default 7)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        environment = os.environ | {"XDG_DATA_HOME": name}
        # As it is installed: compiled once, not at each start.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        fill(Path(name) / "cellbed" / "traces", options.entries)
        begin = [sys.executable, "-P", "-m", "cellbed", "traces"]
        result: dict[str, Any] = {"entries": options.entries}
        result["first_ls_s"], result["first_ls_processor_s"] = once([*begin, "ls"], environment)
        commands = {verb: [*begin, *words] for verb, words in VERBS.items()}
        commands["import polars"] = [sys.executable, "-P", "-c", "import polars"]
        commands["pass"] = [sys.executable, "-P", "-c", "pass"]
        times: dict[str, list[tuple[float, float]]] = {verb: [] for verb in commands}
        for _ in range(options.rounds):
            for verb, command in commands.items():
                times[verb].append(once(command, environment))
    for verb, each in times.items():
        walls = [wall for wall, _ in each]
        result[verb] = {
            "min": min(walls),
            "median": statistics.median(walls),
            "max": max(walls),
            "processor": statistics.median(cpu for _, cpu in each),
        }
    if options.json:
        print(json.dumps(result, indent=1))
        return
    made = f"{result['first_ls_s']:.1f} s, {result['first_ls_processor_s']:.1f} s of a processor"
    print(f"{options.entries} entries; the first ls, which makes the table: {made}")
    for verb in commands:
        found = result[verb]
        spread = f"{found['min']:.3f} to {found['max']:.3f}"
        print(f"{found['median']:.3f} s ({spread}), {found['processor']:.3f} s of a processor: {verb}")
    print(f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
