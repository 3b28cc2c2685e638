"""A DNS forwarder between two network namespaces: asked in one, it asks the resolver in the other.

Sockets keep the namespace in which they were made. A child process enters the namespace of the shell's gateway, binds
the sockets there and hands them back; this process stays where the resolver is. Messages pass unread, over UDP and TCP
(RFC 1035, §4.2), so that it does not interpret their content. A separate process (:mod:`cellbed.shell.agent`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from typing import Any, cast

from cellbed.shell import agent, serving

ANSWER_S = 3.0
"""How long one resolver is waited for before the next is asked; the C library repeats its question after 5 s."""
IDLE_S = 30.0
MOST_QUESTIONS = 512
_SIZE = 65535
_ATTEMPTS = 8


def open_sockets(address: str) -> tuple[socket.socket, socket.socket]:
    """UDP and TCP sockets on one port of `address`, which is free for both. Errors: ``OSError``."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for attempt in reversed(range(_ATTEMPTS)):
        datagrams = socket.socket(family, socket.SOCK_DGRAM)
        streams = socket.socket(family, socket.SOCK_STREAM)
        try:
            datagrams.bind((address, 0))
            streams.bind(datagrams.getsockname())
            streams.listen(64)
        except OSError:
            # A port that is free for one may be taken for the other.
            datagrams.close()
            streams.close()
            if attempt == 0:
                raise
        else:
            break
    return datagrams, streams


def open_sockets_in(address: str, network: str, user: str | None) -> tuple[socket.socket, socket.socket]:
    """Return the same in the namespaces at the given paths; the process must have one thread. Errors: ``OSError``."""
    here, there = socket.socketpair()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            from cellbed import _core

            _core.enter(user_namespace=user, network_namespace=network, binds=[], cgroups=[], keep_capabilities=False)
            sockets = open_sockets(address)
            socket.send_fds(there, [b"\0"], [one.fileno() for one in sockets])
        except OSError as error:
            there.send(json.dumps([error.errno or 0, str(error)]).encode())
            status = 1
        finally:
            os._exit(status)
    there.close()
    message, descriptors, _, _ = socket.recv_fds(here, 4096, 2)
    here.close()
    os.waitpid(child, 0)
    if len(descriptors) != 2:
        number, text = json.loads(message) if message else (0, "the namespace could not be entered")
        raise OSError(number, text)
    return socket.socket(fileno=descriptors[0]), socket.socket(fileno=descriptors[1])


class _Question(asyncio.DatagramProtocol):
    """One pending query: a separate connected socket, so that only the resolver can answer."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: before Python 3.12 asyncio's own datagram transport is no subclass of the documented one.
        cast(asyncio.DatagramTransport, transport).sendto(self._message)

    def datagram_received(self, data: bytes, _address: Any) -> None:
        # The first two bytes are the identifier of the question (RFC 1035, §4.1.1).
        if data[:2] == self._message[:2] and not self.answer.done():
            self.answer.set_result(data)

    def error_received(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


async def ask(message: bytes, servers: list[str]) -> bytes | None:
    """Return the answer of the first server that gives one, or ``None``."""
    loop = asyncio.get_running_loop()
    for server in servers:
        try:
            transport, question = await loop.create_datagram_endpoint(
                lambda: _Question(message), remote_addr=(server, 53)
            )
        except OSError:
            continue
        try:
            return await asyncio.wait_for(question.answer, ANSWER_S)
        except (OSError, TimeoutError):
            continue
        finally:
            transport.close()
    return None


async def serve_datagrams(datagrams: socket.socket, servers: list[str]) -> None:
    """Answer questions over UDP until cancelled; above `MOST_QUESTIONS` open ones, new ones are dropped."""
    loop = asyncio.get_running_loop()
    datagrams.setblocking(False)
    waiting: set[asyncio.Task[None]] = set()

    async def reply(message: bytes, client: Any) -> None:
        answer = await ask(message, servers)
        if answer is not None:
            with contextlib.suppress(OSError):
                await loop.sock_sendto(datagrams, answer, client)

    while True:
        try:
            message, client = await loop.sock_recvfrom(datagrams, _SIZE)
        except OSError:
            continue
        if len(waiting) < MOST_QUESTIONS:
            task = asyncio.create_task(reply(message, client))
            waiting.add(task)
            task.add_done_callback(waiting.discard)


async def serve_streams(streams: socket.socket, servers: list[str]) -> None:
    """Join each TCP connection with one to the first server that takes it, until cancelled."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for server in servers:
            try:
                upstream = await asyncio.wait_for(asyncio.open_connection(server, 53), ANSWER_S)
                break
            except (OSError, TimeoutError):
                continue
        else:
            writer.close()
            return
        await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))

    server = await asyncio.start_server(join, sock=streams)
    async with server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await asyncio.wait_for(reader.read(_SIZE), IDLE_S):
            writer.write(data)
            await writer.drain()
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()


def main() -> None:
    """Read the task, open the sockets, serve."""
    task = agent.read_task()
    try:
        if task["network_namespace"] is None:
            sockets = open_sockets(task["address"])
        else:
            sockets = open_sockets_in(task["address"], task["network_namespace"], task["user_namespace"])
    except OSError as error:
        agent.report("error", str(error))
        return
    datagrams, streams = sockets
    servers = task["servers"]
    jobs = (serve_datagrams(datagrams, servers), serve_streams(streams, servers))
    asyncio.run(serving.serve(*jobs, port=datagrams.getsockname()[1]))
