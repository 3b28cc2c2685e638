"""Places of MQTT packets in a byte stream, connections to other servers, and the configuration of a broker."""

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cellbed_node.offloading.mqtt import Connection, PacketOffsets, PacketSocket
from run_commands import free_port


def _packet(body: int) -> bytes:
    """A PUBLISH packet with a body of this many bytes (MQTT 5.0, §1.5.5: variable byte integer)."""
    length, rest = bytearray(), body
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | (0x80 if rest else 0))
        if not rest:
            return b"\x30" + length + b"\xff" * body


bodies = st.lists(
    st.one_of(st.integers(0, 300), st.sampled_from([127, 128, 16383, 16384, 70000])), min_size=1, max_size=8
)


@given(bodies=bodies, cuts=st.lists(st.integers(1, 5000), max_size=50))
def test_packets_are_found_however_the_stream_is_cut(bodies: list[int], cuts: list[int]) -> None:
    packets = [_packet(body) for body in bodies]
    stream = b"".join(packets)
    offsets = PacketOffsets()
    ends = {}
    position = 0
    for size in [*cuts, len(stream)]:
        chunk = stream[position : position + size]
        offsets.feed(chunk)
        position += len(chunk)
        ends[position] = (offsets.start, offsets.end)
    assert offsets.total == len(stream)
    last = len(stream) - len(packets[-1])
    assert (offsets.start, offsets.end) == (last, len(stream))
    # At each cut the newest complete packet is the last one that ends at or before it.
    bounds = [0]
    for packet in packets:
        bounds.append(bounds[-1] + len(packet))
    for cut, found in ends.items():
        complete = max((index for index, bound in enumerate(bounds) if bound <= cut), default=0)
        assert found == ((bounds[complete - 1], bounds[complete]) if complete else (0, 0))


def _drive(connection: Connection, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 200
    while not until():
        assert time.monotonic() < deadline
        readable, writable, _ = select.select(connection.readers, connection.writers, [], 0.01)
        connection.drive(readable, writable)


def test_a_refused_connection_is_tried_again_and_the_reason_is_kept() -> None:
    port = free_port()
    connection = Connection("127.0.0.1", port, "tester")
    _drive(connection, lambda: bool(connection.trouble))
    assert connection.trouble == "Connection refused"
    assert connection.socket is None
    assert not connection.publish("topic", b"payload")
    with socket.create_server(("127.0.0.1", port)) as server:
        _drive(connection, lambda: connection.socket is not None)
        accepted, _ = server.accept()
        accepted.close()
        _drive(connection, lambda: connection.socket is None)
    assert not connection.ready
    connection.close()


def test_the_time_of_a_full_send_buffer_is_counted_until_it_takes_bytes_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = PacketSocket(socket.create_connection(server.getsockname()))
        client.setblocking(False)
        receiver, _ = server.accept()
        packet = _packet(30_000_000)
        assert client.full_ns(time.monotonic_ns()) == 0
        sent = client.send(packet)
        assert sent < len(packet)  # nobody reads
        first = client.accepted_ns
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += client.send(packet[sent:])
        assert client.full_ns(time.monotonic_ns()) > 0
        assert client.accepted_ns == first  # still the same packet
        received = 0
        while received < len(packet):
            received += len(receiver.recv(1 << 20))
            with contextlib.suppress(BlockingIOError):  # what is in its buffer arrives all the same
                sent += client.send(packet[sent:]) if sent < len(packet) else 0
        full = client.full_ns(time.monotonic_ns())
        client.send(_packet(3))
        assert client.full_ns(time.monotonic_ns()) == client.accepted_full_ns == full
        assert client.accepted_ns > first
        client.close()
        receiver.close()


def test_without_mosquitto_a_small_broker_passes_requests_and_replies_and_says_so(tmp_path: Path) -> None:
    port, received = free_port(), list[bytes]()
    config = {"addresses": ["127.0.0.1"], "port": port, "configuration": str(tmp_path / "broker.conf")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    code = (
        "from cellbed_node import lifecycle; from cellbed_node.offloading import broker; broker.find = lambda _: None; "
    )
    command = [sys.executable, "-c", f"{code}lifecycle.run(broker.main)", "--config", str(tmp_path / "config.json")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        note, ready = (json.loads(process.stdout.readline()) for _ in range(2))
        assert "sudo apt install mosquitto" in note["text"]
        assert ready == {"event": "ready"}
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert stranger.recv(1) == b""
        reader = Connection(
            "127.0.0.1", port, "reader", topic="a", on_message=lambda each: received.append(each.payload)
        )
        writer = Connection("127.0.0.1", port, "writer")
        _drive(reader, lambda: reader.ready)
        _drive(writer, lambda: writer.ready)
        large = bytes(300_000)
        for topic, payload in (("other", b"no"), ("a", b"first"), ("a", large)):
            writer.publish(topic, payload)
        _drive(writer, lambda: not writer.writers)
        _drive(reader, lambda: len(received) == 2)
        assert received == [b"first", large]
        reader.close()
        writer.close()
        process.stdin.close()
    assert process.returncode == 0
