"""Web pages in a headless browser: which objects each page has, the web server, and the page load times."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import random
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from cellbed.experiments.evaluation.applications.application import (
    PATIENCE_NS,
    Application,
    Measured,
    nanoseconds,
    prefer_session,
    seconds,
)
from cellbed.support import inputs
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Process, find
from cellbed.testbed.programs.unmodified import Command, Ready

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from cellbed.simulation import Path as NetworkPath
    from cellbed.workloads.kind import Node

Protocol = Literal["HTTP/1.1", "HTTP/2"]

PORTS: dict[Protocol, int] = {"HTTP/1.1": 7443, "HTTP/2": 7444}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_MS = 120_000
_TIMING = """() => {
    const entry = performance.getEntriesByType('navigation')[0];
    return [entry.loadEventStart, entry.nextHopProtocol, performance.getEntriesByType('resource').length];
}"""
_NAMES: dict[str, Protocol] = {"http/1.1": "HTTP/1.1", "h2": "HTTP/2"}
_CERTIFICATE, _KEY, _KEY_HASH = "certificate.pem", "key.pem", "key.sha256"

_CONFIGURATION = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path temporary;
    proxy_temp_path temporary;
    fastcgi_temp_path temporary;
    uwsgi_temp_path temporary;
    scgi_temp_path temporary;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    keepalive_requests 10000;
    tcp_nodelay on;
    etag off;
    add_header Cache-Control no-store;
    types {{ text/html html; text/css css; text/javascript js; font/woff2 woff2; image/svg+xml svg; }}
    server {{ listen {address}:{http1} ssl; root www; }}
    server {{ listen {address}:{http2} ssl http2; root www; }}
}}
"""

Kind = Literal["document", "stylesheet", "script", "font", "image"]

ENDINGS: dict[Kind, str] = {
    "document": "",
    "stylesheet": ".css",
    "script": ".js",
    "font": ".woff2",
    "image": ".svg",
}

_GROUPS: tuple[tuple[str, Kind], ...] = (
    ("stylesheets", "stylesheet"),
    ("scripts", "script"),
    ("fonts", "font"),
    ("images", "image"),
    ("late_images", "image"),
)


@dataclass(frozen=True, slots=True)
class PageObject:
    """One object of a page.

    name: its path on the server. bytes: of its body. parent: number of the object that asks for it; ``None`` for the
    document.
    """

    name: str
    kind: Kind
    bytes: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its objects in the order they are asked for, each behind the one that asks for it."""

    name: str
    objects: tuple[PageObject, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all bodies together."""
        return sum(each.bytes for each in self.objects)

    def children(self, parent: int) -> list[PageObject]:
        """Return the objects that object number `parent` asks for."""
        return [each for each in self.objects if each.parent == parent]


@functools.cache
def pages() -> tuple[Page, ...]:
    """Return the pages of ``pages.toml``, with the sources of their figures."""
    content = tomllib.loads(files(__package__).joinpath("pages.toml").read_text(encoding="utf-8"))
    spread = content.pop("spread")
    return tuple(_page(name, groups, spread) for name, groups in content.items())


def _page(name: str, groups: dict[str, Any], spread: float) -> Page:
    objects = [PageObject(f"/{name}/", "document", groups["document"], None)]
    parents: dict[str, int] = {}
    for group, kind in _GROUPS:
        # Fonts are found when the first stylesheet is there, late images when the last script has run.
        parent = {"fonts": parents.get("stylesheets"), "late_images": parents.get("scripts")}.get(group) or 0
        first = len(objects)
        objects += [
            PageObject(f"/{name}/{group}-{index}{ENDINGS[kind]}", kind, size, parent)
            for index, size in enumerate(_falling(groups[group][0], groups[group][1], spread))
        ]
        parents[group] = len(objects) - 1 if group == "scripts" else first
    return Page(name, tuple(objects))


def _falling(count: int, total: int, spread: float) -> list[int]:
    """`count` sizes that fall geometrically by `spread` from first to last and together are `total` bytes."""
    step = spread ** (-1 / max(count - 1, 1))
    weights = [step**index for index in range(count)]
    sizes = [int(total * weight / sum(weights)) for weight in weights]
    return [sizes[0] + total - sum(sizes), *sizes[1:]]


