"""Request spans, link and node series, statistics: what a run's raw files say.

Nothing heavy is imported until it is used, so that a command which measures at its very end starts as fast as
one that never does.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cellbed.measure.judgement import collect
    from cellbed.measure.summary import Summary

__all__ = ["Summary", "collect"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from cellbed.measure import judgement

        return getattr(judgement, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
