"""When in the day a recording began, as its date tells."""

from __future__ import annotations

import datetime


def second_of_day(date: str | None) -> float | None:
    """Seconds since midnight, by the clock that `date` is given in (ISO 8601); None where it names no time of day."""
    if date is None or len(date) <= len("2021-04-30"):
        return None
    try:
        moment = datetime.datetime.fromisoformat(date)
    except ValueError:
        return None
    return moment.hour * 3600 + moment.minute * 60 + moment.second + moment.microsecond / 1e6
