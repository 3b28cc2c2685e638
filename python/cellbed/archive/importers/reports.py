"""JSON of other programs: reports of iperf3, configurations of netem-trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.files import each_file
from cellbed.archive.importers.format import Tell, read_by_core
from cellbed.archive.importers.options import Options

_IPERF3 = re.compile(rb'"(intervals|connecting_to|accepted_connection|test_start|bits_per_second)"|\{\s*"event"\s*:')
_NETEM = re.compile(rb'"(\w{0,40}(?:Bw|Delay|Loss|Duplicate)\w{0,40}Config)"')


class Iperf3:
    """Reports of ``iperf3 --json`` and ``--json-stream``."""

    name = "iperf3"
    title = "a report of iperf3"
    options = frozenset({"direction", "device"})
    passes = 2

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Its JSON has keys of such a report."""
        found = _IPERF3.search(head) if _is_json(head) else None
        return f"its JSON has {found[0].decode()}" if found else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, tell: Tell | None) -> None:
        """Rates of each direction that was tested."""
        if options.device not in (None, "client", "server"):
            raise TraceError(f"--device '{options.device:.40}': for a report of iperf3 write client or server")
        for path, own, _ in each_file(paths, draft, options):
            request = {
                "format": "iperf3",
                "device_is_server": options.device == "server",
                "direction": options.part(),
            }
            read_by_core(path, own, request, tell)


class NetemTrace:
    """Configurations of netem-trace, which Rattan replays."""

    name = "netem-trace"
    title = "a configuration of netem-trace (Rattan)"
    options = frozenset({"direction", "delays"})
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Its JSON has the name of a model."""
        found = _NETEM.search(head) if _is_json(head) else None
        return f"its JSON has {found[0].decode()}" if found else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, tell: Tell | None) -> None:
        """Rates of a direction, or round-trip times."""
        for path, own, said in each_file(paths, draft, options):
            request = {"format": "netem-trace", "direction": said.part(), "delays": options.delays}
            read_by_core(path, own, request, tell)


def _is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


IPERF3 = Iperf3()
NETEM_TRACE = NetemTrace()
