"""The one palette of the report. Neighbours differ in lightness too, so that a copy in grey can still be read."""

from cellbed.measure.parts import PARTS, Place

INK = "#1d2129"
MUTED = "#5b6472"
RULE = "#d9dee6"
ALARM = "#b3261e"

# Endpoint dark, uplink blue, remote warm and light, downlink green.
_SHADES: dict[Place, tuple[str, ...]] = {
    "endpoint": ("#2a2f38", "#434a57", "#5d6675", "#2a2f38"),
    "uplink": ("#123258", "#1f5597", "#3f82cb", "#8fbbe8"),
    "remote": ("#9c5f10", "#b9741a", "#cf9138", "#e0ad62", "#efc98f", "#f8e4c3"),
    "downlink": ("#1a5c47", "#2f8f72", "#93d1bb"),
}


def shades() -> dict[str, str]:
    """Colour of each part, by name."""
    waiting = {place: iter(colours) for place, colours in _SHADES.items()}
    return {part.name: next(waiting[part.place]) for part in PARTS}


def of_place(place: Place) -> tuple[str, ...]:
    """Shades of a place, dark to light."""
    return _SHADES[place]
