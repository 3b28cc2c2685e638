"""What links do at this moment: read from a running emulator, drawn in a terminal."""

from cellbed.measure.meter.reading import Meter, Reading

__all__ = ["Meter", "Reading"]
