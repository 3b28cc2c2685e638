"""Policies of an endpoint under congestion: which requests of the schedule it sends, and at which resolution.

Pure state machines. Time and the observed latency are arguments. The observed latency (`Ledger.latency_ns`) is the
latency of the last reply, or the age of the oldest request without a reply if greater, both from the intended time. A
timed-out request counts as a reply with the time-out as latency, until the next reply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision. send: whether the request is sent or skipped. scale: share of the payload's width and height."""

    send: bool
    scale: float = 1.0


class Policy(Protocol):
    """Decides about each request when it is due."""

    def decide(self, now_ns: int, latency_ns: int | None) -> Decision:
        """Return the decision at `now_ns`, given the observed latency (None before the first request)."""


class _Thinning:
    """Sends a share of the requests, evenly spread: one whenever the sum of shares reaches the next integer."""

    def __init__(self) -> None:
        self._credit = 0.0

    def take(self, share: float) -> Decision:
        self._credit += share
        if self._credit < 1 - 1e-9:
            return Decision(send=False)
        self._credit -= 1
        return Decision(send=True)


class Halve:
    """Half the rate while the latency is above a threshold.

    As "Congestion control", listing 2 in §6.6 of Mishchenko, "Network Simulation for AI in the Digital Continuum",
    2025: ``sending_rate = frequency / 2`` if ``latency > 500 ms``, else ``frequency``, by sending every second
    photograph. The rate is not halved repeatedly.
    """

    def __init__(self, above_ns: int) -> None:
        self._above_ns = above_ns
        self._thinning = _Thinning()

    def decide(self, now_ns: int, latency_ns: int | None) -> Decision:
        return self._thinning.take(0.5 if _is_above(latency_ns, self._above_ns) else 1.0)


class ReduceResolution:
    """All requests, but with smaller payloads while the latency is above a threshold: the alternative in the same
    section. scale: scale of width and height."""

    def __init__(self, above_ns: int, scale: float) -> None:
        self._above_ns = above_ns
        self._scale = scale

    def decide(self, now_ns: int, latency_ns: int | None) -> Decision:
        return Decision(send=True, scale=self._scale if _is_above(latency_ns, self._above_ns) else 1.0)


class Aimd:
    """Additive increase, multiplicative decrease of the share of sent requests (Chiu & Jain, "Analysis of the Increase
    and Decrease Algorithms for Congestion Avoidance", Computer Networks and ISDN Systems 17, 1989).

    The initial share is 1. At most once per `interval_ns`, the share is multiplied by `decrease` if the latency is
    above the threshold, else increased by `increase`, within `least` to 1. The interval lets a decrease take effect
    before the next one.
    """

    def __init__(self, above_ns: int, interval_ns: int, increase: float, decrease: float, least: float) -> None:
        self._above_ns = above_ns
        self._interval_ns = interval_ns
        self._increase, self._decrease, self._least = increase, decrease, least
        self.share = 1.0
        self._next_ns: int | None = None
        self._thinning = _Thinning()

    def decide(self, now_ns: int, latency_ns: int | None) -> Decision:
        if self._next_ns is None or now_ns >= self._next_ns:
            self._next_ns = now_ns + self._interval_ns
            if _is_above(latency_ns, self._above_ns):
                self.share = max(self._least, self.share * self._decrease)
            else:
                self.share = min(1.0, self.share + self._increase)
        return self._thinning.take(self.share)


def policy(table: Mapping[str, Any]) -> Policy:
    """Return the policy of a table: ``kind`` and the arguments of its class."""
    kinds = {"halve": Halve, "reduce-resolution": ReduceResolution, "aimd": Aimd}
    made: Policy = kinds[table["kind"]](**{key: value for key, value in table.items() if key != "kind"})
    return made


def _is_above(latency_ns: int | None, above_ns: int) -> bool:
    return latency_ns is not None and latency_ns > above_ns
