"""Tunnels through SSH connections: machines behind jump hosts and address translation, and frames of hostile ends."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_text import many
from cellbed.scenario.nodes import HostBackend
from cellbed.support.errors import CellbedError
from cellbed.testbed.nodes.host import HostNode
from cellbed_node.processes import kill
from cellbed_node.tunnel import BACKLOG, LEAST, LENGTH, MOST, BrokenTunnelError, Tunnel
from in_process import cellbed
from remote_world import (
    FORWARDED,
    HIDDEN,
    MACHINE,
    NODE,
    PEER,
    PORT,
    Machine,
    hidden,
    leftovers,
    machine,
    node,
    open_bed,
    output,
    until,
)
from scenario_text import refusal, to_toml

FRONT = f"root@{MACHINE}:{PORT}"
TRANSLATED = {"ssh": f"root@{MACHINE}", "port": FORWARDED}


class Ends:
    """A tunnel whose device is a socket that keeps frames apart, and the other ends of device and stream."""

    def __init__(self) -> None:
        self.device, near = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stream, far = socket.socketpair()
        self._sockets = (self.device, near, self.stream, far)
        self.device.setblocking(False)
        self.tunnel = Tunnel(near.fileno(), far.fileno(), far.fileno())

    def __enter__(self) -> "Ends":
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            each.close()

    def frames(self) -> list[bytes]:
        """The frames that the device has now."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while frame := self.device.recv(4096):
                found.append(frame)
        return found


FRAMES = st.lists(st.integers(LEAST, MOST).map(bytes), max_size=20)


@many
@given(frames=FRAMES, cuts=st.lists(st.integers(1, 4000), min_size=1, max_size=9))
def test_frames_arrive_whole_and_in_order_however_the_stream_is_cut(frames: list[bytes], cuts: list[int]) -> None:
    content = b"".join(LENGTH.pack(len(each)) + each for each in frames)
    found = []
    with Ends() as ends:
        while content:
            cut = cuts[0]
            cuts = [*cuts[1:], cut]
            ends.stream.sendall(content[:cut])
            content = content[cut:]
            assert ends.tunnel.turn(0)
            found += ends.frames()
    assert found == frames


@many
@given(frames=FRAMES)
def test_frames_of_the_device_are_sent_with_their_lengths(frames: list[bytes]) -> None:
    with Ends() as ends:
        for frame in frames:
            ends.device.send(frame)
        ends.device.send(bytes(MOST + 1))  # too large for the other end
        expected = b"".join(LENGTH.pack(len(each)) + each for each in frames)
        ends.stream.setblocking(False)
        found = b""
        for _ in range(3):
            ends.tunnel.turn(0)
            with contextlib.suppress(BlockingIOError):
                found += ends.stream.recv(1 << 20)
        assert found == expected


@many
@given(content=st.binary(max_size=5000))
def test_a_hostile_end_sends_frames_or_ends_the_tunnel(content: bytes) -> None:
    with Ends() as ends:
        ends.stream.sendall(content)
        with contextlib.suppress(BrokenTunnelError):
            ends.tunnel.turn(0)
        assert all(LEAST <= len(frame) <= MOST for frame in ends.frames())


