"""Import of other programs' recordings into the archive.

`recognise` returns the importer for files. The importer writes the files' series into a draft. Rust (`crates/traces`)
reads captures and Mahimahi's traces, in little memory at any file size, and writes the series of all formats.
"""

from cellbed.archive.importers.format import Format, Options, Progress
from cellbed.archive.importers.formats import FORMATS, Importer, recognise

__all__ = ["FORMATS", "Format", "Importer", "Options", "Progress", "recognise"]
