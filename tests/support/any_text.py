"""Malformed texts for parsers, which return a value or raise CellbedError."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cellbed.support.errors import CellbedError

T = TypeVar("T")

many = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

# No argument of a program holds a zero byte.
ODD_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=40)

NUMBERS = ("0", "1", "5", "12.5", "1e9", "-1", "inf", "nan", "٣", "½")
UNITS = (" ms", "s", " Mbit/s", "bit/s", " kB", " MB", " packets", "%", "h")


def words(*choices: str) -> st.SearchStrategy[str]:
    """Texts close to valid input, and some that are not."""
    near = st.lists(
        st.sampled_from(choices) | st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{0,4})?(e[0-9]{1,3})?", fullmatch=True)
    )
    return near.map("".join) | near.map(" ".join) | ODD_TEXT


def value_or_sentence(parse: Callable[[], T]) -> T | None:
    """Return the value of `parse`, or `None` after a CellbedError; any other exception is a bug."""
    try:
        return parse()
    except CellbedError as error:
        reported = str(error)
    assert "Traceback" not in reported
    return None


def value_or_line(parse: Callable[[], T]) -> T | None:
    """Return the same, for one-line errors."""
    try:
        return parse()
    except CellbedError as error:
        reported = str(error)
    assert reported
    assert reported.isprintable(), reported
    return None
