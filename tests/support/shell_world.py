"""A small world of network namespaces for tests of the shell: a host, the internet behind it, and people.

The host is a network and a mount namespace of its own with loopback, one Ethernet device and a default route; the
internet is a namespace with echo servers in IPv4 and IPv6. Nothing reaches the network of the machine itself.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

INTERNET = "198.51.100.1"
INTERNET_IPV6 = "2001:db8:77::1"
HOST = "198.51.100.2"
ORDINARY_USER, GRANTED_USER = 42420, 42421
REPOSITORY = Path(__file__).parents[2]

# Answers every datagram and connection with the address it came from, so that a test sees who is seen. As root, it has
# room for all datagrams that come while it has no processor (SO_RCVBUFFORCE).
ECHO = """
import contextlib, selectors, socket, sys
selector = selectors.DefaultSelector()
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    one = socket.socket(socket.AF_INET6, kind)
    with contextlib.suppress(PermissionError):
        one.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    one.bind((sys.argv[1], int(sys.argv[2])))
    if kind == socket.SOCK_STREAM:
        one.listen()
    selector.register(one, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj.type == socket.SOCK_DGRAM:
            data, peer = key.fileobj.recvfrom(2048)
            key.fileobj.sendto(peer[0].encode(), peer)
        else:
            connection, peer = key.fileobj.accept()
            connection.sendall(peer[0].encode())
            connection.close()
"""

# A name server that knows one thing: every name has the address 203.0.113.7. Over UDP and TCP.
NAME_SERVER = """
import selectors, socket, struct, sys
def answer(query):
    end = 12
    while query[end]:
        end += query[end] + 1
    kind = struct.unpack("!H", query[end + 1:end + 3])[0]
    record = b"\\xc0\\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + bytes([203, 0, 113, 7])
    count = 1 if kind == 1 else 0
    head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, count, 0, 0)
    return head + query[12:end + 5] + (record if count else b"")
