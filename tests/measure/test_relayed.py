"""Frames joined to the datagrams that carried them through a relay, on a log written by hand."""

import polars as pl

from cellbed.measure.packets import UDP, crossings
from cellbed.measure.relayed import add_relayed
from cellbed.measure.streams import Streams
from cellbed.runformat.description import Timed
from packet_logs import MS, Log, as_array

NODES = ["endpoint-0", "endpoint-1", "edge-0"]
DIRECTIONS = [
    {"index": 0, "name": "mobile-0.uplink", "from": "endpoint-0", "to": "tower"},
    {"index": 1, "name": "core.uplink", "from": "tower", "to": "edge-0"},
    {"index": 2, "name": "core.downlink", "from": "edge-0", "to": "tower"},
    {"index": 3, "name": "mobile-1.downlink", "from": "tower", "to": "endpoint-1"},
]
CALL = Timed("call", "", servers=("edge-0",), relayed=True)


class Relayed(Log):
    """Datagrams from endpoint-0 over edge-0 to endpoint-1, 10 ms to the relay and 10 ms from there."""

    def up(self, at: float, size: int, *, drop: int = 0) -> None:
        self._pass((0, 1), (0, 2), (50_000, 3478), at, 0, size, 0, drop)

    def down(self, at: float, size: int) -> None:
        self._pass((2, 3), (2, 1), (3478, 50_001), at, 0, size, 0, 0)

    def frames(self, *times_ms: tuple[float, float]) -> list[tuple[int | None, int | None]]:
        """Return the numbers of the datagrams of frames, of which each left the encoder and was received."""
        streams = Streams(
            crossings(as_array(self), {"directions": DIRECTIONS, "nodes": [{"name": name} for name in NODES]})
        )
        rows = [
            {"endpoint": NODES[0], "receiver": NODES[1], "remote_port": 3478}
            | {"sent_ns": round(sent * MS), "received_ns": round(received * MS)}
            for sent, received in times_ms
        ]
        found = add_relayed(pl.DataFrame(rows), CALL, streams)
        known = found.drop_nulls("local_port")
        assert set(known["local_port"]) <= {50_000}
        assert set(known["receiver_port"]) <= {50_001}
        return list(found.select("uplink_start", "downlink_start").iter_rows())


def test_the_last_datagram_of_a_frame_is_found_on_both_sides_of_the_relay() -> None:
    log = Relayed(protocol=UDP)
    log.up(0, 60)  # a question to the relay, which it answers
    log.down(10.5, 80)
    for at, size in ((30, 1100), (31, 1100), (32, 400), (60, 900)):
        log.up(at, size)
        log.down(at + 10.3, size)
    assert log.frames((29, 52.4), (59, 80.5)) == [(3, 3), (4, 4)]


def test_a_datagram_that_was_lost_and_sent_again_counts_when_it_came() -> None:
    log = Relayed(protocol=UDP)
    log.up(0, 1000, drop=1)
    log.up(1, 700)
    log.down(11.2, 700)
    log.up(90, 1000)
    log.down(100.2, 1000)
    assert log.frames((0, 110.4)) == [(2, 1)]


def test_a_frame_without_its_datagrams_in_the_log_has_none() -> None:
    log = Relayed(protocol=UDP)
    log.up(0, 1000)
    log.down(10.3, 1000)
    # The last datagram before it is that of another frame, which had been sent before this one was encoded.
    assert log.frames((100, 200)) == [(None, None)]
    assert Relayed(protocol=UDP).frames((0, 1)) == [(None, None)]
