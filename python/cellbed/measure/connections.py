"""Connections: what the packet log shows of every TCP connection and UDP flow of any program.

The time of a connection, from its first packet to its last byte, is divided into parts that add up. At each moment
either data is on the way to one end, or the connection waits for one end to send. So the log alone shows how long a
client waited for a server, and a server for its client, without any change to either. Packets of new data in one
direction, without a pause and without data in the other direction, are a *burst*. A burst is under way from the entry
of its first packet until all its bytes have arrived. Queueing and delay of the packet that completed the burst are
parts of this time. The rest is transport: sending packets, the congestion window, retransmissions, a proxy. The time
until the next burst belongs to the end that sends the next burst. If the same end sends again, the time until an
acknowledgement can have reached this end is transport. If a burst begins before the previous burst of the other
direction is complete, the previous burst counts until then.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cellbed.measure.packets import TCP, UDP, Crossings, Integers, join_group, make_groups, packet_parts
from cellbed.measure.run_folder import applications_of, clocks
from cellbed.measure.services import divide_connections
from cellbed.measure.statistics import as_number
from cellbed.measure.streams import LEAST_FULL, LINE, NEVER, OPTIONS, cut, positions, reopenings, running_max
from cellbed.runformat.description import Description, Timed
from cellbed.runformat.spans import SERVICE

WAYS = ("to_server", "to_client")
PARTS = (
    "connect",
    "client",
    *(f"{WAYS[0]}_{what}" for what in ("transport", "queue", "delay")),
    "server",
    *(f"{WAYS[1]}_{what}" for what in ("transport", "queue", "delay")),
)
"""Parts of the time of a connection: the handshake, waiting for the client to send, data under way to the server,
waiting for the server, data under way to the client. Columns ``part_<name>``, seconds."""

_GROUP = 1 << 18
"""Number of records analysed at a time (about 0.1 GB); more if a single connection has more."""
_AT_ONCE = 6
"""Number of groups read from the log at once."""
_ALWAYS = -1
"""Time stamp before all packets, ns."""
_CLOCKS_NS = 1_000_000_000
"""Maximum difference between clocks of nodes; a port is not used again within this time."""

SCHEMA: dict[str, Any] = {
    "app": pl.String,
    "protocol": pl.String,
    "client": pl.String,
    "client_port": pl.Int64,
    "server": pl.String,
    "server_port": pl.Int64,
    "opened_ns": pl.Int64,
    "opened_s": pl.Float64,
    "connect_s": pl.Float64,
    "round_trip_s": pl.Float64,
    **{f"{way}_{which}_s": pl.Float64 for way in WAYS for which in ("first", "last")},
    "exchanges": pl.Int64,
    **{f"part_{name}": pl.Float64 for name in PARTS},
    **{
        f"{way}_{name}": kind
        for way in WAYS
        for name, kind in (
            ("bytes", pl.Int64),
            ("packets", pl.Int64),
            ("wire_bytes", pl.Int64),
            ("dropped", pl.Int64),
            ("retransmitted", pl.Int64),
            ("queue_s", pl.Float64),
            ("queue_max_s", pl.Float64),
            ("delay_s", pl.Float64),
        )
    },
    "waits": pl.List(pl.Struct({"low": pl.Int64, "high": pl.Int64})),
}
BURST = (
    *("way", "bytes", "begin", "wrote", "heard", "until"),
    *("sending", "resent", "queued", "delayed", "late", "other", "acknowledged", "waiting", "idle"),
)
"""Fields of a burst, ns. way: 0 to the server. bytes: payload. begin: entry of the first packet; wrote: entry of the
last packet that does not continue a full one; heard: arrival of the first packet; until: arrival of all bytes. Parts
of the time until the connection's next burst: sending, resent, queued, delayed and late (by the emulator), until this
burst had arrived; other: until an earlier burst of the other way had arrived; acknowledged: until an acknowledgement
arrived, if the same end sends next; waiting: for the next sender. idle: time since the last packet, if the same end
sends next although that packet was not full."""
TALK: dict[str, Any] = {
    **dict.fromkeys(("syn_left_ns", "answered_ns", "connected_ns"), pl.Int64),
    "bursts": pl.List(pl.Struct(dict.fromkeys(BURST, pl.Int64))),
}
"""Additional columns of connections for reported requests, besides :data:`SCHEMA`: the times at which the SYN left the
network, and the server's answer entered it and was handed to the client; and the bursts."""


