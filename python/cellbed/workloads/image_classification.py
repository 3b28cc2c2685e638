"""Image classification offloaded over MQTT: endpoints send photographs, a remote node answers with their classes.

Each remote node has a broker and a service with worker processes; the endpoints are dealt out to the remote nodes in
turn.
"""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.errors import CellbedError
from cellbed.testbed.process import Process
from cellbed.testbed.unmodified import Command
from cellbed.workloads import broker, mobilenet, photographs
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.kind import DOWNLINK, UPLINK, Caution, Deployment, Description, Measure, Node, Span

if TYPE_CHECKING:
    from cellbed.scenario.applications import ImageClassification

PORT = 1883
"""MQTT's registered port."""

_REQUEST_TOPIC = "cellbed/image-classification"
_LOOPBACK = "127.0.0.1"

# One thread per process: the number of processes is the degree of parallelism, and limits count what each uses.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def prepare(table: "ImageClassification", cache: Path, note: Note = silent) -> None:
    """Build the data bank and the model under ``cache`` where they are missing, or check the user's model.

    Raises CellbedError.
    """
    photographs.data_bank(cache, count=table.images or photographs.COUNT, note=note)
    if table.model is None:
        mobilenet.seeded_model(cache, note=note)
    else:
        _check_model(Path(table.model))


def processes(
    deployment: Deployment, raw: Path, *, cache: Path, seed: int, port: int = PORT
) -> list[Process | Command]:
    """Broker and service for each server, and the clients; see :class:`cellbed.workloads.kind.Workload`."""
    table: ImageClassification = deployment.table
    servers, clients = deployment.servers, deployment.clients
    model = mobilenet.seeded_model(cache) if table.model is None else Path(table.model).absolute()
    bank = photographs.data_bank(cache, count=table.images or photographs.COUNT)
    port += deployment.number  # a node can have brokers of several applications
    started: list[Process | Command] = []
    for node in servers:
        name, addresses = f"{deployment.name}.{node.name}.broker", sorted({str(node.ipv4), _LOOPBACK})
        started.append(broker.command(name, node.name, addresses, port, raw))
    for node in servers:
        started.append(
            _process(
                deployment,
                "service",
                node,
                1,
                raw,
                node=node.name,
                broker_host=_LOOPBACK,
                broker_port=port,
                request_topic=_REQUEST_TOPIC,
                model=str(model),
                workers=table.workers or max(1, math.ceil(node.cpus)),
                record=str(deployment.file(raw, node, "service.jsonl")),
            )
        )
    for index, node in enumerate(clients):
        started.append(
            _process(
                deployment,
                "endpoint",
                node,
                1,
                raw,
                endpoint=node.name,
                broker_host=str(servers[index % len(servers)].ipv4),
                broker_port=port,
                request_topic=_REQUEST_TOPIC,
                photographs=str(bank.folder),
                record=str(deployment.file(raw, node, "requests.jsonl")),
                arrivals=table.arrivals,
                rate=table.rate,
                # Endpoints that send periodically take turns instead of all sending at the same instant.
                phase=index / len(clients),
                duration_ns=deployment.stop_ns - deployment.start_ns,
                timeout_ns=table.timeout,
                seed=seed,
                connect_patience_ns=(30 + len(clients)) * 1_000_000_000,
            )
        )
    return started


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
# fmt: on


def describe(table: Mapping[str, Any]) -> Description:
    """Photographs are prepared and sent, wait for a worker, are decoded and classified; the class comes back."""
    seeded = [Caution(mobilenet.NOTE, mobilenet.NOTE_DETAIL)] if table.get("model") is None else []
    return Description(
        kind="image-classification",
        title=f"image classification on {table.get('server') or table.get('on') or 'a remote node'}",
        spans=_SPANS,
        client_columns={"image": "text", "started_ns": "integer", "label": "text"},
        server_columns={
            "received_ns": "integer",
            "dequeued_ns": "integer",
            "compute_start_ns": "integer",
            "compute_end_ns": "integer",
            "reply_sent_ns": "integer",
            "worker": "integer",
        },
        same=("image",),
        measures=(Measure("bytes_up", "photograph sent", "B"),),
        cautions=(*seeded, Caution(photographs.NOTE)),
    )


def _check_model(path: Path) -> None:
    from cellbed.workloads.classifier import ModelError, check_model

    try:
        check_model(path)
    except ModelError as error:
        raise CellbedError(f"workload.model: {error}") from error


def _process(deployment: Deployment, module: str, place: Node, stage: int, raw: Path, **settings: Any) -> Process:
    file = deployment.file(raw, place, f"{module}.json")
    file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return Process(
        name=f"{deployment.name}.{place.name}.{module}",
        node=place.name,
        # -P: a folder 'cellbed' where the command was started is none of our business.
        program=[sys.executable, "-P", "-m", f"cellbed.workloads.{module}"],
        arguments=["--config", str(file)],
        stage=stage,
        load=module == "endpoint",
        env=dict(_ONE_THREAD),
        forked=module == "endpoint",  # there are many of these
    )
