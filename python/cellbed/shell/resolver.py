"""Name resolution inside a shell.

A resolver on the host's loopback (systemd-resolved, dnsmasq) is not reachable from another network namespace. In this
case, the shell's own forwarder answers at the gateway, and the command's ``resolv.conf`` contains its address.
Otherwise, the host's resolvers are reached through the link like any other server.
"""

from __future__ import annotations

import subprocess
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from cellbed.shell import agent
from cellbed.testbed.machine.process import Place

RESOLV_CONF = Path("/etc/resolv.conf")
_SHORTCUTS = ("/run/systemd/resolve/io.systemd.Resolve", "/run/nscd/socket", "/var/run/nscd/socket")
"""Sockets through which the C library asks a service of the host, bypassing the link (nss-resolve(8), nscd(8))."""


def name_servers(resolv_conf: str) -> list[str]:
    """Return the addresses in a ``resolv.conf``, in order; without any, the C library's default
    (resolv.conf(5))."""
    servers = []
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                ip_address(words[1])
            except ValueError:
                continue
            servers.append(words[1])
    return servers or ["127.0.0.1"]


def needs_forwarder(servers: list[str]) -> bool:
    """Return whether none of the name servers can be reached from another network namespace."""
    return all(ip_address(server).is_loopback or ip_address(server).is_link_local for server in servers)


def inner_resolv_conf(resolv_conf: str, gateway: IPv4Address) -> str:
    """Return the ``resolv.conf`` with `gateway` as its only name server; search domains and options are kept."""
    kept = [line for line in resolv_conf.splitlines() if line.split()[:1] != ["nameserver"]]
    return "\n".join([*kept, f"nameserver {gateway}", ""])


def shortcut_binds() -> list[tuple[str, str]]:
    """Return binds that hide the sockets bypassing the link, so that name resolution uses the link."""
    return [("/dev/null", path) for path in _SHORTCUTS if Path(path).exists()]


def start_forwarder(
    servers: list[str], gateway: IPv4Address, place: Place | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a process that answers at `gateway` in the namespaces of `place` (``None``: the current ones), and asks
    `servers` from here.

    Returns the process, which ends with this one, and its port.
    Errors: :class:`cellbed.shell.agent.AgentError`.
    """
    port = {"address": str(gateway), "port": 0, "hosts": servers, "target": 53}
    ports = [port | {"protocol": each} for each in ("tcp", "udp")]
    process, event = agent.start_forwarder("the shell's name server", ports, listen=place)
    return process, event["port"]
