"""Recordings of two workloads for the archive: cellbed's own directories, and the files of CellReplay's public tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive import TraceError
from cellbed.archive.entry import Draft
from cellbed.archive.importers import FORMATS as FORMATS_OF_TRACES
from cellbed.archive.importers import Format, Importer, Options, Progress
from cellbed.archive.importers import recognise as recognise_among
from cellbed.archive.series import OPPORTUNITY_BYTES, Content, Series
from cellbed.recordings.errors import RecordingError
from cellbed.support.ways import WAYS

if TYPE_CHECKING:
    from cellbed.recordings.recording import Recording

_FOLDER = "recording"


def _name_of_the_tool(path: Path, _: bytes) -> str | None:
    from cellbed.recordings.tool_files import NAMES

    there = next((name for name in NAMES.values() if (path / name).exists()), None)
    return f"the folder has {there}" if there else None


def _read_cellreplay(path: Path, draft: Draft, options: Options, _: Progress | None) -> None:
    from cellbed.recordings.imported import import_cellreplay, tool_files

    try:
        _fill(draft, import_cellreplay(tool_files(path), options.idle_ns))
    except RecordingError as error:
        raise TraceError(str(error)) from None
    if options.idle_ns is None:
        draft.notes.append(
            "the files do not contain F, the idle time of an inactive link: give --idle now or for the replay"
        )


def _description_of_recording(path: Path, _: bytes) -> str | None:
    return "the folder has a recording.json" if (path / "recording.json").is_file() else None


def _read_recording(path: Path, draft: Draft, _: Options, __: Progress | None) -> None:
    from cellbed.recordings.recording import read_recording

    if not path.is_dir():
        raise TraceError(f"{path}: a recording is one folder, with a recording.json")
    try:
        _fill(draft, read_recording(path))
    except RecordingError as error:
        raise TraceError(str(error)) from None


DIRECTORY = Format("recording", "a recording of two workloads", _description_of_recording, _read_recording)
CELLREPLAY = Format("cellreplay", "a recording of CellReplay's public tool", _name_of_the_tool, _read_cellreplay,
                    frozenset({"idle_ns"}))  # fmt: skip
FORMATS: tuple[Format, ...] = (DIRECTORY, CELLREPLAY, *FORMATS_OF_TRACES)
"""All formats that the archive takes."""


def recognise(paths: Sequence[Path], as_format: str | None = None) -> Importer:
    """:func:`cellbed.archive.importers.recognise` among all formats."""
    return recognise_among(paths, as_format, FORMATS)


def _fill(draft: Draft, recording: Recording) -> None:
    from cellbed.recordings.recording import write_recording

    write_recording(recording, draft.folder / _FOLDER)
    draft.recording = _FOLDER
    _fill_series(draft, recording)


def _fill_series(draft: Draft, recording: Recording) -> None:
    import polars as pl

    from cellbed.recordings.series import opportunities, round_trips

    duration_ns = recording.description.duration_ns
    for way in WAYS:
        if recording.packets("heavy", way)["arrived_ns"].null_count() == recording.packets("heavy", way).height:
            draft.notes.append(f"the {way} was not saturated: there is no series of it")
            continue
        times = opportunities(recording, way, OPPORTUNITY_BYTES)
        path = draft.folder / f"{way}.parquet"
        pl.DataFrame({"at_ns": times}).write_parquet(path)
        draft.parts[way] = Series(Content.OPPORTUNITIES, path, duration_ns)
    sent = recording.light_uplink.group_by("train").agg(at_ns=pl.col("sent_ns").min()).drop_nulls()
    trips = sent.join(round_trips(recording).select("train", "round_trip_ns"), on="train", how="left")
    trips = trips.filter(pl.col("at_ns") >= 0).sort("at_ns", "train").select("at_ns", "round_trip_ns")
    if trips.height:
        path = draft.folder / "round-trip.parquet"
        trips.write_parquet(path)
        end_ns = max(duration_ns, int(trips["at_ns"].to_numpy()[-1]))
        draft.parts["round-trip"] = Series(Content.ROUND_TRIP, path, end_ns)
