"""The files that a link replays, made of a recording and kept beside the user's other caches.

All that they are made of is in the recording's directory: it can be copied to another machine or be another user's.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import cellbed
from cellbed.recordings.cellreplay import LightRow, derive
from cellbed.recordings.description import Way
from cellbed.recordings.packets import RecordingError
from cellbed.recordings.recording import FILES, Recording, read_recording, write_folder
from cellbed.recordings.saturation import opportunities
from cellbed.recordings.tool_files import heavy_text, light_text, offsets_text
from cellbed.recordings.trips import fixed_delay

Method = Literal["cellreplay", "saturation"]
"""How a recording is replayed.

cellreplay: the paper's method (Sentosa et al., NSDI 2025, §4.3). saturation: the opportunities of the saturation behind
half the least round-trip time, as Mahimahi does (Netravali et al., ATC 2015).
"""

_REVISION = 1
"""To be raised when the same recording gives other files than before."""

_LIGHT, _HEAVY, _OFFSETS = "light", "heavy", "latency-offset"


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """Files of one direction in the formats of a ``cellreplay`` capacity; latency_offset: ``None`` for none."""

    light: Path
    heavy: Path
    latency_offset: Path | None


def replay_files(folder: Path, way: Way, method: Method, train: int | None = None) -> ReplayFiles:
    """The files by which a direction of the recording in `folder` is replayed; made when they are first asked for.

    train: as of :func:`cellbed.recordings.cellreplay.derive`.
    Errors: :class:`RecordingError`.
    """
    stem = f"{folder.absolute().name[:100]}.{way}.{method}"
    made = cache_folder() / _key(folder, stem, train)
    if not made.is_dir():
        texts = _texts(read_recording(folder), way, method, train)
        try:
            write_folder(made, lambda unfinished: _write(texts, unfinished, stem))
        except RecordingError as error:
            if not made.is_dir():  # another process may have been sooner
                raise RecordingError(f"{error}; set XDG_CACHE_HOME to a folder that can be written") from None
    light, heavy, offsets = (made / f"{stem}-{part}" for part in (_LIGHT, _HEAVY, _OFFSETS))
    return ReplayFiles(light, heavy, offsets if offsets.exists() else None)


def cache_folder() -> Path:
    """Where the files are kept: ``$XDG_CACHE_HOME/cellbed/replay`` or ``~/.cache/cellbed/replay``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification: a relative path is invalid and to be ignored.
    return (Path(base) if base.startswith("/") else Path.home() / ".cache") / "cellbed" / "replay"


def _texts(recording: Recording, way: Way, method: Method, train: int | None) -> dict[str, str]:
    if method == "saturation":
        delay = fixed_delay(recording)
        if delay is None:
            raise RecordingError("no train of the recording was answered: its round-trip time is not known")
        # A row without opportunities of its own: all packets meet the heavy ones, behind one delay.
        rows: list[LightRow] = [(0, delay, [])]
        return {_LIGHT: light_text(rows, whole=False), _HEAVY: heavy_text(opportunities(recording, way))}
    found = derive(recording, way, train)
    texts = {_LIGHT: light_text(found.light, whole=False), _HEAVY: heavy_text(found.heavy)}
    return texts | ({_OFFSETS: offsets_text(found.offsets, stepped=False)} if found.offsets else {})


def _write(texts: dict[str, str], folder: Path, stem: str) -> None:
    for part, text in texts.items():
        (folder / f"{stem}-{part}").write_text(text)


def _key(folder: Path, stem: str, train: int | None) -> str:
    """Names what is made by what it is made of."""
    digest = hashlib.sha256(repr((cellbed.__version__, _REVISION, stem, train)).encode())
    for name in FILES:
        try:
            with (folder / name).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            digest.update(b"-")  # reading the recording says what is wrong
    return digest.hexdigest()[:40]
