"""The server of the page: loopback only, one token, the live state as events.

The printed address has the token. It sets a cookie and leads to the page, whose path is random, too: browsers send
cookies to all ports of a host (RFC 6265, §8.5), but only below their path, which no program of another user knows.
Commands need the token as a header, which no other page can send. Reports are served in a sandbox without an origin.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
import webbrowser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

import h11

from cellbed import report
from cellbed.support.errors import CellbedError
from cellbed.support.extensions import entries
from cellbed.ui.exchange import Reply, Request, Stream, exchange
from cellbed.ui.finished import Finished, scenario_files
from cellbed.ui.jobs import PROGRAM, JobError, Jobs, words
from cellbed.ui.reader import INTERVAL_NS, Reader
from cellbed.ui.snapshot import difference
from cellbed_node import inputs
from cellbed_node.temporary import temporary_folder

_HERE, _CHARTS = Path(__file__).parent / "page", Path(report.__file__).parent / "assets"
_ASSETS = {
    "": (_HERE / "index.html", "text/html"),
    "ui.css": (_HERE / "ui.css", "text/css"),
    "ui.js": (_HERE / "ui.js", "text/javascript"),
    "topology.js": (_HERE / "topology.js", "text/javascript"),
    "uPlot.iife.min.js": (_CHARTS / "uPlot.iife.min.js", "text/javascript"),
    "uPlot.min.css": (_CHARTS / "uPlot.min.css", "text/css"),
}
_CLOSED = "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_POLICY = f"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; {_CLOSED}"
_SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    + _CLOSED
)
"""Policy of reports, whose scripts and styles are inside the page, and which show texts of programs."""
_HOSTS = ("127.0.0.1", "localhost")
_MOST_CONNECTIONS, _MOST_UNSENT, _LARGEST_PAGE = 64, 1 << 18, 1 << 29
_ENTER = '<!doctype html><title>cellbed</title><meta http-equiv="refresh" content="0;url={}">'


class Server:
    """The page of one user.

    runs: folder of finished runs. here: base of scenario files. token: secret of the address. path: of the page.
    """

    def __init__(self, runs: Path, here: Path) -> None:
        self.token, self.path, self._session = (secrets.token_urlsafe(24) for _ in range(3))
        self._runs, self._here = runs, here
        self._finished, self._reader, self._jobs = Finished(runs), Reader(), Jobs()
        self._thread = ThreadPoolExecutor(1, "cellbed-ui")
        self._streams: set[Stream] = set()
        self._connections: set[asyncio.Task[Any]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until SIGINT or SIGTERM."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        server = await asyncio.start_server(self._connect, sock=listener)
        tasks = [asyncio.create_task(self._watch()), asyncio.create_task(stop.wait())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        server.close()
        for task in (*self._connections, *tasks):
            task.cancel()
        await self._jobs.close()
        self._thread.shutdown()
        self._reader.close()
        for task in done:
            task.result()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # Other users of this machine may connect, too: they get refusals.
            if len(self._connections) <= _MOST_CONNECTIONS:
                await exchange(reader, writer, self.answer, self._streams)
        except (h11.ProtocolError, OSError, TimeoutError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _watch(self) -> None:
        """Send each page the changes of the state; read nothing without pages."""
        loop, due_s = asyncio.get_running_loop(), 0.0
        known: dict[Stream, dict[str, Any]] = {}
        while True:
            due_s = max(due_s + INTERVAL_NS / 1e9, loop.time())
            if self._streams:
                snapshot = await loop.run_in_executor(self._thread, self._reader.read, time.monotonic_ns())
                state = {"beds": snapshot.beds, "jobs": self._jobs.content}
                known = {stream: known.get(stream, {}) for stream in self._streams}
                events: dict[int, bytes] = {}
                for stream, before in known.items():
                    if stream.unsent() > _MOST_UNSENT:
                        continue  # a slow page gets the changes together
                    if (event := events.get(id(before))) is None:
                        change = difference(before, state) | {"time_s": round(snapshot.time_s, 3)}
                        name = b"" if before else b"event: whole\n"
                        event = events[id(before)] = name + b"data: " + _json(change) + b"\n\n"
                    stream.send(event)
                    known[stream] = state
            await asyncio.sleep(due_s + INTERVAL_NS / 1e9 - loop.time())

    async def answer(self, request: Request) -> Reply:
        """Return the reply to a request."""
        # Not a name of another site that its owner lets resolve to this machine (DNS rebinding).
        if request.headers.get("host", "").partition(":")[0] not in _HOSTS:
            return Reply(b"this page is served to 127.0.0.1 and localhost only\n", status=403)
        if request.path == "/" and _is_same(request.query.get("token", [""])[0], self.token):
            cookie = f"cellbed={self._session}; HttpOnly; SameSite=Strict; Path=/{self.path}/"
            # A page, no redirection: after a link on another site, the browser would leave out the cookie.
            return Reply(_ENTER.format(f"/{self.path}/").encode(), "text/html", cookie=cookie)
        first, _, name = request.path.removeprefix("/").partition("/")
        if not _is_same(first, self.path) or not _is_same(_session(request.headers), self._session):
            return Reply(b"open the address that `cellbed ui` has printed\n", status=403)
        if (request.method, name) == ("POST", "do"):
            return await self._do(request)
        if request.method not in ("GET", "HEAD"):
            return Reply(b"", status=405)
        if name in _ASSETS:
            path, kind = _ASSETS[name]
            text = inputs.content(path)
            return Reply(text if name else text.replace(b"{token}", self.token.encode()), kind, policy=_POLICY)
        if name == "events":
            return Reply(None)
        if name == "finished":
            found = await asyncio.to_thread(lambda: (self._finished.entries(), scenario_files(self._here)))
            content: dict[str, Any] = {"folder": str(self._runs), "runs": found[0], "files": found[1]}
            return _reply(content | {"strategies": sorted(entries("strategies"))})
        folders = [folder for key in request.query.get("run", []) if (folder := self._finished.find(key)) is not None]
        if name in ("report", "compare") and len(folders) == len(request.query.get("run", ())) > 0:
            return await asyncio.to_thread(_report if name == "report" else _compare, folders)
        return Reply(b"no such page\n", status=404)

    async def _do(self, request: Request) -> Reply:
        """Start a command, or interrupt one."""
        origin = request.headers.get("origin")
        if not _is_same(request.headers.get("x-cellbed-token", ""), self.token) or (
            origin is not None and origin != f"http://{request.headers['host']}"
        ):
            return Reply(b"this command is not from the page\n", status=403)
        try:
            form = json.loads(request.body)
            if not isinstance(form, dict):
                raise JobError("a command is a JSON object")
            if form.get("verb") != "cancel":
                return _reply({"job": await self._jobs.start(words(form, self._runs))})
            self._jobs.cancel(str(form.get("job")))
        except (JobError, ValueError, OSError, RecursionError) as error:
            return _reply({"error": str(error)}, 400)
        return _reply({})


def _report(folders: list[Path]) -> Reply:
    try:
        return Reply(inputs.content(folders[0] / "report.html", _LARGEST_PAGE), "text/html", policy=_SANDBOX)
    except OSError:
        return Reply(b"no report yet: make it on the page of runs\n", status=404)


def _compare(folders: list[Path]) -> Reply:
    """Compare runs as ``cellbed compare`` does."""
    with temporary_folder() as temporary:
        page = temporary / "comparison.html"
        options: Any = {"stdin": subprocess.DEVNULL, "start_new_session": True, "check": False}
        done = subprocess.run([*PROGRAM, "compare", *folders, "--out", page], capture_output=True, **options)
        if done.returncode != 0:
            return Reply(done.stderr[-2000:], status=422)
        return Reply(inputs.content(page, _LARGEST_PAGE), "text/html", policy=_SANDBOX)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")


def _reply(value: Any, status: int = 200) -> Reply:
    return Reply(_json(value), "application/json", status)


def _is_same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode(), secret.encode())


def _session(headers: dict[str, str]) -> str:
    with contextlib.suppress(CookieError, KeyError):
        return SimpleCookie(headers.get("cookie", ""))["cellbed"].value
    return ""


def listen(port: int) -> socket.socket:
    """Return a socket that listens on the loopback; port 0 chooses a free one. Errors: :class:`CellbedError`."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise CellbedError(f"--port {port}: {reason}: choose another, or leave --port out") from error


@contextlib.contextmanager
def open_browser(address: str) -> Iterator[None]:
    """Open the page in a browser of a desktop. The address is passed in a file: other users see words of commands."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")) or os.geteuid() == 0:
        yield
        return
    with temporary_folder() as folder:
        (folder / "open.html").write_text(_ENTER.format(address), encoding="utf-8")
        webbrowser.open((folder / "open.html").as_uri())
        yield
