"""Any programs of the user, unmodified, on clients and servers."""

import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from cellbed.runformat.description import Description
from cellbed.scenario import roles
from cellbed.testbed.programs.unmodified import Command, Ready, Stop
from cellbed.workloads.kind import Deployment
from cellbed_node.templates import fill


def processes(deployment: Deployment, raw: Path, *, cache: Path, seed: int) -> list[Command]:
    """Return the programs of servers and clients."""
    return [*commands(deployment, "server", raw, seed), *commands(deployment, "client", raw, seed)]


def commands(deployment: Deployment, key: Literal["client", "server"], raw: Path, seed: int) -> Iterator[Command]:
    """Yield the user's program of a role on each of its nodes. raw: the run's folder of raw records."""
    role = getattr(deployment.table, key)
    clients, servers = deployment.clients, deployment.servers
    for index, node in enumerate(clients if key == "client" else servers):
        # Client i belongs to server i mod n.
        client = node if key == "client" else clients[index] if index < len(clients) else None
        server = node if key == "server" else servers[index % len(servers)] if servers else None
        values = deployment.values(node, client, server, seed)
        yield Command(
            name=f"{deployment.name}.{node.name}.{key}",
            node=node.name,
            command=tuple(fill(word, values) for word in role.command or ()),
            stage=1 if key == "client" else 0,
            load=key == "client",
            environment={name: fill(value, values) for name, value in role.environment.items()},
            folder=role.folder,
            ready=_ready(role.ready, values),
            copy_in=tuple((source.absolute(), target) for source, target in role.copy_in.items()),
            copy_out=tuple(role.copy_out),
            files=raw.parent / "files" / deployment.name / node.name,
            measures=str(role.measured_file) if role.measured_file is not None else None,
            restart=role.restart,
            status=role.statuses,
            stop=Stop(signal.Signals[role.stop.signal], role.stop.grace) if role.stop is not None else None,
            reached=key == "server" and any(each.name != node.name for each in clients),
        )


def server_commands(deployment: Deployment, raw: Path, seed: int) -> Iterator[Command]:
    """Return the user's servers of an application whose clients are cellbed's; empty if there are none."""
    role = deployment.table.server
    return commands(deployment, "server", raw, seed) if role is not None and role.command is not None else iter(())


def _ready(table: roles.Ready | None, values: Mapping[str, str]) -> Ready:
    if table is None:
        return Ready()
    http = fill(table.http, values) if table.http is not None else None
    command = tuple(fill(word, values) for word in table.command or ())
    return Ready(table.port, table.line, table.file, http, command, table.timeout)


def port_of(url: str) -> int | None:
    """Return the port of a URL, which may contain names to fill in; ``None`` if the port is one of them."""
    try:
        parts = urlsplit(re.sub(r"\{[^{}]*\}", "host", url))
        return parts.port or (443 if parts.scheme in ("https", "wss") else 80)
    except ValueError:
        return None


def describe(table: Mapping[str, Any]) -> Description:
    """Return the description: connections are reported, as no requests are known."""
    roles = {key: role for key in ("client", "server") if isinstance(role := table.get(key), Mapping)}
    parts = [f"{Path((role.get('command') or ['its image'])[0]).name} on {role['on']}" for role in roles.values()]
    ready = roles.get("server", {}).get("ready") or {}
    port = ready.get("port") or (port_of(ready["http"]) if ready.get("http") else None)
    return Description(
        kind="program",
        title=", ".join(parts) or "programs",
        ports=(port,) if port is not None else (),
    )
