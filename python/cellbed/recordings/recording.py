"""A recording as a directory: read and checked as a whole, written atomically."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import polars as pl
from pydantic import ValidationError

from cellbed.archive.unfinished import make_unfinished_beside
from cellbed.recordings.description import FORMAT, VERSION, Description, Workload
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.packets import check_downloads, check_packets, count, empty
from cellbed.recordings.recorder import run_recorder
from cellbed.support.ways import Way
from cellbed_node import inputs

DESCRIPTION = "recording.json"
JOURNAL = "journal"
"""The recorder's log, converted to the files at the end."""
STEMS: tuple[str, ...] = ("light-uplink", "light-downlink", "heavy-uplink", "heavy-downlink")
"""Names of the packet files without suffix."""
FILES: tuple[str, ...] = (DESCRIPTION, *(f"{stem}.parquet" for stem in STEMS))
"""Names of the files that replays are derived from."""
DOWNLOADS = "downloads.parquet"

_LARGEST_DESCRIPTION = 1 << 26

SAMPLES: Final[Mapping[str, dict[str, Any]]] = {
    "position": {"at_ns": pl.Int64}
    | dict.fromkeys(("latitude", "longitude", "altitude_m", "speed_m_s", "accuracy_m"), pl.Float64),
    "signal": {"at_ns": pl.Int64}
    | dict.fromkeys(("device", "technology", "cell"), pl.String)
    | dict.fromkeys(("rsrp_dbm", "rsrq_db", "sinr_db"), pl.Float64),
}
"""Columns of the optional files of samples, by name without suffix. at_ns: since time zero; null is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Packet trains and saturation over a network.

    The tables of packets have the columns of :data:`cellbed.recordings.packets.COLUMNS`; downloads has those of
    :data:`cellbed.recordings.packets.DOWNLOADS`, and is ``None`` without downloads.
    """

    description: Description
    light_uplink: pl.DataFrame
    light_downlink: pl.DataFrame
    heavy_uplink: pl.DataFrame
    heavy_downlink: pl.DataFrame
    downloads: pl.DataFrame | None = None

    def packets(self, workload: Workload, way: Way) -> pl.DataFrame:
        """Return the packets of a workload in one direction."""
        table: pl.DataFrame = getattr(self, f"{workload}_{way}")
        return table

    def tables(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Yield the tables of packets with their file names without suffix."""
        for stem in STEMS:
            yield stem, getattr(self, stem.replace("-", "_"))

    def counted(self) -> Recording:
        """Return the recording with recomputed counts."""
        counts = {stem: count(table) for stem, table in self.tables()}
        return replace(self, description=self.description.model_copy(update={"counts": counts}))


def read_recording(folder: Path | str) -> Recording:
    """Read a recording.

    Args:
        folder: The recording's folder.

    Returns:
        The recording.

    Raises:
        RecordingError: A file is missing or invalid: ``FILE: reason`` or ``FILE: row N: reason``.
    """
    folder = Path(folder)
    description = read_description(folder)
    tables = {
        stem.replace("-", "_"): _packets(folder / f"{stem}.parquet", stem in description.counts) for stem in STEMS
    }
    downloads = folder / DOWNLOADS
    fetched = check_downloads(_parquet(downloads), downloads) if downloads.exists() else None
    return Recording(description, **tables, downloads=fetched)


def read_samples(folder: Path, name: str) -> pl.DataFrame | None:
    """Return the samples of a recording, a table of :data:`SAMPLES`; ``None`` without any.

    Errors: as for :func:`read_recording`.
    """
    path = folder / f"{name}.parquet"
    if not path.exists():
        return None
    table = _parquet(path)
    if dict(table.schema) != SAMPLES[name]:
        raise RecordingError(f"{path}: a table of the {name} has the columns {', '.join(SAMPLES[name])}")
    return table


def read_description(folder: Path) -> Description:
    """Return the content of `recording.json` in `folder`; pack the journal of a killed recorder first.

    Errors: as for :func:`read_recording`.
    """
    path = folder / DESCRIPTION
    if not folder.is_dir():
        raise RecordingError(f"{folder}: no such directory: give the directory of a recording")
    if not path.exists() and (folder / JOURNAL).exists():
        run_recorder(["pack", folder])
    try:
        content = inputs.content(path, _LARGEST_DESCRIPTION)
    except FileNotFoundError:
        raise RecordingError(f"{folder}: not a recording: it has no {DESCRIPTION}") from None
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from None
    try:
        return Description.model_validate_json(content)
    except ValidationError as error:
        raise RecordingError(f"{path}: {_first(error)}") from None


def write_recording(recording: Recording, folder: Path | str) -> Path:
    """Write a recording atomically, with recomputed counts.

    Args:
        recording: The recording.
        folder: The directory, which must not exist.

    Returns:
        The directory.

    Raises:
        RecordingError: The directory exists, a write failed, or the recording is invalid.
    """
    recording = recording.counted()
    for stem, table in recording.tables():
        check_packets(table, f"{stem}.parquet")
    downloads = None if recording.downloads is None else check_downloads(recording.downloads, DOWNLOADS)

    def fill(unfinished: Path) -> None:
        if downloads is not None:
            downloads.write_parquet(unfinished / DOWNLOADS)
        for stem, table in recording.tables():
            table.write_parquet(unfinished / f"{stem}.parquet")
        text = recording.description.model_dump_json(indent=2)
        (unfinished / DESCRIPTION).write_text(text + "\n", encoding="utf-8")

    return write_folder(Path(folder), fill)


def write_folder(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Create the directory `folder` atomically, filled by `fill`.

    An empty directory is replaced.
    Errors: :class:`RecordingError` for a directory that is not empty, the current one, and failed writes.
    """
    place = Path(os.path.realpath(folder))
    try:
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise RecordingError(f"{folder}: already exists: choose another directory, or remove it")
        if folder.exists() and folder.samefile(Path.cwd()):
            raise RecordingError(f"{folder}: is the current directory: name a directory in it")
        place.parent.mkdir(parents=True, exist_ok=True)
        with make_unfinished_beside(place) as unfinished:
            fill(unfinished)
            unfinished.replace(place)
    except (OSError, pl.exceptions.ComputeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RecordingError(f"{folder}: cannot be written: {reason}: choose another directory") from None
    return folder


def _packets(path: Path, counted: bool) -> pl.DataFrame:
    """Return the table in a file. counted: whether the recording's counts require the file."""
    return check_packets(_parquet(path), path) if counted or path.exists() else empty()


def _parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(inputs.open_file(path))
    except FileNotFoundError:
        raise RecordingError(f"{path}: missing, though {DESCRIPTION} counts its packets") from None
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise RecordingError(f"{path}: not a readable Parquet file, perhaps truncated: {reason}") from None


def _first(error: ValidationError) -> str:
    """Return the first error of a description in one line; errors of format or version come first."""
    faults = error.errors(include_url=False)
    fault = min(faults, key=lambda it: it["loc"] not in (("format",), ("version",)))
    place = ".".join(map(str, fault["loc"]))
    given = fault["input"]
    if fault["type"] == "json_invalid":
        return f"not JSON: {fault['ctx']['error']}"
    if place == "format":
        return f"format is {given!r:.60}: not a recording, which has '{FORMAT}'"
    if place == "version":
        return f"version {given!r:.60} is unknown: this version of cellbed reads version {VERSION}"
    if fault["type"] == "missing":
        return f"'{place}' is missing"
    shown = f", not {given!r:.60}" if isinstance(given, str | int | float | bool | None) else ""
    reason = fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{place}: {reason}{shown}" if place else f"{reason}{shown}"
