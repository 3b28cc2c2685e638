"""WebSocket servers in virtual time: they reply to each message after its measured time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request, TextMessage

from cellbed.support.errors import CellbedError
from cellbed.workloads.http.virtual import listening, strangers
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Model, Packets, Sampling, Setting, answered, nanoseconds
from cellbed.workloads.virtual.world import TURNAROUND_NS, Socket, World
from cellbed.workloads.websocket import kind
from cellbed_node.websocket.load import Settings, WebSocketLoad

if TYPE_CHECKING:
    import polars as pl

    from cellbed.testbed.plan import Plan


class Server:
    """A WebSocket server. Replies take their measured time on the processors of its node, and repeat the request's
    name, if the message contains one."""

    def __init__(self, world: World, draw: Draw) -> None:
        self._world, self._draw = world, draw

    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        protocol = WSConnection(ConnectionType.SERVER)
        parts: list[str] = []
        number = 0

        def received(data: bytes) -> None:
            nonlocal number
            protocol.receive_data(data)
            for event in protocol.events():
                match event:
                    case Request():
                        connection.send(protocol.send(AcceptConnection()))
                    case TextMessage():
                        parts.append(event.data)
                        if event.message_finished:
                            reply("".join(parts), number)
                            parts.clear()
                            number += 1

        def reply(content: str, number: int) -> None:
            named = re.search(r"[A-Za-z0-9_-]+/[0-9]{1,12}(?![0-9])", content)
            name = named[0] if named is not None else ""
            client = f"{connection.getpeername()[0]}:{connection.getpeername()[1]}"
            sample = self._draw.sample(name or f"{client}/{number}")
            work_ns = max(0, sample["server"] - TURNAROUND_NS)
            message = TextMessage(data=name.ljust(sample["message_down"], "."))
            at_ns = connection.host.processors.run(self._world.now_ns, work_ns)
            self._world.at(at_ns, lambda: send(message))

        def send(message: TextMessage) -> None:
            connection.send(protocol.send(message))

        return received


def _samples(
    application: Mapping[str, Any], requests: pl.DataFrame, messages: pl.DataFrame, packets: Packets
) -> list[dict[str, Any]]:
    if pushed := messages["request"].null_count():
        raise CellbedError(
            f"'{application['name']}': the server sent {pushed} unrequested messages while its profile was measured, "
            "and these have no model in virtual time: run it without --virtual"
        )
    samples = [_sample(row) for row in answered(requests).iter_rows(named=True)]
    return [sample for sample in samples if sample is not None]


def _sample(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the sample of a message; None if one of its parts is unknown."""
    if row.get("part_server") is None or row.get("downlink_end") is None:
        return None
    known = {"generator": row.get("part_generator"), "receive": row.get("part_endpoint_receive")}
    parts: dict[str, Any] = {name: nanoseconds(span) for name, span in known.items() if span is not None}
    server = nanoseconds(row["part_server"] + row["part_server_pauses"])
    return parts | {"server": server, "message_down": row["bytes_down"]}


class _Websocket(Model):
    """Servers that reply to each message as measured."""

    moves = True
    sampling = Sampling(
        _samples, frozenset(("generator", "receive", "server", "message_down")), rate="5 /s", load=("connections",)
    )

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        yield from strangers(kind.settings, each, plan)
        if each.table.url.startswith("wss:"):
            yield "wss: the handshake and records of TLS"

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        draw, all_settings = setting.draw(each), setting.clients(each, kind.settings, Settings)
        for host, port, _ in listening(all_settings, each, setting):
            setting.world.listen(host, port, Server(setting.world, draw), each.name, alone=False)
        for node, settings in zip(each.clients, all_settings, strict=True):
            yield Client(setting.world, setting.world.hosts[node.name], WebSocketLoad(settings), each, draw)


VIRTUAL = _Websocket()
