"""A cell of ns-3 as a network of the evaluation, and recordings of it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from cellbed import Link, _core
from cellbed.experiments.calibration import calibrate_virtually
from cellbed.path import Path, Tcp, settings
from cellbed.recordings import packets
from cellbed.recordings.description import Calibration, Heavy, Span, TrainPlan
from cellbed.recordings.packets import COLUMNS
from cellbed.recordings.recording import Recording
from cellbed.recordings.virtual import FASTEST_BPS, record_virtually
from cellbed.workloads.virtual.world import World
from cellbed_papers.evaluation.network import (
    APPLICATIONS_DEVICE,
    DOWNLOADS,
    REFERENCE,
    SATURATION,
    Network,
    Reference,
)
from ns3.scenarios import Description, describe, draw
from ns3.simulation import Simulation, lacking

TRUTH, RECORDED, CALIBRATED, OTHER = range(1, 5)
"""Numbers of the weather: applications, recordings and calibrations meet one cell at different times."""
_REPORT_NS = 100_000_000
"""Interval of reports of arrivals to the saturation, as in a live recording."""
_DRAIN_NS = 5_000_000_000
"""Time for the packets in flight at the end of a recording."""
_AFTER_NS, _PATIENCE_NS = 500_000_000, 60_000_000_000
"""Time before a download, and its maximum duration, as in a virtual recording."""
_NO_LINKS = (Link.of_stages([]), Link.of_stages([]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell(Network):
    """A cell of ns-3 with one measured device and its other users.

    position_ns: time for which a moving device has moved at time zero. At another position, other users and fading are
    other ones of the same kind.
    """

    description: Description
    weather: int

    def links(self) -> tuple[Link, Link]:
        raise ValueError("the directions of a cell of ns-3 depend on each other: use path() or world()")

    def path(self) -> Path:
        return Path(*_NO_LINKS, outside=self._simulation())

    def world(self) -> World:
        return World.pair((), (), settings(Tcp()), self._simulation())

    def calibrate(self, seed: int) -> Calibration:
        with self._simulation() as simulation:
            return calibrate_virtually((), (), seed, simulation)

    def record(self, heavy: Network, plan: TrainPlan, duration_ns: int) -> Recording:
        """Record the cell by two devices at one place: one sends the trains, the other saturates both directions.

        heavy: this cell. The answers to a train are sent when its first packet arrives.
        """
        # Without links, answers are sent when their trains are.
        ideal = record_virtually(_NO_LINKS, _NO_LINKS, plan, duration_ns=duration_ns)
        with self._simulation(devices=2) as simulation:
            tables = _Recorder(simulation, ideal, duration_ns).run()
        arrivals = (table["arrived_ns"].fill_null(-1).to_numpy().tobytes() for table in tables)
        full = Span(workload="heavy", start_ns=max(map(_full_ns, tables[2:])), end_ns=duration_ns)
        changed = {
            "id": hashlib.sha256(b"".join(arrivals)).hexdigest()[:32],
            "spans": (*ideal.description.spans, full),
            "heavy": Heavy(uplink=SATURATION, downlink=SATURATION),
        }
        recording = Recording(ideal.description.model_copy(update=changed), *tables).counted()
        return replace(recording, downloads=self._download(duration_ns))

    def _download(self, duration_ns: int) -> pl.DataFrame:
        """Return downloads of a third device, each in a simulation from its position on."""
        rows = []
        for number, size in enumerate(DOWNLOADS):
            started_ns = (2 * number + 1) * duration_ns // (2 * len(DOWNLOADS))
            found = self.at(started_ns).path().downloads(_AFTER_NS, sizes=[size], until=_AFTER_NS + _PATIENCE_NS)
            rows.append((size, started_ns, int(found.taken[0]) if found.taken[0] >= 0 else None))
        return pl.DataFrame(rows, schema=dict(packets.DOWNLOADS), orient="row")

    def _simulation(self, devices: int = 1) -> Simulation:
        weather = self.weather + self.position_ns
        return Simulation(self.description, devices=devices, weather=weather, course_ns=self.position_ns)


@dataclass(frozen=True, slots=True)
class CellReference(Reference):
    """A cell of ns-3 that can be recorded. Its devices share no weather: recordings and applications meet the cell at
    different times."""

    description: Description

    def network(self, seed: int, device: int = APPLICATIONS_DEVICE) -> Cell:
        return cell(self.description, 4 * seed + device + 1)


def references(count: int, chance: Callable[[str], random.Random]) -> list[Reference] | str:
    """Return drawn cells, or why this machine has none. chance: random numbers of a name."""
    if reason := lacking():
        return f"the zoo has no cells of ns-3: {reason}"
    cells = [(name := f"ns3-{number:02}", draw(chance(name))) for number in range(1, count + 1)]
    return [CellReference(name, f"ns-3, {describe(each)}", each["speed_mps"] > 0, (), (), each) for name, each in cells]


def cell(description: Description, weather: int = TRUTH) -> Cell:
    """Return the cell of a description."""
    return Cell(REFERENCE, description=description, weather=weather)


class _Recorder:
    """The packets of a recording: flows 0 to 3 are the light uplink and downlink and the heavy ones."""

    def __init__(self, simulation: Simulation, ideal: Recording, duration_ns: int) -> None:
        self._simulation, self._duration_ns = simulation, duration_ns
        self._packet_bytes = ideal.description.packet_bytes
        trains = ideal.light_uplink.group_by("train").agg(begin=pl.col("sent_ns").min())
        answers = ideal.light_downlink.join(trains, on="train", how="left", maintain_order="left")
        self._trains = ideal.light_uplink.sort("sent_ns", maintain_order=True).to_dicts()[::-1]
        self._answers: dict[int, list[dict[str, Any]]] = {}
        for row in answers.to_dicts():
            self._answers.setdefault(row["train"], []).append(row | {"late": row["sent_ns"] - row["begin"]})
        self._packets: list[tuple[int, dict[str, Any]]] = []
        delays = SATURATION.least_delay_ns, SATURATION.most_delay_ns
        self._saturators = [_core.Saturator(self._packet_bytes, delays, FASTEST_BPS, duration_ns) for _ in range(2)]
        self._sent = [0, 0]

    def run(self) -> list[pl.DataFrame]:
        """Return the packets of each flow."""
        for begin in range(0, self._duration_ns, _REPORT_NS):
            end = min(begin + _REPORT_NS, self._duration_ns)
            while self._trains and self._trains[-1]["sent_ns"] < end:
                self._send(0, self._trains.pop())
            for way, saturator in enumerate(self._saturators):
                for at in saturator.send(end):
                    row = {"train": 0, "index": self._sent[way], "bytes": self._packet_bytes, "sent_ns": at}
                    self._send(2 + way, row)
                    self._sent[way] += 1
            arrived = self._advance(end)
            for way, saturator in enumerate(self._saturators):
                heavy = [(it["index"], it["sent_ns"], it["arrived_ns"]) for flow, it in arrived if flow == 2 + way]
                saturator.arrived(end, heavy)
        self._advance(self._duration_ns + _DRAIN_NS)
        rows = [[packet for of, packet in self._packets if of == flow] for flow in range(4)]
        return [pl.DataFrame(each, schema=dict(COLUMNS)).sort("train", "index") for each in rows]

    def _send(self, flow: int, row: dict[str, Any]) -> None:
        self._simulation.send(flow, row["sent_ns"], len(self._packets), row["bytes"], quiet=flow > 0)
        self._packets.append((flow, row | {"arrived_ns": None, "copies": 0}))

    def _advance(self, end: int) -> list[tuple[int, dict[str, Any]]]:
        """Advance to a time and answer trains; return the arrived packets."""
        found, now = list[tuple[int, dict[str, Any]]](), -1
        while now < end:
            now, departures = self._simulation.run(end)
            for at, number in departures:
                flow, packet = self._packets[number]
                packet |= {"arrived_ns": at, "copies": 1}
                found.append((flow, packet))
                for answer in self._answers.pop(packet["train"], ()) if flow == 0 else ():
                    self._send(1, answer | {"sent_ns": at + answer["late"]})
        return found


def _full_ns(packets: pl.DataFrame) -> int:
    """Return the time when the saturation has filled its queue: a packet waited for the lower bound, or was lost."""
    delay = pl.col("arrived_ns") - pl.col("sent_ns")
    full = packets.filter((delay >= delay.min() + SATURATION.least_delay_ns).fill_null(True))
    return int(full["sent_ns"][0]) if len(full) else 0
