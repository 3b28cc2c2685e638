"""The hub of a node on another machine, with a far end that breaks the protocol."""

import contextlib
import io
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from cellbed.testbed.machine.peers import Admission
from cellbed.testbed.machine.process import Place
from cellbed.testbed.nodes import remote
from cellbed.testbed.nodes.backend import Setup
from cellbed.testbed.nodes.remote import NodeError, RemoteNode
from cellbed.testbed.programs.reports import SPANS, ReportSockets
from cellbed_node.agent import CHUNK, FIRST_FORWARDED, HEADER, LARGEST_MESSAGE, WINDOW

HELLO = {
    "machine": "Linux 6.1 x86_64",
    "cpus": 2,
    "network": 4026531840,
    "connection": ["198.18.0.1", "1", "198.18.0.2", "2"],
}
FRAME = HEADER.size


class Node(RemoteNode):
    """A node whose machine is the test itself: an agent that answers, and sends what a test has it send."""

    def __init__(self, folder: Path) -> None:
        place = Place(network_namespace="/proc/self/ns/net", user_namespace=None, binds=(), cgroups=())
        super().__init__(
            Setup(
                name="pi-0",
                place=place,
                interface="cellbed0",
                addresses=("100.64.192.2/32", "fd63:656c:6c62:3::2/128"),
                behind=("100.64.0.2/32", "fd63:656c:6c62::2/128"),
                run="run-1-abcdef",
                folder=folder,
            )
        )
        near, self.far = socket.socketpair()
        with near:
            self.open_agent(near, kind="host")
        self.messages: list[dict[str, Any]] = []
        self.answers: dict[str, Any] = {"listen": "/there"}
        self.outputs: list[bytes] = []  # of the next programs, which then end with status 0
        self.writing = threading.Lock()
        self.arrived = threading.Condition()
        threading.Thread(target=self._be_an_agent, daemon=True).start()

    def why(self) -> str:
        return "no reason"

    def frame(self, number: int, content: bytes) -> None:
        """Send a frame."""
        self.raw(HEADER.pack(number, len(content)) + content)

    def raw(self, content: bytes) -> None:
        """Send bytes; a hub that has closed the stream does not take them."""
        with self.writing, contextlib.suppress(OSError):
            self.far.sendall(content)

    def message(self, **message: Any) -> None:
        """Send a message."""
        self.frame(0, json.dumps(message).encode())

    def hello(self) -> None:
        """Begin as an agent does."""
        self.message(hello=HELLO)
        assert self.call("wait") == HELLO

    def spawned(self) -> int:
        """The number of the program that the hub has asked for."""
        with self.arrived:
            self.arrived.wait_for(lambda: any(each["do"] == "spawn" for each in self.messages))
        return int(next(each["number"] for each in self.messages if each["do"] == "spawn"))

    def _be_an_agent(self) -> None:
        with contextlib.suppress(OSError), self.far.makefile("rb") as stream:
            code = stream.readline()
            stream.read(int(cast("re.Match[bytes]", re.search(rb"len\(s\)<(\d+)", code))[1]))
            while header := stream.read(FRAME):
                number, length = HEADER.unpack(header)
                content = stream.read(length)
                if number:
                    continue
                message = json.loads(content)
                if message.get("do") == "clock":
                    self.message(clock=message["sent"], received=1, replied=2)
                elif message.get("do") in self.answers:
                    self.message(answer=message["call"], value=self.answers[message["do"]])
                if message.get("do") == "spawn" and self.outputs:
                    output = self.outputs.pop(0)
                    for at in range(0, len(output), CHUNK):
                        self.frame(3 * message["number"] + 1, output[at : at + CHUNK])
                    for each in (1, 2):
                        self.frame(3 * message["number"] + each, b"")
                    self.message(ended=message["number"], status=0)
                if "do" in message:
                    with self.arrived:
                        self.messages.append(message)
                        self.arrived.notify_all()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "node")
    yield node
    node.stop()
    node.far.close()


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket of this machine that the run has not shown to the node."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "private"))
        listener.listen()
        listener.setblocking(False)
        yield listener


def refused(node: Node) -> str:
    """The error of the next call after the far end has broken the protocol."""
    while True:
        try:
            node.call("use", process=1)
        except NodeError as error:
            return str(error)


