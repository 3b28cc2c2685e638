"""Recording of sites through mitmproxy, which receives every request and reply as transferred."""

import base64
import contextlib
import functools
import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Place, end, isolate, listener
from cellbed.testbed.programs.unmodified import find_listeners
from cellbed.workloads.browsing.origins import find_browser, pin
from cellbed.workloads.web import tap
from cellbed_node import inputs
from cellbed_node.browsing.browser import Browser, Flow, open_page, sandbox_obstacle
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.processes import die_with_parent, find
from cellbed_node.temporary import temporary_folder
from cellbed_node.web.site import Exchange, Origin, SiteError, clean, exchange, split

PROXY = "mitmdump"
AUTHORITY = "mitmproxy-ca-cert.pem"
"""Name of the certificate of a proxy's authority in its folder."""
_START_S = 60.0
_LOAD_S, _QUIET_S = 120.0, 2.0
"""Maximum duration of a load, and time without pending requests that ends a load, seconds."""


@dataclass(slots=True)
class Recording:
    """The exchanges through a proxy. failed: URLs of requests without a reply, with the reason."""

    exchanges: list[Exchange] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def proxy(
    folder: Path, listener: socket.socket, options: Sequence[str], place: Place | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a proxy. folder: folder of its files, from which :func:`read` reads the recording afterwards; listener:
    socket at which the proxy listens, so that no other program can take its port; place: its namespaces.

    Errors: :class:`SiteError`.
    """
    program = find(PROXY)
    if program is None:
        raise SiteError("mitmproxy is not installed: sudo apt install mitmproxy")
    command = [program, "--quiet", "-s", tap.__file__, "--set", f"confdir={folder}"]
    host, port = listener.getsockname()[:2]
    command += ["--listen-host", host, "--listen-port", str(port)]  # the proxy names this address as its own
    if authorities := os.environ.get("SSL_CERT_FILE"):
        command += ["--set", f"ssl_verify_upstream_trusted_ca={authorities}"]
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, *options],
            env={**os.environ, tap.FILE: str(folder / "exchanges"), tap.LISTENER: str(listener.fileno())},
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            preexec_fn=die_with_parent if place is None else functools.partial(place.enter, keep_capabilities=True),
        )
    try:
        ready = folder / f"exchanges{tap.READY}"
        _wait_ready(process, ready.exists, log, "mitmproxy")
        yield process
    finally:
        end(process, 5.0)


def wait_listening(process: subprocess.Popen[bytes], port: int, log: Path, name: str) -> None:
    """Wait until a program listens on a TCP port of its namespace. Errors: :class:`SiteError` with the last line."""
    folder = Path(f"/proc/{process.pid}/net")

    def listens() -> bool:
        tables = [inputs.text(folder / table) for table in ("tcp", "tcp6") if (folder / table).exists()]
        return any(port in find_listeners(table) for table in tables)

    _wait_ready(process, listens, log, name)


def _wait_ready(process: subprocess.Popen[bytes], is_ready: Callable[[], bool], log: Path, name: str) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if is_ready():
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
        except ValueError:  # incomplete last line of a killed proxy
            continue
        try:
            made.exchanges.append(_exchange(found))
        except (KeyError, ValueError):
            made.failed[found["url"]] = found.get("error", "not a reply over HTTP")
    return made


def _exchange(found: dict[str, Any]) -> Exchange:
    """Return an exchange. Errors: ``KeyError`` without a reply, ``ValueError`` for a reply not over HTTP."""
    asked = (found["method"], found["request"], base64.b64decode(found["sent"]))
    # The proxy joins chunks, but does not change the headers.
    answered = (
        f"HTTP/1.1 {found['status']} {found['reason']}",
        clean(found["reply"]),
        base64.b64decode(found["body"]),
    )
    return exchange(found["url"], asked, answered, found["address"], found["at_s"])


def record(url: str, *, sandboxed: bool = True) -> Recording:
    """Load a page once, with an empty cache, and return all exchanges until no request was pending for 2 s.

    The browser's network contains only the proxy, and nobody else reaches it. Without `sandboxed`, the browser has no
    sandbox, and uses the network of this process if no other is possible. Errors: :class:`SiteError`.
    """
    try:
        split(url)
    except ValueError as error:
        raise SiteError(f"{error}: write one such as https://example.org/") from None
    program = find_browser()
    if find(program) is None:
        raise SiteError(f"{program} is not installed: sudo apt install {program}")
    if sandboxed and (obstacle := sandbox_obstacle()) is not None:
        raise SiteError(f"{obstacle}, or load a page that you trust with --no-sandbox")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        folder.chmod(0o711)  # the browser of root runs as another user
        for name in ("proxy", "browser"):
            (folder / name).mkdir(mode=0o700)
        place = None
        try:
            place = stack.enter_context(isolate())
        except CellbedError as error:
            if sandboxed:
                raise SiteError(f"{error}; run as root, or load a page that you trust with --no-sandbox") from error
        listening = stack.enter_context(listener(place, ("127.0.0.1", 0)))
        with proxy(folder / "proxy", listening, []):
            at = f"--proxy-server=http://127.0.0.1:{listening.getsockname()[1]}"
            # The proxy checks the servers' certificates, and presents other certificates with one key.
            trusted = f"--ignore-certificate-errors-spki-list={pin(folder / 'proxy' / AUTHORITY)}"
            flags = [at, "--proxy-bypass-list=<-loopback>", trusted, "--disable-quic"]
            origins = _load(program, flags, folder / "browser", url, sandboxed, place)
        made = read(folder / "proxy")
    # The browser also sends requests that do not belong to the page, such as for the time.
    made.exchanges = [each for each in made.exchanges if each.origin in origins]
    made.failed = {each: why for each, why in made.failed.items() if each.startswith(tuple(map(str, origins)))}
    if not made.exchanges:
        raise SiteError(f"{url}: no reply: {next(iter(made.failed.values()), 'the browser sent no request')}")
    return made


def _load(
    program: str, flags: Sequence[str], folder: Path, url: str, sandboxed: bool, place: Place | None
) -> set[Origin]:
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

    browser = Browser(
        program, flags, folder, on_event, sandboxed=sandboxed, enter=place.enter if place is not None else None
    )
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
