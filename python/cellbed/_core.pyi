"""The Rust parts of cellbed: the emulator, the entry into its nodes, traces, and positions in TOML files."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from cellbed.path import Outside

Arrivals = tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint64] | None, NDArray[np.uint8] | None]
Columns = tuple[
    NDArray[np.uint64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.int64],
    NDArray[np.uint32],
    NDArray[np.uint8],
    NDArray[np.bool_],
    NDArray[np.int64],
]

@final
class PacketGroups:
    """Connections in a packet log, in groups, and the packets of groups.

    Call :meth:`count` with all records, then :meth:`divide`, :meth:`collect` with all records, and :meth:`join`.
    Records: bytes of whole records; records of protocols without ports are ignored.
    """

    def __new__(
        cls,
        moved: list[tuple[int, int]],
        directions: list[list[tuple[int, int, int]]],
        towers: list[int],
        since_ns: int,
    ) -> PacketGroups:
        """moved: ends (vertex << 16 | port) of services that have moved, each with its first vertex. directions: of
        each, times since which it begins and ends at two vertices (-1: without node). towers: vertices of the nodes of
        towers, which packets pass. since_ns: connections without a later arrival are left out."""

    def count(self, records: NDArray[np.uint8]) -> None:
        """Count the records of each connection."""

    def divide(self, size: int) -> int:
        """Divide the connections into groups of about `size` records. Return the number of groups."""

    def collect(self, records: NDArray[np.uint8], first: int, end: int) -> None:
        """Keep the records of the groups from `first` until before `end`."""

    def join(self, group: int) -> dict[str, NDArray[Any]]:
        """Return the columns of :class:`cellbed.measure.packets.Crossings` for the collected records of a group, which
        are removed. If the network duplicated a packet, its first copy that was not dropped counts: the receiver needs
        no second copy. Packets without a record of their first direction are left out.
        """

def network_helper(arguments: list[str]) -> bool:
    """Execute one request of the network helper with the rights of this process; ``crates/nethelper`` has the grammar.

    Returns whether it succeeded. ``serve`` returns when the socket at standard input ends, ``enter`` executes another
    program. Call it on the main thread while there is no other, in a process that does nothing else.
    """

def emulate() -> None:
    """Be the emulator: a configuration, then commands on standard input; events on standard output; one JSON line each.

    Meant to be the only thing a process does: ``python -c "from cellbed._core import emulate; emulate()"``. Call it
    on the main thread while there is no other. It ignores SIGINT, is killed when the thread that started the process
    ends, and exits at once when standard input ends. The GIL is released throughout.

    Errors: ``SystemExit(1)`` after an ``error`` event that says what was wrong and what to do.
    """

def enter(entry: str) -> None:
    """Move this process, which must have one thread, into a node; for the ``preexec_fn`` of :mod:`subprocess`.

    entry: ``Entry`` of ``crates/emulator/src/enter.rs`` as JSON; :class:`cellbed.testbed.machine.process.Place` is its
    face. The process is killed when the *thread* that started it ends, so start it from one that stays.

    Errors: :class:`OSError` that says what failed.
    """

class Saturator:
    """An adaptive saturation of one direction of a network outside of the model; arguments as of
    :func:`saturate_virtually`."""

    def __new__(cls, bytes: int, delays_ns: tuple[int, int], most_bps: int, span_ns: int) -> Saturator: ...
    def send(self, until_ns: int) -> list[int]:
        """Send times of the packets before `until_ns`, ns."""

    def arrived(self, now_ns: int, packets: list[tuple[int, int, int]]) -> None:
        """Report arrivals: index, send time and arrival of each packet, ns."""

def calibrate_virtually(uplink: str, downlink: str, seed: int, outside: Outside | None = None) -> str:
    """What a calibration finds of two directions in virtual time, as JSON
    (:class:`cellbed.report.calibration.Calibration`).

    uplink, downlink: stages as in ``Direction``. seed: of the order of trains. outside: network before the stages.

    Errors: :class:`ValueError` for stages that are none, and where nothing or too little comes through.
    """

def fit_plan(plan: str, calibration: str, regular: bool) -> str:
    """Fit a plan of trains to a calibration, all as JSON. regular: whether to add regular trains.

    Errors: :class:`ValueError` for a malformed plan, and for a calibration without what the recorder's has.
    """

def light_doubts(
    light: Sequence[Sequence[NDArray[np.int64]]], heavy: Sequence[Sequence[NDArray[np.int64]]]
) -> list[str]:
    """Return why the light workload of a recording was not light, in sentences.

    light, heavy: of the uplink and the downlink, each train, index, bytes, sending time and arrival (-1: lost), ns.
    """

def saturate_virtually(
    stages: str, bytes: int, delays_ns: tuple[int, int], most_bps: int, span_ns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fill one direction in virtual time so that its packets wait between two delays, as an adaptive saturation does.

    stages: as in ``Direction``. bytes: IP length of the packets. delays_ns: the bounds. most_bps: the highest rate.

    Returns when each packet was sent and when it arrived, -1 for a lost one; ns.

    Errors: :class:`ValueError` for malformed stages.
    """

