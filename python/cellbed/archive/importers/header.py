"""Metadata in recordings: their start and the probed host."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cellbed.archive.describing import is_date
from cellbed.archive.draft import Draft
from cellbed_node import inputs

_HEAD = 1 << 14
_LINE = re.compile(r"#\s*(started|place)\s*:\s*(\S.{0,199})")
_PING = re.compile(r"^PING (\S{1,200}) ?\((?:\S{1,100}? \()?([0-9A-Fa-f.:]{2,45})\)", re.MULTILINE)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_NS = 946_684_800 * 10**9
"""2000-01-01: earlier stamps come from an unset clock."""
_LATEST_NS = (1 << 63) - 1


def set_start(draft: Draft, begun_ns: int | None) -> None:
    """Set the start of the recording, ns since 1970, unless it is known or impossible."""
    if begun_ns is not None and _EARLIEST_NS <= begun_ns <= _LATEST_NS:
        moment = _EPOCH + timedelta(seconds=begun_ns // 10**9)
        _date(draft, moment.isoformat().replace("+00:00", "Z"))


def describe_by_comments(draft: Draft, path: Path) -> None:
    """Import ``# started:`` and ``# place:`` of a table's first lines."""
    lines = map(_LINE.fullmatch, _head(path).splitlines())
    asked = {found[1]: found[2].strip() for found in lines if found}
    if is_date(asked.get("started", "")):
        _date(draft, asked["started"])
    if "place" in asked:
        _say(draft, place=asked["place"])


def describe_by_ping(draft: Draft, path: Path) -> None:
    """Import the host from the first line of ping's output."""
    found = _PING.search(_head(path))
    if found:
        host, address = found.groups()
        _say(draft, method=f"ping of {host}" if host == address else f"ping of {host} ({address})")


def _date(draft: Draft, date: str) -> None:
    if draft.about.date is None:
        if draft.about.begins is not None:
            # A given time of day has precedence.
            date = date[: len("2021-04-30")]
        _say(draft, date=date)
        draft.notes.append(f"started {date} according to the file; correct with --date")


def _say(draft: Draft, **values: str) -> None:
    new = {name: value for name, value in values.items() if getattr(draft.about, name) is None}
    draft.about = draft.about.model_copy(update=new)


def _head(path: Path) -> str:
    with inputs.open_file(path) as file:
        return file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")
