"""The servers of a recorded site on nodes, and a browser's rules to find them.

Each origin has a separate port at its node's address, where nginx or Caddy terminates TLS and the HTTP version. Behind
the server, a program finds the replies (:mod:`.matcher`).
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from cellbed.testbed.machine.process import Process
from cellbed.testbed.plan import Node
from cellbed.testbed.programs.unmodified import Command
from cellbed.workloads.browsing.origins import Served, serve
from cellbed.workloads.kind import Deployment
from cellbed_node.web import warc
from cellbed_node.web.matcher import ORIGIN
from cellbed_node.web.site import MOST_ORIGINS, Origin

_FIRST_PORT = 16_384


def group_of(origin: Origin, placed: Mapping[str, str], default: str) -> str:
    """Return the node group of an origin. placed: groups by patterns of hosts; the first matching pattern counts."""
    return next((group for pattern, group in placed.items() if fnmatchcase(origin.host, pattern)), default)


def places(deployment: Deployment, client: int) -> Iterator[tuple[Origin, Node, int]]:
    """Yield node and port of each origin for a client; if a group has several nodes, each client uses one of them."""
    table = deployment.table
    for number, origin in enumerate(warc.read(table.site).origins):
        group = group_of(origin, table.origins, table.server.on)
        nodes = [node for node in deployment.servers if node.name.rpartition("-")[0] == group]
        yield origin, nodes[client % len(nodes)], _FIRST_PORT + MOST_ORIGINS * deployment.number + number


def rules(deployment: Deployment, client: int) -> list[str]:
    """Return the rules with which a client's browser finds the origins, and no other host."""
    found = [
        f"MAP {origin.host}:{origin.port} {deployment.address(node)}:{port}"
        for origin, node, port in places(deployment, client)
    ]
    return [*found, "MAP * ~NOTFOUND"]


def servers(deployment: Deployment, raw: Path) -> Iterator[Process | Command]:
    """Yield the programs on the nodes of the servers; each serves the origins of its group."""
    table = deployment.table
    for index, node in enumerate(deployment.servers):
        socket = str(deployment.scratch / f"site{deployment.number}-{index}")
        settings = {"site": str(table.site.absolute()), "socket": socket}
        yield deployment.program("replies", "cellbed_node.web.matcher", node, raw, settings, ["site"])
        group = node.name.rpartition("-")[0]
        served = [
            Served(origin.host, deployment.listening(node), port, *forwarding(socket), secured=origin.scheme == "https")
            for origin, at, port in places(deployment, 0)
            if at.name.rpartition("-")[0] == group
        ]
        if served:
            yield serve(deployment, node, raw, served, software=table.software, version=table.version)


def forwarding(socket: str) -> tuple[str, list[str]]:
    """Return the directives of nginx, and of Caddy, that forward requests to the program at a socket."""
    nginx = (
        f'client_max_body_size 0; large_client_header_buffers 8 64k; location / {{ proxy_pass "http://unix:{socket}:"; '
        f"proxy_set_header {ORIGIN} $scheme://$http_host; proxy_pass_header Server; proxy_read_timeout 1h; "
        "proxy_max_temp_file_size 0; proxy_buffer_size 64k; proxy_buffers 16 64k; proxy_busy_buffers_size 128k; }"
    )
    return nginx, [f'reverse_proxy "unix/{socket}" {{', f"    header_up {ORIGIN} {{scheme}}://{{hostport}}", "}"]
