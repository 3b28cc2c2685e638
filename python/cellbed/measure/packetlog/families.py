"""Which packets were IPv4 and which IPv6: the log does not say, their lengths do.

bytes − payload is the length of the headers. Beside the transport's 8 bytes UDP leaves 20 or 40. TCP has options, so
the two versions overlap for single packets (an IPv4 SYN has 60 bytes, an IPv6 segment without options too); but every
connection has packets whose options are small, and 60 bytes is the least that IPv6 and TCP need.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cellbed.measure.packetlog.log import Records

TCP, UDP, ICMPV6 = 6, 17, 58
LEAST_TCP_OVER_IPV6 = 60


class Families:
    """The IP version of every packet of a log. Let it `learn` all chunks, then ask for `versions`."""

    def __init__(self) -> None:
        self._extremes: dict[int, tuple[int, int]] = {}

    def learn(self, records: Records) -> None:
        """Note the shortest and the longest headers of each TCP connection."""
        tcp = records[records["protocol"] == TCP]
        keys, place = np.unique(_connections(tcp), return_inverse=True)
        headers = tcp["bytes"].astype(np.int64) - tcp["payload"]
        least, most = np.full(len(keys), 1 << 32), np.zeros(len(keys), np.int64)
        np.minimum.at(least, place, headers)
        # Any packet with payload tells: only connections that never came up are left to be guessed.
        np.maximum.at(most, place, np.where(tcp["payload"] > 0, 1 << 32, headers))
        for key, low, high in zip(keys.tolist(), least.tolist(), most.tolist(), strict=True):
            before = self._extremes.get(key, (low, high))
            self._extremes[key] = min(before[0], low), max(before[1], high)

    def versions(self, records: Records) -> NDArray[np.uint8]:
        """4 or 6 for each packet."""
        headers = records["bytes"].astype(np.int64) - records["payload"]
        transport = np.where(np.isin(records["protocol"], (UDP, ICMPV6)), 8, 0)
        six = headers - transport >= 40
        tcp = records["protocol"] == TCP
        keys, place = np.unique(_connections(records[tcp]), return_inverse=True)
        six[tcp] = np.array([self._is_ipv6(key) for key in keys.tolist()], np.bool_)[place]
        six |= records["protocol"] == ICMPV6
        six &= headers >= 40
        return np.where(six, 6, 4).astype(np.uint8)

    def _is_ipv6(self, connection: int) -> bool:
        least, most = self._extremes.get(connection, (0, 0))
        # SYNs of Linux over IPv4 have exactly 60 bytes of headers; where they are all there is, nobody answered.
        return least >= LEAST_TCP_OVER_IPV6 and most != LEAST_TCP_OVER_IPV6


def _connections(tcp: Records) -> NDArray[np.uint64]:
    """A number for each packet's connection, the same in both of its directions."""
    one = tcp["source_vertex"].astype(np.uint64) << np.uint64(16) | tcp["source_port"]
    other = tcp["destination_vertex"].astype(np.uint64) << np.uint64(16) | tcp["destination_port"]
    connections: NDArray[np.uint64] = np.minimum(one, other) << np.uint64(32) | np.maximum(one, other)
    return connections
