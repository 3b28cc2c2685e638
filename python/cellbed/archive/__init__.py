"""Recorded and synthetic traces of cellular links: the archive, its generation, and the look-up by name or path."""

from cellbed.archive.catalogue import ARCHIVE, TraceSource, is_named, resolve
from cellbed.archive.errors import TraceError
from cellbed.archive.files import find_file, find_folder, obstacle, place_of
from cellbed.archive.store import Archive, archive_folder, open_archive

__all__ = [
    "ARCHIVE",
    "Archive",
    "TraceError",
    "TraceSource",
    "archive_folder",
    "find_file",
    "find_folder",
    "is_named",
    "obstacle",
    "open_archive",
    "place_of",
    "resolve",
]
