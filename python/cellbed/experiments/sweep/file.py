"""The sweep file: factors, their levels, the design and the repetitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, create_model, field_validator, model_validator

from cellbed.measure.rows import is_taken
from cellbed.scenario.expectations import Expect
from cellbed.scenario.fields import plainly, refusal
from cellbed.scenario.json_schema import schema_of
from cellbed.scenario.problems import Problem, ScenarioError, as_toml
from cellbed.scenario.reader import TablesError, read, report, tables, validate
from cellbed.scenario.table import Table, written
from cellbed.support import extensions
from cellbed.support.extensions import FileKind
from cellbed.support.units import BIT_RATE, DURATION, FREQUENCY, SIZE, Quantity, UnitError
from cellbed_node.extras import remedy

if TYPE_CHECKING:
    from cellbed.experiments.sweep.kinds import TrialKind

NAME = "^[A-Za-z][A-Za-z0-9_-]{0,63}$"
_KEY = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_MOST = 10_000
"""Maximum points of a design."""


class Factorial(Table):
    """Every combination of levels."""

    kind: Literal["factorial"]


class OneAtATime(Table):
    """The first levels of all factors together, then every other level alone."""

    kind: Literal["one-at-a-time"]


class LatinHypercube(Table):
    """Points that divide each factor's range evenly, in random combinations (McKay, Beckman & Conover, 1979)."""

    kind: Literal["latin-hypercube"]
    points: int = Field(ge=1, le=_MOST, description="Number of points.", examples=[20])


Design = Annotated[
    Annotated[Factorial | OneAtATime | LatinHypercube, Field(discriminator="kind")],
    BeforeValidator(
        lambda value: {"kind": value} if isinstance(value, str) else value,
        json_schema_input_type=Literal["factorial", "one-at-a-time"] | Factorial | OneAtATime | LatinHypercube,
    ),
]
Key = Annotated[str, Field(pattern=_KEY)]


