"""The policies of a run. Their inputs are read step by step, and each policy decides once a second."""

from __future__ import annotations

import contextlib
import gc
import json
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed.runformat.description import ANSWERED
from cellbed.runformat.records import REQUESTS
from cellbed.scenario.migrations import Migration, candidates, client_group
from cellbed.scenario.policies import AnyPolicy
from cellbed.scenario.policies.policy import HISTORY_S, MOST_REPLIES, Decide, Reply, Sample, State
from cellbed.scenario.sites import sites_of
from cellbed.support.errors import CellbedError
from cellbed.testbed.migration.migrations import STEP_NS, Migrations
from cellbed.testbed.plan import Plan
from cellbed.testbed.programs.unmodified import FOREVER_NS
from cellbed_node import inputs

EVERY_NS = 1_000_000_000
"""Interval between two decisions."""
CHUNK_BYTES = 1 << 16
"""Maximum bytes of a record read per step: about 3 ms of work."""


@dataclass
class _Watched:
    """A service with a policy. sites: sites of its endpoints, with begins (ns). records: the endpoints' records, with
    the bytes already read. decide: ``None`` after an error. place, since_s: present node, and the time of its arrival.
    rests_until_s: earliest time of a migration."""

    table: Migration
    policy: AnyPolicy
    decide: Decide | None
    nodes: Mapping[str, str | None]
    sites: list[tuple[int, str | None]]
    records: dict[str, tuple[Path, int]]
    place: str
    since_s: float = 0.0
    rests_until_s: float = 0.0
    is_heard: bool = False
    replies: deque[Reply] = field(default_factory=lambda: deque(maxlen=MOST_REPLIES))


