"""Nodes whose programs run on another machine through an agent there: the common part of VM and host nodes.

The node's namespace routes between the emulated network and a device that leads to the machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import IO, Any, Unpack

from cellbed.testbed.machine.cgroups import Sample
from cellbed.testbed.machine.process import ProgramError, Streams, end, run
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.nodes.agent_hub import LARGEST_MESSAGE
from cellbed.testbed.nodes.backend import TCP_SETTINGS, Backend, Clock, Setup
from cellbed.testbed.nodes.copies import MOST_BYTES
from cellbed_node import inputs
from cellbed_node.agent import CHUNK
from cellbed_node.processes import die_with_parent, kill, last_line, make_no_devices

READY_S = 120.0
"""Maximum time until a machine's agent answers, seconds."""
ANSWER_S = 30.0
LEAST_RATE = 100_000
"""Minimum transfer rate of a file to or from a machine, bytes per second."""
NOTHING = Sample(None, None, None, None, None, None)


class NodeError(ProgramError):
    """A node did not become ready, or is no longer reachable."""


class RemoteNode(Backend):
    """A node on another machine with an agent. Subclasses make the machine and the device in `start`."""

    device = ""
    """The device in the node's namespace that leads to the machine."""
    far_device = ""
    """The machine's end of the device."""
    path = ""
    """Description of the connection, for errors."""
    mtu = 1500
    """Size of the largest packet on the connection, bytes."""
    group: RemoteGroup | None

    def __init__(self, setup: Setup, table: Any = None) -> None:
        super().__init__(setup, table)
        self.group = self.place = None
        self._calls = 0
        self._control: socket.socket | None = None
        self._hub: subprocess.Popen[bytes] | None = None
        digest = hashlib.sha256(f"{setup.run} {setup.name}".encode()).hexdigest()
        self.number = int(digest[:6], 16) or 1
        """A number that differs from the numbers of other runs' nodes."""
        self.near_mac, self.far_mac = (
            ":".join(("02", end, *(digest[at : at + 2] for at in range(0, 8, 2)))) for end in ("cb", "ce")
        )
        self._near = [ip_interface(address).ip for address in setup.addresses]
        self._far = [ip_interface(address).ip for address in setup.behind]

    @property
    def hub(self) -> Path:
        """Socket of the node's hub, through which its user starts programs (``agent_hub.relay``)."""
        return self.setup.folder / "hub"

    # Methods for subclasses to override.

    def attach(self, hello: dict[str, Any]) -> None:
        """Make the device, unless `start` has made it. hello: the agent's first message."""

    @abstractmethod
    def why(self) -> str:
        """Return why the agent cannot be reached."""

    # Methods that subclasses call.

    def open_agent(self, machine: socket.socket, **setup: Any) -> None:
        """Send the agent through a socket to the machine. setup: arguments of the agent's ``main``."""
        self.setup.folder.mkdir(mode=0o700, exist_ok=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._hub = subprocess.Popen(
                [*_HUB, "hub", str(self.hub), json.dumps(setup), str(machine.fileno())],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                pass_fds=[machine.fileno()],
                start_new_session=True,
                env={**os.environ, RUN_VARIABLE: self.setup.run},
            )

    def call(self, action: str, timeout_s: float = ANSWER_S, **arguments: Any) -> Any:
        """Send a request to the hub or the agent, and return the answer. Errors: :class:`NodeError`."""
        assert self._control is not None
        self._calls += 1
        number = self._calls
        try:
            self._control.settimeout(timeout_s)
            self._control.send(json.dumps({"do": action, "call": number, **arguments}).encode())
            while message := self._control.recv(LARGEST_MESSAGE):
                answer = json.loads(message)
                if answer["call"] != number:  # answer to an interrupted call
                    continue
                if "lost" in answer:
                    raise NodeError(f"{self.name} cannot be reached: {answer['lost'] or self.why()}")
                if "failed" in answer:
                    raise NodeError(f"{self.name}: {answer['failed']}")
                return answer.get("value")
        except TimeoutError:
            assert self._hub is not None
            kill(self._hub)  # its programs end, and further calls fail at once
            raise NodeError(f"{self.name} did not answer within {timeout_s:g} s: {self.why()}") from None
        except OSError:
            pass
        raise NodeError(f"{self.name} cannot be reached: {self._hub_end() or self.why()}")

    def _hub_end(self) -> str:
        """Return how the hub has ended, as text; empty while it runs."""
        assert self._hub is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._hub.wait(1.0)
            return f"its hub was killed by signal {-status}" if status < 0 else f"its hub ended with status {status}"
        return ""

    def run_ip(self, *lines: str) -> None:
        """Run commands of ip(8) in the node's namespace."""
        run(["ip", "-batch", "-"], text="\n".join(lines) + "\n", place=self.setup.place)

    # Methods of `Backend`.

    def wait_ready(self) -> None:
        hello = self.call("wait", READY_S)
        self.facts["machine"] = hello["machine"]
        self.attach(hello)
        self.run_ip(
            f"link set {self.device} address {self.near_mac} mtu {self.mtu} up",
            *(f"route add {address} dev {self.device} mtu lock {self.mtu}" for address in self._far),
            *(f"neigh replace {it} lladdr {self.far_mac} dev {self.device} nud permanent" for it in self._far),
        )
        hosts = next((source for source, target in self.setup.place.binds if target == "/etc/hosts"), None)
        self.call(
            "network",
            device=self.far_device,
            mtu=self.mtu,
            ipv4=str(self._far[0]),
            ipv6=str(self._far[1]),
            gateway4=str(self._near[0]),
            gateway6=str(self._near[1]),
            gateway_mac=self.near_mac,
            sysctls={key: value for key, value in self.setup.sysctls.items() if key.startswith(TCP_SETTINGS)},
            hosts=inputs.text(Path(hosts)) if hosts else None,
            host_name=self.name,
            path=self.path,
        )
        if self.setup.disk_bytes is not None:
            self.fill_disk(False)
        self.sample()

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        cgroups: Sequence[str] = (),
        **streams: Unpack[Streams],
    ) -> subprocess.Popen[bytes]:
        """Start a relay, which ends as the program ends."""
        if not command:
            raise OSError("a node of this kind has no own command")
        options = {"environment": dict(environment or {}), "folder": folder}
        streams.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(
            [*_HUB, "relay", str(self.hub), json.dumps(options), *command],
            start_new_session=True,
            env={**os.environ, RUN_VARIABLE: self.setup.run},
            **streams,
        )

    def sample(self) -> Sample | None:
        """Return the node's usage, and update the estimate of the clock."""
        try:
            state = self.call("state")
        except NodeError:  # its programs have ended, too, which is reported
            return None
        self.clock = Clock(*state["clock"])
        return Sample(**state["sample"]) if state["sample"] else NOTHING

    def use(self, process: int) -> tuple[int, int]:
        try:
            cpu_ns, memory_bytes = self.call("use", process=process)
        except NodeError:  # as for `sample`
            return 0, 0
        return cpu_ns, memory_bytes

    def served(self, process: int) -> tuple[list[int], list[int], int]:
        tcp, udp, connections = self.call("served", process=process)
        return tcp, udp, connections

    def copy_in(self, source: Path, target: str) -> None:
        if source.is_dir():
            with tempfile.TemporaryFile() as archive:
                subprocess.run(["tar", "-C", str(source), "-c", "."], stdout=archive, preexec_fn=die_with_parent)
                archive.seek(0)
                self._run('mkdir -p "$1" && exec tar -C "$1" -x', target, feed=archive)
            return
        mode = f"{source.stat().st_mode & 0o777:o}"
        script = f'mkdir -p "$(dirname "$1")" && cat > "$1" && chmod {mode} "$1"'
        with inputs.open_file(source) as content:
            self._run(script, target, feed=content)

    def copy_out(self, source: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not self._run('[ ! -d "$1" ] || echo folder', source):
            try:
                with target.open("wb") as content:
                    self._run(f'{_CHECK}; exec cat "$1"', source, to=content)
            except OSError:
                target.unlink(missing_ok=True)
                raise
            return
        target.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent) as archive:
            self._run('exec tar -C "$1" -c .', source, to=archive)
            archive.seek(0)
            # The machine chooses the archive's content: accept no devices, no owners, no set-user-ID programs.
            options = ["--no-same-owner", "--no-same-permissions", "-C", str(target), "-x"]
            command = ["timeout", "--verbose", str(_UNPACK_S), "tar", *options]  # it may have very many names
            done = subprocess.run(command, stdin=archive, capture_output=True, preexec_fn=make_no_devices)
        if done.returncode:
            raise OSError(f"{source} on {self.name}: {last_line(done.stderr)}")

    def read(self, source: str, most: int) -> bytes:
        script = f'{_CHECK}; [ ! -e "$1" ] || {{ echo; exec head -c "$2" "$1"; }}'
        content = self._run(script, source, str(most), most=most + CHUNK)
        if not content:
            raise FileNotFoundError(source)
        return content[1 : most + 1]

    def output(self, command: Sequence[str]) -> bytes:
        return self._run('exec "$@"', *command, most=inputs.MOST)

    def signal(self, number: int) -> None:
        self.call("signal_all", number=number)

    def show_socket(self, path: str) -> str:
        """Return the path of a socket of the agent."""
        return str(self.call("listen", path=path))

    def show_file(self, path: str) -> str:
        """Return the path of a copy in the node's folder."""
        name = "-".join(Path(path).parts[-2:])
        self.copy_in(Path(path), name)
        return f"{os.fsdecode(self.output(['pwd'])).strip()}/{name}"

    def fill_disk(self, full: bool) -> None:
        # The first call makes the agent create the file system.
        self.call("disk", bytes=self.setup.disk_bytes, full=full)

    def _run(self, script: str, *words: str, feed: Any = None, to: Any = None, most: int = MOST_BYTES) -> bytes:
        """Run a shell script on the machine. words: its arguments. feed: file with its input. to: file for its output;
        without it, the output is returned.

        Programs there are not trusted. A program is killed if it prints more than `most` bytes, or if it is slower than
        :data:`LEAST_RATE` for longer than :data:`ANSWER_S`. Errors: ``OSError``.
        """
        name, given = f"{words[0]} on {self.name}", os.fstat(feed.fileno()).st_size if feed is not None else 0
        with tempfile.TemporaryFile() as kept, tempfile.TemporaryFile() as errors:
            output, stdin = to or kept, feed or subprocess.DEVNULL
            process = self.spawn(["sh", "-c", script, "sh", *words], stdin=stdin, stdout=output, stderr=errors)
            began = time.monotonic()
            while True:
                status = process.poll()
                size = sum(os.fstat(each.fileno()).st_size for each in (output, errors))
                if status is not None and size <= most:
                    break
                if size > most or time.monotonic() - began > ANSWER_S + (given + size) / LEAST_RATE:
                    kill(process)
                    raise OSError(f"{name}: it is too long" if size > most else f"{name}: it takes too long")
                time.sleep(0.002)
            if status != 0:
                raise OSError(f"{name}: {last_line_of(errors) or f'exit status {status}'}")
            kept.seek(0)
            return kept.read(most)

    def stop(self) -> None:
        # Closing the socket ends the hub, which holds the stream; the agent ends with the stream.
        if self._control is not None:
            self._control.close()
        if self._hub is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._hub.wait(1.0)
            kill(self._hub)
        super().stop()