def read_connections(
    run: Path, description: dict[str, Any], skip_ns: int = 0, groups: Iterable[Crossings] | None = None
) -> pl.DataFrame:
    """Return one row per TCP connection and UDP flow that sent a packet since the start of the schedule, by opening
    time. Columns: :data:`SCHEMA`. description: the content of ``run.json``. skip_ns: length of the schedule's begin
    that is left out; a connection opened before counts from the end of this time, and has no connect_s. groups: the
    packets by :func:`read_groups`, if they are read for further tables, too.

    app: the connection's application, null if unknown. client: the node that sent the first packet. server: the other
    node; the connection may have moved from there with its service. opened_ns: when the first packet entered the
    network, by this machine's monotonic clock; opened_s: since the start of the schedule. connect_s: from opening
    until the server's answer to the SYN was handed to the client; null without an answer, and for UDP. round_trip_s:
    median over delivered packets of the client: time in the network of the packet and of the server's first packet
    that entered after its arrival. to_server, to_client: the two ways, each with: first_s, last_s: from opening
    until the first byte, and until all bytes, were handed to the receiver; bytes: payload handed over, counted once;
    packets: sent; wire_bytes: bytes of the sent packets, with IP headers; dropped: packets dropped by the path model;
    retransmitted: packets with bytes sent before (null: UDP); queue_s, delay_s: mean time of delivered packets in
    bottlenecks and in delays; queue_max_s: maximum. exchanges: number of times the client began to send after the
    server. part_*: see :data:`PARTS`; their sum is the later last_s, or connect_s without data. waits: the times at
    which the connection waited for its server, ns. If services report spans, there are further parts
    ``part_service_*``, excluded from part_server. If programs report requests: also the columns of :data:`TALK`.
    """
    t0 = description.get("t0_ns")
    talk = TALK if any(each.reported or each.traced for each in applications_of(description)) else {}
    if t0 is None:
        return pl.DataFrame(schema=SCHEMA | talk)
    tables = [pl.DataFrame(schema=SCHEMA | talk)]
    since = t0 + skip_ns if skip_ns else _ALWAYS
    for packets in read_groups(run, description, skip_ns) if groups is None else groups:
        for protocol in (TCP, UDP):
            if len(rows := np.flatnonzero(packets.protocol == protocol)):
                of = packets if len(rows) == len(packets) else packets.take(rows)
                tables.append(_tcp(of, since, with_bursts=bool(talk)) if protocol == TCP else _udp(of, since))
    found = pl.concat(tables, how="diagonal")
    opened = (pl.col("opened_ns") - t0).cast(pl.Float64) / 1e9
    found = found.with_columns(opened_s=opened, app=_applications(found, applications_of(description)))
    ahead = {node: offset for node, (offset, _) in clocks(description).items()}
    found = divide_connections(found, run / "raw", applications_of(description), ahead)
    services = [name for name in found.columns if name.startswith(f"part_{SERVICE}")]
    return found.select(*SCHEMA, *services, *talk).sort("opened_ns", "client", "client_port")


def read_groups(
    run: Path, description: dict[str, Any], skip_ns: int = 0, *, undivided: bool = False
) -> Iterator[Crossings]:
    """Yield the packets of all connections with a packet since the start of the schedule, in groups of connections.

    A connection is never split. undivided: one group. Other arguments: see :func:`read_connections`.
    """
    path, t0 = run / "raw" / "packets.bin", description.get("t0_ns")
    packets = make_groups(description, _ALWAYS if t0 is None else t0 + skip_ns)
    for part in packet_parts(path):
        packets.count(part.view(np.uint8))
    groups = range(packets.divide(1 << 62 if undivided else _GROUP))

    def read(number: int) -> Crossings:
        if number % _AT_ONCE == 0:
            for part in packet_parts(path):
                packets.collect(part.view(np.uint8), number, number + _AT_ONCE)
        return join_group(packets, number, description)

    with ThreadPoolExecutor(1) as reader:  # a second processor reads the next group
        following = [reader.submit(read, number) for number in groups[:1]]
        for number in [*groups[1:], None]:
            found = following.pop().result() if following else None
            if number is not None:
                following.append(reader.submit(read, number))
            # Packets whose first hop is missing in the log are not among the crossings.
            if found is not None and len(found):
                yield found


@dataclass(frozen=True, slots=True)
class _Talk:
    """TCP packets by connection and entry.

    connection: connection number of each packet; way: 0 to the server, 1 to the client; stream: number of connection
    and way. start: offset of the packet's first byte, -1 for a SYN. again: whether it carries bytes sent before.
    completing: the packet whose delivery completed the stream up to its end, or NEVER. new: packets that arrived with
    new bytes.
    """

    packets: Crossings
    connection: Integers
    way: Integers
    start: Integers
    again: NDArray[np.bool_]
    completing: Integers
    new: Integers

    @property
    def stream(self) -> Integers:
        return self.connection * 2 + self.way


def _talk(packets: Crossings) -> _Talk:
    packets, connection, way = _separate(packets)
    stream = connection * 2 + way
    order = np.argsort(stream, kind="stable")
    begins = np.empty(len(order), np.bool_)
    begins[order] = np.r_[True, np.diff(stream[order]) != 0]
    # The first packet of a way is a SYN: its sequence number is one before byte 0.
    has_syn = np.zeros(stream.max() + 1, np.int64)
    has_syn[stream[begins]] = packets.payload[begins] == 0
    start = np.empty(len(order), np.int64)
    start[order] = positions(stream[order], packets.sequence[order])
    start -= has_syn[stream]
    end = start + packets.payload
    data = (packets.payload > 0) & (start >= 0)

    reach = np.empty(len(order), np.int64)  # of the previous packets
    reach[order] = np.r_[0, running_max(stream[order], np.where(data, end, 0)[order])[:-1]]
    reach[begins] = 0
    again = (data & (start < reach)) | (~begins & (packets.payload == 0) & (start == -1))
    completing = _completions(packets, stream, start, data)
    new = np.flatnonzero(data & (end > reach) & (completing != NEVER))
    return _Talk(packets, connection, way, start, again, completing, new)


