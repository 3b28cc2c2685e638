"""Measure each link with datagrams between the nodes' real sockets and hold it against its schedule.

What is drawn at random is held against the span in which it must lie; what cannot be predicted is said to be unproved.
"""

from __future__ import annotations

import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from cellbed.scenario.capacities import RateSeries
from cellbed.scenario.fields import Unlimited
from cellbed.testbed import prediction, rehearsal
from cellbed.testbed.emulator import Emulator
from cellbed.testbed.plan import Direction, Plan
from cellbed.testbed.prediction import Clock
from cellbed.testbed.prove import MILLISECOND, Proof
from cellbed.testbed.stages import mean_rate
from cellbed.traces import TraceSource

SMALL = 100
"""Bytes of a delay probe."""
DATAGRAM = 1500
"""Size of a capacity probe: one MTU, so that one datagram takes one delivery opportunity."""

DELAY_TOLERANCE_NS = 2 * MILLISECOND
"""A direction is off when its median delay differs from what was asked by more: well above what a busy machine adds
to a timer at the median, well below what a wrong setting would give."""
RATE_TOLERANCE = 0.05
IDLE_PROBES = 12
ATTEMPTS = 5
IDLE_SPACING_NS = 8 * MILLISECOND
WINDOW_NS = 250 * MILLISECOND
SETTLED_NS = 1_000 * MILLISECOND
"""A link that changes later than this after the start of its schedule is proved as it is before."""
PATIENCE_NS = 900 * MILLISECOND
"""Datagrams that are under way for longer may not be waited for."""
HIGHEST_PROBE_RATE = 400_000_000
OVERLOAD = 1.4
"""How much more than a link carries is sent to see what it carries."""
ENOUGH = 1.15
"""How much more than a link carries must reach it."""
FEWEST = 8
"""Datagrams that a window must have room for, to prove a rate by them."""


def prove_links(plan: Plan, emulator: Emulator, notify: Callable[[str], None]) -> Iterator[Proof]:
    """Send datagrams over every link, both ways, and hold delay and rate against the schedule."""
    endpoints = plan.of_class("endpoint")
    remotes = plan.of_class("edge") + plan.of_class("cloud")
    proved: set[str] = set()
    for number in range(max(len(endpoints), len(remotes))):
        endpoint, remote = endpoints[number % len(endpoints)], remotes[number % len(remotes)]
        uplink, downlink = plan.path(endpoint.name, remote.name), plan.path(remote.name, endpoint.name)
        if {direction.name for direction in (*uplink, *downlink)} <= proved:
            continue
        notify(f"measuring the links between {endpoint.name} and {remote.name}")
        for proof in _prove_path_patiently(emulator, uplink, downlink):
            name = proof.what.split(" ")[0]
            if name not in proved:
                yield proof
        proved |= {direction.name for direction in (*uplink, *downlink)}


def _prove_path_patiently(emulator: Emulator, uplink: list[Direction], downlink: list[Direction]) -> list[Proof]:
    """A busy machine can spoil a measurement once; a link that is off is off each time."""
    proofs: dict[str, Proof] = {}
    for _ in range(ATTEMPTS):
        for proof in _prove_path(emulator, uplink, downlink):
            if proof.what not in proofs or not proofs[proof.what].ok:
                proofs[proof.what] = proof
        if all(proof.ok for proof in proofs.values()):
            break
    return list(proofs.values())


