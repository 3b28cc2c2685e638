"""Makes the folder of a run without running one: requests over TCP through queues, in virtual time.

The model is small and honest: packets wait for delivery opportunities in a drop-tail queue, and connections have a
window and send lost packets again. It writes the raw files that a run writes, so that measuring and reporting
can be tested on any machine; the simulation it returns knows the truth, so that a test can say what must come out.
"""

import functools
import heapq
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cellbed.measure import links as series_format
from cellbed.measure import packets as packet_format
from cellbed.measure.summary import ApplicationSummary, Summary
from cellbed.workloads.image_classification.kind import describe

MS = 1_000_000
MSS = 1448
HEADERS = 52
WINDOW = 200
RETRANSMISSION = 60 * MS
T0 = 5_000_000_000_000
BIN = 10 * MS
PUBLISH = 80_000


@dataclass(frozen=True)
class Shape:
    """What to simulate. Times in s, sizes in bytes, rates in Mbit/s.

    outages: (begin, length) on the uplink of every endpoint. silent_from: the service answers nothing from then on.
    first_sequence: sequence number of each SYN. reconnect_at: every endpoint opens a new connection then, from the next
    port, or from the same one with `same_port`. other: rate of a second application, "other", whose server edge-1 the
    endpoints reach from the ports from which they reach edge-0.
    """

    duration: float = 60.0
    rate: float = 7.0
    endpoints: int = 1
    uplink: float = 8.0
    downlink: float = 12.0
    queue_limit: int = 250_000
    outages: tuple[tuple[float, float], ...] = ((30.0, 2.0),)
    timeout: float = 4.0
    drain: float = 5.0
    silent_from: float | None = None
    first_sequence: int = 1_000_000
    reconnect_at: float | None = None
    same_port: bool = False
    loss: float = 0.0
    seed: int = 1
    other: float | None = None
    description: dict[str, Any] = field(default_factory=dict, compare=False)


