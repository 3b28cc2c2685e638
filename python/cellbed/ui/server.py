"""The server of the page: loopback only, one token, the live state as events.

The printed address has the token. It sets a cookie and leads to the page, whose path is random, too: browsers send
cookies to all ports of a host (RFC 6265, §8.5), but only below their path, which no program of another user knows.
Commands need the token as a header, which no other page can send. Reports are served in a sandbox without an origin.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs, urlsplit
from weakref import WeakKeyDictionary

from cellbed import report
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.testbed.links.live import find
from cellbed.testbed.machine.process import Interruption
from cellbed.testbed.programs.reach import ask
from cellbed.ui import finished
from cellbed.ui.reader import INTERVAL_S, Reader
from cellbed.ui.snapshot import difference
from cellbed_node import inputs
from cellbed_node.temporary import temporary_folder

_CHARTS = Path(report.__file__).parent / "assets"
_ASSETS = {
    path.name: path
    for path in (*(Path(__file__).parent / "page").iterdir(), _CHARTS / "uPlot.iife.min.js", _CHARTS / "uPlot.min.css")
}
_KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_POLICY = "Content-Security-Policy"
_CLOSED = {_POLICY: "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}
_PAGE = {_POLICY: f"{_CLOSED[_POLICY]}; script-src 'self'; style-src 'self'; connect-src 'self'"}
_REPORT = {
    _POLICY: f"sandbox allow-scripts allow-downloads; {_CLOSED[_POLICY]}; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'"
}
"""Headers of reports, whose scripts and styles are inside the page, and which show texts of programs."""
ENTER = '<!doctype html><title>cellbed</title><meta http-equiv="refresh" content="0;url={}">'
_HOSTS = ("127.0.0.1", "localhost")
_EVENTS = "text/event-stream"
_MOST_WAITING, _MOST_BODY, _LARGEST_PAGE = 64, 1 << 16, 1 << 29
_MOST_OUTPUT = 2000
"""Maximum bytes of the output of a command."""


class Server(ThreadingMixIn, TCPServer):
    """The page of one user.

    port: on the loopback; 0 chooses a free one. runs: folder of finished runs. here: base of scenario files.
    address: of the page, with its secret. Errors: :class:`CellbedError`.
    """

    allow_reuse_address = daemon_threads = True
    request_queue_size = 2 * _MOST_WAITING

    def __init__(self, port: int, runs: Path, here: Path) -> None:
        try:
            super().__init__(("127.0.0.1", port), _Exchange)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            raise CellbedError(f"--port {port}: {reason}: choose another, or leave --port out") from error
        self.token, self.path, self.session = (secrets.token_urlsafe(24) for _ in range(3))
        self.address = f"http://127.0.0.1:{self.server_address[1]}/?token={self.token}"
        self.runs, self.here = runs, here
        self.waiting: WeakKeyDictionary[socket.socket, None] = WeakKeyDictionary()
        """Connections without a request of the user yet, the oldest first."""
        self._reader, self._lock = Reader(), threading.Lock()
        self._state: dict[str, Any] = {}
        self._ended: dict[str, dict[str, Any]] = {}
        self._due_s = 0.0

    def serve(self) -> None:
        """Serve until SIGINT or SIGTERM. Commands that the page has started continue."""
        with self, Interruption(), contextlib.suppress(KeyboardInterrupt):
            self.serve_forever()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread. Other users of this machine can hold connections open: the oldest ends."""
        if len(self.waiting) >= _MOST_WAITING:
            with contextlib.suppress(OSError, RuntimeError, StopIteration):  # one ends meanwhile
                self.waiting.pop(oldest := next(iter(self.waiting)), None)
                oldest.shutdown(socket.SHUT_RDWR)
        self.waiting[request] = None
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except for malformed requests and ended connections."""
        if not isinstance(sys.exception(), OSError | ValueError):
            super().handle_error(request, client_address)

    def state(self) -> dict[str, Any]:
        """Return the state of live testbeds and of ended commands, read at most every `INTERVAL_S`."""
        with self._lock:
            now_ns = time.monotonic_ns()
            if now_ns / 1e9 >= self._due_s:
                self._due_s = now_ns / 1e9 + INTERVAL_S * 0.9
                self._state = {"time_s": round(now_ns / 1e9, 3), "beds": self._reader.read(now_ns)}
            return self._state | {"ended": self._ended}

    def start(self, words: Any) -> None:
        """Start a verb of ``cellbed``, or ``pause``, with its words. Errors: :class:`CellbedError`, ``OSError``."""
        if not isinstance(words, list) or not all(isinstance(word, str) and word.isprintable() for word in words):
            raise CellbedError("a command is a list of words")
        match words:
            case ["down", name] if (record := find(name)).kind == "run":
                os.kill(record.process, signal.SIGINT)
            case ["pause", name, node, length]:
                answer = ask(find(name), "pause", {"node": node, "for": length})
                if "failed" in answer:
                    raise CellbedError(answer["failed"])
            case ["up" | "run" | "down" | "link" | "migrate" | "report", *_]:
                threading.Thread(target=self._follow, args=(words,), daemon=True).start()
            case _:
                raise CellbedError(f"the page has no command '{' '.join(words)}'")

    def _follow(self, words: list[str]) -> None:
        with tempfile.TemporaryFile() as output:
            # Ctrl-C at the page's terminal must not reach it, and the end of the page must not end it.
            done = _run(*words, stdout=output, stderr=subprocess.STDOUT, env=os.environ | {"NO_COLOR": "1"})
            output.seek(max(0, output.tell() - _MOST_OUTPUT))
            text = output.read().decode(errors="replace").strip()
        with self._lock:
            ended = {"command": shlex.join(["cellbed", *words]), "status": done.returncode, "text": text}
            self._ended = self._ended | {str(len(self._ended)): ended}


class _Exchange(BaseHTTPRequestHandler):
    """One connection with its request."""

    server: Server
    timeout = 3.0
    """Maximum time between two pieces of a request, seconds."""

    def do_GET(self) -> None:
        """Answer a request of the user."""
        url, server = urlsplit(self.path), self.server
        query = parse_qs(url.query)
        first, _, name = url.path.removeprefix("/").partition("/")
        if self._is_refused(first, query.get("token", [""])[0]):
            return
        if not first:
            headers = {"Set-Cookie": f"cellbed={server.session}; HttpOnly; SameSite=Strict; Path=/{server.path}/"}
            # A page, no redirection: after a link on another site, the browser would leave out the cookie.
            self._reply(ENTER.format(f"/{server.path}/").encode(), "text/html", headers=_CLOSED | headers)
        elif name == "events":
            self._send_events()
        elif name == "finished":
            files, strategies = finished.scenario_files(server.here), sorted(entries("strategies"))
            found = {"folder": str(server.runs), "runs": finished.entries(server.runs)}
            self._reply(_json(found | {"files": files, "strategies": strategies}), "application/json")
        elif (path := _ASSETS.get(name or "index.html")) is not None:
            content = inputs.content(path).replace(b"{token}", server.token.encode())
            self._reply(content, _KINDS[path.suffix], headers=_PAGE)
        else:
            folders = [finished.find(server.runs, key) for key in query.get("run", [])]
            if name == "report" and len(folders) == 1 and folders[0] is not None:
                self._send_report(folders[0])
            elif name == "compare" and folders and None not in folders:
                self._send_comparison(folders)
            else:
                self._reply(b"no such page\n", status=404)

    def do_POST(self) -> None:
        """Start a command of the page."""
        body = self.rfile.read(max(0, min(_MOST_BODY, int(self.headers.get("Content-Length", "0")))))
        if self._is_refused(urlsplit(self.path).path.strip("/").partition("/")[0]):
            return
        own, token = f"http://{self.headers['Host']}", self.headers.get("X-Cellbed-Token", "")
        if self.headers.get("Origin", own) != own or not _is_same(token, self.server.token):
            self._reply(b"this command is not from the page\n", status=403)
            return
        try:
            self.server.start(json.loads(body))
            self._reply(b"{}", "application/json")
        except (CellbedError, OSError, ValueError, RecursionError) as error:
            self._reply(_json({"error": str(error)}), "application/json", 400)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _is_refused(self, first: str, token: str = "") -> bool:
        """Refuse a request without the secrets of the page. first: first part of its path, empty for the address."""
        session, server = "", self.server
        with contextlib.suppress(CookieError, KeyError):
            session = SimpleCookie(self.headers.get("Cookie", ""))["cellbed"].value
        if self.headers.get("Host", "").partition(":")[0] not in _HOSTS:
            # A name of another site whose owner lets it resolve to this machine (DNS rebinding).
            self._reply(b"this page is served to 127.0.0.1 and localhost only\n", status=403)
        elif (not first and _is_same(token, server.token)) or (
            _is_same(first, server.path) and _is_same(session, server.session)
        ):
            server.waiting.pop(self.connection, None)
            self.connection.settimeout(None)
            return False
        else:
            self._reply(b"open the address that `cellbed ui` has printed\n", status=403)
        return True

    def _reply(
        self, content: bytes, kind: str = "text/plain", status: int = 200, headers: Mapping[str, str] = _CLOSED
    ) -> None:
        """Send a reply, or the begin of a stream of events."""
        self.send_response(status)
        for name, value in {**_HEADERS, **headers, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        if kind != _EVENTS:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _send_events(self) -> None:
        """Send the changes of the state until the page ends. A slow page gets changes together."""
        self._reply(b"", _EVENTS)
        known: dict[str, Any] = {}
        while True:
            begin_s = time.monotonic()
            state = self.server.state()
            self.wfile.write(b"data: " + _json(difference(known, state)) + b"\n\n")
            known = state
            time.sleep(max(0.0, begin_s + INTERVAL_S - time.monotonic()))

    def _send_report(self, folder: Path) -> None:
        try:
            self._reply(inputs.content(folder / "report.html", _LARGEST_PAGE), "text/html", headers=_REPORT)
        except FileNotFoundError:
            self._reply(b"no report yet: make it on the page of runs\n", status=404)

    def _send_comparison(self, folders: list[Path | None]) -> None:
        """Compare runs as ``cellbed compare`` does."""
        with temporary_folder() as temporary:
            done = _run("compare", *map(str, folders), "--out", str(temporary / "report.html"), capture_output=True)
            if done.returncode == 0:
                self._send_report(temporary)
            else:
                self._reply(done.stderr[-_MOST_OUTPUT:], status=422)


def _run(*words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a verb of ``cellbed`` in a session of its own."""
    command = (sys.executable, "-P", "-m", "cellbed", *words)
    return subprocess.run(command, stdin=subprocess.DEVNULL, start_new_session=True, check=False, **options)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")


def _is_same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode(), secret.encode())
