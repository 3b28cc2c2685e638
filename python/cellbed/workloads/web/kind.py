"""The servers and browsers of the kind, and the parts of loads and objects."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cellbed.runformat.description import ColumnType, Description, Measure
from cellbed.runformat.spans import HANDSHAKE, Span, on_path
from cellbed.scenario.templates import fill
from cellbed.testbed.machine import certificates
from cellbed.testbed.machine.process import Process, find, run
from cellbed.testbed.programs.unmodified import Command, Ready
from cellbed.workloads.cache import Note, build_folder, silent
from cellbed.workloads.http import kind as http
from cellbed.workloads.kind import Deployment, Node
from cellbed.workloads.program.kind import commands
from cellbed.workloads.web import PROGRAMS, pages

if TYPE_CHECKING:
    from cellbed.workloads.web.table import Web

FIRST_PORT, PORTS = 8443, 16
"""Of the first origin of a run, and of each application: an origin has a port, so that browsers share no connection
between origins."""
HARS = "har"
"""Folder of HTTP Archives in that of a run, with a folder for each application."""
_MAX_AGE_S = 86_400
"""For which objects of generated pages and folders stay in a cache; documents are validated with each load."""


def prepare(table: "Web", cache: Path, note: Note = silent) -> None:
    """Generate the page; see :class:`cellbed.workloads.kind.Workload`."""
    if table.page is not None and not (folder := _folder(cache, table.page)).is_dir():
        note(f"generating the page {table.page}")
        page = table.page
        build_folder(folder, lambda place: pages.write(page, place))


def _folder(cache: Path, page: str) -> Path:
    return cache / "pages" / f"{page}-{pages.VERSION}"


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Process | Command]:
    """Return a server on each server's node and a load generator on each client's; see
    :class:`cellbed.workloads.kind.Workload`."""
    table: Web = deployment.table
    started: list[Process | Command] = []
    if table.url is None:
        roots = [_folder(cache, table.page) / host for host in table.host_names] if table.page else [table.root]
        folders = [str(root.absolute()) for root in roots if root is not None]
        started += [_server(deployment, node, raw, folders) for node in deployment.servers]
    elif table.server is not None and table.server.command is not None:
        started += commands(deployment, "server", raw, seed)
    for index, node in enumerate(deployment.clients):
        config = _settings(deployment, raw, index, seed)
        started.append(deployment.load_generator("load", "cellbed.workloads.web.load", node, raw, config))
    return started


def _settings(deployment: Deployment, raw: Path, index: int, seed: int) -> dict[str, Any]:
    """Return the configuration of client `index` (:class:`cellbed.workloads.web.load.Settings`)."""
    table: Web = deployment.table
    node, servers = deployment.clients[index], deployment.servers
    server = servers[index % len(servers)] if servers else None
    if table.url is not None:
        url = fill(table.url, deployment.values(node, node, server, seed))
        host = urlsplit(url).hostname or ""
        rules, origins = [f"MAP * ~NOTFOUND, EXCLUDE {host}"], [host]
    else:
        assert server is not None
        url, origins = f"https://{table.host_names[0]}/", [f"{host}:443" for host in table.host_names]
        ports = range(_first_port(deployment), _first_port(deployment) + PORTS)
        address = deployment.address(server)
        rules = [f"MAP {host} {address}:{port}" for host, port in zip(origins, ports, strict=False)]
        rules.append("MAP * ~NOTFOUND")
    flags = [f"--host-resolver-rules={', '.join(rules)}"]
    if deployment.authorities is not None:
        folder = Path(deployment.authorities).parent
        pins = ",".join(_pin(file) for file in sorted(folder.glob(f"*/{certificates.CERTIFICATE}")))
        flags.append(f"--ignore-certificate-errors-spki-list={pins}")
    if table.version == "1.1":
        flags.append("--disable-http2")
    if table.version == "3":
        port = f":{urlsplit(url).port or 443}" if table.url is not None else ""
        flags += ["--enable-quic", f"--origin-to-force-quic-on={','.join(f'{host}{port}' for host in origins)}"]
    else:
        flags.append("--disable-quic")
    hars = raw.parent / HARS / deployment.name
    hars.mkdir(parents=True, exist_ok=True)
    return deployment.load(raw, index, seed) | {
        "program": next(filter(None, map(find, PROGRAMS)), PROGRAMS[0]),
        "flags": flags,
        # The browser has a socket below it, whose path must be short.
        "folder": str(deployment.scratch / f"browser{deployment.number}-{index}"),
        "page": table.page or url,
        "url": url,
        "har": str(hars.absolute() / f"{node.name}."),
        "objects": str(replace(deployment, name=_of_objects(deployment.name)).file(raw, node, "requests.jsonl")),
        "warm": table.cache == "warm",
    }


def _first_port(deployment: Deployment) -> int:
    return FIRST_PORT + PORTS * deployment.number


def _pin(certificate: Path) -> str:
    """Return the hash of a certificate's public key, by which Chromium accepts it."""
    text = run([certificates.PROGRAM, "x509", "-in", str(certificate), "-noout", "-pubkey"])
    key = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-----")))
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


