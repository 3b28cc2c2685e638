"""Data centres and their radio cells in virtual time.

`simulation` runs the flows, `file` reads the description of a run.
"""

from cellbed.datacentre.simulation import Simulation, SimulationError, simulate

__all__ = ["Simulation", "SimulationError", "simulate"]
