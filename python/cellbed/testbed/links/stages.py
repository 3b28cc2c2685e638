"""The stages of one direction of a link, in the emulator's format and in the order of a packet's path.

Packets are first lost, then duplicated and corrupted, so that copies need capacity and are corrupted independently.
Then follow a rate limit per flow, the bottleneck (which a gate closes during outages), and the delay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from cellbed.archive import TraceSource
from cellbed.scenario.capacities import FlowLimit, LinkCapacity, PlainCapacity, RateSeries
from cellbed.scenario.fields import ConstantRate, Unlimited
from cellbed.scenario.impairments import Delay, Loss
from cellbed.scenario.load_dependent import Conditional, Radio, Recorded
from cellbed.scenario.queues import Queue
from cellbed.scenario.series import Points
from cellbed.scenario.settings import Settings
from cellbed.scenario.stage_tables import StageTable
from cellbed.support.errors import CellbedError
from cellbed.support.stages import find_kind, place_of

Stage = dict[str, Any]
"""A stage in the emulator's configuration, such as ``{"kind": "delay", "fixed_ns": 20_000_000}``."""

Slot = Literal["loss", "duplication", "corruption", "flow-limit", "gate", "bottleneck", "delay"]
SLOTS: tuple[Slot, ...] = get_args(Slot)
"""Slots of a direction's stages, in order. A stage may be replaced by any other stage for the same slot."""

MTU = 1500
"""Size of a trace's delivery opportunity, bytes."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of one direction, as in the scenario. queue: ``None`` for an infinite queue, or for the
    default of a radio link's profile. outages: pairs of begin and length, ns. flushes: begins of handovers that
    drop the packets in the queue; with in_flight, also the packets behind the queue."""

    capacity: LinkCapacity | Radio | Conditional = field(default_factory=Unlimited)
    queue: Queue | None = None
    delay: Delay = 0
    loss: Loss = 0.0
    duplication: float = 0.0
    corruption: float = 0.0
    outages: Points = ()
    flushes: tuple[int, ...] = ()
    in_flight: bool = False
    flow_limit: FlowLimit | None = None


@dataclass(frozen=True, slots=True)
class Playing:
    """The playback of recordings. start_ns: initial position in the recordings; looped: whether traces restart."""

    start_ns: int = 0
    looped: bool = True


def stages(
    parameters: Parameters, playing: Playing, seed: Callable[[Slot | Literal["queue", "radio", "replay"]], int]
) -> dict[Slot, Stage]:
    """Return the stages of a direction by slot. seed: returns the random seed of a slot.

    Loss, gate, bottleneck and delay always exist, even without effect, so that each can be changed. Duplication,
    corruption and limits per flow exist only if the scenario has them.
    """
    found: dict[Slot, Stage] = {
        "loss": loss_stage(parameters.loss, playing, seed("loss")),
        "gate": {"kind": "gate", "outages_ns": [list(outage) for outage in parameters.outages]}
        | ({"flushes_ns": list(parameters.flushes)} if parameters.flushes else {})
        | ({"in_flight": True} if parameters.in_flight else {}),
        "bottleneck": bottleneck_stage(parameters, playing, seed),
        "delay": delay_stage(parameters.delay, playing, seed("delay")),
    }
    if parameters.flow_limit is not None:
        found["flow-limit"] = {"kind": "flow-limit", **parameters.flow_limit.stage()}
    if parameters.duplication > 0:
        found["duplication"] = chance_stage("duplication", parameters.duplication, seed("duplication"))
    if parameters.corruption > 0:
        found["corruption"] = chance_stage("corruption", parameters.corruption, seed("corruption"))
    return {slot: found[slot] for slot in SLOTS if slot in found}


def bottleneck_stage(
    parameters: Parameters, playing: Playing, seed: Callable[[Literal["queue", "radio", "replay"]], int]
) -> Stage:
    """Return the stage where packets queue: a schedule, a recording that depends on the load, or the slots of a
    radio link. seed: as in :func:`stages`."""
    queue = queue_config(parameters.queue, seed("queue"))
    match parameters.capacity:
        case Recorded() as recording:
            return recording.stage(playing.start_ns, playing.looped, seed("replay")) | {"queue": queue}
        case Radio() as radio:
            stage = radio.stage(playing.start_ns, seed=seed("radio"))
            return stage if parameters.queue is None else stage | {"queue": queue}
        case capacity:
            return {"kind": "bottleneck", "schedule": schedule(capacity, playing), "queue": queue}


def chance_stage(kind: Literal["loss", "duplication", "corruption"], probability: float, seed: int) -> Stage:
    """Return a stage that affects each packet with the same probability."""
    return {"kind": kind, "probability": probability, "seed": seed}


