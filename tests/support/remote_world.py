"""Testbeds with a node behind its namespace: a VM, or a machine over SSH, which is another namespace of this one."""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from cellbed.scenario.nodes import HostBackend
from cellbed.testbed.machine.state import Record
from cellbed.testbed.nodes import vm_image
from cellbed.testbed.nodes.backend import Limits
from cellbed.testbed.nodes.remote import RemoteNode
from cellbed.testbed.nodes.vm import QEMU
from cellbed.testbed.testbed import Testbed
from scenario_text import to_toml

NODE, PEER = "phone-0", "edge-0"
DISK = 8 << 20
LIMITS = Limits(cpus=0.5, memory_bytes=128 << 20)
NETWORK = ip_network((int(ip_address("198.18.0.0")) + os.getpid() % 32768 * 4, 30))
"""Between this machine and the one over SSH: another one for each process, since several suites may run at a time."""
MACHINE = str(NETWORK[2])
PORT = "2222"
HIDDEN, GATEWAY = "198.51.100.2", "198.51.100.1"
"""Of a machine behind another one, and the other one's address there."""
FORWARDED = 2223
"""Port of the machine in front; address translation leads from it to the hidden one."""
USERS = ("pi:x:4242:4242::/tmp:/bin/sh", "guest:x:4243:4243::/tmp:/bin/sh")


def configuration() -> dict[str, Any]:
    """Of an emulator: a node behind its namespace and a peer, joined by a link without effect."""
    everything = ["0.0.0.0/0", "::/0"]
    node = {
        "name": NODE,
        "namespace": "new",
        "addresses": ["100.64.192.2/32", "fd63:656c:6c62:3::2/128"],
        "behind": ["100.64.0.2/32", "fd63:656c:6c62::2/128"],
        "routes": everything,
        "sysctls": {"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"},
    }
    peer = {
        "name": PEER,
        "namespace": "new",
        "addresses": ["100.64.64.2/32", "fd63:656c:6c62:1::2/128"],
        "routes": everything,
    }
    ways = [{"name": f"{a}-{b}", "from": a, "to": b, "stages": []} for a, b in ((NODE, PEER), (PEER, NODE))]
    return {
        "namespaces": "auto",
        "vertices": [node, peer],
        "default_vertex": None,
        "directions": ways,
        "series": None,
        "packet_log": None,
    }


@contextmanager
def open_bed(backend: Any, folder: Path, limits: Limits | None = LIMITS) -> Iterator[Testbed]:
    """A testbed in which the node has this back end."""
    hosts = folder / f"hosts-{secrets.token_hex(4)}"
    hosts.write_text(f"127.0.0.1 localhost\n100.64.64.2 {PEER}\n")
    record = Record.create("run")
    try:
        with Testbed(
            configuration(),
            record.identifier,
            limits={NODE: limits} if limits is not None else {},
            backends={NODE: backend},
            disks={NODE: DISK},
            record=record,
            binds=((str(hosts), "/etc/hosts"),),
        ) as bed:
            yield bed
    finally:
        record.remove()


def node(bed: Testbed) -> RemoteNode:
    """The node of such a testbed."""
    found = bed.nodes[NODE]
    assert isinstance(found, RemoteNode)
    return found


