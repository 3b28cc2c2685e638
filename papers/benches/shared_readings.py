"""Errors of recordings that several endpoints share, on cells that others wrote and on our radio model.

A cell is recorded by two devices at once, or by one after the other, and replayed for two and four endpoints. Then all
endpoints are saturated for their rates. With the others saturated, the first one sends round trips and fetches bursts.
Errors are of the rate of each endpoint (the largest), and of medians, in per cent.

    python papers/benches/shared_readings.py [--cells N] [--first N] [--seconds N] [--jobs N] [--profiles NAME,…]

Without profiles, the cells are ns-3's, which needs the Debian packages libns3-dev and g++.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import random
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ns3.reference import CALIBRATED, RECORDED, Cell, cell
from ns3.scenarios import draw
from ns3.simulation import Simulation, build
from replay_readings import SECOND

import cellbed
from cellbed import CellbedError, Link
from cellbed.experiments.calibration import calibrate_virtually
from cellbed.experiments.certification import replay_stage
from cellbed.recordings.recording import Recording, read_recording
from cellbed.recordings.sharing import Sharing, learn
from cellbed_papers.evaluation.methods import METHODS
from cellbed_papers.evaluation.network import HEAVY_DEVICE, LIGHT_DEVICE, profile_reference, record

ENDPOINTS = (2, 4)
LENGTH_NS, WARM_NS, EVERY_NS = 8 * SECOND, 2 * SECOND, 100_000_000
"""Length of a measurement, its begin without results, and time between round trips and bursts in turn."""
BURST, BYTES, TOGETHER = 30, 1400, 10
"""Packets of a burst, their size, and packets that a saturating sender sends at once."""
STILL = {"blocks": 25, "speed_mps": 0, "site_m": 0}
"""Cells are compared at other times, so that nothing moves; 5 MHz take half the time of 10."""
Packet = tuple[int, int, int, int]
"""Sending time, direction (twice a device's number, one more for the downlink), bytes and number of the request."""
Carry = Callable[[int, list[Packet]], dict[int, list[tuple[int, int]]]]
"""Carries packets of a number of devices. Requests in uplinks are answered by as many packets as their number's parity
demands. Returns request and arrival of the packets of each downlink's device."""
Readings = dict[str, list[float]]


def measure(carry: Carry, endpoints: int, rate_bps: float) -> Readings:
    """Return the rates of saturated endpoints, Mbit/s, and times of round trips and of bursts beside the others, ms."""
    interval = int(TOGETHER * BYTES * 8e9 / rate_bps)
    full = [
        [(at, 2 * n + 1, BYTES, -1) for at in range(n * 1000, LENGTH_NS, interval) for _ in range(TOGETHER)]
        for n in range(endpoints)
    ]
    arrived = carry(endpoints, sorted(itertools.chain(*full)))
    counts = [sum(WARM_NS <= at < LENGTH_NS for _, at in arrived[n]) for n in range(endpoints)]
    found = {"rates": [count * BYTES * 8e3 / (LENGTH_NS - WARM_NS) for count in counts]}
    jitter = np.random.default_rng(1).uniform(0, 0.5, LENGTH_NS // EVERY_NS)
    begins = [int((n + more) * EVERY_NS) for n, more in enumerate(jitter)]
    asked = [(at, 0, 100, n) for n, at in enumerate(begins) if WARM_NS <= at < LENGTH_NS - SECOND]
    last: dict[int, int] = {}
    for number, at in carry(endpoints, sorted(itertools.chain(asked, *full[1:])))[0]:
        last[number] = max(at, last.get(number, 0))
    for name, parity in (("round trips", 0), ("bursts", 1)):
        found[name] = [(at - begins[number]) / 1e6 for number, at in last.items() if number % 2 == parity]
    return found


def answer(at: int, number: int) -> list[Packet]:
    """Return the answer to a request that arrived."""
    return [(at, 1, BYTES if number % 2 else 100, number)] * (BURST if number % 2 else 1)


def carry_outside(network: Cell, endpoints: int, packets: list[Packet]) -> dict[int, list[tuple[int, int]]]:
    """Carry packets through ns-3."""
    found: dict[int, list[tuple[int, int]]] = {n: [] for n in range(endpoints)}
    sent: list[Packet] = []

    with network._simulation(endpoints) as simulation:

        def send(packet: Packet) -> None:
            at, direction, size, _ = packet
            simulation.send(direction, at, len(sent), size, quiet=direction % 2 == 1)
            sent.append(packet)

        step, waiting = EVERY_NS // 10, packets[::-1]
        for end in range(step, LENGTH_NS + step, step):
            while waiting and waiting[-1][0] < end:
                send(waiting.pop())
            now = -1
            while now < end:
                now, departures = simulation.run(end)
                for at, index in departures:
                    _, direction, _, number = sent[index]
                    if direction % 2:
                        found[direction // 2].append((number, at))
                    else:
                        for each in answer(at, number):
                            send(each)
    return found


def carry_shared(
    links: Callable[[int, int], Link], schedulers: list[dict[str, Any]], endpoints: int, packets: list[Packet]
) -> dict[int, list[tuple[int, int]]]:
    """Carry packets through our cells. links: link of a device in a direction, 0 or 1."""
    cells = [
        cellbed.Cell([links(n, way) for n in range(endpoints)], scheduler=scheduler)
        for way, scheduler in enumerate(schedulers)
    ]
    there = _through(cells[0], endpoints, [each for each in packets if each[1] % 2 == 0])
    answers = [each for number, at in there[0] for each in answer(at, number)]
    return _through(cells[1], endpoints, sorted([each for each in packets if each[1] % 2] + answers))


def _through(cell: cellbed.Cell, endpoints: int, packets: list[Packet]) -> dict[int, list[tuple[int, int]]]:
    own = [[each for each in packets if each[1] // 2 == n] for n in range(endpoints)]
    run = cell.run([[each[0] for each in of] for of in own], [[each[2] for each in of] for of in own])
    return {
        n: [
            (of[packet][3], int(at))
            for packet, at, ok in zip(out.packet, out.departed, out.delivered, strict=True)
            if ok
        ]
        for n, (of, out) in enumerate(zip(own, run.users, strict=True))
    }


@dataclass(frozen=True, slots=True)
class Apart(Cell):
    """A cell whose second device, which saturates it, meets another copy of the cell: recordings in turn."""

    def _simulation(self, devices: int = 1) -> Any:
        copies = [
            Simulation(self.description, weather=self.weather, course_ns=self.position_ns) for _ in range(devices)
        ]
        return _Copies(copies) if devices > 1 else copies[0]


class _Copies(ExitStack):
    def __init__(self, copies: list[Simulation]) -> None:
        super().__init__()
        self._copies = [self.enter_context(copy) for copy in copies]

    def send(self, direction: int, *packet: int, quiet: bool = False) -> None:
        self._copies[direction // 2].send(direction % 2, *packet, quiet=quiet)

    def run(self, until_ns: int) -> tuple[int, list[tuple[int, int]]]:
        now, found = self._copies[0].run(until_ns)
        return now, sorted(found + self._copies[1].run(now)[1])


def replay(recording: Recording, folder: Path) -> tuple[Carry, list[Sharing]]:
    """Return the cell of endpoints that share a recording, and where its shares come from."""
    shares = [learn(recording, way) for way in ("uplink", "downlink")]
    stages = [replay_stage(recording, way, "conditional", folder) for way in ("uplink", "downlink")]

    def link(device: int, way: int) -> Link:
        return Link.of_stages([{**stages[way], "seed": 2 * device + way}])

    return functools.partial(carry_shared, link, [each.scheduler for each in shares]), shares


def errors(found: Readings, truth: Readings) -> dict[str, float]:
    """Return the errors of readings, per cent: of each rate the largest, of the others' medians."""
    rates = np.array(found["rates"]) / np.array(truth["rates"]) - 1
    medians = {name: np.median(found[name]) / np.median(truth[name]) - 1 for name in truth if name != "rates"}
    return {
        name: round(100 * float(value), 1)
        for name, value in {"rates": rates[np.abs(rates).argmax()], **medians}.items()
    }


def compare(which: int | str, seconds: int) -> list[str]:
    """Return the lines about a cell: number of a drawn cell of ns-3, or name of a profile of our radio model."""
    if isinstance(which, str):
        reference = profile_reference(which)
        light, heavy = (reference.network(1, device) for device in (LIGHT_DEVICE, HEAVY_DEVICE))
        calibration = calibrate_virtually(light.uplink, light.downlink, 1)
        pairs = [reference.network(1, device).links() for device in range(max(ENDPOINTS))]
        carry: Carry = functools.partial(carry_shared, lambda n, way: pairs[n][way], [{"kind": "round-robin"}] * 2)
        described, moving, recorded = which, reference.moves, {"two devices, apart": (light, heavy)}
    else:
        description = draw(random.Random(which)) | STILL
        one, apart = (
            cell(description, RECORDED),
            Apart(**{key: getattr(cell(description, RECORDED), key) for key in _KEYS}),
        )
        described, moving = json.dumps(description), description["speed_mps"] > 0
        calibration = cell(description, CALIBRATED).calibrate(which)
        carry = functools.partial(carry_outside, cell(description))
        recorded = {"two devices": (one, one), "one device": (apart, apart)}
    lines, plan = [described], METHODS["conditional"].plan(calibration, moving)
    rate = 1.3 * max(1e6, calibration.directions.downlink.saturated_bps or 0)
    truths = {n: measure(carry, n, rate) for n in ENDPOINTS}
    for name, (light, heavy) in recorded.items():
        with tempfile.TemporaryDirectory() as scratch:
            record(light, heavy, calibration, plan, seconds * SECOND, Path(scratch, "recording"))
            replayed, shares = replay(read_recording(Path(scratch, "recording")), Path(scratch))
            for n in ENDPOINTS:
                found = errors(measure(replayed, n, rate), truths[n])
                lines.append(f"  {n} endpoints, by {name}: {found}; {shares[1]}")
    return lines


_KEYS = ("name", "uplink", "downlink", "description", "weather", "position_ns")


def _try(which: int | str, seconds: int) -> list[str]:
    try:
        return compare(which, seconds)
    except (CellbedError, ValueError) as error:
        return [f"{which}: {error}"]


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, value in (("--cells", 5), ("--first", 1), ("--seconds", 60), ("--jobs", 1)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--profiles", type=lambda text: text.split(","))
    arguments = parser.parse_args()
    which = arguments.profiles or range(arguments.first, arguments.first + arguments.cells)
    if not arguments.profiles:
        build()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for lines in pool.map(functools.partial(_try, seconds=arguments.seconds), which):
            print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
