"""Uploads and downloads of given sizes over TCP, UDP or QUIC."""

LARGEST = 256 << 20
"""Maximum bytes of a transfer."""
MOST_OPEN = 500
"""Maximum transfers of an endpoint at a time."""
