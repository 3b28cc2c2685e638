"""A user's trained networks in the applications of a publication, instead of the built-in ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cellbed import CellbedError
from cellbed_papers.publication import Input, SweptPublication

Models = Mapping[str, Path]
"""Networks by kind of application."""


def find_models(publication: SweptPublication, given: Sequence[str]) -> Models:
    """Return the networks that a user names as ``KIND=PATH``. Errors: :class:`CellbedError`."""
    kinds = sorted({kind for each in publication.inputs for kind in each.kinds})
    found: dict[str, Path] = {}
    for text in given:
        kind, _, path = text.partition("=")
        if not kinds:
            raise CellbedError(f"--model: {publication.name} has no networks")
        if kind not in kinds:
            raise CellbedError(f"--model {text}: write KIND=PATH, KIND one of {', '.join(kinds)}")
        if kind in found:
            raise CellbedError(f"--model {text}: {kind} already has {found[kind]}")
        if not path or not Path(path).exists():
            raise CellbedError(f"--model {text}: no such file or folder")
        found[kind] = Path(path).absolute()
    return found


def fill_models(content: Any, models: Models) -> Any:
    """Return a scenario or a sweep with the given networks in its applications. The Python code of a network is a
    file beside it with the same stem."""
    if isinstance(content, list):
        return [fill_models(each, models) for each in content]
    if not isinstance(content, dict):
        return content
    found = {key: fill_models(each, models) for key, each in content.items()}
    if isinstance(kind := found.get("kind"), str) and (path := models.get(kind)):
        found.pop("runtime", None)
        found["model"] = str(path)
        if (code := path.with_suffix(".py")).is_file():
            found["code"] = str(code)
    return found


def judge_inputs(inputs: Sequence[Input], models: Models) -> list[Input]:
    """Return the inputs of a publication; one whose networks are all given is no stand-in."""
    return [_judge_input(each, models) if models.keys() & set(each.kinds) else each for each in inputs]


def _judge_input(of: Input, models: Models) -> Input:
    given = [f"{kind}: {models[kind].name} (given)" for kind in of.kinds if kind in models]
    is_complete = len(given) == len(of.kinds)
    rest = () if is_complete else (f"else {of.note}",)
    return replace(of, note="; ".join((*given, *rest)), stand_in=of.stand_in and not is_complete)
