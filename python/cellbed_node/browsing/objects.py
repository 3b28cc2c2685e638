"""Requests of a page in the browser: their DevTools events, and their records. Pure.

Times of the DevTools protocol are seconds of CLOCK_MONOTONIC, or milliseconds since such a time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cellbed_node.browsing.netlog import Exchange, Wire
from cellbed_node.ledger import Request

SECOND = 1_000_000_000
MOST_OBJECTS = 20_000
"""Maximum objects of a page; further objects are only counted."""


@dataclass(slots=True)
class Object(Request):
    """An object that a page requested, with its connection. intended_ns: when the page requested it; started_ns: when
    the browser began the request; opening_ns, tls_uplink_end, tls_downlink_end, first_byte_ns: as in
    :class:`cellbed_node.http.connection.Exchange`, the ends of TLS 0 without TLS. step: kind of content; code: status
    of the reply; wire: number of the connection in the browser, not recorded."""

    opening_ns: int | None = None
    tls_uplink_end: int | None = None
    tls_downlink_end: int | None = None
    first_byte_ns: int | None = None
    step: str | None = None
    url: str | None = None
    protocol: str | None = None
    code: int | None = None
    wire: int = 0

    unrecorded = frozenset({"wire"})


@dataclass(slots=True)
class Entry:
    """Parameters of an object's events. end_ns: end of the last byte, or of the failure."""

    number: int
    request: dict[str, Any]
    response: dict[str, Any] | None = None
    bytes: int = 0
    end_ns: int | None = None
    error: str | None = None
    cached: bool = False

    @property
    def url(self) -> str:
        """Return the object's URL."""
        return str(self.request["request"]["url"])

    @property
    def problem(self) -> str | None:
        """Return why the object has no good reply; ``None`` if it has one."""
        if self.error is not None:
            return self.error
        if self.end_ns is None:
            return "no whole reply before the end of the load"
        code = (self.response or {}).get("status", 200)
        return f"status {code}" if code >= 400 else None

    def fill(self, made: Object) -> None:
        """Add the protocol's reports to the record of the object; the connection is still missing."""
        request, response = self.request, self.response or {}
        made.started_ns = made.intended_ns
        made.url, made.step = self.url[:2000], str(request.get("type", "other")).lower()
        made.protocol, made.code = response.get("protocol"), response.get("status")
        made.wire, made.bytes_down = response.get("connectionId") or 0, self.bytes
        if (timing := response.get("timing")) is not None:
            _stamp(made, timing)
        trouble = self.problem
        if self.end_ns is not None and (trouble is None or response):
            made.reply_ns = self.end_ns
        made.status = "ok" if trouble is None else "failed" if made.reply_ns is not None else "lost"
        made.error = trouble

    @property
    def wanted_ns(self) -> int:
        """Return when the page requested the object."""
        return round(float(self.request["timestamp"]) * SECOND)


@dataclass(slots=True, kw_only=True)
class Entries:
    """The objects of a page so far. numbers: for the endpoint's next objects. left_out: number of objects beyond
    MOST_OBJECTS."""

    numbers: Iterator[int]
    left_out: int = 0
    entries: list[Entry] = field(default_factory=list)
    pending: dict[str, Entry] = field(default_factory=dict)

    def on_event(self, method: str, params: dict[str, Any]) -> None:
        """Process an event of the page."""
        entry = self.pending.get(params.get("requestId", ""))
        match method:
            case "Network.requestWillBeSent":
                if entry is not None and "redirectResponse" in params:
                    self._respond(entry, params["redirectResponse"])
                    self._end(entry, params["timestamp"], params["redirectResponse"].get("encodedDataLength", 0))
                if params["request"]["url"].startswith(("data:", "blob:")) or _is_icon(params):
                    return
                if len(self.entries) >= MOST_OBJECTS:
                    self.left_out += 1
                    return
                params["request"].pop("postData", None)
                self.pending[params["requestId"]] = made = Entry(next(self.numbers), params)
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

    def _respond(self, entry: Entry, response: dict[str, Any]) -> None:
        entry.response = response
        entry.cached |= bool(response.get("fromDiskCache") or response.get("fromPrefetchCache"))

    def _end(self, entry: Entry, at_s: float, size: int) -> None:
        entry.end_ns, entry.bytes = round(at_s * SECOND), max(0, int(size))
        self.pending.pop(entry.request["requestId"], None)


def _is_icon(params: dict[str, Any]) -> bool:
    """Return whether the browser itself requested the icon of a page that names none."""
    return params.get("type") == "Other" and urlsplit(params["request"]["url"]).path == "/favicon.ico"


def attach(made: Object, wires: dict[int, Wire]) -> None:
    """Add the connection of an object, and the object's bytes there, from the network log. wires: of
    :class:`cellbed_node.browsing.netlog.NetLog`. Call in the order of requests."""
    if (wire := wires.get(made.wire)) is None:
        return
    exchanges = wire.exchanges.get(made.url or "")
    made.local_port, made.remote_port = wire.local_port, wire.remote_port
    if exchanges:
        exchange: Exchange = exchanges.pop(0)
        made.uplink_start, made.uplink_end = exchange.uplink_start, exchange.uplink_end
        made.downlink_start, made.downlink_end = exchange.downlink_start, exchange.downlink_end
    if made.sent_ns is None or made.started_ns is None:
        return
    made.opening_ns = made.accepted_ns = made.sent_ns
    made.buffer_full_ns = 0
    if wire.open_ns is not None and wire.open_ns > made.started_ns:
        # Stamps of the log are whole milliseconds.
        made.opening_ns = min(max(made.started_ns, wire.begun_ns), made.sent_ns)
        made.tls_uplink_end, made.tls_downlink_end = (wire.hello, wire.flight) if wire.secured else (0, 0)


def _stamp(made: Object, timing: dict[str, Any]) -> None:
    begin_ns = round(timing["requestTime"] * SECOND)

    def at(name: str) -> int | None:
        since_ms = timing.get(name, -1)
        return begin_ns + round(since_ms * 1e6) if since_ms >= 0 else None

    made.started_ns = max(begin_ns, made.intended_ns)
    made.sent_ns, made.first_byte_ns = at("sendStart"), at("receiveHeadersStart")
