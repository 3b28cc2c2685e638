"""Descriptions of stages for people, from the emulator's terms, so that live links are described like planned ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cellbed.support.readable import duration_unit, duration_words, significant
from cellbed.support.units import BIT_RATE, DURATION, SIZE

_MAHIMAHI = {"mahimahi-codel": "CoDel (Mahimahi's)", "mahimahi-pie": "PIE (Mahimahi's)"}
"""Disciplines that only Mahimahi's commands have."""

_LISTED = 3
"""Outages that are listed one by one."""

Stage = Mapping[str, Any]


def describe(stages: Iterable[Stage], names: Mapping[str, str] | None = None) -> str:
    """Return a direction in one line. names: of traces by the path of their file, where it is not the file's own name.

    Capacity and queue come first, then the delay, then random effects. Stages without effect are left
    out.
    """
    ordered = sorted(stages, key=lambda stage: _ORDER.get(stage["kind"], 2))
    found = [text for stage in ordered if (text := describe_stage(stage, names, silent=True))]
    return ", ".join(found) or "unlimited"


def difference(before: Stage, after: Stage, names: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Describe a stage before and after a change: of a bottleneck and a gate only the part that differs."""
    if before["kind"] == after["kind"] == "gate" and before.get("outages_ns") == after.get("outages_ns"):
        return _state(before), _state(after)
    if before["kind"] != "bottleneck" or after["kind"] != "bottleneck":
        return describe_stage(before, names), describe_stage(after, names)
    schedules = before["schedule"], after["schedule"]
    queues = before["queue"], after["queue"]
    if queues[0] == queues[1]:
        return describe_schedule(schedules[0], names), describe_schedule(schedules[1], names)
    if schedules[0] == schedules[1]:
        return describe_queue(queues[0]), describe_queue(queues[1])
    return describe_stage(before, names), describe_stage(after, names)


_ORDER = {"bottleneck": 0, "workload-dependent": 0, "conditional": 0, "radio": 0, "delay": 1, "jitter": 1}


def describe_stage(stage: Stage, names: Mapping[str, str] | None = None, *, silent: bool = False) -> str:
    """One stage in words. silent: nothing about one that does nothing."""
    kind = stage["kind"]
    match kind:
        case "bottleneck":
            if silent and stage["schedule"]["kind"] == "unlimited":
                return ""
            return f"{describe_schedule(stage['schedule'], names)}, {describe_queue(stage['queue'])}"
        case "workload-dependent":
            return f"{_describe_replay(stage, names)}, {describe_queue(stage['queue'])}"
        case "conditional":
            model = stage["model"]
            name = (names or {}).get(model) or _recorded(model) or f"conditional {Path(model).name}"
            replay = f"{name}{_offset(stage)}, {'looped' if stage['looped'] else 'once'}"
            return f"{replay}, {describe_queue(stage['queue'])}"
        case "radio":
            queue = f", {describe_queue(stage['queue'])}" if stage.get("queue") else ""
            return f"radio {stage['profile']} (synthetic){_offset(stage)}{queue}"
        case "flow-limit":
            return f"at most {BIT_RATE.format(stage['bit_rate'])} of each flow"
        case "gate":
            return _describe_gate(stage, silent=silent)
        case "delay":
            return "" if silent and stage.get("fixed_ns") == 0 else _describe_delay(stage)
        case "jitter":
            return _describe_jitter(stage)
        case "loss" | "duplication" | "corruption":
            return "" if silent and not stage["probability"] else f"{kind} {stage['probability']:g}"
        case "gilbert-elliott":
            steps = f"to bad {stage['to_bad']:g}, to good {stage['to_good']:g}"
            return f"loss in bursts ({steps}, lost {stage['loss_good']:g} and {stage['loss_bad']:g})"
        case "loss-series":
            chances = [chance for _, chance in stage["steps"]]
            return f"loss {min(chances):g} to {max(chances):g} in {len(chances)} steps"
        case "on-off":
            drawn = " on average" if stage.get("exponential") else ""
            on, off = DURATION.format(stage["on_ns"]), DURATION.format(stage["off_ns"])
            return f"passes {on} and loses {off} in turn{drawn}"
    return str(kind)


def _describe_gate(stage: Stage, *, silent: bool) -> str:
    outages = [
        f"at {DURATION.format(begin)} for {DURATION.format(length)}" for begin, length in stage.get("outages_ns", ())
    ]
    more = f" and {len(outages) - _LISTED} more" if len(outages) > _LISTED else ""
    listed = f"outage{'s' * (len(outages) > 1)} {', '.join(outages[:_LISTED])}{more}" if outages else ""
    state = "" if silent and not stage.get("down") else _state(stage)
    return ", ".join(filter(None, [state, listed]))


def _state(stage: Stage) -> str:
    return "down" if stage.get("down") else "up"


def describe_schedule(schedule: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Return a bottleneck's schedule in words."""
    match schedule["kind"]:
        case "trace":
            path = schedule["path"]
            name = (names or {}).get(path) or Path(path).name
            return f"{name}{_offset(schedule)}, {'looped' if schedule.get('looped') else 'once'}"
        case "constant":
            return BIT_RATE.format(schedule["bit_rate"]) if schedule["bit_rate"] else "0 bit/s"
        case "series":
            rates = [rate for _, rate in schedule["steps"]]
            period = schedule.get("period_ns")
            again = f", again after {DURATION.format(period)}" if period else ""
            span = " to ".join(BIT_RATE.format(rate) for rate in (min(rates), max(rates)))
            return f"{span} in {len(rates)} steps{_offset(schedule)}{again}"
        case "token-bucket":
            burst = SIZE.format(schedule["burst_bytes"])
            return f"{BIT_RATE.format(schedule['bit_rate'])} with bursts of {burst}"
    return str(schedule["kind"])


def describe_queue(queue: Mapping[str, Any]) -> str:
    """Return a queue in words."""
    from cellbed.scenario.queues import TITLES  # slow: by Pydantic

    kind = queue["kind"]
    name = ("adaptive " if queue.get("adaptive") else "") + str(TITLES.get(kind) or _MAHIMAHI.get(kind) or kind)
    limits = [SIZE.format(queue["bytes"])] if queue.get("bytes") is not None else []
    limits += [f"{queue['packets']} packets"] if queue.get("packets") is not None else []
    details = [f"of {' and '.join(limits)}"] if limits else []
    if "minimum_bytes" in queue:
        details.append(f"from {SIZE.format(queue['minimum_bytes'])} to {SIZE.format(queue['maximum_bytes'])}")
    elif queue.get("target_ns") is not None:
        details.append(f"at {DURATION.format(queue['target_ns'])}")
    if queue.get("ecn"):
        details.append("with ECN")
    return " ".join([name, "queue", *details])


def _offset(schedule: Mapping[str, Any]) -> str:
    return f" from {DURATION.format(schedule['offset_ns'])}" if schedule.get("offset_ns") else ""


def _describe_replay(stage: Stage, names: Mapping[str, str] | None) -> str:
    recorded = _recorded(stage["heavy"])
    if recorded is not None:
        names = {stage["heavy"]: recorded} | dict(names or {})
    heavy = describe_schedule({"kind": "trace", "path": stage["heavy"], **_played(stage)}, names)
    both = heavy if recorded is not None else f"light {Path(stage['light']).name} and heavy {heavy}"
    text = f"{both}, idle after {duration_words((stage.get('idle_ns') or 0) / 1e9)}"
    return text + (" at the link" if stage.get("idle_at") == "link" else "")


_DERIVED = re.compile(r"(.+)\.(uplink|downlink)\.(cellreplay|saturation|conditional)-(?:heavy|model)")


def _recorded(path: str) -> str | None:
    """Return the source of a file derived of a recording (:mod:`cellbed.recordings.derived`); else ``None``."""
    found = _DERIVED.fullmatch(Path(path).name)
    return None if found is None else f"{found[1]} {found[2]} by {found[3]}"


def _played(stage: Stage) -> dict[str, Any]:
    return {key: stage.get(key) for key in ("offset_ns", "looped")}


def _describe_delay(stage: Stage) -> str:
    points = stage.get("series")
    if not points:
        return f"{DURATION.format(stage['fixed_ns'])} one way"
    delays = [delay for _, delay in points]
    return f"{_span(delays)} one way, changing over time ({len(points):,} points)"


def _describe_jitter(stage: Stage) -> str:
    drawn = stage["distribution"]
    if drawn["kind"] == "empirical":
        text = f"{_span(drawn['delays_ns'])} one way, drawn from {len(drawn['delays_ns'])} observed"
    else:
        width = drawn["spread_ns"] if drawn["kind"] == "uniform" else drawn["deviation_ns"]
        text = f"{DURATION.format(drawn['mean_ns'])} ± {DURATION.format(width)} one way, {drawn['kind']}"
    if stage.get("correlation"):
        text += f", correlation {stage['correlation']:g}"
    return text + (", reordering" if stage.get("reorder") else "")


def _span(delays: list[int]) -> str:
    """Return the least and the most, in one unit."""
    least, most = min(delays) / 1e9, max(delays) / 1e9
    unit = duration_unit(most)
    return f"{significant(least * unit.factor)} to {significant(most * unit.factor)} {unit.name}"
