"""Recordings of networks: packet trains and saturation over time, in a directory, and series derived from them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellbed.recordings.description import Description, Fixed, Light, Span, Train, TrainPlan, Workload
    from cellbed.recordings.errors import RecordingError
    from cellbed.recordings.packets import COLUMNS
    from cellbed.recordings.recording import Recording, read_recording, write_recording
else:
    _HOMES = {
        "description": {"Description", "Fixed", "Light", "Span", "Train", "TrainPlan", "Workload"},
        "errors": {"RecordingError"},
        "packets": {"COLUMNS"},
        "recording": {"Recording", "read_recording", "write_recording"},
    }

    def __getattr__(name):
        # Polars takes 80 MB of memory, which the archive's importers of other formats do not need.
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{home}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "COLUMNS",
    "Description",
    "Fixed",
    "Light",
    "Recording",
    "RecordingError",
    "Span",
    "Train",
    "TrainPlan",
    "Workload",
    "read_recording",
    "write_recording",
]
