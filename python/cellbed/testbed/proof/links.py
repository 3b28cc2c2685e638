"""Measure each link with datagrams between the nodes' real sockets, and compare the results with the schedule.

Random values are compared with their range. Unpredictable values are reported as not proved.
"""

from __future__ import annotations

import logging
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from cellbed.archive import TraceSource
from cellbed.scenario.capacities import RateSeries
from cellbed.scenario.fields import Unlimited
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.links.stages import mean_rate
from cellbed.testbed.plan import Direction, Plan
from cellbed.testbed.proof import prediction
from cellbed.testbed.proof.limits import MILLISECOND, Proof, leave_out
from cellbed.testbed.proof.prediction import Clock

SMALL = 100
"""Size of a delay probe, bytes."""
DATAGRAM = 1500
"""Size of a capacity probe, bytes: one MTU, so that one datagram takes one delivery opportunity."""

DELAY_TOLERANCE_NS = 2 * MILLISECOND
"""Maximum error of the median delay: well above the median lateness of a timer on a busy machine, well below the effect
of a wrong setting."""
RATE_TOLERANCE = 0.05
IDLE_PROBES = 12
_log = logging.getLogger(__name__)
ATTEMPTS = 6
"""Maximum number of measurements of a link; the first :data:`QUICK_ATTEMPTS` send no more than usually suffices."""
QUICK_ATTEMPTS = 3
IDLE_SPACING_NS = 8 * MILLISECOND
WINDOW_NS = 250 * MILLISECOND
QUICK_WINDOW_NS = 60 * MILLISECOND
QUICK = 150
"""Number of datagrams that usually suffices to prove a rate."""
SETTLED_NS = 1_000 * MILLISECOND
"""Minimum time before a link's first change, in addition to the path's delay, in which the link can be proved."""
PATIENCE_NS = 900 * MILLISECOND
"""Maximum transit time of datagrams that a measurement can wait for."""
HIGHEST_PROBE_RATE = 400_000_000
"""Maximum rate of a flow, and of all simultaneous flows, bit/s."""
SHARE = 0.05
"""Maximum share of a link's rate for simultaneous flows, so that they do not delay each other."""
OVERLOAD = 1.4
"""Ratio of the probing rate to the link's expected rate."""
ENOUGH = 1.15
"""Minimum ratio of the rate that reaches a link to its expected rate."""
STALL_NS = 5 * MILLISECOND
"""Minimum pause of a sender that can empty even a queue kept short by CoDel (RFC 8289, 4.2: 5 ms)."""
LEFT_OUT = 1 / 8
"""Share of first arrivals that a second check of a rate leaves out."""
FEW = 4
"""Maximum number of paths that are each measured in their best window."""
PERIOD_NS = 60_000 * MILLISECOND
"""Length of the part of recordings that is searched for windows."""
STEADY = 0.6
"""Minimum offer of each quarter of a steady window, relative to the mean of the quarters."""
LEAST_OFFER = 20 * DATAGRAM
"""Minimum offer of each quarter of a steady window, bytes."""
MEASURED = 32
"""Number of equal links, at different positions of the same recordings, whose rates are measured."""
FEWEST = 8
"""Minimum number of datagrams in a window that can prove a rate."""


@dataclass(frozen=True, slots=True)
class _Flow:
    """Datagrams over one path, from position `begin_ns` of the recordings on. direction: direction whose rate they
    prove; ``None`` for datagrams that prove delays."""

    path: list[Direction]
    size: int
    bit_rate: int
    duration_ns: int
    begin_ns: int
    direction: Direction | None = None


