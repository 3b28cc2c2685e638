"""A video call between two Chromiums through a TURN relay."""

RELAY = "turnserver"
"""The relay's program, of the package coturn."""
