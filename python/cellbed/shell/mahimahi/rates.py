"""Constant rates instead of a trace's file: ``mm-link 12mbit 12mbit``."""

from __future__ import annotations

import re
from fractions import Fraction

from cellbed.shell.mahimahi.errors import MahimahiError

OPPORTUNITY_BITS = 12_000
"""Bits of IP that one delivery opportunity carries: a packet of 1500 bytes."""
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmg]?)(?:bit|bits|bps|b/s|bit/s|bits/s|bit/sec)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_LONGEST_PERIOD_MS = 60_000
_MOST_OPPORTUNITIES = 200_000


def parse_rate(text: str) -> Fraction | None:
    """The rate that `text` names, bit/s, such as ``12mbit``, ``1.5Gbit``, ``12Mbps`` or ``12 Mbit/s``; else ``None``.

    Prefixes are powers of ten and their case does not matter; ``b`` is a bit in every spelling.
    Errors: :class:`MahimahiError` for a rate outside 1 kbit/s to 100 Gbit/s.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        return None
    rate = Fraction(match[1]) * _FACTORS[match[2].lower()]
    if not 1000 <= rate <= 10**11:
        raise MahimahiError(f"'{text}' is out of range: write 1kbit to 100gbit")
    return rate


def constant_trace(rate: Fraction) -> str:
    """A trace whose loop offers `rate` bit/s, its opportunities as evenly spread as milliseconds allow.

    The period is the shortest in which the rate comes out whole; where that is over a minute or 200,000 opportunities,
    the rate is met to 1 in 100,000 or better from 10 kbit/s on.
    """
    each_ms = rate / (OPPORTUNITY_BITS * 1000)
    longest = min(_LONGEST_PERIOD_MS, max(1, int(_MOST_OPPORTUNITIES / each_ms)))
    near = each_ms.limit_denominator(longest) or Fraction(1, longest)
    count, period = near.numerator, near.denominator
    return "".join(f"{-(-number * period // count)}\n" for number in range(1, count + 1))
