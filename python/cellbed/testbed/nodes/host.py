"""Nodes that are machines reached over SSH, with an agent there and a tunnel that ends in the node's namespace."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cellbed.scenario.nodes import HostBackend
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.cgroups import Sample
from cellbed.testbed.machine.interface import Interface
from cellbed.testbed.machine.process import ProgramError, run, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.nodes.backend import Setup
from cellbed.testbed.nodes.remote import NodeError, RemoteGroup, RemoteNode, end_of, last_line_of
from cellbed_node import tunnel
from cellbed_node.agent import BOOTSTRAP, UDP_PORT, delivery, greeting
from cellbed_node.processes import die_with_parent, find, kill, last_line

HEADERS = 50
"""Bytes that the tunnel adds to a packet over IPv4: headers of IP, UDP, VXLAN and Ethernet (RFC 7348, §5)."""
GREETINGS, GREETING_S = 50, 0.2
"""Maximum number of greetings to a machine behind a live network, and the time for an answer, seconds."""
OUTER_BYTES = {4: 1550, 6: 1570}
"""Size of a 1500-byte packet in the tunnel, by IP version; on a path with a smaller MTU, it is fragmented, without
offload."""
IP_MTU, IPV6_MTU = 14, 24
"""Socket options of Linux (ip(7), ipv6(7))."""
MEETING_S = 60.0
"""Maximum time for a second connection to a machine and its end of the tunnel, seconds."""
CLOSING_S = 5.0
"""Maximum time for a machine, once ready, to remove what its agent made there, seconds."""


class HostNode(RemoteNode):
    """A machine reached over SSH.

    The tunnel is VXLAN (RFC 7348) over UDP, whose packets the machines' networks carry. At both ends, the device is in
    the node's namespace, and its socket is in the machine's network. The tunnel carries packets of 1500 bytes. If the
    network between the machines cannot carry the outer packets, they are fragmented.

    If the machine is behind address translation or a jump host, or if no datagrams of the tunnel arrive, a second SSH
    connection carries the frames between TAP devices (:mod:`cellbed_node.tunnel`).

    Behind a live link, the packets leave by its interface, and are small enough for it. Greetings from the port of the
    tunnel open the way through address translation, and show the machine where its packets must go.
    """

    device = "tunnel0"
    far_device = "cellbed0"

    def __init__(self, setup: Setup, table: HostBackend) -> None:
        super().__init__(setup, table)
        self._process: subprocess.Popen[bytes] | None = None
        self._carrier: subprocess.Popen[bytes] | None = None
        self._carried: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the node
        self.path = f"the tunnel to {table.ssh} (UDP port {UDP_PORT})"
        self._token: str | None = None
        underlay = setup.underlay
        self._reason = "address translation" if table.nat else "jump host" if table.jump else ""
        """Why the packets cross the SSH connection; empty if datagrams carry them."""
        if underlay is not None:
            self._reason = ""
            self._token = secrets.token_hex(16)
            self.mtu = min(self.mtu, underlay.mtu - HEADERS)
            self.path += f" over {underlay.name}"

    @staticmethod
    def obstacles(table: HostBackend, *, running: bool) -> Iterator[tuple[str, str]]:
        if find("ssh") is None:
            yield "kind", "ssh is not installed: sudo apt install openssh-client"
        elif running and os.geteuid() != 0:
            yield "kind", "a node of kind host needs root here, for its tunnel: run with sudo"
        elif running:
            command = _ssh(table, f"{_PYTHON} -c ''")
            answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if answer.returncode != 0:
                yield "ssh", f"cannot be used: {_reason(last_line(answer.stderr))}"

    def start(self) -> None:
        setup = self.setup
        agent = f"env CELLBED_CONNECTION=\"$SSH_CONNECTION\" {RUN_VARIABLE}={setup.run} {_PYTHON} -c '{BOOTSTRAP}'"
        near, far = socket.socketpair()
        with near, far:
            self._process = self._log_in(agent, far)
            self.open_agent(
                near,
                kind="host",
                group=f"cellbed-host-{setup.run}-{self.name}" if setup.limits is not None else None,
                tunnel=None if self._reason else self._tunnel(self.far_device, self.far_mac),
                meet=self._token,
            )

    def _log_in(self, command: str, end: socket.socket) -> subprocess.Popen[bytes]:
        """Start a command on the machine. end: its standard input and output."""
        return subprocess.Popen(
            _ssh(self.table, command),
            stdin=end.fileno(),
            stdout=end.fileno(),
            stderr=self._errors,
            start_new_session=True,
            preexec_fn=die_with_parent,
            env={**os.environ, RUN_VARIABLE: self.setup.run},
        )

    def _tunnel(self, device: str, mac: str) -> str:
        """Return arguments of ip(8) that make an end; in braces: its namespace, this machine's address, the other
        address."""
        made = f"link add {device} netns {{}} address {mac} mtu {self.mtu} type vxlan id {self.number}"
        if self._token is None:
            return f"{made} local {{}} remote {{}} dstport {UDP_PORT}"
        # Address translation must see one flow in both directions, of one port at either end.
        return f"{made} dstport {UDP_PORT} srcport {UDP_PORT} {UDP_PORT + 1} nolearning udpcsum"

    def attach(self, hello: dict[str, Any]) -> None:
        if self._reason:
            self._carry(hello)
            return
        try:
            here, there = (ip_address(hello["connection"][end]) for end in (0, 2))
        except (IndexError, ValueError):
            raise NodeError(f"{self.name}: {self.table.ssh} reports no addresses of its SSH connection") from None
        if there.is_multicast or there.is_unspecified:
            raise NodeError(f"{self.name}: {self.table.ssh} reports {there} as its address")
        if here == there:
            raise CellbedError(f"{self.name}: {self.table.ssh} is this machine; leave out its backend")
        if self.setup.underlay is not None:
            self._cross(self.setup.underlay, hello["cpus"])
            return
        tunnel = self._tunnel(self.device, self.near_mac)
        run(["ip", *tunnel.format(self.setup.place.network_namespace, here, there).split()])
        self.facts |= {
            "address": str(there),
            "cpus": hello["cpus"],
            "tunnel": f"VXLAN {self.number}, UDP port {UDP_PORT}, MTU 1500",
        }
        self.facts["fragmented"] = path_mtu(str(there)) < OUTER_BYTES[there.version]

    def _cross(self, underlay: Interface, cpus: int) -> None:
        """Make the tunnel through a live network. Errors: :class:`NodeError` if no packet reaches the machine."""
        there = _address(self.table)
        tunnel = self._tunnel(self.device, self.near_mac).format(self.setup.place.network_namespace)
        run(["ip", *tunnel.split(), "local", str(underlay.address), "remote", there, "dev", underlay.name])
        assert self._token is not None
        segment = greeting(self._token, str(underlay.address), there)
        seen = None
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as sender:
            sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, underlay.name.encode())
            sender.bind((str(underlay.address), 0))
            for _ in range(GREETINGS):
                with contextlib.suppress(OSError):
                    sender.sendto(segment, (there, 0))
                time.sleep(GREETING_S)
                if (seen := self.call("meet")) is not None:
                    break
        if seen is None:
            text = f"no packet of {underlay.name} reaches UDP port {UDP_PORT} of {there}"
            raise NodeError(f"{self.name}: {text}: open the port in firewalls, or check the routes of {underlay.name}")
        self.facts |= {
            "address": there,
            "cpus": cpus,
            "tunnel": f"VXLAN {self.number}, UDP port {UDP_PORT}, MTU {self.mtu}, over {underlay.name}",
            "seen_as": f"{seen[0]}, UDP port {seen[1]}",
        }

    def _carry(self, hello: dict[str, Any]) -> None:
        """Make the tunnel through a second SSH connection. Errors: :class:`NodeError`."""
        self.path = f"the SSH connection to {self.table.ssh}"
        near, far = socket.socketpair()
        with near:
            with far:
                self._carrier = self._log_in(f"{_PYTHON} -c '{BOOTSTRAP}'", far)
            near.settimeout(MEETING_S)
            source = Path(tunnel.__file__).read_bytes()
            answer = b""
            with contextlib.suppress(OSError):
                near.sendall(delivery(source, device=self.far_device, mac=self.far_mac, network=hello["network"]))
                answer = near.recv(1)
            if answer != b".":
                raise NodeError(f"{self.name}: no tunnel through a second SSH connection: {self.why()}")
            near.setblocking(False)
            self.run_ip(f"tuntap add {self.device} mode tap")
            self._carried = spawn(
                [sys.executable, "-P", "-m", tunnel.__name__, self.device],
                replace(self.setup.place, binds=(), cgroups=()),
                environment={**os.environ, RUN_VARIABLE: self.setup.run},
                stdin=near.fileno(),
                stderr=self._errors,
            )
        self.facts |= {"cpus": hello["cpus"], "tunnel": f"an SSH connection ({self._reason}), MTU {self.mtu}"}
        self.facts.pop("fragmented", None)

    def sample(self) -> Sample | None:
        if self._carried is not None and self._carried.poll() is not None and self._process is not None:
            kill(self._process)  # the programs end, too, which is reported with `why`
        return super().sample()

    def wait_ready(self) -> None:
        try:
            super().wait_ready()
        except ProgramError as error:
            if self._reason or self.setup.underlay is not None or "tunnel" not in self.facts:
                raise
            self._reason = str(error).partition(": ")[2]
            with contextlib.suppress(ProgramError):
                self.run_ip(f"link delete {self.device}")
            super().wait_ready()
        limits = self.setup.limits
        if limits is not None:
            self.group = RemoteGroup(self)
            self.group.limit(limits.cpus, limits.memory_bytes)

    def why(self) -> str:
        if self._carried is not None and self._carried.poll() is not None:
            return f"{self.path} that carries its packets has ended: {last_line_of(self._errors) or 'no reason given'}"
        end_of(self._process, 0.5)
        return f"ssh {self.table.ssh}: {_reason(last_line_of(self._errors))}"

    def stop(self) -> None:
        super().stop()
        end_of(self._process, CLOSING_S if "machine" in self.facts else 0.5)
        for process in (self._carried, self._carrier):
            end_of(process, 0.0)
        self._errors.close()


_PYTHON = "python3 -I -S"


def _address(table: HostBackend) -> str:
    """Return the IPv4 address of the machine. Errors: :class:`NodeError` without one."""
    done = subprocess.run([*_options(table), "-G", "--", table.ssh], capture_output=True, text=True, check=False)
    name = next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("hostname ")), table.ssh)
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
    except OSError as error:
        raise NodeError(f"{table.ssh}: no IPv4 address of {name}, which a live link needs: {error.strerror}") from None


def _ssh(table: HostBackend, command: str) -> list[str]:
    """Return the command that runs a shell command on the machine as root."""
    script = f'if [ "$(id -u)" = 0 ]; then exec {command}; else exec sudo -n {command}; fi'
    return [*_options(table), "--", table.ssh, f"exec sh -c {shlex.quote(script)}"]


def _options(table: HostBackend) -> list[str]:
    """Return the program with the options that lead to the machine."""
    ssh = _common_options(table)
    for hop in table.jump.split(",") if table.jump else ():
        target = f"ssh://{hop}" if re.fullmatch(r".*:[0-9]+", hop) else hop
        # The outer program expands %h and %p, host and port of the next machine.
        nested = [*(word.replace("%", "%%") for word in ssh), "-W", "[%h]:%p", "--", target]
        ssh = [*_common_options(table), "-o", f"ProxyCommand={shlex.join(nested)}"]
    return ssh if table.port is None else [*ssh, "-p", str(table.port)]


def _common_options(table: HostBackend) -> list[str]:
    """Return the program with the options for the machine and its jump hosts."""
    ssh = ["ssh", "-T", "-e", "none", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]
    ssh += ["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-o", "ControlPath=none"]
    for option in table.options:
        ssh += ["-o", option]
    if table.identity is not None:
        ssh += ["-i", str(table.identity), "-o", "IdentitiesOnly=yes"]
    return ssh


def _reason(line: str | None) -> str:
    """Return why ssh failed, with the remedy if known. line: last line of its output."""
    if line is not None and line.startswith("sudo:"):
        line += "; log in as root, or allow the user sudo without a password (NOPASSWD)"
    return line or "ssh printed nothing"


def path_mtu(address: str) -> int:
    """Return the maximum packet size to an address, as far as this machine knows."""
    version = ip_address(address).version
    family, level, option = socket.AF_INET, socket.IPPROTO_IP, IP_MTU
    if version == 6:
        family, level, option = socket.AF_INET6, socket.IPPROTO_IPV6, IPV6_MTU
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, UDP_PORT))
        return probe.getsockopt(level, option)
