"""The servers of pages, nginx or Caddy, and the flags with which a browser finds them.

Each origin has a separate host name and port, so that browsers share no connection between origins.
"""

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellbed.testbed.machine import certificates
from cellbed.testbed.machine.process import run
from cellbed.testbed.plan import Node
from cellbed.testbed.programs.unmodified import Command, Ready
from cellbed.workloads.kind import Deployment
from cellbed_node.browsing import PROGRAMS
from cellbed_node.processes import find

_FIRST_PORT, _PORTS = 8443, 16
"""First port of a run's origins, and number of ports per application."""
_MAX_AGE_S = 86_400
"""Maximum age of files in a cache, except documents; documents are validated at each load."""


def find_browser() -> str:
    """Return the path of the machine's browser, or the name that is missing."""
    return next(filter(None, map(find, PROGRAMS)), PROGRAMS[0])


def browser(deployment: Deployment, index: int) -> dict[str, str]:
    """Return the program of the browser of client `index`, and the folder of its files. The folder contains a socket,
    so its path must be short."""
    return {"program": find_browser(), "folder": str(deployment.scratch / f"b{deployment.number}-{index}")}


def ports(deployment: Deployment, hosts: Sequence[str]) -> range:
    """Return the ports of hosts."""
    first = _FIRST_PORT + _PORTS * deployment.number
    return range(first, first + len(hosts))


def rules(deployment: Deployment, node: Node, hosts: Sequence[str]) -> list[str]:
    """Return a browser's rules to find each host at its port of a server's node, and no other host."""
    address, found = deployment.address(node), zip(ports(deployment, hosts), hosts, strict=True)
    return [*(f"MAP {host} {address}:{port}" for port, host in found), "MAP * ~NOTFOUND"]


def flags(deployment: Deployment, rules: Sequence[str], names: Sequence[str], version: str) -> list[str]:
    """Return flags of the browser: rules of hosts, certificates of the run, version of HTTP.

    names: ``host:port`` of each origin, as in its URLs.
    """
    chosen = [f"--host-resolver-rules={', '.join(rules)}"]
    if deployment.authorities is not None:
        folder = Path(deployment.authorities).parent
        pins = ",".join(pin(file) for file in sorted(folder.glob(f"*/{certificates.CERTIFICATE}")))
        chosen.append(f"--ignore-certificate-errors-spki-list={pins}")
    if version == "1.1":
        chosen.append("--disable-http2")
    if version == "3":
        return [*chosen, "--enable-quic", f"--origin-to-force-quic-on={','.join(names)}"]
    return [*chosen, "--disable-quic"]


def pin(certificate: Path) -> str:
    """Return the hash of a certificate's public key, by which Chromium accepts the certificate."""
    text = run([certificates.PROGRAM, "x509", "-in", str(certificate), "-noout", "-pubkey"])
    key = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-----")))
    return base64.b64encode(hashlib.sha256(key).digest()).decode()


@dataclass(frozen=True, slots=True)
class Served:
    """An origin at an address and port. nginx, caddy: directives for each program. secured: by TLS."""

    host: str
    address: str
    port: int
    nginx: str
    caddy: Sequence[str]
    secured: bool = True


def server(
    deployment: Deployment, node: Node, raw: Path, folders: Sequence[tuple[str, str]], *, software: str, version: str
) -> Command:
    """Return the server of files on a node. folders: host and folder of each origin; software, version: see
    :class:`cellbed.workloads.web.table.Web`."""
    address = deployment.listening(node)
    served = [
        Served(host, address, port, f'root "{folder}"; {_NGINX_FILES}', [f'root * "{folder}"', *_CADDY_FILES])
        for port, (host, folder) in zip(ports(deployment, [host for host, _ in folders]), folders, strict=True)
    ]
    return serve(deployment, node, raw, served, software=software, version=version)


def serve(
    deployment: Deployment, node: Node, raw: Path, served: Sequence[Served], *, software: str, version: str
) -> Command:
    """Return the server of origins on a node. software, version: see :func:`server`."""
    place = deployment.scratch / f"{deployment.name}.{node.name}.{software}"
    place.mkdir()
    files = [str(deployment.scratch / deployment.name / file) for file in certificates.FILES]
    file = deployment.file(raw, node, f"{software}.conf")
    if software == "nginx":
        text, command = nginx(served, files, version == "2"), nginx_command(place, file)
    else:
        text = "\n".join([*_caddy(served, files, version), ""])
        command = ("caddy", "run", "--adapter", "caddyfile", "--config", str(file))
    file.write_text(text, encoding="utf-8")
    return Command(
        name=f"{deployment.name}.{node.name}.server",
        node=node.name,
        command=command,
        environment={"HOME": str(place), "XDG_DATA_HOME": str(place), "XDG_CONFIG_HOME": str(place)},
        ready=Ready(port=served[0].port),
    )


def nginx_command(place: Path, file: Path) -> tuple[str, ...]:
    """Return the command of nginx with a configuration. place: folder of its files."""
    return "nginx", "-p", str(place), "-e", "stderr", "-c", str(file)


_NGINX_FILES = (
    "add_header Cache-Control $caching; add_header Access-Control-Allow-Origin *; add_header Timing-Allow-Origin *;"
)
_CADDY_FILES = (
    "@documents path / *.html",
    "header @documents Cache-Control no-cache",
    "@others not path / *.html",
    f'header @others Cache-Control "max-age={_MAX_AGE_S}"',
    "header Access-Control-Allow-Origin *",
    "header Timing-Allow-Origin *",
    "file_server",
)


def nginx(served: Sequence[Served], certificate: Sequence[str], http2: bool) -> str:
    """Return the configuration of nginx. certificate: files of certificate and key."""
    # One process: workers would drop root, which owns the files, and outlive a killed master.
    lines = [
        "daemon off; master_process off; pid nginx.pid; error_log stderr;",
        "events { worker_connections 4096; }",
        "http {",
        "    access_log off; sendfile on; keepalive_requests 100000;",
        "    client_body_temp_path temp; fastcgi_temp_path temp; proxy_temp_path temp;",
        "    scgi_temp_path temp; uwsgi_temp_path temp;",
        "    types { text/html html; text/css css; text/javascript js; image/png png; image/jpeg jpg jpeg;",
        "        image/svg+xml svg; image/webp webp; font/woff2 woff2; font/woff woff; application/json json; }",
        f'    ssl_protocols TLSv1.3; ssl_certificate "{certificate[0]}"; ssl_certificate_key "{certificate[1]}";',
        f"    map $uri $caching {{ ~[.]html$ no-cache; default max-age={_MAX_AGE_S}; }}",
    ]
    for each in served:
        tls = f" ssl{' http2' * http2}" if each.secured else ""
        lines.append(f"    server {{ listen {each.address}:{each.port}{tls}; server_name {each.host}; {each.nginx} }}")
    return "\n".join([*lines, "}", ""])


def _caddy(served: Sequence[Served], certificate: Sequence[str], version: str) -> Iterator[str]:
    protocols = {"1.1": "h1", "2": "h1 h2", "3": "h1 h2 h3"}[version]
    yield "{"
    yield f"    admin off\n    auto_https off\n    servers {{\n        protocols {protocols}\n    }}"
    yield "}"
    for each in served:
        yield f"http{'s' * each.secured}://{each.host}:{each.port} {{"
        yield f"    bind {each.address}"
        if each.secured:
            yield f'    tls "{certificate[0]}" "{certificate[1]}" {{\n        protocols tls1.3\n    }}'
        yield from (f"    {line}" for line in each.caddy)
        yield "}"
