"""Container nodes beside namespace nodes: time until they are ready, and the cost of the network path.

    python benches/containers.py [--nodes 20] [--rounds 9]

Needs podman, crun and a static BusyBox, from which it makes an image; as root. Both kinds run the same server program,
in alternating rounds, so that the load of the machine concerns them alike.
"""

from __future__ import annotations

import argparse
import functools
import io
import os
import socket
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable

from cellbed.scenario.nodes import ContainerBackend
from cellbed.testbed.backend import Backend
from cellbed.testbed.process import Place, find, kill
from cellbed.testbed.state import Record
from cellbed.testbed.testbed import Testbed

IMAGE = "localhost/cellbed-bench:1"
TRIPS, BULK_BYTES = 2000, 64 << 20
PORT = 7000


def make_image(busybox: str) -> None:
    """BusyBox alone."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as files:
        files.add(busybox, "bin/busybox")
    subprocess.run(["podman", "import", "-", IMAGE], input=archive.getvalue(), check=True, capture_output=True)


def configuration(names: list[str]) -> dict[str, object]:
    """A client, and nodes called `names`, each with a direct link without delay."""
    vertices: list[dict[str, object]] = [{"name": "tower", "namespace": None}]
    directions = []
    for number, name in enumerate(["client", *names]):
        address = f"100.64.0.{number + 2}/32"
        vertices.append({"name": name, "namespace": "new", "addresses": [address], "routes": ["0.0.0.0/0"]})
        directions += [
            {"name": f"{name}.{way}", "from": source, "to": target, "stages": []}
            for way, source, target in (("up", name, "tower"), ("down", "tower", name))
        ]
    return {
        "namespaces": "auto",
        "vertices": vertices,
        "default_vertex": None,
        "directions": directions,
        "series": None,
        "packet_log": None,
    }


def bed(record: Record, names: list[str], containers: list[str]) -> Testbed:
    """A testbed in which some nodes are containers."""
    table = ContainerBackend.model_validate({"kind": "container", "image": IMAGE})
    return Testbed(configuration(names), record.identifier, backends=dict.fromkeys(containers, table), record=record)


def start_up(count: int) -> tuple[float, float]:
    """Seconds to bring up `count` nodes, as namespaces and as containers."""
    names = [f"node-{number}" for number in range(count)]
    seconds = []
    for containers in ([], names):
        record = Record.create("run")
        began = time.monotonic()
        with bed(record, names, containers):
            seconds.append(time.monotonic() - began)
        record.remove()
    return seconds[0], seconds[1]


def in_place(place: Place, measure: Callable[[], float]) -> float:
    """The result of a function that runs in another process, at a place."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        place.enter()
        os.write(write, str(measure()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return float(text)


def connect(address: str) -> socket.socket:
    while True:
        try:
            connection = socket.create_connection((address, PORT), 5)
        except ConnectionRefusedError:
            time.sleep(0.005)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def round_trip(address: str) -> float:
    """Median time of an echo of a byte, seconds."""
    with connect(address) as connection:
        times = []
        for _ in range(TRIPS):
            began = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def throughput(address: str) -> float:
    """Bit/s of one connection to the node."""
    block = bytes(1 << 20)
    with connect(address) as connection:
        began = time.perf_counter()
        for _ in range(BULK_BYTES // len(block)):
            connection.sendall(block)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        return 8 * BULK_BYTES / (time.perf_counter() - began)


def served(node: Backend, program: str, busybox: str, measure: Callable[[], float], place: Place) -> float:
    server = node.spawn([busybox, "nc", "-l", "-p", str(PORT), "-e", *program.split()])
    try:
        return in_place(place, measure)
    finally:
        kill(server)


def network(rounds: int, busybox: str) -> None:
    kinds = {"namespace": ("100.64.0.3", busybox), "container": ("100.64.0.4", "/bin/busybox")}
    record = Record.create("run")
    with bed(record, list(kinds), ["container"]) as testbed:
        place = testbed.nodes["client"].place
        assert place is not None
        for what, unit, scale, program, measure in (
            ("echo of a byte", "µs", 1e6, "cat", round_trip),
            ("one connection", "Gbit/s", 1e-9, "md5sum", throughput),
        ):
            found: dict[str, list[float]] = {kind: [] for kind in kinds}
            for number in range(rounds):
                for kind in sorted(kinds, reverse=number % 2 == 0):
                    address, path = kinds[kind]
                    words = f"{path} {program}"
                    value = served(testbed.nodes[kind], words, path, functools.partial(measure, address), place)
                    found[kind].append(value * scale)
            ratios = [one / other for one, other in zip(found["container"], found["namespace"], strict=True)]
            medians = ", ".join(f"{kind} {statistics.median(values):.4g} {unit}" for kind, values in found.items())
            print(f"{what}: {medians}; container / namespace: median {statistics.median(ratios):.3f}, ", end="")
            print(f"range {min(ratios):.3f} to {max(ratios):.3f} of {rounds} pairs")
    record.remove()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=20)
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    busybox = find("busybox")
    if busybox is None or find("podman") is None or find("crun") is None:
        sys.exit("needs podman, crun and busybox-static")
    make_image(busybox)
    try:
        start_up(1)  # unpacks the image
        for count in (1, chosen.nodes):
            pairs = [start_up(count) for _ in range(5)]
            namespaces, containers = (statistics.median(each) for each in zip(*pairs, strict=True))
            more = (containers - namespaces) / count
            print(f"{count} nodes: {namespaces:.3f} s as namespaces, {containers:.3f} s as containers, ", end="")
            print(f"{more:.3f} s more each")
        network(chosen.rounds, busybox)
    finally:
        subprocess.run(["podman", "rmi", "--force", IMAGE], capture_output=True, check=False)


if __name__ == "__main__":
    main()
