"""The recorder's server, and an emulated network to record."""

import json
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from emulator_process import EmulatorProcess, Stages, line_of_two
from run_commands import free_port

RECORD = [sys.executable, "-m", "cellbed", "record"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    subprocess.run([*RECORD, "secret", str(path)], check=True, capture_output=True)
    return path


@contextmanager
def serving(secret: Path, listen: str = "127.0.0.1:0", **options: Any) -> Iterator[str]:
    """A server; its address."""
    command = [*RECORD, "serve", "--secret", str(secret), "--listen", listen, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        listening = json.loads(process.stdout.readline())
        assert listening["event"] == "listening"
        yield listening["address"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=200)


@contextmanager
def network(uplink: Stages, downlink: Stages, folder: Path) -> Iterator[EmulatorProcess]:
    with EmulatorProcess(line_of_two(uplink, downlink, folder)) as emulator:
        emulator.ready()
        yield emulator


class Relay:
    """A translator of addresses before a server, for UDP and TCP, that can pause and change its own address."""

    def __init__(self, server: str) -> None:
        host, port = server.split(":")
        self.server, self.up, self.paused, self.ended = (host, int(port)), None, False, False
        self.udp, self.tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
        here = "127.0.0.1", free_port()
        self.udp.bind(here)
        self.address = "{}:{}".format(*here)
        self.tcp.bind(here)
        self.tcp.listen()
        self.pairs: dict[socket.socket, socket.socket] = {}
        self.client: Any = None
        self.rebind()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        self.thread.join()

    def rebind(self) -> None:
        """Forget all ports: the server sees another address, and connections go nowhere."""
        up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        up.connect(self.server)
        self.pairs, self.up = {}, up

    def _run(self) -> None:
        while not self.ended:
            streams = [] if self.paused else [self.tcp, *self.pairs]
            ready = select.select([self.udp, self.up, *streams], [], [], 0.01)[0]
            with suppress(OSError, KeyError):
                for each in ready:
                    self._pass_on(each)

    def _pass_on(self, each: socket.socket) -> None:
        if each is self.tcp:
            client, server = self.tcp.accept()[0], socket.create_connection(self.server)
            self.pairs |= {client: server, server: client}
        elif each is self.udp:
            packet, self.client = self.udp.recvfrom(2048)
            if not self.paused:
                self.up.send(packet)
        elif each is self.up:
            packet = self.up.recv(2048)
            if not self.paused:
                self.udp.sendto(packet, self.client)
        else:
            other, data = self.pairs[each], each.recv(65536)
            other.sendall(data)
            if not data:
                del self.pairs[each], self.pairs[other]
                other.close()
