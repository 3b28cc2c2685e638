"""From a packet log to a file of another format, written whole or not at all."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

from cellbed.measure.packetlog.log import LogError, PacketLog
from cellbed.whole_files import write_whole

Format = Literal["mahimahi", "csv", "parquet", "pcapng"]
ENDINGS: dict[Format, str] = {"mahimahi": "log", "csv": "csv", "parquet": "parquet", "pcapng": "pcapng"}


def convert(
    log: PacketLog, to: Format, output: Path | None, direction: str | None, note: Callable[[str], None]
) -> Path | None:
    """Convert a log; returns the path of the file that was written.

    output: where to; `None`: beside the log's run or file; ``-``: standard output. direction: only this one; needed
    for Mahimahi's format where the log has several. note: is told what had to be left out.
    Errors: :class:`LogError`; nothing is left of a file that could not be finished.
    """
    if log.rest:
        note(f"{log.path} ends inside a record, as after a killed run: its last {log.rest} bytes are left out")
    chosen = log.direction_index(direction) if direction is not None else None
    if to == "mahimahi" and chosen is None:
        chosen = _only_direction(log)
    write = _writer(log, to, chosen, note)
    if output == Path("-"):
        _to_standard_output(write, to)
        return None
    path = output or _default(log, to, chosen)
    try:
        write_whole(path, lambda file: _fill(file, write))
    except OSError as error:
        raise LogError(f"{path}: cannot be written: {error.strerror or error}; choose another place with -o") from None
    return path


def _fill(path: Path, write: Callable[[IO[bytes]], None]) -> None:
    with path.open("wb") as file:
        write(file)


def _writer(
    log: PacketLog, to: Format, direction: int | None, note: Callable[[str], None]
) -> Callable[[IO[bytes]], None]:
    if to == "mahimahi":
        from cellbed.measure.packetlog.mahimahi import write_mahimahi
        from cellbed.measure.packetlog.schedule import opportunities

        assert direction is not None
        try:
            schedule = opportunities(log, direction, Path.cwd())
        except LogError as error:
            note(f"{error}; opportunities are left out")
            schedule = None
        return lambda file: write_mahimahi(log, file, direction, schedule)
    if to == "pcapng":
        from cellbed.measure.packetlog.pcapng import write_pcapng

        return lambda file: write_pcapng(log, file, direction)
    from cellbed.measure.packetlog.tables import write_csv, write_parquet

    write = write_csv if to == "csv" else write_parquet
    return lambda file: write(log, file, direction)


def _only_direction(log: PacketLog) -> int:
    present = log.directions_seen()
    if len(present) == 1:
        return present[0]
    names = ", ".join(log.direction_name(index) for index in present) or "none"
    raise LogError(f"Mahimahi's log is of one direction; choose one with --direction; {log.path} has {names}")


def _default(log: PacketLog, to: Format, direction: int | None) -> Path:
    folder = log.folder or log.path.parent
    stem = log.path.stem if direction is None else log.direction_name(direction).replace("/", "-")
    return folder / f"{stem}.{ENDINGS[to]}"


def _to_standard_output(write: Callable[[IO[bytes]], None], to: Format) -> None:
    if to in ("parquet", "pcapng") and sys.stdout.isatty():
        raise LogError(f"{to} is binary and standard output is a terminal; write to a file with -o FILE, or to a pipe")
    if to == "parquet":
        # Its writer wants a file, and closes it.
        with tempfile.TemporaryDirectory(prefix="cellbed-") as folder:
            path = Path(folder, "packets.parquet")
            _fill(path, write)
            with path.open("rb") as file:
                while part := file.read(1 << 20):
                    sys.stdout.buffer.write(part)
    else:
        write(sys.stdout.buffer)
    sys.stdout.buffer.flush()
