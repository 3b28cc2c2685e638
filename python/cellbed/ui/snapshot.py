"""The state of live runs, testbeds and shells as JSON values, from the bytes of their files. Pure: no I/O, no clock."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cellbed.runformat.description import ANSWERED
from cellbed.support.stages import describe

if TYPE_CHECKING:
    from cellbed.measure.meter import Reading

Json = dict[str, Any]
WINDOW_NS = 10_000_000_000
"""Time over which requests are summarised."""
_CPU_WINDOW_NS = 950_000_000
"""Minimum time over which the use of processors is averaged."""
_LATEST = 60
"""Number of requests and events kept."""
_MOST_SERVED = 4096
_TEXT = 200
"""Maximum characters of a text that programs of nodes have written."""
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The live runs, testbeds and shells at monotonic time `time_s`.

    beds: the values of :meth:`Bed.content` by identifier, oldest first. Values are never changed: a snapshot shares
    unchanged values with the one before.
    """

    time_s: float
    beds: dict[str, Json]


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """Return the JSON Merge Patch (RFC 7396) that turns `before` into `after`; no value in them is null."""
    patch: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if old is value:
            continue
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := difference(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch


@dataclass
class Bed:
    """The state of one live run, testbed or shell: takes what its files and its emulator contain, piece by piece.

    name, kind, folder: as in its record.
    """

    name: str
    kind: str
    folder: str | None
    _started_ns: int | None = None
    _is_up: bool = False
    _title: str = ""
    _limits: dict[str, Json] = field(default_factory=dict)
    _nodes: dict[str, Json] = field(default_factory=dict)
    _apps: dict[str, Json] = field(default_factory=dict)
    _planned: dict[str, str] = field(default_factory=dict)
    _changes: dict[str, list[str]] = field(default_factory=dict)
    _described: Sequence[Mapping[str, Any]] = ()
    _directions: dict[str, Json] = field(default_factory=dict)
    _links: dict[str, Json] = field(default_factory=dict)
    _programs: dict[str, Json] = field(default_factory=dict)
    _now: dict[str, str] = field(default_factory=dict)
    _events: dict[str, Json] = field(default_factory=dict)
    _requests: dict[str, Json] = field(default_factory=dict)
    _ahead: dict[str, int] = field(default_factory=dict)
    _served: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)
    _use: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    _recent: dict[str, deque[tuple[int, float | None]]] = field(default_factory=dict)
    _rates: dict[str, Json] = field(default_factory=dict)
    _number: int = 0
    _next_rates_ns: int = 0

    def take_description(self, description: Mapping[str, Any]) -> None:
        """Take the content of ``run.json``; parts of another form are left out."""
        self._title = _text(description.get("name"))
        with contextlib.suppress(*_MALFORMED):
            nodes = {_text(node["name"]): node for node in description["nodes"]}
            self._limits = {
                name: _known(
                    type=_text(node["class"]),
                    cpus=_number(node.get("cpus")) if node.get("limits_enforced") else None,
                    memory_limit=_number(node.get("memory_bytes")) if node.get("limits_enforced") else None,
                )
                for name, node in nodes.items()
            }
            self._ahead = {n: int(node["clock"]["offset_ns"]) for n, node in nodes.items() if node.get("clock")}
            self._nodes = {name: self._limits[name] | self._nodes.get(name, {}) for name in nodes}
        with contextlib.suppress(*_MALFORMED):
            self._planned = {_text(each["name"]): _text(each["description"]) for each in description["directions"]}
            self._described = ()
        with contextlib.suppress(*_MALFORMED):
            self._apps = {
                _text(each["name"]): {
                    "title": _text(each["title"]),
                    "clients": [_text(name) for name in each["clients"]],
                    "servers": [_text(name) for name in each["servers"]],
                }
                for each in description["applications"]
            }

    def take_directions(self, directions: Sequence[Mapping[str, Any]]) -> None:
        """Take the emulator's description of the directions."""
        if directions != self._described:
            self._described = directions
            self._directions = {
                each["name"]: {"from": each["from"], "to": each["to"], "does": self._does(each)} for each in directions
            }

    def _does(self, direction: Mapping[str, Any]) -> str:
        """Return the effect of a direction: as planned and changed by hand, or from its stages."""
        planned, changes = self._planned.get(direction["name"]), self._changes.get(direction["name"], [])
        if planned is None:
            return describe(direction["stages"])
        return "; ".join([planned, *(f"by hand: {change}" for change in changes[-3:])])

    def take_readings(self, readings: Sequence[Reading]) -> None:
        """Take the state of the directions."""
        links = {}
        for each in readings:
            value: Json = {"rate": round(each.bit_rate), "queue": each.queue_bytes, "packets": each.queue_packets}
            if each.delay_ms is not None and each.longest_ms is not None:
                value |= {"delay": round(each.delay_ms, 2), "longest": round(each.longest_ms, 2)}
            if each.dropped:
                value["dropped"] = each.dropped
            if each.marked:
                value["marked"] = each.marked
            if each.closed:
                value["closed"] = True
            links[each.direction] = value
        self._links = links

    def take_events(self, lines: bytes) -> None:
        """Take lines of ``events.jsonl``: programs, faults and moves that last, and the list of events."""
        for event in _values(lines):
            with contextlib.suppress(*_MALFORMED):
                self._take_event(event)

    def _take_event(self, event: Json) -> None:
        name, what, at_s = str(event["event"]), _text(event["what"]), event.get("at_s")
        if name == "schedule started":
            self._started_ns, self._is_up = int(event["time_ns"]), True
        if name.startswith("program "):
            node = event.get("node") or self._programs.get(what, {}).get("node", "")
            state = name.removeprefix("program ") + (f" with status {event['status']}" if "status" in event else "")
            self._programs = {**self._programs, what: {"node": _text(node), "state": _text(state)}}
            if name not in ("program ended", "program restarted"):
                return
        if name.endswith(" began"):
            self._now = {**self._now, f"{event.get('fault', '')} {what}": f"{name.removesuffix(' began')}: {what}"}
        elif name.endswith(" ended"):
            self._now = {key: text for key, text in self._now.items() if key != f"{event.get('fault', '')} {what}"}
        text = f"{name}: {what}"
        if name == "link changed":
            self._changes.setdefault(what, []).append(_text(event["to"]))
            self._described = ()
        if "to" in event:
            text += f", from {event.get('from')} to {event['to']}"
        more = [
            f"{key} {event[key]}" for key in ("reason", "failed", "status", "command") if event.get(key) is not None
        ]
        self._number += 1
        value = _known(at_s=_number(at_s), text=_text(", ".join([text, *more])))
        self._events = _latest(self._events, self._number, value)

    def take_samples(self, lines: bytes) -> None:
        """Take lines of ``nodes.jsonl``; of many, the latest."""
        nodes = dict(self._nodes)
        latest = lines.splitlines(keepends=True)[-max(len(nodes), _LATEST // 4) :]
        for sample in _values(b"".join(latest)):
            with contextlib.suppress(*_MALFORMED):
                name, memory, cpu = _text(sample["node"]), _number(sample["memory_bytes"]), None
                if sample["cpu_ns"] is not None:
                    use = self._use.setdefault(name, deque())
                    use.append((int(sample["time_ns"]), int(sample["cpu_ns"])))
                    while len(use) > 2 and use[1][0] <= use[-1][0] - _CPU_WINDOW_NS:
                        use.popleft()
                    if use[-1][0] > use[0][0]:
                        cpu = round((use[-1][1] - use[0][1]) / (use[-1][0] - use[0][0]), 3)
                nodes[name] = self._limits.get(name, {}) | _known(cpu=cpu, memory=memory)
        self._nodes = nodes

    def take_served(self, app: str, node: str, lines: bytes) -> None:
        """Take lines of a server's record. Call it before :meth:`take_requests` with lines that were read earlier."""
        ahead = self._ahead.get(node, 0)
        for record in _values(lines):
            with contextlib.suppress(*_MALFORMED):
                stamps = [v for key, v in record.items() if key.endswith("_ns") and isinstance(v, int)]
                key = app, str(record["endpoint"]), int(record["request"])
                self._served[key] = min(stamps) - ahead, max(stamps) - ahead
        while len(self._served) > _MOST_SERVED:
            del self._served[next(iter(self._served))]

    def take_requests(self, files: Iterable[tuple[str, str, bytes]]) -> None:
        """Take lines of clients' records: application, node and lines of each."""
        taken: list[tuple[int, Json]] = []
        for app, node, lines in files:
            for record in _values(lines):
                with contextlib.suppress(*_MALFORMED):
                    served = self._served.pop((app, str(record.get("endpoint", node)), int(record["request"])), None)
                    end_ns, value = request(record, served, self._ahead.get(node, 0), self._started_ns)
                    taken.append((end_ns, {"app": app, "node": node, **value}))
        taken.sort(key=lambda each: each[0])
        for end_ns, value in taken:
            self._recent.setdefault(value["app"], deque(maxlen=100_000)).append((end_ns, value.get("latency")))
        for _, value in taken[-_LATEST:]:
            self._number += 1
            self._requests = _latest(self._requests, self._number, value)

    def content(self, now_ns: int) -> Json:
        """Return the state at monotonic time `now_ns`.

        name, kind, title, folder; state: ``starting``, ``up`` or ``running``; started_s: monotonic time. nodes: type,
        limits (cpus, memory_limit: bytes), use (cpu: CPUs, memory: bytes). directions: from, to, does. links: rate
        (bit/s), queue (bytes), packets, delay and longest (ms), dropped by reason, marked, closed. apps: title,
        clients, servers. rates: requests of the last 10 s by application. programs: node, state. now: faults and moves
        that last. events: at_s, text. requests: app, node, status, at_s, latency (ms), parts (ms). Unknown values are
        absent.
        """
        if now_ns >= self._next_rates_ns:
            self._next_rates_ns = now_ns + 1_000_000_000
            self._rates = {app: self._rate(recent, now_ns) for app, recent in self._recent.items()}
        return _known(
            name=self.name,
            kind=self.kind,
            title=self._title or None,
            folder=self.folder,
            state="running"
            if self.folder is None
            else ("up", "running")[self.kind == "run"]
            if self._is_up
            else "starting",
            started_s=None if self._started_ns is None else self._started_ns / 1e9,
            nodes=self._nodes,
            directions=self._directions,
            links=self._links,
            apps=self._apps,
            rates=self._rates,
            programs=self._programs,
            now=self._now,
            events=self._events,
            requests=self._requests,
        )

    def _rate(self, recent: deque[tuple[int, float | None]], now_ns: int) -> Json:
        """Return the number of requests per second, their median and longest latency (ms), and failures."""
        while recent and recent[0][0] < now_ns - WINDOW_NS:
            recent.popleft()
        window_s = min(WINDOW_NS, max(1_000_000_000, now_ns - (self._started_ns or 0))) / 1e9
        latencies = [latency for _, latency in recent if latency is not None]
        return {"per_s": round(len(recent) / window_s, 1), "failed": len(recent) - len(latencies)} | (
            {"median": round(statistics.median(latencies), 1), "longest": round(max(latencies), 1)} if latencies else {}
        )


def request(record: Json, served: tuple[int, int] | None, ahead: int, t0_ns: int | None) -> tuple[int, Json]:
    """Return the end of a request, ns, and its status, latency and parts by place (ms).

    record: of the client. served: first and last stamp of the server, by this machine's clock. ahead: lead of the
    client's clock, ns. Parts: endpoint, until it is sent; uplink, until the server has it; remote, until the server
    sends its reply; downlink, until the client has the reply. Without stamps of the server, ``path`` has the last
    three. The report divides them further, from the packet log.
    """
    begin = int(record["intended_ns"]) - ahead
    status, reply = _text(record["status"]), record.get("reply_ns")
    end = int(reply) - ahead if reply is not None else begin
    value: Json = {"status": status}
    if t0_ns is not None:
        value["at_s"] = round((begin - t0_ns) / 1e9, 3)
    if reply is None or status not in ANSWERED:
        return end, value
    sent = int(record["sent_ns"]) - ahead if isinstance(record.get("sent_ns"), int) else begin
    if served is not None and sent <= served[0] and served[1] <= end:
        stamps = {"endpoint": sent - begin, "uplink": served[0] - sent, "remote": served[1] - served[0]}
        stamps["downlink"] = end - served[1]
    else:
        stamps = {"endpoint": sent - begin, "path": end - sent}
    parts = {name: round(length / 1e6, 2) for name, length in stamps.items() if length > 0}
    return end, value | {"latency": round((end - begin) / 1e6, 2), "parts": parts}


def _values(lines: bytes) -> Iterator[Json]:
    """Yield the JSON objects of complete lines; malformed lines are left out."""
    for line in lines.splitlines():
        with contextlib.suppress(*_MALFORMED):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def _latest(values: dict[str, Json], number: int, value: Json) -> dict[str, Json]:
    """Return the values with another one, and without the oldest beyond the limit."""
    kept = list(values.items())[1 - _LATEST :] if len(values) >= _LATEST else values.items()
    return {**dict(kept), str(number): value}


def _known(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def _number(value: Any) -> float | None:
    """Return a finite number or ``None``. Errors: ``ValueError`` for other values."""
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    raise ValueError("no number")


def _text(value: Any) -> str:
    return str(value)[:_TEXT]
