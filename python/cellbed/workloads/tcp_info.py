"""The kernel's view of a TCP connection (tcp(7), TCP_INFO; ``struct tcp_info`` of linux/tcp.h)."""

import socket
import struct

# Eight one-byte fields, then 32-bit ones; these are the positions of those we keep among the latter.
_FIELDS = struct.Struct("=8B24I")
_RTT, _CWND, _TOTAL_RETRANSMITS = 8 + 15, 8 + 18, 8 + 23


def tcp_info(connection: socket.socket) -> dict[str, int] | None:
    """State of the sender: ``cwnd`` in segments, smoothed ``rtt_us``, ``retransmits`` (segments, since it opened).

    None where the connection is gone.
    """
    try:
        fields = _FIELDS.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size))
    except (OSError, struct.error):
        return None
    return {"cwnd": fields[_CWND], "rtt_us": fields[_RTT], "retransmits": fields[_TOTAL_RETRANSMITS]}
