"""Packet captures: the arrivals of one flow become opportunities."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cellbed.archive.draft import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.files import each_file
from cellbed.archive.importers.format import Tell, read_by_core
from cellbed.archive.importers.options import Options

_PCAP = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
_PCAPNG = b"\x0a\x0d\x0d\x0a"


class Capture:
    """Captures of tcpdump, Wireshark and their like, pcap or pcapng."""

    name = "pcap"
    title = "a capture of packets (pcap or pcapng)"
    options = frozenset({"direction", "device", "flow", "all_flows", "each_packet"})
    passes = 2

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Its first four bytes."""
        kind = "pcapng" if head.startswith(_PCAPNG) else "pcap" if head.startswith(_PCAP) else None
        return f"its first four bytes are those of {kind}" if kind else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, tell: Tell | None) -> None:
        """Opportunities of both directions of the flow, or of those that show capacity."""
        for path, own, said in each_file(paths, draft, options):
            both = ["uplink", "downlink"]
            # A capture has both directions: the name of a single file does not choose one; names of a pair do.
            chosen = options.direction if len(paths) == 1 else said.direction
            wanted = None if chosen is None else both if chosen == "both" else [chosen]
            request = {
                "format": "capture",
                "flow": (said.flow or "").replace(",", " ").split(),
                "all_flows": said.all_flows,
                "device": _address(said.device),
                "directions": wanted,
                "each_packet": said.each_packet,
            }
            read_by_core(path, own, request, tell)


def _address(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise TraceError(
            f"--device '{text:.40}' is not an address: write the address of the device in the capture"
        ) from None


CAPTURE = Capture()