class Clock:
    """Events in virtual time (ns)."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(time, self.now), self._count, action))

    def run(self, until: int) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()


class Direction:
    """One direction of a link: loss, opportunities of 1500 bytes behind a drop-tail queue, a fixed delay."""

    def __init__(self, opportunities: Iterator[int] | None, limit: int, delay: int, loss: float, random: Any) -> None:
        self._opportunities, self._limit, self._delay = opportunities, limit, delay
        self._loss, self._random = loss, random
        self._left, self._at = 0, 0
        self._queue: deque[tuple[int, int]] = deque()
        self._waiting = 0
        self.offered: list[int] = []
        self.log: list[tuple[int, int, int, int]] = []  # arrived, released, bytes, drop

    def carry(self, now: int, size: int) -> tuple[int, int, int]:
        """(released, departed, drop) of a packet that arrives now."""
        if self._loss and self._random.random() < self._loss:
            self.log.append((now, now, size, 2))
            return now, now, 2
        if self._opportunities is None:
            self.log.append((now, now, size, 0))
            return now, now + self._delay, 0
        while self._queue and self._queue[0][0] <= now:
            self._waiting -= self._queue.popleft()[1]
        if self._waiting + size > self._limit:
            self.log.append((now, now, size, 1))
            return now, now, 1
        need = size
        if self._at < now:
            self._left = 0
        while need > 0:
            if self._left == 0:
                self._at = next(self._opportunities)
                self.offered.append(self._at)
                if self._at < now:
                    continue
                self._left = 1500
            taken = min(self._left, need)
            self._left -= taken
            need -= taken
        self._queue.append((self._at, size))
        self._waiting += size
        self.log.append((now, self._at, size, 0))
        return self._at, self._at + self._delay, 0


class Network:
    """The directions, the packet log, and what crosses them."""

    def __init__(self, clock: Clock, random: Any) -> None:
        self.clock, self._random = clock, random
        self.directions: list[Direction] = []
        self.names: list[tuple[str, str, str, str, str]] = []
        self.records: list[tuple[int, ...]] = []
        self._packets = 0
        self._written: dict[int, int] = {}

    def add(self, direction: Direction, link: str, way: str, begin: str, end: str) -> int:
        self.directions.append(direction)
        self.names.append((f"{link}.{way}", link, way, begin, end))
        return len(self.directions) - 1

    def send(
        self,
        path: list[int],
        ends: tuple[int, int],
        ports: tuple[int, int],
        sequence: int,
        payload: int,
        done: Callable[[], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        """One packet along a path; `done` is called when it really comes out, `lost` when it is dropped."""
        packet, size = self._packets, payload + HEADERS
        self._packets += 1

        def hop(index: int) -> None:
            arrived = self.clock.now
            released, departed, drop = self.directions[path[index]].carry(arrived, size)
            # A late emulator keeps the order.
            observed = max(departed + int(self._random.exponential(40_000)), self._written.get(path[index], 0) + 1)
            self._written[path[index]] = observed
            record = (packet, arrived, released, departed, observed, path[index], drop, 6, size, *ports)
            self.records.append((*record, sequence % 2**32, payload, *ends))
            if drop:
                lost()
            elif index + 1 < len(path):
                self.clock.at(departed, lambda: hop(index + 1))
            else:
                self.clock.at(observed, done)

        hop(0)


class Stream:
    """One direction of a connection: a window of packets, of which a lost one is sent again after a while.

    `delivered` is called with the length of the prefix that has come.
    """

    peer: "Stream"

    def __init__(
        self,
        network: Network,
        path: list[int],
        back: list[int],
        ends: tuple[int, int],
        ports: tuple[int, int],
        first_sequence: int,
        delivered: Callable[[int], None],
    ) -> None:
        self._network, self._path, self._back, self._ends, self._ports = network, path, back, ends, ports
        self._delivered = delivered
        self.written = self._sent = self._prefix = self._under_way = 0
        self._lost: list[tuple[int, int]] = []
        self._pieces = set[tuple[int, int]]()
        network.send(path, ends, ports, first_sequence, 0, lambda: None)  # SYN
        self._base = first_sequence + 1

    def write(self, count: int) -> None:
        self.written += count
        self._push()

    def _push(self) -> None:
        while self._under_way < WINDOW and (self._lost or self._sent < self.written):
            if self._lost:
                self._transmit(*self._lost.pop(0))
            else:
                size = min(MSS, self.written - self._sent)
                self._sent += size
                self._transmit(self._sent - size, size)

    def _transmit(self, begin: int, size: int) -> None:
        self._under_way += 1

        def lost() -> None:
            self._lost.append((begin, size))
            self._over()

        arrived = functools.partial(self._arrived, begin, begin + size)
        number = self._base + begin
        self._network.send(self._path, self._ends, self._ports, number, size, arrived, self._later(lost))

    def _arrived(self, begin: int, end: int) -> None:
        self._pieces.add((begin, end))
        before = self._prefix
        for low, high in sorted(self._pieces):
            if low <= self._prefix:
                self._prefix = max(self._prefix, high)
        self._pieces = {piece for piece in self._pieces if piece[1] > self._prefix}
        if self._prefix > before:
            self._delivered(self._prefix)
        # Acknowledgements travel the other way as packets without payload of the other stream.
        ends, ports, number = self._ends[::-1], self._ports[::-1], self.peer._base + self.peer._sent
        self._network.send(self._back, ends, ports, number, 0, self._over, self._later(self._over))

    def _over(self) -> None:
        self._under_way -= 1
        self._push()

    def _later(self, action: Callable[[], None]) -> Callable[[], None]:
        clock = self._network.clock
        return lambda: clock.at(clock.now + RETRANSMISSION, action)


@dataclass
class Request:
    """A request as its programs saw it. Times in ns of the virtual clock."""

    app: str
    request: int
    endpoint: str
    intended: int
    bytes_up: int
    bytes_down: int = 180
    local_port: int = 0
    uplink: tuple[int, int] = (0, 0)
    downlink: tuple[int, int] = (0, 0)
    stamps: dict[str, int] = field(default_factory=dict)


def opportunities(rate: float, outages: tuple[tuple[float, float], ...], random: Any) -> Iterator[int]:
    """Delivery opportunities of 1500 bytes at a rate that swings slowly, Mbit/s; none in an outage. ns."""
    at, phase = 0.0, random.uniform(0, 6.28)
    while True:
        speed = rate * (1 + 0.5 * np.sin(at / 4.3 + phase) + 0.25 * np.sin(at / 0.9))
        at += random.exponential(1500 * 8 / (speed * 1e6))
        for begin, length in outages:
            if begin <= at < begin + length:
                at = begin + length
        yield int(at * 1e9)


class Simulation:
    """Endpoints that offload to an edge node for each application."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.random = np.random.default_rng(shape.seed)
        self.clock = Clock()
        self.network = Network(self.clock, self.random)
        self.requests: list[Request] = []
        self.rates = {"workload": shape.rate} | ({} if shape.other is None else {"other": shape.other})
        self._worker_free = dict.fromkeys(self.rates, 0)
        for index in range(shape.endpoints):
            up = opportunities(shape.uplink, shape.outages, self.random)
            down = opportunities(shape.downlink, (), self.random)
            name, link = f"endpoint-{index}", f"mobile-{index}"
            up_link = Direction(up, shape.queue_limit, 10 * MS, shape.loss, self.random)
            down_link = Direction(down, shape.queue_limit, 10 * MS, 0, self.random)
            self.network.add(up_link, link, "uplink", name, "tower")
            self.network.add(down_link, link, "downlink", "tower", name)
        for number in range(len(self.rates)):
            core = [Direction(None, 0, 500_000, 0, self.random) for _ in range(2)]
            self.network.add(core[0], f"core-edge-{number}", "uplink", "tower", f"edge-{number}")
            self.network.add(core[1], f"core-edge-{number}", "downlink", f"edge-{number}", "tower")
        for app in self.rates:
            for index in range(shape.endpoints):
                self._start(app, index)
        self.clock.run(int((shape.duration + shape.drain) * 1e9))

    def _start(self, app: str, index: int) -> None:
        shape = self.shape
        # A pair of ports is only used again when nothing of the connection before is on its way.
        pause = 2.0 if shape.same_port else 0.0
        self._connect(app, index, 40_000, 0.0, (shape.reconnect_at or shape.duration) - pause)
        if shape.reconnect_at is not None:
            port = 40_000 if shape.same_port else 40_001
            self._connect(app, index, port, shape.reconnect_at, shape.duration)

    def _connect(self, app: str, index: int, port: int, begin: float, end: float) -> None:
        """One connection and the requests intended while it is open (the connection opens 50 ms before `begin`)."""
        shape, clock, rate = self.shape, self.clock, self.rates[app]
        edge = shape.endpoints + list(self.rates).index(app)
        up, down = [2 * index, 2 * edge], [2 * edge + 1, 2 * index + 1]
        pending_up: list[Request] = []
        pending_down: list[Request] = []

        def open_connection() -> None:
            jump = int(begin * 15_625_000) if shape.same_port else 0
            numbers = shape.first_sequence + jump, shape.first_sequence + 77 + jump
            vertices = index, edge
            uplink = Stream(self.network, up, down, vertices, (port, 1883), numbers[0], received)
            downlink = Stream(self.network, down, up, vertices[::-1], (1883, port), numbers[1], replied)
            uplink.peer, downlink.peer = downlink, uplink
            uplink.write(120)  # CONNECT
            streams.extend((uplink, downlink))

        streams: list[Stream] = []

        def received(prefix: int) -> None:
            while pending_up and pending_up[0].uplink[1] <= prefix:
                serve(pending_up.pop(0))

        def serve(request: Request) -> None:
            stamps = request.stamps
            stamps["received"] = clock.now + int(self.random.uniform(2e5, 6e5))
            stamps["dequeued"] = max(stamps["received"] + 50_000, self._worker_free[app])
            stamps["compute_start"] = stamps["dequeued"] + int(self.random.normal(4e6, 4e5))
            stamps["compute_end"] = stamps["compute_start"] + int(self.random.gamma(40, 3e5))
            self._worker_free[app] = stamps["compute_end"]
            stamps["reply_sent"] = stamps["compute_end"] + 100_000
            clock.at(stamps["reply_sent"] + 300_000, lambda: reply(request))

        def reply(request: Request) -> None:
            if shape.silent_from is not None and request.intended > shape.silent_from * 1e9:
                return
            downlink = streams[1]
            request.downlink = downlink.written, downlink.written + request.bytes_down
            pending_down.append(request)
            downlink.write(request.bytes_down)

        def replied(prefix: int) -> None:
            while pending_down and pending_down[0].downlink[1] <= prefix:
                done = pending_down.pop(0)
                done.stamps["reply"] = clock.now + int(self.random.uniform(1e5, 3e5))

        def begin_request(request: Request) -> None:
            stamps = request.stamps
            stamps["started"] = request.intended + int(self.random.exponential(60_000))
            stamps["sent"] = stamps["started"] + int(self.random.normal(6e6, 5e5))
            clock.at(stamps["sent"] + PUBLISH, lambda: publish(request))

        def publish(request: Request) -> None:
            uplink = streams[0]
            request.local_port = port
            request.uplink = uplink.written, uplink.written + request.bytes_up
            pending_up.append(request)
            uplink.write(request.bytes_up)

        clock.at(max(0, int(begin * 1e9) - 50 * MS), open_connection)
        count = int(shape.duration * rate)
        for number in range(count):
            intended = int((number + 0.5) / rate * 1e9)
            if begin * 1e9 <= intended < end * 1e9:
                size = int(np.clip(self.random.lognormal(11.1, 0.6), 7_000, 170_000))
                request = Request(app, number, f"endpoint-{index}", intended, size)
                self.requests.append(request)
                clock.at(intended, lambda request=request: begin_request(request))