def _is_end(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Factor(Table):
    """A difference between points: a key of the scenario, or several, and its levels."""

    key: Key | None = Field(
        None, description="Dotted key of the scenario. Default: the factor's name.", examples=["workload.rate"]
    )
    keys: list[Key] | None = Field(
        None,
        min_length=1,
        description="Several keys instead: a level is a list with a value for each.",
        examples=[["workload.server", "links.core.edge"]],
    )
    levels: Annotated[Any, WithJsonSchema({"anyOf": [{"type": "array", "minItems": 1}, {"type": "object"}]})] = Field(
        None,
        description="Values of the key: a list, or a table of values by their labels.",
        examples=[["2 /s", "5 /s", "10 /s"]],
    )
    range: Annotated[Any, WithJsonSchema({"type": "array", "minItems": 2, "maxItems": 2})] = Field(
        None,
        description="Lowest and highest value instead of levels, for a Latin hypercube.",
        examples=[["1 ms", "80 ms"]],
    )
    scale: Literal["linear", "logarithmic"] = Field("linear", description="Spacing of the values of a range.")

    @field_validator("levels")
    @classmethod
    def _has_levels(cls, levels: Any) -> Any:
        if levels is None:
            return None
        if not isinstance(levels, list | dict) or not levels:
            raise refusal(
                f'{plainly(levels)} is not a list of values: write levels = ["2 /s", "5 /s"], or a table of labels'
            )
        labels = [label(level) for level in levels] if isinstance(levels, list) else []
        if double := next((each for each in labels if labels.count(each) > 1), None):
            raise refusal(f"the level {plainly(double)} occurs twice: remove one of the two")
        return levels

    @field_validator("range")
    @classmethod
    def _has_two_ends(cls, ends: Any) -> Any:
        if ends is None:
            return None
        if not isinstance(ends, list) or len(ends) != 2:
            raise refusal('not two values: write range = ["1 ms", "80 ms"]')
        Range.of(ends)
        return ends

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.key is not None and self.keys is not None:
            raise refusal("both 'key' and 'keys': remove one of the two")
        if (self.levels is None) == (self.range is None):
            raise refusal("write either 'levels' or, for a Latin hypercube, 'range'")
        if self.scale == "logarithmic" and self.range is None:
            raise refusal("'scale' is for a range: remove this key")
        if self.scale == "logarithmic" and Range.of(self.range).low <= 0:
            raise refusal("a logarithmic range begins above 0: write another lowest value")
        return self

    def levels_by_label(self) -> dict[str, Any]:
        """Return the levels by their labels."""
        if isinstance(self.levels, dict):
            return self.levels
        return {label(level): level for level in self.levels or ()}

    def changes(self, name: str, level: Any) -> dict[str, Any]:
        """Return the values of scenario keys at a level. name: name of the factor."""
        if self.keys is None:
            return {self.key or name: level}
        return dict(zip(self.keys, level if len(self.keys) > 1 else [level], strict=True))


def label(level: Any) -> str:
    """Return a level as in the dataset: text unchanged, other values as in the file."""
    return level if isinstance(level, str) else as_toml(level)


@dataclass(frozen=True, slots=True)
class Range:
    """A range of values. quantity: for values with units; else values are numbers, whole ones if `whole`."""

    low: float
    high: float
    quantity: Quantity | None
    whole: bool

    @classmethod
    def of(cls, ends: list[Any]) -> Range:
        """Return the range between two values of a sweep file. Raises a `refusal`."""
        if all(map(_is_end, ends)):
            found = cls(ends[0], ends[1], None, all(isinstance(each, int) for each in ends))
        elif all(isinstance(each, str) for each in ends):
            quantity = _quantity(ends)
            found = cls(quantity.parse(ends[0]), quantity.parse(ends[1]), quantity, quantity.whole)
        else:
            raise refusal('write two numbers, or two quantities with units: range = ["1 ms", "80 ms"]')
        if not found.low < found.high:
            raise refusal("the first value must be the lower one")
        return found


def _quantity(ends: list[str]) -> Quantity:
    for quantity in (DURATION, SIZE, BIT_RATE, FREQUENCY):
        try:
            _ = [quantity.parse(each) for each in ends]
        except UnitError:
            continue
        return quantity
    raise refusal(f"'{ends[0]}' and '{ends[1]}' are not quantities of one kind: write for example ['1 ms', '80 ms']")


class SweepFile(Table):
    """A sweep: a scenario, or another kind of trials, at the points of a design, each several times."""

    name: str = Field(
        pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the sweep, also of its folder.",
        examples=["load-and-place"],
    )
    repetitions: int = Field(
        5, ge=1, le=_MOST, description="Trials of each point, each with another seed and another offset of the traces."
    )
    seed: int = Field(1, ge=0, lt=2**63, description="Seed of repetitions, order and Latin hypercube.")
    design: Design = Field(
        written({"kind": "factorial"}),
        description="Combinations of levels: all, each factor alone, or a Latin hypercube.",
        examples=["factorial", "one-at-a-time", {"kind": "latin-hypercube", "points": 20}],
    )
    vary_start: Literal[False] | Key | list[Key] | None = Field(
        None,
        description="Key of the mobile link whose start gets another offset in each repetition, or a list of them; "
        "false: none. Default: every mobile link with a trace or recording.",
        examples=["links.mobile.start"],
    )
    packet_logs: bool = Field(
        True, description="Whether trials keep their packet logs after they have been measured.", examples=[False]
    )
    factors: dict[Annotated[str, Field(pattern=NAME)], Factor] = Field({}, description="Factors by name.")
    expect: Expect = Field(
        {},
        description="Limits of measures that each repetition of each point meets, as in a scenario.",
        examples=[{"p99_latency": "< 300 ms"}],
    )

    @property
    def varied_keys(self) -> list[str] | None:
        """The keys of `vary_start`; None for the default."""
        if self.vary_start is None:
            return None
        return [self.vary_start] if isinstance(self.vary_start, str) else list(self.vary_start or [])

    @property
    def files(self) -> dict[str, str]:
        """The file of the trials, by their kind; one entry."""
        return {name: file for name in extensions.entries("trials") if (file := getattr(self, name)) is not None}

    @cached_property
    def kind(self) -> TrialKind:
        """The kind of the trials."""
        (name,) = self.files
        made: TrialKind = extensions.entries("trials")[name].load()(self)
        return made

    def misfits(self) -> list[Problem]:
        """Return conflicts between keys."""
        found = []
        if alone := len(self.files) != 1:
            text = " or ".join(f'{name} = "FILE"' for name in extensions.entries("trials"))
            found.append(Problem(("scenario",), f"write one file of trials, {text}"))
        measures = () if alone else self.kind.measures
        set_by: dict[str, str] = {}
        hypercube = isinstance(self.design, LatinHypercube)
        combinations = 1
        for name, factor in self.factors.items():
            path = ("factors", name)
            if is_taken(name, measures):
                found.append(Problem(path, "the dataset has a column of this name: choose another one"))
            if factor.range is not None and not hypercube:
                text = 'a range needs design = { kind = "latin-hypercube", points = 20 }: or write levels'
                found.append(Problem((*path, "range"), text))
            for key in factor.keys or [factor.key or name]:
                if key == "seed":
                    found.append(Problem(path, "the repetitions set the key 'seed': remove this factor"))
                for other, by in set_by.items():
                    if f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}."):
                        found.append(Problem(path, f"sets {key}, as the factor '{by}' does: remove one of the two"))
                set_by[key] = name
            for index, (shown, level) in enumerate(factor.levels_by_label().items()):
                if len(factor.keys or ()) > 1 and (not isinstance(level, list) or len(level) != len(factor.keys or ())):
                    place = shown if isinstance(factor.levels, dict) else index
                    text = f"not a list of {len(factor.keys or ())} values, one for each of 'keys'"
                    found.append(Problem((*path, "levels", place), text))
            combinations *= max(1, len(factor.levels_by_label()))
        if self.design.kind == "factorial" and combinations > _MOST:
            found.append(Problem(("factors",), f"{combinations} combinations of levels: at most {_MOST}"))
        return found


