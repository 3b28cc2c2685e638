"""Address translation at the outer end of a shell's link.

Everything that is added carries the shell's name, in a table of its own or as a comment, so that it can be found and
removed by that name alone: after a kill nothing else is left to remember it.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from cellbed.shell.addresses import HelperNetwork, Pair
from cellbed.shell.programs import ProgramError, find, run
from cellbed.testbed.process import Place


@dataclass(frozen=True, slots=True)
class Translation:
    """What to translate.

    name: of the shell. interface: of the link's outer end. helper: the network on which a helper stands for the host,
    where there is one; what the command sends to the gateway then goes to the helper's end.
    """

    name: str
    pair: Pair
    interface: str
    helper: HelperNetwork | None = None

    def ruleset(self, *, clamp: bool = True) -> str:
        """The rules as a table of nft(8).

        clamp: keep TCP's segments within the smallest MTU of the route (nft(8), "rt mtu"); the link's own is 1500, and
        some networks lose larger packets without saying so.
        """
        lines = [
            f"table inet {self.name} {{",
            "  chain postrouting {",
            "    type nat hook postrouting priority 100; policy accept;",
            f'    ip saddr {self.pair.inside} oifname != "{self.interface}" masquerade',
            f'    ip6 saddr {self.pair.inside_ipv6} oifname != "{self.interface}" masquerade',
            "  }",
        ]
        if self.helper is not None:
            host, host_ipv6 = self.helper.host, self.helper.host_ipv6
            # Port 53 stays: the shell's own name server answers there.
            to_host = "meta l4proto { tcp, udp } th dport != 53 dnat"
            lines += [
                "  chain prerouting {",
                "    type nat hook prerouting priority -100; policy accept;",
                f"    ip daddr {self.pair.gateway} {to_host} ip to {host}",
                f"    ip6 daddr {self.pair.gateway_ipv6} {to_host} ip6 to {host_ipv6}",
                "  }",
            ]
        if clamp:
            lines += [
                "  chain forward {",
                "    type filter hook forward priority -150; policy accept;",
                f'    iifname "{self.interface}" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu',
                f'    oifname "{self.interface}" tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu',
                "  }",
            ]
        return "\n".join([*lines, "}", ""])

    def iptables(self) -> list[list[str]]:
        """The same as commands of iptables(8), for machines without nft."""
        commands = []
        for program, inside, gateway, host in (
            ("iptables", self.pair.inside, self.pair.gateway, self.helper and self.helper.host),
            ("ip6tables", self.pair.inside_ipv6, self.pair.gateway_ipv6, self.helper and self.helper.host_ipv6),
        ):
            comment = ["-m", "comment", "--comment", self.name]
            masquerade = ["-A", "POSTROUTING", "-s", str(inside), "!", "-o", self.interface, "-j", "MASQUERADE"]
            commands.append([program, "-w", "-t", "nat", *masquerade, *comment])
            for way in ("-i", "-o"):
                commands.append([program, "-w", "-I", "FORWARD", way, self.interface, "-j", "ACCEPT", *comment])
            if host is not None:
                for protocol in ("tcp", "udp"):
                    match = ["-d", str(gateway), "-p", protocol, "!", "--dport", "53"]
                    target = ["-j", "DNAT", "--to-destination", str(host)]
                    commands.append([program, "-w", "-t", "nat", "-A", "PREROUTING", *match, *target, *comment])
        return commands


def available() -> bool:
    """Whether a program that sets up address translation is installed."""
    return find("nft") is not None or find("iptables") is not None


def apply(translation: Translation, place: Place | None = None) -> None:
    """Add the rules in the current network namespace, or in that of `place`.

    Errors: :class:`cellbed.shell.programs.ProgramError`.
    """
    nft = find("nft")
    if nft is None:
        _apply_iptables(translation, place)
        return
    try:
        run([nft, "-f", "-"], text=translation.ruleset(), place=place)
    except ProgramError:
        # Kernels without nft_exthdr or nft_rt can translate all the same.
        run([nft, "-f", "-"], text=translation.ruleset(clamp=False), place=place)
    if place is None:
        _pass_firewalls(nft, translation)


def add(rules: str) -> None:
    """Add rules of nft(8), in the shell's own table, to the current network namespace.

    Errors: :class:`cellbed.shell.programs.ProgramError`, also where only iptables is installed.
    """
    nft = find("nft")
    if nft is None:
        raise ProgramError("nft is not installed: sudo apt install nftables")
    run([nft, "-f", "-"], text=rules)


def remove(name: str) -> None:
    """Remove all rules of the shell called `name` from the current network namespace. Harmless when there are none."""
    nft = find("nft")
    if nft is not None:
        for table in _objects(nft, ["list", "tables"], "table"):
            if table["name"] == name:
                run([nft, "delete", "table", table["family"], name])
        for rule in _objects(nft, ["list", "ruleset"], "rule"):
            if rule.get("comment") == name:
                place = [rule["family"], rule["table"], rule["chain"]]
                run([nft, "delete", "rule", *place, "handle", str(rule["handle"])])
        return
    paths = [path for path in (find("iptables"), find("ip6tables")) if path is not None]
    for path in paths:
        for table_name in ("nat", "filter"):
            for rule_line in _rules(path, table_name):
                words = shlex.split(rule_line)
                if words[:1] == ["-A"] and name in words:
                    run([path, "-w", "-t", table_name, "-D", *words[1:]])


def _apply_iptables(translation: Translation, place: Place | None) -> None:
    for program, *arguments in translation.iptables():
        path = find(program)
        if path is None:
            raise ProgramError("neither nft nor iptables is installed; install the package nftables")
        try:
            run([path, *arguments], place=place)
        except ProgramError:
            # A kernel without IPv6 translation: IPv4 alone is still a way out.
            if program == "iptables":
                raise


def _pass_firewalls(nft: str, translation: Translation) -> None:
    """Let the link's packets through chains that drop what is forwarded, as Docker, ufw and firewalld set them up.

    A chain's drop is final whatever another table accepts (nft(8), "verdict statement"): the rule has to stand in it.
    """
    for chain in _objects(nft, ["list", "chains"], "chain"):
        foreign = chain["table"] != translation.name
        drops = chain.get("policy") == "drop" or chain["table"] == "firewalld"
        if foreign and drops and chain.get("hook") == "forward" and chain["family"] in ("inet", "ip", "ip6"):
            for way in ("iifname", "oifname"):
                rule = f'{way} "{translation.interface}" accept comment "{translation.name}"'
                where = f"{chain['family']} {chain['table']} {chain['name']}"
                run([nft, "-f", "-"], text=f"insert rule {where} {rule}\n")


def _objects(nft: str, command: list[str], kind: str) -> list[dict[str, Any]]:
    try:
        listing = json.loads(run([nft, "-j", *command]) or "{}")
    except (ProgramError, ValueError):
        return []
    return [entry[kind] for entry in listing.get("nftables", []) if kind in entry]


def _rules(iptables: str, table: str) -> list[str]:
    try:
        return run([iptables, "-w", "-t", table, "-S"]).splitlines()
    except ProgramError:
        return []
