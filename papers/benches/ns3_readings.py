"""Errors of the methods of replay on cells of ns-3's LTE module, which others wrote.

In virtual time, drawn cells are calibrated, recorded by two devices and replayed by each method. Round trips, trains
and downloads then run over cell and replays for the length of the recording; `itself` is the cell at another time, its
errors are chance. Errors are of the means; for round trips, of the median and of the 95th percentile.

    python papers/benches/ns3_readings.py [--networks N] [--first N] [--seconds N] [--jobs N] [--pages]

Needs the Debian packages libns3-dev and g++.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from ns3.reference import CALIBRATED, OTHER, RECORDED, cell
from ns3.scenarios import Description, draw
from ns3.simulation import build
from replay_readings import SECOND, errors, measure, show

from cellbed import CellbedError
from cellbed.recordings.recording import read_recording
from cellbed_papers.evaluation.methods import METHODS, TOOL
from cellbed_papers.evaluation.network import record

Errors = dict[str, dict[str, float]]


def compare(number: int, seconds: int, pages: bool) -> tuple[Description, Errors | str]:
    """Return the description of a cell, and the errors of each method in per cent, or why there are none."""
    description = draw(random.Random(number))
    apply = functools.partial(measure, seconds=seconds, seed=number, turns=1, pages=pages)
    try:
        truth = apply(cell(description))
        found = {"itself": errors(apply(cell(description, OTHER)), truth)}
        recorded, calibration = cell(description, RECORDED), cell(description, CALIBRATED).calibrate(number)
        for name, method in METHODS.items():
            if name == TOOL:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                plan = method.plan(calibration, description["speed_mps"] > 0)
                record(recorded, recorded, calibration, plan, seconds * SECOND, Path(scratch, "recording"))
                replay = method.network(read_recording(Path(scratch, "recording")), Path(scratch, "replay"))
                found[name] = errors(apply(replay), truth)
    except (CellbedError, ValueError) as error:
        return description, str(error)
    return description, found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, value in (("--networks", 5), ("--first", 1), ("--seconds", 60), ("--jobs", 1)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--pages", action="store_true")
    arguments = parser.parse_args()
    build()
    numbers = range(arguments.first, arguments.first + arguments.networks)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        one = functools.partial(compare, seconds=arguments.seconds, pages=arguments.pages)
        for description, found in pool.map(one, numbers):
            print(json.dumps(description))
            if isinstance(found, str):
                print(f"{description['name']}: {found}", flush=True)
            else:
                show(description["name"], found)


if __name__ == "__main__":
    main()
