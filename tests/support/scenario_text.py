"""Scenarios for tests: a builder of their tables, and one whose text is read and spoilt line by line."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cellbed.scenario import ScenarioError, parse

GOOD = """\
name = "test"
duration = "60 s"
seed = 1

[nodes.endpoint]
count = 1
cpus = 1.0
memory = "512 MiB"

[nodes.edge]
cpus = 2.0
memory = "2 GiB"

[links.mobile]
up = "12 Mbit/s"
down = "unlimited"
base_delay = "10 ms"
queue = { kind = "droptail", limit = "1 MB" }
start = "0 s"

[links.core]
edge = "base-edge"

[workload]
kind = "image-classification"
on = "edge"
rate = "2 /s"
arrivals = "periodic"
"""


def to_toml(value: Any) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {to_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)


def tables(**values: Any) -> str:
    """Return top-level keys and tables as TOML. A table of tables has a header for each of them."""
    keys = _lines({name: value for name, value in values.items() if not _is_table(value)})
    return keys + "".join(_table(name, value) for name, value in values.items() if _is_table(value))


def _is_table(value: Any) -> bool:
    """Return whether a value has a header of its own: a table, or a list of tables."""
    entries = value if isinstance(value, list) and value else [value]
    return all(isinstance(each, Mapping) for each in entries)


def _table(header: str, value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"[[{header}]]\n{_lines(each)}" for each in value)
    if value and all(isinstance(each, Mapping) for each in value.values()):
        return "".join(_table(f"{header}.{_key(name)}", each) for name, each in value.items())
    return f"[{header}]\n{_lines(value)}"


def _lines(values: Mapping[str, Any]) -> str:
    return "".join(f"{_key(name)} = {to_toml(value)}\n" for name, value in values.items())


def network(
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    mobile: Mapping[str, Any] | None = None,
    core: Mapping[str, Any] | None = None,
) -> str:
    """Return the nodes and links of a scenario: an endpoint and an edge node, unless others are named.

    Args:
        nodes: keys of each group of nodes, beside or in place of 0.5 CPUs and 256 MiB.
        mobile: keys of the mobile links, beside or in place of 20 Mbit/s both ways.
        core: delays of the core links, in place of 3 ms to the edge; none if empty.
    """
    own = {"cpus": 0.5, "memory": "256 MiB"}
    groups = {name: own | dict(keys) for name, keys in (nodes or {"endpoint": {}, "edge": {}}).items()}
    links: dict[str, Mapping[str, Any]] = {"mobile": {"up": "20 Mbit/s", "down": "20 Mbit/s", **(mobile or {})}}
    if core is None or core:
        links["core"] = core or {"edge": "3 ms"}
    return tables(nodes=groups, links=links)


def scenario_head(
    nodes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    mobile: Mapping[str, Any] | None = None,
    core: Mapping[str, Any] | None = None,
    **others: Any,
) -> str:
    """Return a scenario without applications. others: keys and tables, beside or in place of name "test" and 60 s."""
    others = {"name": "test", "duration": "60 s", **others}
    below = {name: value for name, value in others.items() if _is_table(value)}
    above = {name: value for name, value in others.items() if name not in below}
    return tables(**above) + network(nodes, mobile=mobile, core=core) + tables(**below)


def app_table(name: str, kind: str = "program", **keys: Any) -> str:
    """Return the table of an application."""
    return tables(apps={name: {"kind": kind, **keys}})


def server_keys(command: str | list[str], port: int, on: str = "edge", **keys: Any) -> dict[str, Any]:
    """Return the keys of a server that is ready when it listens on a port."""
    return {"on": on, "command": command, "ready": {"port": port}, **keys}


def iperf3_table(
    name: str,
    options: str,
    port: int = 5201,
    *,
    server: Mapping[str, Any] | None = None,
    client: Mapping[str, Any] | None = None,
) -> str:
    """Return the table of a transfer by iperf3. server, client: further keys of the roles."""
    command = f"iperf3 -c {{server.address}} -p {port} {options}"
    listening = server_keys(f"iperf3 -s -p {port}", port, **(server or {}))
    return app_table(name, server=listening, client={"on": "endpoint", "command": command, **(client or {})})


def migration(app: str, to: str, at_s: float, strategy: str = "redeploy", **keys: Any) -> str:
    """Return the entry of a migration."""
    return tables(migrations=[{"app": app, "to": to, "at": f"{at_s} s", "strategy": strategy, **keys}])


def recorded_scenario(count: int = 1, edge: Mapping[str, Any] | None = None, **others: Any) -> str:
    """Return a scenario without applications, whose mobile links have recorded rates. count: of endpoints."""
    own = {"cpus": 1.0, "memory": "512 MiB"}
    mobile = {"up": "lte-suburban.up", "down": "lte-suburban.down", "base_delay": "10 ms"}
    queue = {"kind": "droptail", "limit": "1 MB"}
    groups = {"endpoint": {"count": count, **own}, "edge": own | dict(edge or {})}
    return scenario_head(groups, mobile={**mobile, "queue": queue}, core={"edge": "base-edge"}, seed=5, **others)


def write_recorded(folder: Path, count: int = 1, duration: str = "3 s") -> Path:
    """Write a scenario of image classification over recorded links."""
    load = {"kind": "image-classification", "on": "edge", "rate": "5 /s", "arrivals": "poisson"}
    edge = {"cpus": 1.5, "memory": "1 GiB"}
    path = folder / "scenario.toml"
    path.write_text(recorded_scenario(count, edge, duration=duration, workload=load))
    return path


NODES = network({"endpoint": {"cpus": 1.0}, "edge": {"cpus": 1.0}}, mobile={"base_delay": "10 ms"})
"""The nodes and links of a scenario."""


def refusal(text: str, folder: Path = Path()) -> str:
    """Return the error of a scenario that is refused, which names its file."""
    with pytest.raises(ScenarioError) as refused:
        parse(text, source="x.toml", folder=folder)
    assert str(refused.value).startswith("x.toml:")
    return str(refused.value)
