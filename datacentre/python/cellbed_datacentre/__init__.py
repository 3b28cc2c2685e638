"""Data centres and their radio cells in virtual time.

`simulation` runs the flows, `file` reads the description of a run.
"""

from cellbed_datacentre.cells import read_qualities
from cellbed_datacentre.simulation import Simulation, SimulationError, run_content, simulate

__all__ = ["Simulation", "SimulationError", "read_qualities", "run_content", "simulate"]