def _tcp(packets: Crossings, since: int, *, with_bursts: bool) -> pl.DataFrame:
    """Return the figures of TCP connections since a time, ns."""
    talk = _talk(packets)
    packets, complete = talk.packets, talk.completing != NEVER
    table = _table(packets, talk.connection, talk.way).with_columns(
        start=talk.start,
        end=pl.Series(talk.start + packets.payload).set(pl.Series(~complete), None),
        at=pl.Series(packets.left[talk.completing]).set(pl.Series(~complete), None),
        again=talk.again,
    )
    opens, answers = (
        (pl.col("way") == way) & (pl.col("start") == -1) & pl.col("delivered") for way in range(len(WAYS))
    )
    went_on = (pl.col("way") == 0) & (pl.col("start") >= 0)
    connected = table.group_by("connection").agg(
        pl.col("left").filter(answers).min(),
        pl.col("entered").filter(went_on).min(),
        syn_left_ns=pl.col("left").filter(opens).min(),
        answered_ns=pl.col("entered").filter(answers).min(),
    )
    found = (
        _figures_by_way(
            packets,
            table,
            since,
            pl.col("end").max() - pl.col("end").filter(pl.col("at") < since).max().fill_null(0),
            pl.col("again").filter(pl.col("entered") >= since).sum(),
        )
        # The server's answer entered before the client's next packet.
        .join(
            connected.drop_nulls(["left", "entered"]).select(
                "connection", "syn_left_ns", "answered_ns", connected_ns=pl.min_horizontal("left", "entered")
            ),
            on="connection",
            how="left",
            maintain_order="left",
        )
        .with_columns(
            protocol=pl.lit("tcp"),
            connect_s=_seconds(pl.when(pl.col("opened_ns") > since).then(pl.col("connected_ns") - pl.col("opened_ns"))),
        )
    )
    parts = _parts(found, talk, since, with_bursts=with_bursts)
    return found.join(parts, on="connection", how="left", maintain_order="left")


def _udp(packets: Crossings, since: int) -> pl.DataFrame:
    packets = packets.take(np.argsort(packets.key, kind="stable"))
    first = np.r_[True, packets.key[1:] != packets.key[:-1]]
    connection = np.cumsum(first) - 1
    at = pl.when("delivered").then("left")
    table = _table(packets, connection, _way(packets, first)).with_columns(at=at)
    carried = pl.col("payload").filter(pl.col("delivered") & (pl.col("entered") >= since)).sum()
    found = _figures_by_way(packets, table, since, carried, pl.lit(None, pl.Int64))
    return found.with_columns(protocol=pl.lit("udp"))


def _separate(packets: Crossings) -> tuple[Crossings, Integers, Integers]:
    """Return TCP packets by connection and entry, and for each its connection number and its way."""
    packets = packets.take(np.argsort(packets.key, kind="stable"))  # stable: by entry
    opens = np.r_[True, packets.key[1:] != packets.key[:-1]]
    way = _way(packets, opens)
    pair = np.cumsum(opens) - 1
    # If a pair of ports was used again: the client's packets without payload and with an unexpected number.
    mine = np.flatnonzero(way == 0)
    position = positions(pair[mine], packets.sequence[mine])
    opens[mine[reopenings(pair[mine], position, packets.payload[mine])]] = True
    return packets, np.cumsum(opens) - 1, way


def _way(packets: Crossings, first: NDArray[np.bool_]) -> Integers:
    """Return 0 for packets from the node and port of the connection's first packet, else 1. first: marks these."""
    source = packets.source.astype(np.int64) << 16 | packets.source_port
    its_first: Integers = source[np.flatnonzero(first)][np.cumsum(first) - 1]
    found: Integers = (source != its_first).astype(np.int64)
    return found


