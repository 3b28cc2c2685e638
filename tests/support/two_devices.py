"""A machine with two network devices, each with a way of its own to a server, in namespaces of their own.

Each way is a router between the device and the server. That of the second device is a bottleneck both ways with a
queue of seconds: it stands in the router, as that of a modem stands behind it, and not in the machine itself.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

SERVER = "10.77.0.1"
DEVICES = ("device0", "device1")


class Namespaces:
    """Namespaces by name, until the ``with`` block is left."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._holders: dict[str, int] = {}

    def add(self, name: str, within: str | None = None) -> None:
        create = ["unshare", "--net"] if within else ["unshare", "--map-root-user", "--net"]
        command = [*(self.inside(within) if within else []), *create, "sh", "-c", "echo made; exec cat"]
        holder = self._stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self._stack.callback(holder.kill)
        if holder.stdout.readline() != "made\n":
            pytest.skip("this machine lets this user make no network namespaces")
        self._holders[name] = holder.pid

    def inside(self, name: str) -> list[str]:
        """What to put before a command so that it runs in a namespace."""
        return ["nsenter", "--user", "--preserve-credentials", "--net", "--target", str(self._holders[name])]

    def run(self, name: str, *arguments: str) -> None:
        done = subprocess.run([*self.inside(name), *arguments], capture_output=True, text=True, check=False)
        if "qdisc kind is unknown" in done.stderr or "Unknown device type" in done.stderr:
            pytest.skip(f"this kernel cannot: {' '.join(arguments)}")
        assert done.returncode == 0, f"{arguments}: {done.stderr}"

    def connect(self, one: str, its: str, address: str, other: str, others: str, other_address: str) -> None:
        peer = ["peer", "name", others, "netns", str(self._holders[other])]
        self.run(one, "ip", "link", "add", "name", its, "type", "veth", *peer)
        for name, device, own in ((one, its, address), (other, others, other_address)):
            self.run(name, "ip", "address", "add", f"{own}/24", "dev", device)
            self.run(name, "ip", "link", "set", device, "up")


@contextmanager
def two_devices(uplink: str, downlink: str, queue: str = "4mb") -> Iterator[Namespaces]:
    """Namespaces ``client`` and ``server``; the second device has the two rates, as `tc` writes them."""
    for program in ("ip", "tc", "unshare", "nsenter"):
        if shutil.which(program) is None:
            pytest.skip(f"needs the program {program}")
    with ExitStack() as stack:
        made = Namespaces(stack)
        made.add("client")
        for name in ("router0", "router1", "server"):
            made.add(name, "client")
        for name in ("client", "router0", "router1", "server"):
            made.run(name, "ip", "link", "set", "lo", "up")
            # Answers come by the device that was asked by, whatever the best route is.
            made.run(name, "sh", "-c", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")
        made.run("server", "ip", "address", "add", f"{SERVER}/32", "dev", "lo")
        for number, device in enumerate(DEVICES):
            router, near, far = f"router{number}", f"10.77.{10 + number}", f"10.77.{20 + number}"
            made.connect("client", device, f"{near}.2", router, "near", f"{near}.1")
            made.connect(router, "far", f"{far}.1", "server", f"way{number}", f"{far}.2")
            made.run(router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
            made.run(router, "ip", "route", "add", SERVER, "via", f"{far}.2")
            made.run("server", "ip", "route", "add", f"{near}.0/24", "via", f"{far}.1")
            metric = ["metric", str(100 + number)]
            made.run("client", "ip", "route", "add", SERVER, "via", f"{near}.1", "dev", device, *metric)
        for device, rate in (("far", uplink), ("near", downlink)):
            bucket = ["rate", rate, "burst", "5kb", "limit", queue]
            made.run("router1", "tc", "qdisc", "add", "dev", device, "root", "tbf", *bucket)
        yield made
