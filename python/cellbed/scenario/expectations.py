"""Expectations of a run: limits of measures, ``[expect]`` of a scenario or sweep. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import WithJsonSchema

from cellbed.scenario.fields import plainly
from cellbed.scenario.table import Path
from cellbed.support.limits import OWN, Limit
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import BIT_RATE, DURATION, FREQUENCY, SIZE, UnitError, parse_probability

_QUANTILES = ("p01", "p50", "p90", "p99")
_PLACES = ("endpoint", "uplink", "remote", "downlink")
MEASURES = (
    *("requests", "answered", "failed", "failed_share", "lost_share", "timed_out_share", "late_share", "skipped"),
    *("throughput_per_s", "on_time_share", "goodput_bit_s", "latency_mean_s"),
    *(f"latency_{name}_s" for name in _QUANTILES),
    *(f"good_replies_{name}_s" for name in _QUANTILES),
    *(f"{place}_{name}_s" for place in _PLACES for name in ("p01", "p50", "p99", "mean")),
    *("network_p50_s", "network_p99_s"),
    *("connections", "sent_bytes", "received_bytes", "throughput_up_mbit_s", "throughput_down_mbit_s"),
    *("round_trip_p50_s", "retransmitted", "setup_p50_s", "fairness", "recovery_s"),
    *(f"{measure}_{name}_s" for measure in ("first_byte", "between_messages", "jitter") for name in ("p50", "p99")),
    *(f"{measure}_paint_{name}_s" for measure in ("first", "largest") for name in ("p50", "p99")),
    *("effective_throughput_p50_mbit_s", "effective_throughput_p99_mbit_s", "overhead_p50_bytes", "overhead_p99_bytes"),
    *("datagrams_lost_share", "datagrams_reordered_share", "correct_share"),
    *(f"migration_{name}" for name in ("s", "gap_s", "gap_p50_s", "transfer_s", "restore_s", "bytes", "paid_s")),
    *(f"migration_{name}" for name in ("before_s", "after_s")),
)
"""Measures of an application in every run of a scenario, and in every dataset of a sweep."""
KNOWN = (*MEASURES, "pressure_cpu", "late_p99_s")
"""`MEASURES`, and measures of the machine's influence on the run."""
ALIASES = {
    "median_latency": "latency_p50_s",
    "p90_latency": "latency_p90_s",
    "p99_latency": "latency_p99_s",
    "throughput": "throughput_per_s",
    "goodput": "goodput_bit_s",
}
"""Shorter names of measures."""
_LATER = re.compile(rf"{OWN}[\w.-]+|part_\w+_(p50|p99)_s")
"""Measures known only in the run: those of its programs, and parts of requests."""
_OF_DEADLINE = ("on_time_share", "goodput_bit_s")

_LIMIT = re.compile(r"\s*(<=|>=|<|>)\s*(\S.*?)\s*")


_NUMBER = r"[+-]?[0-9]{1,24}(?:\.[0-9]{1,24})?"
_OWN_LIMIT = re.compile(rf"({_NUMBER}) ?((?![0-9.])\S{{1,16}}|)")


def _plain(text: str) -> float:
    if not re.fullmatch(_NUMBER, text):
        raise UnitError(f"{plainly(text)} is not a number: write '> 100'")
    return float(text)


_FORMS: tuple[tuple[str, Callable[[str], float], str], ...] = (
    ("_share", partial(parse_probability, certain=True), "< 1 %"),
    ("_bytes", SIZE.parse, "< 1 MB"),
    ("_per_s", FREQUENCY.parse, "> 5 /s"),
    ("_mbit_s", lambda text: BIT_RATE.parse(text) / 1e6, "> 1 Mbit/s"),
    ("_bit_s", BIT_RATE.parse, "> 1 Mbit/s"),
    ("_s", lambda text: DURATION.parse(text) / 1e9, "< 300 ms"),
    ("", _plain, "> 100"),
)
"""Forms of limits by the suffix of the measure's name: parser and example."""
_TEXT = {"type": "string", "pattern": r"^\s*[<>]=?\s*\S", "examples": ["< 300 ms", "> 99 %"]}

Expect = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": dict.fromkeys((*ALIASES, *KNOWN), _TEXT),
            "additionalProperties": {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}]},
        }
    ),
]
"""The table ``[expect]``, which :func:`expectations` checks."""


Expectations = dict[str, tuple[Limit, ...]]
"""Limits by application."""


def expectations(
    expect: Mapping[str, Any],
    applications: Mapping[str, bool],
    known: Sequence[str] = KNOWN,
    alone: str | None = None,
) -> tuple[Expectations, list[tuple[Path, str]]]:
    """Return the expectations in a table, and its problems: (path in the table, problem and remedy).

    applications: by name, whether each has a deadline. known: measures of each. alone: the application of keys outside
    of applications' tables; default: the only one.
    """
    if len(applications) == 1:
        (alone,) = applications
    found: dict[str, list[Limit]] = {}
    problems: list[tuple[Path, str]] = []
    for app, path, value in _entries(expect, alone):
        if app is None:
            listed = " or ".join(f"[expect.{name}]" for name in applications) or "remove it: there is none"
            problems.append((path, f"which application? Write it in {listed}"))
        elif app not in applications:
            hint = f"{did_you_mean(app, applications)}write one of {', '.join(applications)}"
            problems.append((path[:1], f"there is no application {plainly(app)}: {hint}"))
        else:
            try:
                found.setdefault(app, []).append(_limit(str(path[-1]), value, known))
                if found[app][-1].measure in _OF_DEADLINE and not applications[app]:
                    problems.append((path, f"'{app}' has no deadline: write deadline = '100 ms' in its table"))
            except UnitError as error:
                problems.append((path, str(error)))
    return {app: tuple(each) for app, each in found.items()}, list(dict.fromkeys(problems))


def _entries(expect: Mapping[str, Any], alone: str | None) -> Iterator[tuple[str | None, Path, Any]]:
    """Yield application, path and value of each limit."""
    for key, value in expect.items():
        if isinstance(value, Mapping):
            yield from ((key, (key, name), inner) for name, inner in value.items())
        else:
            yield alone, (key,), value


def _limit(name: str, value: Any, known: Sequence[str]) -> Limit:
    """Return the limit of the measure with this name. Raises UnitError."""
    measure = ALIASES.get(name, name)
    if measure not in known and not _LATER.fullmatch(measure):
        names = [*(alias for alias, column in ALIASES.items() if column in known), *known]
        remedy = did_you_mean(name, names) or f"write one of {', '.join(names)}"
        raise UnitError(f"there is no measure {plainly(name)}: {remedy.rstrip()}")
    form = next(each for each in _FORMS if measure.endswith(each[0]))
    match = _LIMIT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise UnitError(f"{plainly(value)} is not a limit: write {name} = '{form[2]}'")
    sign: Any = match[1]
    text = " ".join(match[2].split())
    if measure.startswith(OWN):
        own = _OWN_LIMIT.fullmatch(text)
        if own is None or not text.isprintable():
            raise UnitError(f"{plainly(text)} is not a number, with or without a unit: write '> 100' or '< 20 ms'")
        return Limit(name, measure, sign, float(own[1]), f"{sign} {text}", own[2])
    return Limit(name, measure, sign, form[1](text), f"{sign} {text}")
