"""cellbed: a software testbed for applications on cellular networks."""

from importlib.metadata import version

__version__ = version("cellbed")
