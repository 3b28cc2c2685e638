"""The zoo: networks drawn at random from stated ranges, unknown to the methods of replay.

Every network is a function of :data:`SEED` and its name. Before any result, SHA-256 of both decides whether a network
belongs to the half for development or to the reported half.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from cellbed import CellbedError
from cellbed.extension.recorded import PROFILES
from cellbed_papers.evaluation.network import Reference, Stages, draw_seed, profile_reference

SEED = 47
"""The first seed from 46 on whose halves have as many networks of each kind, up to two. Cells of ns-3 came later."""
RADIO_NETWORKS, LOSS_LINKS, CELLS_PER_RECORDING, NS3_CELLS = 32, 8, 2, 12
MS = 1_000_000
HOUR_NS = 3_600_000 * MS
_BENCHES = Path(__file__).resolve().parents[3] / "benches"

Half = Literal["development", "reported", "both"]


def half(name: str) -> Half:
    """Return the half of the zoo that a network belongs to."""
    return "reported" if draw_seed(f"{SEED}/half/{name}") % 2 else "development"


def zoo(traces: Path | None, which: Half) -> tuple[list[Reference], list[str]]:
    """Return the networks of a half or of both halves, and a sentence for each kind of network that is missing.

    traces: folder of recordings in Mahimahi's format, ``NAME.up`` and ``NAME.down``; ``None`` for a zoo without them.

    Errors: :class:`CellbedError` for a folder without recordings.
    """
    found = [source(traces) for source in SOURCES]
    networks = [network for each in found if not isinstance(each, str) for network in each]
    here = [network for network in networks if which in (half(network.name), "both")]
    return here, [each for each in found if isinstance(each, str)]


class _Draw(random.Random):
    """Random values of one network."""

    def __init__(self, name: str) -> None:
        super().__init__(draw_seed(f"{SEED}/{name}"))

    def log(self, low: float, high: float) -> float:
        """Return a log-uniform number."""
        return math.exp(self.uniform(math.log(low), math.log(high)))

    def ms(self, low: float, high: float) -> int:
        """Return a log-uniform time in ns. low, high: ms."""
        return round(self.log(low, high) * MS)


def _radio_network(name: str) -> Reference:
    """Return a profile of our radio link with other constants. Each group of constants is drawn, or the profile's."""
    draw = _Draw(name)
    profile = profile_reference(draw.choice(PROFILES))
    both: dict[str, Any] = {"coupled": draw.random() < 0.5, "delay_ns": draw.ms(2, 30)}
    up, down = dict[str, Any](), dict[str, Any]()
    if draw.random() < 0.5:
        up["signal_db"], down["signal_db"] = draw.uniform(0, 16), draw.uniform(6, 26)
    if draw.random() < 0.5:
        most = 0.3 if profile.name.startswith("midband") else 0.95
        up["share"], down["share"] = draw.uniform(0.2, 0.9), draw.uniform(0.1, 1) * most
    if draw.random() < 0.5:
        down["sleep"] = _sleep(draw)
    if draw.random() < 0.3:
        least = draw.ms(30, 200)
        up["release"] = {"after_ns": draw.ms(2000, 15_000), "least_ns": least, "most_ns": least + draw.ms(10, 200)}
        down["release"] = up["release"] | {"paging_ns": draw.choice((320, 640, 1280)) * MS}
    if draw.random() < 0.5:
        up["grant"] = {
            "period_ns": draw.ms(1, 40), "delay_ns": draw.ms(2, 20), "first": round(draw.log(100, 3000)),
            "tail_ns": draw.ms(1, 100),
        }  # fmt: skip
    if draw.random() < 0.5:
        down["ramp"] = {
            "cold": draw.uniform(0.1, 1), "rise_ns": draw.ms(1, 20), "bend": draw.uniform(0.3, 1),
            "full": draw.choice((0, 100_000, 300_000, 1_000_000)), "memory_ns": draw.ms(2, 200),
        }  # fmt: skip
    if draw.random() < 0.4:
        down["second"] = {
            "gain": draw.uniform(0.3, 2), "load": round(draw.log(10_000, 500_000)), "delay_ns": draw.ms(8, 200),
            "idle_ns": draw.ms(50, 1000),
        }  # fmt: skip
    if draw.random() < 0.4:
        every = draw.ms(300, 5000)
        length = {"count": draw.randint(1, 12), "length_ns": int(every * draw.uniform(0.05, 0.4))}
        both["users"] = length | {"every_ns": every}
    if draw.random() < 0.5:
        both["harq"] = _harq(draw)
    uplink, downlink = ({**stage, **both, **own} for (stage,), own in ((profile.uplink, up), (profile.downlink, down)))
    text = f"{profile.name}, {_describe(both)}; uplink: {_describe(up)}; downlink: {_describe(down)}"
    return Reference(name, text, profile.moves, (uplink,), (downlink,))


