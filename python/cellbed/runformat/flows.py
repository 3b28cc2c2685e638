"""``raw/flows.bin`` in the folder of a run: samples of the senders of TCP flows."""

FILE = "flows.bin"
MAGIC = b"cellbed flows  1"
SHOWN = 4
"""Maximum number of variables of a law in a sample: ``LAW_MOST_SHOWN`` of ``law.h``."""
_NAME = 15
"""Maximum bytes of a law's name in a sample."""


def sample_name(name: str) -> str:
    """Return the name of a law in samples: its last 15 bytes."""
    return name.encode()[-_NAME:].decode(errors="replace")
