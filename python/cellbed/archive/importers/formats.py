"""Import formats: captures and Mahimahi traces, read in Rust; reports of iperf3; output of ping; tables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers import iperf3, parquet_table, ping, text_table
from cellbed.archive.importers.column_names import Mapped, map_columns
from cellbed.archive.importers.format import (
    Options,
    Progress,
    describe_by_comments,
    describe_by_ping,
    each_file,
    read_by_core,
    report_errors,
)
from cellbed.archive.importers.table import write_table
from cellbed.archive.series import Part
from cellbed.support.ways import WAYS
from cellbed_node import inputs

_PCAP = (b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x4d\x3c\xb2\xa1", b"\xa1\xb2\x3c\x4d")
_PCAPNG = b"\x0a\x0d\x0d\x0a"


class Capture:
    """Captures of packets by tcpdump, Wireshark and others."""

    name = "pcap"
    title = "a capture of packets (pcap or pcapng)"
    options = frozenset({"direction", "device", "flow", "all_flows", "each_packet"})
    passes = 2

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the magic number, if the file begins with one."""
        kind = "pcapng" if head.startswith(_PCAPNG) else "pcap" if head.startswith(_PCAP) else None
        return f"it has the first four bytes of {kind}" if kind else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the opportunities of the chosen directions, or of those that show capacity."""
        for path, own, asked in each_file(paths, draft, options):
            # Files of a pair are named by direction. The name of a single capture chooses none: it has both.
            direction = options.direction if len(paths) == 1 else asked.direction
            named = WAYS if direction == "both" else (direction,)
            request = {
                "format": "capture",
                "flow": (asked.flow or "").replace(",", " ").split(),
                "all_flows": asked.all_flows,
                "device": _address(asked.device),
                "directions": None if direction is None else named,
                "each_packet": asked.each_packet,
            }
            read_by_core(path, own, request, progress)


def _address(text: str | None) -> str | None:
    """Return an IP address in its usual form. Errors: ``TraceError``."""
    if text is None:
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise TraceError(
            f"--device '{text:.40}' is not an address: write the address of the device in the capture"
        ) from None


CAPTURE = Capture()


_JSON_LINE = re.compile(rb"^(?:" + iperf3.ESCAPE.pattern + rb")*\s*[{\[]", re.MULTILINE)
_IPERF3_KEY = re.compile(
    rb'"(intervals|connecting_to|accepted_connection|test_start|bits_per_second)"|\{\s*"event"\s*:'
)


class Iperf3:
    """Reports of ``iperf3 --json`` and ``--json-stream``."""

    name = "iperf3"
    title = "a report of iperf3"
    options = frozenset({"direction", "device"})
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the first key of an iperf3 report in a file with a line that begins like JSON."""
        found = _IPERF3_KEY.search(head) if _JSON_LINE.search(head) else None
        return f"its JSON has {found[0].decode()}" if found else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the rates of each tested direction."""
        if options.device not in (None, "client", "server"):
            raise TraceError(f"--device '{options.device:.40}': for a report of iperf3 write client or server")
        for path, own, _ in each_file(paths, draft, options):
            with report_errors(path, progress):
                iperf3.read(path, "server" if options.device == "server" else "client", options.part(), own)


IPERF3 = Iperf3()


_REPLY = re.compile(rb"icmp_[sr]eq[= ]\d|bytes from [^\n]{0,200} seq=\d")
_FIRST_LINE = re.compile(rb"^PING \S{1,200} ?\([^\n]{2,100}\)", re.MULTILINE)


class Ping:
    """Output of ping in Linux, the BSDs, macOS and BusyBox."""

    name = "ping"
    title = "the output of ping"
    options = frozenset({"interval_ns"})
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the part of a reply, or of the first line, that identifies the output."""
        found = _REPLY.search(head) or _FIRST_LINE.search(head)
        return f"it has '{found[0].decode(errors='replace').strip()[-40:]}'" if found else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the round-trip times; null without a reply."""
        for path, own, _ in each_file(paths, draft, options):
            with report_errors(path, progress):
                ping.read(path, options.interval_ns, own)
            describe_by_ping(own, path)


PING = Ping()


_LINES = 200
"""Lines at the start of a file that are examined."""
_LEAST_NUMBERS = 0.8
"""Minimum share of them that are numbers."""


class Mahimahi:
    """Traces for ``mm-link``: one file, or one for each direction."""

    name = "mahimahi"
    title = "a trace of delivery opportunities (Mahimahi)"
    options = frozenset({"direction"})
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the reason: nearly all lines are numbers, or the first one is and the name ends in .up or .down."""
        stripped = (line.strip() for line in head.split(b"\n")[:_LINES])
        lines = [line for line in stripped if line and not line.startswith(b"#")]
        numbers = sum(line.isdigit() for line in lines)
        if numbers and numbers >= _LEAST_NUMBERS * len(lines):
            return "its lines hold a whole number each"
        named = len(paths) == 1 and paths[0].suffix in (".up", ".down")
        return f"its name ends in {paths[0].suffix}" if named and lines and lines[0].isdigit() else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the opportunities: ms since the start."""
        for path, own, asked in each_file(paths, draft, options):
            direction = asked.part()
            if direction is None:
                raise TraceError(f"{path}: unknown direction: write --direction uplink or --direction downlink")
            read_by_core(path, own, {"format": "mahimahi", "direction": direction}, progress)


MAHIMAHI = Mahimahi()


_OPTIONS = frozenset({"direction", "columns", "missing", "duration_ns"})


class Csv:
    """Tables as text, with a line of names or without, cells between commas, semicolons, tabs, bars or blanks."""

    name = "csv"
    title = "a table (CSV)"
    options = _OPTIONS
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the layout, if the lines have the same number of cells, more than one."""
        shape = None if head.lstrip()[:1] in (b"{", b"[") else text_table.layout(head)
        if shape is None:
            return None
        return f"its lines have {len(shape.names)} cells between {text_table.DELIMITERS[shape.delimiter]}"

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the columns that are mapped, or whose names are known."""
        for path, own, asked in each_file(paths, draft, options):
            with inputs.open_file(path) as file:
                shape = text_table.layout(file.read(text_table.HEAD))
            if shape is None:
                why = "its first lines are not table rows with cells between commas, semicolons or tabs"
                raise TraceError(f"{path}: {why}")
            first = dict(zip(shape.names, shape.first, strict=False))
            moments = {name for name, cell in first.items() if text_table.is_moment(cell)}
            mapped = _map_table(path, shape.names, asked, moments, options.part())
            with report_errors(path, None):
                write_table(text_table.read(path, shape, mapped, progress), mapped, asked, own)
            describe_by_comments(own, path)


class Parquet:
    """Parquet files with columns of time and of rates or round-trip times."""

    name = "parquet"
    title = "a table (Parquet)"
    options = _OPTIONS
    passes = 1

    def evidence(self, paths: Sequence[Path], head: bytes) -> str | None:
        """Return the magic number, if the file begins with it."""
        return "it has the first four bytes of Parquet" if head.startswith(b"PAR1") else None

    def read(self, paths: Sequence[Path], draft: Draft, options: Options, progress: Progress | None) -> None:
        """Read the columns that are mapped, or whose names are known."""
        for path, own, asked in each_file(paths, draft, options):
            columns = parquet_table.kinds(path)
            moments = {name for name, (kind, _) in columns.items() if kind in ("moment", "text")}
            mapped = _map_table(path, list(columns), asked, moments, options.part())
            _require_types(path, columns, mapped)
            with report_errors(path, progress):
                write_table(parquet_table.read(path, mapped), mapped, asked, own)


def _require_types(path: Path, columns: Mapping[str, tuple[str, str]], mapped: Mapped) -> None:
    kind, type_name = columns[mapped.time.name]
    if kind != "moment" and (kind, mapped.time.unit is None) not in (("text", True), ("number", False)):
        raise TraceError(f"{path}: the column '{mapped.time.name}' contains {type_name}, which is not a time")
    for column in mapped.values.values():
        kind, type_name = columns[column.name]
        if kind != "number":
            raise TraceError(f"{path}: the column '{column.name}' contains {type_name}, which is not a number")


def _map_table(path: Path, names: list[str], options: Options, moments: Set[str], only: Part | None) -> Mapped:
    try:
        return map_columns(names, options.columns, options.direction, moments.__contains__, only)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


CSV = Csv()
PARQUET = Parquet()
