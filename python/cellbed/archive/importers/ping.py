"""Output of ping."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.importers.files import each_file
from cellbed.archive.importers.format import Tell, read_by_core
from cellbed.archive.importers.header import told_by_ping
from cellbed.archive.importers.options import Options

_SIGNS = re.compile(
    rb"icmp_[sr]eq[= ]\d|bytes from [^\n]{0,200} seq=\d|[=<]\d+ ?ms TTL=\d|^Pinging [^\n]+ bytes", re.MULTILINE
)
_BEGINNING = re.compile(rb"^PING \S{1,200} ?\([^\n]{2,100}\)", re.MULTILINE)


class Ping:
    """ping of Linux, the BSDs, macOS, BusyBox and Windows."""

    name = "ping"
    title = "what ping printed"
    options = frozenset({"interval_ns"})
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """A line of it looks like an answer, or its first one like that of a ping."""
        found = _SIGNS.search(head) or _BEGINNING.search(head)
        return f"it has '{found[0].decode(errors='replace').strip()[-40:]}'" if found else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, tell: Tell | None) -> None:
        """Round-trip times; null without an answer."""
        for path, own, _ in each_file(paths, draft, options):
            read_by_core(path, own, {"format": "ping", "interval_ns": options.interval_ns}, tell)
            told_by_ping(own, path)


PING = Ping()
