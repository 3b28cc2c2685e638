"""Public data sets: addresses, download, and conversion of their files to entries of the archive."""

from __future__ import annotations

from cellbed.archive.errors import TraceError
from cellbed.archive.sources.data_sets import SOURCES
from cellbed.archive.sources.fetch import Fetched, FetchOptions, fetch
from cellbed.archive.sources.source import Source
from cellbed.support.near_names import near_names, question

__all__ = ["SOURCES", "FetchOptions", "Fetched", "Source", "fetch", "find_source"]


def find_source(name: str) -> Source:
    """Return the data set called ``name``. Raises TraceError with similar names if there is none."""
    for source in SOURCES:
        if source.name == name.lower():
            return source
    names = [source.name for source in SOURCES]
    hint = question(near_names(name, names)) or f"there are {', '.join(names)}"
    raise TraceError(f"no data set is called '{name[:60]}': {hint}")