def make_run(path: Path, shape: Shape | None = None) -> Simulation:
    """Fill `path` with ``run.json`` and the raw files of a simulated run; returns the simulation."""
    shape = shape or Shape()
    simulation = _simulated(shape)
    raw = path / "raw"
    raw.mkdir(parents=True)
    _write_packets(raw / "packets.bin", simulation.network)
    _write_series(raw / "series.bin", simulation)
    _write_requests(raw, simulation)
    _write_nodes(raw / "nodes.jsonl", simulation)
    _write_host(raw / "host.jsonl", shape)
    description = _description(simulation) | shape.description
    (path / "run.json").write_text(json.dumps(description, indent=1))
    (path / "scenario.toml").write_text(_SCENARIO.format(**vars(shape)))
    resolved = {"name": "offload-simulated", "duration": f"{shape.duration:g} s", "workload": description["workload"]}
    (path / "scenario.resolved.json").write_text(json.dumps(resolved, indent=1))
    (path / "environment.json").write_text(json.dumps(_ENVIRONMENT, indent=1))
    return simulation


def only(summary: Summary) -> ApplicationSummary:
    """The application of a run that has one."""
    (found,) = summary.applications
    return found


@functools.cache
def _simulated(shape: Shape) -> Simulation:
    """It takes a second for half a minute, many tests want the same, and a description has no part in it."""
    return Simulation(shape)


