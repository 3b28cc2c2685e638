"""Recordings of two workloads for the archive: cellbed's directories, and the files of CellReplay's public tool."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive import TraceError, resolve
from cellbed.archive.entry import About, Draft
from cellbed.archive.importers import FORMATS as FORMATS_OF_TRACES
from cellbed.archive.importers import Format, Importer, Options, Progress
from cellbed.archive.importers import recognise as recognise_among
from cellbed.archive.importers.format import add_metadata
from cellbed.archive.index import OTHER_NAMES
from cellbed.archive.replayable import write_text
from cellbed.archive.series import ENDINGS, OPPORTUNITY_BYTES, Content, Series
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.tool_files import NAMES
from cellbed.support.ways import WAYS
from cellbed.support.whole_files import write_whole
from cellbed_node.temporary import temporary_folder

if TYPE_CHECKING:
    from cellbed.recordings.description import Description
    from cellbed.recordings.recording import Recording

_FOLDER = "recording"


def _folder_format(
    name: str,
    title: str,
    marks: Sequence[str],
    load: Callable[[Path, Options], Recording],
    options: frozenset[str] = frozenset(),
) -> Format:
    """Return a format for recordings in a folder. marks: names of files; a folder of this format has one of them."""

    def evidence(path: Path, _: bytes) -> str | None:
        there = next((name for name in marks if (path / name).is_file()), None)
        return f"the folder has a {there}" if there else None

    def read(path: Path, draft: Draft, asked: Options, _: Progress | None) -> None:
        if not path.is_dir():
            raise TraceError(f"{path}: {title} is one folder, with a {marks[0]}")
        try:
            _fill(draft, load(path, asked), path)
        except RecordingError as error:
            raise TraceError(str(error)) from None
        if "idle_ns" in options and asked.idle_ns is None:
            draft.notes.append(
                "the files do not contain F, the idle time of an inactive link: give --idle now or for the replay"
            )

    return Format(name, title, evidence, read, options)


def _read_tool_files(folder: Path, options: Options) -> Recording:
    from cellbed.recordings.imported import import_cellreplay, tool_files

    return import_cellreplay(tool_files(folder), options.idle_ns)


def _read_recording(folder: Path, _: Options) -> Recording:
    from cellbed.recordings.recording import read_recording

    return read_recording(folder)


CELLREPLAY = _folder_format(
    "cellreplay",
    "a recording of CellReplay's public tool",
    tuple(NAMES.values()),
    _read_tool_files,
    frozenset({"idle_ns"}),
)
DIRECTORY = _folder_format("recording", "a recording of two workloads", ("recording.json",), _read_recording)
FORMATS: tuple[Format, ...] = (DIRECTORY, CELLREPLAY, *FORMATS_OF_TRACES)
"""All formats that the archive accepts."""


def recognise(paths: Sequence[Path], as_format: str | None = None) -> Importer:
    """Return the result of :func:`cellbed.archive.importers.recognise` for all formats."""
    return recognise_among(paths, as_format, FORMATS)


def make_traces(path: Path, folder: Path, name: str) -> dict[str, Path]:
    """Convert a recording in any format to the traces ``NAME.up`` and ``NAME.down`` in a folder.

    Args:
        path: A file or folder. A trace has the ending ``.up`` or ``.down``, other files of one direction have it in
            their names.
        folder: The folder of the traces.
        name: The common part of their names.

    Returns:
        The traces by ending, ``up`` and ``down``; an ending without a rate is missing. A trace is returned as it is.

    Raises:
        TraceError: The recording cannot be read, or has no rate.
        OSError: A trace cannot be written.
    """
    importer, ending = recognise([path]), path.suffix[1:]
    if importer.format.name == "mahimahi":
        if ending not in ENDINGS:
            raise TraceError(f"{path}: a trace without its direction: end its name in .up or .down")
        resolve(str(path.absolute()), path.parent).check()
        return {ending: path.absolute()}
    made = {}
    with temporary_folder() as temporary:
        draft = Draft(temporary, About(origin="recorded"))
        try:
            importer.read([path], draft)
        except TraceError as error:
            more = f" to `cellbed traces add {shlex.quote(str(path))}`, then use the entry" * ("write --" in str(error))
            raise TraceError(f"{error}{more}") from None
        for ending, part in ENDINGS.items():
            if part in draft.parts:
                made[ending] = folder.absolute() / f"{name}.{ending}"
                folder.mkdir(parents=True, exist_ok=True)
                write_whole(made[ending], partial(write_text, draft.parts[part]))
    if not made:
        raise TraceError(f"{path}: contains no rate of the uplink or downlink")
    return made


def _fill(draft: Draft, recording: Recording, source: Path) -> None:
    from cellbed.recordings.recording import SAMPLES, read_samples, write_recording

    samples = {name: read_samples(source, name) for name in SAMPLES}
    write_recording(recording, draft.folder / _FOLDER)
    for name, table in samples.items():
        if table is not None:
            table.write_parquet(draft.folder / _FOLDER / f"{name}.parquet")
    draft.recording = _FOLDER
    _fill_origin(draft, recording.description)
    _fill_series(draft, recording)


def _fill_origin(draft: Draft, description: Description) -> None:
    """Take metadata that the user has not given from the recording's description."""
    signal, position = description.signal, description.position
    technology = signal.technology and OTHER_NAMES.get(signal.technology, signal.technology.partition("-")[0])
    place, speed = signal.place, None
    if position is not None:
        place = place or f"{position.latitude:.5f}, {position.longitude:.5f}"
        speed = None if position.speed_m_s is None else f"{position.speed_m_s:.1f} m/s"
    add_metadata(
        draft, operator=signal.operator, technology=technology, place=place, mobility=signal.mobility, speed=speed
    )


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
