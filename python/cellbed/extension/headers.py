"""C headers of the user, compiled into shared objects of this machine."""

from cellbed.laws.law import LawError as HeaderError
from cellbed.laws.law import compile_header as compile_header

__all__ = ["HeaderError", "compile_header"]