def status_of(request: Request, shape: Shape) -> str:
    """What became of a request, as its endpoint recorded it."""
    reply, deadline = request.stamps.get("reply"), request.intended + int(shape.timeout * 1e9)
    if reply is not None:
        return "ok" if reply <= deadline else "late"
    return "timed-out" if deadline <= (shape.duration + shape.drain) * 1e9 else "lost"


def _write_packets(path: Path, network: Network) -> None:
    records = np.array(network.records, packet_format.RECORD) if network.records else np.empty(0, packet_format.RECORD)
    for name in ("arrived", "released", "departed", "observed"):
        records[name] += T0
    # Written when a packet leaves a direction.
    records = records[np.argsort(records["departed"], kind="stable")]
    path.write_bytes(packet_format.MAGIC + records.tobytes())


def _write_series(path: Path, simulation: Simulation) -> None:
    end = int((simulation.shape.duration + simulation.shape.drain) * 1e9)
    bins = end // BIN
    edges = np.arange(bins + 1) * BIN
    tables = []
    for number, direction in enumerate(simulation.network.directions):
        log = np.array(direction.log, np.int64).reshape(-1, 4)
        arrived, released, size, drop = log.T
        table = np.zeros(bins, series_format.RECORD)
        table["start"], table["direction"] = edges[:-1] + T0, number
        if direction._opportunities is None:
            table["capacity"] = series_format.UNLIMITED
        else:
            offered = direction.offered
            while not offered or offered[-1] < end:
                offered.append(next(direction._opportunities))
            table["capacity"] = np.histogram(offered, edges)[0] * 1500
        kept = drop == 0
        table["used"] = np.histogram(released[kept], edges, weights=size[kept])[0]
        table["arrived"] = np.histogram(arrived, edges, weights=size)[0]
        for reason, name in ((1, "dropped_queue"), (2, "dropped_loss")):
            table[name] = np.histogram(arrived[drop == reason], edges)[0]
        moments = np.r_[arrived[kept], released[kept]]
        change = np.r_[size[kept], -size[kept]]
        order = np.argsort(moments, kind="stable")
        moments, level = moments[order], np.cumsum(change[order])
        after = np.searchsorted(moments, edges[1:], side="left") - 1
        table["queue_bytes"] = np.where(after >= 0, np.r_[level, 0][after], 0) if len(level) else 0
        table["queue_packets"] = table["queue_bytes"] // 1500
        table["queue_peak_bytes"] = table["queue_bytes"]
        tables.append(table)
    together = np.concatenate(tables)
    together = together[np.argsort(together["start"], kind="stable")]
    path.write_bytes(series_format.MAGIC + together.tobytes())


