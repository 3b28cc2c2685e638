"""Quantities with units: what they mean, that they survive being written and read, that nothing odd gets through."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.support.units import BIT_RATE, DURATION, FREQUENCY, SIZE, Quantity, UnitError

KINDS = (DURATION, SIZE, BIT_RATE, FREQUENCY)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DURATION, "10 ms", 10_000_000),
        (DURATION, "3.125 ms", 3_125_000),
        (DURATION, "250 us", 250_000),
        (DURATION, "250 µs", 250_000),
        (DURATION, "250 μs", 250_000),
        (DURATION, "1.5 min", 90_000_000_000),
        (SIZE, "1 MB", 1_000_000),
        (SIZE, "1 MiB", 1_048_576),
        (SIZE, "2 GiB", 2 * 2**30),
        (BIT_RATE, "12 Mbit/s", 12_000_000),
        (BIT_RATE, "0.5 Gbit/s", 500_000_000),
        (FREQUENCY, "2 /s", 2.0),
        (FREQUENCY, "30 /min", 0.5),
    ],
)
def test_meaning(kind: Quantity, text: str, value: float) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        (DURATION, "10", "'10' has no unit: write '10 ms' or '10 s'"),
        (DURATION, "ten seconds", "is not a duration: write '10 ms' or '10 s'"),
        (DURATION, "0.1 ns", "not a whole number of nanoseconds"),
        (DURATION, "1e3 ms", "is not a duration"),
        (DURATION, "-5 s", "'-5 s' is negative: write '5 s'"),
        (DURATION, "10 S", "write '10 s'"),
        (DURATION, "1.5 days", "write '36 h'"),
        (DURATION, "99999999999999 h", "too large"),
        (SIZE, "1 mb", "write '1 MB'"),
        (SIZE, "1 Mbit", "unknown unit"),
        (BIT_RATE, "12 Mbps", "write '12 Mbit/s'"),
        (BIT_RATE, "12,5 Mbit/s", "decimal comma: write a point, as in '12.5 Mbit/s'"),
        (FREQUENCY, "2 Hz", "write '2 /s'"),
    ],
)
def test_refusals_say_what_would_be_right(kind: Quantity, text: str, words: str) -> None:
    with pytest.raises(UnitError, match=re.escape(words)):
        kind.parse(text)


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("60 s", DURATION, 60 * 10**9),
        ("1.5 s", DURATION, 15 * 10**8),
        ("512 MiB", SIZE, 512 * 2**20),
        ("12 Mbit/s", BIT_RATE, 12 * 10**6),
        ("8 /s", FREQUENCY, 8.0),
    ],
)
def test_writing_is_what_a_person_would_write(written: str, kind: Quantity, value: float) -> None:
    assert kind.format(value) == written


@pytest.mark.parametrize("kind", [DURATION, SIZE, BIT_RATE], ids=lambda kind: kind.name)
@given(value=st.integers(0, 2**63 - 1))
def test_whole_numbers_survive_writing_and_reading(kind: Quantity, value: int) -> None:
    assert kind.parse(kind.format(value)) == value


@given(value=st.floats(1e-6, 1e9))
def test_frequencies_survive_writing_and_reading(value: float) -> None:
    assert FREQUENCY.parse(FREQUENCY.format(value)) == value


@given(
    number=st.decimals(0, 10**6, places=3).map(lambda number: format(number, "f")),
    kind=st.sampled_from(KINDS),
    data=st.data(),
    space=st.sampled_from(["", " ", "  "]),
)
def test_what_is_read_matches_the_published_pattern(
    number: str, kind: Quantity, data: st.DataObject, space: str
) -> None:
    text = f"{number}{space}{data.draw(st.sampled_from(sorted(kind.units)))}"
    refusal = _refusal(kind, text)
    assert refusal is None or "not a whole number" in refusal
    assert re.search(kind.pattern(), text)


def _refusal(kind: Quantity, text: str) -> str | None:
    """Why ``text`` is refused; None where it is read."""
    try:
        kind.parse(text)
    except UnitError as error:
        return str(error)
    return None


@given(
    text=st.text() | st.from_regex(r"[+-]?[0-9]+(\.[0-9]+)? ?[a-zA-Zµ/]{0,6}", fullmatch=True),
    kind=st.sampled_from(KINDS),
)
def test_any_text_is_read_or_refused_in_one_line(text: str, kind: Quantity) -> None:
    refusal = _refusal(kind, text)
    assert refusal is None or ("write" in refusal and refusal.isprintable())
