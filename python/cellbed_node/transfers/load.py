"""The load generator of transfers: one endpoint, with its transfers in rotation.

Run as ``python -m cellbed_node.transfers.load --config FILE.json``; :class:`~.flows.Settings` describes the file.
Over TCP each transfer is an HTTP/1.1 request on a new connection.
"""

from dataclasses import fields

from cellbed_node import generator, lifecycle
from cellbed_node.generator import Generator
from cellbed_node.http import load as http
from cellbed_node.http.connection import Exchange, Message
from cellbed_node.http.load import HttpLoad
from cellbed_node.transfers import MOST_OPEN
from cellbed_node.transfers.flows import Settings
from cellbed_node.transfers.udp import UdpTransfers


class TcpTransfers(HttpLoad):
    """The transfers of one endpoint over TCP."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(
            http.Settings(
                **{each.name: getattr(settings, each.name) for each in fields(generator.Settings)},
                version="1.1",
                hosts=[settings.host],
                port=settings.port,
                authority=f"{settings.host}:{settings.port}",
                target="/",
                method="GET",
                headers={},
                connections=MOST_OPEN,
            )
        )
        self._own = settings

    def create(self, number: int, intended_ns: int) -> Exchange:
        way, size, name = self._own.transfers[number % len(self._own.transfers)]
        upload = way == "upload"
        message = Message(
            "http",
            "POST" if upload else "GET",
            f"{self._own.host}:{self._own.port}",
            "/" if upload else f"/{size}",
            (("Connection", "close"),),
            bytes(size) if upload else b"",
        )
        up = len(message.body)
        return Exchange(number, self._endpoint, intended_ns, bytes_up=up, step=name, message=message)


def generator_of(settings: Settings) -> Generator:
    """Return the load generator of a protocol."""
    match settings.protocol:
        case "udp":
            return UdpTransfers(settings)
        case "quic":
            from cellbed_node.transfers.quic import QuicTransfers

            return QuicTransfers(settings)
        case _:
            return TcpTransfers(settings)


main = generator.program(generator_of, Settings)


if __name__ == "__main__":
    lifecycle.run(main)
