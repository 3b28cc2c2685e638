"""The program behind the servers of a recorded site, which finds the reply to each request.

Run as ``python -m cellbed_node.web.matcher --config FILE.json``: `site`, a WARC file, and `socket`, the path of a Unix
socket. The header :data:`ORIGIN` has the origin of a request; a connection has one request.
"""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import h11

from cellbed_node import lifecycle
from cellbed_node.lifecycle import WorkloadError, announce
from cellbed_node.web import warc
from cellbed_node.web.site import Replies, SiteError, split

ORIGIN = "Cellbed-Origin"
_READ = 1 << 18
_MOST_HEADER = 1 << 20
_SHOWN = 5
_LEFT_OUT = ("alt-svc", "date")
"""Headers of a recorded server that the front server writes itself: its protocols, and the time."""


class Matcher:
    """Answers requests with recorded replies, and counts requests without a reply by URL. Pure."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self.unmatched: Counter[str] = Counter()

    def answer(self, request: h11.Request) -> tuple[h11.Response, bytes]:
        """Return the reply to a request, with its body."""
        fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        method, target = request.method.decode("latin-1"), request.target.decode("latin-1")
        origin = fields.get(ORIGIN.lower(), "")
        with contextlib.suppress(ValueError):
            origin = str(split(origin)[0])  # without the scheme's default port
        found = self._replies.find(method, origin, target, fields.get("user-agent"))
        if found is None:
            self.unmatched[f"{method} {origin}{target}"] += 1
            body = f"no recorded request matches {method} {origin}{target}\n".encode()
            return h11.Response(status_code=404, headers=_frame([("Content-Type", "text/plain")], body)), body
        body = b"" if method == "HEAD" or found.status in (204, 304) else found.body
        kept = [(name, value) for name, value in found.reply if name.lower() not in _LEFT_OUT]
        reason = found.reason.encode("latin-1", "replace")
        return h11.Response(status_code=found.status, headers=_frame(kept, found.body), reason=reason), body

    @property
    def note(self) -> str | None:
        """Return a sentence on requests without a reply, ``None`` if there were none."""
        if not self.unmatched:
            return None
        shown = [f"{url[:200]} ({count}×)" for url, count in self.unmatched.most_common(_SHOWN)]
        more = f", and {len(self.unmatched) - _SHOWN} more" if len(self.unmatched) > _SHOWN else ""
        total = sum(self.unmatched.values())
        return f"{total} requests matched no recorded one and were answered with 404: {', '.join(shown)}{more}"


def _frame(headers: list[tuple[str, str]], body: bytes) -> list[tuple[bytes, bytes]]:
    framed = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in framed]


async def _exchange(matcher: Matcher, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_HEADER)
    request = None
    with contextlib.suppress(OSError, h11.ProtocolError):
        while not isinstance(event := protocol.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(_READ))
            elif isinstance(event, h11.Request):
                request = event
        if request is not None and isinstance(event, h11.EndOfMessage):
            response, body = matcher.answer(request)
            writer.write(protocol.send(response) or b"")
            for begin in range(0, len(body), _READ):
                writer.write(body[begin : begin + _READ])
                await writer.drain()
    writer.close()


async def _serve(matcher: Matcher, path: str) -> None:
    server = await asyncio.start_unix_server(
        lambda reader, writer: _exchange(matcher, reader, writer), path, limit=2 * _READ, backlog=1024
    )
    announce("ready")
    await lifecycle.wait_for_stop()
    server.close()


def main(config: dict[str, Any]) -> None:
    """Serve until standard input ends, then report the requests without a reply."""
    try:
        matcher = Matcher(Replies(warc.read(Path(config["site"])).exchanges))
        asyncio.run(_serve(matcher, config["socket"]))
    except SiteError as error:
        raise WorkloadError(str(error)) from error
    except OSError as error:
        raise WorkloadError(f"cannot listen at {config['socket']}: {error.strerror or error}") from error
    if matcher.note is not None:
        announce("note", text=matcher.note)


if __name__ == "__main__":
    lifecycle.run(main)
