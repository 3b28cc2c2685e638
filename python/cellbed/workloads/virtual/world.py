"""Virtual time: hosts on the links of a plan, their programs, and sockets between them.

A program is a thread of control with a clock. Its work takes time on its host's processors; later events wait for
earlier work. This module carries the bytes; the network (``cellbed._core.VirtualNetwork``) carries their lengths.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from cellbed._core import VirtualNetwork
from cellbed.laws.law import Law
from cellbed.path import Outside, Tcp
from cellbed.runformat.flows import FILE as FLOWS
from cellbed.scenario.sites import cell_visits
from cellbed.testbed.plan import Plan
from cellbed_node import machine
from cellbed_node.agent import PERIOD_US

if TYPE_CHECKING:
    from cellbed.scenario import Scenario

SECOND = 1_000_000_000
TURNAROUND_NS = 100_000
"""Approximate time that a host and the emulator need to put a packet on the path."""
_LOOPBACK_NS = 30_000
"""One-way delay between programs of one host."""
_PIECES = 1 << 12, 1448
"""Maximum bytes that arrive together, at a client and at a server: servers grant windows for the bytes they read."""
_UDP_HEADERS = 28
"""Bytes of the IPv4 and UDP headers."""
_DATAGRAMS = 1 << 32
"""Number of labels of a datagram socket."""
_UNLIMITED = 1 << 62
_AGAIN_NS, _EQUAL = 200_000_000, 2
"""Minimum retransmission timeout of Linux beyond the round-trip time (``TCP_RTO_MIN``), and number of equal timeouts: a
probe precedes the first one (RFC 8985, §7). Each further timeout is twice the previous one."""
_SYN_AGAIN_NS, _SYN_EQUAL = SECOND, 5
"""The same for the first packet of a connection (RFC 6298, §2.1; ``tcp_syn_linear_timeouts``, Linux 6.5)."""
_FIRST_PORT = 40_000
_PERIOD_NS = PERIOD_US * 1000


class Processors:
    """The CPU time of a node: a quota per period, as in the kernel's CPU bandwidth control.

    cpus: quota in CPUs; infinite without limit. speed: in multiples of the machine that measured the work.
    """

    def __init__(self, cpus: float, speed: float = 1.0) -> None:
        self.speed = speed
        self._quota_ns = round(cpus * _PERIOD_NS) if cpus != float("inf") else None
        self._used: dict[int, int] = defaultdict(int)

    def run(self, begin_ns: int, work_ns: int) -> int:
        """Return the end of a computation of one thread from `begin_ns`. work_ns: measured duration."""
        work_ns = round(work_ns / self.speed)
        if self._quota_ns is None:
            return begin_ns + work_ns
        now = begin_ns
        while work_ns > 0:
            period = now // _PERIOD_NS
            end = (period + 1) * _PERIOD_NS
            step = min(work_ns, self._quota_ns - self._used[period], end - now)
            if step <= 0:
                now = end
                continue
            self._used[period] += step
            now, work_ns = now + step, work_ns - step
        return now


class Host:
    """A node: its vertex, its address and its processors."""

    def __init__(self, vertex: int, name: str, address: str, processors: Processors) -> None:
        self.vertex, self.name, self.address, self.processors = vertex, name, address, processors
        self.ports = itertools.count(_FIRST_PORT)


class Program:
    """A thread of control on a host.

    now_ns: its clock, which runs ahead of the world's during computation. on_socket: called with each socket that the
    program opens. app: its application.
    """

    def __init__(self, world: World, host: Host, app: str = "") -> None:
        self.world, self.host, self.app = world, host, app
        self.now_ns = 0
        self.on_socket: Callable[[Socket | DatagramSocket], None] = lambda _: None
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False

    def call(self, work: Callable[[], None]) -> None:
        """Run `work` after all earlier calls."""
        self._waiting.append(work)
        if not self._busy:
            self._go_on()

    def spend(self, work_ns: int) -> None:
        """Advance the clock by a computation."""
        self.now_ns = self.host.processors.run(self.now_ns, work_ns)

    def _go_on(self) -> None:
        world, self._busy = self.world, True
        while self._waiting:
            if self.now_ns > world.now_ns:
                world.at(self.now_ns, self._go_on)
                return
            self.now_ns = world.now_ns
            world.current = self
            self._waiting.popleft()()
        self._busy = False


Service = tuple[Host, int]
"""A service: the node and port to which clients connect. The server may have moved to another node."""


@dataclass(slots=True)
class _Stop:
    """A pause of a service on a host. drops: the host drops packets to the service; else packets wait there."""

    host: Host
    drops: bool


@dataclass(slots=True)
class _Held:
    """Packets of a connection that wait for a paused service.

    since_ns: send time of the first packet; again_ns: its first retransmission timeout; equal: number of equal timeouts
    before they double. lost, unsent: calls for data sent before, and for later data.
    """

    since_ns: int
    again_ns: int
    equal: int
    lost: list[Callable[[], None]] = field(default_factory=list)
    unsent: list[Callable[[], None]] = field(default_factory=list)

    def due_ns(self, now_ns: int) -> int:
        """Return the time of the first retransmission not before `now_ns`."""
        due_ns, again_ns = self.since_ns, self.again_ns
        for number in itertools.count(1):
            if not again_ns or due_ns >= now_ns:
                break
            due_ns, again_ns = due_ns + again_ns, again_ns * (2 if number >= self.equal else 1)
        return due_ns


class Server(Protocol):
    """A server that accepts the connections at a port of a host."""

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """Accept the connection of a client; return the function that processes its bytes."""


class Socket:
    """One end of a connection, with the interface of a non-blocking TCP socket.

    on_event: called when the socket is connected or readable. delay: returns the time until the program notices an
    event, ns. noticed_ns: when the program notices the latest event.
    """

    delay: Callable[[], int] = staticmethod(lambda: 0)
    noticed_ns = 0

    def __init__(self, world: World, host: Host, peer: Host, ports: tuple[int, int], service: Service) -> None:
        self.world, self.host, self.peer_host = world, host, peer
        self._ports, self.service = ports, service
        self.number: int | None = None
        self.peer: Socket | None = None
        self.at_client = True
        self.connected = self.closed = False
        self.buffer = bytearray()
        self.ended = False
        """True after the other end has closed."""
        self.on_event: Callable[[], None] = lambda: None
        self.on_room: Callable[[], None] = lambda: None
        self.last = 0
        """Label of the last message sent."""
        self.carried = 0
        """Bytes sent, except those dropped by the host of a paused service."""
        self.send_buffer = world.tcp.send_buffer
        """Maximum size of its send buffer, bytes."""
        self.buffered = 0
        """Present size of its send buffer, which Linux enlarges with the largest congestion window."""
        self.shared: str | None = None
        """At a client: the address of the connection, if several servers share the address."""
        self.broken = False
        """True after the other end has reset the connection."""
        self.settings: Sequence[Tcp | None] = ()
        """At a client: TCP settings of both ends, if different from their nodes' settings."""
        self._descriptor = next(world.descriptors)

    @property
    def waiting(self) -> int | None:
        """Bytes to read; 0 at the end of the stream, ``None`` for nothing."""
        return len(self.buffer) if self.buffer or self.ended or self.broken else None

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """Accept all data, return its size, and send it when the program's clock is reached."""
        if data:
            self.world.transmit(self, bytes(data))
        return len(data)

    def recv(self, size: int) -> bytes:
        if self.broken:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if not self.buffer and not self.ended:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        return data

    def use_nagle(self) -> None:
        """Delay short packets while earlier data is unacknowledged."""
        if self.number is not None:
            self.world.network.use_nagle(self.number, self.at_client)

    def close(self) -> None:
        self.closed = True

    def pump(self, size: int) -> None:
        """Send `size` bytes without content."""
        self.carried += size
        self.world.network.write(self._number(), self.at_client, size, 0)

    def room(self, least: int) -> int:
        """Return the free space in the send buffer; 0 or less: none. least: minimum capacity of an empty buffer."""
        if self.number is None:
            return _UNLIMITED
        known, network = max(self.buffered, least), self.world.network
        self.buffered = network.send_buffer(self.number, self.at_client, known, self.send_buffer)
        return self.buffered - self.transferred()[0]

    def want_room(self) -> None:
        """Ask for one call of ``on_room`` when a third of the send buffer is free (``sk_stream_write_space``)."""
        self.world.network.want_room(self._number(), self.at_client, self.buffered, self.send_buffer)

    def transferred(self) -> tuple[int, int]:
        """Bytes sent from here and not acknowledged, and bytes that have arrived here."""
        return self.world.network.transferred(self._number(), self.at_client)

    def sending(self) -> tuple[int, int, int]:
        """Congestion window in segments, smoothed round-trip time in ns, retransmissions."""
        return self.world.network.sending(self._number(), self.at_client)

    def abort(self) -> None:
        """Close the connection at once; later arrivals are answered with a reset."""
        self.closed = True
        self.world.network.close(self._number(), self.at_client)

    def _number(self) -> int:
        assert self.number is not None, "both ends are on one host"
        return self.number

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        pass

    def getsockname(self) -> tuple[str, int]:
        return self.host.address, self._ports[0]

    def getpeername(self) -> tuple[str, int]:
        return self.peer_host.address, self._ports[1]

    def getsockopt(self, _level: int, _option: int) -> int:
        return 0

    @property
    def info(self) -> dict[str, int]:
        """The sender's state, as from :func:`cellbed_node.tcp.tcp_info`."""
        window, round_trip_ns, repairs = self.sending() if self.number is not None else (10, 0, 0)
        return {"cwnd": window, "rtt_us": round_trip_ns // 1000, "retransmits": repairs}


class Datagrams:
    """A datagram socket of UDP, or of ICMP echoes. arrived: called with the number of each datagram on arrival."""

    def __init__(self, world: World, arrived: Callable[[int], None], *, icmp: bool = False) -> None:
        self._world, self._arrived, self._icmp = world, arrived, icmp
        self._first = world.register(arrived)

    def send(self, source: tuple[Host, int], target: tuple[Host, int], size: int, number: int) -> None:
        """Send a datagram between two hosts, each with its port. size: bytes of the IP packet."""
        world, (sender, _), (receiver, _) = self._world, source, target
        if sender is receiver:
            world.at(world.now_ns + _LOOPBACK_NS, lambda: self._arrived(number))
            return
        ends = (sender.vertex, source[1]), (receiver.vertex, target[1])
        world.network.send(self._icmp, *ends, size, self._first + number)


DatagramServer = Callable[[bytes, Callable[[bytes], None]], None]
"""Handles datagrams to a port of a host. The second argument sends a datagram back."""


class DatagramSocket:
    """A client's non-blocking UDP socket. on_event: called when the socket is readable. delay, noticed_ns: as in
    :class:`Socket`."""

    connected = True
    delay: Callable[[], int] = staticmethod(lambda: 0)
    noticed_ns = 0

    def __init__(self, world: World, host: Host, address: str, port: int) -> None:
        self._world, self._host, self._address, self._port = world, host, address, port
        self._local_port = next(host.ports)
        self._server = world.host_of(address, host) if address in world.spread else None
        self._arrived: deque[bytes] = deque()
        self._requests: list[tuple[Host, bytes]] = []
        self._replies: list[bytes] = []
        self._to_server = Datagrams(world, self._serve)
        self._to_client = Datagrams(world, self._receive)
        self.closed = False
        self.on_event: Callable[[], None] = lambda: None
        self._descriptor = next(world.descriptors)

    @property
    def waiting(self) -> int | None:
        """Number of datagrams to read, ``None`` for none."""
        return len(self._arrived) or None

    def send(self, data: bytes) -> int:
        """Send a datagram when the program's clock is reached."""
        world, content = self._world, bytes(data)
        world.at(machine.now_ns(), lambda: self._send(content))
        return len(content)

    def _send(self, data: bytes) -> None:
        server = self._server or self._world.host_of(self._address, self._host)
        if server is None:
            return
        self._requests.append((server, data))
        ends = (self._host, self._local_port), (server, self._port)
        self._to_server.send(*ends, len(data) + _UDP_HEADERS, len(self._requests) - 1)

    def _serve(self, number: int) -> None:
        host, data = self._requests[number]
        serve = self._world.datagram_servers.get((host, self._port))
        if serve is not None:
            serve(data, lambda reply: self._reply(host, reply))

    def _reply(self, host: Host, data: bytes) -> None:
        self._replies.append(data)
        ends = (host, self._port), (self._host, self._local_port)
        self._to_client.send(*ends, len(data) + _UDP_HEADERS, len(self._replies) - 1)

    def _receive(self, number: int) -> None:
        if not self.closed:
            self._world.happen(self, partial(self._arrived.append, self._replies[number]))

    def recv(self, size: int) -> bytes:
        if not self._arrived:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return self._arrived.popleft()[:size]

    def close(self) -> None:
        self.closed = True

    def fileno(self) -> int:
        return self._descriptor

    def getsockname(self) -> tuple[str, int]:
        return self._host.address, self._local_port


class World:
    """Hosts, the network between them, and scheduled calls. now_ns: the time."""

    def __init__(
        self, config: Mapping[str, Any], hosts: Iterable[Host], tcp: Tcp, seed: int = 0, outside: Outside | None = None
    ) -> None:
        """Create hosts at time 0; they are the first vertices of the emulator's configuration.

        tcp: settings of the network. seed: seed of the choice among servers. outside: network that packets pass before
        the links. Errors: ``ValueError`` for links that cannot be simulated.
        """
        self.network = VirtualNetwork(json.dumps(config), TURNAROUND_NS, tcp.to_json(), outside)
        self.tcp = tcp
        self.hosts = {host.name: host for host in hosts}
        self._tcp: dict[tuple[str, str], Tcp] = {}
        self._by_address = {host.address: host for host in self.hosts.values()}
        self._names: Mapping[str, str] = {}
        self._servers: dict[tuple[Host, int], dict[str, tuple[Server, str]]] = {}
        self._stays: dict[str, Sequence[tuple[int, str]]] = {}
        self._shared: dict[str, dict[str, Host]] = {}
        self.spread: dict[str, list[Host]] = {}
        """Servers by address, if connections to the address are spread over several."""
        self._random = Random(f"balance {seed}")
        self.places: dict[Service, Host] = {}
        """The hosts of services that have moved."""
        self._stops: dict[Service, _Stop] = {}
        self._held: dict[Socket, _Held] = {}
        self._resets: dict[int, Socket] = {}
        self._zero_ns: int | None = None
        self._sockets: dict[tuple[int, bool], Socket] = {}
        self._by_descriptor: dict[int, Socket | DatagramSocket] = {}
        self.datagram_servers: dict[tuple[Host, int], DatagramServer] = {}
        self._data: dict[int, bytes] = {}
        self._datagrams: list[Callable[[int], None]] = []
        self._calls: dict[int, Callable[[], None]] = {}
        self._labels = itertools.count(1)
        self.ends: set[int] = set()
        """Labels of messages that end their connections."""
        self.descriptors = itertools.count(1 << 20)
        self.now_ns = 0
        self.current: Program | None = None

    @classmethod
    def of_plan(cls, plan: Plan, tcp: Tcp, controls: Mapping[Law | str, str], raw: Path, *, limits: bool) -> World:
        """Return a world with the nodes of a plan at time 0.

        controls: names of congestion controls in virtual time. raw: folder for the files of the network. Errors: see
        the class.
        """
        scenario = plan.scenario
        config = plan.emulator_config(raw, control_name=controls.__getitem__) | {"lateness": None, "change_log": None}
        config["flows"] = str(raw / FLOWS) if scenario.transport.series else None
        cpus = [Processors(node.cpus if limits else float("inf"), node.speed) for node in plan.nodes]
        hosts = [Host(at, node.name, str(node.ipv4), cpus[at]) for at, node in enumerate(plan.nodes)]
        world = cls(config, hosts, tcp, scenario.seed)
        world._tcp = dict(_program_settings(scenario, tcp, controls))
        world._names = names(plan)
        world._stays = {node.name: cell_visits(scenario.nodes[node.group]) for node in plan.nodes}
        # By address and cell: the server.
        world._shared = {
            str(service.address): {
                name: world.hosts[node.name]
                for name, cell in scenario.cells.items()
                for node in service.nodes
                if scenario.nodes[node.group].site == cell.site
            }
            for service in plan.services.values()
            if not service.spread
        }
        world.spread = {
            str(service.address): [world.hosts[node.name] for node in service.nodes]
            for service in plan.services.values()
            if service.spread
        }
        return world

    @classmethod
    def pair(
        cls, uplink: Sequence[Mapping[str, Any]], downlink: Sequence[Mapping[str, Any]], tcp: Tcp,
        outside: Outside | None = None,
    ) -> World:  # fmt: skip
        """Return a world of two hosts, ``client`` and ``server``, whose programs take no time, and links with these
        stages. Errors: see the class."""
        ends = ("client", "server")
        ways = [("uplink", *ends, uplink), ("downlink", *ends[::-1], downlink)]
        directions = [dict(zip(("name", "from", "to", "stages"), way, strict=True)) for way in ways]
        hosts = [Host(at, name, name, Processors(float("inf"), float("inf"))) for at, name in enumerate(ends)]
        return cls(
            {"vertices": [{"name": name} for name in ends], "directions": directions}, hosts, tcp, outside=outside
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Connect the clients of this process to this world."""
        clock = lambda: self.current.now_ns if self.current is not None else self.now_ns  # noqa: E731
        with machine.replace_machine(
            clock, self.connect, self.open_datagrams, lambda host, _: self._names.get(host, host)
        ):
            yield

    def at(self, time_ns: int, call: Callable[[], None]) -> None:
        """Call `call` at a time, or now if the time is past."""
        label = next(self._labels)
        self._calls[label] = call
        self.network.wake(time_ns, label)

    def register(self, arrived: Callable[[int], None]) -> int:
        """Return the label of the first datagram of a socket. arrived: called with datagram numbers."""
        self._datagrams.append(arrived)
        return (len(self._datagrams) - 1) * _DATAGRAMS

    def is_connected(self, descriptor: int) -> bool:
        """Return whether a socket is writable."""
        return self._by_descriptor[descriptor].connected

    def restart(self, zero_ns: int) -> None:
        """Restart schedules and handovers at a time."""
        self._zero_ns = zero_ns
        self.network.restart(zero_ns)

    def hosts_of(self, name: str) -> list[Host]:
        """Return the hosts of this name or address; several servers can share one."""
        address = self._names.get(name, name)
        if address in self.spread:
            return self.spread[address]
        if address in self._shared:
            return list(self._shared[address].values())
        return [self._by_address[address]] if address in self._by_address else []

    def name_of(self, address: str) -> str:
        """Return the first name of an address; the address itself without a name."""
        return next((name for name, named in self._names.items() if named == address), address)

    def address_of(self, name: str) -> str:
        """Return the address of a name; an address is returned unchanged."""
        return self._names.get(name, name)

    def _find_server(self, host: Host, port: int) -> tuple[Server, str] | None:
        """Return the server at a port of a host for the current program, and the server's application."""
        found = self._servers.get((host, port), {})
        app = self.current.app if self.current is not None else ""
        return found.get(app) or next(iter(found.values()), None)

    def host_of(self, address: str, client: Host) -> Host | None:
        """Return the host that a client now reaches at an address; a random one, if connections are spread."""
        if address.startswith("127."):
            return client
        if address in self.spread:
            return self._random.choice(self.spread[address])
        if address not in self._shared:
            return self._by_address.get(address)
        since_ns = machine.now_ns() - self._zero_ns if self._zero_ns is not None else 0
        cell = next(cell for at_ns, cell in reversed(self._stays[client.name]) if at_ns <= max(0, since_ns))
        return self._shared[address][cell]

    def _is_stale(self, client: Socket) -> bool:
        """Return whether a client's packets no longer reach the server of its connection."""
        return client.shared is not None and self.host_of(client.shared, client.host) is not client.peer_host

    def moved(self, clients: Iterable[Host]) -> None:
        """Handle a change of cell: packets in transit from `clients` to a shared address reach another server."""
        for each in list(self._sockets.values()):
            if each.at_client and each.host in clients and each.last in self._data and self._is_stale(each):
                self._refuse(each)

    def _refuse(self, client: Socket) -> None:
        """Reset a connection whose packet reached another server. A SYN and its reply model the reset: their path is
        the same and their sizes are similar."""
        assert client.shared is not None
        server = self.host_of(client.shared, client.host)
        if client.closed or server is None or client in self._resets.values():
            return
        ports = next(client.host.ports), client.getpeername()[1]
        number = self.network.connect((client.host.vertex, ports[0]), (server.vertex, ports[1]))
        self._resets[number] = client

    def _opened(self, connection: int, at_client: bool) -> None:
        if (opened := self._sockets.get((connection, at_client))) is not None:
            opened.connected = True
            self.happen(opened)
        elif at_client:
            client = self._resets.pop(connection)
            client.broken = True
            self.happen(client)

    def listen(self, host: Host, port: int, server: Server, app: str, *, alone: bool = True) -> None:
        """Let a server of an application accept the connections to a port of a host. alone: the server replies to
        clients of all applications in the same way. A user's server can be registered several times, once per
        application."""
        self._servers.setdefault((host, port), {})["" if alone else app] = server, app

    def listen_to_datagrams(self, host: Host, port: int, server: DatagramServer) -> None:
        """Let a server handle the datagrams to a port of a host."""
        self.datagram_servers[host, port] = server

    def open_datagrams(self, address: str, port: int, _local_port: int = 0) -> DatagramSocket:
        """Open a UDP socket on the host of the current program, for datagrams to and from one address. The local port
        is always new."""
        assert self.current is not None
        found = DatagramSocket(self, self.current.host, address, port)
        self.current.on_socket(found)
        self._by_descriptor[found.fileno()] = found
        return found

    def run(self, until_ns: int, over: Callable[[], bool] = lambda: False) -> None:
        """Process due events, until a time or until `over` returns true."""
        next_event, take_call = self.network.next_event, self._calls.pop
        while not over() and (found := next_event(until_ns)) is not None:
            kind, self.now_ns, connection, at_client, label = found
            self.current = None
            if kind == "due":
                take_call(label)()
            elif kind == "open":
                self._opened(connection, at_client)
            elif kind == "room":
                self._sockets[connection, at_client].on_room()
            elif kind == "datagram":
                self._datagrams[label // _DATAGRAMS](label % _DATAGRAMS)
            elif label:
                data = self._data.pop(label)
                self._arrived(self._sockets[connection, at_client], data, label in self.ends or not data)
        self.current = None

    def transmit(self, sender: Socket, data: bytes) -> None:
        """Send bytes when the program's clock is reached; empty data closes the connection."""
        at_ns = machine.now_ns()
        peer = sender.peer
        assert peer is not None
        if sender.shared is not None and self._is_stale(sender):
            self._refuse(sender)
            return
        if not sender.at_client and sender.closed:
            return
        stop = self._stops.get(sender.service) if self._stops else None
        if (stop is not None and stop.drops) or (self._held and sender in self._held):
            self._hold(sender, lambda: self.transmit(sender, data))
            return
        sender.carried += len(data) or 1  # a FIN takes a sequence number
        if sender.number is None:
            self.at(at_ns + _LOOPBACK_NS, lambda: self._arrived(peer, data, not data))
            return
        most, number, at_client = _PIECES[sender.at_client], sender.number, sender.at_client
        whole = [data] if len(data) <= most else [data[begin : begin + most] for begin in range(0, len(data), most)]
        pieces = [(next(self._labels), piece) for piece in whole]
        self._data |= pieces
        sender.last = last = pieces[-1][0]

        def write() -> None:
            for label, piece in pieces:
                self.network.write(number, at_client, len(piece) or 1, label, label == last)

        if at_ns <= self.now_ns:
            write()
        else:
            self.at(at_ns, write)

    def end(self, sender: Socket) -> None:
        """Close a connection towards the other end: with the last message, if in transit, else alone."""
        if sender.last in self._data:
            self.ends.add(sender.last)
        else:
            self.transmit(sender, b"")

    def _arrived(self, receiver: Socket, data: bytes, ended: bool) -> None:
        client = receiver if receiver.at_client else receiver.peer
        if receiver.closed or (self._resets and client in self._resets.values()):
            return
        stop = self._stops.get(receiver.service) if self._stops and not receiver.at_client else None
        if stop is not None and stop.host is receiver.host:
            assert client is not None
            if stop.drops:
                client.carried -= len(data) or 1
                self._hold(client, lambda: self.transmit(client, data), lost=True)
            else:
                self._hold(receiver, lambda: self._arrived(receiver, data, ended))
            return

        def notice() -> None:
            receiver.buffer += data
            receiver.ended |= ended
            receiver.on_event()

        self._report(receiver, notice)
        if receiver.shared is not None and self._is_stale(receiver):
            self._refuse(receiver)  # the acknowledgement reaches another server

    def happen(self, end: Socket | DatagramSocket, change: Callable[[], None] | None = None) -> None:
        """Report an event to the program of a socket, after earlier events. change: of the socket, by the event."""

        def notice() -> None:
            if change is not None:
                change()
            end.on_event()

        self._report(end, notice)

    def _report(self, end: Socket | DatagramSocket, notice: Callable[[], None]) -> None:
        end.noticed_ns = max(end.noticed_ns, self.now_ns + end.delay())
        if end.noticed_ns > self.now_ns:
            self.at(end.noticed_ns, notice)
        else:
            notice()

    def connect(self, address: str, port: int, tcp: Tcp | None = None) -> Socket:
        """Open a connection from the host of the current program. tcp: its settings, if different from the program's.

        Raises OSError if no server listens.
        """
        assert self.current is not None
        host = self.current.host
        peer = self.host_of(address, host)
        found = self._find_server(peer, port) if peer is not None else None
        if peer is None or found is None:
            raise OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        server, owner = found
        ports, service = (next(host.ports), port), (peer, port)
        settings = [tcp or self._tcp.get((self.current.app, "client")), self._tcp.get((owner, "server"))]
        client = Socket(self, host, peer, ports, service)
        accepted = Socket(self, peer, host, ports[::-1], service)
        client.peer, accepted.peer, accepted.at_client = accepted, client, False
        client.settings = settings
        client.send_buffer, accepted.send_buffer = ((each or self.tcp).send_buffer for each in settings)
        client.shared = address if address in self._shared else None
        self.current.on_socket(client)
        self._by_descriptor[client.fileno()] = client
        receive = server.accepted(accepted)

        def read() -> None:
            if accepted.buffer:
                data = bytes(accepted.buffer)
                accepted.buffer.clear()
                receive(data)

        # A server reads all that arrives at the same time together.
        accepted.on_event = lambda: self.at(self.now_ns, read)
        if (stop := self._stops.get(service)) is not None and stop.drops:
            self._hold(client, lambda: self._open(client))
        elif (at_ns := machine.now_ns()) > self.now_ns:  # when the program's clock is reached
            self.at(at_ns, lambda: self._open(client))
        else:
            self._open(client)
        return client

    def _open(self, client: Socket) -> None:
        """Open the connection of a client to its service's present host, unless the client has closed it."""
        if client.closed:
            return
        accepted = client.peer
        assert accepted is not None
        accepted.host = self.places.get(client.service, client.service[0])
        if accepted.host is client.host:

            def opened() -> None:
                client.connected = True
                self.happen(client)

            self.at(machine.now_ns() + _LOOPBACK_NS, opened)
        else:
            client.number = accepted.number = self._connected(client, accepted.host)

    def _connected(self, client: Socket, place: Host, carried: tuple[int, int] | None = None) -> int:
        """Open or continue the connection of a client in the network; return its number."""
        ends = (client.host.vertex, client.getsockname()[1]), (place.vertex, client.service[1])
        near, far = (each.to_json() if each else None for each in client.settings)
        number = self.network.connect(*ends, near, far, carried)
        assert client.peer is not None
        self._sockets[number, True], self._sockets[number, False] = client, client.peer
        return number

    # ---- services that move

    def services(self, app: str, home: Host) -> list[Service]:
        """Return the services of an application whose server began on this host."""
        return [
            key
            for key, found in self._servers.items()
            if key[0] is home and any(own == app for _, own in found.values())
        ]

    def stop(self, service: Service, *, drops: bool) -> None:
        """Pause a service until :meth:`resume`. drops: its connections move, too: the host drops packets, and clients
        retransmit; else packets wait at the host."""
        self._stops[service] = _Stop(self.places.get(service, service[0]), drops)

    def resume(self, service: Service, place: Host | None = None) -> None:
        """End a pause. place: the new host of the service, if it has moved."""
        del self._stops[service]
        if place is not None:
            self.places[service] = place
            for client in self._clients(service):
                assert client.peer is not None
                client.peer.host = place
                if client.host is place:
                    client.number = client.peer.number = None
                elif client.connected:
                    carried = client.carried, client.peer.carried
                    client.number = client.peer.number = self._connected(client, place, carried)
        for end, held in self._held.items():
            if end.service == service:
                self.at(held.due_ns(self.now_ns), partial(self._resume, end))

    def end_connections(self, service: Service, host: Host, *, idle: bool) -> None:
        """Let a host end its connections of a service. idle: only connections without a pending request."""
        for client in self._clients(service):
            accepted = client.peer
            assert accepted is not None
            if accepted.host is not host or (idle and client.last > accepted.last) or accepted.closed:
                continue
            self._held.pop(accepted, None)
            self.end(accepted)
            accepted.closed = True

    def has_connections(self, service: Service, host: Host) -> bool:
        """Return whether a host has connections of a service."""
        return any(client.peer is not None and client.peer.host is host for client in self._clients(service))

    def _clients(self, service: Service) -> list[Socket]:
        """Return the open clients of a service."""
        found = (each for each in self._by_descriptor.values() if isinstance(each, Socket))
        return [each for each in found if each.service == service and not each.closed]

    def _hold(self, end: Socket, call: Callable[[], None], *, lost: bool = False) -> None:
        """Keep a call of a connection's end until its service resumes. lost: the data was already sent."""
        if end not in self._held:
            again_ns, equal = 0, 0
            if end.at_client:
                known = end.number is not None
                again_ns, equal = (_AGAIN_NS + end.sending()[1], _EQUAL) if known else (_SYN_AGAIN_NS, _SYN_EQUAL)
            self._held[end] = _Held(machine.now_ns(), again_ns, equal)
        held = self._held[end]
        (held.lost if lost else held.unsent).append(call)

    def _resume(self, end: Socket) -> None:
        if (held := self._held.pop(end, None)) is not None:
            for call in (*held.lost, *held.unsent):
                call()


def window_in(receive_buffer: int) -> int:
    """Return the largest receive window that fits into a receive buffer, bytes.

    The rest is kernel memory around the data: half of the buffer until Linux 6.5 (``tcp_adv_win_scale``, tcp(7)), then
    an estimate per connection. Real runs with buffers of 4 to 32 MB have windows of 0.63 to 0.66
    (`receive_window_bytes` in `flows.parquet`, Linux 6.18).
    """
    return int(receive_buffer * 0.66)


def _program_settings(
    scenario: Scenario, tcp: Tcp, controls: Mapping[Law | str, str]
) -> Iterator[tuple[tuple[str, str], Tcp]]:
    """Yield the TCP settings that programs choose, by application and role. tcp: the network's settings."""
    for name, application in scenario.applications.items():
        for key, role in application.roles():
            control = role.congestion_control or scenario.control_of(role.on)
            if role.tcp:
                yield (
                    (name, key),
                    replace(
                        tcp,
                        control=controls[control] if control is not None else tcp.control,
                        receive_window=window_in(role.receive_buffer) if role.receive_buffer else tcp.receive_window,
                        send_buffer=role.send_buffer or tcp.send_buffer,
                        pacing=tcp.pacing if role.pacing is None else role.pacing,
                    ),
                )


def names(plan: Plan) -> dict[str, str]:
    """Return IPv4 addresses by name, as in the nodes' hosts files."""
    lines = [line.split() for line in plan.hosts.splitlines()]
    return {name: address for address, name in lines if ":" not in address}
