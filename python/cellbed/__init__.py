"""cellbed: a software testbed for applications on cellular networks.

:class:`Link` is the model of a link as a library: packets in virtual time, over arrays.
"""

# What typing.TYPE_CHECKING is at run time: the module costs 8 ms, which every start of the emulator would pay.
TYPE_CHECKING = False

__version__: str

if TYPE_CHECKING:
    from cellbed.link import Link as Link
    from cellbed.outcomes import Fate as Fate
    from cellbed.outcomes import Outcomes as Outcomes
else:
    __all__ = ("Fate", "Link", "Outcomes", "__version__")

    def __dir__():
        return sorted({*globals(), *__all__})

    def __getattr__(name):
        # Reading the installed version costs 20 ms, and NumPy more, which every start of the emulator would pay.
        if name == "__version__":
            from importlib.metadata import version

            return version("cellbed")
        if name == "Link":
            from cellbed.link import Link

            return Link
        if name in ("Fate", "Outcomes"):
            from cellbed import outcomes

            return getattr(outcomes, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
