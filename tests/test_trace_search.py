"""Questions to the archive's table of entries: the answer is what the words mean, and a condition does nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from any_text import many, value_or_line
from cellbed.archive import TraceError
from cellbed.archive.entry import About
from cellbed.archive.index import frame_of
from cellbed.archive.search import OTHER_NAMES, Query, found
from cellbed.support.ways import WAYS

Value = str | int | float | bool | None
COLUMNS: Final = (
    *("name", "duration_ns", "uplink_mean_bit_s", "downlink_mean_bit_s"),
    *(*About.model_fields, "uplink_content", "downlink_content", "recording"),
)
TEXTS: Final = st.sampled_from(
    [
        "5g",
        "5G",
        "4g",
        "driving",
        "Driving",
        "DÜSSELDORF",
        "Düsseldorf",
        "straße",
        "STRASSE",
        "İzmir",
        "2021-04",
        "a%_b",
    ]
)
EXACT: Final = ("technology", "band", "mobility", "obstacle", "origin")
PARTS: Final = ("operator", "place", "source", "licence")
RATES: Final = st.sampled_from([0.0, 1e6, 12e6, 12e6 + 1, 1e300]) | st.floats(0, 1e9)
TIMES: Final = st.sampled_from([1, 60 * 10**9, 2**63 - 1])


def names_of(rows: Sequence[Mapping[str, Value]], query: Query) -> list[str]:
    """The names of the rows that answer a query, in its order."""
    return found(frame_of(map(dict, rows)), query)["name"].to_list()


@st.composite
def entries(draw: st.DrawFn) -> list[dict[str, Value]]:
    """Rows of the table of some entries."""
    columns: dict[str, st.SearchStrategy[Value]] = {
        **dict.fromkeys((*EXACT, *PARTS, "date"), TEXTS),
        **dict.fromkeys(("uplink_mean_bit_s", "downlink_mean_bit_s"), RATES),
        **dict.fromkeys(("uplink_content", "downlink_content"), st.just("rate")),
        "duration_ns": TIMES,
        "recording": st.booleans(),
    }
    names = draw(st.lists(st.from_regex("[a-z0-9][a-z]{0,3}", fullmatch=True), unique=True, max_size=8))
    known = st.fixed_dictionaries({}, optional=columns)
    return [{"name": name, **draw(known)} for name in names]


def queries() -> st.SearchStrategy[Query]:
    """Questions about such rows, of which most ask one or two things."""
    asked: dict[str, st.SearchStrategy[Any]] = {
        **dict.fromkeys((*EXACT, *PARTS, "date"), TEXTS | st.sampled_from(["lte", " NR ", "ss", "", "\udcff"])),
        "name": st.sampled_from(["a", "", "B", "\udcff"]),
        "way": st.sampled_from(WAYS),
        "minimum_mean": RATES,
        "maximum_mean": RATES,
        "minimum_duration": TIMES | st.just(10**400),
    }
    order = {"sort": st.sampled_from(COLUMNS), "descending": st.booleans()}
    few = st.lists(st.sampled_from(list(asked)), max_size=2, unique=True)
    return few.flatmap(
        lambda keys: st.builds(Query, **{key: asked[key] for key in keys}, **order)  # type: ignore[arg-type]
    )


def answers(row: Mapping[str, Value], query: Query) -> bool:
    """Whether a row is what a query asks for, in plain words."""
    for key in EXACT:
        wanted = getattr(query, key)
        if wanted is not None:
            wanted = wanted.casefold().strip()
            wanted = OTHER_NAMES.get(wanted, wanted) if key == "technology" else wanted
            if row.get(key) is None or str(row[key]).casefold() != wanted:
                return False
    for key in ("name", *PARTS):
        part = getattr(query, key)
        if part is not None and (row.get(key) is None or part.casefold() not in str(row[key]).casefold()):
            return False
    if query.date is not None and not (row.get("date") is not None and str(row["date"]).startswith(query.date)):
        return False
    if query.way is not None and row.get(f"{query.way}_content") is None:
        return False
    if query.minimum_mean is not None or query.maximum_mean is not None:
        least = query.minimum_mean or 0.0
        most = math.inf if query.maximum_mean is None else query.maximum_mean
        means = [row.get(f"{way}_mean_bit_s") for way in ([query.way] if query.way else WAYS)]
        if not any(isinstance(mean, float) and least <= mean <= most for mean in means):
            return False
    duration = row.get("duration_ns")
    return query.minimum_duration is None or (isinstance(duration, int) and duration >= query.minimum_duration)


@settings(max_examples=100, deadline=None)
@given(rows=entries(), query=queries())
def test_what_is_found_is_what_is_asked_for(rows: list[dict[str, Value]], query: Query) -> None:
    expected = sorted((row for row in rows if answers(row, query)), key=lambda row: str(row["name"]))
    known = [row for row in expected if row.get(query.sort) is not None]
    known.sort(key=lambda row: _key(row[query.sort]), reverse=query.descending)
    if query.descending:  # of equals the first by name is still the first
        known.sort(key=lambda row: str(row["name"]))
        known.sort(key=lambda row: _key(row[query.sort]), reverse=True)
    names = [row["name"] for row in known + [row for row in expected if row.get(query.sort) is None]]
    result = found(frame_of(map(dict, rows)), query)
    assert result["name"].to_list() == names
    by_name = {row["name"]: row for row in rows}
    for one in result.rows(named=True):
        assert {key: value for key, value in one.items() if value is not None} == by_name[one["name"]]


def _key(value: Value) -> Any:
    return value.encode() if isinstance(value, str) else value


ONE: Final = [{"name": "walk", "place": "Delft", "uplink_mean_bit_s": 12e6, "recording": False}]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("mobilty = driving", "unknown column 'mobilty': did you mean 'mobility'?"),
        ("PLACE = x", "did you mean 'place'?"),
        ("nothingofthekind = x", "write one of name, duration_ns, uplink_mean_bit_s"),
        ("uplink_mean_bit_s", "is not a condition: write COLUMN OP VALUE"),
        ("uplink_mean_bit_s > fast", "'uplink_mean_bit_s' is a number, not 'fast'"),
        ("uplink_mean_bit_s > > 3", "'uplink_mean_bit_s' is a number, not '> 3'"),
        ("recording = perhaps", "'recording' is true or false, not 'perhaps'"),
        ("", "is not a condition"),
    ],
)
def test_an_invalid_condition_is_refused(where: str, reason: str) -> None:
    with pytest.raises(TraceError) as refused:
        names_of(ONE, Query(where=(where,)))
    reported = str(refused.value)
    assert reason in reported
    assert reported.startswith("--where: ")
    assert reported.isprintable()


@pytest.mark.parametrize(
    ("where", "matches"),
    [
        (("recording = false",), True),
        (("place = Delft", "uplink_mean_bit_s >= 12e6"), True),
        (("place=Delft", "uplink_mean_bit_s>12e6"), False),
        (("place != Oslo",), True),
        (("place < E", "duration_ns > 0"), False),  # an unknown value matches no condition
        (("uplink_mean_bit_s <= 1.2e7",), True),
    ],
)
def test_all_conditions_must_hold(where: tuple[str, ...], matches: bool) -> None:
    assert names_of(ONE, Query(where=where)) == ["walk"] * matches


@settings(many, max_examples=100)
@given(st.text(max_size=40) | st.text(max_size=10).map(lambda text: f"place = {text}"))
def test_any_condition_is_answered_or_refused_in_a_line(where: str) -> None:
    names = value_or_line(lambda: names_of(ONE, Query(where=(where,))))
    assert names in (None, [], ["walk"])