def _completions(packets: Crossings, stream: Integers, start: Integers, data: NDArray[np.bool_]) -> Integers:
    """Return for each packet with `data` the packet whose delivery completed its stream up to its end; else NEVER."""
    found = np.full(len(data), NEVER, np.int64)
    rows = np.flatnonzero(data)
    if not len(rows):
        return found
    begin = stream[rows] * LINE + start[rows]
    end = begin + packets.payload[rows]
    bounds = np.sort(np.r_[begin, end])  # np.unique takes ten times as long
    bounds = bounds[np.r_[True, bounds[1:] != bounds[:-1]]]
    packet, piece = cut(bounds, begin, end)
    arrivals = np.flatnonzero(packets.delivered[rows])
    arrivals = arrivals[np.argsort(packets.left[rows[arrivals]], kind="stable")]
    never = len(arrivals)
    rank_of = np.full(len(rows), never, np.int64)
    rank_of[arrivals] = np.arange(never)
    rank = np.full(len(bounds) - 1, never, np.int64)
    np.minimum.at(rank, piece, rank_of[packet])
    # A stream without byte 0 is never complete.
    its = bounds[:-1] // LINE
    headless = np.r_[True, its[1:] != its[:-1]] & (bounds[:-1] % LINE != 0)
    rank[headless] = never
    found[rows] = np.r_[rows[arrivals], NEVER][running_max(its, rank)[np.searchsorted(bounds, end) - 1]]
    return found


def _table(packets: Crossings, connection: Integers, way: Integers) -> pl.DataFrame:
    names = ("entered", "left", "queued", "delayed", "delivered", "dropped", "payload", "size")
    return pl.DataFrame({"connection": connection, "way": way} | {name: getattr(packets, name) for name in names})


def _figures_by_way(
    packets: Crossings, table: pl.DataFrame, since: int, carried: pl.Expr, again: pl.Expr
) -> pl.DataFrame:
    """Return one row per connection: its ends, its opening time (at least `since`), and the figures of both ways from
    then on."""
    first = np.flatnonzero(np.diff(table["connection"].to_numpy(), prepend=-1))
    most = max(packets.source.max(), packets.destination.max())
    names = np.array([packets.vertices.get(vertex, f"vertex-{vertex}") for vertex in range(int(most) + 1)], object)
    found = pl.DataFrame(
        {
            "connection": table["connection"].to_numpy()[first],
            "opened_ns": np.maximum(packets.entered[first], since),
            "client": names[packets.source[first]],
            "client_port": packets.source_port[first].astype(np.int64),
            "server": names[packets.destination[first]],
            "server_port": packets.destination_port[first].astype(np.int64),
        },
        schema_overrides={"client": pl.String, "server": pl.String},
    )
    counts = pl.col("entered") >= since
    found = found.join(_round_trips(table.filter(counts)), on="connection", how="left", maintain_order="left")
    delivered, at = pl.col("delivered") & counts, pl.col("at").filter(pl.col("at") >= since)
    for number, name in enumerate(WAYS):
        figures = (
            table.filter(way=number)
            .group_by("connection")
            .agg(
                carried.cast(pl.Int64).alias(f"{name}_bytes"),
                at.min().alias(f"{name}_first_s"),
                at.max().alias(f"{name}_last_s"),
                counts.sum().cast(pl.Int64).alias(f"{name}_packets"),
                pl.col("size").filter(counts).sum().alias(f"{name}_wire_bytes"),
                pl.col("dropped").filter(counts).sum().cast(pl.Int64).alias(f"{name}_dropped"),
                again.cast(pl.Int64).alias(f"{name}_retransmitted"),
                _seconds(pl.col("queued").filter(delivered).mean()).alias(f"{name}_queue_s"),
                _seconds(pl.col("queued").filter(delivered).max()).alias(f"{name}_queue_max_s"),
                _seconds(pl.col("delayed").filter(delivered).mean()).alias(f"{name}_delay_s"),
            )
        )
        counted = [f"{name}_{what}" for what in ("bytes", "packets", "wire_bytes", "dropped")]
        since_opened = (_seconds(pl.col(f"{name}_{which}_s") - pl.col("opened_ns")) for which in ("first", "last"))
        found = (
            found.join(figures, on="connection", how="left", maintain_order="left")
            .with_columns(pl.col(counted).fill_null(0))
            .with_columns(*since_opened)
        )
    return found


def _round_trips(table: pl.DataFrame) -> pl.DataFrame:
    """Return the round-trip time of each connection in the network, without the time at its ends."""
    took = pl.col("left") - pl.col("entered")
    passed = table.filter("delivered").select("connection", "way", "entered", "left", took=took)
    answers = passed.filter(way=1).select("connection", "entered", back="took").sort("entered")
    return (
        passed.filter(way=0)
        .sort("left")
        .join_asof(
            answers,
            left_on="left",
            right_on="entered",
            by="connection",
            strategy="forward",
            check_sortedness=False,
        )
        .group_by("connection")
        .agg(round_trip_s=_seconds((pl.col("took") + pl.col("back")).median()))
    )


