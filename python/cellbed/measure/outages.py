"""Outages: times without capacity on a link, and the requests under way during these times."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from cellbed.measure.links import bin_ns, by_direction, gaps

LEAST_S = 0.3
"""Minimum length of a time without capacity that counts as an outage, seconds."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time of at least LEAST_S without capacity in one direction of a link.

    link: its name; endpoint: the endpoint whose requests cross the link; way: ``uplink`` or ``downlink``. begin_s:
    since the start of the schedule; length_s. apps: for a core link, the endpoint's applications that cross it; None:
    all.
    """

    link: str
    endpoint: str
    way: str
    begin_s: float
    length_s: float
    apps: tuple[str, ...] | None = None

    @property
    def end_s(self) -> float:
        return self.begin_s + self.length_s


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Requests that an outage of a link on their path could hold up.

    requests: number held up by any outage. most: number held up by the outage that covers most of their time; way,
    begin_s, length_s: of this outage, as in `Outage`.
    """

    requests: int
    most: int
    way: str
    begin_s: float
    length_s: float


def last_miles(description: dict[str, Any]) -> dict[str, str]:
    """Return the endpoint, by link, of links that begin at an endpoint. description: the content of ``run.json``."""
    endpoints = {str(node["name"]) for node in description.get("nodes") or [] if node.get("class") == "endpoint"}
    return {
        str(direction["link"]): str(direction["from"])
        for direction in description.get("directions") or []
        if direction["from"] in endpoints
    }


def find_outages(description: dict[str, Any], links: pl.DataFrame) -> list[Outage]:
    """Return the outages of all links, by direction and time. An outage of a core link is returned once per endpoint
    whose requests cross the link. links: the table of `read_links`."""
    endpoints, joins = last_miles(description), _joins(description)
    width_ns, series_of = bin_ns(links), by_direction(links)
    found = []
    for direction in description.get("directions") or []:
        link = str(direction["link"])
        crossing: dict[str, tuple[str, ...] | None] = {endpoints[link]: None} if link in endpoints else {}
        crossing = crossing or dict(_clients(description, direction, joins))
        if not crossing or direction["name"] not in series_of:
            continue
        series = series_of[direction["name"]].filter(pl.col("time_s") >= 0)
        for begin, length in gaps(series["capacity_mbit_s"].to_numpy()):
            begin_s, length_s = series["time_s"][0] + begin * width_ns / 1e9, length * width_ns / 1e9
            if length_s >= LEAST_S - 1e-9:
                way = str(direction["way"])
                span = round(begin_s, 6), round(length_s, 6)
                found += [Outage(link, endpoint, way, *span, apps) for endpoint, apps in crossing.items()]
    return found


def _joins(description: dict[str, Any]) -> dict[str, str]:
    """Return the far end of the link of each node that stays at one place."""
    moving = {name for name, stays in (description.get("sites") or {}).items() if len(stays) > 1}
    still = {str(node["name"]) for node in description.get("nodes") or []} - moving
    directions = description.get("directions") or []
    return {str(each["from"]): str(each["to"]) for each in directions if each["from"] in still}


def _clients(
    description: dict[str, Any], direction: dict[str, Any], joins: dict[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return the applications of each endpoint that cross this direction of a core link or port. joins: `_joins`."""
    found: dict[str, tuple[str, ...]] = {}
    for application in description.get("applications") or []:
        clients, servers = application.get("clients") or (), application.get("servers") or ()
        for number, client in enumerate(clients):
            chosen = application.get("edge_policy") == "nearest" or application.get("balance", "client") != "client"
            own = servers if chosen else servers[number % max(1, len(servers)) :][:1]
            if any(_crosses(direction, client, server, joins) for server in own):
                found[client] = (*found.get(client, ()), str(application["name"]))
    return found


def _crosses(direction: dict[str, Any], client: str, server: str, joins: dict[str, str]) -> bool:
    """Return whether requests of a client cross an uplink on their way to a server, or their replies a downlink."""
    near, far = [str(direction[end]) for end in ("from", "to")][:: 1 if direction["way"] == "uplink" else -1]
    if not str(direction["link"]).startswith("site-"):
        return far == server
    here, there = joins.get(client), joins.get(server)
    # The core link of a site: its uplink leads to the site, or away from the site if the site has cells.
    return None not in (here, there) and here != there and (far == there if far.startswith("site.") else near == here)


_CROSSING = (
    ("uplink", ("opening", "sent", "uplink_entered"), "uplink"),
    ("downlink", ("downlink_entered",), "downlink"),
)
"""Per way: the stamps, the first of which is the earliest entry to the link of a request (or its connection) or its
reply; and the prefix of the packets' stamps."""


def under_way(requests: pl.DataFrame, outages: list[Outage]) -> UnderWay | None:
    """Count the requests of a table of `read_requests` that an outage of their endpoint's link could delay.

    An outage holds up packets that cross the link in its direction, and in the other direction packets that TCP may not
    send without acknowledgements, until the completing packet has entered. A request that has begun to cross and never
    left crosses forever. Coinciding outages of several links count as one.
    """
    endpoint = requests["endpoint"].to_numpy()
    anywhere = np.zeros(len(requests), np.bool_)
    met: dict[tuple[str, float, float], tuple[float, float, int]] = {}
    for outage in outages:
        crosses = endpoint == outage.endpoint
        if outage.apps is not None:
            crosses &= requests["app"].is_in(outage.apps).to_numpy()
        covered = np.zeros(len(requests))
        along = 0.0
        for way, begin, prefix in _CROSSING:
            end = f"{prefix}_left" if way == outage.way else f"{prefix}_completed"
            low = np.maximum(_moments(requests, *begin, otherwise="uplink_entered"), outage.begin_s)
            high = np.minimum(_moments(requests, end, otherwise="downlink_left"), outage.end_s)
            span = np.where(crosses, np.clip(high - low, 0, None), 0.0)
            covered += span
            along += span.sum() if way == outage.way else 0.0
        anywhere |= covered > 0
        key = (outage.way, outage.begin_s, outage.length_s)
        before = met.get(key, (0.0, 0.0, 0))
        met[key] = (before[0] + covered.sum(), before[1] + along, before[2] + int((covered > 0).sum()))
    if not anywhere.any():
        return None
    most = max(met, key=lambda key: met[key])
    return UnderWay(int(anywhere.sum()), met[most][2], *most)


def _moments(requests: pl.DataFrame, *stamps: str, otherwise: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the first existing of these stamps for each request, in seconds since the start of the schedule; infinite
    without one. otherwise: the stamp in a table with none of them, such as of the requests that programs report."""
    known = [f"{stamp}_ns" for stamp in stamps if f"{stamp}_ns" in requests.columns] or [f"{otherwise}_ns"]
    since = (pl.coalesce(known) - pl.col("intended_ns")) / 1e9
    return requests.select((pl.col("intended_s") + since).fill_null(float("inf"))).to_series().to_numpy()
