"""Round trips and throughput between a namespace and a node of each kind, without links.

The kinds take turns. A VM and a machine over SSH add their device and a router.

    sudo python benches/node_paths.py [--rounds N] [--kinds KIND,…]
        [--ssh USER@HOST [--port N] [--identity FILE] [--option TEXT]]
"""

from __future__ import annotations

import argparse
import atexit
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from measuring import Figures, interleave, median_figures

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

IMAGE = "localhost/cellbed-bench:1"


def container() -> ContainerBackend:
    """Return a back end with an empty image and this machine's programs mounted."""
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    subprocess.run(["podman", "import", "-", IMAGE], input=empty.getvalue(), check=True, capture_output=True)
    atexit.register(subprocess.run, ["podman", "rmi", "--force", IMAGE], capture_output=True)
    places = [place for place in ("/usr", "/bin", "/lib", "/lib64") if Path(place).exists()]
    mounts = [{"source": place, "target": place, "read_only": True} for place in places]
    return ContainerBackend.model_validate({"kind": "container", "image": IMAGE, "mounts": mounts})


def measure(backend: AnyBackend, folder: Path) -> Figures:
    """Bring up an endpoint with `backend` and a second node, and measure between them. The endpoint has the server."""
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
            found: Figures = json.loads(client.stdout.read())
            client.wait()
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
    parser.add_argument("--ssh")
    parser.add_argument("--port", type=int)
    parser.add_argument("--identity", type=Path)
    parser.add_argument("--option", action="append", default=[])
    given = parser.parse_args()
    kinds: dict[str, Any] = {"namespace": NamespaceBackend(kind="namespace")}
    if "container" in given.kinds:
        kinds["container"] = container()
    if "vm" in given.kinds:
        kinds["vm"] = VmBackend(kind="vm")
    if given.ssh:
        table = {"kind": "host", "ssh": given.ssh, "port": given.port, "options": given.option}
        table["identity"] = str(given.identity) if given.identity else None
        kinds["host"] = HostBackend.model_validate(table)
    with tempfile.TemporaryDirectory() as folder:
        if "container" in kinds:
            measure(kinds["container"], Path(folder))  # the first measurement copies the image
        cases = {kind: partial(measure, backend, Path(folder)) for kind, backend in kinds.items()}
        try:
            results = interleave(cases, given.rounds)
        except CellbedError as error:
            sys.exit(str(error))
    for kind, rounds in results.items():
        found = median_figures(rounds)
        round_trip, rate = 1e6 * found["round_trip_s"], found["bit_rate"] / 1e6
        print(f"{kind:10} ready in {found['ready_s']:5.1f} s, round trip {round_trip:6.0f} µs, {rate:6.0f} Mbit/s")


if __name__ == "__main__":
    main()
