"""A web server of files on the loopback, with the weaknesses that a test gives it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """files: content by path. asked: path of each request, in order.

    cut_after: bytes of its body after which the connection breaks, once for each number, by path. statuses: answers to
    give first, by path. redirects: where else, by path. length: whether it states the length of a file. stalls: paths
    whose body stops after half of it, once. kinds: the stated type of content, by path.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cut_after: dict[str, list[int]] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    length: bool = True
    stalls: set[str] = field(default_factory=set)
    kinds: dict[str, str] = field(default_factory=dict)
    address: str = ""
    stopped: threading.Event = field(default_factory=threading.Event)


@contextmanager
def file_server(files: dict[str, bytes] | None = None) -> Iterator[FileServer]:
    """A server at 127.0.0.1 for as long as the context lasts."""
    shared = FileServer(files or {})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _answer(self, shared)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    shared.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield shared
    finally:
        shared.stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(request: BaseHTTPRequestHandler, shared: FileServer) -> None:
    path = request.path
    shared.asked.append(path)
    request.close_connection = True
    if path in shared.redirects:
        return _head(request, 302, {"Location": shared.redirects[path], "Content-Length": "0"})
    if shared.statuses.get(path):
        return _head(request, shared.statuses[path].pop(0), {"Content-Length": "0", "Retry-After": "0"})
    if path not in shared.files:
        return _head(request, 404, {"Content-Length": "0"})
    body = shared.files[path]
    headers = {}
    if path in shared.kinds:
        headers["Content-Type"] = shared.kinds[path]
    if shared.length:
        headers["Content-Length"] = str(len(body))
    _head(request, 200, headers)
    if path in shared.stalls:
        shared.stalls.discard(path)
        request.wfile.write(body[: len(body) // 2])
        request.wfile.flush()
        shared.stopped.wait()
        return None
    cuts = shared.cut_after.get(path)
    request.wfile.write(body[: cuts.pop(0)] if cuts else body)
    return None


def _head(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str]) -> None:
    request.send_response(status)
    for name, value in {**headers, "Connection": "close"}.items():
        request.send_header(name, value)
    request.end_headers()
