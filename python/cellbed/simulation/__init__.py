"""Networks in virtual time.

`path` has applications over a path of two links. `data_centre` simulates the flows of a data centre and its radio
cells, which `file` describes; `flow_files` reads flow sizes and flow traces.
"""

from cellbed.simulation.data_centre import Simulation, SimulationError, simulate
from cellbed.simulation.path import (
    PATIENCE_NS,
    Downloads,
    Handshake,
    PageLoad,
    Path,
    RoundTrips,
    Session,
    Tcp,
    Trains,
)

__all__ = [
    "PATIENCE_NS",
    "Downloads",
    "Handshake",
    "PageLoad",
    "Path",
    "RoundTrips",
    "Session",
    "Simulation",
    "SimulationError",
    "Tcp",
    "Trains",
    "simulate",
]
