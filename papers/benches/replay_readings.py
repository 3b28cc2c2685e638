"""Errors of CellReplay's method by readings of its paper, where the paper leaves open which one is meant.

In virtual time, each profile of the reference network is recorded for each seed and replayed by every reading. Round
trips, trains, downloads and pages then run over reference and replays for the length of the recording. Errors are of
the means over all seeds; for round trips, of the median and of the 95th percentile.

    python papers/benches/replay_readings.py [--profiles NAME,…] [--seeds N] [--seconds N]
"""

from __future__ import annotations

import argparse
import itertools
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any, get_args

import numpy as np

from cellbed.experiments.calibration import calibrate_virtually
from cellbed.path import Path
from cellbed.recordings.recording import Recording, read_recording
from cellbed.scenario.radio import PROFILES
from cellbed.workloads.web.pages import pages
from cellbed_papers.evaluation.applications import Protocol, load, objects
from cellbed_papers.evaluation.methods import METHODS, Method
from cellbed_papers.evaluation.network import HEAVY_DEVICE, LIGHT_DEVICE, Network, profile_reference, record

Samples = dict[tuple[str, str], list[float]]
"""By application and its variant: ms."""

SECOND = 1_000_000_000
LENGTHS = (1, 10, 25, 50, 75, 100, 150, 200, 250, 300, 400, 500)
SIZES = (1_000, 10_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000, 10_000_000)
TURNS = 3
"""Number of runs of each application over the whole recording, in another order each time."""

READINGS: dict[str, dict[str, str]] = {
    f"{idle_at}, {anchor}": {"idle_at": idle_at, "anchor": anchor}
    for anchor in ("base-delay", "first-packet")
    for idle_at in ("link", "queue")
}
"""Where F is counted, and the first light opportunity that counts; the last one is the reading of the authors' tool."""


def read(reading: dict[str, str]) -> Method:
    """Return CellReplay's method by one of its readings."""
    method = METHODS["cellreplay"]

    def network(recording: Recording, folder: Folder) -> Network:
        made = method.network(recording, folder)
        uplink, downlink = (tuple({**stage, **reading} for stage in stages) for stages in (made.uplink, made.downlink))
        return replace(made, uplink=uplink, downlink=downlink)

    return replace(method, network=network)


def measure(network: Network, seconds: int, seed: int, *, turns: int = TURNS, pages: bool = True) -> Samples:
    """Return the times of the applications on a network until its recording ends."""
    end, found = (seconds - 8) * SECOND, Samples()
    trips = network.path().round_trips(SECOND, count=(seconds - 2) * 20, interval=50_037_000)
    found["round trips", ""] = (trips.taken[trips.answered] / 1e6).tolist()
    for turn in range(turns):
        chances = [random.Random(turns * seed + turn) for _ in range(3)]
        runs = [trains(network.path(), end, chances[0]), downloads(network.path(), end, chances[1])]
        if pages:
            runs.append(loads(network, end, chances[2]))
        for kind, what, taken in itertools.chain(*runs):
            if taken >= 0:
                found.setdefault((kind, what), []).append(taken / 1e6)
    return found


def trains(path: Path, end: int, chance: random.Random) -> Iterator[tuple[str, str, int]]:
    """Send trains of every length in turn, 100 ms apart."""
    while path.now < end:
        for length in chance.sample(LENGTHS, len(LENGTHS)):
            at = path.now + round(chance.uniform(0.1, 0.11) * SECOND)
            done = path.trains(at, lengths=[length], packet=1400, acknowledgement=100, until=at + 60 * SECOND)
            yield "trains", str(length), int(done.completion[0])


def downloads(path: Path, end: int, chance: random.Random) -> Iterator[tuple[str, str, int]]:
    """Download files of every size in random order, with pauses."""
    while path.now < end:
        for size in chance.sample(SIZES, len(SIZES)):
            at = path.now + round(chance.uniform(0.2, 1) * SECOND)
            done = path.downloads(at, sizes=[size], request=8, until=at + 120 * SECOND)
            yield "downloads", str(size), int(done.taken[0])
            if path.now >= end:
                return