def _prove_path(emulator: Emulator, uplink: list[Direction], downlink: list[Direction]) -> Iterator[Proof]:
    paths = (uplink, downlink)
    begin_ns = _window(uplink + downlink, WINDOW_NS + IDLE_PROBES * IDLE_SPACING_NS)
    clock = _restart(emulator, begin_ns)
    idle_rate = round(SMALL * 8e9 / IDLE_SPACING_NS)
    for path, flow in zip(
        paths, _probe(emulator, [(path, SMALL, idle_rate) for path in paths], IDLE_PROBES), strict=True
    ):
        yield from _delay_proofs(path, flow, clock)
    loaded = []
    for path in paths:
        limited = [step for step in path if not isinstance(step.capacity, Unlimited)]
        why = _unsteady(path)
        expected = {step.name: _expected(path, step, begin_ns) if why is None else 0 for step in limited}
        for direction in limited:
            reason = why
            carried = expected[direction.name]
            narrowest = min(expected, key=expected.__getitem__)
            if reason is None and direction.name != narrowest:
                reason = f"{narrowest} lets less through"
            elif reason is None and carried < FEWEST * DATAGRAM:
                reason = f"its schedule has room for {carried} bytes in {WINDOW_NS // MILLISECOND} ms"
            if reason is not None:
                yield _unproved(f"{direction.name} rate", "Mbit/s", reason)
            else:
                bit_rate = max(200_000, round(OVERLOAD * 8e9 * carried / WINDOW_NS))
                loaded.append((path, direction, min(HIGHEST_PROBE_RATE, bit_rate)))
    if not loaded:
        return
    clock = _restart(emulator, begin_ns)
    flows = _probe(emulator, [(path, DATAGRAM, bit_rate) for path, _, bit_rate in loaded], None)
    for (path, direction, _), flow in zip(loaded, flows, strict=True):
        yield _rate_proof(path, direction, flow, clock)


def _expected(path: list[Direction], direction: Direction, begin_ns: int) -> int:
    """Bytes that a direction carries in a window for a path that is always busy."""
    if not rehearsal.depends_on_load(path):
        return prediction.offered(direction, begin_ns, begin_ns + WINDOW_NS)
    flood = range(begin_ns, begin_ns + WINDOW_NS, round(DATAGRAM * 8e9 / HIGHEST_PROBE_RATE))
    reached = sorted(_known(rehearsal.arrivals(path, flood, DATAGRAM, Clock(0, 0))))
    return DATAGRAM * bisect_right(reached, reached[0] + WINDOW_NS) if reached else 0


def _restart(emulator: Emulator, begin_ns: int) -> Clock:
    clock = Clock(time.monotonic_ns(), begin_ns)
    emulator.restart_links(clock.zero_ns, begin_ns)
    return clock


def _probe(
    emulator: Emulator, flows: list[tuple[list[Direction], int, int]], packets: int | None
) -> list[dict[str, Any]]:
    """Send `packets` datagrams on each flow (path, bytes, bit/s), or for the width of the window."""
    commands = [
        {
            "from": path[0].source,
            "to": path[-1].target,
            "bytes": size,
            "bit_rate": bit_rate,
            "duration_ns": WINDOW_NS if packets is None else round(packets * size * 8e9 / bit_rate),
            "family": 4,
        }
        for path, size, bit_rate in flows
    ]
    return emulator.probe(commands, timeout=20.0)


def _unproved(what: str, unit: str, why: str) -> Proof:
    return Proof(what, None, None, unit, ok=True, note=why, proved=False)


def _unsteady(path: list[Direction]) -> str | None:
    """Why a path cannot be proved in the time there is for it."""
    longest_ns = sum(prediction.delays(direction.parameters.delay)[1] for direction in path)
    for direction in path:
        if direction.changes and direction.changes[0][0] < SETTLED_NS + longest_ns:
            return f"{direction.name} changes after {direction.changes[0][0] / 1e9:g} s, too soon to be measured before"
    if longest_ns > PATIENCE_NS:
        return f"packets may be under way for {longest_ns / 1e9:g} s"
    return None


def _why_nothing(path: list[Direction]) -> str | None:
    """Why no datagram need arrive, though the links are as asked."""
    chances = [prediction.chance_of_loss(direction) for direction in path]
    survival = 1.0
    for direction, chance in zip(path, chances, strict=True):
        if chance is None:
            return f"{direction.name} may lose all packets for a time"
        survival *= (1 - chance) * (1 - direction.parameters.corruption)
    # Once in a thousand million runs is never.
    return "nearly all packets are lost or damaged" if (1 - survival) ** IDLE_PROBES > 1e-9 else None


