"""The model of the kind in virtual time: a server that answers at once."""

from collections.abc import Iterator

from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Model, Setting

from .kind import PORT, settings
from .load import EchoLoad, Settings


class Echo(Model):
    """A server that sends each datagram back."""

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        hosts = setting.world.hosts
        for node in each.servers:
            setting.world.listen_to_datagrams(hosts[node.name], PORT, lambda data, reply: reply(data))
        for node, own in zip(each.clients, setting.clients(each, settings, Settings), strict=True):
            yield Client(setting.world, hosts[node.name], EchoLoad(own), each, Draw([{}], setting.seed))


VIRTUAL = Echo()
