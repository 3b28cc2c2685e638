"""This machine's end of an agent: the processes between a run and the stream to a VM or host.

*Hub*: one process per node. The hub shares the stream among programs, samples and clock measurements, because the run
itself has a single thread. The hub ends with its control socket, and the agent ends with the stream.

*Relay*: one process per program, in the program's place. The hub reads and writes the relay's standard streams for the
program. Signals to the relay reach the program, and the relay ends as the program ends. If a relay is killed, the
program is killed, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from cellbed.support.interruption import wait_with_handlers
from cellbed.testbed.machine.peers import peer_of
from cellbed_node import agent
from cellbed_node.processes import die_with_parent

LARGEST_MESSAGE = 1 << 17
MOST_FORWARDED = 256
"""Maximum number of forwarded connections of a node at the same time."""
MOST_PORTS = 10_000
"""Maximum number of ports of a program, such that they fit into a message."""
BURST = 4
"""Number of clock probes in a burst; the probe with the shortest round trip counts."""
FIRST_BURST = 16
INTERVAL_S = 0.5
LOST = 255
"""Exit status of a program whose node can no longer be reached."""

SAMPLE = ("cpu_ns", "memory_bytes", "periods", "throttled_periods", "throttled_ns", "oom_kills")
"""Keys of a sample, the same as in ``cgroups.Sample``."""
_PRINTABLE, _ADDRESS_OR_PORT = re.compile(r"[ -~]{1,500}"), re.compile(r"[0-9A-Za-z.:%_-]{1,64}")

Probe = tuple[int, int]
"""A probe of a clock: its offset from this machine's clock, and half the round trip, ns."""


def probe(sent: int, received: int, replied: int, returned: int) -> Probe:
    """Return the offset between two clocks from the four stamps of a request and its reply (RFC 5905, section 8).

    The error of the offset is at most half of the round trip (Cristian, Distributed Computing 3, 1989).
    """
    offset = ((received - sent) + (replied - returned)) // 2
    return offset, max(1, ((returned - sent) - (replied - received) + 1) // 2)


def estimate(probes: list[Probe]) -> Probe:
    """Return the offset of a clock, and an uncertainty that is consistent with all probes, even if the clock drifts.

    The best probe has the shortest round trip. A probe contradicts the best one if its interval excludes the best
    offset.
    """
    offset, half = min(probes, key=lambda each: each[1])
    return offset, max([half, *(abs(other - offset) - width for other, width in probes)])


def _text(value: Any, pattern: re.Pattern[str] = _PRINTABLE) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError
    return value


def _hello(value: Any) -> dict[str, Any]:
    connection = [_text(each, _ADDRESS_OR_PORT) for each in value["connection"]]
    cpus, network = agent.whole(value["cpus"], 1), agent.whole(value["network"], 1)
    return {"machine": _text(value["machine"]), "cpus": cpus, "network": network, "connection": connection}


def _sample(value: Any) -> dict[str, int | None]:
    return {key: None if value[key] is None else agent.whole(value[key]) for key in SAMPLE}


def _limits(value: Any) -> list[float | None]:
    if len(value) != 2 or not all(each is None or type(each) in (int, float) for each in value):
        raise ValueError
    return list(value)


def _port_lists(value: Any) -> list[Any]:
    tcp, udp, connections = value
    if len(tcp) + len(udp) > MOST_PORTS:
        raise ValueError
    return [*([agent.whole(port, 1, 0xFFFF) for port in ports] for ports in (tcp, udp)), agent.whole(connections)]


def _met(value: Any) -> list[Any] | None:
    if value is None:
        return None
    address, port = value
    return [_text(address, _ADDRESS_OR_PORT), agent.whole(port, 1, 0xFFFF)]


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "network": lambda _: None,
    "meet": _met,
    "disk": lambda _: None,
    "signal_all": lambda _: None,
    "listen": _text,
    "served": _port_lists,
    "limit": _limits,
    "sample": _sample,
}
"""Requests to the agent, with checks of their answers. Checks raise ``ValueError``, ``TypeError`` or ``KeyError``."""


