"""Recordings of networks: packet trains and saturation over time, in a directory, and what is derived from them."""

from cellbed.recordings.description import WAYS, Description, Fixed, Light, Span, Train, TrainPlan, Way, Workload
from cellbed.recordings.packets import COLUMNS, SIGNAL_COLUMNS, RecordingError
from cellbed.recordings.recording import Recording, read_recording, write_recording

__all__ = [
    "COLUMNS",
    "SIGNAL_COLUMNS",
    "WAYS",
    "Description",
    "Fixed",
    "Light",
    "Recording",
    "RecordingError",
    "Span",
    "Train",
    "TrainPlan",
    "Way",
    "Workload",
    "read_recording",
    "write_recording",
]
