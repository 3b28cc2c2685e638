"""The beginning of a series that steps have made from another."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cellbed.archive.operations.steps import Step
from cellbed.archive.statistics.clock import names_time, second_of_day, time_words

if TYPE_CHECKING:
    from cellbed.archive.entry import About

_DAY_S = 86_400


def begun(about: About, steps: Sequence[Step]) -> About:
    """Its metadata, with the date and time of day of the remaining part's beginning.

    A cut moves them. A stretched series has no hours of the day: the time of day is left out.
    """
    second = second_of_day(about)
    if second is None:
        return about
    if any(step.kind == "stretch" for step in steps):
        return about.model_copy(update={"date": _day(about.date), "begins": None})
    later_s = sum(step.told["from"] for step in steps if step.kind == "cut") / 1e9
    if not later_s:
        return about
    if not names_time(about.date):
        return about.model_copy(update={"begins": time_words((second + later_s) % _DAY_S)})
    written = about.date or ""
    moment = datetime.datetime.fromisoformat(written) + datetime.timedelta(seconds=later_s)
    moment = moment.replace(microsecond=0)
    to_the_second = moment.second or written[len("2021-04-30T14:05") :].startswith(":")
    text = moment.isoformat(timespec="seconds" if to_the_second else "minutes")
    return about.model_copy(update={"date": text.replace("+00:00", "Z") if written.endswith("Z") else text})


def _day(date: str | None) -> str | None:
    return date[: len("2021-04-30")] if names_time(date) and date else date
