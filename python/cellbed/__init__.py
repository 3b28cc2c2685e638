"""cellbed: a software testbed for applications on cellular networks."""

# What typing.TYPE_CHECKING is at run time: the module costs 8 ms, which every start of the emulator would pay.
TYPE_CHECKING = False

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name):
        # Reading the installed version costs 20 ms, which every start of the emulator would pay.
        if name == "__version__":
            from importlib.metadata import version

            return version("cellbed")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
