"""Byte streams of TCP connections, rebuilt from the packets that carried them, and flows of datagrams.

A program knows the bytes of each message in its connection; the network knows when each packet entered and left.
Sequence numbers (RFC 9293 §3.4) join the two: byte 0 of a stream has the sequence number after the SYN. For datagrams,
a program knows their numbers: a flow of datagrams is a stream with one byte per datagram.
"""

from collections.abc import Collection, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.packets import TCP, UDP, Crossings, Integers, Places, home

NEVER = -1
LEAST_FULL, OPTIONS = 1428, 40
"""Minimum payload of a full packet of 1500 bytes, and maximum TCP options in this payload, bytes."""
LINE = 1 << 40
"""Maximum bytes per stream: offsets of all streams are on one line, each stream behind the previous one."""
_BYTE_0 = LINE // 2
_AT_ONCE_NS = 500_000
"""Maximum time from an acknowledgement at a sender to the packet that it permits, ns."""
ENDS = ("node", "port", "other_port")
"""Columns that name a connection at one of its ends: the node, its port, and the port of the other end."""
_OWNERS = ("first", "completing", "original", "begun", "paused", "paused_original")


class Streams:
    """The directions of TCP connections, and the flows of datagrams, in a packet log.

    opened: by stream, when its SYN entered the network, ns; accepted: when the SYN, or its retransmission, left the
    network, or NEVER. Both are NEVER for datagrams.
    """

    # Offsets at which a packet begins or ends are bounds, ascending over all streams. Between a bound and the next lies
    # a piece: all its bytes have the same fate. `_owners` has a value per piece, NEVER between two streams. first: the
    # crossing that carried the piece first. completing: the crossing whose delivery completed the stream from byte 0 to
    # the end of the piece. original: the crossing that first carried the bytes delivered by `completing`: the same
    # crossing, or a lost packet. begun: since when the sender has had, or may have had, unsent bytes without a break:
    # see `_busy_since`. paused: how long the sender had no unsent bytes until the piece; paused_original: the same
    # until the packet of `original`.

    def __init__(self, crossings: Crossings, moved: Places | None = None) -> None:
        """moved: ends of services that have moved; their connections keep the first end throughout."""
        self.crossings = crossings
        self.opened, self.accepted = np.empty((2, 0), np.int64)
        self._bounds, self._owners = np.empty(0, np.int64), {name: np.empty(0, np.int64) for name in _OWNERS}
        source, destination = crossings.source, crossings.destination
        if moved is not None:
            source = home(moved, source, crossings.source_port)
            destination = home(moved, destination, crossings.destination_port)
        self._ends = source, destination
        one, other = (
            vertex.astype(np.uint64) << np.uint64(16) | port
            for vertex, port in ((source, crossings.source_port), (destination, crossings.destination_port))
        )
        key, back = one << np.uint64(32) | other, other << np.uint64(32) | one
        rows = np.flatnonzero(crossings.protocol == TCP)
        rows = rows[np.argsort(key[rows], kind="stable")]  # stable: order of entry within a flow
        heads = self._rebuild(rows, key[rows], back[rows]) if len(rows) else rows
        self._known = [self._table(heads, towards=towards) for towards in (False, True)]
        self._flows: list[list[Integers]] = [[], []]
        sent = np.flatnonzero(crossings.protocol == UDP)
        if len(sent):
            arrived = sent[crossings.delivered[sent]]
            arrived = arrived[np.argsort(crossings.left[arrived], kind="stable")]
            for towards, rows in enumerate((sent, arrived)):
                rows = rows[np.argsort(key[rows], kind="stable")]
                self._add_datagrams(rows, key[rows], towards=bool(towards))

    def _table(self, heads: Integers, *, towards: bool) -> pl.DataFrame:
        """Return the ends of the latest streams. heads: a crossing of each; towards: the node is the receiver."""
        names = self.crossings.vertices
        nodes = [pl.Series(map(names.get, vertices[heads].tolist()), dtype=pl.String) for vertices in self._ends]
        ports = [getattr(self.crossings, f"{end}_port")[heads].astype(np.int64) for end in ("source", "destination")]
        number = np.arange(len(self.opened))[-len(heads) :] if len(heads) else heads
        return pl.DataFrame(
            {
                **{"node": nodes[towards], "other": nodes[not towards]},
                **{"port": ports[towards], "other_port": ports[not towards]},
                **{"opened": self.opened[number], "stream": number},
            }
        )

    def ends(self, *, towards: bool) -> pl.DataFrame:
        """Return the ends (:data:`ENDS`) of all streams from a node, or to it (`towards`)."""
        return self._known[towards].select(ENDS)

    def find(self, wanted: pl.DataFrame, peers: Mapping[str, Collection[str]], *, towards: bool = False) -> Integers:
        """Return the stream of each row of `wanted`: among those from a port of a node, or to it (`towards`), the last
        one opened until a moment; else NEVER.

        wanted: columns of :data:`ENDS`, and moment. peers: nodes at the other end by node, if
        known: the kernel may assign one local port to several connections.
        """
        pairs = [(node, other) for node, others in peers.items() for other in others]
        named = pl.DataFrame(pairs, {"node": pl.String, "other": pl.String}, orient="row")
        known = self._known[towards]
        known = pl.concat(
            [
                known.join(named, on="node", how="anti", maintain_order="left"),
                known.join(named, on=["node", "other"], how="semi", maintain_order="left"),
            ]
        )
        found = wanted.with_row_index("row").sort("moment")
        found = found.join_asof(
            known.sort("opened", maintain_order=True),
            left_on="moment",
            right_on="opened",
            by=list(ENDS),
            check_sortedness=False,
        )
        return found.sort("row")["stream"].fill_null(NEVER).to_numpy()

    def datagrams(self, node: str, port: int, peers: Collection[str], *, arriving: bool) -> tuple[int, Integers]:
        """Return the flow with most datagrams between a node and a port of one of `peers`: the node's own port, and the
        packets that the node sent, or the arrived packets in order of arrival; (0, none) without such a flow."""
        crossings, names = self.crossings, self.crossings.vertices
        ports = crossings.source_port, crossings.destination_port
        found = [
            (int(ports[arriving][rows[0]]), rows)
            for rows in self._flows[arriving]
            if names.get(int(self._ends[arriving][rows[0]])) == node
            and int(ports[not arriving][rows[0]]) == port
            and names.get(int(self._ends[not arriving][rows[0]])) in peers
        ]
        return max(found, key=lambda each: len(each[1]), default=(0, np.empty(0, np.int64)))

    def entry(self, stream: Integers, offset: Integers) -> Integers:
        """Return the crossing of the first packet, dropped or not, with the byte at each offset; else NEVER."""
        return self._owner("first", stream, offset)

    def completion(self, stream: Integers, end: Integers) -> Integers:
        """Return the crossing of the packet that completed each prefix [0, end) at the far end; else NEVER."""
        return self._owner("completing", stream, end - 1)

    def original_of(self, stream: Integers, end: Integers) -> Integers:
        """Return the crossing that first carried the bytes that completed each prefix [0, end); else NEVER."""
        return self._owner("original", stream, end - 1)

    def busy_since(self, stream: Integers, offset: Integers) -> Integers:
        """Return since when the sender always had unsent bytes, until it sent the byte at each offset."""
        return self._owner("begun", stream, offset)

    def pauses(self, stream: Integers, start: Integers, end: Integers) -> Integers:
        """Return how long the sender had nothing to send between the first byte of each range and the first
        transmission of the bytes that completed the range; ns."""
        before, until = self._owner("paused", stream, start), self._owner("paused_original", stream, end - 1)
        return np.where((before == NEVER) | (until == NEVER), 0, np.maximum(until - before, 0))

    def _owner(self, name: str, stream: Integers, offset: Integers) -> Integers:
        found = np.full(len(offset), NEVER, np.int64)
        wanted = np.flatnonzero((stream != NEVER) & (np.abs(offset) < _BYTE_0))
        piece = np.searchsorted(self._bounds, stream[wanted] * LINE + _BYTE_0 + offset[wanted], side="right") - 1
        inside = piece >= 0
        inside[inside] = self._bounds[piece[inside]] // LINE == stream[wanted][inside]
        found[wanted[inside]] = self._owners[name][piece[inside]]
        return found

    def _rebuild(self, rows: Integers, key: NDArray[np.uint64], back: NDArray[np.uint64]) -> Integers:
        """Add the TCP connections in `rows`, which are by flow and entry; return the first crossing of each.

        key: number of each packet's flow; back: of the flow of the other way.
        """
        crossings = self.crossings
        payload, delivered, left = crossings.payload[rows], crossings.delivered[rows], crossings.left[rows]
        begins = np.r_[True, key[1:] != key[:-1]]
        flow = np.cumsum(begins) - 1
        position = positions(flow, crossings.sequence[rows])
        head = np.flatnonzero(begins | reopenings(flow, position, payload))
        size = np.diff(np.r_[head, len(rows)])
        first = np.repeat(position[head], size)
        # Without a SYN in the log, a connection has no known byte 0.
        usable = _may_open(flow, position, payload, head, (payload > 0) | (position != first))
        offset = position - first - 1
        is_syn = (payload == 0) & (offset == -1) & delivered
        accepted = np.minimum.reduceat(np.where(is_syn, left, np.iinfo(np.int64).max), head)
        accepted[accepted == np.iinfo(np.int64).max] = NEVER
        self.opened, self.accepted = crossings.entered[rows[head[usable]]], accepted[usable]
        stream, data = np.repeat(np.cumsum(usable) - 1, size), (payload > 0) & np.repeat(usable, size)
        answers = (payload == 0) & delivered
        answered = _latest(key[data], crossings.entered[rows[data]], back[answers], left[answers])
        if data.any():
            self._add_pieces(rows[data], stream[data], offset[data], answered)
        return rows[head[usable]]

    def _add_pieces(self, rows: Integers, stream: Integers, offset: Integers, answered: Integers) -> None:
        """Add the packets with data of all TCP connections. answered: time of the sender's latest acknowledgement."""
        crossings, payload = self.crossings, self.crossings.payload[rows]
        begin = stream * LINE + _BYTE_0 + offset
        end = begin + payload
        bounds = np.sort(np.r_[begin, end])  # np.unique takes ten times as long
        bounds = bounds[np.r_[True, bounds[1:] != bounds[:-1]]]
        packet, piece = cut(bounds, begin, end)
        its = bounds // LINE
        # Assigning in reverse order keeps the first packet of each piece.
        bearer = np.full(len(bounds), NEVER, np.int64)
        bearer[piece[::-1]] = packet[::-1]

        arrivals = np.flatnonzero(crossings.delivered[rows])
        arrivals = arrivals[np.argsort(crossings.left[rows[arrivals]], kind="stable")]
        never = len(arrivals)
        rank_of, rank = np.full(len(rows), never, np.int64), np.full(len(bounds), never, np.int64)
        rank_of[arrivals] = np.arange(never)
        np.minimum.at(rank, piece, rank_of[packet])
        # A prefix is complete when the last of its pieces arrives; byte 0 must be in the log.
        rank[np.r_[True, its[1:] != its[:-1]] & (bounds % LINE != _BYTE_0)] = never
        latest = running_max(its, rank)
        completing = np.r_[arrivals, NEVER][latest]
        came_last = np.maximum.accumulate(np.where(rank == latest, np.arange(len(bounds)), 0))
        busy, pauses = _busy_since(stream, crossings.entered[rows], offset + payload, payload, answered)
        sent = np.where(bearer == NEVER, np.searchsorted(stream, its), bearer)
        row_of = np.r_[rows, NEVER]
        owners = {
            "first": row_of[bearer],
            "completing": row_of[completing],
            "original": np.where(completing == NEVER, NEVER, row_of[bearer[came_last]]),
            "begun": busy[sent],
            "paused": pauses[sent],
            "paused_original": pauses[sent[came_last]],
        }
        between = np.r_[its[1:] != its[:-1], True]
        self._bounds, self._owners = bounds, {name: np.where(between, NEVER, each) for name, each in owners.items()}

    def _add_datagrams(self, rows: Integers, key: NDArray[np.uint64], *, towards: bool) -> None:
        """Add flows of datagrams, with one byte per datagram. rows: by flow and number of the datagram; key: of flows.

        towards: count the datagrams as their receiver numbers them, up to the first one that the network duplicated.
        """
        begins = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])[: len(rows)]
        self._flows[towards] = np.split(rows, begins[1:]) if len(rows) else []
        kept = np.ones(len(rows), np.bool_)
        if towards:
            doubled = self.crossings.doubled[rows]
            count = np.cumsum(doubled)
            kept = count == np.repeat((count - doubled)[begins], np.diff(np.r_[begins, len(rows)]))
        rows, key = rows[kept], key[kept]
        if not len(rows):
            return
        begins = np.flatnonzero(np.r_[True, key[1:] != key[:-1]])
        size, first = np.diff(np.r_[begins, len(rows)]), len(self.opened)
        stream, number = np.arange(first, first + len(begins)), np.arange(len(rows)) - np.repeat(begins, size)
        last, line = begins + size, stream * LINE + _BYTE_0
        bounds = np.insert(np.repeat(line, size) + number, last, line + size)
        completing = np.where(self.crossings.delivered[rows], rows, NEVER)
        none = np.zeros(len(rows), np.int64)
        owners = (rows, completing, completing, self.crossings.entered[rows], none, none)
        self._bounds = np.r_[self._bounds, bounds]
        for name, each in zip(_OWNERS, owners, strict=True):
            self._owners[name] = np.r_[self._owners[name], np.insert(each, last, NEVER)]
        unknown = np.full(len(begins), NEVER, np.int64)
        self.opened, self.accepted = np.r_[self.opened, unknown], np.r_[self.accepted, unknown]
        self._known[towards] = pl.concat([self._known[towards], self._table(rows[begins], towards=towards)])