def share_cell(
    scheduler: str,
    slot_ns: int,
    links: list[tuple[str, list[tuple[int, int, str]], int, list[tuple[int, int | None]]]],
    arrivals: Arrivals,
    users: NDArray[np.uint32],
    to_come: NDArray[np.uint64] | None,
) -> tuple[Columns, list[int]]:
    """Send packets through a cell at rest, until the last one is out; :class:`cellbed.Cell` is its face.

    scheduler: as JSON. links: for each user its stages and changes as in ``Direction``, its priority, and when it is in
    the cell (from, until, ns). users: of the packets.
    to_come: bytes that the packet's user will send beyond those in its queue.

    Returns the columns, row *i* for packet *i*, and for how many ns each user had the cell.
    """

def stage_schema() -> str:
    """Return the schema of stages by their place (`crates/link/src/schema`), as a list of pairs in JSON."""

def congestion_controls() -> list[str]:
    """Return the names of the congestion control laws of a path's TCP."""

def load_law(name: str, path: str | PathLike[str]) -> None:
    """Load a congestion control law under a name, in place of an earlier one. Raises ValueError for another file."""

class TraceFormatError(ValueError):
    """A trace that was refused: ``FILE:LINE: reason``."""

@final
class Trace:
    """Packet delivery opportunities of a recorded bottleneck, each of 1500 bytes.

    Played in a loop, the last timestamp is the period.

    Positions are nanoseconds since the start of the recording and may lie beyond its end.
    """

    @property
    def opportunities(self) -> int:
        """Number of opportunities in the recording."""

    @property
    def duration_ns(self) -> int:
        """The last timestamp: length of the recording and period of its loop."""

    @property
    def longest_gap_ns(self) -> int:
        """The longest time without an opportunity in the looped recording."""

    @property
    def mean_bit_rate(self) -> float:
        """Mean rate in bit/s."""

    def capacity(self, start_ns: int, end_ns: int) -> int:
        """Bytes that can be delivered from `start_ns` up to but excluding `end_ns`."""

    def bins(self, width_ns: int) -> list[int]:
        """Bytes that one pass can deliver in each bin of `width_ns`; the bins sum to the whole recording.

        Errors: :class:`ValueError` for a width of 0.
        """

    def next_opportunity(self, at_ns: int) -> int:
        """Position of the first opportunity at or after `at_ns`."""

def parse_light_rows(path: str | PathLike[str]) -> list[tuple[int, int, list[int]]]:
    """Read the light rows of a CellReplay recording: time, base delay and delivery opportunities of each, ns.

    Opportunities count from the first packet of the row's train and are sorted.

    Errors: :class:`TraceFormatError` that begins with file and line; :class:`OSError` for a file that cannot be read.
    """