def prove_links(plan: Plan, emulator: Emulator, progress: Callable[[str], object] = lambda _: None) -> list[Proof]:
    """Send datagrams over every link, both ways, and compare delay and rate with the schedule. progress: called with a
    description of the next measurement.

    Links are measured at the same time if their datagrams do not delay each other. Links in a cell are measured one at
    a time: while the others are silent, the cell has no effect.
    """
    pairs = _pairs(plan)
    # With moving users, cells of a direction count as one: a measurement needs silence in several.
    cells = {name: cell.way if plan.moves else cell.name for cell in plan.cells for name in cell.users}
    windows = _windows([[step for path in pair for step in path] for pair in pairs])
    crossed = {direction.name for pair in pairs for path in pair for direction in path}
    proofs: dict[str, Proof] = {
        what: _without_proof(what, "ms", "no path between nodes crosses it at the start")
        for what in (f"{each.name} delay" for each in plan.directions if pairs and each.name not in crossed)
    }
    # A busy machine can spoil one measurement; a wrong link is wrong in each attempt.
    for attempt in range(ATTEMPTS):
        # A busy machine may not handle many flows at the same time. The second attempt has fewer anyway.
        most = HIGHEST_PROBE_RATE >> max(0, attempt - 1)
        settled = {what for what, proof in proofs.items() if proof.is_settled}
        for proof in _prove_pairs(emulator, pairs, windows, settled, most, cells, quick=attempt < QUICK_ATTEMPTS):
            progress(f"links, attempt {attempt + 1} of {ATTEMPTS}, up to {proof.what}")
            before = proofs.get(proof.what)
            if proof.what not in settled and (before is None or before.ok or proof.is_settled):
                proofs[proof.what] = proof
        if not (spoiled := [proof for proof in proofs.values() if not proof.is_settled]):
            break
        for proof in spoiled:
            _log.info(f"measured again after attempt {attempt + 1} of {ATTEMPTS}: {proof}")
    order = [f"{direction.name} {what}" for direction in plan.directions for what in ("delay", "rate")]
    return [proofs[what] for what in order if what in proofs]


def _pairs(plan: Plan) -> list[tuple[list[Direction], list[Direction]]]:
    """Return pairs of uplink and downlink paths that together cross every link."""
    endpoints = plan.nodes_of_class("endpoint")
    remotes = plan.nodes_of_class("edge") + plan.nodes_of_class("cloud")
    # If all nodes are on one side, they are paired with each other. A single node has no path to prove.
    endpoints, remotes = endpoints or remotes[1:] + remotes[:1], remotes or endpoints[1:] + endpoints[:1]
    if len(plan.nodes) < 2:
        return []
    crossed: set[str] = set()
    pairs = []
    for number in range(max(len(endpoints), len(remotes))):
        endpoint, remote = endpoints[number % len(endpoints)], remotes[number % len(remotes)]
        uplink, downlink = plan.path(endpoint.name, remote.name), plan.path(remote.name, endpoint.name)
        names = {direction.name for direction in (*uplink, *downlink)}
        if not names <= crossed:
            pairs.append((uplink, downlink))
        crossed |= names
    # Core links of sites are crossed between nodes at different vertices.
    at_vertices = {plan.initial_towers[node.name]: node.name for node in (*endpoints, *remotes)}
    for one, other in combinations(at_vertices.values(), 2):
        uplink, downlink = plan.path(one, other), plan.path(other, one)
        names = {direction.name for direction in (*uplink, *downlink)}
        if not names <= crossed:
            pairs.append((uplink, downlink))
        crossed |= names
    return [*pairs, *_neighbours(plan)]


def _neighbours(plan: Plan) -> Iterator[tuple[list[Direction], list[Direction]]]:
    """Yield paths, both ways, between nodes of one site that can fill their ports; each node once or twice."""
    for name, site in plan.scenario.sites.items():
        nodes = [node.name for node in plan.nodes if plan.scenario.nodes[node.group].site == name]
        if len(nodes) > 1 and site.rate <= HIGHEST_PROBE_RATE:
            for one, other in zip(nodes[::2], [*nodes[1::2], nodes[0]], strict=False):
                yield plan.path(one, other), plan.path(other, one)


