"""Numbers that are looked at several times, of which memory need not hold all."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from cellbed.archive.errors import TraceError

PIECE: Final = 1 << 16
"""Numbers of a piece."""

_HELD_BYTES: Final = 1 << 22
"""Held in memory: six days of a number a second."""

Floats = NDArray[np.float64]


class Spool:
    """Floating-point numbers in order: the first few MiB in memory, and all of them in a temporary file beyond that.

    A slice of it is an array. Errors of all: TraceError, where the temporary file cannot be written or read.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_HELD_BYTES)  # noqa: SIM115 closed by the next line
        weakref.finalize(self, self._file.close)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, numbers: Floats) -> None:
        """Put numbers behind those that are there."""
        try:
            self._file.seek(0, 2)
            self._file.write(np.asarray(numbers, np.float64).tobytes())
        except OSError as error:
            raise _unusable(error) from error
        self._count += len(numbers)

    def __getitem__(self, place: slice) -> Floats:
        begin, end, step = place.indices(self._count)
        try:
            self._file.seek(begin * 8)
            found: Floats = np.frombuffer(self._file.read(max(0, end - begin) * 8), np.float64)
        except OSError as error:
            raise _unusable(error) from error
        return found[::step]


def pieces(values: Floats | Spool) -> Iterator[Floats]:
    """All numbers, PIECE at a time."""
    for begin in range(0, len(values), PIECE):
        yield values[begin : begin + PIECE]


def _unusable(error: OSError) -> TraceError:
    return TraceError(
        f"{tempfile.gettempdir()}: no temporary file for statistics of a long recording: {error.strerror or error}; "
        "make room, or set TMPDIR to another folder"
    )
