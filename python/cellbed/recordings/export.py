"""Conversion of a recording, or the series of an archive's entry, to files for other programs.

A directory is written atomically; its README contains the commands that replay the files.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl

from cellbed.archive import Archive
from cellbed.archive.replayable import write_text
from cellbed.archive.series import OPPORTUNITY_BYTES, Content, Part, Series
from cellbed.recordings.cellreplay import CellReplay, derive
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording, write_folder
from cellbed.recordings.series import base_delay, delays, opportunities, rates
from cellbed.recordings.tool_files import NAMES, heavy_text, light_text, offsets_text
from cellbed.support.ways import WAYS, Way

_SHORT: Final[dict[str, str]] = {"uplink": "up", "downlink": "down"}


Format = Literal["mahimahi", "cellreplay", "rate", "rtt"]
FORMATS: tuple[Format, ...] = ("mahimahi", "cellreplay", "rate", "rtt")

MAHIMAHI_BYTES = 1500
"""IP bytes of full packets per opportunity of Mahimahi: 1504 bytes, minus 4 that Mahimahi adds to each packet."""

LEAST_BIN_NS = 1_000_000
USUAL_BIN_NS = 100_000_000

README = "README"


@dataclass(frozen=True, slots=True)
class Exported:
    """The result. files: names in `folder`. notes: instructions for replay, a sentence each."""

    format: Format
    folder: Path
    files: tuple[str, ...]
    notes: tuple[str, ...]


def export(
    recording: Recording,
    to: Format,
    folder: Path,
    *,
    name: str,
    train: tuple[int | None, int | None] = (None, None),
    bin_ns: int | None = None,
) -> Exported:
    """Write a recording in another format into the directory `folder`, which must be empty or not exist.

    name: name of the recording, used for Mahimahi's traces. train: number of packets of the trains that become light
    rows, uplink and downlink. bin_ns: bins of rates; default: 100 ms.

    Errors: :class:`RecordingError` for missing data, and for failed writes.
    """
    if to == "mahimahi":
        return _write(to, folder, *_mahimahi(recording, name))
    if to == "cellreplay":
        return _write(to, folder, *_cellreplay(recording, train))
    tables: dict[Part, pl.DataFrame]
    if to == "rtt":
        tables = {"round-trip": table} if (table := delays(recording)).height else {}
        lacking = "train that was answered: it shows no round-trip time"
    else:
        saturated = [way for way in WAYS if recording.packets("heavy", way)["arrived_ns"].count()]
        tables = {way: rates(recording, way, _check_width(bin_ns or USUAL_BIN_NS)) for way in saturated}
        lacking = "saturation in either direction: it shows no rate"
    if not tables:
        raise RecordingError(f"the recording has no {lacking}")
    return _write(to, folder, {_name(part): table for part, table in tables.items()}, _replay_notes(tables))


def _write(
    to: Format, folder: Path, files: Mapping[str, str | pl.DataFrame | Series], notes: Sequence[str]
) -> Exported:
    """Write files by name (a series as Mahimahi's trace), and the notes as README."""

    def fill(unfinished: Path) -> None:
        for name, content in {**files, README: "".join(f"{note}\n" for note in notes)}.items():
            path = unfinished / name
            if isinstance(content, str):
                path.write_text(content, encoding="utf-8")
            elif isinstance(content, Series):
                write_text(content, path)
            else:
                content.write_csv(path)

    write_folder(folder, fill)
    return Exported(to, folder, (*files, README), tuple(notes))


def _name(part: Part) -> str:
    return "rtt.csv" if part == "round-trip" else f"rate-{part}.csv"


def _check_width(bin_ns: int) -> int:
    if bin_ns < LEAST_BIN_NS:
        raise RecordingError(f"a bin of {bin_ns / 1e6:g} ms is too short for a rate: write 1 ms or more")
    return bin_ns


def _replay_notes(parts: Iterable[Part]) -> list[str]:
    """Return README lines that replay round-trip times, or rates over time."""
    files = {part: _name(part) for part in parts}
    if "round-trip" in files:
        about = "round_trip_ms: of a packet sent at time_s, seconds since the start. In a scenario's [links.core]:"
        lines = [f'cloud = {{ kind = "round-trips", record = "{files["round-trip"]}" }}']
    else:
        about = (
            "rate_bit_s holds from time_s, seconds since the start, until the next row. In a scenario's mobile link:"
        )
        lines = [f'{_SHORT[part]} = {{ kind = "series", file = "{file}" }}' for part, file in files.items()]
    return [about, *lines]


def _mahimahi(recording: Recording, name: str) -> tuple[dict[str, str], list[str]]:
    """Return traces of the saturated directions, for a link followed by its delay."""
    delay = base_delay(recording)
    files: dict[str, str] = {}
    missing: list[Way] = []
    for way in WAYS:
        if recording.packets("heavy", way)["arrived_ns"].count():
            times = opportunities(recording, way, MAHIMAHI_BYTES, earlier_ns=delay or 0)
            files[f"{name}.{_SHORT[way]}"] = heavy_text(times)
        else:
            missing.append(way)
    if not files:
        raise RecordingError("the recording has no saturation in either direction, so no opportunities")
    notes = [f"An opportunity is {MAHIMAHI_BYTES} bytes of IP packets that arrived: the rate is the recorded one."]
    notes += [f"The {way} was not saturated: no trace." for way in missing]
    if delay is None:
        return files, [*notes, "No train was answered: the delay of the traces is unknown."]
    notes.append(f"One-way delay for the traces, half the minimum round-trip time: {delay / 1e6:g} ms.")
    if not missing:
        traces = " ".join(shlex.quote(file) for file in files)
        notes.append(f"mm-delay {(delay + 500_000) // 1_000_000} mm-link {traces} -- COMMAND")
        up, down = (shlex.quote(file) for file in files)
        notes.append(f'cellbed shell --up {up} --down {down} --delay "{delay / 1e6:g} ms" -- COMMAND')
    return files, notes


def _cellreplay(recording: Recording, train: tuple[int | None, int | None]) -> tuple[dict[str, str], list[str]]:
    derived = {way: derive(recording, way, length) for way, length in zip(WAYS, train, strict=True)}
    files = {NAMES[f"light_{way}"]: light_text(found.light, whole=True) for way, found in derived.items()}
    files |= {NAMES[f"heavy_{way}"]: heavy_text(found.heavy) for way, found in derived.items()}
    files |= {
        NAMES[f"latency_offset_{way}"]: offsets_text(found.offsets, stepped=True)
        for way, found in derived.items()
        if found.offsets
    }
    command = _command(derived)
    notes = [" ".join([command[0], str(len(command) + 1), *command[1:], "COMMAND"])]
    for way, found in derived.items():
        if found.idle_ns is None:
            option = f"--long-to-short-timer-{_SHORT[way]}"
            notes.append(f"F of the {way} was not calibrated: measure it and give it as {option}, in ms.")
    if any(len(found.light) < 3 for found in derived.values()):
        notes.append("The public tool needs at least three light rows; cellbed's mm-cellular does not.")
    return files, notes


def _command(derived: dict[Way, CellReplay]) -> list[str]:
    """Return the arguments of ``mm-cellular`` before the program, without their number."""
    words = ["mm-cellular", *(NAMES[f"{workload}_{way}"] for workload in ("light", "heavy") for way in WAYS)]
    for way, found in derived.items():
        if found.offsets:
            words.append(f"--psize-latency-offset-{_SHORT[way]}={NAMES[f'latency_offset_{way}']}")
    for way, found in derived.items():
        if found.idle_ns is not None:
            words.append(f"--long-to-short-timer-{_SHORT[way]}={(found.idle_ns + 500_000) // 1_000_000}")
    return words


def export_entry(archive: Archive, name: str, to: Format, folder: Path, *, bin_ns: int | None = None) -> Exported:
    """Write an entry in another format into the directory `folder`, which must be empty or not exist.

    mahimahi: ``NAME.up`` and ``NAME.down``. rate: the rate of each direction over bins of bin_ns; by default original
    rates, and opportunities over 100 ms. rtt: round-trip times; empty if there was no answer.

    Errors: :class:`RecordingError` for data that the entry lacks, and for failed writes;
    :class:`cellbed.archive.TraceError` for damaged data.
    """
    has = archive.entry(name).parts
    wanted: tuple[Part, ...] = ("round-trip",) if to == "rtt" else WAYS
    found = {part: archive.series(name, part) for part in wanted if part in has}
    if to == "cellreplay" or not found:
        lacking = {"cellreplay": "recording of two workloads", "rtt": "round-trip times"}.get(to, "uplink or downlink")
        raise RecordingError(f"'{name}' has no {lacking}: it cannot be written as {to}")
    files: dict[str, pl.DataFrame | Series]
    if to == "mahimahi":
        files = {f"{name}.{_SHORT[part]}": series for part, series in found.items()}
        notes = _trace_notes({_SHORT[part]: shlex.quote(f"{name}.{_SHORT[part]}") for part in found})
    else:
        make = _round_trips if to == "rtt" else partial(_rates, bin_ns=bin_ns and _check_width(bin_ns))
        files = {_name(part): make(series) for part, series in found.items()}
        notes = _replay_notes(found)
    about = archive.entry(name).about
    if about.origin == "synthetic":
        made = "" if about.method is None else f": {about.method}"
        notes = [f"Synthetic{made}. Added to an archive again, it is --origin synthetic.", *notes]
    return _write(to, folder, files, notes)


def _trace_notes(files: Mapping[str, str]) -> list[str]:
    """Return README lines that replay Mahimahi's traces. files: quoted names of "up", "down", or both."""
    shell = f"cellbed shell {' '.join(f'--{way} {file}' for way, file in files.items())} -- COMMAND"
    if len(files) == 2:
        return [f"mm-link {' '.join(files.values())} -- COMMAND", shell]
    missing = "downlink" if "up" in files else "uplink"
    return [shell, f"There is no trace of the {missing}: mm-link wants one of each direction."]


def _rates(series: Series, bin_ns: int | None) -> pl.DataFrame:
    """Return columns time_s and rate_bit_s, in the format of a scenario's rate series."""
    if series.content is Content.RATE and bin_ns is None:
        return series.scan().select(time_s=(pl.col("at_ns") / 1e9).round(9), rate_bit_s=pl.col("bit_s")).collect()
    bin_ns = bin_ns or USUAL_BIN_NS
    if series.content is Content.RATE:
        rows = series.scan().collect()
        bounds = np.append(rows["at_ns"].to_numpy(), series.duration_ns).astype(np.float64)
        offered = np.append(0, np.cumsum(rows["bit_s"].to_numpy() * np.diff(bounds) / 1e9))
        ends = np.append(np.arange(0.0, series.duration_ns, bin_ns), series.duration_ns)
        means = np.diff(np.interp(ends, bounds, offered)) / np.diff(ends) * 1e9
        return pl.DataFrame({"time_s": ends[:-1] / 1e9, "rate_bit_s": means})
    # An opportunity counts for the time before it, so that an opportunity at the end of a loop is in the last bin.
    bin_of = (pl.col("at_ns").clip(1) - 1) // bin_ns
    counted = series.scan().group_by(bin=bin_of).agg(count=pl.len())
    bins = pl.LazyFrame({"bin": pl.int_range(0, -(-series.duration_ns // bin_ns), eager=True)})
    bits = pl.col("count").fill_null(0) * (8 * OPPORTUNITY_BYTES)
    return (
        bins.join(counted, on="bin", how="left", maintain_order="left")
        .select(time_s=pl.col("bin") * (bin_ns / 1e9), rate_bit_s=bits * (1e9 / bin_ns))
        .collect(engine="streaming")
    )


def _round_trips(series: Series) -> pl.DataFrame:
    # Polars divides by a constant by multiplying with the reciprocal, which has an error in the last bit.
    columns = {"time_s": (pl.col("at_ns") / 1e9).round(9), "round_trip_ms": (pl.col("round_trip_ns") / 1e6).round(6)}
    return series.scan().select(**columns).collect()