def test_an_end_that_reads_nothing_stops_the_device_and_not_more() -> None:
    with Ends() as ends:
        sent = 0
        while sent < 1000:
            try:
                ends.device.send(bytes(MOST))
            except BlockingIOError:
                before = sent
                for _ in range(50):
                    ends.tunnel.turn(0)
                with contextlib.suppress(BlockingIOError):
                    ends.device.send(bytes(MOST))
                    sent += 1
                if sent == before:
                    break
            sent += 1
        assert 0 < sent < 1000
        assert len(ends.tunnel._outgoing) < BACKLOG + 2 * MOST


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine with an SSH server, in front of another one."""
    with machine(tmp_path_factory.mktemp("front")) as found:
        yield found


@pytest.fixture(scope="module")
def behind(front: Machine) -> Iterator[Machine]:
    """The machine that only the one in front reaches."""
    with hidden(front) as found:
        yield found
    assert until(lambda: not leftovers()), leftovers()  # of other tests, too


SERVER = """
import socket
with socket.create_server(("", 5000), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    print("ready", flush=True)
    for _ in range(2):
        connection, peer = server.accept()
        with connection:
            connection.sendall(bytes(2_000_000))
            size = 0
            while data := connection.recv(65536):
                size += len(data)
            print(peer[0], size, flush=True)
"""
CLIENT = """
import socket
for address in ("edge-0", "fd63:656c:6c62:1::2"):
    with socket.create_connection((address, 5000), 100) as connection:
        left = 2_000_000
        while left:
            left -= len(connection.recv(65536))
        connection.sendall(bytes(2_000_000))
"""
FILES = """
import http.server, socketserver
socketserver.ThreadingTCPServer(("", 8080), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
WAYS = {
    "jump": ({"jump": FRONT}, "an SSH connection (jump host), MTU 1500"),
    "hops": ({"jump": f"{FRONT},root@{HIDDEN}:{PORT}"}, "an SSH connection (jump host), MTU 1500"),
    "nat": ({**TRANSLATED, "nat": True}, "an SSH connection (address translation), MTU 1500"),
    "found": (TRANSLATED, "an SSH connection (no packets reach this machine through the tunnel"),
}


@pytest.mark.needs_tun
@pytest.mark.parametrize("way", ["jump", pytest.param("hops", marks=pytest.mark.slow), "nat", "found"])
def test_packets_cross_the_ssh_connection_to_a_hidden_machine(behind: Machine, tmp_path: Path, way: str) -> None:
    keys, fact = WAYS[way]
    with open_bed(behind.backend(**keys), tmp_path) as bed:
        assert node(bed).facts["tunnel"].startswith(fact)
        process = bed.nodes[PEER].spawn([sys.executable, "-c", SERVER], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"ready\n"
        output(bed, NODE, "python3", "-c", CLIENT)
        assert process.communicate()[0] == b"::ffff:100.64.0.2 2000000\nfd63:656c:6c62::2 2000000\n"


@pytest.mark.needs_tun
def test_a_lost_tunnel_ends_the_node_with_one_error(behind: Machine, tmp_path: Path) -> None:
    with open_bed(behind.backend(jump=FRONT), tmp_path) as bed:
        at = node(bed)
        assert isinstance(at, HostNode)
        waiting = at.spawn(["sleep", "1000"])
        assert at._carrier is not None
        kill(at._carrier)
        assert until(lambda: at.sample() is None)
        with pytest.raises(CellbedError, match=r"phone-0 cannot be reached: the SSH connection to root@.* has ended"):
            at.call("limit", cpus=None, memory=None)
        assert waiting.wait(100) == 255


def test_a_jump_host_that_refuses_is_one_sentence(behind: Machine, tmp_path: Path) -> None:
    table = behind.backend(jump=f"nobody@{MACHINE}:{PORT}")
    ((key, problem),) = HostNode.obstacles(table, running=True)
    assert key == "ssh"
    assert problem.startswith("cannot be used: ")


@pytest.mark.needs_tun
def test_report_of_a_run_names_the_way_of_the_packets(behind: Machine, tmp_path: Path) -> None:
    backend = to_toml(behind.backend(jump=FRONT).model_dump(mode="json", exclude_none=True))
    (tmp_path / "body").write_text("over the jump host")
    served = {"on": "cloud", "command": ["python3", "-c", FILES], "ready": {"port": 8080}, "copy_in": {"body": "body"}}
    (tmp_path / "jump.toml").write_text(f"""
name = "jump"
duration = "3 s"
nodes.endpoint = {{ cpus = 0.5, memory = "128 MiB" }}
nodes.cloud = {{ cpus = 0.5, memory = "128 MiB", backend = {backend} }}
links.mobile = {{ up = "5 Mbit/s", down = "5 Mbit/s", base_delay = "20 ms" }}
links.core.cloud = "0 s"
apps.web = {{ kind = "http", url = "http://cloud:8080/body", rate = "5 /s", server = {to_toml(served)} }}
""")
    done = cellbed("run", str(tmp_path / "jump.toml"), "--out", str(tmp_path), status=0)
    assert "packets of cloud-0 cross an SSH connection (jump host), MTU 1500" in " ".join(done.stdout.split())
    (run,) = tmp_path.glob("jump-*")
    requests = pl.read_parquet(run / "requests.parquet")
    assert set(requests["status"]) == {"ok"}
    assert requests["latency_s"].min() >= 0.04  # type: ignore[operator]
    assert json.loads((run / "run.json").read_text())["nodes"][-1]["facts"]["tunnel"].startswith("an SSH connection")


@pytest.mark.parametrize("jump", ["", "-oProxyCommand=x", "a b", "a,", "a,-b"])
def test_jump_hosts_that_ssh_would_take_as_options_are_refused(jump: str) -> None:
    with pytest.raises(ValueError, match="jump"):
        HostBackend.model_validate({"kind": "host", "ssh": "pi@192.0.2.7", "jump": jump})


def test_a_live_link_needs_datagrams(tmp_path: Path) -> None:
    text = """
name = "live"
duration = "1 s"
nodes.endpoint = { cpus = 0.5, memory = "128 MiB" }
nodes.cloud = { cpus = 0.5, memory = "128 MiB", backend = { kind = "host", ssh = "pi@192.0.2.7", nat = true } }
links.mobile = { kind = "live", interface = "usb0" }
"""
    assert "nodes.cloud.backend.nat: a live link sends datagrams" in refusal(text, tmp_path)
