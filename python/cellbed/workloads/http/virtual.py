"""The model of the kind in virtual time: servers that answer byte for byte as far as lengths go, and take as long as
their samples have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events
import h11

from cellbed.runformat.spans import SERVICE
from cellbed.workloads import lifecycle
from cellbed.workloads.http import kind
from cellbed.workloads.http.connection import REQUEST_HEADER
from cellbed.workloads.http.load import HttpLoad, Settings
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import (
    FEWEST,
    Draw,
    Packets,
    Sample,
    Sampling,
    Setting,
    answered,
    nanoseconds,
    without_waiting,
)
from cellbed.workloads.virtual.world import TURNAROUND_NS, Host, SendBuffer, Socket, World, names

if TYPE_CHECKING:
    import polars as pl

    from cellbed.testbed.plan import Plan

_SEGMENT = 1448
"""Bytes of a full packet."""
_CHUNK = 8 << 10
"""Bytes of a DATA frame (nginx: ``http2_chunk_size``)."""
_LEAST_BUFFERED = 16 << 10
"""Bytes that a send buffer takes in any case (``tcp_wmem``)."""
_WRITING_NS = 20_000
"""Between two writes of a server."""
_KEYS = frozenset(("generator", "receive", "server", "services", "code", "bytes_down", "wire_down", "head", "kept"))


class _Http:
    """See :class:`~cellbed.workloads.virtual.model.Model`."""

    covers = ()

    def __init__(self) -> None:
        self.sampling = Sampling(_samples, _KEYS, rate="5 /s", files=("body_file",), load=("connections",))

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        """URLs that are not those of a node."""
        addresses = {name: address for name, address in names(plan).items() if not address.startswith("127.")}
        hosts = {str(kind.settings(each, Path(), index, 0)["host"]) for index in range(len(each.clients))}
        for host in sorted(hosts - addresses.keys() - set(addresses.values())):
            yield f"the URL of {host}, which is no node"
        if each.table.stream is not None:
            yield f"stream = '{each.table.stream}': when a server sends the messages of a reply"
        if each.table.grpc is not None:
            yield "grpc: trailers of replies, and when a server sends their messages"
        if each.table.all_journeys():
            yield "journeys: the contents of replies"
        if each.table.url.startswith("https:"):
            yield "https: the handshake and records of TLS"

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        world, draw = setting.world, setting.draw(each)
        records: dict[str, IO[str]] = {}
        for index, node in enumerate(each.clients):
            settings = Settings(**kind.settings(each, setting.raw, index, setting.seed))
            for host in world.hosts_of(settings.host):
                if host.name not in records:
                    file = setting.raw / f"{each.name}.{host.name}.service.jsonl"
                    records[host.name] = setting.stack.enter_context(lifecycle.open_record(file))
                world.listen(host, settings.port, Server(world, host, settings.version, draw, records[host.name]))
            yield Client(world, world.hosts[node.name], HttpLoad(settings), each, draw)


class Server:
    """An HTTP server whose requests take their measured time on the processors of its node, without waiting for each
    other otherwise. version: of HTTP. record: file of the spans that its service reports."""

    def __init__(self, world: World, host: Host, version: str, draw: Draw, record: IO[str]) -> None:
        self._world, self._host, self._version, self._draw, self._record = world, host, version, draw, record

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        """See :class:`~cellbed.workloads.virtual.world.Server`."""
        return self._http1(connection) if self._version == "1.1" else self._http2(connection)

    def _later(self, request: str, answer: Callable[[Sample], None]) -> None:
        sample = self._draw.sample(request)
        work_ns = max(0, sample["server"] - TURNAROUND_NS)
        begin_ns = self._world.now_ns
        end_ns = self._host.processors.run(begin_ns, work_ns)
        self._world.at(end_ns, lambda: answer(sample))
        endpoint, _, number = request.rpartition("/")
        stretched, at_ns = (end_ns - begin_ns) / max(1, work_ns), begin_ns
        for name, own_ns in sample["services"].items():
            line = {"endpoint": endpoint, "request": int(number), "span": name, "begin_ns": at_ns}
            at_ns += round(own_ns * stretched)
            self._record.write(json.dumps(line | {"end_ns": at_ns}, separators=(",", ":")) + "\n")

    def _http1(self, connection: Socket) -> Callable[[bytes], None]:
        protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)

        def received(data: bytes) -> None:
            protocol.receive_data(data)
            name = ""
            while (event := protocol.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    headers = dict(event.headers)
                    name = headers[REQUEST_HEADER.lower().encode()].decode()
                elif isinstance(event, h11.EndOfMessage):
                    self._later(name, answer)

        def answer(sample: Sample) -> None:
            headers = [("Content-Length", str(sample["bytes_down"]))]
            if not sample["kept"]:
                headers.append(("Connection", "close"))
            fill = sample["wire_down"] - sample["bytes_down"] - len(f"HTTP/1.1 {sample['code']} \r\n\r\n")
            fill -= sum(len(name) + len(value) + 4 for name, value in headers) + len("x: \r\n")
            if fill > 0:
                headers.append(("x", "x" * fill))
            content = protocol.send(h11.Response(status_code=sample["code"], headers=headers)) or b""
            content += protocol.send(h11.Data(data=bytes(sample["bytes_down"]))) or b""
            content += protocol.send(h11.EndOfMessage()) or b""
            head = sample["head"]
            if head >= min(_SEGMENT, sample["wire_down"]):
                send(content)
                return
            # The server writes its header first, and leaves the algorithm of Nagle on.
            connection.use_nagle()
            connection.send(content[:head])
            self._world.at(self._world.now_ns + _WRITING_NS, lambda: send(content[head:]))

        def send(content: bytes) -> None:
            connection.send(content)
            if protocol.our_state is h11.MUST_CLOSE:
                connection.end()
            else:
                protocol.start_next_cycle()

        return received

    def _http2(self, connection: Socket) -> Callable[[bytes], None]:
        config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8")
        protocol = h2.connection.H2Connection(config)
        protocol.initiate_connection()
        names: dict[int, str] = {}
        bodies: dict[int, int] = {}
        heads, frames, buffer = bytearray(), bytearray(), SendBuffer(connection, _LEAST_BUFFERED)

        def received(data: bytes) -> None:
            for event in protocol.receive_data(data):
                match event:
                    case h2.events.RequestReceived():
                        names[event.stream_id] = str(dict(event.headers)[REQUEST_HEADER.lower()])  # type: ignore[index]
                    case h2.events.DataReceived():
                        protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        stream = event.stream_id
                        self._later(names.pop(stream), lambda sample, stream=stream: answer(stream, sample))  # type: ignore[misc]
            write()

        def answer(stream: int, sample: Sample) -> None:
            headers = [(":status", str(sample["code"])), ("content-length", str(sample["bytes_down"]))]
            protocol.send_headers(stream, headers, end_stream=sample["bytes_down"] == 0)
            if sample["bytes_down"]:
                bodies[stream] = sample["bytes_down"]
            write()

        def write() -> None:
            """Give the socket what it takes: heads before bodies, and these in the order of the replies, as nginx."""
            heads.extend(protocol.data_to_send())
            while heads or frames or bodies:
                room = buffer.room()
                if room <= 0:
                    buffer.want_room()
                    return
                if heads and not frames:
                    frames.extend(heads)
                    heads.clear()
                elif not frames:
                    frame_bodies(room)
                if not frames:  # the client's windows are full
                    return
                connection.send(frames[:room])
                del frames[:room]

        def frame_bodies(room: int) -> None:
            """Frame as much as there is room for, at most to the end of a reply: the client gets a write when it has
            come whole."""
            for stream in list(bodies):
                while len(frames) < room and (window := protocol.local_flow_control_window(stream)) > 0:
                    size = min(window, protocol.max_outbound_frame_size, _CHUNK, bodies[stream])
                    bodies[stream] -= size
                    protocol.send_data(stream, bytes(size), end_stream=bodies[stream] == 0)
                    frames.extend(protocol.data_to_send())
                    if not bodies[stream]:
                        del bodies[stream]
                        return

        connection.on_room = write
        return received


def _samples(application: Mapping[str, Any], requests: pl.DataFrame, packets: Packets) -> list[dict[str, Any]]:
    heads = _heads(packets(requests["remote_port"].drop_nulls().unique().to_list()))
    found = answered(_alone(requests))
    kept = "order" in found.columns and bool(found["order"].max())
    services = application.get("services") or ()
    samples = [_sample(row, kept, heads, services) for row in found.iter_rows(named=True)]
    return without_waiting([sample for sample in samples if sample is not None])


def _alone(requests: pl.DataFrame) -> pl.DataFrame:
    """Return the requests that were sent when all earlier replies of their connection had come, if they are enough:
    of others it is not known what their server took while it sent to others. Else all."""
    import polars as pl

    before = pl.col("reply_ns").cum_max().shift(1).over("endpoint", "local_port", order_by="sent_ns")
    found = requests.filter((before <= pl.col("sent_ns")).fill_null(value=True))
    return found if len(found) >= FEWEST else requests


def _heads(packets: Any) -> dict[tuple[int, int], int]:
    """Return the payload of packets by their destination port and when they entered the network: those that begin
    replies. Of segments that entered together the first."""
    packets = packets[packets["payload"] > 0][::-1]
    keys = zip(packets["destination_port"].tolist(), packets["arrived"].tolist(), strict=True)
    return dict(zip(keys, packets["payload"].tolist(), strict=True))


def _sample(
    row: Mapping[str, Any], kept: bool, heads: Mapping[tuple[int, int], int], services: Sequence[str]
) -> dict[str, Any] | None:
    """Return the sample of a request; None where one of its parts is unknown. services: spans of its server."""
    if row.get("part_server") is None or row.get("downlink_end") is None:
        return None
    known = {"generator": row.get("part_generator"), "receive": row.get("part_endpoint_receive")}
    parts: dict[str, Any] = {name: nanoseconds(span) for name, span in known.items() if span is not None}
    spans = {part: row.get(f"part_{SERVICE}{part}") for part in services}
    parts["services"] = {name: nanoseconds(span) for name, span in spans.items() if span}
    # A reply in pieces is predicted as one, which comes when the last piece would.
    parts["server"] = nanoseconds(row["part_server"] + row["part_server_pauses"]) + sum(parts["services"].values())
    wire = row["downlink_end"] - row["downlink_start"]
    head = heads.get((row["local_port"], row["downlink_entered_ns"]), wire)
    answer = {"code": row["code"], "bytes_down": row["bytes_down"], "wire_down": wire, "head": head}
    return parts | answer | {"kept": kept}


VIRTUAL = _Http()