def _describe(constants: dict[str, Any]) -> str:
    """Return constants as text, times in ms."""
    shown = ((key, value / MS if key.endswith("_ns") else value) for key, value in constants.items())
    return ", ".join(
        f"{key.removesuffix('_ns')} {f'({_describe(value)})' if isinstance(value, dict) else f'{value:.3g}'}"
        for key, value in shown
    )


def _sleep(draw: _Draw) -> dict[str, int]:
    """Return a sleep with the cycles of TS 38.331 from 10 to 640 ms, half of the time after short cycles."""
    cycle, after = draw.choice((10, 20, 40, 80, 160, 320, 640)), draw.ms(10, 750)
    sleep = {"after_ns": after, "cycle_ns": cycle * MS, "awake_ns": min(draw.ms(2, 20), cycle * MS // 2)}
    if cycle >= 40 and draw.random() < 0.5:
        short = cycle * MS // draw.choice((2, 4, 8))
        sleep |= {"short_ns": short, "short_for_ns": draw.randint(2, 16) * short}
        sleep["awake_ns"] = min(sleep["awake_ns"], short // 2)
    return sleep


def _harq(draw: _Draw) -> dict[str, Any]:
    """Return retransmissions; in unacknowledged mode after at most three attempts, blocks are lost."""
    lossy = draw.random() < 0.5
    harq: dict[str, Any] = {
        "first": draw.uniform(0.02, 0.3), "again": draw.uniform(0.02, 0.2), "round_trip_ns": draw.ms(4, 16),
        "attempts": draw.randint(1, 3) if lossy else draw.randint(2, 6), "recovery_ns": draw.ms(10, 100),
        "decode_ns": draw.ms(0.3, 2), "unacknowledged": lossy,
    }  # fmt: skip
    if lossy and harq["attempts"] == 1:
        harq["first"] = draw.log(0.002, 0.05)
    if draw.random() < 0.5:
        harq["fade"] = {"below_db": draw.uniform(3, 8), "chance": draw.uniform(0.3, 0.95)}
    return harq


def _loss_link(name: str) -> Reference:
    """Return a link with losses in bursts, of a steady rate or of a rate that varies."""
    draw = _Draw(name)
    rate, delay = draw.log(3e6, 80e6), draw.ms(3, 50)
    varies = draw.random() < 0.5
    ways = []
    for share in (draw.uniform(0.2, 1), 1.0):
        schedule: dict[str, Any] = {"kind": "constant", "bit_rate": round(rate * share)}
        if varies:
            steps = _rates(draw, rate * share)
            schedule = {"kind": "series", "steps": steps, "period_ns": 600_000 * MS, "offset_ns": 0}
        ways.append((_bursts(draw), *_bottleneck(draw, schedule, draw.log(0.3, 4) * rate * delay / 4e9, delay)))
    bad, good = ways[1][0]["to_bad"], ways[1][0]["to_good"]
    text = (
        f"{rate / 1e6:.0f} Mbit/s{', varies' if varies else ''}, {bad / (bad + good):.1%} in bursts of {1 / good:.0f}"
    )
    return Reference(name, text, False, *ways)


def _rates(draw: _Draw, mean: float) -> list[tuple[int, int]]:
    """Return ten minutes of a rate, bit/s: an autoregression on its logarithm, with a step every 0.5 s."""
    level, deviation, memory = 0.0, draw.uniform(0.2, 0.7), math.exp(-0.5 / draw.log(1, 20))
    steps = []
    for number in range(1200):
        level = memory * level + math.sqrt(1 - memory**2) * draw.gauss(0, deviation)
        steps.append((number * 500 * MS, round(mean * math.exp(level))))
    return steps


def _bursts(draw: _Draw) -> dict[str, Any]:
    """Return a chain of Gilbert and Elliott: 0.2 to 5 % of the packets meet bursts of 2 to 30 packets."""
    share, to_good = draw.log(0.002, 0.05), 1 / draw.log(2, 30)
    lost = draw.uniform(0.3, 1)
    to_bad = to_good * share / (1 - share)
    return {"kind": "gilbert-elliott", "to_bad": to_bad, "to_good": to_good, "loss_good": draw.uniform(0, 0.002),
            "loss_bad": lost, "seed": 0}  # fmt: skip


def _bottleneck(
    draw: _Draw, schedule: dict[str, Any], queue_bytes: float, delay_ns: int, mahimahi: bool = False
) -> Stages:
    queue = {"kind": "droptail", "bytes": max(30_000, round(queue_bytes))}
    bottleneck = {"kind": "bottleneck", "schedule": schedule, "queue": queue, "mahimahi": mahimahi}
    return bottleneck, {"kind": "delay", "fixed_ns": round(delay_ns * draw.uniform(0.8, 1.2))}


def _cells(traces: Path | None) -> list[Reference] | str:
    """Return public recordings as cells: a bottleneck with a drawn delay, queue and loss.

    If one direction was not recorded, the other direction's recording from another position takes its place.
    """
    if traces is None:
        return "the zoo has no public recordings: name their folder with --traces"
    found = []
    files = sorted(each for suffix in (".up", ".down") for each in traces.glob(f"*{suffix}"))
    if not files:
        raise CellbedError(f"{traces}: no recordings: expected files NAME.up and NAME.down in Mahimahi's format")
    for stem in sorted({path.stem for path in files}):
        own = {path.suffix: path for path in files if path.stem == stem}
        for number in range(1, CELLS_PER_RECORDING + 1):
            draw = _Draw(name := f"cell-{stem.lower()}-{number}")
            delay, loss = draw.ms(4, 50), draw.choice((0.0, draw.log(0.0005, 0.01)))
            ways, queues = [], []
            for suffix, other in ((".up", ".down"), (".down", ".up")):
                path = own.get(suffix) or own[other]
                schedule = {"kind": "trace", "path": str(path.absolute()), "looped": True, "offset_ns": 0}
                schedule["offset_ns"] = 0 if suffix in own else draw.randrange(HOUR_NS)
                queues.append(draw.log(60_000, 2_000_000))
                lossy = {"kind": "loss", "probability": loss, "seed": 0}
                ways.append((lossy, *_bottleneck(draw, schedule, queues[-1], delay, mahimahi=True)))
            text = f"{stem}, {delay / MS:.0f} ms, queues of {queues[0] / 1e3:.0f} and {queues[1] / 1e3:.0f} KB"
            text += f", loss {loss:.2%}"
            found.append(Reference(name, text, "driving" in stem.lower(), *ways))
    return found


def _ns3_cells(_: Path | None) -> list[Reference] | str:
    """Return cells of ns-3's LTE from the ranges in ``papers/benches/ns3/scenarios.py``, or why there are none."""
    if not _BENCHES.exists():
        return "the zoo has no cells of ns-3: they need cellbed's source tree"
    if str(_BENCHES) not in sys.path:
        sys.path.insert(0, str(_BENCHES))  # Spawned processes get this path, too.
    found: list[Reference] | str = importlib.import_module("ns3.reference").references(NS3_CELLS, _Draw)
    return found


SOURCES: list[Callable[[Path | None], Iterable[Reference] | str]] = [
    lambda _: (_radio_network(f"radio-{number:02}") for number in range(1, RADIO_NETWORKS + 1)),
    lambda _: (_loss_link(f"loss-{number}") for number in range(1, LOSS_LINKS + 1)),
    _cells,
    _ns3_cells,
]
"""Functions that return networks, or why there are none, by the folder of public recordings. Names and numbers alone
decide about a network: another source changes none."""