def _server(deployment: Deployment, node: Node, raw: Path, folders: Sequence[str]) -> Command:
    """Return the server of the origins, each with its folder, on a node."""
    table: Web = deployment.table
    place = deployment.scratch / f"{deployment.name}.{node.name}.{table.software}"
    place.mkdir()
    certificate, key = (str(deployment.scratch / deployment.name / file) for file in certificates.FILES)
    address, first = deployment.listening(node), _first_port(deployment)
    sites = list(zip(table.host_names, range(first, first + PORTS), folders, strict=False))
    file = deployment.file(raw, node, f"{table.software}.conf")
    command: tuple[str, ...]
    if table.software == "nginx":
        text = "\n".join(_nginx(sites, address, certificate, key, table.version == "2"))
        command = ("nginx", "-p", str(place), "-e", "stderr", "-c", str(file))
    else:
        text = "\n".join(_caddy(sites, address, certificate, key, table.version))
        command = ("caddy", "run", "--adapter", "caddyfile", "--config", str(file))
    file.write_text(text + "\n", encoding="utf-8")
    return Command(
        name=f"{deployment.name}.{node.name}.server",
        node=node.name,
        command=command,
        environment={"HOME": str(place), "XDG_DATA_HOME": str(place), "XDG_CONFIG_HOME": str(place)},
        ready=Ready(port=first),
    )


_Sites = Sequence[tuple[str, int, str]]  # host, port and folder of each origin


def _nginx(sites: _Sites, address: str, certificate: str, key: str, http2: bool) -> Iterator[str]:
    # One process: workers would give up root, whose files they serve, and outlive a master that was killed.
    yield "daemon off; master_process off; pid nginx.pid; error_log stderr;"
    yield "events { worker_connections 4096; }"
    yield "http {"
    yield "    access_log off; sendfile on; keepalive_requests 100000;"
    yield "    client_body_temp_path temp; fastcgi_temp_path temp; proxy_temp_path temp;"
    yield "    scgi_temp_path temp; uwsgi_temp_path temp;"
    yield "    types { text/html html; text/css css; text/javascript js; image/png png; image/jpeg jpg jpeg;"
    yield "        image/svg+xml svg; image/webp webp; font/woff2 woff2; font/woff woff; application/json json; }"
    yield f'    ssl_protocols TLSv1.3; ssl_certificate "{certificate}"; ssl_certificate_key "{key}";'
    yield f"    map $uri $caching {{ ~[.]html$ no-cache; default max-age={_MAX_AGE_S}; }}"
    yield "    add_header Cache-Control $caching; add_header Access-Control-Allow-Origin *;"
    yield "    add_header Timing-Allow-Origin *;"
    for host, port, folder in sites:
        yield f'    server {{ listen {address}:{port} ssl{" http2" * http2}; server_name {host}; root "{folder}"; }}'
    yield "}"


