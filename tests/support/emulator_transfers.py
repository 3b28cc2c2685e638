"""Bytes over TCP between two nodes of an emulator."""

import subprocess
import sys

from emulator_process import EDGE, EmulatorProcess

#: Takes one connection and all it sends; prints how much, and whether it equals the bytes of `SEND`.
RECEIVE = """
import hashlib, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.create_server((sys.argv[1], 40007), family=family) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    digest, count = hashlib.sha256(), 0
    while data := connection.recv(1 << 20):
        digest.update(data)
        count += len(data)
    print(count, digest.hexdigest())
"""
SEND = """
import hashlib, random, socket, sys
data = random.Random(1).randbytes(int(sys.argv[2]))
with socket.create_connection((sys.argv[1], 40007), timeout=200) as connection:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)
print(len(data), hashlib.sha256(data).hexdigest())
"""


def transfer(emulator: EmulatorProcess, size: int, family: int = 4) -> None:
    """Send `size` bytes from the endpoint to the edge and see that they are the same there."""
    server = subprocess.Popen(
        [sys.executable, "-c", RECEIVE, EDGE[family]],
        preexec_fn=emulator.inside("edge"),
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout.readline() == "ready\n"
        sent = emulator.run("endpoint", [sys.executable, "-c", SEND, EDGE[family], str(size)])
        assert server.stdout.readline() == sent
