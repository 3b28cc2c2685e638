"""The common part of all kinds that offload over MQTT: broker, service and endpoints, and the spans of a request.

Each server node has a broker and a service with worker processes. Endpoints are assigned to the server nodes in turn.
Without offloading, each endpoint is its own server. A kind adds a client
(:class:`cellbed_node.offloading.endpoint.Inputs`) and a task (:mod:`cellbed_node.offloading.task`).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cellbed.runformat.description import Caution, Description, Measure, Timed
from cellbed.runformat.records import SERVICES, ColumnType
from cellbed.runformat.spans import DOWNLINK, UPLINK, Span
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.kind import Deployment
from cellbed_node.offloading import task

PORT = 1883
"""Registered port of MQTT."""

_LOOPBACK = "127.0.0.1"
_PACKAGE = "cellbed_node.offloading"

# One thread per process: the number of processes is the parallelism, and limits count the usage of each process.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


# fmt: off
_SPANS = (
    Span("generator", "endpoint", "Generator", "generator", "intended time → pre-processing begins", "intended",
         "started"),
    Span("preprocessing", "endpoint", "Pre-processing", "pre-process", "pre-processing begins → publish called",
         "started", "sent"),
    *UPLINK,
    Span("remote_stack", "remote", "Remote stack", "stack", "request left the network → received by the service",
         "uplink_left", "received"),
    Span("server_queue", "remote", "Server queue", "queue", "received → taken by a worker", "received", "dequeued"),
    Span("decode", "remote", "Decoding", "decode", "taken by a worker → inference begins", "dequeued",
         "compute_start"),
    Span("inference", "remote", "Inference", "inference", "inference begins → ends", "compute_start", "compute_end"),
    Span("remote_reply", "remote", "Reply", "reply", "inference ends → first byte of the reply enters the downlink",
         "compute_end", "downlink_entered"),
    *DOWNLINK,
    Span("endpoint_receive", "endpoint", "Endpoint receive", "receive", "reply left the network → seen by the client",
         "downlink_left", "reply"),
)
_LOCAL_SPANS = (
    *_SPANS[:2],
    Span("handover", "endpoint", "Hand-over", "hand-over",
         "publish called → received by the service on the same node, through its broker", "sent", "received"),
    *(replace(span, place="endpoint") for span in _SPANS if span.name in ("server_queue", "decode", "inference")),
    Span("return", "endpoint", "Return", "return", "inference ends → reply seen by the client on the same node",
         "compute_end", "reply"),
)
_DISPLAY = Span("display", "endpoint", "Display", "display", "reply seen by the client → displayed", "arrived", "reply")
# fmt: on


def _add_display(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    *before, last = spans
    return (*before, replace(last, end="arrived"), _DISPLAY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of workload that offloads over MQTT; see :class:`cellbed.workloads.kind.Workload`.

    client: module of the endpoint, whose function ``open_inputs`` opens the data bank at a path. task: module of the
    service's computation. bank: makes the data bank of a table. model: makes or finds the default model of a table;
    seeded: note in reports if its weights come from a seed. options: options of the task, without its model. data: note
    on the data bank in reports. displayed: the client displays replies
    (:class:`cellbed_node.offloading.endpoint.Displayed`). profile: rate and seconds of the run that measures a profile.
    """

    name: str
    client: str
    task: str
    bank: Callable[[Any, Path, Note], Path]
    model: Callable[[Any, Path, Note], Path]
    seeded: Caution | None = None
    options: Callable[[Any], dict[str, str]] = lambda table: {}
    data: Caution
    measures: tuple[Measure, ...]
    displayed: bool = False
    profile: tuple[str, int]

    def prepare(self, table: Any, cache: Path, note: Note = silent) -> None:
        """Build the data bank and the model under ``cache`` if they are missing, or check the user's model.

        Raises CellbedError.
        """
        self.bank(table, cache, note)
        if table.model is None:
            self.model(table, cache, note)
            return
        try:
            task.check(self.task, model=str(table.model), **self.options(table))
        except task.ModelError as error:
            raise CellbedError(f"workload.model: {error}") from error

    def processes(
        self, deployment: Deployment, raw: Path, *, cache: Path, seed: int, port: int = PORT
    ) -> list[Process | Command]:
        """Return broker and service for each server, and the clients. Call prepare before."""
        table, servers = deployment.table, deployment.servers
        model = Path(table.model) if table.model is not None else self.model(table, cache, silent)
        options = {"model": str(model.absolute()), **self.options(table)}
        port += deployment.number  # one node can have brokers of several applications
        started: list[Process | Command] = []
        for node in servers:
            addresses = sorted({str(node.ipv4), deployment.listening(node), _LOOPBACK})
            file = str(deployment.file(raw, node, "broker.conf"))
            settings: dict[str, Any] = {"addresses": addresses, "port": port, "configuration": file}
            started.append(deployment.program("broker", f"{_PACKAGE}.broker", node, raw, settings))
        for node in servers:
            settings = {
                "node": node.name,
                "broker_host": _LOOPBACK,
                "broker_port": port,
                "request_topic": self._topic,
                "task": self.task,
                "options": options,
                "workers": table.workers or max(1, math.ceil(node.cpus)),
                "record": str(deployment.file(raw, node, SERVICES)),
            }
            reads = [value for value in options.values() if Path(value).is_absolute()]
            service = deployment.program("service", f"{_PACKAGE}.service", node, raw, settings, reads)
            started.append(replace(service, stage=1, env=_ONE_THREAD))
        configure = partial(self.endpoint_settings, cache=cache, port=port)
        loads = deployment.load_generators("endpoint", self.client, raw, seed, configure, ["inputs"])
        return [*started, *(replace(load, env=_ONE_THREAD) for load in loads)]

    def endpoint_settings(
        self, deployment: Deployment, raw: Path, index: int, seed: int, *, cache: Path, port: int
    ) -> dict[str, Any]:
        """Return the configuration of client `index` (:class:`.endpoint.Settings`). port: port of the client's
        broker."""
        servers, clients = deployment.servers, deployment.clients
        return {
            **deployment.load(raw, index, seed),
            "broker_host": deployment.address(servers[index % len(servers)]),
            "broker_port": port,
            "request_topic": self._topic,
            "inputs": str(self.bank(deployment.table, cache, silent)),
            "connect_patience_ns": (30 + len(clients)) * 1_000_000_000,
        }

    @property
    def _topic(self) -> str:
        return f"cellbed/{self.name}"

    def describe(self, table: Mapping[str, Any]) -> Description:
        """Describe requests: inputs are prepared and sent, wait for a worker, are decoded and computed; a text returns.

        If the servers are the clients' nodes, nothing crosses the network, and its parts are missing.
        """
        server = table.get("server") or table.get("on")
        local = server is not None and server == table.get("client")
        spans = _LOCAL_SPANS if local else _SPANS
        columns: dict[str, ColumnType] = {"input": "text", "output": "text"}
        return Timed(
            kind=self.name,
            title=f"{self.name.replace('-', ' ')} on {server or 'a remote node'}",
            spans=_add_display(spans) if self.displayed else spans,
            client_columns=columns | ({"arrived_ns": "integer", "correct": "integer"} if self.displayed else {}),
            server_columns={
                "received_ns": "integer",
                "dequeued_ns": "integer",
                "compute_start_ns": "integer",
                "compute_end_ns": "integer",
                "reply_sent_ns": "integer",
                "worker": "integer",
            },
            same=("input",),
            measures=self.measures,
            cautions=(*([self.seeded] if self.seeded is not None and table.get("model") is None else []), self.data),
        )
