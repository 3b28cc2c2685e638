"""The file of one host: CSV that grows line by line and continues after a crash, for scenarios and the archive."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cellbed.support import inputs
from cellbed.support.errors import CellbedError

_FIRST = "# cellbed ping-record"
_COLUMNS = "time_s,rtt_ms"
_LONGEST = 10 * 365 * 86_400 * 10**9
"""Maximum ns: ten years."""


class FileError(CellbedError):
    """A record that cannot be written or continued."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a record. by: "icmp" or "tcp:PORT". started: time zero, UTC. interval_s: between two probes."""

    host: str
    address: str
    by: str
    started: datetime
    interval_s: float

    def text(self) -> str:
        """Return the file's first lines."""
        lines = (
            _FIRST,
            f"# host: {self.host}",
            f"# address: {self.address}",
            f"# by: {self.by}",
            f"# started: {self.started.isoformat().replace('+00:00', 'Z')}",
            f"# interval_s: {self.interval_s:g}",
            "# a line without a round-trip time got no answer; where lines are missing, nothing was sent",
            _COLUMNS,
        )
        return "".join(f"{line}\n" for line in lines)


class RecordFile:
    """A record that is being written. A second process is refused.

    samples: the existing ones, as (ns since `started`, round trip in ns or None).
    """

    def __init__(self, path: Path, header: Header) -> None:
        """Begin the file at `path`, or continue it with its start.

        Raises FileError when another process writes it, or it is another record.
        """
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                inputs.checked(path)
            self._file = path.open("a+b")
        except OSError as error:
            reason = f"{path.parent} is not a folder" if isinstance(error, FileExistsError) else error.strerror
            raise FileError(f"{path}: cannot write this record: {reason}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise FileError(f"{path}: another cellbed ping-record writes to this file; choose another --out") from error
        self.samples: list[tuple[int, int | None]] = []
        self.header = header
        try:
            self._go_on(header)
        except OSError as error:
            raise FileError(f"{path}: cannot write this record: {error.strerror}") from error

    def _go_on(self, header: Header) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if not content.strip() or _FIRST.encode().startswith(content):
            self._file.truncate(0)
            self._write(header.text())
            return
        self.header = _same(self.path, whole.decode("utf-8", errors="replace").splitlines(), header)
        for number, line in _lines(whole):
            sample = _sample(self.path, number, line)
            if self.samples and sample[0] < self.samples[-1][0]:
                raise FileError(
                    f"{self.path}:{number}: its time is before that of the previous line: choose another --out"
                )
            self.samples.append(sample)
        if len(whole) < len(content):
            # Remove an incomplete line after a crash.
            self._file.truncate(len(whole))

    def append(self, samples: Sequence[tuple[int, int | None]]) -> None:
        """Add samples: (ns since `header.started`, round trip in ns or None). Raises FileError on a full disk."""
        try:
            self._write(
                "".join(f"{at / 1e9:.6f},{'' if trip is None else f'{trip / 1e6:.6f}'}\n" for at, trip in samples)
            )
        except OSError as error:
            raise FileError(f"{self.path}: cannot write this record: {error.strerror}") from error

    def _write(self, text: str) -> None:
        self._file.write(text.encode())
        self._file.flush()

    def close(self) -> None:
        """Flush it to the disk."""
        os.fsync(self._file.fileno())
        self._file.close()


def name_of(host: str) -> str:
    """Return the name of a host's file."""
    kept = "".join(each if each.isalnum() or each in ".-_" else "-" for each in host.lower())
    return f"{kept.strip('.') or 'host'}.csv"


def _lines(whole: bytes) -> list[tuple[int, str]]:
    text = whole.decode("utf-8", errors="replace").splitlines()
    return [(number, line) for number, line in enumerate(text, 1) if not line.startswith("#") and line != _COLUMNS]


def _same(path: Path, lines: list[str], header: Header) -> Header:
    """Return the header that the file has, if it is a record of the same host in the same way."""
    said = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    if not lines or lines[0] != _FIRST:
        raise FileError(f"{path}: exists and is not a record of cellbed ping-record: choose another --out")
    interval = f"{header.interval_s:g}"
    for key, wanted in (("host", header.host), ("by", header.by), ("interval_s", interval)):
        if said.get(key) != wanted:
            raise FileError(f"{path}: this record has {key} {said.get(key)!r} and not {wanted!r}: choose another --out")
    try:
        started = datetime.fromisoformat(said.get("started", ""))
        if started.tzinfo is None:
            raise ValueError
        started = started.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise FileError(
            f"{path}: the line '# started: …' is missing or has no valid time: choose another --out"
        ) from error
    if header.started + timedelta(seconds=1) < started:
        raise FileError(f"{path}: starts in the future: correct the clock, or choose another --out")
    return Header(header.host, header.address, header.by, started, header.interval_s)


def _sample(path: Path, number: int, line: str) -> tuple[int, int | None]:
    at, comma, trip = line.partition(",")
    try:
        sample = round(float(at) * 1e9), round(float(trip) * 1e6) if trip else None
        if not comma or not 0 <= sample[0] <= _LONGEST or not 0 <= (sample[1] or 0) <= _LONGEST:
            raise ValueError
        return sample
    except (ValueError, OverflowError) as error:
        raise FileError(
            f"{path}:{number}: '{line[:40]}' is not a time and a round-trip time: choose another --out"
        ) from error
