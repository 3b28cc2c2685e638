"""The kernel's view of a TCP connection (tcp(7), TCP_INFO; ``struct tcp_info`` of linux/tcp.h)."""

import socket
import struct

# Eight one-byte fields, then 24 of 32 bits, then mixed ones; these are the positions of those we keep.
_FIELDS = struct.Struct("=8B24I4Q6I4Q")
_RTT, _CWND, _TOTAL_RETRANSMITS = 8 + 15, 8 + 18, 8 + 23
_RECEIVE_WINDOW_LIMITED = 8 + 24 + 4 + 6 + 2


def tcp_info(connection: socket.socket) -> dict[str, int] | None:
    """State of the sender: ``cwnd`` in segments, smoothed ``rtt_us``, ``retransmits`` (segments, since it opened),
    ``receive_window_limited_us`` (for how long the receiver's window kept it from sending, likewise; Linux 4.10).

    None where the connection is gone.
    """
    try:
        fields = _FIELDS.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _FIELDS.size))
    except (OSError, struct.error):
        return None
    return {
        "cwnd": fields[_CWND],
        "rtt_us": fields[_RTT],
        "retransmits": fields[_TOTAL_RETRANSMITS],
        "receive_window_limited_us": fields[_RECEIVE_WINDOW_LIMITED],
    }
