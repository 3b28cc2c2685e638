"""Recorded and synthetic traces of cellular links: the archive, its generation, and the look-up by name or path."""

from cellbed.traces.catalogue import ARCHIVE, TraceError, TraceSource, archive_folder, resolve
from cellbed.traces.files import find_file, find_folder, obstacle

__all__ = ["ARCHIVE", "TraceError", "TraceSource", "archive_folder", "find_file", "find_folder", "obstacle", "resolve"]
