"""Stages that replace capacity and delay of a direction: recordings with load-dependent replay, and radio links."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field

from cellbed.archive import TraceSource
from cellbed.archive.light_rows import RecordedFile
from cellbed.scenario.fields import refusal
from cellbed.scenario.stage_tables import StageTable, stage_tables
from cellbed.support.units import DURATION, UnitError


@dataclass(frozen=True)
class Trust:
    """Sentences about the error of a replay. notes: the error is unknown. warnings: the error is large."""

    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Recorded(StageTable):
    """Base of recordings. heavy: trace of the opportunities under saturation, of `opportunity` bytes each."""

    _trust: Trust = Trust()
    _queue_bytes: int | None = None

    if TYPE_CHECKING:
        heavy: TraceSource
        opportunity: int

    @property
    def files(self) -> Iterator[tuple[str, TraceSource | RecordedFile]]:
        """Yield the files by their key."""
        for key in type(self).model_fields:
            if isinstance(file := getattr(self, key), TraceSource | RecordedFile):
                yield key, file

    def trusted(self, trust: Trust) -> Self:
        """Return the recording with `trust`."""
        self._trust = trust
        return self

    @property
    def queue_bytes(self) -> int | None:
        """The limit of the bottleneck queue, if the saturation shows it."""
        return self._queue_bytes

    def check(self) -> Self:
        """Return the recording. Raises TraceError for a file that cannot be read."""
        for _, file in self.files:
            file.check()
        return self


class Replay(Recorded):
    """A recording that is replayed by the method of CellReplay."""


class Conditional(Recorded):
    """A model learnt from a recording. heavy, opportunity: as in the model; used to state the rate."""

    heavy: Any
    opportunity: int


def _read_constants(constants: Mapping[str, Any]) -> dict[str, Any]:
    """Return constants of a radio link in the form of the path model. Values in text are times. Raises UnitError."""
    found: dict[str, Any] = {}
    for key, value in constants.items():
        if isinstance(value, str):
            found[f"{key}_ns"] = DURATION.parse(value)
        else:
            found[key] = _read_constants(value) if isinstance(value, Mapping) else value
    return found


def _check_constants(constants: dict[str, Any]) -> dict[str, Any]:
    """Return the constants. Raises a `refusal` for constants that the path model refuses."""
    from cellbed import _core

    stage = {"kind": "radio", "profile": "midband-good", "way": "downlink", "seed": 0}
    if taken := constants.keys() & {*stage, "queue", "device"}:
        raise refusal(f"'{min(taken)}' is not a constant of the radio link")
    try:
        _core.Direction(json.dumps([stage | _read_constants(constants)]), [])
    except (UnitError, ValueError) as error:
        raise refusal(str(error)) from error
    return constants


Constants = Annotated[dict[str, Any], AfterValidator(_check_constants)]
"""Constants of a radio link in place of the profile's (docs/reference/radio.md), with times in text."""


class Radio(StageTable):
    """One direction of a radio link, for a link in virtual time; scenarios and shells have both directions at once."""

    constants: Constants = Field({}, description="Constants in place of the profile's.")

    def stage(self, start_ns: int = 0, looped: bool = True, seed: int = 0) -> dict[str, Any]:
        return super().stage(start_ns, looped, seed) | _read_constants(self.constants)


def trust(capacity: object) -> Trust:
    """Return the sentences about the error of a replay; none for other capacities."""
    return capacity._trust if isinstance(capacity, Recorded) else Trust()


WHOLE = stage_tables("bottleneck", cellreplay=Replay, conditional=Conditional, radio=Radio)
"""The tables, by their kind."""
