"""Requests in datagrams that a relay forwards: the last datagram of each request on both sides of the relay.

A client knows when it sent a request, such as a frame of a call. The receiver knows when the last datagram arrived.
Neither knows the datagram's number. The last datagram is the last arrival until then. On the other side of the relay,
it is the last datagram of the same size that had reached the relay. If several datagrams of one size arrive together,
a neighbour may be chosen; the error is their distance.
"""

import numpy as np
import polars as pl

from cellbed.measure.streams import Streams
from cellbed.runformat.description import Description

_RELAY = 100_000_000
"""Maximum time of a datagram at a relay, ns."""
_NUMBERS = ("uplink_start", "uplink_end", "downlink_start", "downlink_end", "local_port", "receiver_port")


def add_relayed(requests: pl.DataFrame, application: Description, streams: Streams) -> pl.DataFrame:
    """Add the numbers of each request's last datagram, as ``workloads/udp.py`` counts them, and the ports of both
    clients, ``local_port`` and ``receiver_port``. Pure.

    requests: table of an application with one relay, with ``receiver`` (the node), ``sent_ns`` and ``received_ns``.
    Numbers are null if no datagram fits.
    """
    known = requests.with_row_index("row").drop_nulls(["receiver", "remote_port", "sent_ns", "received_ns"])
    found = [pl.DataFrame(schema={"row": pl.UInt32, **dict.fromkeys(_NUMBERS, pl.Int64)})]
    for (endpoint, receiver, port), group in known.group_by("endpoint", "receiver", "remote_port"):
        names, peers = (str(endpoint), str(receiver)), application.servers
        local, up = streams.datagrams(names[0], int(str(port)), peers, arriving=False)
        remote, down = streams.datagrams(names[1], int(str(port)), peers, arriving=True)
        passages = streams.crossings
        sent = pl.DataFrame(
            {
                "up": np.arange(len(up)),
                "begun_ns": passages.entered[up],
                "reached_ns": passages.left[up],
                "size": passages.payload[up],
            }
        ).filter(pl.Series(passages.delivered[up], dtype=pl.Boolean))
        arrived = pl.DataFrame(
            {
                "down": np.arange(len(down)),
                "entered_ns": passages.entered[down],
                "arrived_ns": passages.left[down],
                "size": passages.payload[down],
            }
        )
        passed = arrived.sort("entered_ns").join_asof(
            sent.sort("reached_ns"),
            left_on="entered_ns",
            right_on="reached_ns",
            by="size",
            tolerance=_RELAY,
            check_sortedness=False,
        )
        last = group.sort("received_ns").join_asof(
            passed.drop_nulls("up").sort("arrived_ns").select("arrived_ns", "begun_ns", "up", "down"),
            left_on="received_ns",
            right_on="arrived_ns",
        )
        found.append(
            last.filter(pl.col("begun_ns") >= pl.col("sent_ns")).select(
                "row",
                uplink_start="up",
                uplink_end=pl.col("up") + 1,
                downlink_start="down",
                downlink_end=pl.col("down") + 1,
                local_port=pl.lit(local, pl.Int64),
                receiver_port=pl.lit(remote, pl.Int64),
            )
        )
    numbered = requests.drop(_NUMBERS, strict=False).with_row_index("row")
    return numbered.join(pl.concat(found), on="row", how="left", maintain_order="left").drop("row")
