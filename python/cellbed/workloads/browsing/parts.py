"""The parts of the latency of a browser's requests, and the columns of their records."""

from cellbed.runformat.records import ColumnType
from cellbed.runformat.spans import HANDSHAKE, Span
from cellbed.workloads.http import kind as http

# fmt: off
OBJECT = Span("browser", "endpoint", "Browser", "browser",
              "the page wants the object → the browser begins to request it", "intended", "started")
_CONNECTION = Span("connection_wait", "endpoint", "Waiting for a connection", "connection",
                   "begins to request it → a connection is free, or begins to open", "started", "opening")
_QUIC = Span("connect", "uplink", "Handshake", "handshake",
             "the connection begins to open → the request is sent; both ways together", "opening", "sent")
# fmt: on


def spans(version: str) -> tuple[Span, ...]:
    """Return the parts of an object after :data:`OBJECT`. version: HTTP version."""
    left_out = ["generator", "connection_wait", *(() if version == "2" else ("downlink_wait",))]
    if version == "3":
        left_out += [span.name for span in HANDSHAKE]
    own = (_CONNECTION, _QUIC) if version == "3" else (_CONNECTION,)
    return (*own, *(span for span in http.SPANS if span.name not in left_out))


def columns(*, secured: bool = True) -> dict[str, ColumnType]:
    """Return the columns of the record of an :class:`~cellbed_node.browsing.objects.Object`. secured: with TLS."""
    names = ["opening_ns", "first_byte_ns", "code"]
    names += ["tls_uplink_end", "tls_downlink_end"] if secured else []
    found: dict[str, ColumnType] = {**dict.fromkeys(names, "integer")}
    return found | dict.fromkeys(("step", "url", "protocol"), "text")
