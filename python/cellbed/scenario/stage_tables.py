"""Tables of losses, delays, schedules, queues, limits of flows, recordings and radio links, made from the schema of
the path model.

The format of a key determines its limits and its form in the file.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, ValidationInfo, create_model, model_validator

from cellbed.archive import resolve
from cellbed.archive.light_rows import find_recorded
from cellbed.scenario.fields import QUEUE_LIMIT, Chance, Probability, QueueLimit, TextField, plainly, quantity, refusal
from cellbed.scenario.series import DELAY, LOSS, RATE, Column, Pairs, Points, Recording, advance, csv_field, require_one
from cellbed.scenario.table import Table
from cellbed.support.stages import FILES, QUANTITIES, Kind, Schema, documentation, kinds
from cellbed.support.units import BIT_RATE, DURATION

_OF_RUN = ("seed", "looped")
"""Formats of keys that a run sets."""
_LIMITS = ("packets", "bytes")
"""Keys of the path model that share one key in the file, `limit`."""
_COLUMNS: dict[str, tuple[Column, str]] = {
    "probability": (LOSS, "probabilities"),
    "delay": (DELAY, "delays"),
    "rate": (RATE, "rates"),
}
_FILES: dict[str, Callable[[str, Path], Any]] = {
    form: resolve if form == "trace" else partial(find_recorded, form) for form in FILES
}
"""Functions that find a file, by its format."""
_WORDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt"}
"""Pydantic's names of limits, by the schema's names."""
_CHANCE: TypeAdapter[float] = TypeAdapter(Annotated[Chance, Field(strict=True, allow_inf_nan=False)])


class StageTable(Table):
    """A table whose keys and kind the path model defines."""

    KIND: ClassVar[Kind]
    OUTER: ClassVar[Kind | None] = None
    """The stage of which the table is a part."""

    if TYPE_CHECKING:
        kind: str

        def __getattr__(self, key: str) -> Any: ...

    def stage(self, start_ns: int = 0, looped: bool = True, seed: int = 0) -> dict[str, Any]:
        """Return the table in the form of the path model.

        start_ns, looped: start position in recordings, and whether recordings repeat.
        """
        run = {"seed": seed, "looped": looped, "offset_ns": start_ns}
        kind = {"kind": self.KIND.name} if "kind" in type(self).model_fields else {}
        if self.OUTER is None:
            return kind | self._values(self.KIND, run)
        outer = self._values(self.OUTER, run)
        (part,) = self.OUTER.inner
        return {"kind": self.OUTER.name, part: kind | self._values(self.KIND, run), **outer}

    def _values(self, kind: Kind, run: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for key, schema in kind.keys.items():
            form = schema.get("format", "")
            if form in _OF_RUN or key == "offset_ns":
                found[key] = run[key]
            elif " of " in form:
                points = self.pairs if "offset_ns" in kind.keys else self._advance(run["offset_ns"], form)
                found[key] = [list(point) for point in points]
            elif form == "delays":
                found[key] = list(self.file.values)
            elif key in _LIMITS:
                found[key] = getattr(self.limit, key)
            elif form in _FILES:
                file = getattr(self, key)
                found[key] = None if file is None else str(file.path)
            elif key not in kind.inner:
                value = getattr(self, _file_key(key, schema))
                parts = isinstance(value, list) and value and isinstance(value[0], StageTable)
                found[key] = [part._values(part.KIND, run) for part in value] if parts else value
        return found

    def _advance(self, start_ns: int, form: str) -> Points:
        return advance(self.pairs, start_ns, linear=form.startswith("points"))


class Series(StageTable):
    """Values over time, in the scenario or a file."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        require_one(self, *type(self).sources())
        return self

    @classmethod
    def sources(cls) -> tuple[str, str]:
        """Return the two alternative keys."""
        return next(_file_key(key, schema) for key, schema in cls.KIND.keys.items() if _is_series(schema)), "file"

    @property
    def pairs(self) -> Points:
        """Pairs of time (ns) and value."""
        here, file = self.sources()
        recording: Recording | None = getattr(self, file)
        return getattr(self, here) if recording is None else recording.points


def stage_tables(place: str, **bases: type[StageTable]) -> dict[str, type[StageTable]]:
    """Return the tables of a place by their kind. bases: base classes of kinds with special behaviour."""
    found: dict[str, type[StageTable]] = {}
    for kind in kinds()[place]:
        parts = next(iter(kind.inner.values()), None)
        for each in (kind,) if parts is None else parts:
            name = each.schema.get("table", each.name)
            if name:
                found[name] = _make_table(each, name, bases.get(name), None if parts is None else kind)
    return found


def union(*types: Any) -> Any:
    """Return the union of types, for the annotation of a field."""
    return reduce(or_, types)


