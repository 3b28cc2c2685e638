"""What the archive of traces refuses."""

from cellbed.errors import CellbedError


class TraceError(CellbedError):
    """A trace that does not exist, cannot be read or cannot be kept. The text names it and says what would be right."""
