"""What the path to each kind of node costs: round trips and throughput between a namespace and a node, without links.

The loopback of the node shows what its own TCP costs, without any path: under TCG a VM executes it by translation.

The kinds take turns, so that a busy machine affects all. A VM and a machine over SSH add their device and a router.
``--nodes N`` brings up N nodes instead, as namespaces and as containers.

    sudo python benches/node_paths.py [--rounds N] [--kinds KIND,…] [--nodes N]
        [--ssh USER@HOST [--port N] [--identity FILE] [--option TEXT]]
"""

from __future__ import annotations

import argparse
import atexit
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from cellbed.scenario import parse
from cellbed.scenario.nodes import AnyBackend, ContainerBackend, HostBackend, NamespaceBackend, VmBackend
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.state import Record
from cellbed.testbed.plan import make_plan
from cellbed.testbed.testbed import Testbed

SCENARIO = """
name = "paths"
duration = "1 s"
[nodes.endpoint]
cpus = 1.0
memory = "256 MiB"
[nodes.edge]
cpus = 1.0
memory = "256 MiB"
[links.mobile]
up = "unlimited"
down = "unlimited"
base_delay = "0 ms"
[links.core]
edge = "0 ms"
"""
SERVER = """
import socket, threading
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("", 5000))
def answer():
    while True:
        data, peer = echo.recvfrom(2048)
        echo.sendto(data, peer)
threading.Thread(target=answer, daemon=True).start()
with socket.create_server(("", 5001)) as server:
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            while connection.recv(1 << 20):
                pass
            connection.sendall(b".")
"""
CLIENT = """
import json, socket, sys, time
address = sys.argv[1]
probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probe.settimeout(5)
times = []
for _ in range(300):
    began = time.perf_counter()
    probe.sendto(bytes(64), (address, 5000))
    probe.recv(2048)
    times.append(time.perf_counter() - began)
    time.sleep(0.001)
size = 30_000_000
with socket.create_connection((address, 5001)) as connection:
    began = time.perf_counter()
    for _ in range(size // 1_000_000):
        connection.sendall(bytes(1_000_000))
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
    took = time.perf_counter() - began
print(json.dumps({"round_trip_s": sorted(times)[len(times) // 2], "bit_rate": size * 8 / took}))
"""


LOOPBACK = """
import json, socket, threading, time
def receive():
    with server.accept()[0] as connection:
        while connection.recv(1 << 20):
            pass
        connection.sendall(b".")
with socket.create_server(("127.0.0.1", 0)) as server:
    threading.Thread(target=receive, daemon=True).start()
    with socket.create_connection(server.getsockname()) as connection:
        began = time.perf_counter()
        for _ in range(30):
            connection.sendall(bytes(1_000_000))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
        took = time.perf_counter() - began
print(json.dumps({"loopback_bit_rate": 30_000_000 * 8 / took}))
"""
IMAGE = "localhost/cellbed-bench:1"


def container() -> ContainerBackend:
    """An empty image that has this machine's programs."""
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    subprocess.run(["podman", "import", "-", IMAGE], input=empty.getvalue(), check=True, capture_output=True)
    atexit.register(subprocess.run, ["podman", "rmi", "--force", IMAGE], capture_output=True)
    places = [place for place in ("/usr", "/bin", "/lib", "/lib64") if Path(place).exists()]
    mounts = [{"source": place, "target": place, "read_only": True} for place in places]
    return ContainerBackend.model_validate({"kind": "container", "image": IMAGE, "mounts": mounts})


def start(backend: AnyBackend, count: int) -> float:
    """Seconds until `count` nodes of a kind are ready, and the emulator with them."""
    text = SCENARIO.replace(
        'cpus = 1.0\nmemory = "256 MiB"\n[nodes.edge]', f'cpus = 1.0\nmemory = "256 MiB"\ncount = {count}\n[nodes.edge]'
    )
    plan = make_plan(parse(text, source="paths.toml", folder=Path()))
    backends = {node.name: backend for node in plan.nodes if node.group == "endpoint"}
    record = Record.create("run")
    began = time.monotonic()
    try:
        with Testbed(plan.emulator_config(), record.identifier, backends=backends, record=record):
            return time.monotonic() - began
    finally:
        record.remove()


def measure(backend: AnyBackend, folder: Path) -> dict[str, float]:
    """Bring up two nodes, the endpoint of this kind, and measure between them. The server is on the endpoint."""
    scenario = parse(SCENARIO, source="paths.toml", folder=folder)
    plan = make_plan(
        scenario.model_copy(
            update={
                "nodes": {
                    **scenario.nodes,
                    "endpoint": scenario.nodes["endpoint"].model_copy(update={"backend": backend}),
                }
            }
        )
    )
    record = Record.create("run")
    began = time.monotonic()
    try:
        backends = {node.name: node.backend for node in plan.nodes}
        with Testbed(plan.emulator_config(), record.identifier, backends=backends, record=record) as bed:
            ready_s = time.monotonic() - began
            server = bed.nodes["endpoint-0"].spawn(
                ["python3", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert server.stdout is not None
            server.stdout.readline()
            address = str(plan.node("endpoint-0").ipv4)
            client = bed.nodes["edge-0"].spawn([sys.executable, "-c", CLIENT, address], stdout=subprocess.PIPE)
            assert client.stdout is not None
            found: dict[str, float] = json.loads(client.stdout.read())
            client.wait()
            loopback = bed.nodes["endpoint-0"].spawn(["python3", "-c", LOOPBACK], stdout=subprocess.PIPE)
            assert loopback.stdout is not None
            found |= json.loads(loopback.stdout.read())
            loopback.wait()
            server.kill()
            server.wait()
    finally:
        record.remove()
    return {"ready_s": ready_s, **found}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", default="container,vm", type=lambda text: text.split(","))
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--ssh")
    parser.add_argument("--port", type=int)
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    kinds: dict[str, Any] = {"namespace": NamespaceBackend(kind="namespace")}
    if "container" in given.kinds:
        kinds["container"] = container()
        start(kinds["container"], 1)  # copies the image
    if given.nodes:
        for kind, backend in kinds.items():
            took = statistics.median(start(backend, given.nodes) for _ in range(given.rounds))
            print(f"{kind:10} {given.nodes} nodes ready in {took:.2f} s")
        return
    if "vm" in given.kinds:
        kinds["vm"] = VmBackend(kind="vm")
    if given.ssh:
        table = {"kind": "host", "ssh": given.ssh, "port": given.port, "options": given.option}
        table["identity"] = str(given.identity) if given.identity else None
        kinds["host"] = HostBackend.model_validate(table)
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            for kind, backend in kinds.items():
                try:
                    results[kind].append(measure(backend, Path(folder)))
                except CellbedError as error:
                    sys.exit(f"{kind}: {error}")
    medians = {
        kind: {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        for kind, rounds in results.items()
    }
    if given.json:
        print(json.dumps(medians))
        return
    for kind, found in medians.items():
        round_trip, rate = 1e6 * found["round_trip_s"], found["bit_rate"] / 1e6
        own = found["loopback_bit_rate"] / 1e6
        figures = f"round trip {round_trip:6.0f} µs, {rate:6.0f} Mbit/s, loopback {own:6.0f} Mbit/s"
        print(f"{kind:10} ready in {found['ready_s']:5.1f} s, {figures}")


if __name__ == "__main__":
    main()
