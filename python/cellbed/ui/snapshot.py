"""The state of live runs, testbeds and shells as JSON values, from the bytes of their files. Pure: no I/O, no clock."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from cellbed.measure.meter import Reading
from cellbed.runformat.description import ANSWERED
from cellbed.support.stages import describe

Json = dict[str, Any]
_CPU_WINDOW_NS = 950_000_000
"""Minimum time over which the use of processors is averaged."""
_LATEST = 60
"""Number of requests and events kept."""
_MOST_SERVED = 4096
_TEXT = 200
"""Maximum characters of a text that programs of nodes have written."""
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_OF_LINKS = [each.name for each in fields(Reading)][1:]
_TABLES = ("nodes", "directions", "links", "apps", "programs", "now", "events", "requests")


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


class Bed:
    """The state of one live run, testbed or shell: takes what its files and its emulator contain, piece by piece.

    name, kind, folder: as in its record.
    """

    def __init__(self, name: str, kind: str, folder: str | None) -> None:
        self._content = _known(name=name, kind=kind, folder=folder, state="starting" if folder else "running")
        self._content |= {table: {} for table in _TABLES}
        self._described: Sequence[Mapping[str, Any]] = ()
        self._limits: dict[str, Json] = {}
        self._ahead: dict[str, int] = {}
        self._served: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._use: dict[str, tuple[int, int]] = {}
        self._started_ns: int | None = None
        self._number = 0

    def take_description(self, description: Mapping[str, Any]) -> None:
        """Take the content of ``run.json``; parts of another form are left out."""
        self._content["title"] = _text(description.get("name"))
        with contextlib.suppress(*_MALFORMED):
            nodes = {_text(node["name"]): node for node in description["nodes"]}
            for name, node in nodes.items():
                limits = (node.get("cpus"), node.get("memory_bytes")) if node.get("limits_enforced") else (None, None)
                cpus, memory = map(_number, limits)
                self._limits[name] = _known(type=_text(node["class"]), cpus=cpus, memory_limit=memory)
            self._ahead = {name: int(node["clock"]["offset_ns"]) for name, node in nodes.items() if node.get("clock")}
            self._content["nodes"] = {name: self._limits[name] | self._content["nodes"].get(name, {}) for name in nodes}
        with contextlib.suppress(*_MALFORMED):
            self._content["apps"] = {
                _text(each["name"]): {"servers": [_text(name) for name in each["servers"]]}
                for each in description["applications"]
            }

    def take_directions(self, directions: Sequence[Mapping[str, Any]]) -> None:
        """Take the emulator's description of the directions."""
        if directions != self._described:
            self._described = directions
            self._content["directions"] = {
                each["name"]: {"from": each["from"], "to": each["to"], "does": describe(each["stages"])}
                for each in directions
            }

    def take_readings(self, readings: Sequence[Reading]) -> None:
        """Take the state of the directions."""
        self._content["links"] = {
            each.direction: _known(**{name: _rounded(getattr(each, name)) for name in _OF_LINKS}) for each in readings
        }

    def take_events(self, lines: bytes) -> None:
        """Take lines of ``events.jsonl``: programs, faults and moves that last, and the list of events."""
        for event in _values(lines):
            with contextlib.suppress(*_MALFORMED):
                self._take_event(event)

    def _take_event(self, event: Json) -> None:
        name, what, at_s = str(event["event"]), _text(event["what"]), event.get("at_s")
        content, key = self._content, _text(f"{event.get('fault', '')} {what}")
        if name == "schedule started":
            self._started_ns = int(event["time_ns"])
            is_run = content["kind"] == "run"
            content |= {"started_s": self._started_ns / 1e9, "state": "running" if is_run else "up"}
        if name.startswith("program "):
            node = event.get("node") or content["programs"].get(what, {}).get("node", "")
            state = name.removeprefix("program ") + (f" with status {event['status']}" if "status" in event else "")
            content["programs"] = {**content["programs"], what: {"node": _text(node), "state": _text(state)}}
            if name not in ("program ended", "program restarted"):
                return
        if name.endswith(" began"):
            content["now"] = {**content["now"], key: f"{_text(name.removesuffix(' began'))}: {what}"}
        elif name.endswith(" ended"):
            content["now"] = {other: text for other, text in content["now"].items() if other != key}
        texts = [f"{name}: {what}"]
        if "to" in event:
            texts.append(f"from {event.get('from')} to {event['to']}")
        named = ("reason", "failed", "status", "command")
        texts += [f"{each} {event[each]}" for each in named if event.get(each) is not None]
        self._add("events", _known(at_s=_number(at_s), text=_text(", ".join(texts))))

    def take_samples(self, lines: bytes) -> None:
        """Take lines of ``nodes.jsonl``; of many, the latest."""
        nodes = dict(self._content["nodes"])
        latest = lines.splitlines(keepends=True)[-max(len(nodes), _LATEST // 4) :]
        for sample in _values(b"".join(latest)):
            with contextlib.suppress(*_MALFORMED):
                name, memory = _text(sample["node"]), _number(sample["memory_bytes"])
                node = nodes[name] = nodes.get(name, {}) | _known(memory=memory)
                end_ns, used_ns = int(sample["time_ns"]), int(sample["cpu_ns"])
                begin_ns, before_ns = self._use.setdefault(name, (end_ns, used_ns))
                if end_ns >= begin_ns + _CPU_WINDOW_NS:
                    node["cpu"] = round((used_ns - before_ns) / (end_ns - begin_ns), 3)
                    self._use[name] = end_ns, used_ns
        self._content["nodes"] = nodes

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
        for _, value in taken[-_LATEST:]:
            self._add("requests", value)

    def content(self) -> Json:
        """Return the state.

        name, kind, title, folder; state: ``starting``, ``up`` or ``running``; started_s: monotonic time. nodes: type,
        limits (cpus, memory_limit: bytes), use (cpu: CPUs, memory: bytes). directions: from, to, does. links: as in
        :class:`~cellbed.measure.meter.Reading`. apps: servers. programs: node, state. now: faults and moves that last.
        events: at_s, text. requests: app, node, status, at_s, latency (ms), parts (ms). Unknown values are absent.
        Values are never changed: a state shares unchanged values with the one before.
        """
        return dict(self._content)

    def _add(self, table: str, value: Json) -> None:
        """Add a value to a table of the latest values, without the oldest beyond the limit."""
        self._number += 1
        kept = list(self._content[table].items())[1 - _LATEST :]
        self._content[table] = {**dict(kept), str(self._number): value}


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


def _known(**values: Any) -> Json:
    return {key: value for key, value in values.items() if value is not None}


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def _number(value: Any) -> float | None:
    """Return a finite number or ``None``. Errors: ``ValueError`` for other values."""
    if value is None or (isinstance(value, int | float) and math.isfinite(value)):
        return value
    raise ValueError("no number")


def _text(value: Any) -> str:
    return str(value)[:_TEXT]
