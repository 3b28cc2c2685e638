"""Settings put to the stages of a direction: which of them become another, and what."""

from __future__ import annotations

from collections.abc import Sequence

from cellbed.scenario.conditional import Conditional
from cellbed.scenario.load_dependent import Replay
from cellbed.scenario.radio import Radio
from cellbed.scenario.settings import Settings
from cellbed.support.errors import CellbedError
from cellbed.testbed.links.stages import (
    CONDITIONAL,
    RADIO,
    REPLAY,
    Playing,
    Slot,
    Stage,
    chance_stage,
    delay_stage,
    derived_seed,
    loss_stage,
    queue_config,
    schedule,
    slot_of,
)


class NoStageError(CellbedError):
    """A setting that concerns a stage which the direction does not have."""


class RateChangeError(CellbedError):
    """A recording of two workloads, or a radio link, that would begin or end while the link runs."""


def changed(stages: Sequence[Stage], settings: Settings, name: str) -> list[tuple[int, Stage]]:
    """Return number and new content of each stage that the settings concern.

    name: of the direction; it goes into errors and into the seeds of what draws for the first time.

    Errors: :class:`NoStageError`, :class:`RateChangeError`.
    """
    found = []

    def place(slot: Slot, key: str) -> tuple[int, Stage, int]:
        for index, stage in enumerate(stages):
            if slot_of(stage) == slot:
                return index, stage, int(stage.get("seed", derived_seed(0, f"{name}.{slot}")))
        remedy = f"set {key} at the start, or schedule a change of it"
        raise NoStageError(f"{name} has no {slot} stage, so {key} cannot be set: {remedy}")

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
    """Return the bottleneck with another schedule or queue; the rest stays."""
    now = dict(stage)
    capacity = settings.rate
    if capacity is not None:
        if stage["kind"] == REPLAY or isinstance(capacity, Replay):
            raise RateChangeError(_NEVER.format(name, "cellreplay recording"))
        if stage["kind"] == CONDITIONAL or isinstance(capacity, Conditional):
            raise RateChangeError(_NEVER.format(name, "recording"))
        if stage["kind"] == RADIO or isinstance(capacity, Radio):
            raise RateChangeError(_NEVER.format(name, "radio link"))
        played = stage["schedule"]
        now["schedule"] = schedule(capacity, Playing(played.get("offset_ns") or 0, played.get("looped", True)))
    if settings.queue is not None:
        seed = int((stage.get("queue") or {}).get("seed", derived_seed(0, f"{name}.queue")))
        now["queue"] = queue_config(settings.queue, seed)
    return now


_NEVER = "{}: a running link changes neither into nor from a {}: start another one"
