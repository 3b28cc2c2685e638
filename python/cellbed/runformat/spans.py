"""The parts of a request's latency: their stamps, places and names in reports."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Place = Literal["endpoint", "uplink", "remote", "downlink"]
PLACES: dict[Place, str] = {
    "endpoint": "endpoint",
    "uplink": "uplink",
    "remote": "remote node",
    "downlink": "downlink",
}
"""Places where time passes, in order, with their names in reports."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a request's latency: the time between two stamps, or a duration measured directly.

    name: the column in ``requests.parquet`` is ``part_<name>``, in seconds. place: place where the time passes; a
    client's programs stamp at the endpoint, a server's at the remote node, the emulator on the links. label: name in
    reports; short: short name in reports; meaning: beginning and end in words. begin, end: stamps, as column names
    without ``_ns``; with `end` empty, `begin` is a duration.
    """

    name: str
    place: Place
    label: str
    short: str
    meaning: str
    begin: str
    end: str = ""

    @property
    def column(self) -> str:
        """The span's column in ``requests.parquet``."""
        return f"part_{self.name}"


# fmt: off
HANDSHAKE = (
    Span("connect_uplink", "uplink", "Handshake", "handshake", "SYN enters the uplink → leaves it, repeated if lost; "
         "likewise the hello of TLS", "connect_up"),
    Span("connect_remote", "remote", "Handshake", "handshake", "SYN left the network → the answer enters the downlink; "
         "likewise with TLS", "connect_remote"),
    Span("connect_downlink", "downlink", "Handshake", "handshake", "the answer enters the downlink → leaves it; "
         "likewise with TLS", "connect_down"),
    Span("connect", "endpoint", "Opening a connection", "connect",
         "begins to open → request handed to TCP, without the handshake's way", "connect_rest"),
)
"""From the client's stamp ``opening`` to ``sent``, for a request that opens a connection. Other requests have no
handshake."""

UPLINK = (
    Span("endpoint_stack", "endpoint", "Endpoint stack", "stack", "publish called → TCP takes the first byte",
         "handed"),
    Span("uplink_wait", "uplink", "Waiting to send", "waiting",
         "TCP's send buffer or congestion window is full of earlier bytes, which the uplink has not carried", "held"),
    Span("uplink_transport", "uplink", "Transport", "transport",
         "first byte → completing packet enters the uplink, without its retransmission", "uplink_sending"),
    Span("uplink_retransmission", "uplink", "Retransmission", "resent",
         "a packet that was lost enters → the completing packet enters, which repeats it", "uplink_resent"),
    Span("uplink_queue", "uplink", "Queue and service", "queue", "completing packet in the bottleneck queues",
         "uplink_queued"),
    Span("uplink_delay", "uplink", "Base and core delay", "delay", "completing packet in the delay stages",
         "uplink_delayed"),
    Span("receive_window", "remote", "Receive window", "window", "the receiver's window is full: TCP may not send",
         "window"),
)
"""A request over TCP from the stamp ``sent`` of its client to ``uplink_left``."""

DOWNLINK = (
    Span("downlink_transport", "downlink", "Transport", "transport",
         "first byte → completing packet of the reply, without its retransmission", "downlink_sending"),
    Span("downlink_retransmission", "downlink", "Retransmission", "resent",
         "a packet that was lost enters → the completing packet enters, which repeats it", "downlink_resent"),
    Span("downlink_queue", "downlink", "Queue and service", "queue", "completing packet in the bottleneck queues",
         "downlink_queued"),
    Span("downlink_delay", "downlink", "Base and core delay", "delay", "completing packet in the delay stages",
         "downlink_delayed"),
)
"""A reply from ``downlink_entered`` to ``downlink_left``."""

DATAGRAM_UPLINK = (
    Span("endpoint_stack", "endpoint", "Endpoint stack", "stack", "send called → datagram enters the uplink", "sent",
         "uplink_entered"),
    *(span for span in UPLINK if span.name in ("uplink_queue", "uplink_delay")),
)
"""A request in one datagram from the stamp ``sent`` of its client to ``uplink_left``. In the record, ``uplink_start``
is the number of the datagram (``workloads/udp.py``), and ``uplink_end`` the next number."""

