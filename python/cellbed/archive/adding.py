"""Import files of other programs as an entry, with metadata from the user.

Malformed metadata raise an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.errors import TraceError
from cellbed.archive.index import OTHER_NAMES
from cellbed.archive.store import Archive, valid_name
from cellbed.archive.warnings import drift_warning, pause_warning

if TYPE_CHECKING:
    from cellbed.archive.entry import About, Entry
    from cellbed.archive.importers import Importer, Options


@dataclass(frozen=True, slots=True)
class Added:
    """The result of an import. notes: sentences on doubts, omissions and assumptions."""

    entry: Entry
    notes: tuple[str, ...]


def add(
    archive: Archive,
    paths: Sequence[Path],
    importer: Importer,
    about: About,
    options: Options,
    *,
    name: str | None = None,
    replace: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Added:
    """Read the files of one recording and keep them as an entry.

    name: default: made from the files' names. replace: replace an entry of that name. progress: called with the number
    of bytes read since the last call. Raises TraceError; then nothing was added.
    """
    name = name or name_of(paths)
    if not replace:
        archive.require_free(name)
    with archive.draft(about) as draft:
        importer.read(paths, draft, options, progress)
        entry = archive.keep(draft, name, replace)
        measured = [note for note in (drift_warning(entry), pause_warning(entry)) if note is not None]
        return Added(entry, (*draft.notes, *measured))


def recordings(paths: Sequence[Path]) -> list[list[Path]]:
    """Group files by recording: ``X.up`` and ``X.down`` form one; if any file has another suffix, all form one."""
    if any(path.suffix not in (".up", ".down") for path in paths):
        return [list(paths)]
    pairs: dict[Path, list[Path]] = {}
    for path in paths:
        pairs.setdefault(path.with_suffix(""), []).append(path)
    return list(pairs.values())


def name_of(paths: Sequence[Path]) -> str:
    """Return a name for the files' entry, their common prefix: ``walk`` for ``walk.up`` and ``walk.down``."""
    stems = [path.absolute().stem if path.is_file() else path.absolute().name for path in paths]
    return valid_name(os.path.commonprefix(stems) or stems[0])  # noqa: RUF071 letters are meant


_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2}(T\d{2}:\d{2}.*)?)?)?", re.ASCII)
_TECHNOLOGIES = ("2g", "3g", "4g", "5g", "6g", "wifi", "fixed", "satellite")


def check_metadata(**values: str | None) -> About:
    """Check metadata from a user. Known technologies get their usual name: ``4g`` for ``LTE``.

    Raises TraceError for malformed values.
    """
    from pydantic import ValidationError

    from cellbed.archive.entry import About

    date = values.get("date")
    if date is not None and not is_date(date):
        raise TraceError(f"--date '{date:.40}' is not a date: write 2021, 2021-04, 2021-04-30 or 2021-04-30T14:05")
    technology = values.get("technology")
    if technology is not None:
        usual = OTHER_NAMES.get(technology.lower(), technology.lower())
        values["technology"] = usual if usual in _TECHNOLOGIES else technology
    try:
        return About.model_validate(values)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise TraceError(f"--{fault['loc'][0]}: {fault['msg']}") from None


def is_date(text: str) -> bool:
    """Return whether `text` is an ISO 8601 date of any precision: 2021, 2021-04, 2021-04-30, or with a time."""
    if not _DATE.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text + "-01-01"[len(text) - 4 :] if len(text) < len("2021-04-30") else text)
    except ValueError:
        return False
    return True