def loads(network: Network, end: int, chance: random.Random) -> Iterator[tuple[str, str, int]]:
    """Load every page by both protocols in random order, with pauses."""
    shapes: list[tuple[str, Protocol]] = [(name, protocol) for name in pages() for protocol in get_args(Protocol)]
    world = network.world()
    with world.entered():
        while world.now_ns < end:
            for name, protocol in chance.sample(shapes, len(shapes)):
                at = world.now_ns + round(chance.uniform(0.2, 1) * SECOND)
                yield "pages", f"{name} {protocol}", load(world, objects(name), protocol, at)
                if world.now_ns >= end:
                    return


def errors(samples: Samples, truth: Samples) -> dict[str, float]:
    """Return errors in per cent: signed of round trips and of each length and size, mean absolute of each kind."""

    def off(key: tuple[str, str], summary: Callable[[list[float]], Any] = np.mean) -> float:
        return 100 * (float(summary(samples[key])) / float(summary(truth[key])) - 1)

    found = {
        "RTT p50": off(("round trips", ""), np.median),
        "RTT p95": off(("round trips", ""), lambda taken: np.percentile(taken, 95)),
    }
    for kind in ("trains", "downloads", "pages"):
        keys = [key for key in truth if key[0] == kind and key in samples]
        found[kind] = float(np.mean([abs(off(key)) for key in keys])) if keys else float("nan")
        if kind != "pages":
            found |= {f"{kind} {what}": off((kind, what)) for _, what in sorted(keys, key=lambda key: int(key[1]))}
    return found


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", default=",".join(PROFILES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=120)
    arguments = parser.parse_args()
    results = {}
    for profile in arguments.profiles.split(","):
        truth, replays = Samples(), {name: Samples() for name in READINGS}
        for seed in range(arguments.seeds):
            with tempfile.TemporaryDirectory() as scratch:
                pool(truth, measure(profile_reference(profile).network(seed), arguments.seconds, seed))
                light, heavy = (
                    profile_reference(profile).network(seed, device) for device in (LIGHT_DEVICE, HEAVY_DEVICE)
                )
                later = light.at(arguments.seconds * SECOND)
                calibration = calibrate_virtually(later.uplink, later.downlink, seed)
                plan = METHODS["cellreplay"].plan(calibration, profile.endswith(("walking", "driving")))
                record(light, heavy, calibration, plan, arguments.seconds * SECOND, Folder(scratch, "recording"))
                recording = read_recording(Folder(scratch, "recording"))
                for name, reading in READINGS.items():
                    replayed = read(reading).network(recording, Folder(scratch, f"{name} replayed"))
                    pool(replays[name], measure(replayed, arguments.seconds, seed))
        results[profile] = {name: errors(samples, truth) for name, samples in replays.items()}
        show(profile, results[profile])
    average = {
        name: {key: float(np.mean([abs(each[name][key]) for each in results.values()])) for key in found}
        for name, found in results[profile].items()
    }
    show("mean absolute", average)


def pool(into: Samples, samples: Samples) -> None:
    """Add samples to others."""
    for key, values in samples.items():
        into.setdefault(key, []).extend(values)


def show(title: str, errors: dict[str, dict[str, float]]) -> None:
    """Print a line for each variant."""
    columns = [("RTT p50", 8), ("p95", 7), ("trains", 8), ("1", 6), ("10", 6), ("100", 6), ("500", 6), ("files", 8)]
    columns += [(f"{size // 1000}k", 7) for size in SIZES] + [("pages", 8)]
    print(f"\n{title:26}" + "".join(f"{name:>{width}}" for name, width in columns))
    for name, found in errors.items():
        lengths = "".join(f"{found.get(f'trains {length}', float('nan')):6.1f}" for length in (1, 10, 100, 500))
        files = "".join(f"{found.get(f'downloads {size}', float('nan')):7.1f}" for size in SIZES)
        print(
            f"  {name:24}{found['RTT p50']:8.1f}{found['RTT p95']:7.1f}{found['trains']:8.1f}{lengths}"
            f"{found['downloads']:8.1f}{files}{found['pages']:8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
