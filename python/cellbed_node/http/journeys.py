"""Journeys: the requests that a user sends one after the other, with values taken from earlier replies."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellbed_node.processes import time_limit

MOST_KEPT = 1 << 20
"""Bytes of a reply searched for values."""
LONGEST_VALUE = 4096
TAKING_S = 1.0
"""Processor time per value: a hostile reply can make a regular expression run forever."""
JSON_PATH = re.compile(r"\$(?:\.[A-Za-z_][A-Za-z0-9_-]{0,100}|\[[0-9]{1,6}\]){0,20}")
"""A place in a JSON document: ``$.items[0].id``."""
_PLACE = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")
_slow = set[str]()
"""Expressions that have taken too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request of a journey. Its texts have names in braces; think_ns: minimum and maximum pause before it;
    take: expressions by name, each a place in JSON or a regular expression."""

    name: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: str
    think_ns: Sequence[int]
    take: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Journey:
    """Steps in order. weight: relative frequency of the journey."""

    weight: float
    steps: Sequence[Step]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Journey":
        """Return a journey by its configuration."""
        return cls(table["weight"], [Step(**step) for step in table["steps"]])


class User:
    """A user on a random journey. number: order of arrival at its endpoint; values: values of names in braces. known:
    values of the next reply in a prediction; ``None``: taken from its content."""

    def __init__(
        self, journeys: Sequence[Journey], number: int, endpoint: str, seed: int, values: Mapping[str, str]
    ) -> None:
        self.number = number
        self._random = random.Random(f"{seed}/{endpoint}/{number}/journey")
        weights = [each.weight for each in journeys]
        self._steps = list(self._random.choices(journeys, weights)[0].steps)
        self.values = dict(values)
        self.known: Mapping[str, str] | None = None

    @property
    def step(self) -> Step:
        """The current step."""
        return self._steps[0]

    def next(self) -> int | None:
        """Advance to the next step; return the user's think time before it, ns, or ``None`` at the end."""
        del self._steps[0]
        return self._random.randint(self.step.think_ns[0], self.step.think_ns[-1]) if self._steps else None

    def take(self, reply: bytes) -> str | None:
        """Take the values of a step from its reply: lines of header fields, an empty line, the body. Return why a value
        is missing, if any."""
        if self.known is not None:
            self.values |= {name: self.known.get(name, "0") for name in self.step.take}
            return None
        for name, expression in self.step.take.items():
            try:
                with time_limit(TAKING_S, TimeoutError(), processor=True):
                    found = None if expression in _slow else _find(expression, reply)
            except TimeoutError:
                found = None
                _slow.add(expression)
            if found is None:
                why = f": it took {TAKING_S:g} s of processor time, and is searched no more" * (expression in _slow)
                return f"the reply has no '{name}', {expression}{why}"
            if not 0 < len(found) <= LONGEST_VALUE or not found.isprintable():
                return f"'{name}' in the reply is empty, not printable, or longer than {LONGEST_VALUE} characters"
            self.values[name] = found
        return None


def _find(expression: str, reply: bytes) -> str | None:
    if not JSON_PATH.fullmatch(expression):
        match = re.search(expression, reply.decode(errors="replace"), re.MULTILINE)
        return match[match.re.groups and 1].strip() if match is not None and match[match.re.groups and 1] else None
    try:
        found = json.loads(reply.partition(b"\n\n")[2])
        for key, index in _PLACE.findall(expression):
            found = found[key] if key else found[int(index)]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if isinstance(found, str) else json.dumps(found)
