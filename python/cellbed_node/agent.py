"""The program on the other machine of a VM or host node. The agent starts programs there and carries their streams.

This file is sent to that machine unchanged and runs there alone, with only Python 3.8 and its standard library (a host
also needs ip(8)). The agent and its programs end with the byte stream to it.

The other end of the stream is :mod:`cellbed.testbed.nodes.agent_hub`; both ends use :class:`Wire`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import pwd
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

BOOTSTRAP = (
    "import os,sys;r=os.open(sys.argv[1],2) if sys.argv[1:] else 0;"
    'f=os.fdopen(r,"rb",0,closefd=False);exec(f.readline())'
)
"""Program that waits for :func:`delivery`, at the port given as its argument or on standard input."""

HEADER = struct.Struct("!II")
"""Frame header: stream number (0: a JSON message) and length in bytes. A frame without bytes ends its stream."""
WINDOW = 1 << 18
"""Maximum bytes in flight per stream: a slow reader must not delay the other streams."""
CHUNK = 1 << 16
LARGEST_MESSAGE = 1 << 18
LARGEST_BACKLOG = 1 << 24
"""Maximum unsent bytes. Streams never contribute more than a few windows."""
PAGE = 4096
"""Bytes that a pipe accepts without blocking when poll(2) reports room. Pipes stay in blocking mode, as they may be
shared. The Unix socket of a forwarded connection then accepts a chunk (``unix_writable`` in Linux,
net/unix/af_unix.c)."""
PERIOD_US = 10_000
"""Period of the CPU quota. With the kernel's default of 100 ms, a node bursts for tens of ms and then stops as long; a
slower processor does neither. The kernel accepts 1 ms to 1 s (sched-bwc.rst)."""
SAMPLE_S = 0.1
SAMPLE_IN_VM_S = 0.5
USE_S = 0.5
"""Time between samples. In a VM without KVM, a sample takes milliseconds, and CPU time is counted around it."""
SILENCE_S = 25
"""Time without a message of the hub, which measures the clock all the time, after which a live network has lost it,
seconds: longer than the patience of ssh (``host.py``)."""
DEVICE = "cellbed0"
UDP_PORT = 47890
"""UDP port of a tunnel, at both ends."""
_NEWNS, _NEWUTS, _NEWPID, _NEWNET = 0x00020000, 0x04000000, 0x20000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


def delivery(source: bytes, **setup: Any) -> bytes:
    """Return the bytes that make :data:`BOOTSTRAP` run the agent. source: this file. setup: arguments of
    :func:`main`."""
    code = source + f"\nmain(r, **{setup!r})\n".encode()
    too_old = '"cellbed needs Python 3.8 or newer on this machine"'
    loop = f"s=b''\nwhile len(s)<{len(code)}: s+=f.read(65536) or sys.exit(1)\nexec(compile(s,'agent','exec'))"
    return f"sys.version_info<(3,8) and sys.exit({too_old});exec({loop!r})\n".encode() + code


class ProtocolError(Exception):
    """A protocol violation by the other end; the text is a clause that begins with a verb."""


def whole(value: object, low: int = 0, high: int = 1 << 62) -> int:
    """Return a message value that must be an integer from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise ProtocolError(f"sent {str(value)[:80]!a} where a number from {low} to {high} belongs")
    return value


