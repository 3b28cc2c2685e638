"""Stages of a link as in the path model: their kinds, from the path model's schema, and their descriptions.

The schema (`crates/link/src/schema`) contains the keys of each kind and the text that describes a stage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cellbed.support.readable import duration_unit, duration_words, significant
from cellbed.support.units import BIT_RATE, DURATION, SIZE

Stage = Mapping[str, Any]
Schema = Mapping[str, Any]

QUANTITIES = {"duration": DURATION, "size": SIZE, "bit rate": BIT_RATE}
"""Quantities by the format of a key in the schema."""

_FIRST = ("bottleneck", "delay")
"""Places at the begin of a description."""
_LISTED = 3
"""Maximum number of outages that are listed individually."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of stage, schedule, queue or distribution.

    place: place of the stage in a direction. name: `kind` of the stage. keys: schemas by key. schema: schema of the
    kind, see `crates/link/src/schema`. inner: schemas of the kinds inside a key of the stage.
    """

    place: str
    name: str
    keys: Mapping[str, Schema]
    schema: Schema
    inner: Mapping[str, tuple[Kind, ...]]

    @property
    def title(self) -> str:
        """Return one sentence of documentation."""
        return documentation(self.schema)


@cache
def kinds() -> dict[str, tuple[Kind, ...]]:
    """Return all kinds by place, in the order in which packets pass them; `schedule` and `queue` are parts."""
    from cellbed import _core

    return {place: tuple(_read_kinds(place, schema, schema)) for place, schema in json.loads(_core.stage_schema())}


def _read_kinds(place: str, schema: Schema, root: Schema) -> Iterator[Kind]:
    for each in schema.get("oneOf", [schema]):
        full = {**_resolve(each, root), **{key: value for key, value in each.items() if key != "properties"}}
        keys = {**_resolve(each, root).get("properties", {}), **each.get("properties", {})}
        name = keys.pop("kind", {}).get("const", place)
        inner = {
            key: tuple(_read_kinds(place, _resolve(value, root), root))
            for key, value in keys.items()
            if "$ref" in value
        }
        required = full.get("required", [])
        order = sorted(keys, key=lambda key: required.index(key) if key in required else len(required))
        yield Kind(place, name, {key: keys[key] for key in order}, full, inner)


def _resolve(schema: Schema, root: Schema) -> Schema:
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    return root["$defs"][reference] if reference else schema


def documentation(schema: Schema) -> str:
    """Return the first paragraph of a schema's documentation in one line."""
    return " ".join(str(schema.get("description", "")).partition("\n\n")[0].split())


def find_kind(stage: Stage, place: str | None = None) -> Kind | None:
    """Return the kind of a stage; if several kinds have the same name, the kind with the stage's keys."""
    known = [each for found, all_ in kinds().items() if place in (found, None) for each in all_]
    named = [each for each in known if each.name == stage["kind"]]
    return max(named, key=lambda each: len(each.keys.keys() & stage.keys()), default=None)


def place_of(stage: Stage) -> str:
    """Return the place of a stage in its direction."""
    kind = find_kind(stage)
    return str(stage["kind"]) if kind is None else kind.place


def describe(stages: Iterable[Stage], names: Mapping[str, str] | None = None) -> str:
    """Return a direction in one line. names: names of traces by file path, if they differ from the file name.

    Capacity and queue come first, then the delay, then random effects. Stages without effect are left out.
    """
    ordered = sorted(stages, key=lambda stage: [*_FIRST, place := place_of(stage)].index(place))
    found = [text for stage in ordered if (text := describe_stage(stage, names, silent=True))]
    return ", ".join(found) or "unlimited"


