"""The load of WebSockets and of gRPC with real servers on loopback, and servers that break the protocol."""

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.sync.server import ServerConnection, serve

from any_text import many
from cellbed_node.http.messages import PREFIX, SPLITTERS
from cellbed_node.processes import die_with_parent
from workload_program import GREETER, _server, load

PUSHES = 3


def _chat(connection: ServerConnection) -> None:
    """Push some messages, then answer each in two: what it is, in a broadcast of some frames, and a note that it came;
    "bye" ends the connection."""
    for number in range(PUSHES):
        connection.send(f"news {number}")
    connection.ping()
    for message in connection:
        text = message if isinstance(message, str) else message.decode()
        if "bye" in text:
            return
        connection.send(["all: ", text])
        connection.send("came")


@pytest.fixture(scope="module")
def chat() -> Iterator[int]:
    """Port of a chat server."""
    with serve(_chat, "127.0.0.1", 0, max_size=None) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.socket.getsockname()[1]
        server.shutdown()


def test_an_echo_is_the_reply_and_all_else_is_a_message_of_the_server(tmp_path: Path, chat: int) -> None:
    text = '{{"id": "{request}", "by": "{node.name}"}}'
    requests, messages = load(tmp_path, "websocket", f"ws://127.0.0.1:{chat}/", message=text, connections=2)
    assert {(each["status"], each["error"]) for each in requests} == {("ok", None)}
    assert len(requests) == 30
    for each in requests:
        content = f'{{"id": "endpoint-0/{each["request"]}", "by": "endpoint-0"}}'
        assert (each["bytes_up"], each["bytes_down"]) == (len(content), len("all: ") + len(content))
        assert each["uplink_end"] - each["uplink_start"] == len(content) + 6  # header and mask of a frame
        assert each["downlink_end"] - each["downlink_start"] == each["bytes_down"] + 3 * 2  # frames; the last is empty
        assert each["opening_ns"] == each["sent_ns"]  # connections were open before
    assert Counter(each["bytes"] for each in messages) == {len("news 0"): 2 * PUSHES, len("came"): 30}
    assert {each["downlink_end"] - each["downlink_start"] - each["bytes"] for each in messages} == {2}
    assert {each["request"] for each in messages} == {None}


def test_the_next_message_is_the_reply_where_it_is_said_so(tmp_path: Path, chat: int) -> None:
    keys = {"reply": "next", "message": "hello", "size": "200 kB", "rate": "10 /s"}
    requests, messages = load(tmp_path, "websocket", f"ws://127.0.0.1:{chat}/", **keys)
    assert {(each["status"], each["bytes_up"]) for each in requests} == {("ok", 200_000)}
    replies = [each["bytes_down"] for each in sorted(requests, key=lambda each: each["request"])]
    # News come before the first request is sent, or answer the first ones.
    assert set(replies) <= {len("news 0"), len("came"), 200_000 + len("all: ")}
    assert len(messages) == PUSHES + 2 * len(requests) - len(requests)


def test_a_server_that_closes_a_websocket_loses_its_requests_and_it_is_opened_again(tmp_path: Path, chat: int) -> None:
    requests, _ = load(tmp_path, "websocket", f"ws://127.0.0.1:{chat}/", message="{request} bye", rate="10 /s")
    assert len(requests) == 10
    assert {each["status"] for each in requests} == {"lost"}
    assert "the server closed the WebSocket with code 1000" in {each["error"] for each in requests}
    opened = [each for each in requests if each["opening_ns"] is not None and each["opening_ns"] < each["sent_ns"]]
    assert 0 < len(opened) < len(requests)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "refuses WebSockets: HTTP status 403"),
        (b"SSH-2.0\r\n\r\n", "malformed message"),
    ],
)
def test_a_server_without_websockets_is_named_before_the_load(tmp_path: Path, reply: bytes, reason: str) -> None:
    def answer(connection: Any) -> None:
        connection.recv(1 << 16)
        connection.sendall(reply)

    with _server(answer) as port, pytest.raises(AssertionError, match=reason):
        load(tmp_path, "websocket", f"ws://127.0.0.1:{port}/")


@pytest.fixture(scope="module")
def greeter() -> Iterator[int]:
    """Port of a gRPC server, in a process of its own: gRPC's threads do not survive a fork."""
    with subprocess.Popen(
        [sys.executable, "-c", GREETER], stdout=subprocess.PIPE, preexec_fn=die_with_parent
    ) as server:
        yield int(server.stdout.readline())
        server.kill()


def test_calls_of_grpc_are_requests_with_their_messages(tmp_path: Path, greeter: int) -> None:
    keys = {"grpc": "a.Greeter/Many", "body_hex": "0a03616263", "messages": 2}
    requests, messages = load(tmp_path, "http", f"http://127.0.0.1:{greeter}", **keys)
    assert {(each["status"], each["code"], each["error"]) for each in requests} == {("ok", 200, None)}
    assert {each["bytes_up"] for each in requests} == {2 * (PREFIX + 5)}
    assert Counter(each["request"] for each in messages) == {number: 6 for number in range(30)}
    assert {each["bytes"] for each in messages} == {PREFIX + 5}
    assert all(each["first_byte_ns"] <= each["reply_ns"] for each in requests)


@pytest.mark.parametrize(
    ("method", "error"),
    [("a.Greeter/Refuse", "gRPC status 5 NOT_FOUND"), ("a.Nobody/Call", "gRPC status 12 UNIMPLEMENTED: ")],
)
def test_the_status_of_grpc_decides_the_outcome(tmp_path: Path, greeter: int, method: str, error: str) -> None:
    requests, _ = load(tmp_path, "http", f"http://127.0.0.1:{greeter}", grpc=method, body="x")
    assert {each["status"] for each in requests} == {"failed"}
    assert all(each["error"].startswith(error) and each["error"].isprintable() for each in requests)


@many
@given(st.lists(st.binary(max_size=9)), st.lists(st.integers(1, 9)))
def test_messages_of_grpc_are_found_however_their_bytes_are_cut(contents: list[bytes], cuts: list[int]) -> None:
    body = b"".join(b"\0" + len(each).to_bytes(4) + each for each in contents)
    splitter, found, at = SPLITTERS["grpc"](), [], 0
    for length in [*cuts, len(body)]:
        found += splitter.feed(body[at : at + length], complete=False)
        at += length
    assert found == [PREFIX + len(each) for each in contents]
