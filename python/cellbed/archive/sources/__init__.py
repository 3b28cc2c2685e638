"""Public data sets: where they are, how they are downloaded, and how their files become entries of the archive."""

from cellbed.archive.sources.fetch import Fetched, FetchOptions, fetch
from cellbed.archive.sources.known import SOURCES, find_source
from cellbed.archive.sources.source import Source

__all__ = ["SOURCES", "FetchOptions", "Fetched", "Source", "fetch", "find_source"]