def positions(stream: Integers, sequence: NDArray[np.uint32]) -> Integers:
    """Return sequence numbers without wrap-around, since the first one of their stream. stream: ascending numbers."""
    # Neighbouring packets of a stream lie less than 2^31 apart, so that signed differences undo the wrap-around.
    step = np.diff(sequence, prepend=np.uint32(0)).astype(np.int32).astype(np.int64)
    begins = np.flatnonzero(np.diff(stream, prepend=-1))
    step[begins] = 0
    total = np.cumsum(step)
    return total - np.repeat(total[begins], np.diff(np.r_[begins, len(stream)]))


def running_max(group: Integers, value: Integers) -> Integers:
    """Return the largest value of the group so far; `group` ascends."""
    found: Integers = np.maximum.accumulate(group * LINE + value) - group * LINE
    return found


def reopenings(flow: Integers, position: Integers, payload: Integers) -> NDArray[np.bool_]:
    """Return which packets open a further connection between the same ends. flow: ascending numbers."""
    reach = np.r_[0, running_max(flow, position + payload)[:-1]]
    odd = (payload == 0) & (np.abs(position - reach) > 1) & (np.diff(flow, prepend=-1) == 0)
    found = np.zeros(len(flow), np.bool_)
    for each in np.unique(flow[odd]):
        low, high = np.searchsorted(flow, [each, each + 1])
        begin = 0
        while (begin := _next_open(position[low:high], payload[low:high], begin)) < high - low:
            found[low + begin] = True
    return found


