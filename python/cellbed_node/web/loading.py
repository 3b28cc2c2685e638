"""One load of a page: the browser's events, and the record. Pure.

Times of the DevTools protocol are seconds of CLOCK_MONOTONIC, or milliseconds since such a time.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cellbed_node.browsing.objects import SECOND, Entries, Entry, Object
from cellbed_node.ledger import Request


@dataclass(slots=True)
class PageLoad(Request):
    """A load of a page. started_ns: when its navigation began; reply_ns: when its load event was over. first_byte_ns:
    arrival of the document's first byte; first_paint_ns, largest_paint_ns: first and largest contentful paint. objects:
    number requested; cached: served from the cache; broken: without a good reply; connections: number used; bytes_down:
    of all replies with their headers. step: name of the page."""

    first_byte_ns: int | None = None
    first_paint_ns: int | None = None
    largest_paint_ns: int | None = None
    objects: int | None = None
    cached: int | None = None
    broken: int | None = None
    connections: int | None = None
    step: str | None = None


@dataclass(slots=True)
class PageObject(Object):
    """An object of a page. load: number of the page load; initiator: number of the object that named it, if known."""

    load: int | None = None
    initiator: int | None = None


@dataclass(slots=True, kw_only=True)
class Loading(Entries):
    """A load in progress or finished. request: its record; session, target, context: of its page in the browser.
    loaded: whether its load event has come."""

    request: PageLoad
    session: str
    target: str
    context: str
    deadline_ns: int
    loaded: bool = False

    @property
    def unfinished(self) -> str:
        """Return why an unfinished load has no result."""
        missing = [each.request["request"]["url"] for each in self.pending.values()]
        first = f", {missing[0]:.200} first" if missing else ""
        return f"the page did not finish loading: {len(missing)} of {len(self.entries)} objects are missing{first}"

    def measure(self, found: dict[str, Any] | None) -> None:
        """Complete the record of the load. found: result of the script :data:`MEASURING`, and `navigation_s`, the time
        of the navigation; ``None`` if the page has none."""
        request = self.request
        network = [each for each in self.entries if not each.cached]
        request.objects, request.cached = len(self.entries) + self.left_out, len(self.entries) - len(network)
        request.broken = sum(each.problem is not None for each in self.entries)
        request.connections = len({each.response.get("connectionId") for each in network if each.response is not None})
        request.bytes_down = sum(each.bytes for each in network)
        if found is not None:

            def at(name: str) -> int | None:
                since_ms = found.get(name)
                return round((found["navigation_s"] + since_ms / 1e3) * SECOND) if since_ms else None

            request.first_byte_ns = at("first_byte")
            request.first_paint_ns, request.largest_paint_ns = at("first_paint"), at("largest_paint")

    def objects(self) -> Iterator[PageObject]:
        """Yield the records of objects from the network, still without connections."""
        numbers = {each.url: each.number for each in reversed(self.entries)}
        for each in self.entries:
            if not each.cached:
                made = PageObject(each.number, self.request.endpoint, each.wanted_ns)
                each.fill(made)
                made.load, made.initiator = self.request.request, numbers.get(_initiator(each.request) or "")
                yield made

    def elsewhere(self) -> Iterator[str]:
        """Yield the hosts of requests that the browser could not resolve."""
        for each in self.entries:
            if each.error == "net::ERR_NAME_NOT_RESOLVED":
                yield urlsplit(each.request["request"]["url"]).netloc[:253]

    def har(self) -> str:
        """Return the load as an HTTP Archive, version 1.2."""
        entries = [_har_entry(each) for each in self.entries]
        begin = self.entries[0].request if self.entries else {"wallTime": 0.0, "timestamp": 0.0}

        def since_ms(at_ns: int | None) -> float | None:
            return round(at_ns / 1e6 - begin["timestamp"] * 1e3, 3) if at_ns is not None and self.entries else None

        timings = {
            "onContentLoad": None,
            "onLoad": since_ms(self.request.reply_ns),
            "_firstContentfulPaint": since_ms(self.request.first_paint_ns),
            "_largestContentfulPaint": since_ms(self.request.largest_paint_ns),
        }
        started = _iso(begin["wallTime"])
        page = {"startedDateTime": started, "id": "page", "title": self.request.step, "pageTimings": timings}
        log = {"version": "1.2", "creator": {"name": "cellbed", "version": ""}, "pages": [page], "entries": entries}
        return json.dumps({"log": log}, indent=1) + "\n"


MEASURING = """new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
  let largest = null
  new PerformanceObserver(list => { for (const each of list.getEntries()) largest = each.startTime })
    .observe({type: "largest-contentful-paint", buffered: true})
  setTimeout(() => {
    const page = performance.getEntriesByType("navigation")[0]
    const paint = performance.getEntriesByName("first-contentful-paint")[0]
    done({first_byte: page.responseStart, load: page.loadEventEnd, first_paint: paint && paint.startTime,
          largest_paint: largest})
  }, 20)
})))"""
"""Script for a loaded page; its result has times in ms since the navigation."""


def _initiator(request: dict[str, Any]) -> str | None:
    """Return the URL of the object that caused a request."""
    its = request.get("initiator") or {}
    if its.get("url"):
        return str(its["url"])
    stack = its.get("stack")
    while stack is not None:
        for frame in stack.get("callFrames") or ():
            if frame.get("url"):
                return str(frame["url"])
        stack = stack.get("parent")
    return None


def _har_entry(each: Entry) -> dict[str, Any]:
    request, response = each.request, each.response or {}
    timing = response.get("timing") or {}
    begin_s = timing.get("requestTime", request["timestamp"])
    end_ms = (each.end_ns / 1e9 - begin_s) * 1e3 if each.end_ns is not None else -1

    def span(begin: str, end: str) -> float:
        low, high = timing.get(begin, -1), timing.get(end, -1)
        return round(high - low, 3) if min(low, high) >= 0 else -1

    blocked = max(0.0, (begin_s - request["timestamp"]) * 1e3)
    before = next((timing[name] for name in ("dnsStart", "connectStart", "sendStart") if timing.get(name, -1) >= 0), 0)
    first = timing.get("receiveHeadersStart", timing.get("receiveHeadersEnd", -1))
    timings = {
        "blocked": round(blocked + before, 3),
        "dns": span("dnsStart", "dnsEnd"),
        "connect": span("connectStart", "connectEnd"),
        "ssl": span("sslStart", "sslEnd"),
        "send": max(0.0, span("sendStart", "sendEnd")),
        "wait": max(0.0, round(first - timing.get("sendEnd", first), 3)),
        "receive": max(0.0, round(end_ms - first, 3)),
    }
    content = request["request"]
    return {
        "pageref": "page",
        "startedDateTime": _iso(request["wallTime"]),
        "time": round(sum(value for name, value in timings.items() if value > 0 and name != "ssl"), 3),
        "request": {
            "method": content["method"],
            "url": content["url"],
            "httpVersion": response.get("protocol", ""),
            "cookies": [],
            "headers": _headers(content.get("headers")),
            "queryString": [],
            "headersSize": -1,
            "bodySize": -1,
        },
        "response": {
            "status": response.get("status", 0),
            "statusText": response.get("statusText", ""),
            "httpVersion": response.get("protocol", ""),
            "cookies": [],
            "headers": _headers(response.get("headers")),
            "content": {"size": each.bytes, "mimeType": response.get("mimeType", "")},
            "redirectURL": (response.get("headers") or {}).get("location", ""),
            "headersSize": -1,
            "bodySize": -1,
            "_transferSize": each.bytes,
            "_error": each.problem,
        },
        "cache": {},
        "timings": timings,
        "serverIPAddress": response.get("remoteIPAddress", ""),
        "connection": str(response.get("connectionId", "")),
        "_fromCache": each.cached,
        "_resourceType": str(request.get("type", "other")).lower(),
        "_priority": content.get("initialPriority"),
    }


def _headers(fields: dict[str, str] | None) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in (fields or {}).items()]


def _iso(wall_s: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds")
