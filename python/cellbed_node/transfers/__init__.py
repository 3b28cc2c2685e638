"""Uploads and downloads of given sizes over TCP, UDP or QUIC."""

LARGEST = 256 << 20
"""Bytes of a transfer."""
MOST_OPEN = 500
"""Transfers of an endpoint at a time."""