DATAGRAM_DOWNLINK = tuple(span for span in DOWNLINK if span.name in ("downlink_queue", "downlink_delay"))
"""A reply in one datagram from ``downlink_entered`` to ``downlink_left``."""

SERVER = Span("server", "remote", "Server", "server",
              "request left the network → first byte of the reply enters the downlink, or waits behind other replies",
              "uplink_left", "downlink_ready")
"""A server that reports nothing, or the spans of its service (docs/reference/spans.md)."""

REPORTED = (
    Span("schedule", "endpoint", "Behind schedule", "schedule", "intended time → the program begins the request",
         "intended", "begin"),
    Span("client_before", "endpoint", "Client, before sending", "before",
         "the request begins → its first byte enters the uplink, without the handshake's way", "before"),
    *HANDSHAKE[:3],
    *(span for span in UPLINK if span.name not in ("endpoint_stack", "uplink_wait", "receive_window")),
    replace(SERVER, meaning="request left the network → reply enters the downlink, in each exchange", begin="served",
            end=""),
    *DOWNLINK,
    Span("client_between", "endpoint", "Client, between exchanges", "between",
         "of a request with several exchanges: reply left the network → the client sends on", "between"),
    Span("client_after", "endpoint", "Client, after the reply", "after",
         "last byte left the network → the program ends the request", "after"),
)
"""A request that a program reports, found in the packet log; several exchanges of its connection add up."""
# fmt: on


def add_proxy(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the parts, with a part for a proxy after the queue of each direction."""
    found = []
    for span in spans:
        found.append(span)
        if span.name in ("uplink_queue", "downlink_queue"):
            meaning = "completing packet reaches the proxy at the tower → leaves it"
            found.append(Span(f"{span.place}_proxy", span.place, "Proxy", "proxy", meaning, f"{span.place}_proxied"))
    return tuple(found)


def mark_live(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the parts of a run over a live network: packets leave this machine for it at the end of the uplink, so
    parts of the remote node between that end and the begin of the downlink contain its delay."""
    return tuple(
        replace(
            span,
            label=f"Live network and {span.label[0].lower()}{span.label[1:]}",
            meaning=span.meaning.replace("left the network", "left this machine"),
        )
        if span.place == "remote" and (span.begin in _AFTER_UPLINK or span.end.startswith("downlink_"))
        else span
        for span in spans
    )


_AFTER_UPLINK = ("uplink_left", "connect_remote", "served", "service_rest", "downlink_paused", f"path_{SERVER.name}")
"""Stamps and durations of parts that begin when packets have left the emulator."""
PATH = "path_"
"""Prefix of the stamps of a page load's parts: durations of the page's objects on the critical path."""


def on_path(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return the parts of a page load. spans: parts of the page's objects, the browser's first."""
    return tuple(replace(span, begin=f"{PATH}{span.name}", end="") for span in spans)


SERVICE = "service_"
"""Prefix of the names of parts that services report."""


def divide_server(spans: Sequence[Span], services: Sequence[str]) -> tuple[Span, ...]:
    """Divide the part :data:`SERVER` of `spans` among the spans that the service reports. services: their names."""
    at = next((index for index, span in enumerate(spans) if span.name == SERVER.name), None)
    if not services or at is None:
        return tuple(spans)
    reported = [
        Span(
            f"{SERVICE}{name}",
            "remote",
            f"Server: {name}",
            name,
            f"{name}, as the service reports it",
            f"{SERVICE}{name}",
        )
        for name in services
    ]
    rest = replace(
        spans[at],
        label="Server, rest",
        meaning=f"of this, what no span covers: {spans[at].meaning}",
        begin="service_rest",
        end="",
    )
    return (*spans[:at], *reported, rest, *spans[at + 1 :])
