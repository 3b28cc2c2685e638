"""The servers and players of videos, and the parts of chunks."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cellbed.runformat.description import Description, Measure, ProgramMeasures, Timed
from cellbed.runformat.records import REQUESTS
from cellbed.support.limits import Limit
from cellbed.testbed.machine.process import Process
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.browsing import origins, parts
from cellbed.workloads.cache import Note, silent
from cellbed.workloads.kind import Deployment
from cellbed.workloads.video import renditions
from cellbed.workloads.video.table import LIBRARIES, Video

_PLAYER = Path(__file__).with_name("player.js")


def prepare(table: Video, cache: Path, note: Note = silent) -> None:
    """Generate the video."""
    if table.manifest is None:
        renditions.build(cache, table.renditions, table.length_s, table.protocol, note)


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process | Command]:
    """Return a server on each server's node and a player on each client's."""
    table: Video = deployment.table
    if table.manifest is None:
        file = renditions.folder(cache, table.length_s) / renditions.manifest(table.renditions, table.protocol)
    else:
        file = table.manifest
    sites = [(table.host_names[0], str(file.parent.absolute()))]
    servers = (
        origins.server(deployment, node, raw, sites, software=table.software, version=table.version)
        for node in deployment.servers
    )
    configure = partial(_settings, manifest=file.name)
    return [*servers, *deployment.load_generators("load", "cellbed_node.video.load", raw, seed, configure)]


def _settings(deployment: Deployment, raw: Path, index: int, seed: int, *, manifest: str) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed_node.video.load.Settings`)."""
    table: Video = deployment.table
    node, server = deployment.clients[index], deployment.servers[index % len(deployment.servers)]
    (host,) = table.host_names
    rules, own = origins.rules(deployment, server, table.host_names), isinstance(table.abr, Path)
    return {
        "endpoint": node.name,
        "record": str(deployment.file(raw, node, REQUESTS)),
        "arrivals": table.arrivals,
        "rate": None,
        "phase": 0.0,
        "duration_ns": deployment.stop_ns - deployment.start_ns,
        "timeout_ns": deployment.stop_ns,
        "seed": seed,
        **origins.browser(deployment, index),
        "flags": origins.flags(deployment, rules, [f"{host}:443"], table.version),
        "url": f"https://{host}/{quote(manifest)}",
        "protocol": table.protocol,
        "abr": "own" if own else table.abr or "dynamic",
        "scripts": [str(LIBRARIES[table.protocol]), str(_PLAYER)],
        "rule": str(table.abr) if own else "",
        "measures": str(deployment.file(raw, node, "client.measures.json")),
        "offset_ns": deployment.start_ns,
    }


_MEASURES = (
    Measure("first_byte_s", "time to first byte of a chunk", "s"),
    Measure("bytes_down", "bytes of a chunk with headers", "B"),
)
_DECODED = (
    Limit("frames that came too late to be shown", "dropped_frames_percent", "<=", 5.0, "at most 5 %"),
    Limit("stalls with a filled buffer", "decoder_stalled_s", "<=", 0.5, "at most 0.5 s"),
)
"""Limits that a machine meets if it decodes in time."""


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description of chunks, whose latency is their response time."""
    version, protocol = str(table.get("version")), str(table.get("protocol"))
    what = table.get("manifest") or f"{', '.join(table.get('renditions') or [])} (synthetic)"
    rule = table.get("abr") or ("dynamic" if protocol == "dash" else "hls.js")
    return Timed(
        kind="video",
        title=f"video over {protocol.upper()}, {what}, rule {rule}, HTTP/{version}",
        spans=(parts.OBJECT, *parts.spans(version)),
        client_columns={**parts.columns(), "chunk": "integer", "rate": "integer"},
        measures=_MEASURES,
        own=(ProgramMeasures("client", file="client.measures.json"),),
        bearable=_DECODED,
    )
