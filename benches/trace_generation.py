"""Processor time of generating traces: beside real time, and beside writing the same rows to Parquet.

python benches/trace_generation.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import polars as pl

from cellbed.archive.generation.presets import Wander
from cellbed.archive.generation.radio import RadioLink
from cellbed.archive.generation.series import Generated, Grain, draw_series, write
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Content

SECOND = 1_000_000_000
LASTS = 20 * SECOND
ROUNDS = 3


def _generate_rates(gbit: float) -> Generated:
    rate = gbit * 1e9
    course = Wander(rate, 0.1 * rate, 0.5 * rate, 1.5 * rate, 2 * SECOND).capacity(LASTS, Stream(1, "bench"))
    return draw_series(course, Content.OPPORTUNITIES, Grain(125_000), 1, "bench")


def _took(generated: Generated, folder: Path) -> tuple[float, float, int]:
    """Processor seconds to generate and write, and to write alone; rows. The best of some rounds, in turn."""
    making, writing, rows = [], [], 0
    for number in range(ROUNDS):
        begun = time.process_time()
        written = write(generated, folder / f"{number}.parquet", "downlink", lambda part, share: None)
        making.append(time.process_time() - begun)
        rows = written.rows
        table = pl.read_parquet(written.series.path)
        begun = time.process_time()
        table.write_parquet(folder / "again.parquet", compression="lz4")
        writing.append(time.process_time() - begun)
    return min(making), min(writing), rows


def main() -> None:
    """Print a line for each rate."""
    print(f"{'':24}{'rows':>12}{'of real time':>14}{'of writing':>12}")
    with tempfile.TemporaryDirectory() as folder:
        cases = {f"wander, {gbit:g} Gbit/s": _generate_rates(gbit) for gbit in (0.1, 1, 10)}
        cases["radio, midband-good"] = RadioLink("midband-good").saturated("downlink", LASTS, 1)
        for name, generated in cases.items():
            making, writing, rows = _took(generated, Path(folder))
            print(f"{name:24}{rows:12}{making / (LASTS / 1e9):14.3f}{making / writing:12.1f}")


if __name__ == "__main__":
    main()
