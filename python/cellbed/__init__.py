"""cellbed: a software testbed for applications on cellular networks."""

from typing import TYPE_CHECKING

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name):
        # Reading the installed version costs 20 ms, which every start of the emulator would pay.
        if name == "__version__":
            from importlib.metadata import version

            return version("cellbed")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
