"""The parameters of a generator as options of the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from inspect import Parameter as Argument
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellbed.archive.generation.model import Model, Order, Parameter
from cellbed.archive.series import Content
from cellbed.cli.traces.options import AS_JSON, bit_rate, duration, entries_and_files

if TYPE_CHECKING:
    from cellbed.archive.generation.recorded import Like


_LONGEST_SEED = 18


class _As(StrEnum):
    opportunities = "opportunities"
    rate = "rate"


def arguments(model: Model) -> list[Argument]:
    """The generator's parameters and those that all have, as arguments of a command's function."""
    usual = model.duration or "the recording's"
    common: list[tuple[str, Any, Any]] = [
        ("lasts", int | None, _option("--duration", duration, usual, "Duration of the trace.", "TIME")),
        ("seed", int, _option("--seed", _seed, True, "Random seed; equal seeds give equal series.", "NUMBER")),
        (
            "name",
            str | None,
            typer.Option(help="Name in the archive.", show_default=model.name if model.duration else "like-NAME"),
        ),
        ("replace", bool, typer.Option("--replace", help="Replace an existing entry of that name.")),
        (
            "content",
            _As | None,
            typer.Option("--as", help="Stored form of the directions.", show_default="as the generator produces"),
        ),
    ]
    defaults = {"lasts": None, "seed": model.seed, "name": None, "replace": False, "content": None}
    own = [_argument(parameter) for parameter in model.parameters]
    found = [_keyword(name, Annotated[kind, option], defaults[name]) for name, kind, option in common]
    return [*own, *found, Argument("as_json", Argument.KEYWORD_ONLY, annotation=bool, default=AS_JSON)]


def order(model: Model, values: Mapping[str, Any], folder: Path) -> Order:
    """What the command line asks for. folder: where files are looked for. Raises TraceError."""
    own = {parameter.name: _plain(values[_identifier(parameter.name)]) for parameter in model.parameters}
    lasts = values["lasts"]
    if "like" in own:
        from cellbed.archive.like import like

        own["like"] = like(own["like"], folder)
        lasts = _longest(own["like"]) if lasts is None else lasts
    content = values["content"]
    return Order(
        model=model.name,
        seed=values["seed"],
        duration_ns=duration(model.duration) if lasts is None else lasts,
        content=None if content is None else Content(content.value),
        values=own,
        usual=values["lasts"] is None,
    )


def _argument(parameter: Parameter) -> Argument:
    name, help_ = _identifier(parameter.name), parameter.help
    if parameter.kind == "choice":
        choices = StrEnum("Choice", {each: each for each in parameter.choices})  # type: ignore[misc]
        return _keyword(
            name, Annotated[choices, typer.Option(f"--{parameter.name}", help=help_)], choices(parameter.default)
        )
    parse, metavar = _bounded(parameter), _PARSERS[parameter.kind][1]
    complete = entries_and_files if parameter.kind == "text" else None
    option = _option(f"--{parameter.name}", parse, parameter.default or False, help_, metavar, complete)
    default = Argument.empty if parameter.required else (parse(parameter.default) if parameter.default else None)
    kind = Any if parameter.required else Any | None
    return _keyword(name, Annotated[kind, option], default)


def _bounded(parameter: Parameter) -> Callable[[str], Any]:
    """The parser of a parameter's values, which refuses what is out of bounds."""
    parse = _PARSERS[parameter.kind][0]

    def parsed(text: str) -> Any:
        value = parse(text)
        wrong = parameter.outside(value)
        if wrong is not None:
            raise typer.BadParameter(f"'{text:.40}' {wrong}")
        return value

    return parsed


def _keyword(name: str, annotation: Any, default: Any) -> Argument:
    return Argument(name, Argument.KEYWORD_ONLY, annotation=annotation, default=default)


def _option(
    name: str, parse: Callable[[str], Any], default: str | bool, text: str, metavar: str,
    complete: Callable[[str], list[str]] | None = None,
) -> Any:  # fmt: skip
    # A value that the parser has made is a default, which it is given to once more.
    return typer.Option(
        name, parser=lambda value: parse(value) if isinstance(value, str) else value, show_default=default,
        help=text, metavar=metavar, autocompletion=complete,
    )  # fmt: skip


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def _identifier(name: str) -> str:
    return name.replace("-", "_")


def _longest(like: Like) -> int:
    return max((part.duration_ns for part in like.parts.values()), default=0)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_SEED):
        raise typer.BadParameter(
            f"invalid seed '{text:.40}': expected a whole number of up to {_LONGEST_SEED} digits, 0 or larger"
        )
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a number") from None
    if not 0 <= value < math.inf:
        raise typer.BadParameter(f"'{text}' is negative or infinite")
    return value


_PARSERS: dict[str, tuple[Callable[[str], Any], str]] = {
    "duration": (duration, "TIME"),
    "durations": (lambda text: tuple(duration(each.strip()) for each in text.split(",")), "TIME,…"),
    "rate": (bit_rate, "RATE"),
    "number": (_number, "NUMBER"),
    "text": (str, "NAME"),
}
