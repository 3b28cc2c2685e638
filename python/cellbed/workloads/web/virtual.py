"""Loads of web pages in virtual time: a browser that loads generated pages from servers like nginx.

The browser requests a page's objects when it has read their names. Its measured processing time (:func:`_samples`) is
spread over the objects of a load, one after the other. Half of an object's part passes at its request, half at its
arrival.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from cellbed.workloads.browsing import origins
from cellbed.workloads.browsing.virtual import Browser, Files
from cellbed.workloads.kind import Deployment
from cellbed.workloads.virtual.client import Client
from cellbed.workloads.virtual.model import Draw, Model, Packets, Sampling, Setting, answered, nanoseconds
from cellbed.workloads.web import kind, pages
from cellbed_node import lifecycle, machine
from cellbed_node.generator import Generator, Settings
from cellbed_node.ledger import Request
from cellbed_node.web.loading import PageLoad, PageObject

if TYPE_CHECKING:
    import polars as pl

    from cellbed.testbed.plan import Plan

_RANKS: dict[pages.ObjectKind, int] = {"document": 0, "stylesheet": 0, "font": 1, "script": 2, "image": 3}
"""Order of the server's replies, by Chromium's priorities; the first images are as important as fonts."""
_FIRST_IMAGES = 5


def unmodelled_servers(each: Deployment) -> Iterator[str]:
    """Yield settings of servers of files that have no model."""
    table = each.table
    if table.version == "3":
        yield 'version = "3" (HTTP/3)'
    elif table.software != "nginx":
        yield f'software = "{table.software}": only nginx'
    if each.shared is not None:
        yield "several servers at one address"


@dataclass(slots=True)
class Page:
    """A load of a page in progress. objects: objects of the page; make: returns the record of an object by its number;
    servers: address and port of each origin; places: by object number, bytes of the document up to the end of its name;
    work_ns: the browser's time; done: called when all objects have arrived."""

    browser: Browser
    objects: Sequence[pages.Object]
    make: Callable[[int], PageObject]
    servers: Sequence[tuple[str, int]]
    places: Mapping[int, int]
    work_ns: int
    done: Callable[[], None]
    _wanted: set[int] = field(default_factory=set)
    _there: set[int] = field(default_factory=set)
    _images: int = 0
    _named: dict[int, set[int]] = field(default_factory=dict)

    def begin(self) -> None:
        """Request the document."""
        parents = {each.parent for each in self.objects if each.parent is not None}
        self._named = {parent: self._needs(parent) for parent in parents}
        self._want(0)

    def _want(self, number: int) -> None:
        each, made = self.objects[number], self.make(number)
        self._wanted.add(number)
        rank = _RANKS[each.kind]
        if each.kind == "image" and self._images < _FIRST_IMAGES:
            self._images, rank = self._images + 1, _RANKS["font"]

        def request() -> None:
            self._spend()
            arrived, anonymous = partial(self._arrived, number), each.kind == "font" and each.origin != 0
            self.browser.fetch(made, each.size, rank, self.servers[each.origin], arrived, anonymous=anonymous)

        self.browser.program.call(request)

    def _arrived(self, number: int, whole: bool, size: int) -> None:
        if number == 0:
            self._want_all(child for child, place in self.places.items() if place <= size)
        if whole:
            self._spend()
            self._there.add(number)
            for parent in [each for each, needs in self._named.items() if needs <= self._there]:
                del self._named[parent]
                self._want_all(number for number, each in enumerate(self.objects) if each.parent == parent)
            if len(self._there) == len(self.objects):
                self.done()

    def _want_all(self, found: Iterable[int]) -> None:
        for child in [child for child in found if child not in self._wanted]:
            self._want(child)

    def _needs(self, parent: int) -> set[int]:
        """Return the objects that must arrive before the objects named by `parent` are requested. Scripts are deferred:
        each runs after the document, the stylesheets and the earlier scripts. Text that needs fonts is laid out after
        all stylesheets."""
        kind = self.objects[parent].kind
        before = {"script": ("document", "stylesheet"), "stylesheet": ("stylesheet",)}.get(kind, ())
        of_kinds = {number for number, each in enumerate(self.objects) if each.kind in before}
        scripts = {number for number, each in enumerate(self.objects[:parent]) if each.kind == kind == "script"}
        return {parent} | of_kinds | scripts

    def _spend(self) -> None:
        self.browser.program.spend(self.work_ns // (2 * len(self.objects)))


class _Load(Generator):
    """The page loads of an endpoint, each by a new browser. client: runs the load."""

    readers = writers = ()
    client: Client

    def __init__(
        self, settings: Settings, page: str, files: Files, servers: Sequence[tuple[str, int]], draw: Draw,
        write: Callable[[str], object],
    ) -> None:  # fmt: skip
        super().__init__(settings)
        self._timeout_ns, self._page, self._write = settings.timeout_ns, page, write
        self._files, self._servers, self._draw = files, servers, draw
        self._numbers = itertools.count()
        self._loads: dict[int, tuple[PageLoad, Browser, list[PageObject]]] = {}

    def create(self, number: int, intended_ns: int) -> PageLoad:
        return PageLoad(number, self._endpoint, intended_ns, step=self._page)

    def issue(self, request: Request) -> None:
        assert isinstance(request, PageLoad)
        self.ledger.add(request)
        browser = Browser(self._files, self.client.program)
        found: list[PageObject] = []
        self._loads[request.request] = request, browser, found
        objects, urls = pages.pages()[self._page], pages.urls(self._page)

        def make(number: int) -> PageObject:
            each = objects[number]
            made = PageObject(next(self._numbers), self._endpoint, machine.now_ns(), step=each.kind, url=urls[number])
            made.load, made.initiator = request.request, by_number.get(each.parent)
            by_number[number] = made.request
            found.append(made)
            return made

        by_number: dict[int | None, int] = {}
        work_ns = self._draw.sample(f"{self._endpoint}/{request.request}")["browser"]
        done = partial(self._end, request.request, None)
        Page(browser, objects, make, self._servers, pages.places(self._page), work_ns, done).begin()

    def _end(self, number: int, trouble: str | None) -> None:
        request, browser, found = self._loads.pop(number)
        browser.close()
        for each in found:
            each.error = None if each.status == "ok" else "no whole reply before the end of the load"
            self._write(each.line())
        request.first_byte_ns = found[0].first_byte_ns if found else None
        request.objects, request.cached, request.broken = len(found), 0, sum(each.error is not None for each in found)
        request.connections = len({each.local_port for each in found if each.local_port is not None})
        size = sum(each.bytes_down for each in found)
        if trouble is None:
            self.ledger.reply(number, machine.now_ns(), error=None, start=0, end=0, payload=size)
            self.client.wake()
        else:
            request.bytes_down = size
            self.ledger.lose(number, trouble)

    @property
    def wake_ns(self) -> int | None:
        return min((each.intended_ns + self._timeout_ns for each, *_ in self._loads.values()), default=None)

    def drive(self, readable: Sequence[object], writable: Sequence[object]) -> None:
        self.ledger.expire(now := machine.now_ns())
        for number, (request, *_) in list(self._loads.items()):
            if request.intended_ns + self._timeout_ns <= now:
                self._end(number, "the page did not finish loading")

    def close(self) -> None:
        for number in list(self._loads):
            self._end(number, "the page did not finish loading")


def _samples(
    application: Mapping[str, Any], requests: pl.DataFrame, messages: pl.DataFrame, packets: Packets
) -> list[dict[str, Any]]:
    """Return the browser's time of each load: between the objects on the critical path, and from the arrival of their
    bytes until the browser processes them."""
    return [
        {
            "browser": sum(nanoseconds(row[part]) for part in ("part_browser", "part_endpoint_receive")),
            "generator": nanoseconds(row["part_generator"]),
        }
        for row in answered(requests).iter_rows(named=True)
        if row["part_browser"] is not None
    ]


class _Web(Model):
    """The model: a browser that loads generated pages."""

    covers = ("page",)
    sampling = Sampling(_samples, frozenset(("browser", "generator")), rate="0.25 /s", seconds=60)

    def problems(self, each: Deployment, deployments: Sequence[Deployment], plan: Plan) -> Iterator[str]:
        table = each.table
        yield from (f"{name}: only a generated 'page'" for name in ("root", "site", "url") if getattr(table, name))
        yield from unmodelled_servers(each)
        if table.cache == "warm":
            yield 'cache = "warm"'

    def loads(self, each: Deployment, setting: Setting) -> Iterator[Client]:
        files = Files(setting.world, each.table.version)
        hosts = each.table.host_names
        for node in each.servers:
            for port in origins.ports(each, hosts):
                setting.world.listen(setting.world.hosts[node.name], port, files, each.name, alone=False)
        for index, node in enumerate(each.clients):
            address = each.address(each.servers[index % len(each.servers)])
            servers = [(address, port) for port in origins.ports(each, hosts)]
            record = setting.stack.enter_context(lifecycle.open_record(kind.objects_file(each, setting.raw, node)))
            settings = Settings(**each.load(setting.raw, index, setting.seed))
            draw = setting.draw(each)
            load = _Load(settings, each.table.page, files, servers, draw, record.write)
            client = load.client = Client(setting.world, setting.world.hosts[node.name], load, each, draw)
            yield client


VIRTUAL = _Web()
