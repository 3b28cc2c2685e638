"""The server at the other end of transfers.

Run as ``python -m cellbed_node.transfers.server --config FILE.json``: `protocol`, `address` and `port`; over QUIC also
`certificate`, `key`, and `record`, the file for its stamps.
"""

import asyncio
import contextlib
import re
import selectors
import socket
from collections.abc import Callable
from typing import Any

import h11

from cellbed_node import lifecycle, processes
from cellbed_node.generator import SECOND
from cellbed_node.lifecycle import WorkloadError, announce
from cellbed_node.transfers import LARGEST, udp

_MOST = 900
"""Maximum connections at a time; select(2) watches 1024 descriptors."""
_MOST_HEADER = 8 << 10
_READ = 1 << 18
_FILLER = bytes(_READ)
_BUFFER = 4 << 20
"""Buffer of the datagram socket, bytes, as far as the kernel grants it."""


class Exchange:
    """The HTTP/1.1 request of a TCP connection: GET of /SIZE, or POST. Pure."""

    def __init__(self) -> None:
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADER)
        self._size = 0

    def receive(self, data: bytes) -> tuple[bytes, int] | None:
        """Return the head of the reply and the length of its body; ``None`` if the request is incomplete.

        Errors: ``h11.RemoteProtocolError`` for requests that are not transfers.
        """
        self._protocol.receive_data(data)
        while (event := self._protocol.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                found = re.fullmatch(rb"/([0-9]{1,10})", event.target) if event.method == b"GET" else None
                self._size = int(found[1]) if found is not None else 0
                if self._size > LARGEST or (found is None and event.method != b"POST"):
                    raise h11.RemoteProtocolError("not a transfer")
            elif isinstance(event, h11.EndOfMessage):
                headers = [("Content-Length", str(self._size)), ("Connection", "close")]
                return self._protocol.send(h11.Response(status_code=200, headers=headers)) or b"", self._size
            elif not isinstance(event, h11.Data):
                raise h11.RemoteProtocolError("the connection ended")
        return None


class _Tcp:
    """Transfers over TCP. Peers that send other data are disconnected."""

    def __init__(self) -> None:
        self._open = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection."""
        self._open += 1
        try:
            exchange, found = Exchange(), None
            while found is None and self._open <= _MOST:
                found = exchange.receive(await reader.read(_READ))
            head, size = found or (b"", 0)
            for begin in range(0, max(1, size), _READ):
                writer.write((b"" if begin else head) + _FILLER[: size - begin])
                await writer.drain()
        except (OSError, h11.RemoteProtocolError):
            pass
        finally:
            self._open -= 1
            writer.close()


class Datagrams(asyncio.DatagramProtocol):
    """Passes datagrams to a server, each with a function that replies to its sender."""

    def __init__(self, received: Callable[[bytes, Callable[[bytes], None], Any], None]) -> None:
        self._received = received

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._received(data, lambda reply: self._transport.sendto(reply, addr), addr)


def _call_at(time_ns: int, call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_at(time_ns / SECOND, call)


async def _serve(config: dict[str, Any]) -> None:
    """Serve until standard input ends. Errors: ``OSError``."""
    loop, place = asyncio.get_running_loop(), (config["address"], config["port"])
    received: Callable[[bytes, Callable[[bytes], None], Any], None]
    closing = contextlib.ExitStack()
    if config["protocol"] == "tcp":
        closing.callback((await asyncio.start_server(_Tcp().serve, *place, limit=2 * _READ, backlog=1024)).close)
    else:
        if config["protocol"] == "quic":
            from cellbed_node.transfers.quic import Server

            server = Server(config, _call_at)
            received = server.receive
            closing.callback(server.close)
        else:
            flows = udp.Server(_call_at)
            received = lambda data, reply, _: flows.receive(data, reply)  # noqa: E731
        own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            own.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        own.bind(place)
        await loop.create_datagram_endpoint(lambda: Datagrams(received), sock=own)
    announce("ready")
    await lifecycle.wait_for_stop()
    closing.close()


def main(config: dict[str, Any]) -> None:
    """Serve until standard input ends."""
    processes.wake_precisely()
    # The time-outs of select(2) are in microseconds, those of epoll in milliseconds.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        try:
            runner.run(_serve(config))
        except OSError as error:
            where = f"{config['address']} port {config['port']}"
            raise WorkloadError(f"cannot listen at {where}: {error.strerror or error}") from error


if __name__ == "__main__":
    lifecycle.run(main)
