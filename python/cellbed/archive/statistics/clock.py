"""The time of day at which a recording began."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellbed.archive.entry import About


def second_of_day(about: About) -> float | None:
    """Return seconds since midnight, in the time zone of `date` (ISO 8601), else from `begins`; None: unknown."""
    return _of_date(about.date) if names_time(about.date) else _of_time(about.begins)


def names_time(date: str | None) -> bool:
    """Return whether a date contains a time of day."""
    return date is not None and len(date) > len("2021-04-30") and _of_date(date) is not None


def is_time(text: str) -> bool:
    """Return whether it is a time of day: ``06:30``, ``06:30:15``."""
    return _of_time(text) is not None


def _of_date(date: str | None) -> float | None:
    try:
        return _seconds(datetime.datetime.fromisoformat(date or "").time())
    except ValueError:
        return None


def _of_time(text: str | None) -> float | None:
    if text is None or len(text) < len("06:30"):
        return None
    try:
        return _seconds(datetime.time.fromisoformat(text))
    except ValueError:
        return None


def _seconds(time: datetime.time) -> float:
    return time.hour * 3600 + time.minute * 60 + time.second + time.microsecond / 1e6
