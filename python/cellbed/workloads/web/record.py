"""Recording of sites through mitmproxy, which gets every request and reply as it was transferred."""

import base64
import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed.support import inputs
from cellbed.support.prctl import die_with_parent
from cellbed.support.temporary import temporary_folder
from cellbed.testbed.machine.process import Place, end, find
from cellbed.testbed.programs.unmodified import listening
from cellbed.workloads.browsing.browser import Browser, Flow, open_page
from cellbed.workloads.browsing.origins import installed
from cellbed.workloads.lifecycle import WorkloadError
from cellbed.workloads.web import tap
from cellbed.workloads.web.site import Exchange, Origin, SiteError, cleaned, exchange, split

PROXY = "mitmdump"
AUTHORITY = "mitmproxy-ca-cert.pem"
"""File in the folder of a proxy with the certificate of its authority."""
_START_S = 60.0
_LOAD_S, _QUIET_S = 120.0, 2.0
"""Limit of a load, and how long no request may be under way for its end."""


@dataclass(slots=True)
class Recording:
    """Exchanges that a proxy has seen. failed: URLs of requests without a reply, with the reason."""

    exchanges: list[Exchange] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def free_port() -> int:
    """Return a TCP port that is free in this network namespace."""
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def proxy(
    folder: Path, port: int, options: Sequence[str], place: Place | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a proxy. folder: of its files, of which :func:`read` takes the recording when it has ended; port: where it
    listens; place: its namespaces. Errors: :class:`SiteError`."""
    program = find(PROXY)
    if program is None:
        raise SiteError("mitmproxy is not installed: sudo apt install mitmproxy")
    command = [program, "--quiet", "-s", tap.__file__, "--set", f"confdir={folder}", "--listen-port", str(port)]
    if authorities := os.environ.get("SSL_CERT_FILE"):
        command += ["--set", f"ssl_verify_upstream_trusted_ca={authorities}"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, *options],
            env={**os.environ, tap.FILE: str(folder / "exchanges")},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=die_with_parent if place is None else functools.partial(place.enter, keep_capabilities=True),
        )
    try:
        wait_listening(process, port, log, "mitmproxy")
        yield process
    finally:
        end(process, 5.0)


def wait_listening(process: subprocess.Popen[bytes], port: int, log: Path, name: str) -> None:
    """Wait until a program listens on a TCP port of its namespace. Errors: :class:`SiteError`, with its last line."""
    deadline = time.monotonic() + _START_S
    folder = Path(f"/proc/{process.pid}/net")
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            tables = [inputs.text(folder / table) for table in ("tcp", "tcp6") if (folder / table).exists()]
            if any(port in listening(table) for table in tables):
                return
        time.sleep(0.02)
    raise SiteError(f"{name} did not start: {(inputs.text(log).strip().splitlines() or ['without a message'])[-1]}")


def read(folder: Path) -> Recording:
    """Return the recording of a proxy that has ended."""
    made = Recording()
    file = folder / "exchanges"
    for line in inputs.content(file, inputs.share_of_memory()).splitlines() if file.exists() else ():
        try:
            found = json.loads(line)
        except ValueError:  # the last line of a proxy that was killed
            continue
        try:
            made.exchanges.append(_exchange(found))
        except (KeyError, ValueError):
            made.failed[found["url"]] = found.get("error", "not a reply over HTTP")
    return made


def _exchange(found: dict[str, Any]) -> Exchange:
    """Errors: ``KeyError`` without a reply, ``ValueError`` for one that is not over HTTP."""
    asked = (found["method"], found["request"], base64.b64decode(found["sent"]))
    # The proxy has joined chunks, but not changed the headers.
    answered = (
        f"HTTP/1.1 {found['status']} {found['reason']}",
        cleaned(found["reply"]),
        base64.b64decode(found["body"]),
    )
    return exchange(found["url"], asked, answered, found["address"], found["at_s"])


def record(url: str) -> Recording:
    """Load a page once, with an empty cache, and return what was transferred until no request was under way for 2 s.

    Errors: :class:`SiteError`.
    """
    try:
        split(url)
    except ValueError as error:
        raise SiteError(f"{error}: write one such as https://example.org/") from None
    program = installed()
    if find(program) is None:
        raise SiteError(f"{program} is not installed: sudo apt install {program}")
    with temporary_folder() as folder:
        port = free_port()
        with proxy(folder, port, ["--listen-host", "127.0.0.1"]):
            flags = [f"--proxy-server=http://127.0.0.1:{port}", "--proxy-bypass-list=<-loopback>"]
            # The proxy, which checks the servers' certificates, has one of its own.
            origins = _load(program, [*flags, "--ignore-certificate-errors", "--disable-quic"], folder, url)
        made = read(folder)
    # The browser has requests that are not of the page, such as for the time.
    made.exchanges = [each for each in made.exchanges if each.origin in origins]
    made.failed = {each: why for each, why in made.failed.items() if each.startswith(tuple(map(str, origins)))}
    if not made.exchanges:
        raise SiteError(f"{url}: no reply: {next(iter(made.failed.values()), 'the browser sent no request')}")
    return made


def _load(program: str, flags: Sequence[str], folder: Path, url: str) -> set[Origin]:
    """Load a page with a browser, and return the origins of its requests. Errors: :class:`SiteError`."""
    under_way: set[str] = set()
    origins: set[Origin] = set()
    loaded, trouble = False, None

    def on_event(method: str, _session: str | None, params: dict[str, Any]) -> None:
        nonlocal loaded
        loaded |= method == "Page.loadEventFired"
        if method == "Network.requestWillBeSent":
            under_way.add(params["requestId"])
            with contextlib.suppress(ValueError):  # not over HTTP
                origins.add(split(params["request"]["url"])[0])
        elif method in ("Network.loadingFinished", "Network.loadingFailed"):
            under_way.discard(params["requestId"])

    def navigate() -> Flow:
        nonlocal trouble
        page = yield from open_page(("Page", "Network"))
        trouble = (yield "Page.navigate", page.session, {"url": url}).get("errorText")

    browser = Browser(program, flags, folder, on_event)
    deadline = time.monotonic() + _LOAD_S
    try:
        browser.start(navigate())
        while trouble is None and time.monotonic() < deadline:
            if select.select([browser], [], [], _QUIET_S)[0]:
                browser.read()
            elif loaded and not under_way:
                break
        if not loaded and trouble is None:
            trouble = f"the page did not finish loading within {_LOAD_S:g} s"
    except WorkloadError as error:
        trouble = str(error)
    finally:
        browser.close()
    if trouble is not None:
        raise SiteError(f"{url}: {trouble}")
    return origins