def parse_latency_offsets(path: str | PathLike[str]) -> list[tuple[int, int]]:
    """Read the latency offsets of a CellReplay recording: packet size in bytes, and how much later than a packet of the
    recorder's size it arrives, ns; below zero for sooner.

    Errors: as for :func:`parse_light_rows`.
    """

def parse_trace(path: str | PathLike[str]) -> Trace:
    """Read a trace: one whole number of milliseconds a line; blank lines, ``#`` comments and CRLF are accepted.

    Errors: :class:`TraceFormatError` for what is no trace; :class:`OSError` for what cannot be read.
    """

@final
class Direction:
    """One direction of a link in virtual time; :class:`cellbed.Link` is its face and says what its methods do.

    stages: JSON list of stages in the terms of the emulator's configuration. changes: time (ns), number of the stage,
    and the stage as JSON. Arrivals are contiguous arrays of times, sizes, flows and ECN fields; columns come in the
    order of the fields of :class:`cellbed.Outcomes`.

    Errors: :class:`ValueError` that says which value is wrong.
    """

    def __new__(cls, stages: str, changes: list[tuple[int, int, str]]) -> Direction: ...
    def run(self, arrivals: Arrivals, awake: Int64 | None = None) -> Columns:
        """What becomes of packets that meet the direction at rest; row *i* is packet *i*, later copies follow all."""

    def send(self, arrivals: Arrivals) -> Columns:
        """Send packets; what left or was dropped up to the last of them."""

    def advance(self, until_ns: int) -> Columns:
        """What left or was dropped by `until_ns`."""

    def drain(self) -> Columns:
        """Packets that leave or are dropped until no packet moves."""

    def change(self, at_ns: int, stage: int, to: str) -> None:
        """Let a stage become another of its kind."""

    @property
    def now_ns(self) -> int:
        """The current time."""

    @property
    def held(self) -> int:
        """Packets within."""

    @property
    def queue(self) -> tuple[int, int]:
        """Packets and bytes in the queue of the first bottleneck."""

Stages = tuple[str, list[tuple[int, int, str]]]
Int64 = NDArray[np.int64]

@final
class Path:
    """Two hosts and the path between them in virtual time; :class:`cellbed.path.Path` is its face.

    uplink, downlink: stages as JSON and changes, as for :class:`Direction`. Settings of TCP are the fields of
    :class:`cellbed.path.Tcp` as JSON; results are the columns of the classes there.

    Errors: :class:`ValueError` that says which value is wrong.
    """

    def __new__(cls, uplink: Stages, downlink: Stages, turnaround_ns: int, outside: Outside | None = None) -> Path: ...
    def copy(self) -> Path: ...
    @property
    def now_ns(self) -> int: ...
    def trains(
        self,
        at_ns: int,
        lengths: list[int],
        gap_ns: int,
        packet_bytes: int,
        acknowledgement: int,
        uplink: bool,
        until_ns: int,
    ) -> tuple[Int64, Int64, Int64]: ...
    def record(self, plan: str, span_ns: int) -> tuple[list[Int64], list[Int64]]:
        """Send trains over a copy of the path; the packets of both directions in order of trains, as columns train,
        index, bytes, sent_ns, arrived_ns (-1: lost) and copies. plan: JSON."""

    def downloads(
        self,
        at_ns: int,
        sizes: list[int],
        thinking_ns: list[int],
        request: int,
        keeps_connection: bool,
        tcp: str,
        until_ns: int,
    ) -> tuple[Int64, Int64, Int64, Int64]: ...

