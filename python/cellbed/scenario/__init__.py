"""The scenario file: the definition of a run, read from TOML with units in its values and helpful errors."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cellbed.scenario.model import Scenario
    from cellbed.scenario.problems import ScenarioError
    from cellbed.scenario.reader import load, load_text, parse, read
else:
    _HOMES = {"Scenario": "model", "ScenarioError": "problems"}
    _HOMES |= dict.fromkeys(("load", "load_text", "parse", "read"), "reader")

    def __getattr__(name):
        # Lazy: the scenario needs the tables of all kinds of application, which need modules of this package.
        from importlib import import_module

        if name in _HOMES:
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Scenario", "ScenarioError", "load", "load_text", "parse", "read"]
