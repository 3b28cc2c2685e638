"""Files by the kernel's TCP over the emulator's links, as :mod:`cellbed.path` has them in virtual time."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence

from emulator_process import EDGE, EmulatorProcess, Stages, line_of_two

PORT = 7010

_SERVE = """
import socket, struct, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[3].encode())
print("ready", flush=True)
chunk = bytes(1 << 16)
while True:
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        while request := connection.recv(200, socket.MSG_WAITALL):
            (left,) = struct.unpack("!Q", request[:8])
            while left:
                left -= connection.send(chunk[:min(left, len(chunk))])
"""

_FETCH = """
import json, socket, struct, sys, time
started, taken = [], []
for size in json.loads(sys.argv[4]):
    time.sleep(0.3)
    began = time.monotonic_ns()
    one = socket.socket()
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, sys.argv[3].encode())
    one.connect((sys.argv[1], int(sys.argv[2])))
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(struct.pack("!Q", size) + bytes(192))
    left, buffer = size, bytearray(1 << 18)
    while left:
        left -= one.recv_into(buffer, min(left, len(buffer)))
    taken.append(time.monotonic_ns() - began)
    started.append(began)
    one.close()
print(json.dumps([started, taken]))
"""


def kernel_downloads(
    uplink: Stages, downlink: Stages, sizes: Sequence[int], control: str = "cubic"
) -> tuple[list[int], list[int]]:
    """When each file was begun, ns since the links' start, and how long it took, ns; on connections of their own."""
    with EmulatorProcess(line_of_two(uplink, downlink)) as emulator:
        emulator.ready()
        zero = time.monotonic_ns()
        assert emulator.command(do="start", at_ns=zero, offset_ns=0) == {"event": "started"}
        command = [sys.executable, "-c", _SERVE, EDGE[4], str(PORT), control]
        with subprocess.Popen(command, preexec_fn=emulator.inside("edge"), stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout.readline() == b"ready\n", "the kernel may lack the congestion control"
                fetch = [sys.executable, "-c", _FETCH, EDGE[4], str(PORT), control, json.dumps(list(sizes))]
                started, taken = json.loads(emulator.run("endpoint", fetch))
            finally:
                server.kill()
        emulator.stop()
    return [begin - zero for begin in started], taken