selector = selectors.DefaultSelector()
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    one = socket.socket(socket.AF_INET, kind)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((sys.argv[1], 53))
    if kind == socket.SOCK_STREAM:
        one.listen()
    selector.register(one, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in selector.select():
        if key.fileobj.type == socket.SOCK_DGRAM:
            query, peer = key.fileobj.recvfrom(2048)
            key.fileobj.sendto(answer(query), peer)
        else:
            connection, _ = key.fileobj.accept()
            size = struct.unpack("!H", connection.recv(2))[0]
            reply = answer(connection.recv(size))
            connection.sendall(struct.pack("!H", len(reply)) + reply)
            connection.close()
"""


def missing() -> str | None:
    """Why these tests cannot run here, or ``None``."""
    if os.geteuid() != 0:
        return "needs root to make a world of network namespaces"
    for program in ("ip", "nsenter", "unshare", "setpriv", "nft"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    if not Path("/dev/net/tun").exists():
        return "needs TUN devices: /dev/net/tun"
    return None


class World:
    """See the module. `folder` may be written by everybody."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o777)
        self._processes: list[subprocess.Popen[str]] = []
        self._host = self._hold(["unshare", "--net", "--mount"])
        self._internet = self._hold(["unshare", "--net"])
        self._connect()
        self._allow_tun()
        self._open_to_everybody(folder)
        self.serve(ECHO, "::", "7", internet=True)

    def command(self, arguments: Sequence[str], *, user: int = 0, internet: bool = False) -> list[str]:
        """The command line that runs `arguments` in the host's or the internet's namespaces as `user`."""
        if internet:
            return ["nsenter", f"--net=/proc/{self._internet}/ns/net", *arguments]
        enter = ["nsenter", f"--net=/proc/{self._host}/ns/net", f"--mount=/proc/{self._host}/ns/mnt", "--wdns=/"]
        ids = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return [*enter, *ids, *arguments]

    def home(self, user: int = 0) -> Path:
        """The home of a user of the host."""
        home = self.folder / f"home-{user}"
        if not home.exists():
            home.mkdir()
            os.chown(home, user, user)
        return home

    def environment(self, user: int = 0) -> dict[str, str]:
        """The environment of a user of the host."""
        ours = ("CELLBED", "XDG_", "PROMPT_COMMAND")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return clean | {"HOME": str(self.home(user)), "SHELL": "/bin/bash"}

    def run(
        self, arguments: Sequence[str], *, user: int = 0, internet: bool = False, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            self.command(arguments, user=user, internet=internet),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment(user),
            check=False,
        )

    def shell(self, *arguments: str, user: int = 0) -> subprocess.CompletedProcess[str]:
        """Run `cellbed shell` with `arguments` on the host."""
        return self.run([*cellbed("shell"), *arguments], user=user)

    def start(self, arguments: Sequence[str], *, user: int = 0) -> subprocess.Popen[str]:
        """Start a command on the host in a session of its own; its process is the command's."""
        process = subprocess.Popen(
            self.command(arguments, user=user),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(user),
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def serve(self, source: str, *arguments: str, internet: bool = False) -> None:
        """Run a server, Python `source` that prints a line when it is ready, until the world ends."""
        process = subprocess.Popen(
            self.command(["/usr/bin/env", sys.executable, "-c", source, *arguments], internet=internet),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout.readline() == "ready\n"

    def resolve_with(self, text: str) -> None:
        """Let `text` be the host's ``/etc/resolv.conf``."""
        file = self.folder / f"resolv.conf-{time.monotonic_ns()}"
        file.write_text(text)
        file.chmod(0o644)
        done = self.run(["mount", "--bind", str(file), "/etc/resolv.conf"])
        assert done.returncode == 0, done.stderr

    def hide(self, program: str) -> None:
        """Let the host be without a program."""
        path = shutil.which(program)
        while path is not None and self.run(["test", "-x", path]).returncode == 0:
            real = str(Path(path).resolve())
            empty = self.folder / "empty"
            empty.touch(mode=0o644)
            assert self.run(["mount", "--bind", str(empty), real]).returncode == 0

    def install_mahimahi(self) -> None:
        """Install Mahimahi's commands, for :meth:`on_path`."""
        done = self.run([*cellbed("mahimahi"), "install", "--prefix", str(self.folder)])
        assert done.returncode == 0, done.stderr

    def on_path(self, *command: str) -> list[str]:
        """A command by which Mahimahi's are found. A shell's background jobs ignore SIGINT: this one does not."""
        path = f"PATH={self.folder / 'bin'}:{os.environ['PATH']}"
        return ["/usr/bin/env", "--default-signal=INT", path, *command]

    def grant(self, user: int) -> None:
        """Let a user have the network helper, as `cellbed grant USER --network` does."""
        layers = self.folder / "layers"
        script = f"""
            mkdir {layers}
            mount -t tmpfs -o mode=755 none {layers}
            for place in etc usr/local; do
                mkdir -p {layers}/$place/upper {layers}/$place/work
                over=lowerdir=/$place,upperdir={layers}/$place/upper,workdir={layers}/$place/work
                mount -t overlay -o $over none /$place
            done
        """
        done = self.run(["sh", "-ec", textwrap.dedent(script)])
        assert done.returncode == 0, done.stderr
        source = """
from cellbed.doctor import changes
from cellbed.doctor.machine import Machine
machine = Machine(user=%d)
# Without the journal, which would stay on this machine.
for change in changes.network_helper(machine):
    assert changes._run(change.do) == ""
"""
        done = self.run(python(source % user))
        assert done.returncode == 0, done.stderr

    def rules(self) -> str:
        """The host's packet rules."""
        return self.run(["nft", "list", "ruleset"]).stdout

    def setting(self, name: str) -> str:
        """A kernel setting of the host."""
        return self.run(["cat", f"/proc/sys/net/{name}"]).stdout.strip()

    def devices(self) -> set[str]:
        """Names of the host's network devices."""
        listing = self.run(["ip", "-json", "link"]).stdout
        return {device["ifname"] for device in json.loads(listing)}

    def holders(self) -> tuple[int, int]:
        """The processes that hold the namespaces of the host and of the internet."""
        return self._host, self._internet

    def traces(self) -> tuple[str, str, set[str]]:
        """What a shell could leave behind on the host."""
        return self.rules(), self.setting("ipv4/ip_forward"), self.devices()

    def records(self, user: int = 0) -> list[Path]:
        """A user's records of live shells."""
        return sorted((self.home(user) / ".local" / "state" / "cellbed" / "live").glob("*.json"))

    def close(self) -> None:
        """End everything."""
        for process in reversed(self._processes):
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _hold(self, unshare: list[str]) -> int:
        process = subprocess.Popen(
            [*unshare, "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE, text=True
        )
        self._processes.append(process)
        assert process.stdout.readline() == "ready\n"
        return process.pid

    def _connect(self) -> None:
        # A new network namespace has the forwarding of the machine's.
        on_host = f"""
            echo 0 > /proc/sys/net/ipv4/ip_forward
            echo 0 > /proc/sys/net/ipv6/conf/all/forwarding
            ip link set lo up
            echo 0 > /proc/sys/net/ipv4/ip_forward  # a new namespace has the machine's setting
            ip link add eth0 type veth peer name eth0 netns {self._internet}
            ip addr add {HOST}/24 dev eth0
            ip -6 addr add {INTERNET_IPV6[:-1]}2/64 dev eth0 nodad
            ip link set eth0 up
        """
        on_internet = f"""
            ip link set lo up
            ip addr add {INTERNET}/24 dev eth0
            ip -6 addr add {INTERNET_IPV6}/64 dev eth0 nodad
            ip link set eth0 up
        """
        routes = f"ip route add default via {INTERNET}; ip -6 route add default via {INTERNET_IPV6}"
        for script, internet in ((on_host, False), (on_internet, True), (routes, False)):
            done = self.run(["sh", "-ec", textwrap.dedent(script)], internet=internet)
            assert done.returncode == 0, done.stderr

    def _allow_tun(self) -> None:
        """Give the host a /dev/net/tun that everybody may open, as distributions do."""
        devices = self.folder / "dev"
        script = f"""
            mkdir {devices}
            mount -t tmpfs -o mode=755 none {devices}
            mknod -m 666 {devices}/tun c 10 200
            mount --bind {devices}/tun /dev/net/tun
        """
        done = self.run(["sh", "-ec", textwrap.dedent(script)])
        assert done.returncode == 0, done.stderr

    def _open_to_everybody(self, folder: Path) -> None:
        """Make Python and the code under test readable for ordinary users on the host, as if they were installed."""
        package = Path(importlib.util.find_spec("cellbed").submodule_search_locations[0])  # type: ignore[union-attr]
        places = {Path(place).resolve() for place in (sys.base_prefix, sys.prefix, package.parent)}
        behind: dict[Path, list[Path]] = {}
        for place in sorted(places):
            closed = [parent for parent in place.parents if not parent.stat().st_mode & 0o001]
            if closed:
                behind.setdefault(closed[-1], []).append(place)
        for number, (closed_place, inner) in enumerate(behind.items()):
            aside = {place: folder / f"aside-{number}-{index}" for index, place in enumerate(inner)}
            script = [f"mkdir {kept}; mount --bind {place} {kept}" for place, kept in aside.items()]
            script.append(f"mount -t tmpfs -o mode=755 none {closed_place}")
            script += [f"mkdir -p {place}; mount --bind {kept} {place}" for place, kept in aside.items()]
            done = self.run(["sh", "-ec", "umask 022\n" + "\n".join(script)])
            assert done.returncode == 0, done.stderr


@contextmanager
def open_world() -> Iterator[World]:
    """A world that ends with the ``with`` block."""
    # Not pytest's tmp_path: the ordinary user may not enter the folders of root's pytest.
    with tempfile.TemporaryDirectory(prefix="cellbed-test-") as folder:
        world = World(Path(folder))
        try:
            yield world
        finally:
            world.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Return when `holds` does; the test's own time limit ends a wait in vain."""
    while not holds():
        time.sleep(0.01)


def next_line(process: subprocess.Popen[str]) -> str:
    """The next line that a process prints; it must not have ended."""
    line = process.stdout.readline().strip()
    assert line or process.stderr is None, process.stderr.read()
    return line


def without_remark(errors: str) -> str:
    """What a shell printed, without the line that an ordinary user's has: where its TCP ends."""
    return "".join(line for line in errors.splitlines(True) if "TCP to the outside ends in " not in line)


def cellbed(verb: str) -> list[str]:
    """The command `cellbed VERB` of the code under test."""
    return [sys.executable, "-P", "-c", "from cellbed.cli.main import main; main()", verb]


def python(source: str, *arguments: str) -> list[str]:
    """Python `source` as a command."""
    return [sys.executable, "-c", source, *arguments]


ASK = (
    "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 100); print(s.recv(99).decode())"
)
"""Prints under which address the echo server at ARGV sees us."""


class Terminal:
    """A terminal with a program in it, as a person sits before one."""

    def __init__(self, world: World, command: list[str], user: int) -> None:
        import pty

        self.pid, self._descriptor = pty.fork()
        if self.pid == 0:
            line = world.command(command, user=user)
            os.execvpe(line[0], line, {**world.environment(user), "PS1": "$ "})
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until `text` appears after what was waited for before."""
        import select

        while text not in self.seen:
            readable, _, _ = select.select([self._descriptor], [], [], 200)
            assert readable, f"no {text!r} came; seen: {self.seen!r}"
            try:
                self.seen += os.read(self._descriptor, 4096).decode(errors="replace")
            except OSError:
                pytest.fail(f"the terminal was closed before {text!r}; seen: {self.seen!r}")
        self.seen = self.seen.split(text, 1)[1]

    def end(self) -> int:
        """Wait for the program's end and return its exit status."""
        import select

        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._descriptor)
                return os.waitstatus_to_exitcode(status)
            if select.select([self._descriptor], [], [], 0.05)[0]:
                try:
                    os.read(self._descriptor, 4096)
                except OSError:
                    time.sleep(0.05)
        os.kill(self.pid, signal.SIGKILL)
        pytest.fail("the program did not end")
