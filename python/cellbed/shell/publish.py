"""Servers inside a shell that are reached from outside: ``--publish 8080:80``.

There are two ways in. If the outer end of the link is in the caller's network namespace, packets are translated to the
inner end, and TCP runs from end to end through the link. In all cases, a forwarder (:mod:`cellbed.shell.forwarder`)
holds the port, so that no other process takes it. The forwarder forwards untranslated traffic over new connections
through the link: traffic of an ordinary user, and traffic of the host's programs to the host's loopback.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Literal

from cellbed.shell import agent
from cellbed.shell.wayout import Pair
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Place, ProgramError, run
from cellbed_node.processes import find


@dataclass(frozen=True, slots=True)
class Published:
    """A port of the host that leads to a port inside. address: address of the host; ``None`` for all addresses."""

    port: int
    target: int
    protocol: Literal["tcp", "udp"] = "tcp"
    address: IPv4Address | IPv6Address | None = None

    def __str__(self) -> str:
        if self.address is None:
            return f"{self.port}/{self.protocol}"
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}/{self.protocol}"


def parse(text: str) -> Published:
    """Read ``[ADDRESS:]PORT[:PORT INSIDE][/tcp|/udp]``; IPv6 addresses are in brackets.

    Errors: :class:`CellbedError`.
    """
    ports, slash, protocol = text.strip().partition("/")
    if slash and protocol not in ("tcp", "udp"):
        raise CellbedError(f"--publish: '{protocol}' in '{text}' is neither tcp nor udp: write {_EXAMPLES}")
    address = None
    if ports.startswith("["):
        inner, _, ports = ports[1:].partition("]:")
        address = _address(inner, text)
    elif ports.count(":") == 2 or "." in ports.partition(":")[0]:
        outer, _, ports = ports.partition(":")
        address = _address(outer, text)
    port, colon, target = ports.partition(":")
    return Published(
        _port(port, text), _port(target if colon else port, text), "udp" if protocol == "udp" else "tcp", address
    )


def ruleset(table: str, interface: str, pair: Pair, published: Sequence[Published], *, ipv6: bool) -> str:
    """Return chains of nft(8) that translate packets to the ports, for the shell's table.

    interface: device of the link's outer end. ipv6: whether IPv6 packets are forwarded. Packets to a loopback address
    are left to the forwarder: a server in another namespace could not reply to them.
    """
    rules = []
    for one in published:
        for family, version, inside in (("ip", 4, str(pair.inside)), ("ip6", 6, f"[{pair.inside_ipv6}]")):
            if (version == 6 and not ipv6) or (one.address is not None and one.address.version != version):
                continue
            if one.address is None or one.address.is_unspecified:
                here = f"fib daddr type local {family} daddr != {'127.0.0.0/8' if version == 4 else '::1'}"
            elif one.address.is_loopback:
                continue
            else:
                here = f"{family} daddr {one.address}"
            rules.append(f"    {here} {one.protocol} dport {one.port} dnat {family} to {inside}:{one.target}")
    return "\n".join(
        [
            f"table inet {table} {{",
            "  chain published {",
            *rules,
            "  }",
            "  chain published_from_elsewhere {",
            "    type nat hook prerouting priority -110; policy accept;",
            # Packets from the shell go to the forwarder: if translated, they would return to their sender.
            f'    iifname != "{interface}" jump published',
            "  }",
            "  chain published_from_here {",
            "    type nat hook output priority -110; policy accept;",
            "    jump published",
            "  }",
            "}",
            "",
        ]
    )


def translate(table: str, interface: str, pair: Pair, published: Sequence[Published], *, ipv6: bool) -> None:
    """Add the chains of :func:`ruleset`. Errors: :class:`cellbed.testbed.machine.process.ProgramError`."""
    nft = find("nft")
    if nft is None:
        raise ProgramError("nft is not installed: sudo apt install nftables")
    run([nft, "-f", "-"], text=ruleset(table, interface, pair, published, ipv6=ipv6))


def start_forwarder(published: Sequence[Published], pair: Pair, place: Place | None) -> subprocess.Popen[bytes]:
    """Hold the ports in the current network namespace, and forward to the inner end from the namespaces of `place`.

    place: place of the link's outer end; ``None`` for the current namespaces. The process ends with this one.
    Errors: :class:`CellbedError`, with the port and the reason.
    """
    hosts = [str(pair.inside), str(pair.inside_ipv6)]
    ports = [{**asdict(one), "address": str(one.address) if one.address else None, "hosts": hosts} for one in published]
    try:
        process, _ = agent.start_forwarder("--publish: the forwarder", ports, connect=place)
    except agent.AgentError as error:
        event = error.event
        if "port" not in event:
            raise
        refused = published[event["port"]]
        why, remedy = {
            "taken": ("is taken on this machine", "choose another"),
            "privileged": ("may not be opened by an ordinary user", "choose one from 1024 on"),
            "no address": ("cannot be used: this machine does not have the address", "choose one of this machine"),
        }.get(event["event"], (f"cannot be opened: {event['message']}", "choose another"))
        free = refused.port + 8000 if refused.port < 1024 else refused.port + 1
        example = f"--publish {free}:{refused.target}"
        raise CellbedError(f"--publish: port {refused} {why}: {remedy}, as in {example}") from None
    return process


_EXAMPLES = "'8080:80', '80', '127.0.0.1:8080:80' or '[::1]:5353:53/udp'"


def _port(text: str, whole: str) -> int:
    if not text.isdecimal() or not text.isascii() or not 1 <= int(text[:6]) <= 65535:
        raise CellbedError(f"--publish: '{text}' in '{whole}' is not a port, 1 to 65535: write {_EXAMPLES}")
    return int(text)


def _address(text: str, whole: str) -> IPv4Address | IPv6Address:
    try:
        return ip_address(text)
    except ValueError:
        raise CellbedError(f"--publish: '{text}' in '{whole}' is not an address: write {_EXAMPLES}") from None