@final
class VirtualNetwork:
    """The network of a virtual run: nodes on the graph of an emulator's configuration, with the emulator's files.

    Vertices are numbers in the order of the configuration, times ns from 0. Errors: ``ValueError`` for a configuration
    that cannot be simulated, ``OSError`` for files that cannot be written.
    """

    def __new__(cls, config: str, turnaround_ns: int, tcp: str, outside: Outside | None = None) -> VirtualNetwork: ...
    def connect(
        self,
        client: tuple[int, int],
        server: tuple[int, int],
        client_tcp: str | None = None,
        server_tcp: str | None = None,
        carried: tuple[int, int] | None = None,
    ) -> int:
        """Open a connection between two vertices, each with its port; its number. client_tcp, server_tcp: settings of
        an end in place of its vertex's. carried: bytes from and to the client so far, to continue a connection."""

    def write(self, connection: int, at_client: bool, bytes: int, label: int, push: bool = False) -> None:
        """Write a message at the client's end or at the other. push: send the written data now; data written later in
        the same instant leaves in other segments."""

    def use_nagle(self, connection: int, at_client: bool) -> None:
        """Let an end hold back short segments (RFC 896)."""

    def want_room(self, connection: int, at_client: bool, least: int, most: int) -> None:
        """Ask for one event "room" when a third of the send buffer of an end is free, of so many bytes at least and at
        most."""

    def send_buffer(self, connection: int, at_client: bool, least: int, most: int) -> int:
        """The size of the send buffer at an end, bytes, between a least and a largest one."""

    def transferred(self, connection: int, at_client: bool) -> tuple[int, int]:
        """Bytes of an end that are not acknowledged, and that have arrived there."""

    def close(self, connection: int, at_client: bool) -> None:
        """Close an end at once: it discards what is unsent, and answers what still arrives with a reset."""

    def send(self, icmp: bool, source: tuple[int, int], target: tuple[int, int], bytes: int, label: int) -> None:
        """Send a datagram of ICMP, or of UDP, between two vertices, each with its port. bytes: its IP length."""

    def wake(self, at_ns: int, label: int) -> None:
        """Ask for an event "due" at a time."""

    def restart(self, zero_ns: int) -> None:
        """Restart all schedules at a time, and discard earlier bins of the series."""

    def next_event(self, until_ns: int) -> tuple[str, int, int, bool, int] | None:
        """The next event by a time, or None: "due", "open", "message", "room" or "datagram" (at its target), its time,
        connection, whether at the client's end, label."""

    def sending(self, connection: int, at_client: bool) -> tuple[int, int, int]:
        """Of the sender at an end: congestion window in segments, smoothed round-trip time in ns, retransmissions."""

    def counted(self) -> list[tuple[int, int, int, int, int, int, int]]:
        """Packets of each direction: queue full, congestion, lost, handover, marked, doubled, corrupted."""

    def served(self, cell: int) -> list[int]:
        """For how long each user of a cell had it, ns."""

    def finish(self) -> None:
        """Write everything and close the files."""

def toml_longest_key(text: str) -> tuple[int, int]:
    """Number of parts of the longest dotted key in a text that may be TOML, and its line, from 1. Parses nothing."""

def toml_positions(text: str) -> dict[str, tuple[int, int]]:
    """Line and column, both from 1, of every key of a TOML document by its path: ``links.mobile.up``, ``a[0].b``.

    Keys with paths of more than 512 bytes are left out, with everything in them.
    Errors: :class:`ValueError` with ``line:column: message`` for what is no TOML, or has a key of more than 64 parts.
    """

def import_series(
    source: str | PathLike[str],
    folder: str | PathLike[str],
    request: str,
    progress: Callable[[int], None] | None = None,
) -> str:
    """Read a recording of another program into files ``PART.times`` in `folder`, in little memory.

    Such a file has the times of delivery opportunities in ns, as little-endian numbers of 64 bits.

    request: JSON of ``cellbed_traces::Request``; :mod:`cellbed.archive.importers` writes it. progress: called every few
    MiB with the bytes read since the last call; what it raises, and what a signal raises, ends the reading. Returns
    JSON: ``parts`` (``part``, ``rows``, ``duration_ns``), ``notes``, and ``begun_ns``, since 1970, or null.

    Errors: :class:`TraceFormatError` that begins with the file and names the place; :class:`OSError` for what cannot be
    read or written.
    """