def _caddy(sites: _Sites, address: str, certificate: str, key: str, version: str) -> Iterator[str]:
    protocols = {"1.1": "h1", "2": "h1 h2", "3": "h1 h2 h3"}[version]
    yield "{"
    yield f"    admin off\n    auto_https off\n    servers {{\n        protocols {protocols}\n    }}"
    yield "}"
    for host, port, folder in sites:
        yield f"https://{host}:{port} {{"
        yield f"    bind {address}"
        yield f'    tls "{certificate}" "{key}" {{\n        protocols tls1.3\n    }}'
        yield f'    root * "{folder}"'
        yield "    @documents path / *.html\n    header @documents Cache-Control no-cache"
        yield f'    @others not path / *.html\n    header @others Cache-Control "max-age={_MAX_AGE_S}"'
        yield "    header Access-Control-Allow-Origin *\n    header Timing-Allow-Origin *"
        yield "    file_server\n}"


# fmt: off
_GENERATOR = Span("generator", "endpoint", "Generator", "generator",
                  "intended time → the browser is asked for the page", "intended", "started")
_PAGE = Span("browser", "endpoint", "Browser", "browser",
             "between the objects on the critical path: the browser parses, runs, lays out and draws", "")
_OBJECT = Span("browser", "endpoint", "Browser", "browser",
               "the page wants the object → the browser begins to request it", "intended", "started")
_CONNECTION = Span("connection_wait", "endpoint", "Waiting for a connection", "connection",
                   "begins to request it → a connection is free, or begins to open", "started", "opening")
_QUIC = Span("connect", "uplink", "Handshake", "handshake",
             "the connection begins to open → the request is sent; both ways together", "opening", "sent")
# fmt: on


def _spans(table: Mapping[str, Any]) -> tuple[Span, ...]:
    """Return the parts of an object behind :data:`_OBJECT`."""
    version = str(table.get("version"))
    left_out = ["generator", "connection_wait", *(() if version == "2" else ("downlink_wait",))]
    if version == "3":
        left_out += [span.name for span in HANDSHAKE]
    own = (_CONNECTION, _QUIC) if version == "3" else (_CONNECTION,)
    return (*own, *(span for span in http.SPANS if span.name not in left_out))


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
    columns = ["started_ns", "first_byte_ns", "first_paint_ns", "largest_paint_ns"]
    columns += ["objects", "cached", "broken", "connections"]
    synthetic = " (synthetic)" if table.get("page") else ""
    what = table.get("page") or table.get("root") or table.get("url")
    return Description(
        kind="web",
        title=f"page {what}{synthetic} over HTTP/{table.get('version')}, {table.get('cache')} cache",
        spans=(_GENERATOR, *on_path((_PAGE, *_spans(table)))),
        client_columns={**dict.fromkeys(columns, "integer"), "step": "text"},
        server_columns={},
        measures=_MEASURES,
    )


def describe_objects(application: Description, table: Mapping[str, Any]) -> Description:
    """Return the description of the objects of the loads of an application."""
    secured = not str(table.get("url") or "").startswith("http:")
    names = ["started_ns", "opening_ns", "first_byte_ns", "load", "initiator", "code"]
    names += ["tls_uplink_end", "tls_downlink_end"] if secured else []
    columns: dict[str, ColumnType] = {**dict.fromkeys(names, "integer")}
    columns |= dict.fromkeys(("step", "url", "protocol"), "text")
    return replace(
        application,
        name=_of_objects(application.name),
        title=f"objects of {application.title}",
        spans=(_OBJECT, *_spans(table)),
        client_columns=columns,
        measures=(Measure("bytes_down", "bytes with headers", "B"),),
        expectations=(),
        deadline_ns=None,
    )


def _of_objects(name: str) -> str:
    """Return the name under which the objects of an application are reported; no application of a scenario has it."""
    return f"{name}:objects"
