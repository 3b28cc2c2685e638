"""Problems of a scenario file as sentences: where they are, what is wrong, what would be right."""

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from cellbed.errors import CellbedError
from cellbed.scenario.fields import plainly
from cellbed.scenario.model import Scenario


class ScenarioError(CellbedError):
    """A scenario file that cannot be used: a line per problem, ``FILE:LINE: KEY: what is wrong and what is right``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to put right at the key with this path, such as ``("links", "mobile", "queue")``."""

    path: tuple[str, ...]
    text: str

    @property
    def key(self) -> str:
        """The path as one would write it in TOML."""
        return _dotted(self.path)


def problems(errors: Sequence[ErrorDetails], data: Mapping[str, Any]) -> list[Problem]:
    """What pydantic found in ``data``, in our words and one problem per mistake."""
    found = [(_path(error, data), error) for error in errors]
    absent = {_dotted(path) for path, error in found if error["type"] == "missing"}
    explained = set()
    sentences = []
    for path, error in found:
        if error["type"] == "extra_forbidden":
            meant, text = _unknown(path, data, absent)
            explained.add(meant)
        else:
            text = _sentence(path, error, data)
        sentences.append(Problem(path, text))
    # A mistyped key is one mistake, though it leaves its right name missing.
    return [problem for problem in sentences if problem.key not in explained]


def _path(error: ErrorDetails, data: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of the file to blame; pydantic puts the name of the chosen variant of a union among them."""
    path: list[str] = []
    here: Any = data
    location = error["loc"]
    for index, step in enumerate(location):
        if isinstance(here, Mapping) and step in here:
            here = here[step]
        elif index < len(location) - 1 or (isinstance(here, Mapping) and here.get("kind") == step):
            continue
        path.append(str(step))
    if error["type"] in ("union_tag_invalid", "union_tag_not_found") and isinstance(here, Mapping):
        path.append("kind")
    return tuple(path)


def _dotted(path: Sequence[str]) -> str:
    return ".".join(step if step.replace("-", "_").isidentifier() else json.dumps(step) for step in path)


def _value(path: Sequence[str], data: Mapping[str, Any]) -> Any:
    here: Any = data
    for step in path:
        here = here.get(step) if isinstance(here, Mapping) else None
    return here


def _unknown(path: tuple[str, ...], data: Mapping[str, Any], absent: set[str]) -> tuple[str, str]:
    """The dotted key that was meant instead of the unknown ``path`` (or nothing), and the sentence."""
    *table, name = path
    siblings = _fields(tuple(table), data)
    if name not in siblings and path in set(_known_keys()):
        kind = plainly(_value((*table, "kind"), data))
        return "", f"unknown key, since kind = {kind} has none of this name: remove it or choose another kind"
    near = difflib.get_close_matches(name, siblings, n=len(siblings) or 1, cutoff=0.65)
    present = _value(table, data)
    free = [key for key in near if key not in present]
    if free:
        return _dotted([*table, free[0]]), f"unknown key; did you mean '{free[0]}'?"
    if near:
        return "", f"unknown key; '{near[0]}' is there already: remove one of the two"
    homes = [known for known in _known_keys() if known[-1] == name and known[:-1] != tuple(table)]
    if homes:
        right = f"[{_dotted(homes[0][:-1])}]" if len(homes[0]) > 1 else "the top of the file, before any table"
        meant = _dotted(homes[0])
        return meant if meant in absent else "", f"unknown key here; '{name}' belongs to {right}"
    known = ", ".join(siblings)
    return "", f"unknown key; known here: {known}" if known else "unknown key; remove it"


def _sentence(path: tuple[str, ...], error: ErrorDetails, data: Mapping[str, Any]) -> str:
    kind = error["type"]
    context = error.get("ctx", {})
    value = plainly(error["input"])
    example = _example(path, data)
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
            return _choice(str(context.get("tag", value)), [choice.strip(" '") for choice in choices.split(",")])
        case "union_tag_not_found":
            return f"missing: {example}"
        case "int_type" | "int_from_float" | "int_parsing_size":
            return f"{value} is not a whole number: {example}"
        case "float_type" | "finite_number":
            return f"{value} is not a number: {example}"
        case "bool_type":
            return f"{value} is neither true nor false: write true or false, without quotes"
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
        case "string_pattern_mismatch":
            return f"{value} cannot be used here: {_PATTERNS.get(path[-1], example)}"
        case _:
            return f"{value} cannot be used here: {example}"


_PATTERNS = {
    "name": "use 1 to 64 letters, digits, '-', '_' and '.', a letter or digit first; folders get this name",
    "congestion_control": 'write the name of a kernel module such as "cubic", "reno" or "bbr"',
}


def _choice(wrong: str, choices: Sequence[str]) -> str:
    wrong = wrong.strip("'")
    near = difflib.get_close_matches(wrong.lower(), choices, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    listed = ", ".join(f'"{choice}"' for choice in choices)
    return f"'{wrong}' is not known: {hint}write {'one of ' if len(choices) > 1 else ''}{listed}"


def _example(path: tuple[str, ...], data: Mapping[str, Any]) -> str:
    """What to write at ``path``, from the schema's own examples."""
    field = _fields(path[:-1], data).get(path[-1])
    if field is None:
        return "remove it"
    name = path[-1]
    model = _models(field.annotation)
    if name == "queue":
        return 'write queue = { kind = "droptail", limit = "1 MB" }'
    if model:
        required = [key for key, inner in model[0].model_fields.items() if inner.is_required()]
        # Keys that are required unless others say differently, as the schema has it.
        rules: Any = model[0].model_config.get("json_schema_extra") or {}
        required += rules.get("else", {}).get("required", [])
        return f"write [{_dotted(path)}]" + (f" and under it {', '.join(required)}" if required else "")
    values = field.examples or _annotated_examples(field.metadata)
    if not values:
        values = [choice for choice in get_args(field.annotation) if isinstance(choice, str | int)]
    if not values and not field.is_required():
        values = [field.default]
    return f"write {name} = {json.dumps(values[0], ensure_ascii=False)}"


def _annotated_examples(metadata: Sequence[Any]) -> list[Any]:
    return [example for item in metadata for example in getattr(item, "schema", {}).get("examples", [])]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The tables that an annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _fields(table: Sequence[str], data: Mapping[str, Any]) -> dict[str, Any]:
    """The known keys of a table; of a table with variants those of the one that its ``kind`` names."""
    model: type[BaseModel] = Scenario
    here: Any = data
    for step in table:
        here = here.get(step) if isinstance(here, Mapping) else None
        field = model.model_fields.get(step)
        candidates = _models(field.annotation) if field else []
        if not candidates:
            return {}
        kind = here.get("kind") if isinstance(here, Mapping) else None
        model = next((c for c in candidates if kind in _kinds(c)), candidates[0])
    return dict(model.model_fields)


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    return get_args(model.model_fields["kind"].annotation) if "kind" in model.model_fields else ()


def _known_keys(model: type[BaseModel] = Scenario, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every key that a scenario can have, depth first."""
    for name, field in model.model_fields.items():
        yield (*above, name)
        for inner in _models(field.annotation):
            yield from _known_keys(inner, (*above, name))
