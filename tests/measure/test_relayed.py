"""Frames joined to the datagrams that carried them through a relay, on a log written by hand."""

import numpy as np
import polars as pl

from cellbed.measure.packets import RECORD, UDP, crossings
from cellbed.measure.relayed import with_relayed
from cellbed.measure.streams import Streams
from cellbed.runformat.description import Timed

MS = 1_000_000
NODES = ["endpoint-0", "endpoint-1", "edge-0"]
DIRECTIONS = [
    {"index": 0, "name": "mobile-0.uplink", "from": "endpoint-0", "to": "tower"},
    {"index": 1, "name": "core.uplink", "from": "tower", "to": "edge-0"},
    {"index": 2, "name": "core.downlink", "from": "edge-0", "to": "tower"},
    {"index": 3, "name": "mobile-1.downlink", "from": "tower", "to": "endpoint-1"},
]
CALL = Timed("call", "", servers=("edge-0",), relayed=True)


class Log:
    """Datagrams of 20 ms each way: 10 ms in each direction."""

    def __init__(self) -> None:
        self.records: list[tuple[int, ...]] = []
        self.packets = 0

    def up(self, at_ms: float, size: int, *, drop: bool = False) -> None:
        self._add(at_ms, (0, 1), (0, 2), (50_000, 3478), size, drop)

    def down(self, at_ms: float, size: int) -> None:
        self._add(at_ms, (2, 3), (2, 1), (3478, 50_001), size, False)

    def _add(
        self, at_ms: float, path: tuple[int, int], ends: tuple[int, int], ports: tuple[int, int], size: int, drop: bool
    ) -> None:
        now = round(at_ms * MS)
        for direction in path:
            times = (now, now, now + 10 * MS, now + 10 * MS)
            self.records.append((self.packets, *times, direction, drop, UDP, size + 28, *ports, 0, size, *ends))
            if drop:
                break
            now += 10 * MS
        self.packets += 1

    def frames(self, *times_ms: tuple[float, float]) -> list[tuple[int | None, int | None]]:
        """Return the numbers of the datagrams of frames, of which each left the encoder and was received."""
        log = np.array(self.records, RECORD)
        streams = Streams(crossings(log[np.argsort(log["departed"], kind="stable")], DIRECTIONS, [3478], NODES))
        rows = [
            {"endpoint": NODES[0], "receiver": NODES[1], "remote_port": 3478}
            | {"sent_ns": round(sent * MS), "received_ns": round(received * MS)}
            for sent, received in times_ms
        ]
        found = with_relayed(pl.DataFrame(rows), CALL, streams)
        known = found.drop_nulls("local_port")
        assert set(known["local_port"]) <= {50_000}
        assert set(known["receiver_port"]) <= {50_001}
        return list(found.select("uplink_start", "downlink_start").iter_rows())


def test_the_last_datagram_of_a_frame_is_found_on_both_sides_of_the_relay() -> None:
    log = Log()
    log.up(0, 60)  # a question to the relay, which it answers
    log.down(20.5, 80)
    for at, size in ((30, 1100), (31, 1100), (32, 400), (60, 900)):
        log.up(at, size)
        log.down(at + 20.3, size)
    assert log.frames((29, 72.4), (59, 100.5)) == [(3, 3), (4, 4)]


def test_a_datagram_that_was_lost_and_sent_again_counts_when_it_came() -> None:
    log = Log()
    log.up(0, 1000, drop=True)
    log.up(1, 700)
    log.down(21.2, 700)
    log.up(90, 1000)
    log.down(110.2, 1000)
    assert log.frames((0, 130.4)) == [(2, 1)]


def test_a_frame_without_its_datagrams_in_the_log_has_none() -> None:
    log = Log()
    log.up(0, 1000)
    log.down(20.3, 1000)
    # The last datagram before it is that of another frame, which had been sent before this one was encoded.
    assert log.frames((100, 200)) == [(None, None)]
    assert Log().frames((0, 1)) == [(None, None)]
