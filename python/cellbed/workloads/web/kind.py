"""The servers and browsers of web pages, and the parts of loads and objects."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cellbed.runformat.description import Description, Measure, Timed
from cellbed.runformat.records import REQUESTS, ColumnType
from cellbed.runformat.spans import Span, on_path
from cellbed.testbed.machine.process import Process
from cellbed.testbed.plan import Node
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.browsing import origins, parts
from cellbed.workloads.cache import Note, build_folder, silent
from cellbed.workloads.kind import Deployment
from cellbed.workloads.program.kind import server_commands
from cellbed.workloads.web import pages, replay
from cellbed.workloads.web.table import Web
from cellbed_node.templates import fill
from cellbed_node.web import warc

HARS = "har"
"""Folder of HTTP Archives in a run's folder, with a folder for each application."""


def prepare(table: Web, cache: Path, note: Note = silent) -> None:
    """Generate the page."""
    if table.page is not None and not (folder := _folder(cache, table.page)).is_dir():
        note(f"generating the page {table.page}")
        page = table.page
        build_folder(folder, lambda place: pages.write(page, place))


def _folder(cache: Path, page: str) -> Path:
    return cache / "pages" / f"{page}-{pages.VERSION}"


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process | Command]:
    """Return a server on each server's node and a load generator on each client's."""
    table: Web = deployment.table
    started: list[Process | Command] = []
    if table.site is not None:
        started += replay.servers(deployment, raw)
    elif table.url is None:
        roots = [_folder(cache, table.page) / host for host in table.host_names] if table.page else [table.root]
        folders = [str(root.absolute()) for root in roots if root is not None]
        sites = list(zip(table.host_names, folders, strict=False))
        started += [
            origins.server(deployment, node, raw, sites, software=table.software, version=table.version)
            for node in deployment.servers
        ]
    else:
        started += server_commands(deployment, raw, seed)
    return [*started, *deployment.load_generators("load", "cellbed_node.web.load", raw, seed, _settings)]


def _settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed_node.web.load.Settings`)."""
    table: Web = deployment.table
    node, servers = deployment.clients[index], deployment.servers
    server = servers[index % len(servers)] if servers else None
    if table.site is not None:
        recorded = warc.read(table.site)
        url, rules = table.url or recorded.page, replay.rules(deployment, index)
        names = [f"{origin.host}:{origin.port}" for origin in recorded.origins if origin.scheme == "https"]
    elif table.url is not None:
        url = fill(table.url, deployment.values(node, node, server, seed))
        host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
        names, rules = [f"{host}:{port}"], [f"MAP * ~NOTFOUND, EXCLUDE {host}"]
    else:
        assert server is not None
        url, names = f"https://{table.host_names[0]}/", [f"{host}:443" for host in table.host_names]
        rules = origins.rules(deployment, server, table.host_names)
    flags = origins.flags(deployment, rules, names, table.version)
    hars = raw.parent / HARS / deployment.name
    hars.mkdir(parents=True, exist_ok=True)
    return {
        **deployment.load(raw, index, seed),
        **origins.browser(deployment, index),
        "flags": flags,
        "page": table.page or (table.site.name if table.site is not None else url),
        "url": url,
        "har": str(hars.absolute() / f"{node.name}."),
        "objects": str(objects_file(deployment, raw, node)),
        "warm": table.cache == "warm",
    }


def objects_file(deployment: Deployment, raw: Path, node: Node) -> Path:
    """Return the path of the record of the objects in a client's loads."""
    return replace(deployment, name=_objects_name(deployment.name)).file(raw, node, REQUESTS)


# fmt: off
_GENERATOR = Span("generator", "endpoint", "Generator", "generator",
                  "intended time → the browser is asked for the page", "intended", "started")
_PAGE = Span("browser", "endpoint", "Browser", "browser",
             "between the objects on the critical path: the browser parses, runs, lays out and draws", "")
# fmt: on
_MEASURES = (
    Measure("first_byte_s", "time to first byte", "s"),
    Measure("first_paint_s", "first contentful paint", "s"),
    Measure("largest_paint_s", "largest contentful paint", "s"),
    Measure("bytes_down", "bytes of a load", "B"),
    Measure("objects", "objects of a load", ""),
    Measure("connections", "connections of a load", ""),
    Measure("cached", "objects from the cache", ""),
    Measure("broken", "objects without a good reply", ""),
)


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description of page loads, whose latency is the page load time."""
    columns = ["first_byte_ns", "first_paint_ns", "largest_paint_ns"]
    columns += ["objects", "cached", "broken", "connections"]
    synthetic = " (synthetic)" if table.get("page") else ""
    site = table.get("site")
    what = table.get("page") or table.get("root") or (Path(site).name if site else table.get("url"))
    return Timed(
        kind="web",
        title=f"page {what}{synthetic} over HTTP/{_versions(table)}, {table.get('cache')} cache",
        spans=(_GENERATOR, *on_path((_PAGE, *parts.spans(_versions(table)[:1])))),
        client_columns={**dict.fromkeys(columns, "integer"), "step": "text"},
        measures=_MEASURES,
    )


def _versions(table: Mapping[str, Any]) -> str:
    """Return the versions of HTTP for loads of the page."""
    version, site = str(table.get("version")), table.get("site")
    return warc.read(Path(site)).versions(version) if site else version


def describe_objects(application: Description, table: Mapping[str, Any]) -> Description:
    """Return the description of the objects in an application's loads."""
    secured = bool(table.get("site")) or not str(table.get("url") or "").startswith("http:")
    columns: dict[str, ColumnType] = {"load": "integer", "initiator": "integer"}
    return replace(
        application,
        name=_objects_name(application.name),
        title=f"objects of {application.title}",
        spans=(parts.OBJECT, *parts.spans(_versions(table)[:1])),
        client_columns=columns | parts.columns(secured=secured),
        measures=(Measure("bytes_down", "bytes with headers", "B"),),
        expectations=(),
        deadline_ns=None,
    )


def _objects_name(name: str) -> str:
    """Return the report name of an application's objects; no application of a scenario can have it."""
    return f"{name}:objects"
