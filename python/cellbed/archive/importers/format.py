"""The interface of an import format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.header import set_start
from cellbed.archive.importers.options import Options
from cellbed.archive.series import Content, Part, Series
from cellbed_node import inputs

Progress = Callable[[int], None]
"""Called every few MiB with the number of bytes read since the last call."""

_DIRECTIONS: dict[Part, re.Pattern[str]] = {
    "uplink": re.compile(r"(^|[^a-z])(up|uplink|upload|ul)([^a-z]|$)", re.IGNORECASE),
    "downlink": re.compile(r"(^|[^a-z])(down|downlink|download|dl)([^a-z]|$)", re.IGNORECASE),
}


class Format(Protocol):
    """A file format of recordings."""

    @property
    def name(self) -> str:
        """Its name after ``--as``."""

    @property
    def title(self) -> str:
        """Its description, with an article."""

    @property
    def options(self) -> frozenset[str]:
        """Names of the options that concern it."""

    @property
    def passes(self) -> int:
        """Number of passes over a file."""

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the reason to assume this format, or None. head: first bytes of a single file, empty for several."""

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Write the files' series into the draft. Raises TraceError."""


def direction_of(path: Path) -> Part | None:
    """Return the direction in a file's name: ``walk.up``, ``downlink.csv``, ``ul_1.pcap``."""
    named = [part for part, words in _DIRECTIONS.items() if words.search(path.name)]
    return named[0] if len(named) == 1 else None


@contextmanager
def report_errors(path: Path, progress: Progress | None) -> Iterator[None]:
    """Raise TraceError for a file that cannot be read, and report one that was as progress."""
    try:
        yield
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
    if progress is not None:
        progress(path.stat().st_size)


def read_by_core(path: Path, draft: Draft, request: dict[str, Any], progress: Progress | None) -> None:
    """Read a file into the draft in Rust. Raises TraceError."""
    from cellbed._core import TraceFormatError, import_series

    try:
        done = json.loads(import_series(inputs.check(path), draft.folder, json.dumps(request), progress))
    except TraceFormatError as error:
        raise TraceError(str(error)) from None
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}") from None
    for written in done["parts"]:
        part: Part = written["part"]
        draft.parts[part] = Series(Content.OPPORTUNITIES, draft.folder / f"{part}.parquet", written["duration_ns"])
    draft.notes.extend(done["notes"])
    set_start(draft, done["begun_ns"])
