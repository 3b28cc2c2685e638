"""TLS in virtual time: both ends exchange records of the right lengths."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from any_text import many
from cellbed.support.errors import CellbedError
from cellbed.workloads.virtual import tls
from cellbed.workloads.virtual.world import Socket, World

SHAKE = tls.Handshake(hello=517, flight=1300, tickets=510, work_ns=5)


def pair() -> tuple[tls.Client, tls.Server, bytearray]:
    """Both ends, and the server's handshake messages."""
    sent = bytearray()
    world = SimpleNamespace(at=lambda _, call: call())
    connection = SimpleNamespace(send=sent.extend)
    return tls.Client(SHAKE), tls.Server(SHAKE, cast(Socket, connection), cast(World, world), lambda _: 0), sent


@many
@given(messages=st.lists(st.binary(min_size=1, max_size=40_000), min_size=1, max_size=4), piece=st.integers(1, 5000))
def test_messages_pass_in_records_with_their_overhead(messages: list[bytes], piece: int) -> None:
    client, server, sent = pair()
    client.begin()
    hello = client.answer()
    assert (len(hello), client.hello) == (517, 517)
    assert server.decode(hello) == b""
    assert client.decode(bytes(sent)) == b""
    assert (client.ready, client.flight) == (True, 1300)
    sent.clear()
    assert server.decode(client.answer()) == b""
    assert len(sent) == 510
    assert client.decode(bytes(sent)) == b""
    for message in messages:
        wire = server.encode(message)
        assert len(wire) == len(message) + tls.OVERHEAD * -(-len(message) // tls.LARGEST)
        got = b"".join(client.decode(wire[at : at + piece]) for at in range(0, len(wire), piece))
        assert got == message
        assert server.decode(client.encode(message)) == message


def test_a_profile_without_a_handshake_is_refused() -> None:
    samples: list[dict[str, Any]] = [{"handshake": (517, 1300, 510, 5)}, {}, {"handshake": (519, 1302, 510, 9)}]
    assert tls.Handshake.of([*samples, samples[0]]) == SHAKE
    with pytest.raises(CellbedError, match="no request that opened a connection"):
        tls.Handshake.of([{}])
    # Replies to other requests are not taken for tickets.
    samples = [{"handshake": (517, 1300, tickets, 5)} for tickets in (84_000, 510, 83_746)]
    assert tls.Handshake.of([{}, *samples]) == SHAKE