def _next_open(position: Integers, payload: Integers, begin: int) -> int:
    """Return the index of the next SYN after the one at `begin`, or the length.

    The log has no flags. A packet without payload has the number of the next new byte, give or take one (FIN,
    keep-alive: RFC 9293 §3.8.4). Exceptions are a SYN, and a RST, which no packet follows. The packet after a SYN has
    the SYN's number plus one.
    """
    reach = np.maximum.accumulate((position + payload)[begin:])[:-1]
    odd = (payload[begin + 1 :] == 0) & (np.abs(position[begin + 1 :] - reach) > 1)
    for candidate in np.flatnonzero(odd) + begin + 1:
        # The next packet that is no retransmission of this one.
        later = (payload[candidate + 1 :] > 0) | (position[candidate + 1 :] != position[candidate])
        if later.any() and position[int(np.argmax(later)) + candidate + 1] == position[candidate] + 1:
            return int(candidate)
    return len(position)


def _may_open(
    flow: Integers, position: Integers, payload: Integers, head: Integers, later: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return whether the first packet of each connection may be a SYN. In a log without its oldest records it may be
    any packet. head: of each connection; later: packets that do not repeat their connection's first one."""
    end = len(flow)
    follower = np.minimum.reduceat(np.where(later, np.arange(end), end), head)
    following = np.r_[head[1:], end]
    same = np.r_[flow[head[1:]] == flow[head[:-1]], False]
    follower = np.where((follower == end) & same, following, follower)
    follows = position[np.minimum(follower, end - 1)] == position[head] + 1
    found: NDArray[np.bool_] = (payload[head] == 0) & ((follower == end) | follows)
    return found


def _latest(group: NDArray[np.uint64], at: Integers, of_group: NDArray[np.uint64], times: Integers) -> Integers:
    """Return the latest of the `times` of a group until each moment `at` of the group; before all moments if none."""
    order = np.lexsort((np.repeat([0, 1], [len(times), len(at)]), np.r_[times, at], np.r_[of_group, group]))
    place = np.maximum.accumulate(np.where(order < len(times), np.arange(len(order)), 0))
    event = order[place]
    known = (event < len(times)) & (np.r_[of_group, group][event] == np.r_[of_group, group][order])
    found = np.empty(len(order), np.int64)
    found[order] = np.where(known, np.r_[times, at][event], NEVER - _AT_ONCE_NS)
    return found[len(times) :]


def _busy_since(
    stream: Integers, entered: Integers, stop: Integers, payload: Integers, answered: Integers
) -> tuple[Integers, Integers]:
    """Return for each data packet since when its sender has had unsent bytes without a break, and the total time before
    in which the senders had none. stream: ascending numbers; stop: offset of the packet's end; answered: time of the
    sender's latest acknowledgement.

    A packet that is not full empties the sender's buffer. If the next packet immediately follows an acknowledgement,
    the congestion window was full, and the packet's bytes may have waited since the previous packet; if both do, as
    short packets in a recovery from loss, the buffer was not empty.
    """
    begins = np.diff(stream, prepend=-1) != 0
    reach = np.r_[NEVER, running_max(stream, stop)[:-1]]
    brings = np.flatnonzero(stop > np.where(begins, NEVER, reach))  # no pure retransmissions
    heads = np.flatnonzero(begins)
    largest = np.repeat(np.maximum.reduceat(payload, heads), np.diff(np.r_[heads, len(stream)]))
    begin, its = entered[brings], stream[brings]
    full = payload[brings] >= np.maximum(largest[brings], LEAST_FULL) - OPTIONS
    is_first = np.diff(its, prepend=-1) != 0
    before = np.where(is_first, begin, np.r_[begin[:1], begin[:-1]])
    permitted = begin - answered[brings] < _AT_ONCE_NS
    follows = np.r_[permitted[1:] & ~is_first[1:], False][: len(its)]
    opens = is_first | ~np.r_[False, (full | (permitted & follows))[:-1]][: len(its)]
    could = np.where(permitted, before, begin)
    since, pauses = np.full((2, len(stop)), NEVER, np.int64)
    since[brings] = could[np.maximum.accumulate(np.where(opens, np.arange(len(brings)), 0))]
    pauses[brings] = np.cumsum(np.where(opens, could - before, 0))
    return since, pauses


def cut(bounds: Integers, start: Integers, stop: Integers) -> tuple[Integers, Integers]:
    """Return the pieces between `bounds` that each packet carries, with the bytes from `start` to `stop`: (packet,
    piece).

    Usually one piece per packet; more if a retransmission was segmented differently.
    """
    lowest, highest = np.searchsorted(bounds, start), np.searchsorted(bounds, stop)
    count = highest - lowest
    packet = np.repeat(np.arange(len(start)), count)
    return packet, np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(lowest, count)