def difference(before: Stage, after: Stage, names: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Describe a stage before and after a change; for a bottleneck and a gate only the changed part."""
    if before["kind"] == after["kind"] == "gate" and before.get("outages_ns") == after.get("outages_ns"):
        return _state(before), _state(after)
    if before["kind"] == after["kind"] == "bottleneck":
        if before["queue"] == after["queue"]:
            before, after = before["schedule"], after["schedule"]
            return _describe("schedule", before, names), _describe("schedule", after, names)
        if before["schedule"] == after["schedule"]:
            return describe_queue(before["queue"]), describe_queue(after["queue"])
    return describe_stage(before, names), describe_stage(after, names)


def describe_stage(stage: Stage, names: Mapping[str, str] | None = None, *, silent: bool = False) -> str:
    """Return one stage in words. silent: whether a stage without effect gives an empty text."""
    match stage["kind"]:
        case "bottleneck" if silent and stage["schedule"]["kind"] == "unlimited":
            return ""
        case "workload-dependent":
            return f"{_describe_replay(stage, names)}, {describe_queue(stage['queue'])}"
        case "conditional":
            model = stage["model"]
            name = (names or {}).get(model) or _source_of_file(model) or f"conditional {Path(model).name}"
            played = _describe("schedule", {**stage, "kind": "trace", "path": model}, {model: name})
            return f"{played}, {describe_queue(stage['queue'])}"
        case "gate":
            return _describe_gate(stage, silent=silent)
    return _describe(None, stage, names, silent=silent)


def _describe(place: str | None, table: Stage, names: Mapping[str, str] | None, *, silent: bool = False) -> str:
    """Return the text of a kind with its values."""
    kind = find_kind(table, place)
    if kind is None or (silent and not table.get(kind.schema.get("idle", "kind"))):
        return "" if kind else str(table["kind"])
    return str(kind.schema["text"]).format_map(_Values(kind, table, names or {}))


class _Values(dict[str, "_Value"]):
    """Values of a stage's keys, as text."""

    def __init__(self, kind: Kind, table: Stage, names: Mapping[str, str]) -> None:
        super().__init__()
        self._kind = kind
        self._table = table
        self._names = names

    def __missing__(self, key: str) -> _Value:
        value = self._table.get(key)
        form = self._kind.keys.get(key, {}).get("format", "duration" if key.endswith("_ns") else "")
        if key == "queue":
            return _Value(describe_queue(value) if value else "", value)
        if value is not None and (key in self._kind.inner or key == "schedule"):
            return _Value(_describe_inner(self._kind, key, value, self._names), value)
        if key == "path":
            return _Value(self._names.get(str(value)) or Path(str(value)).name, value)
        return _Value(_show(form, value), value, form)


@dataclass(frozen=True, slots=True)
class _Value:
    """A value in a text. ``{key}`` is the value. ``{key:TEXT}`` is TEXT with the value in place of ``%``, if the value
    is given and not zero. ``{key:TEXT|OTHER}`` is OTHER if it is not."""

    text: str
    value: Any
    form: str = ""

    def __format__(self, text: str) -> str:
        given, _, missing = text.partition("|")
        return self.text if not text else given.replace("%", self.text) if self.value else missing

    @property
    def _all(self) -> list[Any]:
        return [each[1] if isinstance(each, list | tuple) else each for each in self.value]

    @property
    def least(self) -> str:
        return _show(self.form.rpartition(" of ")[2], min(self._all))

    @property
    def most(self) -> str:
        return _show(self.form.rpartition(" of ")[2], max(self._all))

    @property
    def span(self) -> str:
        """Return the minimum and maximum duration, in one unit."""
        least, most = min(self._all) / 1e9, max(self._all) / 1e9
        unit = duration_unit(most)
        return f"{significant(least * unit.factor)} to {significant(most * unit.factor)} {unit.name}"

    @property
    def count(self) -> str:
        return f"{len(self.value):,}"


def _show(form: str, value: Any) -> str:
    if value is None:
        return ""
    if form in ("bit rate", "rate") and not value:
        return "0 bit/s"
    quantity = BIT_RATE if form == "rate" else QUANTITIES.get(form)
    if quantity is not None:
        return quantity.format(value)
    return f"{value:g}" if form == "probability" else str(value)


def _describe_inner(kind: Kind, key: str, table: Stage, names: Mapping[str, str]) -> str:
    if key == "schedule":
        return _describe(key, table, names)
    known = next((each for each in kind.inner[key] if each.name == table["kind"]), None)
    return str(table["kind"]) if known is None else str(known.schema["text"]).format_map(_Values(known, table, names))


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


def describe_queue(queue: Mapping[str, Any]) -> str:
    """Return a queue in words."""
    kind = find_kind(queue, "queue")
    name = ("adaptive " if queue.get("adaptive") else "") + str(kind.schema["title"] if kind else queue["kind"])
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


def _describe_replay(stage: Stage, names: Mapping[str, str] | None) -> str:
    recorded = _source_of_file(stage["heavy"])
    if recorded is not None:
        names = {stage["heavy"]: recorded} | dict(names or {})
    heavy = _describe("schedule", {**stage, "kind": "trace", "path": stage["heavy"]}, names)
    both = heavy if recorded is not None else f"light {Path(stage['light']).name} and heavy {heavy}"
    text = f"{both}, idle after {duration_words((stage.get('idle_ns') or 0) / 1e9)}"
    return text + (" at the link" if stage.get("idle_at") == "link" else "")


_DERIVED = re.compile(r"(.+)\.(uplink|downlink)\.(cellreplay|saturation|conditional)-(?:heavy|model)")


def _source_of_file(path: str) -> str | None:
    """Return the source of a file derived from a recording (:mod:`cellbed.recordings.derived`); else ``None``."""
    found = _DERIVED.fullmatch(Path(path).name)
    return None if found is None else f"{found[1]} {found[2]} by {found[3]}"