@pytest.mark.parametrize(("key", "greets"), [("path", False), ("path", True), ("socket", True)])
def test_machine_cannot_name_a_socket(node: Node, listener: socket.socket, key: str, greets: bool) -> None:
    if greets:
        node.hello()
        node.show_socket(listener.getsockname() + "-of-the-run")
    node.message(**{"connected": FIRST_FORWARDED, key: listener.getsockname()})
    node.frame(FIRST_FORWARDED, b"POST /containers/create HTTP/1.1\r\n\r\n")
    assert refused(node).startswith("pi-0 cannot be reached: its agent sent ")
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_machine_reaches_the_sockets_that_the_run_has_shown_to_it(node: Node, listener: socket.socket) -> None:
    node.hello()
    assert node.show_socket(listener.getsockname()) == "/there"
    node.message(connected=FIRST_FORWARDED, socket=0)
    node.frame(FIRST_FORWARDED, b"line\n")
    node.frame(FIRST_FORWARDED, b"")
    listener.settimeout(200)
    with listener.accept()[0] as connection:
        assert connection.makefile("rb").read() == b"line\n"
    node.message(connected=FIRST_FORWARDED + 1, socket=1)
    assert "its agent sent" in refused(node)


RUBBISH = {
    "stream before the first message": HEADER.pack(3, 1) + b"x",
    "text": b"Welcome to pi-0!\r\nLast login: today\r\n",
    "frame of 4 GiB": HEADER.pack(0, 0xFFFFFFFF),
    "long message": HEADER.pack(0, LARGEST_MESSAGE + 1),
    "long frame": HEADER.pack(3, CHUNK + 1),
    "no JSON": HEADER.pack(0, 4) + b"\0\xff{[",
    "deep JSON": HEADER.pack(0, 100_000) + b"[" * 100_000,
    "long number": HEADER.pack(0, 20_000) + b'{"clock":' + b"9" * 19_990 + b"}",
}
MALFORMED = [
    [],
    {},
    {"clock": "x"},
    {"clock": 1, "received": 1, "replied": 2},  # without a probe
    {"hello": HELLO},  # a second one
    {"ended": 1, "status": 0},  # no such program
    {"ended": [], "status": 0},
    {"use": [1, 2], "number": 7},
    {"sample": {"cpu_ns": 1}},
    {"sample": 7},
    {"connected": 3, "socket": 0},
    {"connected": FIRST_FORWARDED, "socket": -1},
    {"failed": "x", "why": "y"},
    {"answer": 7, "value": 1},  # no such call
    {"answer": [7], "value": 1},
    {"written": [1]},
    {"written": 7.5},
    {"written": ["a", {}]},
    {"broken": "x"},
    {"broken": {}},
]


@pytest.mark.parametrize("kind", RUBBISH)
def test_rubbish_from_a_machine_is_one_error(node: Node, kind: str) -> None:
    if "JSON" in kind or kind.startswith("long"):  # others break the protocol at its beginning, too
        node.hello()
    node.raw(RUBBISH[kind])
    assert re.fullmatch("pi-0 cannot be reached: its agent sent a (frame of|malformed message).*", refused(node))


@pytest.mark.parametrize("message", MALFORMED, ids=json.dumps)
def test_malformed_message_of_a_machine_is_one_error(node: Node, message: Any) -> None:
    node.hello()
    node.frame(0, json.dumps(message).encode())
    assert re.fullmatch(r"pi-0 cannot be reached: its agent sent .*", refused(node))


@pytest.mark.parametrize(
    "hello",
    [
        {**HELLO, "machine": "\x1b[2J"},
        {**HELLO, "connection": ["1.2.3.4 dstport 1", "1", "1.2.3.4", "1"]},
        {**HELLO, "connection": None},
        {**HELLO, "network": "/proc/1/ns/net"},
        {},
        "Linux",
    ],
    ids=str,
)
def test_malformed_hello_is_one_error(node: Node, hello: Any) -> None:
    node.message(hello=hello)
    with pytest.raises(
        NodeError, match=r"pi-0 cannot be reached: its agent sent (a malformed message|'/proc/1/ns/net' where a number)"
    ):
        node.call("wait")


def test_malformed_answers_are_one_error(node: Node) -> None:
    node.hello()
    node.answers["limit"] = ["a", {}]
    with pytest.raises(NodeError, match="its agent sent a malformed message"):
        node.call("limit", cpus=1.0, memory=None)