def read_sweep(path: Path) -> SweepFile:
    """Return the sweep file at a path. Raises ScenarioError with every problem and its line."""
    return parse_sweep(read(path, SWEEP), str(path))


def parse_sweep(text: str, source: str) -> SweepFile:
    """Return the sweep file with this text; `source` names it in errors."""
    data = tables(text, source, SWEEP)
    try:
        for name in data.keys() & extensions.FILES.keys() - extensions.entries("trials").keys():
            how = f"install it with: {remedy(extensions.FILES[name])}"
            raise TablesError([Problem((name,), f"this kind of trials is not installed; {how}")])
        sweep = validate(_model(), data, {})
        if found := sweep.misfits():
            raise TablesError(found)
    except TablesError as error:
        raise ScenarioError(report(source, text, error)) from None
    return sweep


@cache
def _model() -> type[SweepFile]:
    """Return the sweep file's model with a key for each kind of trials."""
    text = "{} file, relative to this file. Factors change keys of it."
    keys: dict[str, Any] = {
        name: (str | None, Field(None, min_length=1, description=text.format(name.capitalize())))
        for name in extensions.entries("trials")
    }
    return create_model("SweepFile", __base__=SweepFile, __doc__=SweepFile.__doc__, **keys)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of sweep files."""
    one = [{"required": [name]} for name in extensions.entries("trials")]
    return schema_of(_model(), "cellbed sweep") | {"oneOf": one}


SWEEP = FileKind(
    "sweep", json_schema, ("factors", "scenario", "repetitions", "design"), "[factors.NAME]", "cellbed sweep"
)