class Hub:
    """The process between one node's stream and the run.

    The agent is not trusted: its machine may belong to somebody else, or be compromised. It can only send the output of
    programs that the run has started, connect to the sockets that the run has shown to its node, and answer. Its first
    message is ``hello``. After any other message, the hub closes the stream and reports the reason.

    stream: connection to the agent. control: connection to the run. relays: socket to which relays connect.
    """

    def __init__(self, stream: int, control: socket.socket, relays: socket.socket) -> None:
        self._control, self._listening = control, relays
        self._wire = agent.Wire(stream, stream, self._on_message)
        self._wire.watched[control.fileno()] = self._on_control
        self._wire.watched[relays.fileno()] = lambda: self._add_relay(relays.accept()[0])
        self._over = False
        self._hello: dict[str, Any] | None = None
        self._waiting: list[int] = []  # calls that wait for the agent's first message
        self._asked: dict[int, str] = {}  # calls that wait for any answer
        self._sockets: list[str] = []  # sockets of this machine, shown to the node by the run
        self._lost = ""  # reason, if the agent has broken the protocol
        self._number = 0
        self._relays: dict[int, socket.socket] = {}
        self._statuses: dict[int, int] = {}  # statuses of ended programs with unwritten output
        self._forwarded = 0
        self._processes: dict[int, int] = {}  # processes of relays, by number
        self._use: dict[int, list[int]] = {}  # usage of programs, by process of the relay
        self._sample: dict[str, Any] | None = None
        self._probes: list[Probe] = []
        self._burst: list[Probe] = []
        self._probed_ns = 0
        self._probes_left = 0
        self._next_burst = 0.0

    def run(self) -> None:
        """Serve until the run has closed the control socket."""
        try:
            while not self._over and self._wire.is_open:
                self._turn()
        except agent.ProtocolError as error:
            self._lost = f"its agent {error}"
        self._wire.close()
        self._listening.close()
        for number in list(self._relays):
            self._tell(number, {"lost": self._lost})
        for call in list(self._asked):
            self._answer(call, lost=self._lost)
        while not self._over:
            message, _ = _receive(self._control)
            if message is None:
                return
            if "call" in message:
                self._answer(message["call"], lost=self._lost)

    def _turn(self) -> None:
        now = time.monotonic()
        if self._hello is not None and now >= self._next_burst:
            self._next_burst = now + INTERVAL_S
            if self._probes_left == 0:
                self._probes_left = BURST
                self._probe()
        for number, status in list(self._statuses.items()):
            if not any(map(self._wire.has_unwritten, (3 * number + 1, 3 * number + 2))):
                del self._statuses[number]
                self._tell(number, {"status": status})
        self._wire.flush()
        self._wire.turn(INTERVAL_S)

    def _probe(self) -> None:
        self._probed_ns = time.monotonic_ns()
        self._wire.send(do="clock", sent=self._probed_ns)
        self._wire.flush()

    def _on_message(self, message: dict[str, Any]) -> None:
        """Handle a message of the agent. Errors: :class:`ProtocolError`."""
        try:
            self._handle(message)
        except (KeyError, TypeError, ValueError):
            raise agent.ProtocolError(f"sent a malformed message: {json.dumps(message)[:80]}") from None

    def _handle(self, message: dict[str, Any]) -> None:
        if self._hello is None:
            self._hello = _hello(message["hello"])
            self._probes_left = FIRST_BURST
            self._next_burst = time.monotonic() + INTERVAL_S
            self._probe()
        elif "clock" in message and self._probes_left > 0:
            stamps = agent.whole(message["received"]), agent.whole(message["replied"])
            self._burst.append(probe(self._probed_ns, *stamps, self._wire.received_ns))
            self._probes_left -= 1
            if self._probes_left > 0:
                self._probe()
                return
            self._probes.append(min(self._burst, key=lambda each: each[1]))
            self._burst.clear()
            for call in self._waiting:
                self._answer(call, value=self._hello)
            self._waiting.clear()
        elif "sample" in message:
            self._sample = {**_sample(message["sample"]), "time_ns": self._wire.received_ns}
        elif "ended" in message:
            number = agent.whole(message["ended"], 1, self._number)
            if number in self._relays:
                self._statuses[number] = agent.whole(message["status"], -signal.NSIG, 255)
            self._wire.drop(3 * number)
        elif "use" in message:
            cpu_ns, memory_bytes = map(agent.whole, message["use"])
            self._use[self._processes[agent.whole(message["number"], 1, self._number)]] = [cpu_ns, memory_bytes]
        elif "connected" in message:
            first = agent.FIRST_FORWARDED + self._forwarded
            self._connect(
                agent.whole(message["connected"], first, first),
                self._sockets[agent.whole(message["socket"], 0, len(self._sockets) - 1)],
            )
        elif "why" in message:
            self._tell(agent.whole(message["failed"]), {"failed": str(message["why"])[:500]})
        else:
            check = _ANSWERS[self._asked[message["answer"]]]
            if "failed" in message:
                self._answer(message["answer"], failed=str(message["failed"])[:500])
            else:
                self._answer(message["answer"], value=check(message["value"]))

    def _connect(self, number: int, path: str) -> None:
        """Forward the stream `number` to the run's socket at `path`."""
        self._forwarded += 1
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if self._wire.count_forwarded() >= MOST_FORWARDED:
                raise BlockingIOError
            connection.connect(path)
        except OSError:
            connection.close()
            self._wire.send(broken=number)
        else:
            self._wire.read_from(number, os.dup(connection.fileno()))
            self._wire.write_to(number, connection.detach())

    def _on_control(self) -> None:
        """Handle a message of the run."""
        message, _ = _receive(self._control)
        if message is None:
            self._over = True
            return
        action = message["do"]
        if "call" in message:
            self._asked[message["call"]] = action
        if action == "wait":
            if self._probes:
                self._answer(message["call"], value=self._hello)
            else:
                self._waiting.append(message["call"])
        elif action == "use":
            self._answer(message["call"], value=self._use.get(message["process"], [0, 0]))
        elif action == "state":
            self._answer(message["call"], value={"sample": self._sample, "clock": estimate(self._probes)})
        else:
            if action == "listen":  # the agent knows only the socket's number
                self._sockets.append(message.pop("path"))
                message["socket"] = len(self._sockets) - 1
            elif action == "served":
                process = message.pop("process")
                message["number"] = next((each for each in self._relays if self._processes[each] == process), 0)
            self._wire.send(**message)

    def _add_relay(self, relay: socket.socket) -> None:
        self._number += 1
        number = self._number
        self._processes[number], _ = peer_of(relay)
        self._relays[number] = relay
        self._wire.watched[relay.fileno()] = lambda: self._on_relay(number, relay)

    def _on_relay(self, number: int, relay: socket.socket) -> None:
        """Handle a message of a relay: first its program, later signals."""
        message, descriptors = _receive(relay)
        if message is None:
            del self._wire.watched[relay.fileno()]
            relay.close()
            if self._relays.pop(number, None) is not None:
                self._statuses.pop(number, None)
                self._wire.send(do="signal", number=number, signal=signal.SIGKILL)
                for stream in range(3):
                    self._wire.drop(3 * number + stream)
        elif "signal" in message:
            self._wire.send(do="signal", number=number, signal=message["signal"])
        else:
            message.setdefault("environment", {})
            self._wire.send(do="spawn", number=number, **message)
            self._wire.read_from(3 * number, descriptors[0])
            for stream in (1, 2):
                self._wire.write_to(3 * number + stream, descriptors[stream])

    def _tell(self, number: int, message: dict[str, Any]) -> None:
        """Report the program's end to its relay, and forget the relay: no kill is needed when it ends."""
        relay = self._relays.pop(number, None)
        if relay is not None:
            if "failed" in message:
                for stream in range(3):
                    self._wire.drop(3 * number + stream)
            with contextlib.suppress(OSError):
                relay.send(json.dumps(message).encode())

    def _answer(self, call: int, **answer: Any) -> None:
        self._asked.pop(call, None)
        with contextlib.suppress(OSError):
            self._control.send(json.dumps({"call": call, **answer}).encode())


