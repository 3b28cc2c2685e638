"""Stages of a link as in the path model: their kinds, from the path model's schema, and their descriptions.

The schema (`crates/link/src/schema`) contains the keys of each kind and the text that describes a stage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
FILES = ("trace", "light rows", "latency offsets", "model")
"""Formats of keys that name a file."""

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

    @property
    def is_whole(self) -> bool:
        """Return whether the stage replaces a bottleneck: capacity and delay in one."""
        return self.place == "bottleneck" != self.name


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


def radio_profiles() -> tuple[str, ...]:
    """Return the profiles of radio links: two operators in five conditions (docs/reference/radio.md)."""
    (radio,) = (kind for kind in kinds()["bottleneck"] if kind.name == "radio")
    return tuple(radio.keys["profile"]["enum"])


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
    """Describe a stage before and after a change; for a bottleneck and a gate only the changed keys."""
    kind = find_kind(after)
    if before["kind"] == after["kind"] and before != after and kind is not None and kind.schema.get("partial"):
        same = [key for key, value in after.items() if key != "kind" and before.get(key) == value]
        before, after = ({key: each[key] for key in each if key not in same} for each in (before, after))
    return describe_stage(before, names), describe_stage(after, names)


def describe_stage(
    table: Stage, names: Mapping[str, str] | None = None, *, place: str | None = None, silent: bool = False
) -> str:
    """Return a stage in words, or a schedule with its place. silent: whether a stage without effect gives no text."""
    kind = find_kind(table, place)
    if kind is None:
        return str(table["kind"])
    if silent and _is_idle(table, place):
        return ""
    return str(kind.schema["text"]).format_map(_Values(kind, table, names or {}))


def _is_idle(table: Stage, place: str | None = None) -> bool:
    """Return whether a stage has no effect, because no key has a value that its schema lists under ``idle``."""
    kind = find_kind(table, place)
    if kind is None or "idle" not in kind.schema:
        return False
    values = {key: table.get(key) for key in kind.schema["idle"].split()}
    return all(_is_idle(value, key) if isinstance(value, Mapping) else not value for key, value in values.items())


class _Values(dict[str, "_Value"]):
    """Values of a stage's keys, as text."""

    def __init__(self, kind: Kind, table: Stage, names: Mapping[str, str]) -> None:
        super().__init__()
        self._kind = kind
        self._table = table
        self._names = names

    def __missing__(self, condition: str) -> _Value:
        """Return the value of ``key``; for ``key=TEXT`` a value that is given only if the key has this value."""
        key, equals, wanted = condition.partition("=")
        value = self._table.get(key)
        if equals:
            return _Value(wanted, value == wanted)
        form = self._kind.keys.get(key, {}).get("format", "")
        if key == "queue":
            return _Value(describe_queue(value) if value else "", value)
        if value is not None and (key in self._kind.inner or key == "schedule"):
            return _Value(_describe_inner(self._kind, key, value, self._names), value)
        if form in FILES:
            path = str(value)
            return _Value(self._names.get(path) or _source_of_file(path) or Path(path).name, path)
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

    @property
    def rounded(self) -> str:
        """Return the duration with three significant digits."""
        return duration_words((self.value or 0) / 1e9)

    @property
    def source(self) -> _Value:
        """Return the source of a file derived from a recording (:mod:`cellbed.recordings.derived`), if it is one."""
        source = _source_of_file(self.value)
        return _Value(source, source)


def _show(form: str, value: Any) -> str:
    if value is None:
        return ""
    if form == "outages":
        return _list_outages(value)
    quantity = BIT_RATE if form == "rate" else QUANTITIES.get(form)
    if quantity is not None:
        return quantity.format(value)
    return f"{value:g}" if form == "probability" else str(value)


def _describe_inner(kind: Kind, key: str, table: Stage, names: Mapping[str, str]) -> str:
    if key == "schedule":
        return describe_stage(table, names, place=key)
    known = next((each for each in kind.inner[key] if each.name == table["kind"]), None)
    return str(table["kind"]) if known is None else str(known.schema["text"]).format_map(_Values(known, table, names))


def _list_outages(outages: Sequence[Sequence[int]]) -> str:
    listed = [f"at {DURATION.format(begin)} for {DURATION.format(length)}" for begin, length in outages]
    more = f" and {len(outages) - _LISTED} more" if len(outages) > _LISTED else ""
    return f"outage{'s' * (len(outages) > 1)} {', '.join(listed[:_LISTED])}{more}"


def describe_queue(queue: Mapping[str, Any]) -> str:
    """Return a queue in words."""
    kind = find_kind(queue, "queue")
    name = ("adaptive " if queue.get("adaptive") else "") + str(kind.schema["title"] if kind else queue["kind"])
    limits = [SIZE.format(queue["bytes"])] if queue.get("bytes") is not None else []
    limits += [f"{queue['packets']} packets"] if queue.get("packets") is not None else []
    details = [f"of {' and '.join(limits)}"] if limits else []
    if "classes" in queue:
        details.append(f"of {len(queue['classes'])} classes")
    if "minimum_bytes" in queue:
        details.append(f"from {SIZE.format(queue['minimum_bytes'])} to {SIZE.format(queue['maximum_bytes'])}")
    elif queue.get("target_ns") is not None:
        details.append(f"at {DURATION.format(queue['target_ns'])}")
    if queue.get("ecn"):
        details.append("with ECN")
    return " ".join([name, "queue", *details])


_DERIVED = re.compile(r"(.+)\.(uplink|downlink)\.(cellreplay|saturation|conditional)(?:\.alone)?-(?:heavy|model)")


def _source_of_file(path: str) -> str:
    found = _DERIVED.fullmatch(Path(path).name)
    return "" if found is None else f"{found[1]} {found[2]} by {found[3]}"