class Wire:
    """Messages and byte streams over one stream in each direction; both ends are alike.

    on_message: called with each message of the other end. Memory is bounded, since the other end is not trusted.
    :meth:`turn` and :meth:`flush` raise :class:`ProtocolError`.
    """

    def __init__(self, reading: int, writing: int, on_message: Callable[[dict[str, Any]], None]) -> None:
        self._reading, self._writing, self._on_message = reading, writing, on_message
        self._incoming, self._outgoing = bytearray(), bytearray()
        self._sources: dict[int, _Source] = {}
        self._sinks: dict[int, _Sink] = {}
        self.watched: dict[int, Callable[[], None]] = {}
        """Further descriptors, with the function to call when each is readable."""
        self.is_open = True
        self._begun = False  # a message has come; no streams before
        self.received_ns = 0
        """Time at which the last bytes were received."""
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)

    def send(self, **message: Any) -> None:
        """Send a message."""
        self._frame(0, json.dumps(message).encode())

    def read_from(self, number: int, descriptor: int) -> None:
        """Send the content of a descriptor as the stream `number`. The descriptor is closed at its end."""
        self._sources[number] = _Source(descriptor)

    def write_to(self, number: int, descriptor: int) -> None:
        """Write the stream `number` to a descriptor, which is closed at the end of the stream."""
        self._sinks[number] = _Sink(descriptor)

    def has_unsent(self, number: int) -> bool:
        """Return whether the descriptor of the stream `number` has unread bytes."""
        source = self._sources.get(number)
        if source is None:
            return False
        try:
            waiting = struct.unpack("i", fcntl.ioctl(source.descriptor, termios.FIONREAD, b"\0" * 4))[0]
        except OSError:
            return False
        return bool(waiting)

    def has_unwritten(self, number: int) -> bool:
        """Return whether received bytes of the stream `number` have not been written yet."""
        sink = self._sinks.get(number)
        return sink is not None and bool(sink.buffer)

    def count_forwarded(self) -> int:
        """Return the number of forwarded connections with a stream to write."""
        return sum(number >= FIRST_FORWARDED for number in self._sinks)

    def close(self) -> None:
        """Close the stream and the descriptors of all streams in it."""
        self.is_open = False
        for number in (*self._sources, *self._sinks):
            self.drop(number)
        for descriptor in {self._reading, self._writing}:
            os.close(descriptor)

    def drop(self, number: int) -> None:
        """Close the descriptor of a stream, if it is open."""
        for ends in (self._sources, self._sinks):
            end = ends.pop(number, None)
            if end is not None:
                os.close(end.descriptor)

    def turn(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for descriptors, and transfer their data."""
        wanted: dict[int, int] = {self._reading: select.POLLIN}
        actions: dict[int, Callable[[], None]] = {}
        if self._outgoing:
            wanted[self._writing] = wanted.get(self._writing, 0) | select.POLLOUT
        for descriptor, action in self.watched.items():
            wanted[descriptor], actions[descriptor] = select.POLLIN, action
        for number, source in self._sources.items():
            if source.window > 0 and len(self._outgoing) < 4 * CHUNK:
                wanted[source.descriptor] = select.POLLIN
                actions[source.descriptor] = lambda number=number: self._read(number)  # type: ignore[misc]
        for number, sink in self._sinks.items():
            if sink.buffer:
                wanted[sink.descriptor] = select.POLLOUT
                actions[sink.descriptor] = lambda number=number: self._write(number)  # type: ignore[misc]
        poll = select.poll()
        for descriptor, events in wanted.items():
            poll.register(descriptor, events)
        for descriptor, events in poll.poll(max(0, timeout_s) * 1000):
            if descriptor == self._writing and events & ~select.POLLIN:
                self.flush()
            if descriptor == self._reading and events & ~select.POLLOUT:
                self._receive()
            elif descriptor in actions:
                actions[descriptor]()

    def flush(self) -> None:
        """Send queued bytes as far as possible without blocking."""
        try:
            while self._outgoing:
                del self._outgoing[: os.write(self._writing, self._outgoing[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.is_open = False

    def _frame(self, number: int, content: bytes) -> None:
        self._outgoing += HEADER.pack(number, len(content)) + content
        if len(self._outgoing) > LARGEST_BACKLOG:
            raise ProtocolError("does not read what it is sent")

    def _receive(self) -> None:
        try:
            data = os.read(self._reading, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            return
        self.received_ns = time.monotonic_ns()
        self._incoming += data
        while len(self._incoming) >= HEADER.size:
            number, length = HEADER.unpack_from(self._incoming)
            self._begun = self._begun or number == 0
            if not self._begun or length > (CHUNK if number else LARGEST_MESSAGE):
                raise ProtocolError(f"sent a frame of {length} bytes for stream {number}")
            end = HEADER.size + length
            if len(self._incoming) < end:
                return
            content = bytes(self._incoming[HEADER.size : end])
            del self._incoming[:end]
            if number:
                self._take(number, content)
            else:
                try:
                    message = json.loads(content)
                except (ValueError, RecursionError):
                    message = None
                if not isinstance(message, dict):
                    raise ProtocolError(f"sent a malformed message: {ascii(content[:80])[1:]}")
                self._handle(message)

    def _handle(self, message: dict[str, Any]) -> None:
        if "written" in message:
            written = message["written"]
            number, count = map(whole, written if isinstance(written, list) and len(written) == 2 else (written,) * 2)
            if number in self._sources:
                source = self._sources[number]
                source.window = whole(source.window + count, 0, WINDOW)
        elif "broken" in message:
            self.drop(whole(message["broken"]))
        else:
            self._on_message(message)

    def _take(self, number: int, content: bytes) -> None:
        sink = self._sinks.get(number)
        if sink is None:
            return
        if len(sink.buffer) + len(content) > WINDOW:
            raise ProtocolError("sent more of a stream than its window")
        sink.buffer += content
        sink.ended = sink.ended or not content
        if sink.ended and not sink.buffer:
            self._write(number)

    def _read(self, number: int) -> None:
        source = self._sources.get(number)
        if source is None:
            return
        try:
            data = os.read(source.descriptor, min(CHUNK, source.window))
        except OSError:  # a closed terminal
            data = b""
        source.window -= len(data)
        self._frame(number, data)
        if not data:
            self.drop(number)

    def _write(self, number: int) -> None:
        sink = self._sinks.get(number)
        if sink is None:
            return
        try:
            most = CHUNK if number >= FIRST_FORWARDED else PAGE
            count = os.write(sink.descriptor, sink.buffer[:most]) if sink.buffer else 0
        except OSError:  # its reader has ended
            self.drop(number)
            self.send(broken=number)
            return
        if count:
            del sink.buffer[:count]
            self.send(written=[number, count])
        if sink.ended and not sink.buffer:
            self.drop(number)


FIRST_FORWARDED = 1 << 31
"""Number of the first stream opened by the agent, for a connection to one of its sockets."""


def descendants(process: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [process]
    for each in found:
        found += list_children(each)
    return found


def list_children(process: int) -> list[int]:
    """Return the children of a process in order of their start; none if the process has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{process}/task"):  # noqa: PTH208 - ten times as fast
            found += map(int, _read(Path(f"/proc/{process}/task/{task}/children")).split())
    return found


def use_of(process: int) -> tuple[int, int]:
    """Return the processor time, ns, and the memory, bytes, of a process and all its descendants.

    Shared memory counts for each process. For an ended process whose exit status has not been taken, only the use of
    children for which it did not wait is missing (proc(5), ``stat``).
    """
    ticks = pages = 0
    for each in descendants(process):
        fields = _read(Path(f"/proc/{each}/stat")).rpartition(")")[2].split()
        if len(fields) > 21:
            ticks += sum(map(int, fields[11:15]))
            pages += int(fields[21])
    return ticks * (1_000_000_000 // os.sysconf("SC_CLK_TCK")), pages * os.sysconf("SC_PAGE_SIZE")


_SOCKET_TABLES = ("tcp", "tcp6", "udp", "udp6")
_ESTABLISHED, _LISTENING, _WITHOUT_PEER = "01", "0A", "07"
"""States of sockets (include/net/tcp_states.h). Listening TCP sockets and UDP sockets without a peer are served."""


def find_served(process: int) -> tuple[list[int], list[int], int]:
    """Return the TCP and the UDP ports that a process or its descendants serve, and the number of TCP connections to
    these ports in the process's network."""
    links: set[str] = set()
    family = descendants(process)
    for each in family:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{each}/fd"):
                with contextlib.suppress(OSError):
                    links.add(os.readlink(entry.path))  # noqa: PTH115 - as above
    # The first process of a container belongs to the runtime, in the same network.
    return _ports(family[-1], links)


def ports_in_use(process: int) -> tuple[list[int], list[int]]:
    """Return the TCP and the UDP ports that processes in the network of `process` serve."""
    return _ports(process)[:2]


def _ports(process: int, links: set[str] | None = None) -> tuple[list[int], list[int], int]:
    """Return the ports served in the network of a process, by `links` or by any socket, and the connections to them."""
    ports: dict[str, set[int]] = {_LISTENING: set(), _WITHOUT_PEER: set()}
    connected: list[int] = []
    for table in _SOCKET_TABLES:
        for line in _read(Path(f"/proc/{process}/net/{table}")).splitlines()[1:]:
            _, local, remote, state, *rest = line.split()
            port = int(local.rpartition(":")[2], 16)
            if state == _ESTABLISHED and table.startswith("tcp"):
                connected.append(port)
            elif state not in ports or not remote.endswith(":0000"):
                continue
            elif links is None or f"socket:[{rest[5]}]" in links:
                ports[state].add(port)
    tcp, udp = ports.values()
    return sorted(tcp), sorted(udp), sum(port in tcp for port in connected)


class Disk:
    """The free space of the file system of a folder. :meth:`fill` takes it with an unnamed file."""

    def __init__(self, folder: str) -> None:
        self._folder, self._file = folder, -1

    def fill(self, full: bool) -> None:
        """Take all free space, or release it. Errors: ``OSError``.

        Fill by writes: a failed ``fallocate`` releases all its space, so its retries never end while others write.
        """
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if not full:
            return
        self._file = os.open(self._folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        zeros = bytes(1 << 20)
        try:
            while True:
                os.write(self._file, zeros)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


class _Source:
    def __init__(self, descriptor: int) -> None:
        self.descriptor, self.window = descriptor, WINDOW


class _Sink:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.buffer, self.ended = bytearray(), False


class Agent:
    """The programs of one node.

    group: control group of the programs, if limits are enforced. interval_s: time between samples. life: descriptor
    whose end also ends this process; -1 for none. meeting: finds the other end of a tunnel through a live network.
    """

    def __init__(
        self,
        reading: int,
        writing: int,
        group: Group | None,
        interval_s: float = SAMPLE_S,
        life: int = -1,
        meeting: Meeting | None = None,
    ) -> None:
        self.wire = Wire(reading, writing, self._on_message)
        self._group, self._interval_s, self._meeting = group, interval_s, meeting
        self._running: dict[int, int] = {}  # program number by process id
        self._ended: dict[int, int] = {}  # exit status by program number
        user = self._user = _invoking_user()
        names = {"USER": user.pw_name, "LOGNAME": user.pw_name} if user else {}
        self._own_environment = {"HOME": user.pw_dir, **names} if user else {}
        self._disk: Disk | None = None
        self._listening: list[socket.socket] = []
        self._forwarded = 0
        woken, wake = os.pipe()
        for descriptor in (woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.wire.watched[woken] = lambda: self._reap(woken)
        if life >= 0:
            self.wire.watched[life] = self._end

    def _end(self) -> None:
        self.wire.is_open = False

    def run(self) -> None:
        """Serve until the stream ends."""
        system = os.uname()
        self.wire.send(
            hello={
                "machine": f"{system.sysname} {system.release} {system.machine}",
                "cpus": os.cpu_count(),
                "network": Path("/proc/self/ns/net").stat().st_ino,
                "connection": os.environ.get("CELLBED_CONNECTION", "").split(),
            }
        )
        next_sample = next_use = time.monotonic()
        self.wire.received_ns = time.monotonic_ns()
        while self.wire.is_open:
            now = time.monotonic()
            if now >= next_use:
                for process, number in self._running.items():
                    self.wire.send(use=use_of(process), number=number)
                next_use = now + USE_S
            if now >= next_sample:
                self.wire.send(sample=self._do_sample({}))
                next_sample = now + self._interval_s
            if self._meeting is not None and time.monotonic_ns() > self.wire.received_ns + SILENCE_S * 10**9:
                break
            self.wire.flush()
            self.wire.turn(next_sample - time.monotonic())
            for number, status in list(self._ended.items()):
                if not any(map(self.wire.has_unsent, (3 * number + 1, 3 * number + 2))):
                    del self._ended[number]
                    self.wire.send(ended=number, status=status)

    def _reap(self, woken: int) -> None:
        os.read(woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None:
                    return
                if ended.si_pid in self._running:
                    self.wire.send(use=use_of(ended.si_pid), number=self._running[ended.si_pid])
                process, status = os.waitpid(ended.si_pid, 0)
                number = self._running.pop(process, None)
                if number is not None:  # None: a process whose parent has ended
                    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                    self._ended[number] = code

    def _on_message(self, message: dict[str, Any]) -> None:
        action = message["do"]
        if action == "clock":
            self.wire.send(clock=message["sent"], received=self.wire.received_ns, replied=time.monotonic_ns())
            self.wire.flush()
        elif action == "spawn":
            self._spawn(message)
        elif action == "signal":
            self._signal(message["number"], message["signal"])
        else:
            try:
                answer = getattr(self, "_do_" + action)(message)
            except (OSError, subprocess.SubprocessError, AgentError) as error:
                self.wire.send(answer=message["call"], failed=str(error))
            else:
                self.wire.send(answer=message["call"], value=answer)

    def _spawn(self, message: dict[str, Any]) -> None:
        number = message["number"]
        pipe = subprocess.PIPE
        environment = {**os.environ, **self._own_environment, **message["environment"]}
        try:
            process = subprocess.Popen(
                message["command"],
                bufsize=0,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=message.get("folder"),
                env=environment,
                start_new_session=True,
                preexec_fn=self._enter,
            )
        except (OSError, subprocess.SubprocessError) as error:
            self.wire.send(failed=number, why=str(error))
            return
        process.returncode = 0  # `_reap` takes the exit status, not `subprocess`
        self._running[process.pid] = number
        streams = [stream for stream in (process.stdin, process.stdout, process.stderr) if stream is not None]
        stdin, stdout, stderr = (os.dup(stream.fileno()) for stream in streams)
        for stream in streams:
            stream.close()
        self.wire.write_to(3 * number, stdin)
        self.wire.read_from(3 * number + 1, stdout)
        self.wire.read_from(3 * number + 2, stderr)

    def _enter(self) -> None:
        if self._group is not None:
            self._group.join()
        if self._user is not None:
            os.initgroups(self._user.pw_name, self._user.pw_gid)
            os.setgid(self._user.pw_gid)
            os.setuid(self._user.pw_uid)

    def _signal(self, number: int, wanted: int) -> None:
        for process, each in self._running.items():
            if each == number:
                with contextlib.suppress(OSError):
                    # Killing a program also kills the processes that it started, as on nodes of this machine.
                    (os.killpg if wanted == signal.SIGKILL else os.kill)(process, wanted)

    def _do_network(self, message: dict[str, Any]) -> None:
        configure_network(message)

    def _do_meet(self, _: dict[str, Any]) -> tuple[str, int] | None:
        """Lead the tunnel to the address and port of the greeting of the other end, if it has arrived."""
        if self._meeting is None:
            raise AgentError("no greeting is expected")
        found = self._meeting.find()
        if found is not None:
            everything = "00:00:00:00:00:00"
            ip("fdb", "append", everything, "dev", DEVICE, "dst", found[0], "port", str(found[1]), program="bridge")
            self._meeting.close()
        return found

    def _do_signal_all(self, message: dict[str, Any]) -> None:
        # To all except process 1, which is this process on both kinds of node.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, message["number"])

    def _do_served(self, message: dict[str, Any]) -> tuple[list[int], list[int], int]:
        process = next((each for each, number in self._running.items() if number == message["number"]), 0)
        return find_served(process)

    def _do_listen(self, message: dict[str, Any]) -> str:
        """Create a socket. Its connections are forwarded to the hub's socket with the number in the message."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A random name: no program of the node can take it first, or put a link in its place before a later chmod.
        path = str(Path(".cellbed-socket-" + os.urandom(8).hex()).absolute())
        mask = os.umask(0o111)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen(128)
        listener.setblocking(False)
        self._listening.append(listener)
        self.wire.watched[listener.fileno()] = lambda: self._forward(listener, message["socket"])
        return path

    def _forward(self, listener: socket.socket, wanted: int) -> None:
        """Forward all waiting connections: the hub must know them before it knows that their program has ended."""
        with contextlib.suppress(OSError):
            while True:
                connection = listener.accept()[0].detach()
                number = FIRST_FORWARDED + self._forwarded
                self._forwarded += 1
                self.wire.send(connected=number, socket=wanted)
                self.wire.read_from(number, connection)
                self.wire.write_to(number, os.dup(connection))

    def _do_disk(self, message: dict[str, Any]) -> None:
        if self._disk is None:
            folder = str(Path.cwd())
            _mount("cellbed", folder, "tmpfs", 0, f"size={message['bytes']},mode=755")
            if self._user is not None:
                os.chown(folder, self._user.pw_uid, self._user.pw_gid)
            os.chdir(folder)
            self._disk = Disk(folder)
        self._disk.fill(message["full"])

    def _do_limit(self, message: dict[str, Any]) -> tuple[float | None, int | None]:
        assert self._group is not None
        self._group.limit(message["cpus"], message["memory"])
        return self._group.limits()

    def _do_sample(self, _: dict[str, Any]) -> dict[str, int | None]:
        return self._group.sample() if self._group else _machine_sample()


class Meeting:
    """A socket of this machine that receives the greeting of a tunnel's other end, which may be behind address
    translation.

    The tunnel's own socket has the port: this one sees a copy of its packets (raw(7)). token: content of the greeting.
    """

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
        self._socket.setblocking(False)
        # Accept packets to the port only: X = length of the IP header; A = port there (bpf(4)).
        program = ((0xB1, 0, 0, 0), (0x48, 0, 0, 2), (0x15, 0, 1, UDP_PORT), (0x06, 0, 0, 0xFFFF), (0x06, 0, 0, 0))
        code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
        self._socket.setsockopt(
            socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HL", len(program), ctypes.addressof(code))
        )

    def close(self) -> None:
        """Receive no more packets."""
        self._socket.close()

    def find(self) -> tuple[str, int] | None:
        """Return the address and port of a greeting's sender; ``None`` without one."""
        for _ in range(_MOST_GREETINGS):
            try:
                packet, peer = self._socket.recvfrom(2048)
            except OSError:
                return None
            segment = packet[(packet[0] & 15) * 4 :]
            if segment[8:] == self._token:
                return peer[0], int.from_bytes(segment[:2], "big")
        return None


_SO_ATTACH_FILTER = 26
_MOST_GREETINGS = 10_000
"""Maximum number of packets read at once: other tunnels' packets to the port come as well."""


def greeting(token: str, source: str, target: str) -> bytes:
    """Return the UDP segment (RFC 768) for :class:`Meeting`. source, target: IPv4 addresses."""
    size = 8 + len(token)
    segment = struct.pack("!4H", UDP_PORT, UDP_PORT, size, 0) + token.encode()
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack("!2H", socket.IPPROTO_UDP, size)
    return segment[:6] + struct.pack("!H", checksum(pseudo + segment) or 0xFFFF) + segment[8:]


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071) of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class AgentError(Exception):
    """An error that makes the node unusable."""


def _invoking_user() -> pwd.struct_passwd | None:
    """Return the user who logged in, as whom programs run; ``None`` for root."""
    number = int(os.environ.get("SUDO_UID", "0"))
    return pwd.getpwuid(number) if number else None


class Limits:
    """The CPU and memory limits of a control group. folders: by controller; in version 2 all the same."""

    def __init__(self, folders: dict[str, Path], version: int) -> None:
        self.folders, self.version = folders, version
        self._cpu, self._memory = folders["cpu"], folders["memory"]

    def limit(self, cpus: float | None, memory: int | None) -> None:
        """Set the limits: CPUs (1.5: the time of one and a half CPUs) and bytes. ``None``: no limit."""
        quota = -1 if cpus is None else round(cpus * PERIOD_US)
        if self.version == 2:
            (self._cpu / "cpu.max").write_text(f"{'max' if quota < 0 else quota} {PERIOD_US}")
            (self._memory / "memory.max").write_text("max" if memory is None else str(memory))
            with contextlib.suppress(OSError):  # absent without swap accounting
                (self._memory / "memory.swap.max").write_text("0")
            return
        (self._cpu / "cpu.cfs_quota_us").write_text("-1")
        (self._cpu / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self._cpu / "cpu.cfs_quota_us").write_text(str(quota))
        (self._memory / "memory.limit_in_bytes").write_text("-1" if memory is None else str(memory))

    def limits(self) -> tuple[float | None, int | None]:
        """Return the limits that the kernel reports: CPUs and bytes, ``None`` for no limit."""
        if self.version == 2:
            quota, period = _read(self._cpu / "cpu.max").split()
            memory = _read(self._memory / "memory.max").strip()
        else:
            quota, period = (_read(self._cpu / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
            memory = _read(self._memory / "memory.limit_in_bytes").strip()
        return (
            None if quota in ("max", "-1") else int(quota) / int(period),
            None if memory == "max" or int(memory) >= 1 << 62 else int(memory),
        )

    def sample(self) -> dict[str, int | None]:
        """Return the use so far, with the keys of ``cgroups.Sample``."""
        stat = _pairs(self._cpu / "cpu.stat")
        if self.version == 2:
            usage, throttled = stat.get("usage_usec"), stat.get("throttled_usec")
            cpu_ns = None if usage is None else 1000 * usage
            throttled_ns = None if throttled is None else 1000 * throttled
            memory, kills = "memory.current", _pairs(self._memory / "memory.events")
        else:
            cpu_ns = _number(self.folders["cpuacct"] / "cpuacct.usage")
            throttled_ns = stat.get("throttled_time")
            memory, kills = "memory.usage_in_bytes", _pairs(self._memory / "memory.oom_control")
        return {
            "cpu_ns": cpu_ns,
            "memory_bytes": _number(self._memory / memory),
            "periods": stat.get("nr_periods"),
            "throttled_periods": stat.get("nr_throttled"),
            "throttled_ns": throttled_ns,
            "oom_kills": kills.get("oom_kill"),
        }


class Group(Limits):
    """A control group for the programs of a node: version 2, or version 1 if version 2 is missing."""

    def __init__(self, name: str) -> None:
        mounts = [line.split()[1:4] for line in _read(Path("/proc/self/mounts")).splitlines()]
        folders = {
            controller: Path(mount, name)
            for mount, kind, options in mounts
            if kind == "cgroup"
            for controller in {"cpu", "cpuacct", "memory"} & set(options.split(","))
        }
        version = 1 if {"cpu", "memory"} <= set(folders) else 2
        if version == 2:
            tops = [Path(mount) for mount, kind, _ in mounts if kind == "cgroup2"]
            top = next(
                (top for top in tops if {"cpu", "memory"} <= set(_read(top / "cgroup.controllers").split())), None
            )
            if top is None:
                raise AgentError("no control groups with the controllers cpu and memory are mounted")
            (top / "cgroup.subtree_control").write_text("+cpu +memory")
            folders = dict.fromkeys(("cpu", "cpuacct", "memory"), top / name)
        super().__init__(folders, version)
        for folder in set(folders.values()):
            # Groups of agents that were killed with their parents.
            for left in folder.parent.glob("cellbed-host-*"):
                process = left.name.rsplit("-", 1)[1]
                if process.isdigit() and not Path("/proc", process).exists():
                    with contextlib.suppress(OSError):
                        left.rmdir()
            folder.mkdir()

    def join(self) -> None:
        """Move the calling process into the group."""
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text("0")

    def remove(self) -> None:
        """Remove the group after its processes have ended."""
        for folder in set(self.folders.values()):
            for _ in range(200):
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:  # busy for a moment after the last process has ended
                    time.sleep(0.01)


def _machine_sample() -> dict[str, int | None]:
    memory = _pairs(Path("/proc/meminfo"))
    cpu = [int(value) for value in _read(Path("/proc/stat")).splitlines()[0].split()[1:]]
    return {
        "cpu_ns": sum(cpu[:3] + cpu[5:8]) * (1_000_000_000 // os.sysconf("SC_CLK_TCK")),
        "memory_bytes": 1024 * (memory["MemTotal:"] - memory["MemAvailable:"]),
        "periods": None,
        "throttled_periods": None,
        "throttled_ns": None,
        "oom_kills": _pairs(Path("/proc/vmstat")).get("oom_kill"),
    }


def configure_network(wanted: dict[str, Any]) -> None:
    """Configure the end of a node's connection on this machine or namespace, and check it with a full-size packet.

    wanted: device; mtu: largest packet on the connection; ipv4, ipv6: addresses; gateway4, gateway6, gateway_mac: the
    next hop; sysctls; hosts: content of ``/etc/hosts`` for programs, or ``None``; host_name: the name of the node;
    path: the connection, for errors.
    """
    socket.sethostname(wanted["host_name"])
    device, four, six, mtu = wanted["device"], wanted["gateway4"], wanted["gateway6"], wanted["mtu"]
    # A tunnel would lower the MTU of routes to avoid fragments, and programs would send less.
    size = f"mtu lock {mtu}"
    for key, value in wanted["sysctls"].items():
        try:
            Path("/proc/sys", key.replace(".", "/")).write_text(value, encoding="utf-8")
        except OSError as error:
            raise AgentError(f"its kernel does not accept {key} = {value}: {error.strerror}") from error
    lines = ["link set lo up"]
    if device != DEVICE:
        lines.append(f"link set {device} name {DEVICE}")
    lines += [
        f"link set {DEVICE} mtu {mtu} up",
        f"addr add {wanted['ipv4']}/32 dev {DEVICE}",
        f"route add {four} dev {DEVICE} {size}",
        f"neigh replace {four} lladdr {wanted['gateway_mac']} dev {DEVICE} nud permanent",
        f"route add default via {four} dev {DEVICE} src {wanted['ipv4']} {size}",
    ]
    if Path("/proc/sys/net/ipv6").exists():
        for which in ("all", "default"):
            Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6").write_text("0", encoding="utf-8")
        lines += [
            f"addr add {wanted['ipv6']}/128 dev {DEVICE} nodad preferred_lft 0",
            f"-6 route add {six} dev {DEVICE} {size}",
            f"-6 neigh replace {six} lladdr {wanted['gateway_mac']} dev {DEVICE} nud permanent",
            f"-6 route add default via {six} dev {DEVICE} {size}",
        ]
    for line in lines:
        ip(*line.split())
    if not _answers(four, mtu - 28):
        what = f"packets of {mtu} bytes" if _answers(four, 56) else "packets"
        raise AgentError(f"no {what} reach this machine through {wanted['path']}")
    if wanted["hosts"] is not None:  # last, since it is done once, and another tunnel may be tried
        _show_hosts(wanted["hosts"])


def _show_hosts(text: str) -> None:
    """Show `text` as ``/etc/hosts`` in this mount namespace, without changing the file."""
    target = Path("/etc/hosts")
    target.touch()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        Path(file.name).chmod(0o644)
        _mount(file.name, str(target), None, _MS_BIND)


def ip(*arguments: str, program: str = "ip") -> None:
    """Run ip(8), or another program of its package."""
    path = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise AgentError(f"{program} is not installed on the node (Debian package iproute2)")
    done = subprocess.run(
        [path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode:
        raise AgentError(f"{program} {' '.join(arguments)}: {done.stdout.decode(errors='replace').strip()}")


def _answers(address: str, size: int) -> bool:
    """Return whether `address` answers an ICMP echo request with `size` bytes of data (RFC 792)."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as echo:
        echo.settimeout(0.2)
        body = struct.pack("!HH", os.getpid() & 0xFFFF, 1) + bytes(size)
        request = struct.pack("!BBH", 8, 0, checksum(b"\x08\0" + body)) + body
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            try:
                echo.sendto(request, (address, 0))
                reply = echo.recv(2048)
            except OSError:
                time.sleep(0.01)
                continue
            if reply[20:21] == b"\0" and len(reply) == 28 + size:
                return True
    return False


def main(reading: int, kind: str, **options: Any) -> NoReturn:
    """Run the agent of a VM (as process 1; `reading` is its port) or of a host (`reading` is standard input)."""
    if kind == "vm":
        _be_vm(reading, **options)
    _be_host(options)
    sys.exit(0)


def _be_vm(port: int, name: str, limited: bool) -> NoReturn:
    socket.sethostname(name)
    for kind, path in (("tmpfs", "/tmp"), ("devpts", "/dev/pts"), ("tmpfs", "/dev/shm"), ("cgroup2", "/sys/fs/cgroup")):
        Path(path).mkdir(parents=True, exist_ok=True)
        _mount(kind, path, kind, 0)
    os.chdir(os.environ["HOME"])
    try:
        Agent(port, port, Group("cellbed-host-1") if limited else None, SAMPLE_IN_VM_S).run()
    finally:
        # All processes of this machine end with the stream; its disk is a temporary copy.
        ctypes.CDLL(None).reboot(0x4321FEDC)
    os._exit(0)


def _be_host(options: dict[str, Any]) -> None:
    """Create control group and namespaces. The agent is process 1 of the namespaces: their processes end with it."""
    if os.geteuid() != 0:
        sys.exit("cellbed needs root, or sudo without a password, on this machine")
    group = None
    if options["group"]:
        try:
            group = Group(f"{options['group']}-{os.getpid()}")
        except (OSError, AgentError) as error:
            sys.exit(f"CPU and memory limits cannot be enforced on this machine: {error}")
    remover = _enter_own_folder()
    try:
        meeting = Meeting(options["meet"]) if options.get("meet") else None
        libc = ctypes.CDLL(None, use_errno=True)
        entered, enter = os.pipe()
        go, made = os.pipe()
        life, hold = os.pipe()
        if libc.unshare(_NEWPID) != 0:
            sys.exit(f"no PID namespace can be made on this machine: {os.strerror(ctypes.get_errno())}")
        child = os.fork()
        if child == 0:
            os.close(hold)
            os.close(made)
            if libc.unshare(_NEWNET | _NEWNS | _NEWUTS) != 0:
                sys.exit(f"no network namespace can be made on this machine: {os.strerror(ctypes.get_errno())}")
            _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
            _mount("proc", "/proc", "proc", 0)
            os.write(enter, b".")
            if not os.read(go, 1):
                os._exit(1)
            try:
                Agent(0, 1, group, life=life, meeting=meeting).run()
            finally:
                with contextlib.suppress(OSError):
                    os.kill(-1, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    while True:
                        os.wait()
                if group is not None:
                    group.remove()
                os._exit(0)
        for descriptor in (enter, go, life):
            os.close(descriptor)
        if meeting is not None:
            meeting.close()
        if os.read(entered, 1):
            try:
                # The UDP socket stays in this namespace, which has the machine's network.
                if options["tunnel"]:
                    client, _, server, _ = os.environ["CELLBED_CONNECTION"].split()
                    ip(*options["tunnel"].format(f"/proc/{child}/ns/net", server, client).split())
                os.write(made, b".")
            except AgentError as error:
                print(error, file=sys.stderr)
        os.close(made)
        # Only the agent reads from the stream and writes to it.
        os.close(0)
        os.close(1)
        os.waitpid(child, 0)
    finally:
        remover.communicate()
        if group is not None:
            group.remove()


def _enter_own_folder() -> subprocess.Popen[bytes]:
    """Enter a new working folder of programs, for the user who logged in. Return the process that removes the folder at
    the end of its input, at any depth and without following links."""
    for left in Path(tempfile.gettempdir()).glob("cellbed-host-*"):
        # Folders of agents that were killed with their parents.
        process = left.name.split("-")[2]
        if process.isdigit() and not Path("/proc", process).exists():
            subprocess.run(["rm", "-rf", "--", str(left)], stderr=subprocess.DEVNULL, check=False)
    folder = tempfile.mkdtemp(prefix=f"cellbed-host-{os.getpid()}-")
    user = _invoking_user()
    if user is not None:
        os.chown(folder, user.pw_uid, user.pw_gid)
    os.chdir(folder)
    null = subprocess.DEVNULL
    command = ["sh", "-c", 'cat; cd /; exec rm -rf -- "$1"', "sh", folder]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True)


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [value.encode() if value is not None else None for value in (source, target, kind, options)]
    if libc.mount(*arguments[:3], ctypes.c_ulong(flags), arguments[3]) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if text else None


def _pairs(path: Path) -> dict[str, int]:
    """Return the lines of a file that consist of a name and a number."""
    pairs = {}
    for line in _read(path).splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1].isdigit():
            pairs[fields[0]] = int(fields[1])
    return pairs
