"""Requests that programs report: find the connection of each request in the packet log, and divide its time.

Only the begin and the end of a request are known. In between, bytes went to the server and back on a connection of
the client's node. The best match is the connection with the first byte soonest after the begin and the last byte latest
before the end. Requests that end first choose first, and a burst belongs to one request. If a request has no
connection, it takes the connection of another request that also fits a free connection. If the log does not decide
(another connection fits as well, or requests share a connection, as with HTTP/2), a request has no parts.
A request that may end early, with the headers of its reply, ends with the reply's last byte instead. This is the last
byte before the next request of the connection, or before the end of the connection.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.connections import BURST
from cellbed.measure.packets import Integers
from cellbed.measure.streams import NEVER

TOLERANCE_NS = 1_000_000
"""Maximum difference between stamps of a program and of the packet log."""
DECISIVE = 4
"""Minimum ratio between the misfits of the second best connection and the best."""
MOST_TRIED = 16
"""Maximum number of requests considered for another connection to make room for one request."""
SHARED = 0.1
"""Maximum share of a connection's requests that seem to share it; above, all overlapping requests count as sharing."""
ACKNOWLEDGEMENT = 48
"""Maximum bytes of a burst to the server that is no request: an HTTP/2 acknowledgement, also over TLS."""
FAREWELL, FAREWELL_NS = 100, 1_000_000_000
"""Maximum bytes of the message that closes TLS, and minimum pause before this message."""
SHARES = "shares its connection with other requests, as with HTTP/2"
SEVERAL = "several connections fit"
ELSEWHERE = "no TCP connection of its node goes to its server and port"
UNFINISHED = "it ends before its reply has arrived"
NOTHING = "no bytes over TCP went and came during it"
_TO_SERVER, _TO_CLIENT = 0, 1
_UNDER_WAY = ("sending", "resent", "queued", "delayed", "late")


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests, one entry each, ns. certain: it used a connection. early: it may end with the headers of its reply;
    secure: over TLS. app: application of its program; server, port: the other end, if known."""

    begin: Integers
    end: Integers
    certain: NDArray[np.bool_]
    early: NDArray[np.bool_]
    secure: NDArray[np.bool_]
    app: Sequence[str | None]
    server: Sequence[str | None]
    port: Sequence[int | None]


class Bursts:
    """Bursts, connection by connection: the fields of :data:`~cellbed.measure.connections.BURST` as arrays.

    connection: row of the connection of each burst; lowest: first burst of each connection. opened, server, port: of
    each connection.
    """

    def __init__(self, connections: pl.DataFrame) -> None:
        flat = connections.select("bursts").with_row_index("connection").explode("bursts").drop_nulls().unnest("bursts")
        self.connection = flat["connection"].to_numpy().astype(np.int64)
        self.fields: dict[str, Integers] = {name: flat[name].to_numpy() for name in BURST}
        self.way, self.begin, self.wrote, self.heard, self.until = (
            self.fields[name] for name in ("way", "begin", "wrote", "heard", "until")
        )
        self.inner = self._inner()
        self.lowest = np.searchsorted(self.connection, np.arange(len(connections)))
        self.opened = connections["opened_ns"].to_numpy()
        self.server: list[str | None] = connections["server"].to_list()
        self.port: list[int] = connections["server_port"].to_list()

    def _inner(self) -> dict[str, Integers]:
        """Return the fields of bursts that precede another burst of the same message: their time is transport. An end
        that sends again after a packet that was not full had nothing to send in between."""
        fields, idle = dict(self.fields), self.fields["idle"]
        goes_on = np.r_[(self.way[1:] == self.way[:-1]) & (self.connection[1:] == self.connection[:-1]), False]
        goes_on = goes_on[: len(self.way)]
        whole = sum(fields[name] for name in (*_UNDER_WAY, "other", "acknowledged", "waiting"))
        passing = fields["sending"] + np.where(goes_on, fields["queued"] + fields["delayed"], 0)
        for name in ("queued", "delayed"):
            fields[name] = np.where(goes_on, 0, fields[name])
        for name in ("resent", "late", "other", "acknowledged"):
            fields[name] = np.where(idle > 0, 0, fields[name])
        fields["sending"] = np.where(idle > 0, whole - idle, passing)
        fields["waiting"] = np.where(idle > 0, idle, fields["waiting"])
        return fields

    def replies(self, *, secure: bool) -> Integers:
        """Return for each burst the last burst of its reply."""
        index, size = np.arange(len(self.way)), self.fields["bytes"]
        opens = np.r_[True, np.diff(self.connection) != 0][: len(index)]
        limits = np.flatnonzero(opens | ((self.way == _TO_SERVER) & (size > ACKNOWLEDGEMENT)))
        following = np.r_[limits, len(index)][np.searchsorted(limits, index, "right")]
        pause = self.begin - np.r_[0, self.until[:-1]][: len(index)]
        ends = np.r_[opens[1:], True][: len(index)] & (size <= FAREWELL) & (pause >= FAREWELL_NS) & ~opens
        mine = (self.way == _TO_CLIENT) & ~(ends & secure)
        found: Integers = np.maximum.accumulate(np.where(mine, index, 0))[following - 1]
        return np.maximum(found, index)

    def sent(self, burst: int, begin: int) -> int:
        """Return when a request that began at `begin` began the burst, which may have begun earlier for another."""
        return int(self.begin[burst] if self.begin[burst] >= begin - TOLERANCE_NS else self.wrote[burst])


def match(asked: Asked, bursts: Bursts) -> tuple[Integers, Integers, list[str | None]]:
    """Return the first and the last burst of each request, NEVER if it cannot be assigned, and the reason. Pure.

    bursts: bursts of the connections that the node of all these requests opened.
    """
    search = _Search(asked, bursts)
    search.assign()
    if len(set(asked.app)) > 1:  # a connection belongs to one program
        search.assign(search.programs())
    first, last, has = search.first, search.last, search.first != NEVER
    end = np.where(has & asked.early, np.maximum(asked.end, bursts.until[last] if has.any() else 0), asked.end)
    shares = np.zeros(len(first), np.bool_)
    for request in np.flatnonzero(~has & asked.certain).tolist():
        shares[search.overlapping_requests(request)] = True
    for one, other in _neighbours(first, bursts):
        own = slice(first[one], last[one] + 1)
        if asked.begin[other] < bursts.until[last[one]]:  # `other` waited for the connection, or shares it
            wrote = np.where(bursts.way[own] == _TO_SERVER, bursts.wrote[own], 0)
            shares[[one, other]] |= (wrote > max(asked.begin[other], bursts.begin[first[one]])).any()
        if asked.early[one]:  # bytes after `other` was sent, or sent before `one` arrived, do not belong to `one`
            sent, answer = bursts.sent(int(first[other]), int(asked.begin[other])), int(first[other]) + 1
            answers = bursts.begin[answer : last[other] + 1][bursts.way[answer : last[other] + 1] == _TO_CLIENT]
            mixed = bursts.until[last[one]] > sent or answers[0] < bursts.heard[first[other]]
            shares[[one, other]] |= mixed
    of_request = np.where(has, bursts.connection[first] if has.any() else NEVER, NEVER)
    for connection in np.unique(of_request[shares & has]):
        own = of_request == connection
        if shares[own].mean() > SHARED:
            others = own | (~has & asked.certain)
            begun = np.searchsorted(np.sort(asked.begin[others]), end[own])
            shares[own] |= begun - np.searchsorted(np.sort(end[others]), asked.begin[own], "right") > 1
    why: list[str | None] = [None] * len(first)
    shared = set(of_request[shares].tolist())
    for request in range(len(first)):
        if not has[request]:
            why[request] = search.obstacle(request, shared)
        elif shares[request]:
            why[request] = SHARES
        else:
            limit = DECISIVE * search.cost[request] + TOLERANCE_NS**2
            if any(rival <= limit for rival, *_ in search.candidates(request)) or search.exchangeable(request):
                why[request] = SEVERAL
    unclear = np.array([each is not None for each in why], np.bool_)
    return np.where(unclear, NEVER, first), np.where(unclear, NEVER, last), why


def _neighbours(first: Integers, bursts: Bursts) -> Iterator[tuple[int, int]]:
    """Yield pairs of consecutive requests on one connection."""
    assigned = np.flatnonzero(first != NEVER)
    for one, other in pairwise(assigned[np.argsort(first[assigned], kind="stable")].tolist()):
        if bursts.connection[first[one]] == bursts.connection[first[other]]:
            yield one, other


class _Search:
    """A search for bursts. first, last: bursts of each request; cost: misfit. owner: request per burst, or NEVER."""

    def __init__(self, asked: Asked, bursts: Bursts) -> None:
        self._asked, self._bursts = asked, bursts
        down = np.flatnonzero(bursts.way == _TO_CLIENT)
        self._down: dict[bool, tuple[Integers, Integers]] = {}
        for early, arrived in ((False, bursts.until), (True, bursts.heard)):
            ordered = down[np.argsort(arrived[down], kind="stable")]
            self._down[early] = ordered, arrived[ordered]
        self._last = {secure: bursts.replies(secure=secure) for secure in (False, True)}
        self._peers = set(zip(bursts.server, bursts.port, strict=True))

    def assign(self, programs: Mapping[int, str] | None = None) -> None:
        """Assign bursts to requests. programs: applications of connections, if known."""
        self._programs = programs or {}
        self.owner = np.full(len(self._bursts.way), NEVER, np.int64)
        self.first, self.last = np.full((2, len(self._asked.begin)), NEVER, np.int64)
        self.cost = np.zeros(len(self.first))
        for request in np.argsort(self._asked.end, kind="stable").tolist():
            if not self._place(request):
                self._make_room(request, {request})

    def _place(self, request: int) -> bool:
        """Assign the free bursts that fit a request best. Return whether there are such bursts."""
        best = min(self.candidates(request), default=None)
        if best is not None:
            self.cost[request], self.first[request], self.last[request] = best
            self.owner[self.first[request] : self.last[request] + 1] = request
        return best is not None

    def _make_room(self, request: int, tried: set[int]) -> bool:
        """Take the bursts of another request that fits other bursts (Kuhn's algorithm). Return whether it succeeded."""
        for other in self.overlapping_requests(request).tolist():
            if other in tried or len(tried) > MOST_TRIED:
                continue
            tried.add(other)
            kept = self.cost[other], self.first[other], self.last[other]
            self.owner[kept[1] : kept[2] + 1] = NEVER
            if self._place(request):
                if self._place(other) or self._make_room(other, tried):
                    return True
                self.owner[self.first[request] : self.last[request] + 1] = NEVER
                self.first[request] = self.last[request] = NEVER
            self.cost[other], self.first[other], self.last[other] = kept
            self.owner[kept[1] : kept[2] + 1] = other
        return False

    def programs(self) -> dict[int, str]:
        """Return for each connection the application with most requests on it."""
        counts: dict[int, Counter[str]] = {}
        for request in np.flatnonzero(self.first != NEVER).tolist():
            of = int(self._bursts.connection[self.first[request]])
            counts.setdefault(of, Counter())[self._asked.app[request] or ""] += 1
        return {connection: app for connection, each in counts.items() if (app := each.most_common(1)[0][0])}

    def exchangeable(self, request: int) -> bool:
        """Return whether a request that may end early and another request fit each other's bursts as well."""
        asked = self._asked
        replies = self._replies(int(asked.begin[request]), int(asked.end[request]), early=True)
        others = set(self.owner[replies].tolist()) - {NEVER, request} if asked.early[request] else ()
        for other in others:
            spans = [slice(self.first[each], self.last[each] + 1) for each in (request, other)]
            for span in spans:
                self.owner[span] = NEVER
            costs = [
                min((cost for cost, at, _ in self.candidates(one) if span.start <= at < span.stop), default=np.inf)
                for one, span in zip((request, other), reversed(spans), strict=True)
            ]
            self.owner[spans[0]], self.owner[spans[1]] = request, other
            if sum(costs) <= DECISIVE * (self.cost[request] + self.cost[other]) + TOLERANCE_NS**2:
                return True
        return False

    def candidates(self, request: int) -> Iterator[tuple[float, int, int]]:
        """Yield candidate connections: misfit, first and last free burst."""
        asked, bursts = self._asked, self._bursts
        begin, end, early = int(asked.begin[request]), int(asked.end[request]), bool(asked.early[request])
        arrived = bursts.heard if early else bursts.until
        replies = self._replies(begin, end, early=early)
        replies = replies[self.owner[replies] == NEVER]
        for connection in np.unique(bursts.connection[replies]):
            if not self._fits(request, connection):
                continue
            its = replies[bursts.connection[replies] == connection]
            in_time = its[arrived[its] <= end]
            last = latest = int((in_time if len(in_time) else its).max())
            if early:
                last = int(self._last[bool(asked.secure[request])][latest])
            lowest = int(bursts.lowest[connection])
            low = self._low(lowest, latest, begin - TOLERANCE_NS)
            taken = np.flatnonzero(self.owner[low : last + 1] != NEVER)
            low += int(taken[-1]) + 1 if len(taken) else 0
            sent = np.flatnonzero(bursts.way[low:latest] == _TO_SERVER)
            if not len(sent):
                continue
            first = low + int(sent[0])
            opened = int(bursts.opened[connection])
            since = opened if first == lowest and opened >= begin - TOLERANCE_NS else bursts.sent(first, begin)
            after = min(abs(float(end - at)) for at in (arrived[latest], bursts.until[last]))
            yield float(max(since - begin, 0)) ** 2 + after**2, first, last

    def obstacle(self, request: int, shared: set[int]) -> str:
        """Return why a request has no connection. shared: connections with several requests at a time."""
        asked, bursts = self._asked, self._bursts
        if not any(self._reaches(request, *peer) for peer in self._peers):
            return ELSEWHERE
        if len(self.overlapping_requests(request)):
            return SHARES
        begin, end = int(asked.begin[request]), int(asked.end[request])
        heard = self._replies(begin, end, early=True)
        late = bursts.connection[heard[bursts.until[heard] > end + TOLERANCE_NS]].tolist()
        fitting = {each for each in late if self._fits(request, each)}
        return SHARES if fitting & shared else UNFINISHED if fitting else NOTHING

    def overlapping_requests(self, request: int) -> Integers:
        """Return the requests whose bursts this request may have used: bursts to and from the server fall within it."""
        asked, bursts = self._asked, self._bursts
        begin, end = int(asked.begin[request]), int(asked.end[request])
        replies = self._replies(begin, end, early=bool(asked.early[request]))
        found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for connection in np.unique(bursts.connection[replies]):
            its = replies[bursts.connection[replies] == connection]
            lowest = int(bursts.lowest[connection])
            low = self._low(lowest, int(its.max()), begin - TOLERANCE_NS)
            if self._fits(request, connection) and (bursts.way[low : its.max()] == _TO_SERVER).any():
                found.append(self.owner[low : its.max() + 1])
        owners: Integers = np.unique(np.concatenate(found))
        own: Integers = owners[owners != NEVER]
        return own

    def _low(self, lowest: int, last: int, begin: int) -> int:
        """Return the first burst of a connection with a write since `begin`."""
        low = lowest + int(np.searchsorted(self._bursts.begin[lowest:last], begin))
        return low - 1 if low > lowest and self._bursts.wrote[low - 1] >= begin else low

    def _replies(self, begin: int, end: int, *, early: bool) -> Integers:
        """Return bursts to the client that began after `begin` and arrived by `end`; early: first packets only."""
        down, arrived = self._down[early]
        low, high = np.searchsorted(arrived, (begin, end + TOLERANCE_NS + 1))
        replies: Integers = down[low:high]
        found: Integers = replies[
            (self._bursts.begin[replies] >= begin - TOLERANCE_NS) & (self._bursts.begin[replies] < end)
        ]
        return found

    def _fits(self, request: int, connection: int) -> bool:
        own = self._programs.get(int(connection)) in (None, self._asked.app[request])
        return own and self._reaches(request, self._bursts.server[connection], self._bursts.port[connection])

    def _reaches(self, request: int, server: str | None, port: int) -> bool:
        asked = self._asked
        return asked.server[request] in (None, server) and asked.port[request] in (None, port)


def attach(requests: pl.DataFrame, connections: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Add to requests their connection and the durations of :data:`~cellbed.runformat.spans.REPORTED`, or the reason
    why there are none (`unassigned`). Return the requests and the times at which each waited for its server. Pure.

    requests: with ``app``, ``begin_ns`` and ``reply_ns``, perhaps ``certain``, ``early``, ``secure``, ``peer`` and
    ``peer_port``, as in :class:`Asked`. Requests without a reply get nothing. A request that ended before its reply
    gets the end of the reply as ``reply_ns``, and its own duration as ``span_s``.
    connections: the table of `read_connections` with bursts, without those that carried other requests.
    """
    flags = dict.fromkeys(("certain", "early", "secure"), pl.Boolean)
    known = {**flags, "peer": pl.String, "peer_port": pl.Int64}
    missing = [pl.lit(None, kind).alias(name) for name, kind in known.items() if name not in requests.columns]
    requests = requests.with_columns(missing).with_columns(
        pl.coalesce("certain", pl.col("status") == "ok"), pl.col("early", "secure").fill_null(False)
    )
    numbered = requests.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))
    talked = connections.filter(protocol="tcp").drop_nulls("bursts")
    found, waits = [numbered.select("row").clear()], [pl.DataFrame(schema=_WAIT)]
    for (node,), group in numbered.drop_nulls("reply_ns").group_by("endpoint", maintain_order=True):
        of_node = talked.filter(client=str(node))
        bursts = Bursts(of_node)
        asked = Asked(
            group["begin_ns"].to_numpy(),
            group["reply_ns"].to_numpy(),
            group["certain"].to_numpy(),
            group["early"].to_numpy(),
            group["secure"].to_numpy(),
            group["app"].to_list(),
            group["peer"].to_list(),
            group["peer_port"].to_list(),
        )
        first, last, why = match(asked, bursts)
        found.append(group.select("row", unassigned=pl.Series(why, dtype=pl.String)).drop_nulls())
        rows = np.flatnonzero(first != NEVER)
        if len(rows):
            chosen = group.select("row", "begin_ns", "reply_ns", "early")[rows]
            ends = of_node[bursts.connection[first[rows]]]
            found.append(_durations(chosen, ends, bursts, first[rows], last[rows]))
            waits.append(_waits(chosen["row"].to_numpy(), ends, bursts, first[rows], last[rows]))
    attached = pl.concat(found, how="diagonal")
    taken = [name for name in attached.columns if name != "row" and name in requests.columns]
    whole = numbered.drop(*taken, *known).join(attached, on="row", how="left", maintain_order="left")
    absent = [pl.lit(None, kind).alias(name) for name, kind in _FOUND.items() if name not in whole.columns]
    own = (pl.col("reply_ns") - pl.col("begin_ns")).cast(pl.Float64) / 1e9
    whole = whole.with_columns(absent).with_columns(
        pl.coalesce("replied_ns", "reply_ns").alias("reply_ns"),
        span_s=pl.when(pl.col("replied_ns").is_not_null()).then(own),
    )
    return whole.drop("row", "replied_ns"), pl.concat(waits)


_WAIT = {"number": pl.Int64, "client": pl.String, "client_port": pl.Int64, "low": pl.Int64, "high": pl.Int64}
_DURATIONS = (
    *("before_ns", "connect_up_ns", "connect_remote_ns", "connect_down_ns", "served_ns", "between_ns", "after_ns"),
    *(f"{way}_{name}_ns" for way in ("uplink", "downlink") for name in _UNDER_WAY[:-1]),
)
_FOUND = {
    **dict.fromkeys(("server", "unassigned"), pl.String),
    **dict.fromkeys(
        ("replied_ns", "local_port", "remote_port", "uplink_entered_ns", "downlink_left_ns", *_DURATIONS), pl.Int64
    ),
}


def _durations(
    requests: pl.DataFrame, ends: pl.DataFrame, bursts: Bursts, first: Integers, last: Integers
) -> pl.DataFrame:
    """Return the columns of :data:`_FOUND`. requests: row, begin and reply of each; ends: its connection."""
    begin, end = requests["begin_ns"].to_numpy(), requests["reply_ns"].to_numpy()
    went_on = requests["early"].to_numpy() & (bursts.until[last] > end + TOLERANCE_NS)
    end = np.where(went_on, bursts.until[last], end)
    inner, to_server = bursts.inner, bursts.way == _TO_SERVER
    sends_next = np.r_[bursts.way[1:], NEVER][: len(bursts.way)]

    def spent(value: Integers, mask: NDArray[np.bool_]) -> Integers:
        """Return the sum from the first burst of each request to the last but one."""
        total: Integers = np.r_[0, np.cumsum(np.where(mask, value, 0))]
        return total[last] - total[first]

    entered, left = bursts.begin[first], bursts.until[last]
    sent: Integers = np.where(entered >= begin - TOLERANCE_NS, np.maximum(entered, begin), bursts.wrote[first])
    found: dict[str, Any] = {
        "served_ns": spent(inner["waiting"], sends_next == _TO_CLIENT),
        "between_ns": spent(inner["waiting"], sends_next == _TO_SERVER),
    }
    for way, mine in (("uplink", to_server), ("downlink", ~to_server)):
        for name in _UNDER_WAY[:-1]:
            found[f"{way}_{name}_ns"] = spent(inner[name], mine) + bursts.fields[name][last] * mine[last]
        found[f"{way}_sending_ns"] += spent(inner["acknowledged"], mine) + spent(inner["other"], ~mine)
    # Lateness of the program's stamps relative to the packet, and time of the last burst after the next one began.
    late = spent(inner["late"], bursts.way != NEVER) + bursts.fields["late"][last]
    rest = left - entered - late - sum(found.values())
    found["uplink_sending_ns"] += entered - sent
    found["downlink_sending_ns"] += rest + np.minimum(end - left, 0)

    stamps = [
        ends[name].fill_null(NEVER).to_numpy() for name in ("opened_ns", "syn_left_ns", "answered_ns", "connected_ns")
    ]
    opens = (np.min(stamps, axis=0) >= begin - TOLERANCE_NS) & (stamps[-1] <= entered)
    opens &= first == bursts.lowest[bursts.connection[first]]
    steps = ("connect_up_ns", "connect_remote_ns", "connect_down_ns")
    for name, since, until in zip(steps, stamps, stamps[1:], strict=False):
        found[name] = np.where(opens, until - since, 0)
    found["before_ns"] = sent - begin - sum(found[name] for name in steps)
    found["after_ns"] = np.maximum(end - left, 0)
    return requests.select("row").with_columns(
        server=ends["server"],
        replied_ns=pl.Series(end).set(pl.Series(~went_on), None),
        local_port=ends["client_port"],
        remote_port=ends["server_port"],
        uplink_entered_ns=pl.Series(sent),
        downlink_left_ns=pl.Series(left),
        **{name: pl.Series(value) for name, value in found.items()},
    )


def _waits(rows: Integers, ends: pl.DataFrame, bursts: Bursts, first: Integers, last: Integers) -> pl.DataFrame:
    """Return the times at which each request waited for its server, in the columns of :data:`_WAIT`. rows: requests."""
    count = last - first
    request = np.repeat(np.arange(len(rows)), count)
    reply = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum()) + 1
    of_server = bursts.way[reply] == _TO_CLIENT
    request, reply = request[of_server], reply[of_server]
    ports = ends.select("client", "client_port")[request]
    high = bursts.begin[reply]
    return (
        pl.DataFrame({"number": rows[request], "low": high - bursts.inner["waiting"][reply - 1], "high": high})
        .with_columns(client=ports["client"], client_port=ports["client_port"])
        .select(_WAIT.keys())
    )
