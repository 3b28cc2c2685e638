"""Outages: times without capacity on a last-mile link, and which requests were under way during them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.links import BIN_NS, gaps

LEAST_S = 0.3
"""A time without capacity is an outage from this length on, in seconds."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time of at least LEAST_S in which one direction of an endpoint's link offered nothing.

    link, endpoint: whose; way: ``uplink`` or ``downlink``. begin_s: since the start of the schedule; length_s.
    """

    link: str
    endpoint: str
    way: str
    begin_s: float
    length_s: float

    @property
    def end_s(self) -> float:
        return self.begin_s + self.length_s


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Requests that were under way during outages of their own endpoint's link.

    requests: during any. The outage that most of them met: most, how many did; way, begin_s, length_s as in `Outage`.
    """

    requests: int
    most: int
    way: str
    begin_s: float
    length_s: float


def last_miles(description: dict[str, Any]) -> dict[str, str]:
    """Endpoint by link, of every link that begins at an endpoint; description: the content of ``run.json``."""
    endpoints = {str(node["name"]) for node in description.get("nodes") or [] if node.get("class") == "endpoint"}
    return {
        str(direction["link"]): str(direction["from"])
        for direction in description.get("directions") or []
        if direction["from"] in endpoints
    }


def find_outages(description: dict[str, Any], links: pl.DataFrame) -> list[Outage]:
    """Outages of all last-mile links, by direction and time; links: the table of `read_links`."""
    endpoints = last_miles(description)
    found = []
    for direction in description.get("directions") or []:
        link = str(direction["link"])
        if link not in endpoints:
            continue
        series = links.filter((pl.col("direction") == direction["name"]) & (pl.col("time_s") >= 0))
        for begin, length in gaps(series["capacity_mbit_s"].to_numpy()):
            begin_s, length_s = float(series["time_s"][begin]), length * BIN_NS / 1e9
            if length_s >= LEAST_S - 1e-9:
                found.append(Outage(link, endpoints[link], str(direction["way"]), round(begin_s, 6), length_s))
    return found


def under_way(requests: pl.DataFrame, outages: list[Outage]) -> UnderWay | None:
    """Which of `requests` (``endpoint``, ``intended_s``, ``latency_s``) were between intended time and reply during an
    outage of their endpoint's link; None if none was. Without a reply a request is under way for ever.

    Outages of several links that coincide count as one.
    """
    begin = requests["intended_s"].to_numpy()
    end = begin + requests["latency_s"].fill_null(float("inf")).to_numpy()
    endpoint = requests["endpoint"].to_numpy()
    anywhere = np.zeros(len(requests), np.bool_)
    met: dict[tuple[str, float, float], int] = {}
    for outage in outages:
        there = (endpoint == outage.endpoint) & (begin < outage.end_s) & (end > outage.begin_s)
        anywhere |= there
        key = (outage.way, outage.begin_s, outage.length_s)
        met[key] = met.get(key, 0) + int(there.sum())
    if not anywhere.any():
        return None
    most = max(met, key=lambda key: (met[key], key[2]))
    return UnderWay(int(anywhere.sum()), met[most], *most)
