"""Errors of the archive of traces."""

from cellbed.support.errors import CellbedError


class TraceError(CellbedError):
    """A trace that does not exist, cannot be read or cannot be kept. The text names the trace and the remedy."""