def loss_stage(loss: Loss, playing: Playing, seed: int) -> Stage:
    """Return a stage that loses packets."""
    if isinstance(loss, StageTable):
        return loss.stage(playing.start_ns, playing.looped, seed)
    return chance_stage("loss", loss, seed)


def delay_stage(delay: Delay, playing: Playing, seed: int) -> Stage:
    """Return a stage that delays packets."""
    if isinstance(delay, StageTable):
        return delay.stage(playing.start_ns, playing.looped, seed)
    return {"kind": "delay", "fixed_ns": delay}


def schedule(capacity: PlainCapacity, playing: Playing) -> dict[str, Any]:
    """Return the schedule of a bottleneck."""
    match capacity:
        case TraceSource():
            how = {"looped": playing.looped, "offset_ns": playing.start_ns}
            return {"kind": "trace", "path": str(capacity.path), **how}
        case ConstantRate(bit_rate=bit_rate):
            return {"kind": "constant", "bit_rate": bit_rate}
        case Unlimited():
            return {"kind": "unlimited"}
        case table:
            return table.stage(playing.start_ns, playing.looped)


def mean_rate(capacity: LinkCapacity | Radio | Conditional) -> float | None:
    """Return the mean rate in bit/s; ``None`` without a limit, or for random rates."""
    match capacity:
        case TraceSource():
            return capacity.trace.mean_bit_rate
        case Recorded():
            return capacity.heavy.trace.mean_bit_rate * capacity.opportunity / MTU
        case RateSeries():
            end = capacity.period or capacity.pairs[-1][0]
            return capacity.area(end) / end if end else float(capacity.pairs[-1][1])
        case StageTable(kind="token-bucket"):
            return float(capacity.rate)
        case ConstantRate(bit_rate=bit_rate):
            return float(bit_rate)
        case _:
            return None


def queue_config(queue: Queue | None, seed: int) -> dict[str, Any]:
    """Return a queue in the emulator's configuration; ``None`` is an infinite queue."""
    if queue is None:
        return {"kind": "infinite"}
    return queue.stage(seed=seed)


def derived_seed(seed: int, purpose: str) -> int:
    """Return a separate seed for each random stage, so that adding one does not change the others."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


class RateChangeError(CellbedError):
    """A recording of two workloads, or a radio link, cannot begin or end while the link runs."""


def changed(before: Sequence[Stage], settings: Settings, name: str) -> list[tuple[int, Stage]]:
    """Return number and new content of each stage of a direction that the settings change.

    before: the direction's stages. name: name of the direction, for errors and for the seeds of new stages.

    Errors: :class:`CellbedError` for a stage that the direction does not have; :class:`RateChangeError`.
    """
    found = []

    def place(slot: Slot, key: str) -> tuple[int, Stage, int]:
        for index, stage in enumerate(before):
            if place_of(stage) == slot:
                return index, stage, int(stage.get("seed", derived_seed(0, f"{name}.{slot}")))
        remedy = f"set {key} at the start, or schedule a change of it" if before else "nothing of a live link is shaped"
        raise CellbedError(f"{name} has no {slot} stage, so {key} cannot be set: {remedy}")

    if settings.loss is not None:
        index, _, seed = place("loss", "loss")
        found.append((index, loss_stage(settings.loss, Playing(), seed)))
    for slot, chance in (("duplication", settings.duplication), ("corruption", settings.corruption)):
        if chance is not None:
            index, _, seed = place(slot, slot)  # type: ignore[arg-type]
            found.append((index, chance_stage(slot, chance, seed)))  # type: ignore[arg-type]
    if settings.down is not None:
        index, stage, _ = place("gate", "down" if settings.down else "up")
        found.append((index, dict(stage) | {"down": settings.down}))
    if settings.rate is not None or settings.queue is not None:
        index, stage, _ = place("bottleneck", "rate" if settings.rate is not None else "queue")
        found.append((index, _bottleneck(stage, settings, name)))
    if settings.delay is not None:
        index, _, seed = place("delay", "delay")
        found.append((index, delay_stage(settings.delay, Playing(), seed)))
    return found


def _bottleneck(stage: Stage, settings: Settings, name: str) -> Stage:
    """Return the bottleneck with a new schedule or queue, otherwise unchanged."""
    now = dict(stage)
    capacity = settings.rate
    if capacity is not None:
        for kind in (find_kind(stage), getattr(capacity, "KIND", None)):
            if kind is not None and kind.is_whole:
                text = f"a running link changes neither into nor from a {kind.schema['title']}: start another one"
                raise RateChangeError(f"{name}: {text}")
        played = stage["schedule"]
        now["schedule"] = schedule(capacity, Playing(played.get("offset_ns") or 0, played.get("looped", True)))
    if settings.queue is not None:
        seed = int((stage.get("queue") or {}).get("seed", derived_seed(0, f"{name}.queue")))
        now["queue"] = queue_config(settings.queue, seed)
    return now