def _bursts(talk: _Talk) -> dict[str, Any]:
    """Return the fields of bursts (:data:`BURST`) by connection and entry, with the number ``connection``, and whether
    each burst is the ``first`` of its connection."""
    packets, connection, way, new = talk.packets, talk.connection, talk.way, talk.new
    completing = talk.completing[new]
    entered, complete = packets.entered[new], packets.left[completing]
    stream = talk.stream[new]
    begins = np.r_[True, (stream[1:] != stream[:-1]) | (entered[1:] > complete[:-1])] if len(new) else new == NEVER
    head = np.flatnonzero(begins)
    tail = np.r_[head[1:], len(new)][: len(head)] - 1
    of_burst = connection[new[head]]
    first = np.r_[True, of_burst[1:] != of_burst[:-1]] if len(head) else head == NEVER

    continues = ~begins & (np.r_[0, packets.payload[new][:-1]][: len(new)] >= LEAST_FULL - OPTIONS)
    writes = np.where(continues, 0, entered)
    wrote = np.maximum.reduceat(writes, head) if len(head) else entered
    begin, until = entered[head], complete[tail]
    by_time = np.argsort(until, kind="stable")
    rank = np.empty(len(head), np.int64)
    rank[by_time] = np.arange(len(head))
    so_far = until[by_time][running_max(np.cumsum(first), rank)]
    following = np.r_[begin[1:], 0][: len(head)]
    following = np.where(np.r_[first[1:], True][: len(head)], so_far, following)
    under_way = np.minimum(until, following) - begin
    # The previous burst of the other way was still under way.
    other = np.minimum(so_far, following) - np.minimum(until, following)
    waiting = following - np.minimum(so_far, following)
    its_way = way[new[head]]
    same_next = np.r_[stream[head][1:] == stream[head][:-1], False][: len(head)]
    acknowledged = np.where(same_next, _acknowledgement_times(packets, connection, way, of_burst, its_way, until), 0)
    on_acknowledgement = np.where(same_next, np.clip(acknowledged - so_far, 0, waiting), 0)
    last = completing[tail]
    queued = np.minimum(packets.queued[last], under_way)
    delayed = np.minimum(packets.delayed[last], under_way - queued)
    in_network = packets.entered[last] - begin + queued + delayed + packets.proxied[last]
    late = np.clip(under_way - in_network, 0, None)
    sending = under_way - queued - delayed - late
    short = same_next & (packets.payload[new[tail]] < LEAST_FULL)
    resent = np.clip(packets.entered[last] - packets.entered[_originals(talk, last)], 0, sending)
    return {
        "connection": of_burst,
        "first": first,
        "way": its_way,
        "bytes": np.add.reduceat(packets.payload[new], head) if len(head) else head,
        "begin": begin,
        "wrote": wrote,
        "heard": complete[head],
        "until": until,
        "sending": sending - resent,
        "resent": resent,
        "queued": queued,
        "delayed": delayed,
        "late": late,
        "other": other,
        "acknowledged": on_acknowledgement,
        "waiting": waiting - on_acknowledgement,
        "idle": np.where(short, following - entered[tail], 0),
    }


def _cut(bursts: dict[str, Any], since: int) -> dict[str, Any]:
    """Return bursts without the time before `since`, ns: a burst that began earlier loses its first parts."""
    excess, left = np.clip(since - bursts["begin"], 0, None), {}
    for name in ("sending", "resent", "queued", "delayed", "late", "other", "acknowledged", "waiting"):
        left[name] = np.clip(bursts[name] - excess, 0, None)
        excess = np.clip(excess - bursts[name], 0, None)
    return bursts | left | {"begin": np.maximum(bursts["begin"], since)}


def _originals(talk: _Talk, packets: Integers) -> Integers:
    """Return the packets that first carried the first bytes of `packets`: themselves, or lost ones."""
    place = talk.stream * LINE + talk.start
    by_place = talk.new[np.argsort(place[talk.new], kind="stable")]
    index = np.searchsorted(place[by_place], place[packets], side="right") - 1
    found = by_place[np.maximum(index, 0)] if len(by_place) else packets
    return np.where(talk.again[packets] & (talk.stream[found] == talk.stream[packets]), found, packets)


