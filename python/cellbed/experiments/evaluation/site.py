"""A link with a server behind it, in real time: brought up for one application on one network, and gone after it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cellbed.experiments.evaluation.applications.application import Application, Measured
from cellbed.experiments.evaluation.network import Network, Stages
from cellbed.testbed.machine.process import find, run
from cellbed.testbed.programs.environment import host_congestion_control
from cellbed.testbed.programs.supervise import Supervisor
from cellbed.testbed.testbed import Testbed

NEAR, FAR = "near", "far"
ADDRESSES = {NEAR: "100.64.0.2", FAR: "100.64.64.2"}
CONGESTION_CONTROL = "cubic"
"""Linux's default; the host's may differ."""
SILENCE_S = 300.0
"""How long a client may send no event: a file may take its time on a weak link."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an application runs in beside its network.

    mark: the evaluation's identifier in the registry of live runs, by which `cellbed clean` finds what a killed one
    left. scratch: folder for logs, pages and the browser's files.
    """

    mark: str
    scratch: Path


@dataclass(frozen=True, slots=True)
class Host:
    """A node of the evaluation, as programs know it."""

    name: str
    node_class: str
    ipv4: IPv4Address
    cpus: float = float("inf")


def perform(application: Application, network: Network, seed: int, around: Surroundings) -> list[Measured]:
    """Run an application from the network's time zero on. seed: of the order and the pauses within it.

    Errors: :class:`CellbedError` with the last line that a program wrote, and the emulator's.
    """
    near, far = (Host(name, name, IPv4Address(address)) for name, address in ADDRESSES.items())
    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(Testbed(configuration(network), around.mark))
        for node in ADDRESSES:
            _choose_congestion_control(bed, node)
        supervisor = Supervisor(around.scratch, around.mark)
        stack.callback(supervisor.stop)
        (client,) = supervisor.start_all(application.processes(near, far, around.scratch, seed), bed.nodes)
        t0_ns = time.monotonic_ns()
        bed.emulator.restart_links(t0_ns)
        end_ns = t0_ns + round(application.length_s * 1e9)
        client.say({"t0_ns": t0_ns, "end_ns": end_ns, "drain_ns": round(SILENCE_S * 1e9)})
        samples: list[Measured] = []
        while (event := supervisor.next_event(client, SILENCE_S)).get("event") != "done":
            if event.get("event") == "sample":
                samples.append((event["measure"], event["value"]))
        return samples


def configuration(network: Network) -> dict[str, Any]:
    """Return the emulator's configuration: two nodes with the network between them."""

    def node(name: str) -> dict[str, Any]:
        # What one connection learnt of the link is not to help the next one.
        sysctls = {"net.ipv4.tcp_no_metrics_save": "1"}
        return {
            "name": name,
            "namespace": "new",
            "addresses": [f"{ADDRESSES[name]}/32"],
            "routes": ["0.0.0.0/0"],
            "sysctls": sysctls,
        }

    def direction(name: str, source: str, target: str, stages: Stages) -> dict[str, Any]:
        return {"name": name, "from": source, "to": target, "stages": [dict(stage) for stage in stages]}

    return {
        "namespaces": "auto",
        "vertices": [node(NEAR), node(FAR)],
        "default_vertex": None,
        "directions": [
            direction("uplink", NEAR, FAR, network.uplink),
            direction("downlink", FAR, NEAR, network.downlink),
        ],
        "series": None,
        "packet_log": None,
    }


def congestion_control() -> str:
    """Return the congestion control of all connections: cubic, unless this machine lacks what it takes to choose it."""
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="utf-8").split()
    chosen = find("ip") is not None and CONGESTION_CONTROL in available
    return CONGESTION_CONTROL if chosen else host_congestion_control()


def _choose_congestion_control(bed: Testbed, node: str) -> None:
    # A socket option or a setting of the namespace must be allowed on the host for all users; a route need not.
    name = congestion_control()
    if name != host_congestion_control():
        route = ["ip", "route", "replace", "default", "dev", bed.emulator.interface(node), "congctl", name]
        run([str(find("ip")), *route[1:]], place=bed.nodes[node].place)
