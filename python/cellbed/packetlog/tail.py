"""The end of a packet log that is still being written."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cellbed.measure.packets import MAGIC, RECORD
from cellbed.packetlog.log import LogError, Records


class Tail:
    """Gives the records of a growing log as they come, from its present end on."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise LogError(f"{path}: cannot be read: {error.strerror}") from None
        whole = max(0, path.stat().st_size - len(MAGIC)) // RECORD.itemsize
        self._file.seek(len(MAGIC) + whole * RECORD.itemsize)
        self._part = b""

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self) -> Records:
        """The whole records that were written since the last call."""
        data = self._part + self._file.read()
        whole = len(data) - len(data) % RECORD.itemsize
        self._part = data[whole:]
        return np.frombuffer(data[:whole], RECORD)
