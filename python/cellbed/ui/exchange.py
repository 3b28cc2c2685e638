"""HTTP/1.1 for one page: requests and replies of a connection, and streams of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

import h11

_MOST_HEAD, _MOST_BODY = 1 << 14, 1 << 16
_PATIENCE_S = 30.0
"""Maximum time for a request, and between two requests of a connection, seconds."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request. headers: the last value of each, by its name in lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply. content ``None``: a stream of events."""

    content: bytes | None
    kind: str = "text/plain"
    status: int = 200
    policy: str = "default-src 'none'"
    cookie: str | None = None


@dataclass(eq=False, slots=True)
class Stream:
    """A stream of events. send: sends bytes without waiting. unsent: number of bytes that wait."""

    send: Callable[[bytes], None]
    unsent: Callable[[], int]


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: Callable[[Request], Awaitable[Reply]],
    streams: set[Stream],
) -> None:
    """Answer the requests of a connection, one after the other. A stream is in `streams` until the client ends it.

    Errors: ``h11.ProtocolError``, ``OSError``, ``TimeoutError``.
    """
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEAD)
    while (request := await asyncio.wait_for(_receive(connection, reader), _PATIENCE_S)) is not None:
        reply = await answer(request)
        kind = "text/event-stream" if reply.content is None else f"{reply.kind}; charset=utf-8"
        headers = _HEADERS | {"Content-Type": kind, "Content-Security-Policy": reply.policy}
        if reply.cookie is not None:
            headers["Set-Cookie"] = reply.cookie
        if reply.content is not None:
            headers["Content-Length"] = str(len(reply.content))
        events: list[h11.Event] = [h11.Response(status_code=reply.status, headers=list(headers.items()))]
        if reply.content is not None:
            events += [h11.Data(b"" if request.method == "HEAD" else reply.content), h11.EndOfMessage()]
        writer.write(b"".join(connection.send(event) or b"" for event in events))
        await writer.drain()
        if reply.content is None:
            stream = Stream(
                lambda content: writer.write(connection.send(h11.Data(content)) or b""),
                writer.transport.get_write_buffer_size,
            )
            streams.add(stream)
            try:
                while await reader.read(_MOST_HEAD):
                    pass
            finally:
                streams.discard(stream)
        if connection.our_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _receive(connection: h11.Connection, reader: asyncio.StreamReader) -> Request | None:
    """Return the next request of a connection; ``None`` at its end."""
    head, body = None, b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_MOST_BODY))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
            if len(body) > _MOST_BODY:
                raise h11.RemoteProtocolError("too long", 413)
        else:
            return None
    assert head is not None
    target = urlsplit(head.target.decode("ascii", "replace"))
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode("ascii"), target.path, parse_qs(target.query), headers, body)