def _parts(found: pl.DataFrame, talk: _Talk, since: int, *, with_bursts: bool) -> pl.DataFrame:
    """Return the parts of each connection since a time, the times at which the connection waited for its server
    (``waits``), and its ``bursts``."""
    bursts = _bursts(talk)
    new = bursts["begin"] >= since
    bursts = _cut(bursts, since)
    of_burst, its_way, first, begin = (bursts[name] for name in ("connection", "way", "first", "begin"))
    total = {name: np.zeros(len(found), np.int64) for name in PARTS}

    def add(name: str, rows: Any, value: Integers) -> None:
        np.add.at(total[name], of_burst[rows], value[rows])

    before = np.r_[0, bursts["waiting"][:-1]][: len(begin)]
    for number, (name, sender) in enumerate(zip(WAYS, ("client", "server"), strict=True)):
        mine, theirs = its_way == number, its_way != number
        add(f"{name}_queue", mine, bursts["queued"])
        add(f"{name}_delay", mine, bursts["delayed"])
        add(f"{name}_transport", mine, sum(bursts[of] for of in ("sending", "resent", "late", "acknowledged")))
        add(f"{name}_transport", theirs, bursts["other"])
        add(sender, mine & ~first, before)
    opened = found["opened_ns"].to_numpy()
    connected = np.maximum(found["connected_ns"].fill_null(found["opened_ns"]).to_numpy(), opened)
    begun = np.minimum(connected[of_burst], begin)
    connect = connected - opened
    connect[of_burst[first]] = (begun - opened[of_burst])[first]
    for number, sender in enumerate(("client", "server")):
        add(sender, first & (its_way == number), begin - begun)
    by_server = (its_way == 1) & new
    number_type = found.schema["connection"]
    waits = pl.DataFrame(
        {
            "connection": of_burst[by_server],
            "low": (begin - np.where(first, begin - begun, before))[by_server],
            "high": begin[by_server],
        },
        schema_overrides={"connection": number_type},
    )
    lists = {"waits": waits}
    if with_bursts:
        fields = {name: bursts[name] for name in ("connection", *BURST)}
        lists["bursts"] = pl.DataFrame(fields, schema_overrides={"connection": number_type})
    exchanges = np.zeros(len(found), np.int64)
    np.add.at(exchanges, of_burst[(its_way == 0) & (first | np.r_[True, its_way[:-1] != 0][: len(begin)]) & new], 1)
    has_parts = np.zeros(len(found), np.bool_)
    has_parts[of_burst] = True
    has_parts |= found["connected_ns"].is_not_null().to_numpy()
    total["connect"] = connect
    parts = pl.DataFrame(
        {"connection": found["connection"], "exchanges": exchanges}
        | {f"part_{name}": pl.Series(value / 1e9).set(pl.Series(~has_parts), None) for name, value in total.items()}
    )
    for name, each in lists.items():
        of = each.group_by("connection", maintain_order=True).agg(pl.struct(each.columns[1:]).alias(name))
        parts = parts.join(of, on="connection", how="left", maintain_order="left")
    return parts


def _acknowledgement_times(
    packets: Crossings, connection: Integers, way: Integers, of_burst: Integers, its_way: Integers, until: Integers
) -> Integers:
    """Return the time at which the sender got the receiver's first packet after the burst; 0: never."""
    answers = pl.DataFrame(
        {"stream": connection * 2 + 1 - way, "entered": packets.entered, "left": packets.left}
    ).filter(pl.Series(packets.delivered))
    bursts = pl.DataFrame({"stream": of_burst * 2 + its_way, "until": until}).with_row_index("row")
    joined = bursts.sort("until").join_asof(
        answers.sort("entered"),
        left_on="until",
        right_on="entered",
        by="stream",
        strategy="forward",
        check_sortedness=False,
    )
    return joined.sort("row")["left"].fill_null(0).to_numpy()


def _seconds(nanoseconds: pl.Expr) -> pl.Expr:
    return nanoseconds.cast(pl.Float64) / 1e9


def claim_connections(connections: pl.DataFrame, requests: pl.DataFrame, description: dict[str, Any]) -> pl.DataFrame:
    """Add to `connections` (the table of `read_connections`) the application of each connection that carried known
    requests, or that only one application without known requests can have opened. Pure.

    requests: the table of :func:`cellbed.measure.requests.read_requests`; description: the content of ``run.json``.
    """
    ends = ["client", "client_port", "server_port"]
    carried = (
        requests.select(client="endpoint", client_port="local_port", server_port="remote_port", carried="app")
        .drop_nulls()
        .group_by(ends)
        .agg(pl.col("carried").unique())
        .filter(pl.col("carried").list.len() == 1)
        .with_columns(pl.col("carried").list.first())
    )
    programs = [each for each in applications_of(description) if not each.spans or each.reported]
    return (
        connections.join(carried, on=ends, how="left", maintain_order="left")
        .with_columns(app=pl.coalesce("carried", "app", _applications(connections, programs)))
        .select(connections.columns)
    )


def add_connections(requests: pl.DataFrame, connections: pl.DataFrame, description: dict[str, Any]) -> pl.DataFrame:
    """Add to requests the figures of their connections, in applications with one connection per request. Pure.

    ``overhead_bytes``: bytes of all packets both ways with IP headers, beyond the payload. ``retransmitted``: number
    of packets retransmitted by TCP; for other protocols, packets that both ends report as lost.
    ``effective_throughput_mbit_s``: payload per latency. ``jitter_s``. Null for other requests. Arguments: see
    :func:`claim_connections`.
    """
    own = [each.name for each in applications_of(description) if isinstance(each, Timed) and each.own_connections]
    if not own:
        return requests
    again = pl.col("to_server_retransmitted") + pl.col("to_client_retransmitted")
    known = connections.select(
        "opened_ns",
        endpoint="client",
        local_port="client_port",
        remote_port="server_port",
        wire=pl.col("to_server_wire_bytes") + pl.col("to_client_wire_bytes"),
        again=again,
    ).sort("opened_ns")
    ends = ["endpoint", "local_port", "remote_port"]
    columns = set(requests.columns)
    lost = [pl.col(name) for name in ("packets_lost", "server_packets_lost") if name in columns]
    payload = pl.col("bytes_up") + pl.col("bytes_down")
    answered = requests.filter(pl.col("app").is_in(own) & pl.col("reply_ns").is_not_null()).sort("reply_ns")
    joined = answered.join_asof(
        known, left_on="reply_ns", right_on="opened_ns", by=ends, strategy="backward", check_sortedness=False
    )
    is_its = pl.col("opened_ns") > pl.col("started_ns") - _CLOCKS_NS  # else the connection is missing in the log
    found = joined.select(
        *("app", "endpoint", "request"),
        overhead_bytes=pl.when(is_its).then(pl.col("wire") - payload),
        retransmitted=pl.coalesce(
            pl.when(is_its).then("again"), *([pl.sum_horizontal(*lost, ignore_nulls=False)] if lost else [])
        ),
        effective_throughput_mbit_s=payload * 8e-6 / pl.col("latency_s"),
        jitter_s=pl.col("jitter_us") / 1e6 if "jitter_us" in columns else pl.lit(None, pl.Float64),
    )
    return requests.join(found, on=["app", "endpoint", "request"], how="left", maintain_order="left")


