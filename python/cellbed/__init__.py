"""cellbed: a software testbed for applications on cellular networks.

:func:`run` runs a :class:`Scenario`, :func:`load` reads a :class:`Run`, :func:`sweep` runs a :class:`Sweep` of them. In
a :class:`Testbed`, the nodes of a scenario stand for your commands.
:class:`Link` is the link model as a library: packets in virtual time, as arrays. In a :class:`Cell`, several links
share the time of a radio cell.
"""

# Replaces typing.TYPE_CHECKING: importing typing takes 8 ms, at every start of the emulator.
TYPE_CHECKING = False

__version__: str

if TYPE_CHECKING:
    from cellbed.cell import Cell as Cell
    from cellbed.experiments.child import run as run
    from cellbed.experiments.sweep.library import Sweep as Sweep
    from cellbed.experiments.sweep.library import sweep as sweep
    from cellbed.experiments.testbed import Testbed as Testbed
    from cellbed.library import Run as Run
    from cellbed.library import RunError as RunError
    from cellbed.library import Scenario as Scenario
    from cellbed.library import load as load
    from cellbed.link import Link as Link
    from cellbed.outcomes import Fate as Fate
    from cellbed.outcomes import Outcomes as Outcomes
    from cellbed.support.errors import CellbedError as CellbedError
else:
    _HOMES = {
        "CellbedError": "support.errors",
        "Cell": "cell",
        "Fate": "outcomes",
        "Link": "link",
        "Outcomes": "outcomes",
        "Testbed": "experiments.testbed",
        "run": "experiments.child",
    }
    _HOMES |= dict.fromkeys(("Run", "RunError", "Scenario", "load"), "library")
    _HOMES |= dict.fromkeys(("Sweep", "sweep"), "experiments.sweep.library")
    __all__ = (*sorted(_HOMES), "__version__")

    def __dir__():
        return sorted({*globals(), *__all__})

    def __getattr__(name):
        # Reading the installed version takes 20 ms, and NumPy more; every start of the emulator would pay for both.
        if name == "__version__":
            from importlib.metadata import version

            return version("cellbed")
        if name in _HOMES:
            from importlib import import_module

            return getattr(import_module(f"cellbed.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
