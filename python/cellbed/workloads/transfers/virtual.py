"""Transfers in virtual time: servers that reply at once over TCP and UDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cellbed.workloads.kind import Deployment
from cellbed.workloads.transfers.kind import settings
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Model, Setting
from cellbed.workloads.virtual.world import Socket
from cellbed_node.transfers import udp
from cellbed_node.transfers.flows import Settings
from cellbed_node.transfers.load import generator_of
from cellbed_node.transfers.server import Exchange

if TYPE_CHECKING:
    from cellbed.testbed.plan import Plan


class _Transfers(Model):
    """The model: servers that reply at once."""

    covers = ("TCP", "UDP")

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        if each.table.protocol == "quic":
            yield 'protocol = "quic"'

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        world, all_settings = setting.world, setting.clients(each, settings, Settings)
        for node in each.servers:
            host, port = world.hosts[node.name], all_settings[0].port
            if each.table.protocol == "tcp":
                world.listen(host, port, _Server(), each.name)
            else:
                world.listen_to_datagrams(host, port, udp.Server(world.at).receive)
        for node, its in zip(each.clients, all_settings, strict=True):
            yield Client(world, world.hosts[node.name], generator_of(its), each, Draw([{}], setting.seed))


class _Server:
    def accepted(self, connection: Socket) -> Callable[[bytes], None]:
        exchange = Exchange()

        def received(data: bytes) -> None:
            if (found := exchange.receive(data)) is not None:
                head, size = found
                connection.send(head + bytes(size))
                connection.world.end(connection)

        return received


VIRTUAL = _Transfers()