def _prove_pairs(
    emulator: Emulator,
    pairs: Sequence[tuple[list[Direction], list[Direction]]],
    windows: Sequence[int],
    accepted: set[str],
    most: int,
    cells: Mapping[str, str],
    *,
    quick: bool,
) -> Iterator[Proof]:
    """Measure delays, then rates; of many equal links, the rates of :data:`MEASURED`.

    windows: positions in recordings, by pair. accepted: names of accepted proofs, not measured again. most: bit/s of
    all simultaneous flows; a single flow may exceed it. cells: cells by the directions that share them.
    quick: use no more datagrams than usually suffice.
    """
    idle_ns = IDLE_PROBES * IDLE_SPACING_NS
    idle_rate = round(SMALL * 8e9 / IDLE_SPACING_NS)
    idle: list[_Flow] = []
    loaded: dict[str, _Flow] = {}
    for pair, begin_ns in zip(pairs, windows, strict=True):
        for path in pair:
            if not all(f"{step.name} delay" in accepted for step in path):
                idle.append(_Flow(path, SMALL, idle_rate, idle_ns, begin_ns))
            if all(f"{step.name} rate" in accepted for step in path if not isinstance(step.capacity, Unlimited)):
                continue
            for flow in _loads(path, begin_ns, quick=quick):
                if isinstance(flow, Proof):
                    yield flow
                elif flow.direction is not None and f"{flow.direction.name} rate" not in accepted:
                    loaded.setdefault(flow.direction.name, flow)
    proved: set[str] = set()
    for batch in _batches(idle, most // 50, cells):
        clock, seen = _probe(emulator, batch)
        for flow, sighting in zip(batch, seen, strict=True):
            # If several flows cross a link, the first flow proves it.
            proofs = list(_delay_proofs(flow.path, sighting, clock))
            yield from (proof for proof in proofs if proof.what not in proved)
            proved |= {proof.what for proof in proofs}
    keys = {
        name: (flow.direction and flow.direction.way, *((step.parameters, step.changes) for step in flow.path))
        for name, flow in loaded.items()
    }
    for name, note in leave_out(keys, MEASURED, "links").items():
        yield _without_proof(f"{name} rate", "Mbit/s", note)
        del loaded[name]
    # Batch flows of similar length: a batch lasts as long as its longest flow.
    for batch in _batches(sorted(loaded.values(), key=lambda flow: -flow.duration_ns), most, cells):
        clock, seen = _probe(emulator, batch)
        for flow, sighting in zip(batch, seen, strict=True):
            assert flow.direction is not None
            yield _rate_proof(flow.path, flow.direction, sighting, clock)


def _loads(path: list[Direction], begin_ns: int, *, quick: bool) -> Iterator[_Flow | Proof]:
    """Yield flows that prove the rates of a path, and proofs for rates that cannot be proved."""
    limited = [step for step in path if not isinstance(step.capacity, Unlimited)]
    why = _unsteady(path)
    expected = {step.name: _byte_count(path, step, begin_ns, WINDOW_NS) if why is None else 0 for step in limited}
    for direction in limited:
        reason = why
        carried = expected[direction.name]
        narrowest = min(expected, key=expected.__getitem__)
        if reason is None and carried > expected[narrowest]:
            reason = f"{narrowest} has less capacity"
        elif reason is None and _is_wide_port(direction):
            reason = f"a port of a site that carries more than {HIGHEST_PROBE_RATE / 1e6:g} Mbit/s is not filled"
        elif reason is None and carried < FEWEST * DATAGRAM:
            reason = f"its schedule has room for {carried} bytes in {WINDOW_NS // MILLISECOND} ms"
        if reason is not None:
            yield _without_proof(f"{direction.name} rate", "Mbit/s", reason)
        else:
            width_ns = WINDOW_NS
            if quick and _is_exact(path):
                width_ns = min(WINDOW_NS, max(QUICK_WINDOW_NS, WINDOW_NS * QUICK * DATAGRAM // carried))
                carried = _byte_count(path, direction, begin_ns, width_ns)
            bit_rate = max(200_000, round(OVERLOAD * 8e9 * carried / width_ns))
            yield _Flow(path, DATAGRAM, min(HIGHEST_PROBE_RATE, bit_rate), width_ns, begin_ns, direction)


def _is_wide_port(direction: Direction) -> bool:
    """Return whether a port is too fast to fill: this would take probes of all senders for each of many equal ports."""
    return direction.link.startswith("port-") and (mean_rate(direction.capacity) or 0.0) > HIGHEST_PROBE_RATE


def _is_exact(path: list[Direction]) -> bool:
    """Return whether the prediction is a single value; a range of values is too inaccurate for a short window."""
    spans = (prediction.delays(step.parameters.delay) for step in path)
    return not prediction.depends_on_load(path) and all(least == most for least, most in spans)


def _batches(flows: Sequence[_Flow], most: int, cells: Mapping[str, str]) -> list[list[_Flow]]:
    """Group flows that can be sent at the same time, in order: first fit. See :class:`_Batch`."""
    batches: list[_Batch] = []
    for flow in flows:
        batch = next((batch for batch in batches if batch.has_room(flow, most)), None)
        if batch is None:
            batch = _Batch(cells)
            batches.append(batch)
        batch.add(flow)
    return [batch.flows for batch in batches]


class _Batch:
    """Flows that are sent at the same time.

    They begin at the same position of their recordings. Flows that cross the same link have at most a share of its rate
    in total. cells: cells by the directions that share them; one direction per cell takes part.
    """

    def __init__(self, cells: Mapping[str, str]) -> None:
        self._cells = cells
        self._users: dict[str, str] = {}
        self.flows: list[_Flow] = []
        self._bit_rate = 0
        self._crossing: dict[str, int] = {}

    def has_room(self, flow: _Flow, most: int) -> bool:
        """Return whether a flow can be added. most: maximum rate of all flows, bit/s."""
        return (
            flow.begin_ns == self.flows[0].begin_ns
            and self._bit_rate + flow.bit_rate <= most
            and all(
                self._crossing[step.name] + flow.bit_rate <= SHARE * (mean_rate(step.capacity) or 0.0)
                for step in flow.path
                if step.name in self._crossing
            )
            and all(self._users.get(cell, name) == name for name, cell in self._shared_directions(flow))
        )

    def add(self, flow: _Flow) -> None:
        """Add a flow. The first flow always has room."""
        self.flows.append(flow)
        self._bit_rate += flow.bit_rate
        self._users |= {cell: name for name, cell in self._shared_directions(flow)}
        for step in flow.path:
            if not isinstance(step.capacity, Unlimited):
                self._crossing[step.name] = self._crossing.get(step.name, 0) + flow.bit_rate

    def _shared_directions(self, flow: _Flow) -> Iterator[tuple[str, str]]:
        """Return the directions of a flow that share a cell, each with the cell."""
        return ((step.name, self._cells[step.name]) for step in flow.path if step.name in self._cells)


def _byte_count(path: list[Direction], direction: Direction, begin_ns: int, width_ns: int) -> int:
    """Return the bytes that a direction carries in a window if the path is always busy."""
    if not prediction.depends_on_load(path):
        return prediction.byte_offer(direction, begin_ns, begin_ns + width_ns)
    flood = range(begin_ns, begin_ns + width_ns, round(DATAGRAM * 8e9 / HIGHEST_PROBE_RATE))
    reached = sorted(due[0] for due in prediction.arrivals(path, flood, DATAGRAM, Clock(0, 0)) if due is not None)
    return DATAGRAM * bisect_right(reached, reached[0] + width_ns) if reached else 0


def _probe(emulator: Emulator, flows: list[_Flow]) -> tuple[Clock, list[dict[str, Any]]]:
    """Restart the links and send all flows at the same time."""
    clock = Clock(time.monotonic_ns(), flows[0].begin_ns)
    emulator.restart_links(clock.zero_ns, clock.begin_ns)
    commands = [
        {
            "from": flow.path[0].source,
            "to": flow.path[-1].target,
            "bytes": flow.size,
            "bit_rate": flow.bit_rate,
            "duration_ns": flow.duration_ns,
            "family": 4,
        }
        for flow in flows
    ]
    return clock, emulator.probe(commands, timeout=20.0 + len(flows))


def _without_proof(what: str, unit: str, why: str) -> Proof:
    return Proof(what, None, None, unit, ok=True, note=why, proved=False)


def _unsteady(path: list[Direction]) -> str | None:
    """Return why a path cannot be proved, or not in the available time; ``None`` if it can."""
    if (unknown := prediction.find_unknown(path)) is not None:
        return unknown
    longest_ns = sum(prediction.delays(direction.parameters.delay)[1] for direction in path)
    for direction in path:
        outages = direction.parameters.outages
        if outages and outages[0][0] < SETTLED_NS + longest_ns:
            return f"{direction.name} has an outage after {outages[0][0] / 1e9:g} s, too soon for a measurement"
        if direction.changes and direction.changes[0][0] < SETTLED_NS + longest_ns:
            return f"{direction.name} changes after {direction.changes[0][0] / 1e9:g} s, too soon for a measurement"
    if longest_ns > PATIENCE_NS:
        return f"packets may be under way for {longest_ns / 1e9:g} s"
    return None


def _why_nothing(path: list[Direction]) -> str | None:
    """Return why no datagram may arrive even though the links are correct; ``None`` if some must."""
    chances = [prediction.chance_of_loss(direction) for direction in path]
    survival = 1.0
    for direction, chance in zip(path, chances, strict=True):
        if chance is None:
            return f"{direction.name} can lose all packets for some time"
        survival *= (1 - chance) * (1 - direction.parameters.corruption)
    # A probability below one in a thousand million runs counts as never.
    return "nearly all packets are lost or damaged" if (1 - survival) ** IDLE_PROBES > 1e-9 else None


def _delay_proofs(path: list[Direction], flow: dict[str, Any], clock: Clock) -> Iterator[Proof]:
    """Compare each datagram with its expected arrival. With the path model, random draws may differ per datagram."""
    unsteady = _unsteady(path)
    expected = [] if unsteady else prediction.arrivals(path, flow["sent_ns"], SMALL, clock)
    due = [(sent, *span) for sent, span in zip(flow["sent_ns"], expected, strict=not unsteady) if span is not None]
    came = {sent: received for sent, received in zip(flow["sent_ns"], flow["received_ns"], strict=True) if received}
    met = [(sent, low, high, came[sent]) for sent, low, high in due if sent in came]
    asked = statistics.median([(low + high) // 2 - sent for sent, low, high, *_ in met or due]) if due else None
    for direction in path:
        what = f"{direction.name} delay"
        nothing = unsteady or (None if met else _why_nothing(path))
        if nothing is None and asked is None:
            nothing = "by the model, no datagram arrives"
        if nothing is not None or asked is None:
            yield _without_proof(what, "ms", str(nothing))
        elif not met:
            yield Proof(what, asked / 1e6, None, "ms", ok=False, note="no datagram arrived")
        else:
            yield _delay_proof(path, what, asked, met)


def _delay_proof(path: list[Direction], what: str, asked: float, met: Sequence[tuple[int, int, int, int]]) -> Proof:
    """Return the proof of a delay. met: for each datagram, the time when it was sent, the range in which it was due,
    and the time when it arrived."""
    errors_ns = [min(0, received - low) or max(0, received - high) for _, low, high, received in met]
    error_ns, widest_ns = statistics.median(errors_ns), max(high - low for _, low, high, _ in met)
    measured = asked + error_ns
    note = f"whole path, one way, {len(met)} datagrams"
    early = False
    if prediction.depends_on_load(path):
        note += " compared with the model"
    else:
        # A flipped bit can make one datagram look like another.
        early = min(errors_ns) < 0 and not any(step.parameters.corruption for step in path)
        note = "early packets" if early else note
    if widest_ns > MILLISECOND:
        note += f", random within {widest_ns / 1e6:.3g} ms"
        measured = statistics.median(received - sent for sent, *_, received in met)
    ok = abs(error_ns) <= DELAY_TOLERANCE_NS and not early
    return Proof(what, asked / 1e6, measured / 1e6, "ms", ok, note)


def _rate_proof_by_model(path: list[Direction], direction: Direction, flow: dict[str, Any], clock: Clock) -> Proof:
    """Compare the rate between the first and the last arrival with the model."""
    what = f"{direction.name} rate"
    expected = prediction.arrivals(path, flow["sent_ns"], DATAGRAM, clock)
    due = sorted(span[0] for span in expected if span is not None)
    came = sorted(_drop_unknown(flow["received_ns"]))
    if len(due) < FEWEST:
        return _without_proof(what, "Mbit/s", f"by the model, {len(due)} of {len(flow['sent_ns'])} datagrams arrive")
    if len(came) < FEWEST:
        return Proof(what, None, None, "Mbit/s", ok=False, note=f"{len(came)} datagrams arrived")
    asked, measured = (8e3 * DATAGRAM * (len(times) - 1) / (times[-1] - times[0]) for times in (due, came))
    slack = max(2 * RATE_TOLERANCE * asked, asked * 3 / len(due))
    note = f"{len(came)} datagrams in {(came[-1] - came[0]) / 1e6:.0f} ms compared with the model"
    return Proof(what, asked, measured, "Mbit/s", abs(measured - asked) <= slack, note)


def _drop_unknown(times: Iterable[int | None]) -> list[int]:
    return [time for time in times if time is not None]


def _rate_proof(path: list[Direction], direction: Direction, flow: dict[str, Any], clock: Clock) -> Proof:
    """Compare the bytes between the first and the last arrival with the schedule's offer between their departures."""
    if prediction.depends_on_load(path):
        return _rate_proof_by_model(path, direction, flow, clock)
    arrivals = sorted(_drop_unknown(flow["received_ns"]))
    proof = _prove_rate(path, direction, flow, arrivals, clock)
    later = arrivals[round(len(arrivals) * LEFT_OUT) :]
    # If this machine reports first arrivals late, a slower link seems correct: check again without them.
    return _prove_rate(path, direction, flow, later, clock) if proof.state == "holds" and len(later) > 2 else proof


def _prove_rate(
    path: list[Direction], direction: Direction, flow: dict[str, Any], arrivals: Sequence[int], clock: Clock
) -> Proof:
    """Return the proof by sorted arrivals."""
    what = f"{direction.name} rate"
    if len(arrivals) < 3:
        why = _why_nothing(path)
        if why is not None:
            return _without_proof(what, "Mbit/s", why)
        return Proof(what, None, None, "Mbit/s", ok=False, note=f"{len(arrivals)} datagrams arrived")
    place = path.index(direction)
    behind = [prediction.delays(step.parameters.delay) for step in path[place:]]
    least_ns, most_ns = (sum(span[end] for span in behind) for end in (0, 1))
    first, last = (clock.position(arrival) for arrival in (arrivals[0], arrivals[-1]))
    offered = prediction.byte_offer(
        direction, first - (least_ns + most_ns) // 2 + 1, last - (least_ns + most_ns) // 2 + 1
    )
    begin_ns = first - most_ns + 1
    most = prediction.byte_offer(direction, begin_ns, last - least_ns + 1) + prediction.burst(direction, begin_ns)
    least = prediction.byte_offer(direction, first - least_ns + 1, last - most_ns + 1)
    delivered = (len(arrivals) - 1) * DATAGRAM
    span_s = (last - first) / 1e9
    slack = max(RATE_TOLERANCE * offered, 3 * DATAGRAM)
    ok = delivered <= most + slack
    note = f"{len(arrivals)} datagrams in {span_s * 1e3:.0f} ms"
    highest = min(1.0, HIGHEST_PROBE_RATE * span_s / 8 / max(offered, 1))
    stalled = _stall_time(flow["sent_ns"]) / 1e9 / span_s
    idle = prediction.idles(direction, first - most_ns, last) or _not_filled(path[: place + 1])
    reached = True
    if idle is not None:
        note += f"; only the upper bound is proved: {idle}"
        reached = not ok or stalled <= RATE_TOLERANCE
    elif highest < 1.0:
        note = f"probed up to {HIGHEST_PROBE_RATE / 1e6:g} Mbit/s"
        ok = ok and delivered >= highest * least * (1 - 3 * RATE_TOLERANCE)
    else:
        short = least - slack - sum(_missing_share(step) for step in path[place:]) * offered - delivered
        reached = not ok or short <= 0 or short > stalled * offered
        ok = ok and (short <= 0 or not reached)
    if not reached:
        note += "; this machine was too busy to send as much"
    return Proof(what, 8e-6 * offered / span_s, 8e-6 * delivered / span_s, "Mbit/s", ok, note, reached)


def _stall_time(sent_ns: Sequence[int]) -> float:
    """Return the total excess of a sender's pauses over its usual spacing, for excesses above `STALL_NS`."""
    gaps = [after - before for before, after in pairwise(sent_ns)]
    usual = statistics.median(gaps) if gaps else 0
    return sum(gap - usual for gap in gaps if gap - usual > STALL_NS)


def _not_filled(path: list[Direction]) -> str | None:
    """Return why probes may not fill the bottleneck of the last direction; ``None`` if they do."""
    survival = 1.0
    for direction in path:
        chance = prediction.chance_of_loss(direction)
        if chance is None:
            return f"{direction.name} loses packets in bursts"
        limit = direction.parameters.flow_limit
        if limit is not None and limit.rate < HIGHEST_PROBE_RATE:
            return f"{direction.name} limits each flow to {limit.rate / 1e6:g} Mbit/s"
        survival *= 1 - chance
    return None if OVERLOAD * survival >= ENOUGH else "too many packets are lost before it"


def _missing_share(direction: Direction) -> float:
    """Return the share of a bottleneck's packets that may not count on arrival: lost, damaged, or duplicated."""
    parameters = direction.parameters
    return (prediction.chance_of_loss(direction) or 0.0) + 2 * parameters.corruption + parameters.duplication


def _windows(links: Sequence[Sequence[Direction]]) -> list[int]:
    """Choose positions in recordings at which to measure the directions of each path and back, far from outages.

    All flows of a batch begin at the same position. If there are few paths, each is measured where its scarcest
    direction offers the most. Many paths, which may begin at different positions of their recordings, share steady
    windows as far as possible. Among these, windows that offer little are preferred: a batch then holds more flows.
    """
    width_ns = WINDOW_NS + IDLE_PROBES * IDLE_SPACING_NS
    known: dict[Any, _Look] = {}  # read equal traces once

    def look(directions: Sequence[Direction], begin_ns: int) -> _Look:
        each = []
        for direction in directions:
            if isinstance(direction.capacity, TraceSource | RateSeries):
                key = id(direction.capacity), begin_ns + direction.playing.start_ns, direction.playing.looped
                known[key] = known.get(key) or _look(direction, begin_ns, width_ns)
                each.append(known[key])
        scarcest = min((one.scarcest for one in each), default=1.0)
        return _Look(scarcest, all(one.is_steady for one in each), sum(one.offered for one in each))

    few = len(links) <= FEW
    begins = range(0, PERIOD_NS, max(width_ns, PERIOD_NS // 200) if few else PERIOD_NS // 50)
    seen = {begin: [look(directions, begin) for directions in links] for begin in begins}
    scarcest = [max(begins, key=lambda begin: seen[begin][index].scarcest) for index in range(len(links))]
    if few:
        return scarcest
    found: dict[int, int] = {}
    while len(found) < len(links):
        steady = {
            begin: {index: one.offered for index, one in enumerate(looks) if one.is_steady and index not in found}
            for begin, looks in seen.items()
        }
        begin = max(begins, key=lambda begin: (len(steady[begin]), -sum(steady[begin].values())))
        found |= dict.fromkeys(steady[begin], begin) or {**dict(enumerate(scarcest)), **found}
    return [found[index] for index in range(len(links))]


@dataclass(frozen=True, slots=True)
class _Look:
    """The capacity of directions in a window. scarcest: minimum offer of any quarter, relative to the direction's mean;
    0 in a gap. is_steady: whether in each direction, no quarter offers much less than the others. offered: total
    bytes."""

    scarcest: float
    is_steady: bool
    offered: int


def _look(direction: Direction, begin_ns: int, width_ns: int) -> _Look:
    if begin_ns + width_ns > _end(direction):
        return _Look(0.0, is_steady=False, offered=0)
    # Check each quarter: a gap in one would leave probes without an opportunity.
    quarters = [
        prediction.byte_offer(direction, begin_ns + part * width_ns // 4, begin_ns + (part + 1) * width_ns // 4)
        for part in range(4)
    ]
    total, least = sum(quarters), min(quarters)
    mean = (mean_rate(direction.capacity) or 0.0) * width_ns / 8e9
    return _Look(4 * least / mean if mean else 0.0, 4 * least >= STEADY * total and least >= LEAST_OFFER, total)


def _end(direction: Direction) -> float:
    """Return the position at which a trace that is played once ends; infinite for other capacities."""
    if isinstance(direction.capacity, TraceSource) and not direction.playing.looped:
        return direction.capacity.trace.duration_ns - direction.playing.start_ns
    return float("inf")
