"""Errors of recordings of two workloads."""

from cellbed.support.errors import CellbedError


class RecordingError(CellbedError):
    """A recording that cannot be read, written or used. The text names file, row and remedy."""