def output(bed: Testbed, name: str, *command: str) -> str:
    """What a command prints on a node, where it succeeds."""
    process = bed.nodes[name].spawn(list(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert isinstance(process, subprocess.Popen)
    printed, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return str(printed.decode())


def leftovers() -> list[str]:
    """What agents on hosts leave if they do not remove it; those that still run may belong to other tests."""
    groups = [*Path("/sys/fs/cgroup").glob("*/cellbed-host-*"), *Path("/sys/fs/cgroup").glob("cellbed-host-*")]
    agents = [(path, path.name.rsplit("-", 1)[1]) for path in groups]
    agents += [(path, path.name.split("-")[2]) for path in Path(tempfile.gettempdir()).glob("cellbed-host-*")]
    devices = [path for path in Path("/sys/class/net").iterdir() if path.name in ("tunnel0", "cellbed0", "tap0")]
    return [str(path) for path, process in agents if not Path("/proc", process).exists()] + list(map(str, devices))


@dataclass(frozen=True)
class Machine:
    """A machine with an SSH server: a network namespace with a process that holds it."""

    folder: Path
    process: int
    address: str = MACHINE

    def backend(self, **keys: Any) -> HostBackend:
        """The back end that reaches it."""
        table = {
            "kind": "host",
            "ssh": f"root@{self.address}",
            "port": int(PORT),
            "identity": str(self.folder / "user"),
            "options": [f"UserKnownHostsFile={self.folder / 'known'}"],
        }
        return HostBackend.model_validate(table | keys)

    @property
    def toml(self) -> str:
        """The back end as TOML on one line."""
        return to_toml(self.backend().model_dump(mode="json", exclude_none=True))

    def run(self, *command: str, text: str = "") -> None:
        """Run a command in its network."""
        words = ["nsenter", "--net", "--target", str(self.process), *command]
        subprocess.run(words, input=text, text=True, check=True)


@contextmanager
def hidden(front: Machine) -> Iterator[Machine]:
    """A machine that only the one in front reaches, with the same keys. Address translation leads from a port of that
    one to its SSH server, and from it to everything."""
    if shutil.which("nft") is None:
        pytest.skip("nft is missing: apt install nftables")
    translation = f"""table ip translation {{
        chain in {{ type nat hook prerouting priority -100; tcp dport {FORWARDED} dnat to {HIDDEN}:{PORT}; }}
        chain out {{ type nat hook postrouting priority 100; masquerade; }}
    }}"""
    with machine(front.folder, HIDDEN, GATEWAY, front) as found:
        front.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        front.run("nft", "-f", "-", text=translation)
        try:
            yield found
        finally:
            front.run("nft", "delete", "table", "ip", "translation")


@contextmanager
def machine(
    folder: Path, address: str = MACHINE, gateway: str = str(NETWORK[1]), front: Machine | None = None
) -> Iterator[Machine]:
    """Such a machine, with keys in the folder; its SSH server ends with the test. Skips the test without one. gateway:
    the other address of its network, which is at `front`, by default on this machine."""
    if os.geteuid() != 0:
        pytest.skip("a node of kind host needs root")
    if shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") is None:
        pytest.skip("sshd is missing: apt install openssh-server")
    for key in ("host", "user") if front is None else ():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    names = f"[{MACHINE}]:{PORT},[{MACHINE}]:{FORWARDED},[{HIDDEN}]:{PORT} "
    (folder / "known").write_text(names + (folder / "host.pub").read_text())
    settings = {
        "Port": PORT,
        "ListenAddress": address,
        "HostKey": folder / "host",
        "AuthorizedKeysFile": "/run/authorized",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
    }
    configured = folder / f"sshd-{address}"
    configured.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    # Two users besides root: `pi` may use sudo without a password, `guest` may not.
    (folder / "passwd").write_text(Path("/etc/passwd").read_text() + "".join(f"{each}\n" for each in USERS))
    (folder / "shadow").write_text("root:*:1::::::\npi:*:1::::::\nguest:*:1::::::\n")
    (folder / "sudoers").write_text("root ALL=(ALL) ALL\npi ALL=(ALL) NOPASSWD: ALL\n")
    (folder / "sudoers").chmod(0o440)
    # All of this only in the mount namespace of the machine, like /run/sshd, which sshd needs.
    script = f"""mount -t tmpfs -o mode=755 run /run && mkdir /run/sshd && cp {folder}/authorized /run &&
        for file in passwd shadow sudoers; do
            [ ! -e /etc/$file ] || mount --bind {folder}/$file /etc/$file || exit
        done
        echo ready && read line
        ip link set lo up && ip address add {address}/30 dev eth0 && ip link set eth0 up
        exec {shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")} -D -e -f {configured}"""
    with ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(
                ["unshare", "--net", "--mount", "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        stack.callback(server.kill)
        assert server.stdout.readline() == b"ready\n"
        device = f"cbt{os.getpid()}" if front is None else "eth1"
        at = ["nsenter", "--net", "--target", str(front.process)] if front is not None else []
        # At once: the namespace, and with it the device, ends only with the last process of the machine.
        stack.callback(subprocess.run, [*at, "ip", "link", "delete", device], check=False)
        for command in (
            f"link add {device} type veth peer name eth0 netns {server.pid}",
            f"address add {gateway}/30 dev {device}",
            f"link set {device} up",
        ):
            subprocess.run([*at, "ip", *command.split()], check=True)
        server.stdin.write(b"\n")
        server.stdin.flush()
        assert b"listening" in server.stderr.readline()
        yield Machine(folder, server.pid, address)


def skip_without_vm() -> None:
    """Skip the test where no VM can be booted. `scripts/setup.sh test` builds their image."""
    if shutil.which(QEMU) is None:
        pytest.skip("QEMU is missing: apt install qemu-system-x86")
    try:
        vm_image.image()
    except vm_image.ImageError as error:
        pytest.skip(str(error))


def until(condition: Any, seconds: float = 200.0) -> bool:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
