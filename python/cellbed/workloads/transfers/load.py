"""The load generator of the kind: one endpoint, whose transfers are taken in turn.

Run as ``python -m cellbed.workloads.transfers.load --config FILE.json``; :class:`~.flows.Settings` describes the file.
Over TCP a transfer is a request of HTTP/1.1 with a connection of its own.
"""

from dataclasses import fields
from typing import Any

from cellbed.support import prctl
from cellbed.workloads import generator, lifecycle
from cellbed.workloads.generator import Generator
from cellbed.workloads.http import load as http
from cellbed.workloads.http.connection import Exchange, Message
from cellbed.workloads.http.load import HttpLoad
from cellbed.workloads.transfers import MOST_OPEN
from cellbed.workloads.transfers.flows import Settings, step
from cellbed.workloads.transfers.udp import UdpTransfers


class TcpTransfers(HttpLoad):
    """The transfers of one endpoint over TCP."""

    def __init__(self, settings: Settings) -> None:
        authority = f"{settings.host}:{settings.port}"
        super().__init__(
            http.Settings(
                **{each.name: getattr(settings, each.name) for each in fields(generator.Settings)},
                version="1.1",
                hosts=[settings.host],
                port=settings.port,
                authority=authority,
                target="/",
                method="GET",
                headers={},
                connections=MOST_OPEN,
            )
        )
        self._own = settings
        self._messages_of = [
            Message(
                "http",
                "POST" if way == "upload" else "GET",
                authority,
                "/" if way == "upload" else f"/{size}",
                (("Connection", "close"),),
                bytes(size) if way == "upload" else b"",
            )
            for way, size in settings.transfers
        ]

    def create(self, number: int, intended_ns: int) -> Exchange:
        message = self._messages_of[number % len(self._messages_of)]
        size, name = len(message.body), step(self._own, number)
        return Exchange(number, self._endpoint, intended_ns, bytes_up=size, step=name, message=message)


def generator_of(settings: Settings) -> Generator:
    """Return the load generator of a protocol."""
    match settings.protocol:
        case "udp":
            return UdpTransfers(settings)
        case "quic":
            from cellbed.workloads.transfers.quic import QuicTransfers

            return QuicTransfers(settings)
        case _:
            return TcpTransfers(settings)


def main(config: dict[str, Any]) -> None:
    """Run a load with the configuration of :class:`Settings`."""
    prctl.wake_precisely()
    generator_of(Settings(**config)).run()


if __name__ == "__main__":
    lifecycle.run(main)
