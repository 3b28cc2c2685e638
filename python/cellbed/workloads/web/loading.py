"""One load of a page: what the browser reports of it, and what is recorded. Pure.

Times of the DevTools protocol are seconds of CLOCK_MONOTONIC, or milliseconds since such a time.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cellbed.workloads.ledger import Request
from cellbed.workloads.web.netlog import Exchange, Wire

SECOND = 1_000_000_000
MOST_OBJECTS = 20_000
"""Of a load; of further ones only their number is kept."""


@dataclass(slots=True)
class PageLoad(Request):
    """A load of a page. started_ns: its navigation began; reply_ns: its load event was over. first_byte_ns: the first
    byte of the document had come; first_paint_ns, largest_paint_ns: of first and largest contentful paint. objects:
    requested, cached: of these, served from the cache; broken: of these, without a good reply; connections: that it
    used; bytes_down: of all replies with their headers. step: name of the page."""

    first_byte_ns: int | None = None
    first_paint_ns: int | None = None
    largest_paint_ns: int | None = None
    objects: int | None = None
    cached: int | None = None
    broken: int | None = None
    connections: int | None = None
    step: str | None = None


@dataclass(slots=True)
class Object(Request):
    """An object of a page, with the connection that carried it. intended_ns: the page wanted it; started_ns: the
    browser began to request it; opening_ns, tls_uplink_end, tls_downlink_end, first_byte_ns: as of
    :class:`cellbed.workloads.http.connection.Exchange`. load: number of the page load; initiator: of the object that
    named it, where it is known; step: kind of content; code: status of the reply; wire: number of the connection in the
    browser, which is not recorded."""

    opening_ns: int | None = None
    tls_uplink_end: int | None = None
    tls_downlink_end: int | None = None
    first_byte_ns: int | None = None
    load: int | None = None
    initiator: int | None = None
    step: str | None = None
    url: str | None = None
    protocol: str | None = None
    code: int | None = None
    wire: int = 0

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in Request.record(self).items() if name != "wire"}


@dataclass(slots=True)
class _Entry:
    """Events of an object, by their parameters. end_ns: of its last byte, or of its failure."""

    number: int
    request: dict[str, Any]
    response: dict[str, Any] | None = None
    bytes: int = 0
    end_ns: int | None = None
    error: str | None = None
    cached: bool = False


@dataclass(slots=True)
class Loading:
    """A load under way, or over. request: its record; session, target, context: of its page in the browser.
    numbers: of the endpoint's next objects. loaded: whether its load event has come."""

    request: PageLoad
    session: str
    target: str
    context: str
    numbers: Iterator[int]
    deadline_ns: int
    loaded: bool = False
    left_out: int = 0
    entries: list[_Entry] = field(default_factory=list)
    _open: dict[str, _Entry] = field(default_factory=dict)

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        """Take note of an event of its page."""
        entry = self._open.get(params.get("requestId", ""))
        match method:
            case "Network.requestWillBeSent":
                if entry is not None and "redirectResponse" in params:
                    self._respond(entry, params["redirectResponse"])
                    self._end(entry, params["timestamp"], params["redirectResponse"].get("encodedDataLength", 0))
                if params["request"]["url"].startswith(("data:", "blob:")):
                    return
                if len(self.entries) >= MOST_OBJECTS:
                    self.left_out += 1
                    return
                params["request"].pop("postData", None)
                self._open[params["requestId"]] = made = _Entry(next(self.numbers), params)
                self.entries.append(made)
            case "Network.requestServedFromCache" if entry is not None:
                entry.cached = True
            case "Network.responseReceived" if entry is not None:
                self._respond(entry, params["response"])
            case "Network.loadingFinished" if entry is not None:
                self._end(entry, params["timestamp"], params["encodedDataLength"])
            case "Network.loadingFailed" if entry is not None:
                entry.error = params.get("blockedReason") or params.get("errorText") or "failed"
                self._end(entry, params["timestamp"], 0)

    def _respond(self, entry: _Entry, response: dict[str, Any]) -> None:
        entry.response = response
        entry.cached |= bool(response.get("fromDiskCache") or response.get("fromPrefetchCache"))

    def _end(self, entry: _Entry, at_s: float, size: int) -> None:
        entry.end_ns, entry.bytes = round(at_s * SECOND), max(0, int(size))
        self._open.pop(entry.request["requestId"], None)

    @property
    def unfinished(self) -> str:
        """Return why a load that did not end has no result."""
        return f"the page did not finish loading: {len(self._open)} of {len(self.entries)} objects are missing"

    def measure(self, found: dict[str, Any] | None) -> None:
        """Fill in the record of the load. found: of the script of :data:`MEASURING` and `navigation_s`, the time of its
        navigation; ``None`` where the page has none."""
        request = self.request
        network = [each for each in self.entries if not each.cached]
        request.objects, request.cached = len(self.entries) + self.left_out, len(self.entries) - len(network)
        request.broken = sum(problem(each) is not None for each in self.entries)
        request.connections = len({each.response.get("connectionId") for each in network if each.response is not None})
        request.bytes_down = sum(each.bytes for each in network)
        if found is not None:

            def at(name: str) -> int | None:
                since_ms = found.get(name)
                return round((found["navigation_s"] + since_ms / 1e3) * SECOND) if since_ms else None

            request.first_byte_ns = at("first_byte")
            request.first_paint_ns, request.largest_paint_ns = at("first_paint"), at("largest_paint")

    def objects(self) -> Iterator[Object]:
        """Return the records of its objects from the network; connections are still missing."""
        numbers = {each.request["request"]["url"]: each.number for each in reversed(self.entries)}
        for each in self.entries:
            if each.cached:
                continue
            request, response = each.request, each.response or {}
            made = Object(each.number, self.request.endpoint, round(request["timestamp"] * SECOND))
            made.started_ns = made.intended_ns
            made.load, made.url = self.request.request, request["request"]["url"][:2000]
            made.step = str(request.get("type", "other")).lower()
            made.initiator = numbers.get(_initiator(request))
            made.protocol, made.code = response.get("protocol"), response.get("status")
            made.wire, made.bytes_down = response.get("connectionId") or 0, each.bytes
            if (timing := response.get("timing")) is not None:
                _stamp(made, timing)
            trouble = problem(each)
            if each.end_ns is not None and (trouble is None or response):
                made.reply_ns = each.end_ns
            made.status = "ok" if trouble is None else "failed" if made.reply_ns is not None else "lost"
            made.error = trouble
            yield made

    def elsewhere(self) -> Iterator[str]:
        """Return the hosts of requests that the browser could not find."""
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
"""A script for a loaded page; its result has times in ms since the navigation."""


