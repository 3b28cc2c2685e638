"""The link of a shell: what the command line asks for, as directions of the emulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cellbed.scenario.fields import Capacity
from cellbed.shell.addresses import Pair
from cellbed.testbed.plan import Direction, Way

INSIDE = "inside"
OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class ShellLink:
    """What the two directions of a shell's link do.

    uplink, downlink: capacity seen from the command. delay_ns: one way, each direction. loss: probability, each
    direction. queue: the bottleneck queue as the emulator takes it. looped: whether traces begin anew at their end.
    offset_ns: where in the traces to begin. seed: of the random losses.
    """

    uplink: Capacity
    downlink: Capacity
    delay_ns: int = 0
    loss: float = 0.0
    queue: dict[str, Any] | None = None
    looped: bool = True
    offset_ns: int = 0
    seed: int = 1

    @property
    def directions(self) -> tuple[Direction, Direction]:
        """Uplink and downlink."""
        return (
            self._direction("uplink", INSIDE, OUTSIDE, self.uplink, 2 * self.seed),
            self._direction("downlink", OUTSIDE, INSIDE, self.downlink, 2 * self.seed + 1),
        )

    def check(self) -> None:
        """Read the traces now, so that a malformed one is refused before anything is set up.

        Errors: :class:`cellbed.traces.TraceError`.
        """
        from cellbed.traces import TraceSource

        for capacity in (self.uplink, self.downlink):
            if isinstance(capacity, TraceSource):
                _ = capacity.trace

    def emulator_config(self, pair: Pair, *, outside: str, ipv6_way_out: bool) -> dict[str, Any]:
        """The configuration line for the emulator.

        outside: ``"current"`` where the outer end lies in the caller's network namespace, ``"new"`` in one of its own.
        ipv6_way_out: whether IPv6 leads further than the gateway.
        """
        forwarding = {"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"} if outside == "new" else {}
        return {
            "namespaces": "auto",
            "vertices": [
                {
                    "name": INSIDE,
                    "namespace": "new",
                    "addresses": [f"{pair.inside}/32", f"{pair.inside_ipv6}/128"],
                    "routes": ["0.0.0.0/0", "::/0" if ipv6_way_out else f"{pair.gateway_ipv6}/128"],
                    "sysctls": {},
                },
                {
                    "name": OUTSIDE,
                    "namespace": outside,
                    "addresses": [f"{pair.gateway}/32", f"{pair.gateway_ipv6}/128"],
                    "routes": [f"{pair.inside}/32", f"{pair.inside_ipv6}/128"],
                    "sysctls": forwarding,
                },
            ],
            "default_vertex": OUTSIDE,
            "directions": [direction.config for direction in self.directions],
            "series": None,
            "packet_log": None,
        }

    def _direction(self, way: Way, source: str, target: str, capacity: Capacity, loss_seed: int) -> Direction:
        return Direction(
            name=way,
            link="shell",
            way=way,
            source=source,
            target=target,
            capacity=capacity,
            delay_ns=self.delay_ns,
            loss=self.loss,
            loss_seed=loss_seed,
            queue=self.queue,
            offset_ns=self.offset_ns,
            looped=self.looped,
        )
