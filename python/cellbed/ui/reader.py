"""Reads live runs, testbeds and shells: control sockets of emulators, and files that grow in the folders of runs."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from cellbed.measure.meter import Meter
from cellbed.runformat.events import FILE as EVENTS
from cellbed.runformat.records import REQUESTS, SERVICES
from cellbed.testbed.links.live import Control, ControlError, connect, find, label, live
from cellbed.testbed.machine.state import Record, live_folder
from cellbed.ui.snapshot import Bed, Snapshot
from cellbed_node import inputs

INTERVAL_NS = 50_000_000
"""Time between two readings of links."""
_FILES_NS, _SAMPLES_NS, _LOOK_NS = 100_000_000, 500_000_000, 1_000_000_000
"""Time between two readings of requests and events, of samples and descriptions, and of the registry."""
_MOST = 1 << 20
"""Maximum bytes of a file per reading. Of more, the latest are read."""


class Tail:
    """A file of lines that another process appends to."""

    def __init__(self, path: Path) -> None:
        self._path, self._text = path, str(path)
        self._read = 0

    def read(self) -> bytes:
        """Return the complete lines since the last call; nothing if there is no such file."""
        try:
            size = os.stat(self._text).st_size  # noqa: PTH116
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


@dataclass
class _Source:
    """One live run, testbed or shell with its connection and files."""

    record: Record
    bed: Bed
    control: Control
    meter: Meter
    clients: dict[tuple[str, str], Tail] = field(default_factory=dict)
    servers: dict[tuple[str, str], Tail] = field(default_factory=dict)
    described_ns: int = 0

    def __post_init__(self) -> None:
        folder = Path(self.record.folder or os.devnull)
        self._events, self._samples = Tail(folder / EVENTS), Tail(folder / "raw" / "nodes.jsonl")
        self._description = folder / "run.json"
        self.look()

    def look(self) -> None:
        """Take changes of the links, and find new files of requests."""
        self.bed.take_directions(self.control.describe())
        if self.record.folder is not None:
            for ending, tails in ((REQUESTS, self.clients), (SERVICES, self.servers)):
                for path in Path(self.record.folder, "raw").glob(f"*.*.{ending}"):
                    app, _, node = path.name.removesuffix(f".{ending}").rpartition(".")
                    tails.setdefault((app, node), Tail(path))

    def describe(self) -> None:
        """Take the description of the run, if it has changed, and samples of nodes."""
        with contextlib.suppress(OSError, ValueError):
            changed_ns = self._description.stat().st_mtime_ns
            if changed_ns != self.described_ns:
                content = inputs.json_value(self._description)
                self.described_ns = changed_ns
                if isinstance(content, dict):
                    self.bed.take_description(content)
        if lines := self._samples.read():
            self.bed.take_samples(lines)

    def read_files(self) -> None:
        """Take new events and requests."""
        if lines := self._events.read():
            self.bed.take_events(lines)
        # A server writes before its client has the reply: its file is read later, and taken first.
        requests = [(*names, lines) for names, tail in self.clients.items() if (lines := tail.read())]
        for names, tail in self.servers.items():
            if lines := tail.read():
                self.bed.take_served(*names, lines)
        self.bed.take_requests(requests)


class Reader:
    """A reader of the live runs, testbeds and shells of this user.

    name: name or prefix of the only one to read; ``None`` for all, including later ones. Errors of the constructor:
    :class:`~cellbed.testbed.links.live.LiveError` if nothing has this name.
    """

    def __init__(self, name: str | None = None) -> None:
        self._only = find(name).identifier if name is not None else None
        self._sources: dict[str, _Source] = {}
        self._registry_ns = -1
        self._next_look_ns = self._next_samples_ns = self._next_files_ns = 0

    def read(self, now_ns: int) -> Snapshot:
        """Return the state at monotonic time `now_ns`; call it every `INTERVAL_NS`."""
        is_look, is_samples, is_files = (
            now_ns >= due for due in (self._next_look_ns, self._next_samples_ns, self._next_files_ns)
        )
        if is_look:
            self._next_look_ns = now_ns + _LOOK_NS
            self._look()
        for identifier, source in list(self._sources.items()):
            try:
                if is_look:
                    source.look()
                if (readings := source.meter.read(now_ns)) is not None:
                    source.bed.take_readings(readings)
            except (ControlError, KeyError):  # the run has ended
                self._close(identifier)
                continue
            if is_samples:
                source.describe()
            if is_files:
                source.read_files()
        if is_samples:
            self._next_samples_ns = now_ns + _SAMPLES_NS
        if is_files:
            self._next_files_ns = now_ns + _FILES_NS
        beds = {identifier: source.bed.content(now_ns) for identifier, source in self._sources.items()}
        return Snapshot(now_ns / 1e9, beds)

    def close(self) -> None:
        """End the connections."""
        for identifier in list(self._sources):
            self._close(identifier)

    def _close(self, identifier: str) -> None:
        self._sources.pop(identifier).control.__exit__()

    def _look(self) -> None:
        """Connect to new runs; parse the registry only if it has changed or a run is not connected yet."""
        try:
            changed_ns = live_folder().stat().st_mtime_ns
        except OSError:
            return
        if changed_ns == self._registry_ns:
            return
        there = [record for record in live() if self._only in (None, record.identifier)]
        for record in there:
            if record.identifier in self._sources:
                continue
            try:
                control = connect(record)
            except ControlError:  # the run is about to begin, or has just ended
                changed_ns = -1
                continue
            try:
                meter = Meter(control.status, interval_ns=INTERVAL_NS * 9 // 10)
                bed = Bed(label(record), record.kind, record.folder)
                self._sources[record.identifier] = _Source(record, bed, control, meter)
            except ControlError:
                control.__exit__()
        self._registry_ns = changed_ns
