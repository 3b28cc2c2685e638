"""The result of one look at the machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    status: ``"ok"``; ``"warn"``, something works less well or one feature is absent; ``"missing"``, `cellbed run` fails
    without it. found: what is there, in words. remedy: what to do, empty when nothing is.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


def can_run(checks: Iterable[Check]) -> bool:
    """Whether `cellbed run` would work."""
    return all(check.status != "missing" for check in checks)