def _make_table(kind: Kind, name: str, base: type[StageTable] | None, outer: Kind | None) -> type[StageTable]:
    plain = Series if any(_is_series(schema) for schema in kind.keys.values()) else StageTable
    fields: dict[str, Any] = {} if name == kind.place else {"kind": (Literal[name], ...)}
    keys = {**kind.keys, **(outer.keys if outer else {})}
    if "packets" in keys:
        limit = Field(kind.schema.get("limit", "1 MB"), description="The most that waits in the queue.")
        fields["limit"] = (Annotated[QueueLimit, QUEUE_LIMIT], limit)
        keys = {key: schema for key, schema in keys.items() if key not in _LIMITS}
    for key, schema in keys.items():
        if schema.get("format") not in _OF_RUN and key != "offset_ns" and not (outer and key in outer.inner):
            required = key in [*kind.schema.get("required", ()), *(outer.schema.get("required", ()) if outer else ())]
            fields |= _make_fields(_file_key(key, schema), schema, required)
    full = name if name == kind.place else f"{name}-{kind.place}"
    title = "".join(word.capitalize() for word in full.split("-"))
    made = create_model(title, __base__=base or plain, __doc__=kind.title, __module__=__name__, **fields)
    made.KIND, made.OUTER = kind, outer
    globals()[title] = made  # pickle looks for the class here
    return made


def _is_series(schema: Schema) -> bool:
    return " of " in schema.get("format", "")


def _file_key(key: str, schema: Schema) -> str:
    """Return the scenario's form of a key of the path model: without its unit."""
    return str(schema.get("key") or key.removesuffix("_ns").removesuffix("_bytes").removeprefix("bit_"))


def _make_fields(key: str, schema: Schema, required: bool) -> dict[str, Any]:
    """Return the fields of a key, by name: type and pydantic's field."""
    form = schema.get("format", "")
    text = documentation(schema)
    if form == "delays":
        return {key: (Annotated[Recording, csv_field(DELAY, timed=False)], Field(description=text))}
    if _is_series(schema):
        column, plural = _COLUMNS[form.rpartition(" of ")[2]]
        file = f"A CSV file with a column of times and one of {plural}, in place of `{key}`."
        return {
            key: (Annotated[Points, _make_pairs(column, schema)] | None, Field(None, description=text)),
            "file": (Annotated[Recording, csv_field(column)] | None, Field(None, description=file)),
        }
    show, made = _make_type(form, schema)
    default = show(schema["default"]) if "default" in schema else ... if required else None
    more = {"examples": schema["examples"]} if "examples" in schema else {}
    return {key: (made if default is not None else made | None, Field(default, description=text, **more))}


def _make_type(form: str, schema: Schema) -> tuple[Callable[[Any], Any], Any]:
    """Return the type of a key, and a function that converts a value of the path model to a value of the file."""
    if form in QUANTITIES:
        kind = QUANTITIES[form]
        return kind.format, Annotated[int, quantity(kind, schema["least"], schema["most"])]
    if form == "probability":
        return float, Probability if "exclusiveMaximum" in schema else Chance
    if form in _FILES:
        what = form if form == "trace" else f"file of {form}"
        text = {"minLength": 1, "examples": schema["examples"]}
        return str, Annotated[Any, TextField(_FILES[form], _show_file, text, lambda _number: f"the path of a {what}")]
    if choices := schema.get("enum") or [each["const"] for each in schema.get("oneOf", ())]:
        return str, Literal[tuple(choices)]
    if schema["type"] == "array":
        return _make_list(schema)
    types = {"boolean": bool, "integer": int, "number": float}
    (plain,) = (types[each] for each in types if each in schema["type"])
    limits = {word: schema[key] for key, word in _WORDS.items() if key in schema}
    return lambda value: value, Annotated[plain, Field(**limits)] if limits else plain


def _make_list(schema: Schema) -> tuple[Callable[[Any], Any], Any]:
    """Return the same as `_make_type`, of a list of numbers or, without default, of tables."""
    items: Schema = schema["items"]
    if "properties" in items:
        made: Any = _make_table(Kind("class", "class", items["properties"], items, {}), "class", None, None)
    else:
        _, made = _make_type("", items)
    return lambda value: value, list[made]


def _show_file(file: Any) -> str:
    return str(file.name)


def _make_pairs(column: Column, schema: Schema) -> Pairs:
    (example,) = schema["examples"]
    if column is LOSS:
        return Pairs(_read_chance, lambda chance: chance, {"type": ["number", "string"]}, example)
    kind = DURATION if column is DELAY else BIT_RATE
    value = quantity(kind, schema["least"], schema["most"])
    return Pairs(value.validate, value.show, {"type": "string", "pattern": kind.pattern()}, example)


def _read_chance(value: Any, _info: ValidationInfo) -> float:
    """Return a probability from 0 to 1. Errors: a `refusal`."""
    try:
        return _CHANCE.validate_python(value)
    except ValidationError as error:
        context = error.errors()[0].get("ctx", {})
        raise refusal(str(context.get("text") or f"{plainly(value)} is no probability: write 0.01 or '1 %'")) from error
