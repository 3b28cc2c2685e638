"""A command without a network, whose name look-ups all reach a server that records them.

``python dns_sink.py NAMES COMMAND…`` as root appends the name of each query to the file NAMES, one per line, from every
network namespace that the command makes. It ends with the exit status of the command and leaves no process behind.
"""

import contextlib
import ctypes
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TextIO

SERVER = "127.0.0.53"
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
_CLONE_NEWNET = 0x40000000


def name_of(query: bytes) -> str:
    """The name that a DNS query asks for (RFC 1035, §4.1)."""
    labels, place = [], 12
    while query[place : place + 1] not in (b"", b"\0"):
        end = place + 1 + query[place]
        labels.append(query[place + 1 : end].decode("latin-1"))
        place = end
    return ".".join(labels)


def serve_datagrams(server: socket.socket, names: TextIO) -> None:
    while True:
        query, client = server.recvfrom(65535)
        names.write(name_of(query) + "\n")
        # No such name, so that no program waits.
        server.sendto(query[:2] + b"\x81\x83" + query[4:], client)


def serve_connections(server: socket.socket, names: TextIO) -> None:
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            names.write(name_of(connection.recv(65535)[2:]) + "\n")


def listen(namespace: str, names: TextIO) -> None:
    """Serve in a network namespace, by its path below /proc, for as long as this process lives."""
    with Path(namespace).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    for kind, serve in ((socket.SOCK_DGRAM, serve_datagrams), (socket.SOCK_STREAM, serve_connections)):
        server = socket.socket(socket.AF_INET, kind)
        server.bind((SERVER, 53))
        if kind == socket.SOCK_STREAM:
            server.listen()
        threading.Thread(target=serve, args=(server, names), daemon=True).start()


def watch(names: TextIO) -> None:
    """Serve in each network namespace as soon as a process is in it."""
    served = set()
    while True:
        for namespace in Path("/proc").glob("[0-9]*/ns/net"):
            # The process can end meanwhile.
            with contextlib.suppress(OSError):
                if (identity := namespace.stat().st_ino) not in served:
                    thread = threading.Thread(target=listen, args=(str(namespace), names), daemon=True)
                    thread.start()
                    thread.join()
                    served.add(identity)
        time.sleep(0.02)


def main() -> int:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with (
        tempfile.NamedTemporaryFile("w", suffix=".conf") as configuration,
        Path(sys.argv[1]).open("a", buffering=1) as names,
    ):
        configuration.write(f"nameserver {SERVER}\n")
        configuration.flush()
        Path(configuration.name).chmod(0o644)
        subprocess.run(["mount", "--bind", configuration.name, "/etc/resolv.conf"], check=True)
        threading.Thread(target=watch, args=(names,), daemon=True).start()
        return subprocess.run(sys.argv[2:], check=False).returncode


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        del sys.argv[1]
        sys.exit(main())
    os.execvp("unshare", [*UNSHARE, sys.executable, __file__, "--inside", *sys.argv[1:]])
