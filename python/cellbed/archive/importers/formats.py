"""Import formats: captures and Mahimahi traces, read in Rust; reports of iperf3; output of ping; tables.

Files are recognised by their first bytes, their names, or the user's options.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import cellbed
from cellbed.archive.entry import Draft, Step
from cellbed.archive.errors import TraceError
from cellbed.archive.importers import hsdpa, iperf3, nrscope, parquet_table, ping, text_table
from cellbed.archive.importers.column_names import Mapped, map_columns
from cellbed.archive.importers.format import (
    Format,
    Options,
    Progress,
    describe_by_comments,
    describe_by_ping,
    move_contents,
    read_by_core,
    report_errors,
    scratch,
)
from cellbed.archive.importers.table import write_table
from cellbed.archive.soundness import sha256
from cellbed.support.near_names import did_you_mean
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
    """Read the opportunities of the chosen directions, by default of the directions that show capacity."""
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


def _names_of_nrscope(_: Path, head: bytes) -> str | None:
    return "it has the columns of NR-Scope" if head.startswith(nrscope.FIRST_LINE) else None


def _read_nrscope(path: Path, draft: Draft, options: Options, progress: Progress | None) -> None:
    with report_errors(path, progress):
        nrscope.read(path, options.device, options.part(), draft)


def _line_of_hsdpa(_: Path, head: bytes) -> str | None:
    return "its lines have time, place, bytes and ms" if hsdpa.FIRST_LINE.match(head) else None


def _read_hsdpa(path: Path, draft: Draft, _: Options, progress: Progress | None) -> None:
    with report_errors(path, progress):
        hsdpa.read(path, draft)


_LINES = 200
"""Number of lines examined at the beginning of a file."""
_LEAST_NUMBERS = 0.8
"""Minimum share of numbers among the examined lines."""


def _lines_of_numbers(path: Path, head: bytes) -> str | None:
    """Return the reason why a file is a Mahimahi trace, or None.

    Either nearly all lines are numbers, or the first line is a number and the name ends in .up or .down.
    """
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
    """Read the opportunities, in ms since the start."""
    direction = options.named if options.direction is None else options.part()
    if direction is None:
        raise TraceError(f"{path}: unknown direction: write --direction uplink or --direction downlink")
    read_by_core(path, draft, {"format": "mahimahi", "direction": direction}, progress)


def _layout_of_table(path: Path, head: bytes) -> str | None:
    """Return the layout as text, if all lines have the same number of cells, at least two, and are not from ping."""
    other = head.lstrip()[:1] in (b"{", b"[") or head.startswith(nrscope.FIRST_LINE) or hsdpa.FIRST_LINE.match(head)
    shape = None if other else text_table.layout(head)
    if shape is None or (shape.delimiter == " " and _reply_of_ping(path, head)):
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
    direction = options.direction or options.named
    try:
        return map_columns(names, options.columns, direction, moments.__contains__, options.part())
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
    Format("nrscope", "a log of NR-Scope", _names_of_nrscope, _read_nrscope, frozenset({"direction", "device"})),
    Format("hsdpa", "a log of downloads on the move (Riiser et al.)", _line_of_hsdpa, _read_hsdpa),
    Format("csv", "a table (CSV)", _layout_of_table, _read_csv, _OF_TABLES),
    Format("parquet", "a table (Parquet)", lambda _, head: _magic(head, "Parquet"), _read_parquet, _OF_TABLES),
)  # fmt: skip
"""The formats read here; :mod:`cellbed.recordings.importing` adds recordings of two workloads."""

_HEAD = 1 << 16
_PACKED = {
    b"\x1f\x8b": "gzip: gunzip it",
    b"\x28\xb5\x2f\xfd": "zstd: unzstd it",
    b"\xfd7zXZ": "xz: unxz it",
    b"BZh": "bzip2: bunzip2 it",
    b"PK\x03\x04": "zip: unzip it",
}
_OPTION_NAMES = {"interval_ns": "--interval", "duration_ns": "--duration", "idle_ns": "--idle"}


@dataclass(frozen=True)
class Importer:
    """The importer of recognised files. why: reason for the recognised format."""

    paths: tuple[Path, ...]
    format: Format
    why: str

    @property
    def what(self) -> str:
        """The recognised format and the reason."""
        return f"{_file_names(self.paths)}: {self.format.title}, as {self.why}"

    @property
    def work(self) -> int:
        """The approximate number of bytes that `read` will report."""
        return self.format.passes * sum(path.stat().st_size for path in self.paths if path.is_file())

    def read(
        self, paths: Sequence[Path], draft: Draft, options: Options | None = None, progress: Progress | None = None
    ) -> None:
        """Write the series of files into the draft, with a step of the history and notes on assumptions.

        paths: the recognised files. progress: called with the number of bytes read.

        Raises TraceError and then leaves the draft unchanged.
        """
        options = options or Options()
        self._require_concern(paths, options)
        with scratch(draft) as own:
            for path in paths:
                with scratch(own) as part:
                    self.format.read(path, part, options.for_file(path, is_alone=len(paths) == 1), progress)
                    if len(paths) > 1:
                        part.notes[:] = [f"{path.name}: {note}" for note in part.notes]
                    move_contents(part, own, path)
            history = _step(self.format, options, {path.name: sha256(path) for path in paths if path.is_file()})
            move_contents(own, draft, paths[0])
        draft.history.append(history)

    def _require_concern(self, paths: Sequence[Path], options: Options) -> None:
        for name in options.given():
            if name not in self.format.options:
                shown = _OPTION_NAMES.get(name, f"--{name.replace('_', '-')}")
                raise TraceError(f"{_file_names(paths)}: {shown} does not apply to {self.format.title}: omit it")


def recognise(paths: Sequence[Path], as_format: str | None = None, formats: Sequence[Format] = FORMATS) -> Importer:
    """Return the importer for files that belong to one recording: one file, or one for each direction.

    as_format: name of the format; None: recognised by the contents.

    Raises TraceError for unreadable files, and for unknown or ambiguous formats.
    """
    if not paths:
        raise TraceError("no file given: name at least one")
    paths = tuple(paths)
    for path in paths:
        _require_readable(path, allow_folder=len(paths) == 1)
    if as_format is not None:
        return Importer(paths, _format_by_name(as_format, formats), f"by --as {as_format}")
    found = [(format, why) for format in formats if (why := _evidence(format, paths)) is not None]
    if len(found) == 1:
        return Importer(paths, *found[0])
    if not found:
        raise TraceError(f"{_file_names(paths)}: {_explain_unknown(paths, formats)}")
    guesses = " or ".join(f"{format.title} ({why}; --as {format.name})" for format, why in found)
    raise TraceError(f"{_file_names(paths)}: ambiguous format: {guesses}: choose one with --as FORMAT")


def _evidence(format: Format, paths: tuple[Path, ...]) -> str | None:
    each = [format.evidence(path, _head(path)) for path in paths]
    return None if None in each else each[0]


def _format_by_name(name: str, formats: Sequence[Format]) -> Format:
    known = {format.name: format for format in formats}
    if name in known:
        return known[name]
    hint = did_you_mean(name, known)
    raise TraceError(f"unknown format '{name:.40}': {hint}formats: {', '.join(known)}")


def _require_readable(path: Path, *, allow_folder: bool) -> None:
    try:
        if path.is_dir() and allow_folder:
            return
        if not path.is_file():
            mode = path.stat().st_mode
            raise TraceError(f"{path}: it is a {inputs.kind_of(mode)}, not a file")
        head = _head(path)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not head:
        raise TraceError(f"{path}: it is empty")
    for magic, remedy in _PACKED.items():
        if head.startswith(magic):
            raise TraceError(f"{path}: it is compressed by {remedy} first")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TraceError(
            f"{path}: it is UTF-16 text, as PowerShell writes it: `iconv -f UTF-16 -t UTF-8` makes it readable"
        )


def _head(path: Path) -> bytes:
    if path.is_dir():
        return b""
    with inputs.open_file(path) as file:
        return file.read(_HEAD)


def _explain_unknown(paths: tuple[Path, ...], formats: Sequence[Format]) -> str:
    advice = f": if it is one of {', '.join(format.name for format in formats)}, write --as FORMAT"
    if len(paths) > 1:
        return "the files are not all of one known format" + advice
    if paths[0].is_dir():
        return "no recording in this folder"
    return "unknown format" + advice


def _file_names(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _step(format: Format, options: Options, digests: dict[str, str]) -> Step:
    how = {name: _plain(value) for name, value in options.given().items()}
    return Step(what="imported", how={"format": format.name, **how}, of=digests, tool=f"cellbed {cellbed.__version__}")


def _plain(value: object) -> object:
    return [str(each) if isinstance(each, Path) else each for each in value] if isinstance(value, tuple) else value