def _applications(found: pl.DataFrame, applications: Sequence[Description]) -> pl.Series:
    """Return the application of each connection. Best is a match of server and declared port, then of client and server
    (applications without declared ports first), then of the server alone. Several equal matches give null."""
    pairs = found.select("client", "server", "server_port").unique()
    names = []
    for client, server, port in pairs.iter_rows():
        fitting: dict[int, set[str]] = {}
        for app in applications:
            if app.balance == "migration" and client in app.servers and client not in app.clients:
                continue  # the connection carries a service that moves
            if server in app.servers:
                # The application may have further ports than the known ones.
                rank = 0 if port in app.ports else (4 if client not in app.clients else 2 if app.ports else 1)
            elif server in app.clients and client in app.servers:
                rank = 3
            else:
                continue
            fitting.setdefault(rank, set()).add(app.name)
        best = fitting[min(fitting)] if fitting else set()
        names.append(best.pop() if len(best) == 1 else None)
    named = pairs.with_columns(app=pl.Series(names, dtype=pl.String))
    return found.select(pairs.columns).join(named, on=pairs.columns, how="left", maintain_order="left")["app"]


MOST_PEERS = 10
"""Maximum number of peers summarised separately per application; peers with fewer bytes are summarised together."""


@dataclass(frozen=True, slots=True)
class WaySummary:
    """One direction of all connections to a peer. Times: means over packets, seconds; ``None`` without a packet."""

    bytes: int
    packets: int
    dropped: int
    retransmitted: int | None
    queue_s: float | None
    queue_max_s: float | None
    delay_s: float | None


@dataclass(frozen=True, slots=True)
class PeerSummary:
    """The connections of an application to one port of one node (``None``: to several).

    app: ``None`` if unknown. failed: number of TCP connections refused or without an answer. connect_s, first_byte_s:
    medians, seconds. exchanges: number of times a client began to send after its server; exchange_s: mean time of an
    exchange under way and at the server. parts: means over the connections with parts, weighted by payload bytes,
    seconds, by the names in :data:`PARTS` and the names of reported spans.
    """

    app: str | None
    protocol: str
    server: str | None
    port: int | None
    clients: int
    connections: int
    failed: int
    connect_s: float | None
    first_byte_s: float | None
    exchanges: int
    exchange_s: float | None
    parts: dict[str, float]
    to_server: WaySummary
    to_client: WaySummary


def summarise_connections(connections: pl.DataFrame) -> list[PeerSummary]:
    """Return the table of `read_connections` by application and peer, most bytes first. Pure."""
    peer = ["app", "protocol", "server", "server_port"]
    ranked = (
        connections.group_by(peer)
        .agg(volume=pl.col("to_server_bytes").sum() + pl.col("to_client_bytes").sum())
        .sort("volume", *peer, descending=[True, *(False for _ in peer)])
        .with_columns(rank=pl.int_range(pl.len()).over("app"))
        .with_columns(rank=pl.when(pl.col("rank") < MOST_PEERS).then("rank"))
    )
    of_peer = connections.join(ranked, on=peer, how="left", nulls_equal=True)
    found = []
    for (app, protocol, rank), group in of_peer.group_by("app", "protocol", "rank"):
        one = group.row(0, named=True) if rank is not None else {"server": None, "server_port": None}
        names = (None if app is None else str(app), str(protocol), one["server"], one["server_port"])
        found.append(_peer(names, group))

    def place(each: PeerSummary) -> tuple[bool, int, str, int, str]:
        volume = each.to_server.bytes + each.to_client.bytes
        return each.port is None, -volume, each.server or "", each.port or 0, each.app or ""

    return sorted(found, key=place)