def _delay_proofs(path: list[Direction], flow: dict[str, Any], clock: Clock) -> Iterator[Proof]:
    why = _unsteady(path)
    if why is None and rehearsal.depends_on_load(path):
        yield from _rehearsed_delay_proofs(path, flow, clock)
        return
    measured_ns, asked_ns, errors_ns, widest_ns = [], [], [], 0
    for sent, received in zip(flow["sent_ns"], flow["received_ns"], strict=True):
        if received is None or why is not None:
            continue
        due = (sent, sent)
        for direction in path:
            due = prediction.departure(direction, due, SMALL, clock)
        widest_ns = max(widest_ns, due[1] - due[0])
        measured_ns.append(received - sent)
        asked_ns.append((due[0] + due[1]) // 2 - sent)
        errors_ns.append(min(0, received - due[0]) or max(0, received - due[1]))
    for direction in path:
        what = f"{direction.name} delay"
        nothing = why or (None if errors_ns else _why_nothing(path))
        if nothing is not None:
            yield _unproved(what, "ms", nothing)
            continue
        if not errors_ns:
            fixed_ms = sum(prediction.delays(step.parameters.delay)[0] for step in path) / 1e6
            yield Proof(what, fixed_ms, None, "ms", ok=False, note="no datagram arrived")
            continue
        error_ns = statistics.median(errors_ns)
        # A turned bit can make one datagram look like another.
        early = min(errors_ns) < 0 and not any(step.parameters.corruption for step in path)
        note = "early packets" if early else f"whole path, one way, {len(errors_ns)} datagrams"
        asked, measured = statistics.median(asked_ns), statistics.median(measured_ns)
        if widest_ns > MILLISECOND:
            note += f", within {widest_ns / 1e6:.3g} ms as chance has it"
        else:
            measured = asked + error_ns
        ok = abs(error_ns) <= DELAY_TOLERANCE_NS and not early
        yield Proof(what, asked / 1e6, measured / 1e6, "ms", ok, note)


def _rehearsed_delay_proofs(path: list[Direction], flow: dict[str, Any], clock: Clock) -> Iterator[Proof]:
    """Each datagram against what the model makes of it; a random draw may fall differently for single ones."""
    due = rehearsal.arrivals(path, flow["sent_ns"], SMALL, clock)
    met = [
        (sent, expected, received)
        for sent, expected, received in zip(flow["sent_ns"], due, flow["received_ns"], strict=True)
        if expected is not None and received is not None
    ]
    for direction in path:
        what = f"{direction.name} delay"
        if not met:
            nothing = _why_nothing(path) or (None if _known(due) else "by the model, none arrives")
            yield (
                _unproved(what, "ms", nothing)
                if nothing is not None
                else Proof(what, None, None, "ms", ok=False, note="no datagram arrived")
            )
            continue
        error_ns = statistics.median(received - expected for _, expected, received in met)
        asked = statistics.median(expected - sent for sent, expected, _ in met)
        note = f"whole path, one way, {len(met)} datagrams held against the model"
        yield Proof(what, asked / 1e6, (asked + error_ns) / 1e6, "ms", abs(error_ns) <= DELAY_TOLERANCE_NS, note)


def _rehearsed_rate_proof(path: list[Direction], direction: Direction, flow: dict[str, Any], clock: Clock) -> Proof:
    """Bytes between the first and the last arrival against those of the model."""
    what = f"{direction.name} rate"
    due = sorted(_known(rehearsal.arrivals(path, flow["sent_ns"], DATAGRAM, clock)))
    came = sorted(_known(flow["received_ns"]))
    if len(due) < FEWEST:
        return _unproved(what, "Mbit/s", f"by the model, {len(due)} of {len(flow['sent_ns'])} datagrams arrive")
    if len(came) < FEWEST:
        return Proof(what, None, None, "Mbit/s", ok=False, note=f"{len(came)} datagrams arrived")
    asked, measured = (8e3 * DATAGRAM * (len(times) - 1) / (times[-1] - times[0]) for times in (due, came))
    slack = max(2 * RATE_TOLERANCE * asked, asked * 3 / len(due))
    note = f"{len(came)} datagrams in {(came[-1] - came[0]) / 1e6:.0f} ms held against the model"
    return Proof(what, asked, measured, "Mbit/s", abs(measured - asked) <= slack, note)


def _known(times: Iterable[int | None]) -> list[int]:
    return [time for time in times if time is not None]


def _rate_proof(path: list[Direction], direction: Direction, flow: dict[str, Any], clock: Clock) -> Proof:
    """Bytes between the first and the last arrival against what the schedule offered between their departures."""
    if rehearsal.depends_on_load(path):
        return _rehearsed_rate_proof(path, direction, flow, clock)
    arrivals = sorted(_known(flow["received_ns"]))
    what = f"{direction.name} rate"
    if len(arrivals) < 3:
        why = _why_nothing(path)
        if why is not None:
            return _unproved(what, "Mbit/s", why)
        return Proof(what, None, None, "Mbit/s", ok=False, note=f"{len(arrivals)} datagrams arrived")
    place = path.index(direction)
    behind = [prediction.delays(step.parameters.delay) for step in path[place:]]
    least_ns, most_ns = (sum(span[end] for span in behind) for end in (0, 1))
    first, last = (clock.position(arrival) for arrival in (arrivals[0], arrivals[-1]))
    offered = prediction.offered(direction, first - (least_ns + most_ns) // 2 + 1, last - (least_ns + most_ns) // 2 + 1)
    most = prediction.offered(direction, first - most_ns + 1, last - least_ns + 1) + prediction.burst(direction)
    least = prediction.offered(direction, first - least_ns + 1, last - most_ns + 1)
    delivered = (len(arrivals) - 1) * DATAGRAM
    span_s = (last - first) / 1e9
    slack = max(RATE_TOLERANCE * offered, 3 * DATAGRAM)
    ok = delivered <= most + slack
    note = f"{len(arrivals)} datagrams in {span_s * 1e3:.0f} ms"
    highest = min(1.0, HIGHEST_PROBE_RATE * span_s / 8 / max(offered, 1))
    idle = prediction.idles(direction, first - most_ns, last) or _not_filled(path[: place + 1])
    if idle is not None:
        note += f"; only that it is no more is proved: {idle}"
    elif highest < 1.0:
        note = f"probed up to {HIGHEST_PROBE_RATE / 1e6:g} Mbit/s"
        ok = ok and delivered >= highest * least * (1 - 3 * RATE_TOLERANCE)
    else:
        missing = sum(_missing(step) for step in path[place:])
        ok = ok and delivered >= least - slack - missing * offered
    return Proof(what, 8e-6 * offered / span_s, 8e-6 * delivered / span_s, "Mbit/s", ok, note)


def _not_filled(path: list[Direction]) -> str | None:
    """Why what is sent need not fill the bottleneck of the last direction."""
    survival = 1.0
    for direction in path:
        chance = prediction.chance_of_loss(direction)
        if chance is None:
            return f"{direction.name} loses packets in bursts"
        survival *= 1 - chance
    return None if OVERLOAD * survival >= ENOUGH else "too many packets are lost before it"


def _missing(direction: Direction) -> float:
    """The share of what leaves a bottleneck that need not be counted at the end: lost, damaged, or second copies."""
    parameters = direction.parameters
    return (prediction.chance_of_loss(direction) or 0.0) + 2 * parameters.corruption + parameters.duplication


def _window(directions: list[Direction], width_ns: int) -> int:
    """Where in the recordings to measure: where the scarcest direction offers the most, far from outages."""
    recorded = [direction for direction in directions if isinstance(direction.capacity, TraceSource | RateSeries)]
    if not recorded:
        return 0

    def scarcest(begin_ns: int) -> tuple[bool, float]:
        shares = []
        for direction in recorded:
            if begin_ns + width_ns > _end(direction):
                return (False, 0.0)
            mean = (mean_rate(direction.capacity) or 0.0) * width_ns / 8e9
            # Four looks into the window: a gap in one of them would leave probes without an opportunity.
            quarters = [
                prediction.offered(direction, begin_ns + part * width_ns // 4, begin_ns + (part + 1) * width_ns // 4)
                for part in range(4)
            ]
            shares.append(4 * min(quarters) / mean if mean else 0.0)
        return (min(shares) > 0, min(shares))

    period_ns = 60_000 * MILLISECOND
    candidates = range(0, period_ns, max(width_ns, period_ns // 200))
    return max(candidates, key=scarcest)


def _end(direction: Direction) -> float:
    """The position behind which a trace that is played once has nothing; infinite for all else."""
    if isinstance(direction.capacity, TraceSource) and not direction.playing.looped:
        return direction.capacity.trace.duration_ns - direction.playing.start_ns
    return float("inf")
