"""Addresses whose connections are spread over several servers, or follow a service to another node: rules of nft(8) in
the nodes' namespaces.

The rules follow kube-proxy (Kubernetes, "Virtual IPs and Service Proxies", proxy mode nftables). A new connection gets
a random server as its destination, and the kernel translates its other packets in the same way. No process lies between
client and server.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from cellbed.runformat.events import Journal
from cellbed.testbed.machine import conntrack
from cellbed.testbed.machine.process import Place, ProgramError, run
from cellbed.testbed.plan import Plan
from cellbed.testbed.programs.supervise import Supervisor
from cellbed.testbed.testbed import Testbed
from cellbed_node.processes import find

_LIBERAL = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
"""Setting that accepts packets outside the tracked window; otherwise late packets would not be translated. On old
kernels, only root has the setting."""


_TCP, _UDP = 6, 17


@dataclass(frozen=True, slots=True)
class Redirection:
    """Redirection of a service's connections to the node to which it has moved.

    source, target: IPv4 and IPv6 addresses. tcp, udp: ports of the service. established: whether existing connections
    are included, instead of only those whose first packet is seen. is_behind: the target is a machine behind its
    namespace.
    """

    source: tuple[str, str]
    target: tuple[str, str]
    tcp: frozenset[int]
    udp: frozenset[int]
    established: bool = False
    is_behind: bool = False


class Balancing:
    """The rules of a run. Create when the nodes are up; call :meth:`step` when programs may have started or ended.

    redirected: redirections of moved services, by application.
    """

    def __init__(self, plan: Plan, bed: Testbed, supervisor: Supervisor, journal: Journal) -> None:
        """Load rules with all servers. Errors: :class:`ProgramError` if this kernel does not load them."""
        self._services = {name: each for name, each in plan.services.items() if each.spread}
        self._supervisor, self._journal = supervisor, journal
        self.redirected: dict[str, Redirection] = {}
        namespaces = (bed.emulator.namespace(node.name) for node in plan.nodes)
        self._places = [Place(namespace, bed.emulator.user_namespace) for namespace in namespaces]
        self._loaded: dict[str, list[str]] = {}
        self._is_liberal = self._moves = False
        if self._services:
            self._load({name: [node.name for node in each.nodes] for name, each in self._services.items()})

    def step(self) -> None:
        """Spread new connections over the servers that are ready now."""
        serving = {
            name: [node.name for node in each.nodes if self._supervisor.is_serving(name, node.name)]
            for name, each in self._services.items()
        }
        if serving != self._loaded:
            before = self._loaded
            self._load(serving)
            for app, names in serving.items():
                if names != before[app]:
                    self._journal.note("servers changed", app, nodes=names)

    def redirect(self, app: str, to: Redirection | None, *, forget: bool) -> None:
        """Redirect connections to a service from now on; without `to`, to the node of the service's address.

        forget: also translate existing connections again, as always for datagrams. Errors: :class:`ProgramError`.
        """
        self._moves = True
        changed = [each for each in (self.redirected.get(app), to) if each is not None]
        if to is None:
            self.redirected.pop(app, None)
        else:
            self.redirected[app] = to
        self._load(self._loaded)
        for each in changed[:1]:
            for protocol, ports in ((_TCP, each.tcp if forget else ()), (_UDP, each.udp)):
                if ports:
                    listed = ",".join(map(str, sorted(ports)))
                    arguments = [str(Path(conntrack.__file__)), str(protocol), listed, *each.source]
                    for place in self._places:
                        run([sys.executable, "-I", "-S", *arguments], place=place)

    def _load(self, serving: dict[str, list[str]]) -> None:
        nft = find("nft")
        if nft is None:
            raise ProgramError("nft is not installed: sudo apt install nftables")
        targets = {
            each.address: [node.ipv4 for node in each.nodes if node.name in serving[name]]
            for name, each in self._services.items()
        }
        text = rules(targets, self.redirected.values() if self._moves else None)
        load = [nft, "-f", "-"]
        if not self._is_liberal:
            load = ["sh", "-c", f"{nft} -f - && {{ [ ! -w {_LIBERAL} ] || echo 1 > {_LIBERAL}; }}"]
        for place in self._places:
            run(load, text=text, place=place)
        self._loaded, self._is_liberal = serving, True


_TRACKED = "    ct state established\n"
"""A rule without effect. Without any rule on connections, the kernel would stop tracking, and translating, existing
ones."""


def rules(targets: Mapping[IPv4Address, Sequence[IPv4Address]], redirected: Iterable[Redirection] | None = None) -> str:
    """Return tables of nft(8) that replace the previous ones. targets: servers by address; without servers, connections
    are refused. redirected: redirections of moved services; ``None`` if no service has ever moved."""
    moved = list(redirected or ())
    spread, refused = [], []
    for address, servers in targets.items():
        listed = ", ".join(f"{number} : {server}" for number, server in enumerate(servers))
        if servers:
            spread.append(f"    ip daddr {address} dnat to numgen random mod {len(servers)} map {{ {listed} }}\n")
        else:
            refused.append(f"    ip daddr {address} reject\n")
    four, six = _redirections("ip", moved), _redirections("ip6", moved)
    chains = {"spread": [*spread, *four["spread"]], "refuse": refused}
    return _table("ip", chains) if redirected is None else _table("ip", four | chains) + _table("ip6", six)


def _redirections(family: str, redirected: Iterable[Redirection]) -> dict[str, list[str]]:
    """Return rules by chain. ``spread``: for packets to moved services. ``back``: for packets of established
    connections from moved services, if the service sends the first packet after the move. ``around``: for packets to
    the machine behind a namespace, which accepts no packet from its own address."""
    found: dict[str, list[str]] = {"spread": [], "back": [_TRACKED], "around": []}
    for each in redirected:
        index = 0 if family == "ip" else 1
        source, target = each.source[index], each.target[index]
        if each.is_behind:
            found["around"].append(f"    {family} saddr {target} {family} daddr {target} masquerade\n")
        for protocol, numbers in (("tcp", each.tcp), ("udp", each.udp)):
            if not numbers:
                continue
            ports = f"{{ {', '.join(map(str, sorted(numbers)))} }}"
            first = "tcp flags & (syn | ack) == syn " if protocol == "tcp" and not each.established else ""
            to = f"{family} daddr {source} {protocol} dport {ports}"
            found["spread"].append(f"    {to} {first}dnat to {target}\n")
            if each.established:
                found["back"].append(f"    {family} saddr {target} {protocol} sport {ports} snat to {source}\n")
    return found


def _table(family: str, chains: Mapping[str, Sequence[str]]) -> str:
    bodies = "".join(f"  chain {name} {{\n{''.join(lines)}  }}\n" for name, lines in chains.items())
    hooks = "".join(
        f"  chain {hook}-{name} {{ type {kind} hook {hook} priority {priority}; jump {name}; }}\n"
        for name, kind, where in (
            ("spread", "nat", (("output", -100), ("prerouting", -100))),
            ("back", "nat", (("input", 100),)),
            ("around", "nat", (("postrouting", 100),)),
            ("refuse", "filter", (("output", 0), ("forward", 0))),
        )
        for hook, priority in where
        if name in chains
    )
    name = f"{family} cellbed"
    return f"table {name}\ndelete table {name}\ntable {name} {{\n{bodies}{hooks}}}\n"
