"""The scenario file: the definition of a run, read from TOML with units in its values and helpful errors."""

from cellbed.scenario.model import Scenario
from cellbed.scenario.problems import ScenarioError
from cellbed.scenario.reader import load, load_text, parse, read

__all__ = ["Scenario", "ScenarioError", "load", "load_text", "parse", "read"]