def _receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    try:
        message, descriptors, _, _ = socket.recv_fds(connection, LARGEST_MESSAGE, 3)
    except OSError:
        return None, []
    return (json.loads(message) if message else None), descriptors


def relay(path: str, command: list[str], options: dict[str, Any]) -> NoReturn:
    """Represent a program on the node whose hub listens at `path`, until the program has ended.

    options: the program's `environment` (variables added to the node's) and `folder`.
    """
    die_with_parent()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(path)
    except OSError:
        _be_lost()

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(OSError):
            connection.send(json.dumps({"signal": number}).encode())

    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # they follow the command
    for number in signals:
        signal.signal(number, forward)
    socket.send_fds(connection, [json.dumps({"command": command, **options}).encode()], [0, 1, 2])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    # Only the hub reads and writes the streams: they end with the program's streams.
    for descriptor in (0, 1):
        os.close(descriptor)
    with wait_with_handlers() as wait:
        wait(connection)
        message, _ = _receive(connection)
    if message is None:
        _be_lost()
    if "lost" in message:
        _be_lost(message["lost"])
    if "failed" in message:
        print(f"cannot run {command[0]}: {message['failed']}", file=sys.stderr, flush=True)
        os._exit(127)
    status = message["status"]
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _be_lost(why: str = "its hub has ended") -> NoReturn:
    print("the connection to the node is lost" + (f": {why}" if why else ""), file=sys.stderr, flush=True)
    os._exit(LOST)


def main() -> None:
    """Run ``agent_hub relay PATH OPTIONS COMMAND…``, or ``agent_hub hub PATH SETUP STREAM`` with the control socket as
    standard input."""
    role, path, text, *rest = sys.argv[1:]
    if role == "relay":
        relay(path, rest, json.loads(text))
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    stream = int(rest[0])
    relays = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    relays.bind(path)
    relays.listen(128)
    with socket.socket(fileno=os.dup(stream)) as other, contextlib.suppress(OSError):
        other.sendall(agent.delivery(Path(agent.__file__).read_bytes(), **json.loads(text)))
    Hub(stream, socket.socket(fileno=os.dup(0)), relays).run()


if __name__ == "__main__":
    main()
