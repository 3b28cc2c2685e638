"""Reads live runs, testbeds and shells: control sockets of emulators, and files that grow in the folders of runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from cellbed.measure.meter import Meter
from cellbed.runformat.events import FILE as EVENTS
from cellbed.runformat.records import REQUESTS, SERVICES
from cellbed.testbed.links.live import ControlError, connect, find, label, live
from cellbed.testbed.machine.state import Record, live_folder
from cellbed.ui.snapshot import Bed, Json
from cellbed_node import inputs

INTERVAL_S = 0.05
"""Time between two readings of links, seconds."""
_FILES, _SAMPLES, _LOOK = 2, 10, 20
"""Readings of links per reading of requests and events, of samples and descriptions, and of the registry."""
_MOST = 1 << 20
"""Maximum bytes of a file per reading. Of more, the latest are read."""


class Tail:
    """A file of lines that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def read(self) -> bytes:
        """Return the complete lines since the last call; nothing if there is no such file."""
        try:
            size = self._path.stat().st_size
            if size == self._read:
                return b""
            with inputs.open_file(self._path) as file:
                begin = self._read if self._read <= size else 0
                skipped = max(0, size - _MOST - begin)
                file.seek(begin + skipped)
                content = file.read(_MOST)
        except OSError:
            return b""
        end = content.rfind(b"\n") + 1
        self._read = begin + skipped + end
        return content[content.find(b"\n") + 1 if skipped else 0 : end]


class _Source:
    """One live run, testbed or shell with its connection and files. Errors: :class:`ControlError`."""

    def __init__(self, record: Record) -> None:
        self.bed = Bed(label(record), record.kind, record.folder)
        self._folder = Path(record.folder or os.devnull)
        self._events, self._samples = Tail(self._folder / EVENTS), Tail(self._folder / "raw" / "nodes.jsonl")
        self._records: dict[str, dict[tuple[str, str], Tail]] = {REQUESTS: {}, SERVICES: {}}
        self._described_ns = 0
        with contextlib.ExitStack() as stack:
            self._control = stack.enter_context(connect(record))
            self._meter = Meter(self._control.status, interval_ns=int(INTERVAL_S * 0.9e9))
            self.close = stack.pop_all().close

    def read(self, now_ns: int, tick: int) -> Json:
        """Return the state at monotonic time `now_ns`. tick: number of the reading."""
        if tick % _LOOK == 0:
            self.bed.take_directions(self._control.describe())
            for ending, tails in self._records.items():
                for path in self._folder.glob(f"raw/*.*.{ending}"):
                    app, _, node = path.name.removesuffix(f".{ending}").rpartition(".")
                    tails.setdefault((app, node), Tail(path))
        if (readings := self._meter.read(now_ns)) is not None:
            self.bed.take_readings(readings)
        if tick % _SAMPLES == 0:
            self._describe()
        if tick % _FILES == 0:
            self._read_files()
        return self.bed.content()

    def _describe(self) -> None:
        """Take the description of the run, if it has changed, and samples of nodes."""
        with contextlib.suppress(OSError, ValueError):
            changed_ns = (self._folder / "run.json").stat().st_mtime_ns
            if changed_ns != self._described_ns:
                content = inputs.json_value(self._folder / "run.json")
                self._described_ns = changed_ns
                if isinstance(content, dict):
                    self.bed.take_description(content)
        if lines := self._samples.read():
            self.bed.take_samples(lines)

    def _read_files(self) -> None:
        """Take new events and requests."""
        if lines := self._events.read():
            self.bed.take_events(lines)
        # A server writes before its client has the reply: its file is read later, and taken first.
        clients, servers = ([(*names, tail.read()) for names, tail in each.items()] for each in self._records.values())
        for served in servers:
            self.bed.take_served(*served)
        self.bed.take_requests(clients)


class Reader:
    """A reader of the live runs, testbeds and shells of this user.

    name: name or prefix of the only one to read; ``None`` for all, including later ones. Errors of the constructor:
    :class:`~cellbed.testbed.links.live.LiveError` if nothing has this name.
    """

    def __init__(self, name: str | None = None) -> None:
        self._only = find(name).identifier if name is not None else None
        self._sources: dict[str, _Source] = {}
        self._tick = 0

    def read(self, now_ns: int) -> dict[str, Json]:
        """Return the states at monotonic time `now_ns` by identifier, oldest first; call it every `INTERVAL_S`."""
        if self._tick % _LOOK == 0:
            self._connect()
        beds = {}
        for identifier, source in list(self._sources.items()):
            try:
                beds[identifier] = source.read(now_ns, self._tick)
            except (ControlError, KeyError):  # the run has ended
                self._sources.pop(identifier).close()
        self._tick += 1
        return beds

    def close(self) -> None:
        """End the connections."""
        for source in self._sources.values():
            source.close()

    def _connect(self) -> None:
        """Connect to new runs; parse the registry only if one of them is not connected."""
        if not {path.stem for path in live_folder().glob("*.json")} - self._sources.keys():
            return
        for record in live():
            if record.identifier not in self._sources and self._only in (None, record.identifier):
                with contextlib.suppress(ControlError):  # the run is about to begin, or has just ended
                    self._sources[record.identifier] = _Source(record)
