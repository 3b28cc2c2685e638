"""Addresses over which connections to several servers are spread: rules of nft(8) in the namespaces of the nodes.

They are those of kube-proxy (Kubernetes, "Virtual IPs and Service Proxies", proxy mode nftables): the destination of a
new connection becomes that of a server, chosen at random, and the kernel translates the other packets alike. No
process stands between client and server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address

from cellbed.runformat.events import Journal
from cellbed.testbed.machine.process import Place, ProgramError, find, run
from cellbed.testbed.plan import Plan
from cellbed.testbed.programs.supervise import Supervisor
from cellbed.testbed.testbed import Testbed

_LIBERAL = "/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal"
"""Else packets that come late would be outside of the window as the tracker sees it, and not be translated. Old kernels
have the setting for root only."""


class Balancing:
    """The rules of a run. Make it when the nodes are up; call :meth:`step` when programs may have started or ended."""

    def __init__(self, plan: Plan, bed: Testbed, supervisor: Supervisor, journal: Journal) -> None:
        """Load rules with all servers. Errors: :class:`ProgramError` where this kernel does not load them."""
        self._services = {name: each for name, each in plan.services.items() if each.spread}
        self._supervisor, self._journal = supervisor, journal
        namespaces = (bed.emulator.namespace(node.name) for node in plan.nodes) if self._services else ()
        self._places = [Place(namespace, bed.emulator.user_namespace) for namespace in namespaces]
        self._loaded: dict[str, list[str]] = {}
        if self._services:
            self._load({name: [node.name for node in each.nodes] for name, each in self._services.items()})

    def step(self) -> None:
        """Let connections go to the servers that are ready now."""
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

    def _load(self, serving: dict[str, list[str]]) -> None:
        nft = find("nft")
        if nft is None:
            raise ProgramError("nft is not installed: sudo apt install nftables")
        targets = {
            each.address: [node.ipv4 for node in each.nodes if node.name in serving[name]]
            for name, each in self._services.items()
        }
        text = rules(targets)
        for place in self._places:
            run([nft, "-f", "-"], text=text, place=place)
            if not self._loaded:
                run(["sh", "-c", f"[ ! -w {_LIBERAL} ] || echo 1 > {_LIBERAL}"], place=place)
        self._loaded = serving


def rules(targets: Mapping[IPv4Address, Sequence[IPv4Address]]) -> str:
    """Return a table of nft(8) in place of the one before: addresses with the servers that connections to them go to.
    Connections that no server can take are refused."""
    spread, refused = [], []
    for address, servers in targets.items():
        listed = ", ".join(f"{number} : {server}" for number, server in enumerate(servers))
        if servers:
            spread.append(f"    ip daddr {address} dnat to numgen random mod {len(servers)} map {{ {listed} }}\n")
        else:
            refused.append(f"    ip daddr {address} reject\n")
    chains = {"spread": spread, "refuse": refused}
    bodies = "".join(f"  chain {name} {{\n{''.join(lines)}  }}\n" for name, lines in chains.items())
    hooks = "".join(
        f"  chain {hook}-{name} {{ type {kind} hook {hook} priority {priority}; jump {name}; }}\n"
        for name, kind, where in (
            ("spread", "nat", (("output", -100), ("prerouting", -100))),
            ("refuse", "filter", (("output", 0), ("forward", 0))),
        )
        for hook, priority in where
    )
    return f"table ip cellbed\ndelete table ip cellbed\ntable ip cellbed {{\n{bodies}{hooks}}}\n"
