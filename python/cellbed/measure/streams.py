"""Byte streams of TCP connections, rebuilt from the packets that carried them, and flows of datagrams.

A program knows the bytes of each message in its connection; the network knows when each packet entered and left.
Sequence numbers (RFC 9293 §3.4) join the two: byte 0 of a stream has the sequence number after the SYN. For datagrams,
a program knows their numbers: a flow of datagrams is a stream with one byte per datagram.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from cellbed.measure.packets import UDP, Crossings, Integers, Places, home

NEVER = -1
LEAST_FULL, OPTIONS = 1428, 40
"""Minimum payload of a full packet of 1500 bytes, and maximum TCP options in this payload, bytes."""
_AT_ONCE_NS = 500_000
"""Maximum time from an acknowledgement at a sender to the packet that it permits, ns."""


@dataclass(frozen=True, slots=True)
class Connection:
    """One direction of a TCP connection: which packet carried each byte first, and which packet completed each
    prefix.

    opened: when the SYN entered the network, ns; accepted: when the SYN, or its retransmission, left the network, or
    NEVER. bounds: offsets at which any packet begins or ends, ascending (m + 1, or none). Neighbouring bounds enclose a
    piece: all its bytes have the same fate. The other fields have one value per piece (m).
    first: the crossing that carried the piece first, or NEVER. completing: the crossing whose delivery completed the
    stream from byte 0 to the end of the piece, or NEVER. original: the crossing that first carried the bytes delivered
    by `completing`: the same crossing, or a lost packet. begun: since when the sender has had, or may have had, unsent
    bytes without a break: see :func:`_busy_since`. paused: how long the sender had no unsent bytes since it sent byte
    0; paused_original: the same until the packet of `original`.
    """

    opened: int
    accepted: int
    bounds: Integers
    first: Integers
    completing: Integers
    original: Integers
    begun: Integers
    paused: Integers
    paused_original: Integers

    def entry(self, offset: Integers) -> Integers:
        """Return the crossing of the first packet, dropped or not, with the byte at each offset; else NEVER."""
        return self._owner(self.first, offset)

    def completion(self, end: Integers) -> Integers:
        """Return the crossing of the packet that completed each prefix [0, end) at the far end; else NEVER."""
        return self._owner(self.completing, end - 1)

    def original_of(self, end: Integers) -> Integers:
        """Return the crossing that first carried the bytes that completed each prefix [0, end); else NEVER."""
        return self._owner(self.original, end - 1)

    def busy_since(self, offset: Integers) -> Integers:
        """Return since when the sender always had unsent bytes, until it sent the byte at each offset."""
        return self._owner(self.begun, offset)

    def pauses(self, start: Integers, end: Integers) -> Integers:
        """Return how long the sender had nothing to send between the first byte of each range and the first
        transmission of the bytes that completed the range; ns."""
        before, until = self._owner(self.paused, start), self._owner(self.paused_original, end - 1)
        return np.where((before == NEVER) | (until == NEVER), 0, np.maximum(until - before, 0))

    def _owner(self, owner: Integers, offset: Integers) -> Integers:
        found = np.full(len(offset), NEVER, np.int64)
        piece = np.searchsorted(self.bounds, offset, side="right") - 1
        inside = (piece >= 0) & (piece < len(owner))
        found[inside] = owner[piece[inside]]
        return found


class Streams:
    """The TCP connections and the flows of datagrams in a packet log, by node name and the two ports."""

    def __init__(self, crossings: Crossings, moved: Places | None = None) -> None:
        """moved: ends of services that have moved; their connections keep the first end throughout."""
        self.crossings = crossings
        # By node and ports: the node at the other end, and the packets.
        self._from: dict[tuple[str | None, int, int], list[tuple[str | None, Integers]]] = defaultdict(list)
        self._towards: dict[tuple[str | None, int, int], list[tuple[str | None, Integers]]] = defaultdict(list)
        if not len(crossings):
            return
        source, destination = crossings.source, crossings.destination
        if moved is not None:
            source = home(moved, source, crossings.source_port)
            destination = home(moved, destination, crossings.destination_port)
        key = source.astype(np.uint64)
        for part in (destination, crossings.source_port, crossings.destination_port):
            key = (key << np.uint64(16)) | part
        order = np.lexsort((key, crossings.protocol))  # stable: order of entry within a flow
        changes = (np.diff(key[order]) != 0) | (np.diff(crossings.protocol[order]) != 0)
        for rows in np.split(order, np.flatnonzero(changes) + 1):
            one = rows[0]
            ports = int(crossings.source_port[one]), int(crossings.destination_port[one])
            begin, end = (crossings.vertices.get(int(vertex[one])) for vertex in (source, destination))
            self._from[begin, *ports].append((end, rows))
            self._towards[end, *ports].append((begin, rows))

    def connections(
        self, node: str, port: int, other_port: int, peers: Collection[str] = (), *, arriving: bool = False
    ) -> list[Connection]:
        """Return the connections that begin at a port of `node`, or end there (`arriving`), in order of opening.

        other_port: port of the other end. peers: nodes at the other end, if known: the kernel may assign one local
        port to several connections.
        """
        ports = (other_port, port) if arriving else (port, other_port)
        flows, back = (self._towards, self._from) if arriving else (self._from, self._towards)
        answers = dict(back.get((node, *ports[::-1]), []))
        found: list[Connection] = []
        for other, rows in flows.get((node, *ports), []):
            if peers and other not in peers:
                continue
            if self.crossings.protocol[rows[0]] == UDP:
                found.append(_datagrams(self.crossings, rows, arriving=arriving))
            else:
                found += _rebuild(self.crossings, rows, self._acknowledgements(answers.get(other, rows[:0])))
        return sorted(found, key=lambda connection: connection.opened)

    def datagrams(self, node: str, port: int, peers: Collection[str], *, arriving: bool) -> tuple[int, Integers]:
        """Return the flow with most datagrams between a node and a port of one of `peers`: the node's own port, and the
        packets that the node sent, or the arrived packets in order of arrival; (0, none) without such a flow."""
        flows = self._towards if arriving else self._from
        found = [
            (target if arriving else source, rows)
            for (name, source, target), each in flows.items()
            if name == node and (source if arriving else target) == port
            for other, rows in each
            if other in peers and self.crossings.protocol[rows[0]] == UDP
        ]
        own, rows = max(found, key=lambda each: len(each[1]), default=(0, np.empty(0, np.int64)))
        return own, _arrivals(self.crossings, rows) if arriving else rows

    def _acknowledgements(self, rows: Integers) -> Integers:
        """Return the arrival times of packets without payload at the other end, ascending."""
        rows = rows[self.crossings.delivered[rows] & (self.crossings.payload[rows] == 0)]
        return np.sort(self.crossings.left[rows])


def _arrivals(crossings: Crossings, rows: Integers) -> Integers:
    """Return the packets that arrived, in order of arrival."""
    rows = rows[crossings.delivered[rows]]
    return rows[np.argsort(crossings.left[rows], kind="stable")]


def _datagrams(crossings: Crossings, rows: Integers, *, arriving: bool) -> Connection:
    """Return a flow of datagrams as a stream with one byte per datagram.

    arriving: count arrived datagrams in order of arrival, as their receiver numbers them, up to the first datagram
    that the network duplicated; else count all datagrams, as their sender numbers them.
    """
    if arriving:
        rows = _arrivals(crossings, rows)
        rows = rows[: np.argmax(crossings.doubled[rows])] if crossings.doubled[rows].any() else rows
    completing = np.where(crossings.delivered[rows], rows, NEVER)
    bounds = np.arange(len(rows) + 1)
    none = np.zeros(len(rows), np.int64)
    return Connection(NEVER, NEVER, bounds, rows, completing, completing, crossings.entered[rows], none, none)


def _rebuild(crossings: Crossings, rows: Integers, acknowledged: Integers) -> list[Connection]:
    """Return the consecutive connections that used one pair of addresses and ports. acknowledged: times at which the
    sender got acknowledgements."""
    sequence, payload = crossings.sequence[rows].astype(np.int64), crossings.payload[rows]
    # Neighbouring packets of a stream lie less than 2^31 apart, so that signed differences undo the wrap-around.
    step = (np.diff(sequence) + 2**31) % 2**32 - 2**31
    position = np.r_[0, np.cumsum(step)]
    connections = []
    begin = 0
    while begin < len(rows):
        end = next_open(position, payload, begin)
        # Without a SYN in the log, a connection has no known byte 0.
        if _may_open(position, payload, begin):
            offset = position[begin:end] - position[begin] - 1
            connections.append(_connection(crossings, rows[begin:end], offset, payload[begin:end], acknowledged))
        begin = end
    return connections


def next_open(position: Integers, payload: Integers, begin: int) -> int:
    """Return the index of the next SYN after the one at `begin`, or the length.

    The log has no flags. A packet without payload has the number of the next new byte, give or take one (FIN,
    keep-alive: RFC 9293 §3.8.4). Exceptions are a SYN, and a RST, which no packet follows. The packet after a SYN has
    the SYN's number plus one.
    """
    reach = np.maximum.accumulate((position + payload)[begin:])[:-1]
    odd = (payload[begin + 1 :] == 0) & (np.abs(position[begin + 1 :] - reach) > 1)
    for candidate in np.flatnonzero(odd) + begin + 1:
        follower = _follower(position, payload, int(candidate))
        if follower is not None and position[follower] == position[candidate] + 1:
            return int(candidate)
    return len(position)


def _may_open(position: Integers, payload: Integers, begin: int) -> bool:
    """Return whether the first packet may be a SYN. In a log without its oldest records it may be any packet."""
    follower = _follower(position, payload, begin)
    return bool(payload[begin] == 0 and (follower is None or position[follower] == position[begin] + 1))


def _follower(position: Integers, payload: Integers, index: int) -> int | None:
    """Return the index of the next packet that is no retransmission of the packet (no payload) at `index`, or None."""
    later = (payload[index + 1 :] > 0) | (position[index + 1 :] != position[index])
    return int(np.argmax(later)) + index + 1 if later.any() else None


def _connection(
    crossings: Crossings, rows: Integers, offset: Integers, payload: Integers, acknowledged: Integers
) -> Connection:
    opened = int(crossings.entered[rows[0]])
    handshake = rows[(payload == 0) & (offset == -1) & crossings.delivered[rows]]
    accepted = int(crossings.left[handshake].min()) if len(handshake) else NEVER
    data = payload > 0
    rows, start, stop = rows[data], offset[data], (offset + payload)[data]
    bounds = np.unique(np.r_[start, stop])
    pieces = max(len(bounds) - 1, 0)
    if not pieces:
        nothing = np.empty(0, np.int64)
        return Connection(opened, accepted, *[nothing] * 7)

    packet, piece = cut(bounds, start, stop)

    # Assigning in reverse order keeps the first packet of each piece.
    first = np.full(pieces, NEVER, np.int64)
    first[piece[::-1]] = rows[packet[::-1]]

    arrivals = rows[crossings.delivered[rows]]
    arrivals = arrivals[np.argsort(crossings.left[arrivals], kind="stable")]
    rank_of = np.full(len(rows), len(arrivals), np.int64)
    rank_of[np.searchsorted(rows, arrivals)] = np.arange(len(arrivals))
    rank = np.full(pieces, len(arrivals), np.int64)
    np.minimum.at(rank, piece, rank_of[packet])
    # A prefix is complete when the last of its pieces arrives; byte 0 must be in the log.
    latest = np.maximum.accumulate(rank) if bounds[0] == 0 else np.full(pieces, len(arrivals))
    completing = np.r_[arrivals, NEVER][latest]
    came_last = np.maximum.accumulate(np.where(rank == latest, np.arange(pieces), 0))
    original = np.where(completing == NEVER, NEVER, first[came_last])
    busy, pauses = _busy_since(crossings.entered[rows], stop, payload[data], acknowledged)
    sent_first = np.searchsorted(rows, first)
    begun, paused = busy[sent_first], pauses[sent_first]
    return Connection(opened, accepted, bounds, first, completing, original, begun, paused, paused[came_last])


def _busy_since(
    entered: Integers, stop: Integers, payload: Integers, acknowledged: Integers
) -> tuple[Integers, Integers]:
    """Return for each data packet since when its sender has had unsent bytes without a break, and the total time before
    in which the sender had none.

    A packet that is not full empties the sender's buffer. If the next packet immediately follows an acknowledgement,
    the congestion window was full, and the packet's bytes may have waited since the previous packet; if both do, as
    short packets in a recovery from loss, the buffer was not empty.
    """
    brings = np.flatnonzero(stop > np.r_[-1, np.maximum.accumulate(stop)[:-1]])  # no pure retransmissions
    begin = entered[brings]
    full = payload[brings] >= max(payload.max(), LEAST_FULL) - OPTIONS
    last = np.r_[NEVER - _AT_ONCE_NS, acknowledged][np.searchsorted(acknowledged, begin, side="right")]
    before = np.r_[begin[:1], begin[:-1]]
    permitted = begin - last < _AT_ONCE_NS
    opens = np.r_[True, ~(full | (permitted & np.r_[permitted[1:], False]))[:-1]]
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
