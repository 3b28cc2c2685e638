"""The forwarder of published ports and DNS queries: joins connections of one network namespace with new connections
from another. It runs as a separate process (:mod:`cellbed.shell.agent`).

Sockets keep the namespace of their creation. For published ports, the process opens the ports where it was started, and
then enters the namespace of the link's outer end, from which it connects to the inner end. For DNS queries, a child
opens the ports in the namespace of the shell's gateway and passes them on; the process connects to the host's resolver
from its initial namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cellbed.shell import agent
from cellbed.testbed.machine.process import Place, sockets_at

CONNECT_S = 30.0
IDLE_S = 120.0
"""Maximum idle time of a UDP flow, seconds: a mapping must live for two minutes (RFC 4787, REQ-5)."""
MOST_FLOWS = 4096
_SIZE = 1 << 18
_DATAGRAM = 65535
_IP_PKTINFO = 8
"""From ``<linux/in.h>``; the socket module has this constant only from Python 3.12 on."""


def open_port(port: dict[str, Any]) -> socket.socket:
    """Return a listening TCP socket or a UDP socket on a port; without an address, on all of IPv4 and IPv6. Errors:
    ``OSError``."""
    kind = socket.SOCK_STREAM if port["protocol"] == "tcp" else socket.SOCK_DGRAM
    address = port["address"]
    try:
        family = socket.AF_INET6 if address is None or ":" in address else socket.AF_INET
        one = socket.socket(family, kind)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address is not None))
    except OSError as error:
        if address is not None or error.errno != errno.EAFNOSUPPORT:
            raise
        # A kernel without IPv6.
        return open_port({**port, "address": "0.0.0.0"})
    try:
        if kind == socket.SOCK_STREAM:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((address or "::", port["port"]))
        if kind == socket.SOCK_STREAM:
            one.listen(512)
    except OSError:
        one.close()
        raise
    return one


def _places(port: dict[str, Any], client: str) -> list[tuple[str, int]]:
    """Return the addresses to try for a client. The client's family comes first: a server may have only one."""
    is_ipv6 = ":" in client and not client.startswith("::ffff:")
    return [(host, port["target"]) for host in sorted(port["hosts"], key=lambda host: (":" in host) != is_ipv6)]


async def serve_streams(listener: socket.socket, port: dict[str, Any]) -> None:
    """Join each connection with a new connection to the port's target, until cancelled."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = writer.get_extra_info("peername")
        upstream = await _connect(_places(port, client[0] if client else ""))
        if upstream is None:
            _reset(writer)
            return
        ends = (_pump(reader, upstream[1]), _pump(upstream[0], writer))
        try:
            await asyncio.gather(*ends)
        except OSError:
            _reset(writer)
            _reset(upstream[1])
        finally:
            writer.close()
            upstream[1].close()

    server = await asyncio.start_server(join, sock=listener, limit=_SIZE)
    async with server:
        await server.serve_forever()


async def _connect(places: list[tuple[str, int]]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    for address, port in places:
        with contextlib.suppress(OSError, TimeoutError):
            return await asyncio.wait_for(asyncio.open_connection(address, port, limit=_SIZE), CONNECT_S)
    return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the stream, then close only this direction: the other one may continue."""
    while data := await reader.read(_SIZE):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, so that the other side sees a failure instead of an orderly end."""
    one = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        # Linger for 0 s: close sends a reset (socket(7)).
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


Client = tuple[Any, bytes]
"""A client's address, and ancillary data: replies must have the destination of the request as their source."""


