"""The relay and the browsers of calls, and the parts of a frame's path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cellbed.runformat.description import Caution, Description, Measure, ProgramMeasures, Timed
from cellbed.runformat.spans import DATAGRAM_DOWNLINK, DATAGRAM_UPLINK, Span
from cellbed.support.limits import Limit
from cellbed.testbed.machine.process import Process
from cellbed.testbed.plan import Node
from cellbed.testbed.programs.unmodified import Command, Ready
from cellbed.workloads.browsing import origins
from cellbed.workloads.call import RELAY
from cellbed.workloads.call.table import Call
from cellbed.workloads.kind import Deployment

PORT = 3478
"""Port of the relay of a run's first application (RFC 8656); later applications have the next ports."""
BEARABLE = (
    Limit("frames that were not painted in time", "unpainted_percent", "<=", 1.0, "at most 1 %"),
    Limit("shown frames that the page missed", "missed_percent", "<=", 1.0, "at most 1 %"),
    Limit("time of a lower quality for lack of processor time", "cpu_limited_percent", "<=", 1.0, "at most 1 %"),
    Limit("time to encode a frame, of that between two", "encode_percent", "<=", 100.0, "at most 100 %"),
    Limit("time to decode a frame, of that between two", "decode_percent", "<=", 100.0, "at most 100 %"),
)
"""Limits that a fast enough machine meets."""
_USER, _PASSWORD, _REALM = "cellbed", "cellbed", "cellbed.test"
"""Credentials, which browsers need for calls; nobody else is in the testbed."""


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process | Command]:
    """Return the relay and a load generator on each end's node."""
    loads = deployment.load_generators("load", "cellbed_node.call.load", raw, seed, _settings)
    return [*(_relay(deployment, node) for node in deployment.servers), *loads]


def _relay(deployment: Deployment, node: Node) -> Command:
    address, port = deployment.listening(node), PORT + deployment.number
    place = deployment.scratch / f"{deployment.name}.{node.name}.relay"
    place.mkdir()
    options = ["-n", *(f"--no-{name}" for name in ("cli", "tls", "dtls", "tcp", "tcp-relay", "rfc5780"))]
    # The ends send to each other's relay addresses. The relay sends to no other address, for any program (IPv4 only).
    options += ["--lt-cred-mech", "--allowed-peer-ip", address, "--denied-peer-ip", "0.0.0.0-255.255.255.255"]
    options += ["--listening-ip", address, "--relay-ip", address, "--listening-port", str(port)]
    options += ["--user", f"{_USER}:{_PASSWORD}", "--realm", _REALM, "--log-file", "stdout"]
    options += ["--pidfile", str(place / "pid"), "--userdb", str(place / "users")]
    return Command(
        name=f"{deployment.name}.{node.name}.server",
        node=node.name,
        command=(RELAY, *options),
        ready=Ready(port=port),
    )


def _settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of end `index` (:class:`cellbed_node.call.load.Settings`)."""
    table: Call = deployment.table
    half = len(deployment.clients) // 2
    other = (index + half) % len(deployment.clients)
    (relay,) = deployment.servers
    return {
        **deployment.load(raw, index, seed),
        **origins.browser(deployment, index),
        "socket": str(deployment.scratch / f"call{deployment.number}-{index}.sock"),
        "peer_socket": str(deployment.scratch / f"call{deployment.number}-{other}.sock"),
        "peer": deployment.clients[other].name,
        "peer_phase": other / len(deployment.clients),
        "start_ns": deployment.start_ns,
        "offers": index < half,
        "measures": str(deployment.file(raw, deployment.clients[index], "client.measures.json")),
        "page": {
            "host": deployment.address(relay),
            "port": PORT + deployment.number,
            "user": _USER,
            "password": _PASSWORD,
            "width": table.width,
            "height": table.height,
            "bit_rate": table.bit_rate,
        },
    }


# fmt: off
_SPANS = (
    Span("generator", "endpoint", "Camera", "camera",
         "intended time → the frame is painted", "intended", "painted"),
    Span("encode", "endpoint", "Capture and encoding", "encoding",
         "painted → the frame leaves the encoder", "painted", "sent"),
    Span("endpoint_stack", "endpoint", "Pacing and packets", "pacing",
         "leaves the encoder → its last packet enters the uplink, sent again where one was lost", "sent",
         "uplink_entered"),
    *DATAGRAM_UPLINK[1:],
    Span("server", "remote", "Relay", "relay", "its last packet left the sender's links → enters the receiver's",
         "uplink_left", "downlink_entered"),
    *DATAGRAM_DOWNLINK,
    Span("endpoint_receive", "endpoint", "Receiving", "receive",
         "its last packet left the network → the receiving browser has the whole frame", "downlink_left", "received"),
    Span("jitter_buffer", "endpoint", "Jitter buffer", "buffer",
         "received → shown, without decoding: the frame waits for its time", "buffered"),
    Span("decode_frame", "endpoint", "Decoding", "decoding", "the frame is decoded", "decoded"),
)
# fmt: on
_MEASURES = (
    Measure("bytes_up", "bytes of a frame", "B"),
    Measure("height", "height of shown frames", ""),
)


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description of a call, whose requests are frames."""
    stamps = ("painted_ns", "received_ns", "buffered_ns", "decoded_ns", "height")
    return Timed(
        kind="call",
        title=f"call through a relay, {table.get('width')} × {table.get('height')}",
        spans=_SPANS,
        client_columns={**dict.fromkeys(stamps, "integer"), "receiver": "text"},
        measures=_MEASURES,
        cautions=(Caution("The frames are synthetic: a moving picture of shapes and noise."),),
        own=(ProgramMeasures("client", file="measures.json"),),
        bearable=BEARABLE,
        relayed=True,
    )