def _peer(names: tuple[str | None, str, str | None, int | None], group: pl.DataFrame) -> PeerSummary:
    parts = [name.removeprefix("part_") for name in group.columns if name.startswith("part_")]
    spans = [f"part_{name}" for name in parts if name.startswith(SERVICE) and group[f"part_{name}"].count()]
    group = group.with_columns(pl.when(pl.col("part_server").is_not_null()).then(pl.col(spans).fill_null(0.0)))
    # Weights: a control connection counts less than the connection with the data.
    group = group.with_columns(carried=pl.col("to_server_bytes") + pl.col("to_client_bytes"))
    having = {name: group.drop_nulls(f"part_{name}") for name in parts}
    means = {
        name: float(np.average(each[f"part_{name}"], weights=each["carried"] if each["carried"].sum() else None))
        for name, each in having.items()
        if len(each)
    }
    exchanges = int(group["exchanges"].sum())
    waited = group.select(pl.col(f"part_{name}").sum() for name in parts if name not in ("connect", "client"))
    return PeerSummary(
        *names,
        clients=group["client"].n_unique(),
        connections=len(group),
        failed=group["part_connect"].null_count() if names[1] == "tcp" else 0,
        connect_s=as_number(group["connect_s"].median()),
        first_byte_s=as_number(group["to_client_first_s"].median()),
        exchanges=exchanges,
        exchange_s=sum(waited.row(0)) / exchanges if exchanges else None,
        parts=means,
        to_server=_way_summary(group, WAYS[0]),
        to_client=_way_summary(group, WAYS[1]),
    )


def _way_summary(group: pl.DataFrame, way: str) -> WaySummary:
    of = group.select(pl.col(f"^{way}_.*$").name.map(lambda name: name.removeprefix(f"{way}_")))
    again = of["retransmitted"]
    known = of.drop_nulls("queue_s")
    weights = (known["packets"] - known["dropped"]).to_numpy()  # a mean of packets, not of connections
    queue, delay = (
        float(np.average(known[name].to_numpy(), weights=weights)) if len(known) else None
        for name in ("queue_s", "delay_s")
    )
    return WaySummary(
        bytes=int(of["bytes"].sum()),
        packets=int(of["packets"].sum()),
        dropped=int(of["dropped"].sum()),
        retransmitted=int(again.sum()) if again.null_count() < len(again) else None,
        queue_s=queue,
        queue_max_s=as_number(of["queue_max_s"].max()),
        delay_s=delay,
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """All connections of an application together.

    sent, up: from clients to servers. Throughputs: means over the time from opening to last byte, over all
    connections together. round_trip_p50_s: median over connections of the round-trip time in the network, weighted by
    the bytes of the larger direction; setup_p50_s: median time of the TCP handshake, not weighted. retransmitted: TCP
    packets, both ways; ``None`` without TCP. fairness: Jain's index of these weights (DEC-TR-301, 1984) over the
    connections with at least 1 % of the mean weight; ``None`` for a single connection.
    """

    connections: int
    sent_bytes: int
    received_bytes: int
    throughput_up_mbit_s: float | None
    throughput_down_mbit_s: float | None
    round_trip_p50_s: float | None
    retransmitted: int | None
    setup_p50_s: float | None
    fairness: float | None = None


def traffic(connections: pl.DataFrame, clients: Sequence[str]) -> Traffic:
    """Return the figures of the connections of an application with these clients. Pure."""
    # A server may have opened a connection to a client.
    turned = ~pl.col("client").is_in(clients) & pl.col("server").is_in(clients)
    sent, received = (
        int(connections.select(pl.when(turned).then(f"{other}_bytes").otherwise(f"{way}_bytes").sum()).item())
        for way, other in (WAYS, WAYS[::-1])
    )
    last = pl.max_horizontal("connect_s", *(f"{way}_last_s" for way in WAYS)).fill_null(0.0)
    begin, end = connections.sort("opened_s").select("opened_s", end=pl.col("opened_s") + last).to_numpy().T
    before = np.maximum.accumulate(np.r_[-np.inf, end])[:-1]
    active_s = float(np.maximum(0.0, end - np.maximum(begin, before)).sum())
    again = [connections[f"{way}_retransmitted"].drop_nulls() for way in WAYS]
    loaded = max((f"{way}_bytes" for way in WAYS), key=lambda name: int(connections[name].sum()))
    timed = connections.drop_nulls("round_trip_s").sort("round_trip_s")
    reached = (timed[loaded] + 1).cum_sum().to_numpy()
    weights = connections[loaded].to_numpy().astype(np.float64)
    weights = weights[weights >= 0.01 * weights.sum() / max(1, len(weights))]
    squares = float(weights @ weights)
    return Traffic(
        connections=len(connections),
        sent_bytes=sent,
        received_bytes=received,
        throughput_up_mbit_s=sent * 8e-6 / active_s if active_s else None,
        throughput_down_mbit_s=received * 8e-6 / active_s if active_s else None,
        round_trip_p50_s=timed["round_trip_s"][int(np.searchsorted(reached, reached[-1] / 2))] if len(timed) else None,
        retransmitted=sum(int(counts.sum()) for counts in again) if any(map(len, again)) else None,
        setup_p50_s=as_number(connections["connect_s"].median()),
        fairness=float(weights.sum() ** 2 / (len(weights) * squares)) if len(weights) > 1 and squares else None,
    )