def test_machine_that_ignores_the_window_of_a_stream_is_refused(node: Node) -> None:
    node.hello()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdin=subprocess.PIPE) as reader:
        program = node.spawn(["program"], stdout=reader.stdin.fileno(), stderr=subprocess.PIPE)
        reader.stdin.close()
        number = node.spawned()
        for _ in range(3 * WINDOW // CHUNK):
            node.frame(3 * number + 1, bytes(CHUNK))
        assert refused(node) == "pi-0 cannot be reached: its agent sent more of a stream than its window"
        _, errors = program.communicate()
        assert errors == b"the connection to the node is lost: its agent sent more of a stream than its window\n"
        reader.kill()


def test_stalled_reader_of_spans_does_not_hold_up_the_end_of_a_program(node: Node, tmp_path: Path) -> None:
    node.hello()
    sockets = ReportSockets(tmp_path, {})
    (path,) = sockets.listen(SPANS, "web", tmp_path / "record", Admission()).values()
    node.show_socket(path)
    program = node.spawn(["program"])
    number = node.spawned()
    node.message(connected=FIRST_FORWARDED, socket=0)
    lines = [f"phone-0/{each:06} work 1 2\n".encode() for each in range(WINDOW)]
    lines = lines[: WINDOW // len(lines[0])]  # more than the socket takes, as much as the stream does
    for line in lines:
        node.frame(FIRST_FORWARDED, line)
    node.message(ended=number, status=3)
    assert program.wait() == 3  # nothing has been read from the socket
    node.frame(FIRST_FORWARDED, b"")
    sockets.close()
    assert len((tmp_path / "record").read_text().splitlines()) == len(lines)


def test_folder_from_a_hostile_machine_stays_in_its_place(node: Node, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        for name, kind, link in (
            ("./setuid", tarfile.REGTYPE, ""),
            ("./absolute", tarfile.SYMTYPE, str(outside)),
            ("./absolute/written", tarfile.REGTYPE, ""),
            ("./hard", tarfile.LNKTYPE, str(outside / "secret")),
            ("./device", tarfile.CHRTYPE, ""),
            ("./block", tarfile.BLKTYPE, ""),
            ("../outside/above", tarfile.REGTYPE, ""),
            (str(outside / "rooted"), tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode, member.uid = kind, link, 0o6777, 4242
            member.devmajor, member.devminor = 1, 3
            packed.addfile(member)
    node.hello()
    node.outputs = [b"folder\n", archive.getvalue()]
    with pytest.raises(OSError, match=r"^/var/log on pi-0: tar: Exiting with failure status due to previous errors$"):
        node.copy_out("/var/log", tmp_path / "copy")
    assert [path.name for path in outside.iterdir()] == ["secret"]
    assert (outside / "secret").stat().st_nlink == 1
    for path in (tmp_path / "copy").rglob("*"):
        status = path.lstat()
        assert not stat.S_ISCHR(status.st_mode) | stat.S_ISBLK(status.st_mode), path
        assert status.st_uid == os.geteuid()
        assert not status.st_mode & (stat.S_ISUID | stat.S_ISGID), path
    assert (tmp_path / "copy/setuid").exists()


def test_a_program_there_that_prints_too_much_or_stands_still_is_killed(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = remote.ANSWER_S
    monkeypatch.setattr(remote, "ANSWER_S", 0.5)
    node.hello()
    node.outputs = [b"\n" + bytes(3 * CHUNK)]
    with pytest.raises(OSError, match=r"^/x on pi-0: it is too long$"):
        node.read("/x", 10)
    (tmp_path / "file").write_bytes(b"x")
    for attempt in (
        lambda: node.read("/x", 10),
        lambda: node.output(["cat"]),
        lambda: node.copy_in(tmp_path / "file", "x"),
        lambda: node.copy_out("/x", tmp_path / "copy"),
    ):
        with pytest.raises(OSError, match=r"on pi-0: it takes too long$"):
            attempt()
    monkeypatch.setattr(remote, "ANSWER_S", patience)
    node.outputs = [b"\n" + bytes(CHUNK)]
    assert node.read("/x", CHUNK) == bytes(CHUNK)


def test_killed_hub_ends_its_programs_and_is_named(node: Node) -> None:
    node.hello()
    program = node.spawn(["program"], stderr=subprocess.PIPE)
    node.spawned()
    node._hub.kill()
    assert program.communicate()[1] == b"the connection to the node is lost: its hub has ended\n"
    assert program.returncode == 255
    with pytest.raises(NodeError, match=f"pi-0 cannot be reached: its hub was killed by signal {signal.SIGKILL:d}"):
        node.call("state")
