"""The result of one check of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    status: ``"ok"``; ``"warn"``, a feature is limited or absent; ``"missing"``, `cellbed run` fails
    without it. found: the state, in words. remedy: empty if none is needed.
    """

    name: str
    status: Status
    found: str
    remedy: str = ""


def can_run(checks: Iterable[Check]) -> bool:
    """Return whether `cellbed run` would work."""
    return all(check.status != "missing" for check in checks)
