"""Import formats: captures and Mahimahi traces, read in Rust; reports of iperf3; output of ping; tables."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Set
from pathlib import Path

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers import iperf3, parquet_table, ping, text_table
from cellbed.archive.importers.column_names import Mapped, map_columns
from cellbed.archive.importers.format import (
    Format,
    Options,
    Progress,
    describe_by_comments,
    describe_by_ping,
    read_by_core,
    report_errors,
)
from cellbed.archive.importers.table import write_table
from cellbed.support.ways import WAYS
from cellbed_node import inputs

_MAGIC = {
    b"\xd4\xc3\xb2\xa1": "pcap",
    b"\xa1\xb2\xc3\xd4": "pcap",
    b"\x4d\x3c\xb2\xa1": "pcap",
    b"\xa1\xb2\x3c\x4d": "pcap",
    b"\x0a\x0d\x0d\x0a": "pcapng",
    b"PAR1": "Parquet",
}


def _magic(head: bytes, *kinds: str) -> str | None:
    kind = _MAGIC.get(head[:4])
    return f"it has the first four bytes of {kind}" if kind in kinds else None


def _read_capture(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    """Read the opportunities of the chosen directions, or of those that show capacity."""
    device = options.device
    try:
        device = device and str(ipaddress.ip_address(device))
    except ValueError:
        wrong = f"--device '{device:.40}' is not an address: write the address of the device in the capture"
        raise TraceError(wrong) from None
    directions = {None: None, "both": WAYS}.get(options.direction, (options.direction,))
    request = {
        "format": "capture",
        "flow": (options.flow or "").replace(",", " ").split(),
        "all_flows": options.all_flows,
        "device": device,
        "directions": directions,
        "each_packet": options.each_packet,
    }
    read_by_core(path, draft, request, progress)


_JSON_LINE = re.compile(rb"^(?:" + iperf3.ESCAPE.pattern + rb")*\s*[{\[]", re.MULTILINE)
_IPERF3_KEY = re.compile(
    rb'"(intervals|connecting_to|accepted_connection|test_start|bits_per_second)"|\{\s*"event"\s*:'
)


def _key_of_iperf3(_: Path, head: bytes) -> str | None:
    found = _IPERF3_KEY.search(head) if _JSON_LINE.search(head) else None
    return f"its JSON has {found[0].decode()}" if found else None


def _read_iperf3(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    if options.device not in (None, "client", "server"):
        raise TraceError(f"--device '{options.device:.40}': for a report of iperf3 write client or server")
    with report_errors(path, progress):
        iperf3.read(path, "server" if options.device == "server" else "client", options.part(), draft)


_REPLY = re.compile(rb"icmp_[sr]eq[= ]\d|bytes from [^\n]{0,200} seq=\d")
_FIRST_LINE = re.compile(rb"^PING \S{1,200} ?\([^\n]{2,100}\)", re.MULTILINE)


def _reply_of_ping(_: Path, head: bytes) -> str | None:
    found = _REPLY.search(head) or _FIRST_LINE.search(head)
    return f"it has '{found[0].decode(errors='replace').strip()[-40:]}'" if found else None


def _read_ping(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    with report_errors(path, progress):
        ping.read(path, options.interval_ns, draft)
    describe_by_ping(draft, path)


_LINES = 200
"""Lines at the start of a file that are examined."""
_LEAST_NUMBERS = 0.8
"""Minimum share of them that are numbers."""


def _lines_of_numbers(path: Path, head: bytes) -> str | None:
    """Return the reason: nearly all lines are numbers, or the first one is and the name ends in .up or .down."""
    stripped = (line.strip() for line in head.split(b"\n")[:_LINES])
    lines = [line for line in stripped if line and not line.startswith(b"#")]
    numbers = sum(line.isdigit() for line in lines)
    if numbers and numbers >= _LEAST_NUMBERS * len(lines):
        return "its lines hold a whole number each"
    return (
        f"its name ends in {path.suffix}"
        if path.suffix in (".up", ".down") and numbers and lines[0].isdigit()
        else None
    )


def _read_mahimahi(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    """Read the opportunities: ms since the start."""
    direction = options.part() or options.named
    if direction is None:
        raise TraceError(f"{path}: unknown direction: write --direction uplink or --direction downlink")
    read_by_core(path, draft, {"format": "mahimahi", "direction": direction}, progress)


def _layout_of_table(_: Path, head: bytes) -> str | None:
    """Return the layout, if the lines have the same number of cells, more than one."""
    shape = None if head.lstrip()[:1] in (b"{", b"[") else text_table.layout(head)
    if shape is None:
        return None
    return f"its lines have {len(shape.names)} cells between {text_table.DELIMITERS[shape.delimiter]}"


def _read_csv(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    with inputs.open_file(path) as file:
        shape = text_table.layout(file.read(text_table.HEAD))
    if shape is None:
        why = "its first lines are not table rows with cells between commas, semicolons or tabs"
        raise TraceError(f"{path}: {why}")
    first = dict(zip(shape.names, shape.first, strict=False))
    moments = {name for name, cell in first.items() if text_table.is_moment(cell)}
    mapped = _map_table(path, shape.names, options, moments)
    with report_errors(path, None):
        write_table(text_table.read(path, shape, mapped, progress), mapped, options, draft)
    describe_by_comments(draft, path)


def _read_parquet(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    columns = parquet_table.kinds(path)
    moments = {name for name, (kind, _) in columns.items() if kind in ("moment", "text")}
    mapped = _map_table(path, list(columns), options, moments)
    kind, type_name = columns[mapped.time.name]
    if kind != "moment" and (kind, mapped.time.unit is None) not in (("text", True), ("number", False)):
        raise TraceError(f"{path}: the column '{mapped.time.name}' contains {type_name}, which is not a time")
    for column in mapped.values.values():
        kind, type_name = columns[column.name]
        if kind != "number":
            raise TraceError(f"{path}: the column '{column.name}' contains {type_name}, which is not a number")
    with report_errors(path, progress):
        write_table(parquet_table.read(path, mapped), mapped, options, draft)


def _map_table(path: Path, names: list[str], options: Options, moments: Set[str]) -> Mapped:
    try:
        return map_columns(names, options.columns, moments.__contains__, options.part())
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


_OF_TABLES = frozenset({"direction", "columns", "missing", "duration_ns"})
FORMATS = (
    Format("mahimahi", "a trace of delivery opportunities (Mahimahi)", _lines_of_numbers, _read_mahimahi,
           frozenset({"direction"})),
    Format("pcap", "a capture of packets (pcap or pcapng)", lambda _, head: _magic(head, "pcap", "pcapng"),
           _read_capture, frozenset({"direction", "device", "flow", "all_flows", "each_packet"}), passes=2),
    Format("iperf3", "a report of iperf3", _key_of_iperf3, _read_iperf3, frozenset({"direction", "device"})),
    Format("ping", "the output of ping", _reply_of_ping, _read_ping, frozenset({"interval_ns"})),
    Format("csv", "a table (CSV)", _layout_of_table, _read_csv, _OF_TABLES),
    Format("parquet", "a table (Parquet)", lambda _, head: _magic(head, "Parquet"), _read_parquet, _OF_TABLES),
)  # fmt: skip
"""The formats that are read here; recordings of two workloads are added by :mod:`cellbed.recordings.importing`."""