class Datagrams:
    """Forwards the datagrams of one port. A separate socket per client lets replies reach their client."""

    def __init__(self, port: socket.socket, task: dict[str, Any]) -> None:
        self._port = port
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._flows: dict[Client, tuple[socket.socket, float]] = {}
        self._is_ipv6 = port.family == socket.AF_INET6
        if self._is_ipv6:
            port.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        else:
            port.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
        port.setblocking(False)

    async def serve(self) -> None:
        """Forward until cancelled."""
        self._loop.add_reader(self._port, self._from_clients)
        while True:
            await asyncio.sleep(IDLE_S / 4)
            oldest = self._loop.time() - IDLE_S
            for client in [client for client, (_, used) in self._flows.items() if used < oldest]:
                self._forget(client)

    def _from_clients(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data, ancillary, _, address = self._port.recvmsg(_DATAGRAM, socket.CMSG_SPACE(20))
                client = (address, self._answer_from(ancillary))
                flow = self._flows.pop(client, None)
                one = flow[0] if flow is not None else self._open(client)
                # Keep the table in order of last use.
                self._flows[client] = (one, self._loop.time())
                # Drop the datagram if the socket is full or no server runs inside, as a network would.
                with contextlib.suppress(OSError):
                    one.send(data)

    def _answer_from(self, ancillary: list[tuple[int, int, bytes]]) -> bytes:
        for level, kind, data in ancillary:
            if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO:
                # struct in6_pktinfo: address, device; only link-local addresses need the device (RFC 3542, §6.1).
                return data if data[:2] == b"\xfe\x80" else data[:16] + bytes(4)
            if level == socket.IPPROTO_IP and kind == _IP_PKTINFO:
                # struct in_pktinfo: device, local address, address of the header (ip(7)).
                return bytes(4) + data[4:8] + bytes(4)
        return b""

    def _open(self, client: Client) -> socket.socket:
        if len(self._flows) >= MOST_FLOWS:
            self._forget(next(iter(self._flows)))
        address, port = _places(self._task, client[0][0])[0]
        one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        one.setblocking(False)
        one.connect((address, port))
        self._loop.add_reader(one, self._answer_to(client, one))
        return one

    def _answer_to(self, client: Client, one: socket.socket) -> Callable[[], None]:
        address, source = client
        level, kind = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO) if self._is_ipv6 else (socket.IPPROTO_IP, _IP_PKTINFO)
        ancillary = [(level, kind, source)] if source else []

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    self._port.sendmsg([one.recv(_DATAGRAM)], ancillary, 0, address)

        return answer

    def _forget(self, client: Client) -> None:
        one, _ = self._flows.pop(client)
        self._loop.remove_reader(one)
        one.close()


_NAMES = {errno.EADDRINUSE: "taken", errno.EACCES: "privileged", errno.EADDRNOTAVAIL: "no address"}


def open_ports(ports: Sequence[dict[str, Any]]) -> Iterator[socket.socket]:
    """Open ports one after the other. All ports with number 0 get the same free number.

    Errors: ``OSError``.
    """
    free = 0
    for port in ports:
        one = open_port({**port, "port": port["port"] or free})
        free = one.getsockname()[1]
        yield one


def main() -> None:
    """Read the task, open the ports, enter the namespaces of connections, and serve."""
    task = agent.read_task()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each client of a UDP port has a socket
    listen, connect = (Place(**task[key]) if task[key] else None for key in ("listen", "connect"))
    opened: list[socket.socket] = []
    try:
        ports = open_ports(task["ports"])
        opened.extend(sockets_at(listen, lambda: list(ports)) if listen else ports)
    except OSError as error:
        agent.report(_NAMES.get(error.errno or 0, "refused"), error.strerror or str(error), port=len(opened))
        return
    try:
        if connect:
            connect.enter()
    except OSError as error:
        agent.report("error", str(error))
        return
    asyncio.run(_serve(opened, task["ports"]))


async def _serve(opened: Sequence[socket.socket], ports: Sequence[dict[str, Any]]) -> None:
    """Report that the ports are served, and serve until standard input ends."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    tasks = []
    for one, port in zip(opened, ports, strict=True):
        job = serve_streams(one, port) if port["protocol"] == "tcp" else Datagrams(one, port).serve()
        tasks.append(asyncio.create_task(job))
    agent.report("ready", port=opened[0].getsockname()[1])
    await ended.wait()
    for task in tasks:
        task.cancel()
