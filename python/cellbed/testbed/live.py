"""Links of live runs and shells: which there are, what they do, and changes to them by hand."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.errors import CellbedError
from cellbed.scenario.settings import Settings
from cellbed.testbed.control import Control, ControlError
from cellbed.testbed.stages import (
    Playing,
    Slot,
    Stage,
    chance_stage,
    delay_stage,
    derived_seed,
    loss_stage,
    mean_rate,
    queue_config,
    schedule,
    slot_of,
)
from cellbed.testbed.state import Record, records
from cellbed.testbed.words import difference

CHANGES = "changes.jsonl"
"""In the raw folder of a run: what was changed by hand."""
_TOLD = 3
"""Changes that a warning tells one by one."""


class LiveError(CellbedError):
    """A run or link that is not there, or that cannot do what is asked."""


@dataclass(frozen=True, slots=True)
class Changed:
    """One change that is in force. before, after: in words."""

    direction: str
    before: str
    after: str


def live() -> list[Record]:
    """Live runs and shells of this user whose links can be seen and changed, oldest first."""
    return [record for record in records() if record.control is not None and not record.is_stale()]


def find(name: str | None) -> Record:
    """The live run or shell called `name`: its identifier, its folder or the folder's name; the only one for ``None``.

    The beginning of a name will do where it is one's alone. Errors: :class:`LiveError`.
    """
    there = live()
    if not there:
        raise LiveError("nothing is running: start a run with `cellbed run`, or a shell with `cellbed shell`")
    listed = ", ".join(map(label, there))
    if name is None:
        if len(there) > 1:
            raise LiveError(f"several are running: name one of {listed}")
        return there[0]
    exact = [record for record in there if name in _names(record)]
    begun = [record for record in there if any(one.startswith(name) for one in _names(record))] if name else []
    found = exact or begun
    if len(found) > 1:
        raise LiveError(f"'{name}' may be {' or '.join(map(label, found))}: write more of it")
    if not found:
        near = difflib.get_close_matches(name, [one for record in there for one in _names(record)], n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise LiveError(f"nothing that is called '{name}' is running: {hint}there is {listed}")
    return found[0]


def find_link(names: Sequence[str]) -> tuple[Record, str | None]:
    """The live run or shell, and the link in it, that up to two names mean: the run first, either may be left out.

    Errors: :class:`LiveError`.
    """
    if len(names) > 2:
        raise LiveError(f"'{names[2]}' is one name too many: give a run, a link, and settings as KEY=VALUE")
    if len(names) == 2:
        return find(names[0]), names[1]
    if not names:
        return find(None), None
    if any(names[0] in _names(record) for record in live()):
        return find(names[0]), None
    return find(None), names[0]


def label(record: Record) -> str:
    """How a run or shell is called in messages: shortest of its names."""
    return Path(record.folder).name if record.folder else record.identifier


def connect(record: Record) -> Control:
    """The emulator of a live run or shell. Errors: :class:`cellbed.testbed.control.ControlError`."""
    assert record.control is not None
    return Control(Path(record.control))


def chosen(directions: Sequence[dict[str, Any]], link: str | None) -> list[dict[str, Any]]:
    """The directions that `link` names: one by its whole name, both of a link by the link's, all for ``None``.

    directions: as the emulator describes them. Errors: :class:`LiveError`.
    """
    if link is None:
        if len(directions) > 2:
            raise LiveError(f"there are several links: name one of {', '.join(_link_names(directions))}")
        return list(directions)
    found = [each for each in directions if link == each["name"] or each["name"].startswith(f"{link}.")]
    if not found:
        names = [each["name"] for each in directions]
        near = difflib.get_close_matches(link, [*names, *_link_names(directions)], n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise LiveError(f"no link is called '{link}': {hint}there are {', '.join(names)}")
    return found


def change(record: Record, link: str | None, settings: Settings) -> list[Changed]:
    """Let the directions that `link` names do something else from now on; returns what is another now.

    What is changed is noted in the run's folder. Errors: :class:`LiveError` before anything is changed;
    :class:`cellbed.testbed.control.ControlError` where the emulator refuses it, with what was changed until then.
    """
    with connect(record) as control:
        wanted = [
            (direction["name"], index, direction["stages"][index], to)
            for direction in chosen(control.describe(), link)
            for index, to in _wanted(direction, settings)
        ]
        done: list[Changed] = []
        for name, index, before, after in wanted:
            if before == after:
                continue
            try:
                control.change(name, index, after)
            except ControlError as error:
                until = "; ".join(f"{each.direction} is {each.after} already" for each in done)
                raise ControlError(f"{name}: {error}" + (f"; {until}" if until else "")) from error
            done.append(Changed(name, *difference(before, after)))
            _note(record, done[-1], after)
    return done


def manual_changes(folder: Path) -> list[dict[str, Any]]:
    """What was changed by hand in a run, in order of time: ``time_ns`` (monotonic), ``direction``, ``from``, ``to``.

    folder: the run's.
    """
    try:
        lines = (folder / "raw" / CHANGES).read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # The last line may be cut short where the machine went down.
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [entry for entry in found if isinstance(entry, dict)]


def manual_warning(folder: Path, t0_ns: int | None) -> str | None:
    """What a report has to say of changes by hand; ``None`` where there were none. t0_ns: start of the schedule."""
    found = manual_changes(folder)
    if not found:
        return None
    told = []
    for entry in found[:_TOLD]:
        when = f"at {(entry['time_ns'] - t0_ns) / 1e9:.1f} s " if t0_ns is not None else ""
        told.append(f"{when}{entry['direction']} from {entry['from']} to {entry['to']}")
    more = f"; and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return f"links were changed by hand while it ran: {'; '.join(told)}{more}"


def _names(record: Record) -> list[str]:
    if record.folder is None:
        return [record.identifier]
    folder = Path(record.folder)
    written = [record.folder, folder.name, f"{folder.name}/"]
    with contextlib.suppress(ValueError):
        relative = str(folder.relative_to(Path.cwd()))
        written += [relative, f"{relative}/"]
    return [record.identifier, *written]


def _link_names(directions: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(each["name"]).rpartition(".")[0] or str(each["name"]) for each in directions))


def _wanted(direction: dict[str, Any], settings: Settings) -> list[tuple[int, Stage]]:
    """Number and new content of each stage of a direction that the settings concern."""
    stages: list[Stage] = direction["stages"]
    name = str(direction["name"])
    found = []

    def place(slot: Slot, key: str) -> tuple[int, Stage, int]:
        for index, stage in enumerate(stages):
            if slot_of(stage) == slot:
                return index, stage, int(stage.get("seed", derived_seed(0, f"{name}.{slot}")))
        remedy = f"ask for {key} in the scenario, or for a change to it, to have one"
        raise LiveError(f"{name} has no {slot} stage, so {key} cannot be set: {remedy}")

    if settings.loss is not None:
        index, _, seed = place("loss", "loss")
        found.append((index, loss_stage(settings.loss, Playing(), seed)))
    for slot, chance in (("duplication", settings.duplication), ("corruption", settings.corruption)):
        if chance is not None:
            index, _, seed = place(slot, slot)  # type: ignore[arg-type]
            found.append((index, chance_stage(slot, chance, seed)))  # type: ignore[arg-type]
    if settings.rate is not None or settings.queue is not None:
        index, stage, _ = place("bottleneck", "rate" if settings.rate is not None else "queue")
        found.append((index, _bottleneck(stage, settings, name)))
    if settings.delay is not None:
        index, _, seed = place("delay", "delay")
        found.append((index, delay_stage(settings.delay, Playing(), seed)))
    return found


def _bottleneck(stage: Stage, settings: Settings, name: str) -> Stage:
    """The bottleneck with another schedule or queue; what is not said stays."""
    now = dict(stage)
    if stage["kind"] == "radio" and settings.rate is not None:
        raise LiveError(f"{name} is a radio link, whose rate follows from its profile: only its queue can be set")
    if settings.rate is not None:
        played = stage["schedule"]
        now["schedule"] = schedule(settings.rate, Playing(played.get("offset_ns") or 0, played.get("looped", True)))
    if settings.queue is not None:
        seed = int(stage.get("queue", {}).get("seed", derived_seed(0, f"{name}.queue")))
        capacity = settings.rate
        rate = (lambda: mean_rate(capacity)) if capacity is not None else (lambda: _rate_of(stage.get("schedule")))
        now["queue"] = queue_config(settings.queue, seed, rate)
    return now


def _rate_of(played: dict[str, Any] | None) -> float | None:
    """Mean rate of a schedule in the emulator's terms, bit/s; ``None`` where there is none or no limit."""
    if played is None:
        return None
    match played["kind"]:
        case "trace":
            from cellbed._core import parse_trace

            return parse_trace(played["path"]).mean_bit_rate
        case "series":
            return float(sum(rate for _, rate in played["steps"]) / len(played["steps"]))
        case "unlimited":
            return None
    return float(played["bit_rate"])


def _note(record: Record, changed: Changed, stage: Stage) -> None:
    if record.folder is None:
        return
    entry = {
        "time_ns": time.monotonic_ns(),
        "direction": changed.direction,
        "from": changed.before,
        "to": changed.after,
        "stage": stage,
    }
    path = Path(record.folder) / "raw" / CHANGES
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, json.dumps(entry).encode() + b"\n")
        finally:
            os.close(file)
    except OSError as error:
        raise LiveError(
            f"{changed.direction} is {changed.after} now, but the run's report will not know: {path}: {error.strerror}"
        ) from error
