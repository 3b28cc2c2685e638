"""Image classification offloaded over MQTT: endpoints send photographs, a remote node answers with their classes.

Each remote node has a broker and a service with worker processes; the endpoints are dealt out to the remote nodes in
turn.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.errors import CellbedError
from cellbed.testbed.process import Process
from cellbed.workloads import mobilenet, photographs
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.kind import DOWNLINK, UPLINK, Caution, Description, Measure, Node, Span

if TYPE_CHECKING:
    from cellbed.scenario.applications import ImageClassification

PORT = 1883
"""MQTT's registered port."""

_REQUEST_TOPIC = "cellbed/image-classification"
_LOOPBACK = "127.0.0.1"

# One thread per process: the number of processes is the degree of parallelism, and limits count what each uses.
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def prepare(spec: "ImageClassification", cache: Path, note: Note = silent) -> None:
    """Build the data bank and the model under ``cache`` where they are missing, or check the user's model.

    Raises CellbedError.
    """
    photographs.data_bank(cache, count=spec.images or photographs.COUNT, note=note)
    if spec.model is None:
        mobilenet.seeded_model(cache, note=note)
    else:
        _check_model(Path(spec.model))


def processes(
    spec: "ImageClassification",
    nodes: Sequence[Node],
    raw: Path,
    *,
    cache: Path,
    duration_ns: int,
    seed: int,
    port: int = PORT,
) -> list[Process]:
    """Broker and service for each remote node, and the endpoints; see :class:`cellbed.workloads.kind.Workload`."""
    remotes = [node for node in nodes if node.node_class == spec.on]
    endpoints = [node for node in nodes if node.node_class == "endpoint"]
    if not remotes:
        raise CellbedError(f"workload.on: the scenario has no {spec.on} node for the service to run on")
    model = mobilenet.seeded_model(cache) if spec.model is None else Path(spec.model).absolute()
    bank = photographs.data_bank(cache, count=spec.images or photographs.COUNT)
    started = []
    for node in remotes:
        started.append(
            _process(
                "broker",
                node,
                0,
                raw,
                addresses=sorted({str(node.ipv4), _LOOPBACK}),
                port=port,
                folder=str(raw),
                node=node.name,
            )
        )
    for node in remotes:
        started.append(
            _process(
                "service",
                node,
                1,
                raw,
                node=node.name,
                broker_host=_LOOPBACK,
                broker_port=port,
                request_topic=_REQUEST_TOPIC,
                model=str(model),
                workers=spec.workers or max(1, math.ceil(node.cpus)),
                record=str(raw / f"{node.name}.service.jsonl"),
            )
        )
    for index, node in enumerate(endpoints):
        started.append(
            _process(
                "endpoint",
                node,
                1,
                raw,
                endpoint=node.name,
                broker_host=str(remotes[index % len(remotes)].ipv4),
                broker_port=port,
                request_topic=_REQUEST_TOPIC,
                photographs=str(bank.folder),
                record=str(raw / f"{node.name}.requests.jsonl"),
                arrivals=spec.arrivals,
                rate=spec.rate,
                # Endpoints that send periodically take turns instead of all sending at the same instant.
                phase=index / len(endpoints),
                duration_ns=duration_ns,
                timeout_ns=spec.timeout,
                seed=seed,
                connect_patience_ns=(30 + len(endpoints)) * 1_000_000_000,
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
        title=f"image classification on {table.get('on', 'a remote node')}",
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


def _process(module: str, place: Node, stage: int, raw: Path, **settings: Any) -> Process:
    file = (raw / f"{place.name}.{module}.json").absolute()
    file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return Process(
        name=f"{place.name}.{module}",
        node=place.name,
        # -P: a folder 'cellbed' where the command was started is none of our business.
        program=[sys.executable, "-P", "-m", f"cellbed.workloads.{module}"],
        arguments=["--config", str(file)],
        stage=stage,
        load=module == "endpoint",
        env=dict(_ONE_THREAD),
        forked=module == "endpoint",  # there are many of these
    )
