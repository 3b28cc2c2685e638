"""The load generator of the kind: requests are datagrams that begin with their number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cellbed_node import generator, lifecycle, machine
from cellbed_node.generator import Generator
from cellbed_node.ledger import Request
from cellbed_node.udp import CountingDatagrams

NUMBER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(generator.Settings):
    """The configuration of the load."""

    host: str
    port: int
    size: int


class EchoLoad(Generator):
    """One endpoint with its socket."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._settings = settings

    def prepare(self) -> None:
        self._socket = CountingDatagrams(self._settings.host, self._settings.port)

    def create(self, number: int, intended_ns: int) -> Request:
        return Request(number, self._endpoint, intended_ns, bytes_up=self._settings.size)

    def issue(self, request: Request) -> None:
        request.sent_ns = machine.now_ns()
        number = self._socket.send(request.request.to_bytes(NUMBER, "big").ljust(self._settings.size, b"."))
        request.uplink_start, request.uplink_end = number, number + 1
        request.local_port, request.remote_port = self._socket.local_port, self._socket.remote_port
        self.ledger.add(request)

    @property
    def readers(self) -> Sequence[Any]:
        return [self._socket]

    @property
    def writers(self) -> Sequence[Any]:
        return []

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        while readable and (arrived := self._socket.recv()) is not None:
            number, data = arrived
            request, now = int.from_bytes(data[:NUMBER], "big"), machine.now_ns()
            self.ledger.reply(request, now, error=None, start=number, end=number + 1, payload=len(data))

    def close(self) -> None:
        self._socket.close()


def main(config: dict[str, Any]) -> None:
    """Run the load."""
    EchoLoad(Settings(**config)).run()


if __name__ == "__main__":
    lifecycle.run(main)