def _write_requests(raw: Path, simulation: Simulation) -> None:
    shape = simulation.shape
    end = (shape.duration + shape.drain) * 1e9
    files: dict[str, list[str]] = {f"{app}.edge-{i}.service": [] for i, app in enumerate(simulation.rates)}
    server_of = dict(zip(simulation.rates, files, strict=True))
    for request in simulation.requests:
        stamps = {name: time + T0 for name, time in request.stamps.items() if time <= end}
        request.stamps = {name: time for name, time in request.stamps.items() if time <= end}
        if "sent" not in stamps:
            continue
        replied = "reply" in stamps
        line = {
            "request": request.request,
            "endpoint": request.endpoint,
            "input": f"{request.request % 64:03}.jpg",
            "intended_ns": request.intended + T0,
            "started_ns": stamps["started"],
            "sent_ns": stamps["sent"],
            "accepted_ns": stamps["sent"] + PUBLISH,
            "buffer_full_ns": 0,
            "uplink_start": request.uplink[0],
            "uplink_end": request.uplink[1],
            "local_port": request.local_port,
            "remote_port": 1883,
            "reply_ns": stamps.get("reply"),
            "downlink_start": request.downlink[0] if replied else None,
            "downlink_end": request.downlink[1] if replied else None,
            "bytes_up": request.bytes_up,
            "bytes_down": request.bytes_down if replied else None,
            "output": "class-417" if replied else None,
            "status": status_of(request, shape),
            "tcp": {"cwnd": 10, "rtt_us": 41000, "retransmits": 0, "receive_window_limited_us": 0},
        }
        files.setdefault(f"{request.app}.{request.endpoint}.requests", []).append(json.dumps(line))
        if "compute_end" in stamps:
            keys = ("received", "dequeued", "compute_start", "compute_end", "reply_sent")
            times = {f"{key}_ns": stamps.get(key) for key in keys}
            identity = {"request": request.request, "endpoint": request.endpoint}
            line = identity | times | {"output": "class-417", "worker": 0}
            files[server_of[request.app]].append(json.dumps(line))
    for name, lines in files.items():
        (raw / f"{name}.jsonl").write_text("".join(line + "\n" for line in lines))


