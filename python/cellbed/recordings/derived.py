"""The files that a link replays, derived from a recording and kept in the user's cache.

They depend only on the recording's directory, which can be copied to another machine or belong to another user.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

import cellbed
from cellbed.recordings.cellreplay import LightRow, derive
from cellbed.recordings.conditional import model_text
from cellbed.recordings.description import Description
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import DOWNLOADS, FILES, Recording, read_recording, write_folder
from cellbed.recordings.series import base_delay, opportunities, queue_limit
from cellbed.recordings.sharing import alone
from cellbed.recordings.tool_files import heavy_text, light_text, offsets_text
from cellbed.support import user_folders
from cellbed.support.ways import Way
from cellbed_node import inputs

Method = Literal["cellreplay", "saturation", "conditional"]
"""A replay method.

cellreplay: the paper's method (Sentosa et al., NSDI 2025, §4.3). saturation: the opportunities of the saturation, and
half the minimum round-trip time as delay, as in Mahimahi (Netravali et al., ATC 2015). conditional: our method, with
recorded packets in the same situation (:mod:`cellbed.recordings.conditional`).
"""
METHODS: Final[tuple[Method, ...]] = get_args(Method)

_REVISION = 8
"""Revision of the derived files; increase it when the same recording gives other files."""

_LONGEST_LIMIT = 30
"""Maximum length of a queue's limit in bytes of text."""
_LIGHT, _HEAVY, _OFFSETS, _MODEL, _QUEUE = "light", "heavy", "latency-offset", "model", "queue"


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """Files of one direction; ``None`` for files that the method lacks.

    light, heavy, latency_offset: in the formats of a ``cellreplay`` capacity. model: model of the stage
    ``conditional``, replaces light rows. queue_bytes: limit of the bottleneck queue, if the saturation shows it.
    """

    heavy: Path
    light: Path | None
    latency_offset: Path | None
    model: Path | None
    queue_bytes: int | None


def is_conditional(description: Description) -> bool:
    """Return whether a recording's trains show what the method conditional learns: single packets and bursts of several
    lengths after several gaps."""
    plan = description.light.plan
    if plan is None:
        return False
    gaps = {train.gap_ns or plan.gap_ns for train in plan.rotation}
    lengths = [{getattr(train, way) for train in plan.rotation} for way in ("up", "down")]
    return len(gaps) > 3 and all(1 in each and len(each) > 3 for each in lengths)


def replay_files(folder: Path, way: Way, method: Method, name: str | None = None) -> ReplayFiles:
    """Return the files for the replay of a direction of the recording in `folder`, derived at first use.

    name: prefix of the files; default: name of the folder. Errors: :class:`RecordingError`.
    """
    stem = f"{(name or folder.absolute().name)[:100]}.{way}.{method}"
    made = cache_folder() / _key(folder, stem)
    if not made.is_dir():
        texts = _texts(read_recording(folder), way, method)
        try:
            write_folder(made, lambda unfinished: _write(texts, unfinished, stem))
        except RecordingError as error:
            if not made.is_dir():  # another process may have been faster
                raise RecordingError(f"{error}; set XDG_CACHE_HOME to a folder that can be written") from None
    return _files(made, stem)


def write_replay_files(recording: Recording, way: Way, method: Method, folder: Path) -> ReplayFiles:
    """Write the files that a replay of a recording's direction needs.

    Args:
        recording: The recording.
        way: The direction.
        method: The method of the replay.
        folder: An existing folder.

    Returns:
        The files.

    Raises:
        RecordingError: The recording lacks what the method needs.
    """
    _write(_texts(recording, way, method), folder, way)
    return _files(folder, way)


def cache_folder() -> Path:
    """Return the folder of derived files: ``$XDG_CACHE_HOME/cellbed/replay`` or ``~/.cache/cellbed/replay``."""
    return user_folders.cache_folder() / "replay"


def _files(folder: Path, stem: str) -> ReplayFiles:
    light, offsets, model, queue = (
        path if (path := folder / f"{stem}-{part}").exists() else None for part in (_LIGHT, _OFFSETS, _MODEL, _QUEUE)
    )
    try:
        limit = None if queue is None else int(inputs.content(queue, _LONGEST_LIMIT))
    except (OSError, ValueError):
        raise RecordingError(f"{queue}: no queue's limit: remove its folder, which is made again") from None
    return ReplayFiles(folder / f"{stem}-{_HEAVY}", light, offsets, model, limit)


def _texts(recording: Recording, way: Way, method: Method) -> dict[str, str]:
    limit = queue_limit(recording, way)
    return _method_texts(recording, way, method) | ({} if limit is None else {_QUEUE: f"{limit}\n"})


def _method_texts(recording: Recording, way: Way, method: Method) -> dict[str, str]:
    if method == "saturation":
        delay = base_delay(recording)
        if delay is None:
            raise RecordingError("no train of the recording was answered: its round-trip time is not known")
        # A row without opportunities: all packets use the heavy opportunities, after a common delay.
        rows: list[LightRow] = [(0, delay, [])]
        return {_LIGHT: light_text(rows, whole=False), _HEAVY: heavy_text(opportunities(recording, way))}
    if method == "conditional":
        if not is_conditional(recording.description):
            raise RecordingError(
                "its trains are not those that the method conditional learns from: record with "
                "`cellbed record … --for conditional`, or replay it by the method cellreplay"
            )
        single = alone(recording, way)
        return {_MODEL: model_text(single, way), _HEAVY: heavy_text(opportunities(single, way))}
    found = derive(recording, way)
    texts = {_LIGHT: light_text(found.light, whole=False), _HEAVY: heavy_text(found.heavy)}
    return texts | ({_OFFSETS: offsets_text(found.offsets, stepped=False)} if found.offsets else {})


def _write(texts: dict[str, str], folder: Path, stem: str) -> None:
    for part, text in texts.items():
        (folder / f"{stem}-{part}").write_text(text, encoding="utf-8")


def _key(folder: Path, stem: str) -> str:
    """Return the name of derived files, a hash of their inputs."""
    made_of = cellbed.__version__, _REVISION, stem, fingerprint(folder)
    return hashlib.sha256(repr(made_of).encode()).hexdigest()[:40]


def fingerprint(folder: Path) -> str:
    """Return a hash of the files of the recording in `folder`."""
    digest = hashlib.sha256()
    for name in (*FILES, DOWNLOADS):
        try:
            with inputs.open_file(folder / name) as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError:
            digest.update(b"-")  # the error is reported when the recording is read
    return digest.hexdigest()