def problem(entry: _Entry) -> str | None:
    """Return why an object has no good reply."""
    if entry.error is not None:
        return entry.error
    if entry.end_ns is None:
        return "no whole reply before the end of the load"
    code = (entry.response or {}).get("status", 200)
    return f"status {code}" if code >= 400 else None


def attach(made: Object, wire: Wire, exchange: Exchange | None) -> None:
    """Add what the log of the network has of an object: its connection, and its bytes there."""
    made.local_port, made.remote_port = wire.local_port, wire.remote_port
    if exchange is not None:
        made.uplink_start, made.uplink_end = exchange.uplink_start, exchange.uplink_end
        made.downlink_start, made.downlink_end = exchange.downlink_start, exchange.downlink_end
    if made.sent_ns is None or made.started_ns is None:
        return
    made.opening_ns = made.accepted_ns = made.sent_ns
    made.buffer_full_ns = 0
    if wire.open_ns is not None and wire.open_ns > made.started_ns:
        # Stamps of the log are whole milliseconds.
        made.opening_ns = min(max(made.started_ns, wire.begun_ns), made.sent_ns)
        made.tls_uplink_end, made.tls_downlink_end = wire.hello, wire.flight


def _stamp(made: Object, timing: dict[str, Any]) -> None:
    begin_ns = round(timing["requestTime"] * SECOND)

    def at(name: str) -> int | None:
        since_ms = timing.get(name, -1)
        return begin_ns + round(since_ms * 1e6) if since_ms >= 0 else None

    made.started_ns = max(begin_ns, made.intended_ns)
    made.sent_ns, made.first_byte_ns = at("sendStart"), at("receiveHeadersStart")


def _initiator(request: dict[str, Any]) -> str | None:
    """Return the URL of the object that named another."""
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


def _har_entry(each: _Entry) -> dict[str, Any]:
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
            "_error": problem(each),
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