def page(name: str, protocol: Protocol) -> str:
    """Return name of the measure: how long a page took."""
    return f"page {name} {protocol}"


@dataclass(frozen=True, slots=True)
class Pages(Application):
    """Web pages in a headless browser without a cache, in random order; the page load time of its navigation timing."""

    name: ClassVar[str] = "pages"
    protocols: tuple[Protocol, ...] = ("HTTP/1.1", "HTTP/2")
    names: tuple[str, ...] = tuple(page.name for page in pages())
    pause_s: tuple[float, float] = (0.2, 1.0)

    @property
    def length_s(self) -> float:
        """Approximate duration in seconds, at 30 Mbit/s."""
        loads = [page.bytes * 8 / 30e6 + 2.0 for page in pages() if page.name in self.names]
        return len(self.protocols) * sum(loads)

    def measures(self) -> list[str]:
        """Return the load time of each page by each protocol."""
        return [page(name, protocol) for protocol in self.protocols for name in self.names]

    def groups(self) -> dict[str, dict[str, str]]:
        """Return all pages of a protocol."""
        return {
            f"every page {protocol}": {page(name, protocol): name for name in self.names} for protocol in self.protocols
        }

    @classmethod
    def quick(cls) -> Self:
        """Two pages."""
        return cls(names=("google", "amazon"))

    def missing(self) -> str | None:
        """What this machine lacks for the server or the browser."""
        if importlib.util.find_spec("playwright") is None:
            return "page loads need the Python package playwright: pip install playwright"
        for there, what in (
            (browser(), "Chromium: apt-get install chromium"),
            (find("nginx"), "nginx as their server: apt-get install nginx-light"),
            (find("openssl"), "OpenSSL for their certificate: apt-get install openssl"),
        ):
            if there is None:
                return f"page loads need {what}"
        return None

    def simulate(self, path: NetworkPath, seed: int) -> list[Measured]:
        """Run over a path in virtual time."""
        chance = random.Random(seed)
        shapes = {each.name: [(one.bytes, one.parent) for one in each.objects] for each in pages()}
        found: list[Measured] = []
        for name, protocol in self._order(chance):
            at = path.now + nanoseconds(chance.uniform(*self.pause_s))
            taken = path.page(at, objects=shapes[name], protocol=protocol, until=at + PATIENCE_NS).taken
            found += [(page(name, protocol), value) for value in seconds([taken])]
        return found

    def processes(self, client: Node, server: Node, folder: Path, seed: int) -> list[Process | Command]:
        """Return the programs of one run; makes the server's certificate and pages. Errors: :class:`CellbedError`."""
        _make_certificate(folder)
        # Not super(): the class that it names is not the one that `slots` makes.
        others = Application.processes(self, client, server, folder, seed)
        return [self._server(server, folder), *(each for each in others if each.load)]

    def prefer_client(self) -> None:
        """A browser computes, too."""
        prefer_session()

    def _server(self, node: Node, folder: Path) -> Command:
        """nginx with the pages."""
        for directory in ("temporary", "www"):
            (folder / directory).mkdir(exist_ok=True)
        for each in pages():
            for number, item in enumerate(each.objects):
                path = folder / "www" / (item.name.lstrip("/") + ("index.html" if item.kind == "document" else ""))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(body(each, number))
        configuration = folder / "nginx.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                address=node.ipv4,
                certificate=folder / _CERTIFICATE,
                key=folder / _KEY,
                http1=PORTS["HTTP/1.1"],
                http2=PORTS["HTTP/2"],
            ),
            encoding="utf-8",
        )
        command = (str(find("nginx")), "-p", str(folder), "-c", str(configuration), "-e", "stderr")
        ready = Ready(port=PORTS["HTTP/1.1"])
        return Command(f"{self.name}.serve", node.name, command, ready=ready, vital=True, first=True)

    def client(self, address: str, seed: int, folder: Path) -> Callable[[], Iterator[Measured]]:
        """Starts the browser, so that only the loads are left to do."""
        from playwright.sync_api import sync_playwright

        key_hash = inputs.text(folder / _KEY_HASH)
        playwright = sync_playwright().start()
        started = playwright.chromium.launch(
            executable_path=browser(),
            timeout=_PATIENCE_MS,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-quic",
                f"--ignore-certificate-errors-spki-list={key_hash}",
            ],
        )
        # The first page of a browser takes longer than any other.
        started.new_page().close()

        def run() -> Iterator[Measured]:
            chance = random.Random(seed)
            for name, protocol in self._order(chance):
                time.sleep(chance.uniform(*self.pause_s))
                yield page(name, protocol), _load(started, f"https://{address}:{PORTS[protocol]}/{name}/", protocol)
            started.close()
            playwright.stop()

        return run

    def _order(self, chance: random.Random) -> list[tuple[str, Protocol]]:
        loads = [(name, protocol) for name in self.names for protocol in self.protocols]
        chance.shuffle(loads)
        return loads


