"""Questions to the archive's table of entries: the answer is what the words mean, and a condition does nothing else."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest

from cellbed.archive import TraceError
from cellbed.archive.index import Query, frame_of, search

Value = str | int | float | bool | None


def names_of(rows: Sequence[Mapping[str, Value]], query: Query) -> list[str]:
    """The names of the rows that answer a query, in its order."""
    return search(frame_of(map(dict, rows)), query)["name"].to_list()


WALK: Final[Mapping[str, Value]] = {"name": "walk", "place": "Delft", "uplink_mean_bit_s": 12e6, "recording": False}


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("mobilty = driving", "unknown column 'mobilty': did you mean 'mobility'?"),
        ("PLACE = x", "did you mean 'place'?"),
        ("nothingofthekind = x", "write one of name, duration_ns, uplink_mean_bit_s"),
        ("uplink_mean_bit_s", "is not a condition: write COLUMN OP VALUE"),
        ("uplink_mean_bit_s > fast", "'uplink_mean_bit_s' is a number, not 'fast'"),
        ("uplink_mean_bit_s > > 3", "'uplink_mean_bit_s' is a number, not '> 3'"),
        ("duration_ns ~ 3", "~ needs a column of text"),
        ("recording = perhaps", "'recording' is true or false, not 'perhaps'"),
        ("", "is not a condition"),
    ],
)
def test_an_invalid_condition_is_refused(where: str, reason: str) -> None:
    with pytest.raises(TraceError) as refused:
        names_of([WALK], Query(where=(where,)))
    reported = str(refused.value)
    assert reason in reported
    assert reported.startswith("--where: ")
    assert reported.isprintable()


ENTRIES: Final[list[Mapping[str, Value]]] = [
    WALK,
    {"name": "tram", "technology": "4g", "duration_ns": 10**10, "uplink_mean_bit_s": 1e6},
    {"name": "car", "technology": "4G", "duration_ns": 10**9, "uplink_mean_bit_s": 1e6},
    {"name": "bus", "technology": "5g", "duration_ns": 2 * 10**9, "place": "Lange Straße", "date": "2021-04-30"},
]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (Query(where=("recording = false",)), ["walk"]),
        (Query(where=("place = Delft", "uplink_mean_bit_s >= 12e6")), ["walk"]),
        (Query(where=("place=Delft", "uplink_mean_bit_s>12e6")), []),
        (Query(where=("place != Oslo", "uplink_mean_bit_s <= 1.2e7")), ["walk"]),
        (Query(where=("place < E", "duration_ns > 0")), []),  # an unknown value matches no condition
        (Query(where=("place ~ STRASSE", "date ~ 2021-04")), ["bus"]),
        (Query(technology=" LTE "), ["car", "tram"]),
        (Query(sort="uplink_mean_bit_s"), ["car", "tram", "walk", "bus"]),  # unknown values come last
        (Query(technology="4g", sort="uplink_mean_bit_s", descending=True), ["car", "tram"]),  # equals by name
        (Query(sort="duration_ns", descending=True), ["tram", "bus", "car", "walk"]),
        (Query(minimum_mean=1e6, where=("duration_ns >= 1e10",)), ["tram"]),
    ],
)
def test_filters_and_order(query: Query, names: list[str]) -> None:
    assert names_of(ENTRIES, query) == names
