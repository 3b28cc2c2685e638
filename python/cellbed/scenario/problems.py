"""Problems of a scenario file as sentences with place, problem and remedy."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from cellbed.scenario.fields import plainly
from cellbed.scenario.table import APART, BOTH, PLAIN, Path, Ways, is_apart
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.ways import WAYS

MOST = 40
"""Maximum number of errors that become problems."""
_LONGEST = 200
"""Maximum characters of a key in a message."""


class ScenarioError(CellbedError):
    """A scenario file that cannot be used: a line per problem, ``FILE:LINE: KEY: problem and remedy``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake to correct at the key with this path, such as ``("links", "mobile", "queue")``."""

    path: Path
    text: str

    @property
    def key(self) -> str:
        """The path as in TOML, truncated if very long."""
        key = _join_keys(self.path)
        return key if len(key) <= _LONGEST else f"{key[: _LONGEST - 1]}…"


def problems(errors: Sequence[ErrorDetails], data: Mapping[str, Any], root: type[BaseModel]) -> list[Problem]:
    """Return one problem per mistake for Pydantic's errors in ``data``, meant to be a ``root``.

    Only the first :data:`MOST` errors count: a list of thousands is useless, and each takes a search for similar keys.
    """
    keys = _Keys(root, data)
    found = [(_path(error, data), error) for error in errors]
    absent = {_join_keys(path) for path, error in found if error["type"] == "missing"}
    explained = set()
    sentences = []
    for path, error in found[:MOST]:
        if error["type"] == "extra_forbidden":
            meant, text = _explain_key(path, keys, absent)
            explained.add(meant)
        else:
            text = _sentence(path, error, keys)
        sentences.append(Problem(path, text))
    # A mistyped key is one mistake, although the right key is then missing.
    return [problem for problem in sentences if problem.key not in explained]


_NAME = "[key]"
"""Suffix that pydantic appends to the location of an error in a key."""


def _path(error: ErrorDetails, data: Mapping[str, Any]) -> Path:
    """Return the path of the faulty key; pydantic's location also has names of chosen forms or kinds of a value."""
    path: list[str | int] = []
    here: Any = data
    location = error["loc"]
    for index, step in enumerate(location):
        inner = _child(here, step)
        is_kind = isinstance(here, Mapping) and here.get("kind") == step
        if is_kind and index < len(location) - 1 and (isinstance(inner, str) or location[index + 1] == step):
            continue  # the table also has a key of this name
        if inner is not None:
            here = inner
        # A missing key may have the name of its kind.
        elif (
            index < len(location) - 1 or step in (PLAIN, BOTH, APART, _NAME) or (is_kind and error["type"] != "missing")
        ):
            continue
        path.append(step)
    if error["type"] in ("union_tag_invalid", "union_tag_not_found") and isinstance(here, Mapping):
        path.append("kind")
    return tuple(path)


def _child(here: Any, step: str | int) -> Any:
    if isinstance(here, Mapping):
        return here.get(step)
    if isinstance(here, list) and isinstance(step, int) and step < len(here):
        return here[step]
    return None


