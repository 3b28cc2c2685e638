"""The node of a tower: the kernel of its namespace forwards the packets of radio links, and a program may get the TCP
connections that endpoints open (Documentation/networking/tproxy.rst of Linux)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.radio import VARIABLE as VARIABLE
from cellbed.testbed.machine.process import Place, run
from cellbed_node.processes import find

if TYPE_CHECKING:
    from cellbed.scenario.nodes import NodeGroup

MEMORY = Path("/dev/shm")
"""File system in memory, for pages with the state of radio links: writing to a disk would delay the emulator."""
_TOOLS = ("nft", "ip")
_RULES = """
table inet cellbed-tower {{
  counter given {{}}
  counter forwarded {{}}
  chain intercept {{
    type filter hook prerouting priority mangle; policy accept;
    meta l4proto != tcp accept
    {own}
    socket transparent 1 meta mark set 1 accept
    tcp flags & (fin | syn | rst | ack) != syn accept
    meta l4proto tcp ip saddr {ipv4} tproxy ip to :{port} meta mark set 1 counter name given accept
    meta l4proto tcp ip6 saddr {ipv6} tproxy ip6 to :{port} meta mark set 1 counter name given accept
    ip saddr {ipv4} counter name forwarded
    ip6 saddr {ipv6} counter name forwarded
  }}
}}
"""
"""A connection whose program does not listen is forwarded, like connections from before."""
_ROUTES = """
nft=$1 ip=$2
$nft -f - || exit
for family in -4 -6; do
  $ip $family rule add fwmark 1 lookup 100 && $ip $family route add local default dev lo table 100 || exit
done
"""


def obstacles(group: NodeGroup, *, is_root: bool) -> Iterator[tuple[str, str]]:
    """Yield what the node of a tower lacks here: key and remedy."""
    if not MEMORY.is_dir():
        yield "class", f"a tower needs a file system in memory: sudo mount -t tmpfs tmpfs {MEMORY}"
    if group.intercept is None:
        return
    if not all(map(find, _TOOLS)):
        yield "intercept", "connections are intercepted by nft and ip: sudo apt install nftables iproute2"
    if group.backend.kind == "container" and not is_root:
        yield "intercept", "containers of ordinary users may not do this: write a namespace, or run it with sudo"


def intercept(place: Place, addresses: Sequence[str], port: int, networks: Sequence[str]) -> None:
    """Give the TCP connections from some networks to the program that listens at a port with ``IP_TRANSPARENT``.

    addresses: of the node, whose connections it does not give away. networks: IPv4 and IPv6. Errors:
    :class:`ProgramError`.
    """
    plain = [each.partition("/")[0] for each in addresses]
    own = "\n    ".join(f"{'ip6' if ':' in each else 'ip'} daddr {each} accept" for each in plain)
    rules = _RULES.format(own=own, ipv4=networks[0], ipv6=networks[1], port=port)
    run(["sh", "-c", _ROUTES, "sh", *(find(name) or name for name in _TOOLS)], text=rules, place=place)


def has_only_forwarded(place: Place) -> bool:
    """Return whether a node that intercepts has forwarded all connections. Errors: :class:`ProgramError`."""
    counters = "; ".join(f"list counter inet cellbed-tower {name}" for name in ("given", "forwarded"))
    given, forwarded = map(int, re.findall(r"packets (\d+)", run([find("nft") or "nft", counters], place=place)))
    return given == 0 and forwarded > 0
