"""What goes wrong with recordings of two workloads."""

from cellbed.errors import CellbedError


class RecordingError(CellbedError):
    """A recording that cannot be read, written or used. The text names file and row and says what would be right."""
