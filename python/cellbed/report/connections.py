"""Connections of programs in reports: by server and port, with the parts of their time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from cellbed.report import formats
from cellbed.runformat.spans import SERVICE

if TYPE_CHECKING:
    from cellbed.measure.connections import PeerSummary

# fmt: off
PARTS = (
    ("connect", "network", "Handshake", "SYN enters the network → the answer is handed to the client"),
    ("client", "client", "Client", "the connection waits for the client to send"),
    ("to_server_transport", "to server", "Transport",
     "first packet → packet that completes what was sent: windows, acknowledgements, retransmissions"),
    ("to_server_queue", "to server", "Queue and service", "completing packet in the bottleneck queues"),
    ("to_server_delay", "to server", "Base and core delay", "completing packet in the delay stages"),
    ("server", "server", "Server", "the connection waits for the server to send"),
    ("to_client_transport", "to client", "Transport", "as to the server"),
    ("to_client_queue", "to client", "Queue and service", "as to the server"),
    ("to_client_delay", "to client", "Base and core delay", "as to the server"),
)
# fmt: on
"""The parts of a connection's time: name, where, label, meaning."""
MOST_COLUMNS = 3
"""Maximum number of peers whose parts are shown side by side."""


def _again(peer: "PeerSummary") -> str:
    counts = [way.retransmitted for way in (peer.to_server, peer.to_client) if way.retransmitted is not None]
    return formats.number(sum(counts) if counts else None)


FIGURES: "dict[str, Callable[[PeerSummary], str | Text]]" = {
    "number": lambda peer: formats.number(peer.connections),
    "failed": lambda peer: Text(formats.number(peer.failed), style="red" if peer.failed else ""),
    "sent": lambda peer: formats.size(peer.to_server.bytes),
    "received": lambda peer: formats.size(peer.to_client.bytes),
    "hand-\nshake": lambda peer: formats.duration(peer.connect_s),
    "first\nbyte": lambda peer: formats.duration(peer.first_byte_s),
    "ex-\nchanges": lambda peer: formats.number(peer.exchanges) if peer.protocol == "tcp" else formats.NOTHING,
    "each\ntook": lambda peer: formats.duration(peer.exchange_s),
    "\ndropped": lambda peer: formats.number(peer.to_server.dropped + peer.to_client.dropped),
    "sent\nagain": _again,
}
QUEUES: "dict[str, Callable[[PeerSummary], str | Text]]" = {
    "queue to\nserver": lambda peer: formats.duration(peer.to_server.queue_s),
    "queue to\nclient": lambda peer: formats.duration(peer.to_client.queue_s),
}
"""Means of further figures, for pages."""


def compare(peers: "Sequence[PeerSummary]") -> Iterator[tuple[str, list[str]]]:
    """Yield figures and parts of one peer in several runs: a label, and a cell for each run."""
    for heading, cell in FIGURES.items():
        label = heading.replace("-\n", "").replace("\n", " ").strip()
        yield label, [str(cell(peer)) for peer in peers]
    if all(peer.parts for peer in peers):
        for part, place, label, _ in parts(peers):
            yield f"{place}: {label.lower()}, ms", [formats.milliseconds(peer.parts.get(part)) for peer in peers]


def parts(peers: "Sequence[PeerSummary]") -> list[tuple[str, str, str, str]]:
    """Return :data:`PARTS`, with reported spans of these peers' services before the rest of the server's time."""
    names = dict.fromkeys(name for peer in peers for name in peer.parts if name.startswith(SERVICE))
    reported = [
        (name, "server", f"Server: {short}", f"{short}, as the service reports it")
        for name in names
        for short in (name.removeprefix(SERVICE),)
    ]
    found = []
    for part in PARTS:
        if part[0] == "server" and reported:
            found += [*reported, ("server", "server", "Server, rest", f"of this, what no span covers: {part[3]}")]
        else:
            found.append(part)
    return found


def name(peer: "PeerSummary") -> str:
    """Return a peer's name: ``"edge-0 port 80"``, ``"edge-0 port 53 (UDP)"``; ``"others"`` for several peers."""
    where = "others" if peer.server is None else f"{peer.server} port {peer.port}"
    return where if peer.protocol == "tcp" else f"{where} ({peer.protocol.upper()})"


def share(peer: "PeerSummary", part: str) -> float:
    """Return the share of a part in the time of a peer's connections."""
    return peer.parts.get(part, 0.0) / (sum(peer.parts.values()) or 1.0)