class Policies:
    """The policies of a run. Make it before programs start; then :meth:`schedule`, and call :meth:`step` while it runs.

    raw: folder with the clients' records. counters: returns the counters of each direction. alarms: the supervisor's.
    warnings: the report's. Errors: :class:`CellbedError` if a user's function cannot be loaded.
    """

    def __init__(
        self,
        plan: Plan,
        migrations: Migrations,
        raw: Path,
        counters: Callable[[], Mapping[str, dict[str, Any]]],
        alarms: dict[str, int],
        warnings: list[str],
    ) -> None:
        self._migrations, self._counters, self._alarms = migrations, counters, alarms
        self._journal, self._warnings = migrations.journal, warnings
        self._samples: dict[str, deque[Sample]] = {}
        self._t0_ns, self._until_ns, self._next_ns = 0, 0, FOREVER_NS
        self._round: Generator[None, None, None] | None = None
        self._watched: list[_Watched] = []
        scenario = plan.scenario
        for each in scenario.migrations:
            if each.policy is not None:
                application = scenario.applications[each.app]
                group = client_group(application, scenario.nodes)
                clients = [node.name for node in plan.nodes_of_group(group)] if group is not None else []
                watched = _Watched(
                    table=each,
                    policy=each.policy,
                    decide=each.policy.decider(),
                    nodes=candidates(each, scenario.nodes, application),
                    sites=sites_of(scenario.cells, scenario.nodes[group]) if group is not None else [],
                    records={name: (raw / f"{each.app}.{name}.{REQUESTS}", 0) for name in clients},
                    place=migrations.place(each.app),
                )
                self._watched.append(watched)
        if self._watched:
            # Freeze existing objects: while replies are kept, each collection would scan everything, for tens of ms.
            gc.collect()
            gc.freeze()

    def schedule(self, t0_ns: int, until_ns: int) -> None:
        """Decide each second after monotonic time `t0_ns`, until `until_ns`."""
        if self._watched:
            self._t0_ns, self._until_ns, self._next_ns = t0_ns, until_ns, t0_ns + EVERY_NS
            self._alarms["policies"] = self._next_ns

    def step(self) -> None:
        """Do due work, for a few milliseconds."""
        now = time.monotonic_ns()
        if self._round is None and now >= self._next_ns:
            after = now - (now - self._t0_ns) % EVERY_NS + EVERY_NS
            self._next_ns = after if after < self._until_ns else FOREVER_NS
            self._round = self._decisions()
        if self._round is not None:
            try:
                next(self._round)
                self._alarms["policies"] = now + STEP_NS
            except StopIteration:
                self._round, self._alarms["policies"] = None, self._next_ns

    def close(self) -> None:
        """Warn of policies that had no replies to decide by."""
        for each in self._watched:
            if each.policy.HEARS and self._until_ns and not each.is_heard:
                self._warnings.append(f"the policy of '{each.table.app}' has seen no reply, and decided nothing")

    @property
    def _now_s(self) -> float:
        return (time.monotonic_ns() - self._t0_ns) / 1e9

    def _decisions(self) -> Generator[None, None, None]:
        if any(each.policy.SEES_LINKS for each in self._watched):
            for name, found in self._counters().items():
                delay_s = found["delay_ns"]["mean"] / 1e9 if found["delay_ns"] else None
                counts = found["queue_bytes"], found["delivered_bytes"], found.get("closed", False)
                samples = self._samples.setdefault(name, deque(maxlen=HISTORY_S))
                samples.append(Sample(self._now_s, delay_s, *counts))
        for each in self._watched:
            yield from self._read(each)
            app, now_s = each.table.app, self._now_s
            if self._migrations.is_moving(app) or each.place != self._migrations.place(app):
                each.place, each.since_s = self._migrations.place(app), now_s
                each.rests_until_s = now_s + each.policy.rest / 1e9
                each.replies.clear()
            elif each.decide is not None and now_s >= each.rests_until_s:
                self._decide(each, each.decide, now_s)
            yield

    def _decide(self, each: _Watched, decide: Decide, now_s: float) -> None:
        app, kind = each.table.app, each.policy.kind
        site = next((site for at, site in reversed(each.sites) if at <= now_s * 1e9), None)
        state = State(
            now_s,
            each.place,
            each.since_s,
            each.nodes,
            dict.fromkeys(each.records, site),
            [reply for reply in each.replies if reply.time_s > now_s - HISTORY_S],
            {name: list(samples) for name, samples in self._samples.items()},
        )
        try:
            decision = decide(state)
        except CellbedError as error:
            each.decide = None
            text = f"the policy of '{app}' has failed at {now_s:.1f} s, and '{app}' stays on {each.place}: {error}"
            self._warnings.append(text)
            self._journal.note("policy failed", app, reason=str(error), kind=kind)
            return
        if decision is not None and decision[0] != each.place:
            node, reason = decision
            each.since_s, each.rests_until_s = now_s, now_s + each.policy.rest / 1e9
            self._journal.note("move decided", f"{app} to {node}", reason=reason, kind=kind)
            self._migrations.begin(each.table.model_copy(update={"to": node, "policy": None}), reason=reason)

    def _read(self, each: _Watched) -> Generator[None, None, None]:
        """Read the clients' new records."""
        for name, (path, read) in each.records.items():
            with contextlib.suppress(FileNotFoundError), inputs.open_file(path) as file:
                file.seek(read)
                while lines := file.read(CHUNK_BYTES):
                    lines += file.readline()
                    whole = lines.rfind(b"\n") + 1  # the last line may not be complete yet
                    replies = [reply for line in lines[:whole].splitlines() if (reply := self._reply(line)) is not None]
                    each.replies += replies
                    each.is_heard = each.is_heard or bool(replies)
                    read += whole
                    yield
                    if whole < len(lines):
                        break
                each.records[name] = path, read

    def _reply(self, line: bytes) -> Reply | None:
        """Return the reply in a line of a record, if it is a good one."""
        with contextlib.suppress(ValueError, LookupError, TypeError):
            found = json.loads(line)
            if found["status"] in ANSWERED:
                latency_s = (found["reply_ns"] - found["intended_ns"]) / 1e9
                return Reply((found["reply_ns"] - self._t0_ns) / 1e9, latency_s, found["endpoint"])
        return None
