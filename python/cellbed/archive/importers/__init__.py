"""Recordings of other programs for the archive: what a file is, and its series.

`recognise` says what files are; the importer it gives writes their series into a draft. Parsing is Rust's
(`crates/traces`), in little memory whatever the size of a file.
"""

from cellbed.archive.importers.format import Format, Tell
from cellbed.archive.importers.options import Options
from cellbed.archive.importers.recognition import FORMATS, Importer, recognise

__all__ = ["FORMATS", "Format", "Importer", "Options", "Tell", "recognise"]
