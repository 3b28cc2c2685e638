"""The model of the kind in virtual time: a server that answers after 2 ms."""

from collections.abc import Iterator, Sequence

from cellbed.testbed.plan import Plan
from cellbed.workloads import lifecycle
from cellbed.workloads.http.load import HttpLoad, Settings
from cellbed.workloads.http.virtual import Server
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Setting

from . import kind

ANSWER = {"server": 2_000_000, "services": {}, "code": 200, "bytes_down": 100, "wire_down": 200, "head": 200, "kept": 1}


class StatusPoll:
    sampling = None
    covers = ()

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        yield from ()

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        world, draw = setting.world, Draw([ANSWER], setting.seed)
        for node in each.servers:
            host = world.hosts[node.name]
            record = setting.stack.enter_context(lifecycle.open_record(each.file(setting.raw, node, "service.jsonl")))
            world.listen(host, each.table.port, Server(world, host, "1.1", draw, record))
        for index, node in enumerate(each.clients):
            generator = HttpLoad(Settings(**kind.settings(each, setting.raw, index, setting.seed)))
            yield Client(world, world.hosts[node.name], generator, each, draw)


VIRTUAL = StatusPoll()
