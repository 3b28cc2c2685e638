"""A web server of files on the loopback, with the weaknesses that a test gives it."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class FileServer:
    """files: content by path. asked: path and headers, with names in small letters, of each request, in order.

    cut_after: bytes of its body after which the connection breaks, once for each number, by path. statuses: answers to
    give first, by path. redirects: where else, by path. ranges: whether it knows Range. tagged: whether it names
    versions. length: whether it says how long a file is. stalls: paths whose body stops after half of it, once. kinds:
    what the server says that content is, by path.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    cut_after: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    tagged: bool = True
    length: bool = True
    stalls: set[str] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    content_range: str | None = None
    address: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)

    def etag(self, path: str) -> str:
        return f'"{hashlib.sha256(self.files[path]).hexdigest()[:16]}"'

    def ranges_asked(self) -> list[str | None]:
        return [headers.get("range") for _, headers in self.asked]


@contextmanager
def file_server(
    files: dict[str, bytes] | None = None, certificate: tuple[Path, Path] | None = None
) -> Iterator[FileServer]:
    """A server at 127.0.0.1 for as long as the context lasts; of HTTPS with a certificate and its key."""
    shared = FileServer(files or {})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _answer(self, shared)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate:
        secured = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secured.load_cert_chain(*certificate)
        server.socket = secured.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    shared.address = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    try:
        yield shared
    finally:
        shared.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(request: BaseHTTPRequestHandler, shared: FileServer) -> None:
    path = re.sub(r"^http://[^/]+", "", request.path).partition("?")[0]  # a proxy is asked for the whole address
    shared.asked.append((path, {name.lower(): value for name, value in request.headers.items()}))
    request.close_connection = True
    if path in shared.redirects:
        return _head(request, 302, {"Location": shared.redirects[path], "Content-Length": "0"})
    if shared.statuses.get(path):
        return _head(request, shared.statuses[path].pop(0), {"Content-Length": "0", "Retry-After": "0"})
    if path not in shared.files:
        return _head(request, 404, {"Content-Length": "0"})
    body = shared.files[path]
    headers = {"ETag": shared.etag(path)} if shared.tagged else {}
    if path in shared.kinds:
        headers["Content-Type"] = shared.kinds[path]
    status, start = 200, 0
    asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
    same = request.headers.get("If-Range") in (None, headers.get("ETag"))
    if shared.ranges and asked and same:
        start = int(asked[1])
        if start >= len(body):
            return _head(request, 416, {"Content-Range": f"bytes */{len(body)}", "Content-Length": "0"})
        status = 206
        headers["Content-Range"] = shared.content_range or f"bytes {start}-{len(body) - 1}/{len(body)}"
    rest = body[start:]
    if shared.length:
        headers["Content-Length"] = str(len(rest))
    _head(request, status, headers)
    if path in shared.stalls:
        shared.stalls.discard(path)
        request.wfile.write(rest[: len(rest) // 2])
        request.wfile.flush()
        shared.stopped.wait()
        return None
    cuts = shared.cut_after.get(path)
    request.wfile.write(rest[: cuts.pop(0)] if cuts else rest)
    return None


def _head(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    request.send_response(status)
    for name, value in {**headers, "Connection": "close"}.items():
        request.send_header(name, value)
    request.end_headers()