def _write_nodes(path: Path, simulation: Simulation) -> None:
    shape, random = simulation.shape, simulation.random
    busy: dict[str, Any] = {}
    for number, app in enumerate(simulation.rates):
        served = [r.stamps for r in simulation.requests if r.app == app and "compute_end" in r.stamps]
        spans = np.array([(each["dequeued"], each["compute_end"]) for each in served]).reshape(-1, 2)
        busy[f"edge-{number}"] = spans
    lines = []
    for step in range(int((shape.duration + shape.drain) * 10)):
        time = step * 100 * MS
        rows = [
            (edge, int(np.diff(spans[spans[:, 0] < time]).sum()), 310e6 + 4e6 * np.sin(step / 40))
            for edge, spans in busy.items()
        ]
        rows += [(f"endpoint-{i}", int(time * 0.07), 92e6 + 1e4 * step) for i in range(shape.endpoints)]
        for node, cpu, memory in rows:
            throttled = min(max(step - 300, 0), 40) if node == "edge-0" else 0
            lines.append(
                {
                    "time_ns": time + T0,
                    "node": node,
                    "cpu_ns": cpu + int(random.integers(0, 1000)),
                    "memory_bytes": int(memory),
                    "periods": step,
                    "throttled_periods": throttled // 2,
                    "throttled_ns": throttled * 20 * MS,
                    "oom_kills": 0,
                }
            )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _write_host(path: Path, shape: Shape) -> None:
    """Samples of a machine on which nothing else runs."""
    second, lines = 1000 * MS, []
    for number in range(int(shape.duration + shape.drain)):
        clocks = {"time_ns": T0 + number * second, "realtime_ns": 0, "boottime_ns": 0}
        used = {"idle_ns": 1900 * MS * number, "own_ns": 90 * MS * number, "steal_ns": 0}
        lines.append(clocks | used | {"cpus": 2, "pressure_ns": 20 * MS * number, "nodes": []})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _description(simulation: Simulation) -> dict[str, Any]:
    shape = simulation.shape
    directions = []
    for index, (name, link, way, begin, end) in enumerate(simulation.network.names):
        mobile = link.startswith("mobile")
        limit = f"{shape.queue_limit / 1e3:g} kB"
        text = f"simulated.{way[:-4]}, looped, drop-tail {limit}, 10 ms one way" if mobile else "500 µs one way"
        trace = {"name": f"simulated.{way[:-4]}", "sha256": "0" * 64, "synthetic": True} if mobile else None
        directions.append(
            {"index": index, "name": name, "link": link, "way": way, "from": begin, "to": end}
            | {"description": text, "trace": trace}
        )
    nodes = [_node(f"endpoint-{i}", "endpoint", 1.0, i) for i in range(shape.endpoints)]
    nodes += [_node(f"edge-{i}", "edge", 2.0, i) for i in range(len(simulation.rates))]
    workload = {
        "kind": "image-classification",
        "on": "edge",
        "rate": f"{shape.rate:g} /s",
        "arrivals": "periodic",
        "timeout": f"{shape.timeout:g} s",
        "drain": f"{shape.drain:g} s",
        "model": None,
    }
    applications = [
        replace(
            describe(workload),
            name=app,
            clients=tuple(f"endpoint-{i}" for i in range(shape.endpoints)),
            servers=(f"edge-{number}",),
        )
        for number, app in enumerate(simulation.rates)
    ]
    return {
        "format": 1,
        "name": "offload-simulated",
        "status": "complete",
        "t0_ns": T0,
        "started": "2025-01-01T12:00:00+00:00",
        "duration_ns": int(shape.duration * 1e9),
        "drain_ns": int(shape.drain * 1e9),
        "limits_enforced": True,
        "no_limits": False,
        "first_request_s": 1.9,
        "seed": shape.seed,
        "workload": workload,
        "applications": [asdict(each) for each in applications],
        "nodes": nodes,
        "directions": directions,
        "proof": [
            {"what": "edge-0 CPU limit", "asked": 2.0, "measured": 1.98, "unit": "CPUs", "ok": True, "note": ""},
            {"what": "mobile-0.uplink rate", "asked": 8.0, "measured": 7.94, "unit": "Mbit/s", "ok": True, "note": ""},
            {"what": "mobile-0.uplink delay", "asked": 10.0, "measured": 10.06, "unit": "ms", "ok": True, "note": ""},
        ],
        "emulator": {
            "lateness_ns": {"p50": 28_000, "p99": 180_000, "max": 900_000},
            "interfaces": {node["name"]: {"dropped": 0, "packets": 1000} for node in nodes},
        },
        "warnings": [],
    }


def _node(name: str, node_class: str, cpus: float, index: int) -> dict[str, Any]:
    addresses = [f"100.64.{0 if node_class == 'endpoint' else 64}.{index + 2}"]
    common = {"addresses": addresses, "limits_enforced": True}
    return {"name": name, "class": node_class, "cpus": cpus, "memory_bytes": 512 << 20} | common


_SCENARIO = """name = "offload-simulated"
duration = "{duration:g} s"
seed = {seed}

[workload]
kind = "image-classification"
on = "edge"
rate = "{rate:g} /s"
"""

_ENVIRONMENT = {
    "cellbed": "0.1.0",
    "python": "3.11.2",
    "libraries": {"numpy": "2.4", "onnxruntime": "1.20"},
    "kernel": "6.1.0",
    "processor": "a simulated processor",
    "cpus": 2,
    "congestion_control": "cubic",
    "traces": {"simulated.up": "0" * 64},
    "seed": 1,
}