def browser() -> str | None:
    """Path of Chromium, or ``None`` where there is none."""
    return next((path for name in BROWSERS if (path := find(name))), None)


def _load(program: Browser, url: str, protocol: Protocol) -> float | None:
    """Return seconds from the navigation's start to the load event, in a new context: no cache, no connections."""
    from playwright.sync_api import Error

    context = program.new_context()
    try:
        tab = context.new_page()
        tab.goto(url, wait_until="load", timeout=_PATIENCE_MS)
        loaded_ms, spoken, _ = tab.evaluate(_TIMING)
    except Error as error:
        if "Timeout" in str(error):
            return None
        raise
    finally:
        context.close()
    if _NAMES.get(spoken) != protocol:
        raise RuntimeError(f"{url} was loaded by {spoken}, not by {protocol}")
    return float(loaded_ms) / 1000


def body(page: Page, number: int) -> bytes:
    """Return an object of exactly its size, with the references to the objects that it asks for."""
    each = page.objects[number]
    asked = page.children(number)
    match each.kind:
        case "document":
            # A browser asks for a font when there is text in it.
            fonts = (font for font in page.objects if font.kind == "font")
            texts = "".join(f'<p style="font-family:{_family(font)}">x' for font in fonts)
            tags = "".join(map(_tag, asked))
            # Without this the browser would ask for an icon, which the page does not have.
            start = f"<!doctype html><link rel=icon href=data:,><title>{page.name}</title>"
            return _filled(f"{start}{tags}{texts}<!--", "x", "-->", each.bytes)
        case "stylesheet":
            faces = "".join(f"@font-face{{font-family:{_family(font)};src:url({font.name})}}" for font in asked)
            return _filled(f"{faces}/*", "x", "*/", each.bytes)
        case "script":
            wanted = "".join(f"new Image().src='{image.name}';" for image in asked)
            return _filled(f"{wanted}/*", "x", "*/", each.bytes)
        case "image":
            drawing = '<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><!--'
            return _filled(drawing, "x", "--></svg>", each.bytes)
        case "font":
            return bytes(each.bytes)


def _tag(each: PageObject) -> str:
    match each.kind:
        case "stylesheet":
            return f'<link rel="stylesheet" href="{each.name}">'
        case "script":
            return f'<script defer src="{each.name}"></script>'
        case _:
            return f'<img src="{each.name}">'


def _family(font: PageObject) -> str:
    return font.name.rpartition("/")[2].partition(".")[0]


def _filled(head: str, filling: str, tail: str, size: int) -> bytes:
    missing = size - len(head) - len(tail)
    if missing < 0:
        raise ValueError(f"an object of {size} bytes has no room for what it asks for")
    return (head + filling * missing + tail).encode()


def _make_certificate(folder: Path) -> None:
    """Certificate, key, and the hash of the public key by which the browser trusts them.

    Errors: :class:`CellbedError` where OpenSSL is missing or fails.
    """
    request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-days", "3650"]
    path = str(folder / _CERTIFICATE)
    _openssl(*request, "-subj", "/CN=evaluation", "-keyout", str(folder / _KEY), "-out", path)
    public = _openssl("x509", "-in", path, "-noout", "-pubkey")
    der = base64.b64decode("".join(line for line in public.decode().splitlines() if "-----" not in line))
    (folder / _KEY_HASH).write_text(base64.b64encode(hashlib.sha256(der).digest()).decode(), encoding="ascii")


def _openssl(*arguments: str) -> bytes:
    try:
        done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    except OSError:
        raise CellbedError("page loads need OpenSSL for their certificate: apt-get install openssl") from None
    if done.returncode != 0:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise CellbedError(f"openssl could not make a certificate: {errors[-1] if errors else done.returncode}")
    return done.stdout