class RemoteGroup:
    """The limits of a node on its machine: the members of ``cgroups.Group`` that the proof of limits needs."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self._stated: tuple[float | None, int | None] = (None, None)

    def contains(self, process: int) -> bool:
        """Return whether a program is subject to the limits: all programs of the agent are. process: the relay of the
        program."""
        return process > 0

    def limit(self, cpus: float | None, memory_bytes: int | None) -> None:
        """Set the limits. Errors: :class:`NodeError`."""
        stated = self._node.call("limit", cpus=cpus, memory=memory_bytes)
        self._stated = stated[0], stated[1]

    def limits(self) -> tuple[float | None, int | None]:
        """Return the limits that the machine's kernel reports."""
        return self._stated

    def sample(self) -> Sample:
        """Return the current usage; waits for the answer."""
        return Sample(**self._node.call("sample"))


# Maximum duration of unpacking, seconds. A FIFO would never end.
_UNPACK_S = 600
_CHECK = '[ ! -e "$1" ] || [ -f "$1" ] || { echo "not a regular file" >&2; exit 1; }'
_HUB = (sys.executable, "-P", "-m", "cellbed.testbed.nodes.agent_hub")


def last_line_of(file: IO[bytes]) -> str | None:
    """Return the last line of a file to which a process still writes."""
    file.seek(0)
    return last_line(file.read())


def end_of(process: subprocess.Popen[bytes] | None, patience_s: float) -> None:
    """Give a process time to end, then end it."""
    if process is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
        end(process)