def _join_keys(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            plain = step.replace("-", "_").isidentifier()
            text += ("." if text else "") + (step if plain else json.dumps(step))
    return text


class _Keys:
    """The keys that a scenario may have, and the keys that `data` has."""

    def __init__(self, root: type[BaseModel], data: Mapping[str, Any]) -> None:
        self._root = root
        self._data = data

    def value(self, path: Sequence[str | int]) -> Any:
        """Return the value of the file at `path`."""
        here: Any = self._data
        for step in path:
            here = _child(here, step)
        return here

    def of(self, table: Sequence[str | int]) -> dict[str, Any]:
        """Return the known keys of a table, or of its variant, with their fields."""
        annotation: Any = self._root
        field: Any = None
        here: Any = self._data
        for step in table:
            if get_origin(annotation) is dict:
                annotation = get_args(annotation)[1]
            elif isinstance(step, str) and not (_has_ways(annotation) and step in WAYS):
                model = _variant(annotation, here)
                field = _fields(model).get(step) if model else None
                if field is None:
                    return {}
                annotation = field.annotation
            here = _child(here, step)
        if get_origin(annotation) is dict:
            return {}
        model = _variant(annotation, here)
        if _has_ways(annotation) and isinstance(here, Mapping) and (model is None or is_apart(here)):
            return dict.fromkeys(WAYS, field)
        return _fields(model) if model else {}

    def all(self, model: type[BaseModel] | None = None, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        """Yield the path of every possible key of a scenario, depth first, without the directions."""
        for name, field in _fields(model or self._root).items():
            yield (*above, name)
            named = ("NAME",) if get_origin(field.annotation) is dict else ()
            for inner in _models(field.annotation):
                yield from self.all(inner, (*above, name, *named))


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a table by their keys in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _has_ways(annotation: Any) -> bool:
    return get_origin(annotation) is Ways or any(_has_ways(inner) for inner in get_args(annotation))


def _variant(annotation: Any, value: Any) -> type[BaseModel] | None:
    """Return the table that an annotation allows; of several, the table with the ``kind`` of `value`."""
    models = _models(annotation)
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return next((model for model in models if kind in _kinds(model)), models[0] if models else None)


def _explain_key(path: Path, keys: _Keys, absent: set[str]) -> tuple[str, str]:
    """Return the likely dotted key instead of the unknown ``path`` (or nothing), and the message."""
    *table, last = path
    name = str(last)
    siblings = keys.of(table)
    # Sort places with a free name last: the other places are more likely.
    places = sorted((known for known in keys.all() if known[-1] == name), key=lambda known: "NAME" in known)
    plain_table = tuple(step for step in table if isinstance(step, str) and step not in WAYS)
    if name not in siblings and (*plain_table, name) in places:
        kind = keys.value((*table, "kind"))
        if kind is not None:
            return (
                "",
                f"unknown key for kind = {plainly(kind)}: remove it or choose another kind",
            )
    near = difflib.get_close_matches(name, siblings, n=len(siblings) or 1, cutoff=0.65)
    present = keys.value(table)
    continues = not table and isinstance(keys.value(path), dict)  # a table may have subtables elsewhere
    free = [key for key in near if continues or key not in present]
    if free:
        return _join_keys([*table, free[0]]), f"unknown key; did you mean '{free[0]}'?"
    if near:
        return "", f"unknown key; '{near[0]}' already exists: remove one of the two"
    inner = [key for key, field in siblings.items() if any(name in _fields(it) for it in _models(field.annotation))]
    if table and inner:
        right = " or ".join(f"[{_join_keys([*table, key])}]" for key in sorted(inner, reverse=True)[:2])
        return "", f"unknown key here; '{name}' belongs to {right}"
    homes = [place for place in places if place[:-1] != plain_table]
    if homes:
        right = f"[{_join_keys(homes[0][:-1])}]" if len(homes[0]) > 1 else "the top of the file, before any table"
        meant = _join_keys(homes[0])
        return meant if meant in absent else "", f"unknown key here; '{name}' belongs to {right}"
    known = ", ".join(siblings)
    return "", f"unknown key; known here: {known}" if known else "unknown key; remove it"


def _sentence(path: Path, error: ErrorDetails, keys: _Keys) -> str:
    kind = error["type"]
    context = error.get("ctx", {})
    value = plainly(error["input"])
    example = _example(path, keys)
    match kind:
        case "scenario":
            return str(context["text"])
        case "missing":
            return f"missing: {example}"
        case "model_type" | "model_attributes_type" | "dict_type" | "union_tag_not_found" if not isinstance(
            error["input"], Mapping
        ):
            return f"{value} is not a table: {example}"
        case "literal_error" | "union_tag_invalid":
            choices = str(context.get("expected") or context.get("expected_tags")).replace(" or ", ", ")
            kinds = [choice.strip(" '") for choice in choices.split(",")]
            return _choice(str(context.get("tag", value)), [kind for kind in kinds if kind != PLAIN])
        case "union_tag_not_found":
            return f"missing: {example}"
        case "int_type" | "int_from_float" | "int_parsing_size":
            return f"{value} is not a whole number: {example}"
        case "float_type" | "finite_number":
            return f"{value} is not a number: {example}"
        case "bool_type":
            return f"{value} is not a boolean: write true or false, without quotes"
        case "list_type":
            return f"{value} is not a list: {example}"
        case "string_type":
            return f"{value} is not text: {example}"
        case "greater_than_equal":
            return f"{value} is too small: write at least {plainly(context['ge'])}"
        case "greater_than":
            return f"{value} is too small: write more than {plainly(context['gt'])}"
        case "less_than_equal":
            return f"{value} is too large: write at most {plainly(context['le'])}"
        case "less_than":
            return f"{value} is too large: write less than {plainly(context['lt'])}"
        case "string_pattern_mismatch" if error["loc"][-1] == _NAME:
            return f"{value} cannot be a name here: use letters, digits, '-' and '_'"
        case "string_pattern_mismatch":
            return f"{value} cannot be used here: {_PATTERNS.get(str(path[-1]), example)}"
        case _:
            return f"{value} cannot be used here: {example}"


_PATTERNS = {
    "name": "use 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first; folders get this name",
}


def _choice(wrong: str, choices: Sequence[str]) -> str:
    wrong = wrong.strip("'")
    hint = did_you_mean(wrong.lower(), choices)
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return f"'{wrong}' is not known: {hint}write {'one of ' if len(choices) > 1 else ''}{listed}"


def _example(path: Path, keys: _Keys) -> str:
    """Return an example of the value at ``path``, from the schema's own examples."""
    name = str(path[-1])
    field = keys.of(path[:-1]).get(name)
    if field is None:
        return _example(path[:-1], keys) if isinstance(path[-1], int) else "remove it"
    values = field.examples or _field_examples(field.metadata)
    model = _models(field.annotation)
    if model and not values:
        required = [key for key, inner in _fields(model[0]).items() if inner.is_required()]
        # Keys that are required unless others are given, as in the schema.
        rules: Any = model[0].model_config.get("json_schema_extra")
        required += rules.get("else", {}).get("required", []) if isinstance(rules, dict) else []
        listed = get_origin(field.annotation) is list
        named = (*path, "NAME") if get_origin(field.annotation) is dict else path
        heading = f"[[{_join_keys(path)}]]" if listed else f"[{_join_keys(named)}]"
        return f"write {heading}" + (f" and under it {', '.join(required)}" if required else "")
    if not values and (choices := [each for each in get_args(field.annotation) if isinstance(each, str | int)]):
        return f"write {name} = {' or '.join(map(as_toml, choices))}"
    if not values and not field.is_required():
        values = [field.default]
    return f"write {name} = {as_toml(values[0])}"


def as_toml(value: Any) -> str:
    """Return a value as one line of a scenario file."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {as_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value, ensure_ascii=False, default=str)  # text for dates


def _field_examples(metadata: Sequence[Any]) -> list[Any]:
    return [example for item in metadata for example in getattr(item, "schema", {}).get("examples", [])]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the tables that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()
