"""The model of the kind in virtual time: a server that answers at once."""

from collections.abc import Iterator, Sequence

from cellbed.testbed.plan import Plan
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Setting

from .kind import PORT, settings
from .load import EchoLoad, Settings


class Echo:
    sampling = None
    covers = ()

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        yield from ()

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        hosts = setting.world.hosts
        for node in each.servers:
            setting.world.listen_to_datagrams(hosts[node.name], PORT, lambda data, reply: reply(data))
        for index, node in enumerate(each.clients):
            generator = EchoLoad(Settings(**settings(each, setting.raw, index, setting.seed)))
            yield Client(setting.world, hosts[node.name], generator, each, Draw([{}], setting.seed))


VIRTUAL = Echo()
