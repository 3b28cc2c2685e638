"""From a recording to the files of other programs, in a directory that is written whole or not at all."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from cellbed.recordings.cellreplay import CellReplay, derive
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording, write_folder
from cellbed.recordings.replaying import rate_notes, round_trip_notes
from cellbed.recordings.saturation import opportunities
from cellbed.recordings.series import delays, rates
from cellbed.recordings.tool_files import NAMES, heavy_text, light_text, offsets_text
from cellbed.recordings.trips import fixed_delay
from cellbed.ways import WAYS, Way

Format = Literal["mahimahi", "cellreplay", "rate", "rtt"]
FORMATS: tuple[Format, ...] = ("mahimahi", "cellreplay", "rate", "rtt")
Ending = Literal["csv", "parquet"]

MAHIMAHI_BYTES = 1500
"""IP bytes that an opportunity of Mahimahi delivers of full packets: it carries 1504 and charges each packet 4 more."""

LEAST_BIN_NS = 1_000_000

_SHORT: dict[Way, str] = {"uplink": "up", "downlink": "down"}
README = "README"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. files: names in `folder`. notes: what a user must know to replay them, a sentence each."""

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
    each_packet: bool = False,
    precise: bool = False,
    train: tuple[int | None, int | None] = (None, None),
    bin_ns: int = 100_000_000,
    ending: Ending = "csv",
) -> Exported:
    """Write a recording in another format into the directory `folder`, which must be empty or not there.

    name: of the recording; names Mahimahi's traces. each_packet: a Mahimahi opportunity for each packet that arrived,
    whatever it held, in place of one for each 1500 bytes. precise: light rows to the ns where the public tool reads
    whole ms. train: packets of the trains that become light rows, uplink and downlink. bin_ns: of rates. ending: of
    rates and round-trip times.

    Errors: :class:`RecordingError` for what the recording does not have, and for what cannot be written.
    """
    if to == "mahimahi":
        files, notes = _mahimahi(recording, name, each_packet)
    elif to == "cellreplay":
        files, notes = _cellreplay(recording, train, precise)
    else:
        return _series(recording, to, folder, bin_ns, ending)
    files[README] = "".join(f"{note}\n" for note in notes)

    def fill(unfinished: Path) -> None:
        for file, text in files.items():
            (unfinished / file).write_text(text, encoding="utf-8")

    write_folder(folder, fill)
    return Exported(to, folder, tuple(files), tuple(notes))


def _mahimahi(recording: Recording, name: str, each_packet: bool) -> tuple[dict[str, str], list[str]]:
    """Traces of the directions that were saturated, as a link with its delay behind it has them."""
    delay = fixed_delay(recording)
    size = None if each_packet else MAHIMAHI_BYTES
    files: dict[str, str] = {}
    missing: list[Way] = []
    for way in WAYS:
        if recording.packets("heavy", way)["arrived_ns"].count():
            times = opportunities(recording, way, size, earlier_ns=delay or 0)
            files[f"{name}.{_SHORT[way]}"] = heavy_text(times)
        else:
            missing.append(way)
    if not files:
        raise RecordingError("the recording has no saturation in either direction, so no opportunities")
    notes = [_opportunity_note(recording, each_packet)]
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


def _opportunity_note(recording: Recording, each_packet: bool) -> str:
    size = recording.description.packet_bytes
    if each_packet and size != MAHIMAHI_BYTES:
        over = MAHIMAHI_BYTES / size - 1
        return (
            f"An opportunity is a packet of {size} bytes that arrived; a replay takes it for {MAHIMAHI_BYTES} bytes: "
            f"its rate is up to {over:.1%} above the recorded one."
        )
    return f"An opportunity is {MAHIMAHI_BYTES} bytes of IP packets that arrived, so that the rate is the recorded one."


def _cellreplay(
    recording: Recording, train: tuple[int | None, int | None], precise: bool
) -> tuple[dict[str, str], list[str]]:
    derived = {way: derive(recording, way, length) for way, length in zip(WAYS, train, strict=True)}
    files = {NAMES[f"light_{way}"]: light_text(found.light, whole=not precise) for way, found in derived.items()}
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
    if precise:
        notes.append("The light rows have decimals: cellbed's mm-cellular reads them, the public tool whole ms only.")
    if any(len(found.light) < 3 for found in derived.values()):
        notes.append("The public tool needs at least three light rows; cellbed's mm-cellular does not.")
    return files, notes


def _command(derived: dict[Way, CellReplay]) -> list[str]:
    """The words before the program that ``mm-cellular`` is to run, without their number."""
    words = ["mm-cellular", *(NAMES[f"{workload}_{way}"] for workload in ("light", "heavy") for way in WAYS)]
    for way, found in derived.items():
        if found.offsets:
            words.append(f"--psize-latency-offset-{_SHORT[way]}={NAMES[f'latency_offset_{way}']}")
    for way, found in derived.items():
        if found.idle_ns is not None:
            words.append(f"--long-to-short-timer-{_SHORT[way]}={(found.idle_ns + 500_000) // 1_000_000}")
    return words


def _series(recording: Recording, to: Format, folder: Path, bin_ns: int, ending: Ending) -> Exported:
    if bin_ns < LEAST_BIN_NS:
        raise RecordingError(f"a bin of {bin_ns / 1e6:g} ms is too short for a rate: write 1 ms or more")
    tables: dict[str, pl.DataFrame]
    if to == "rate":
        tables = {
            f"rate-{way}": rates(recording, way, bin_ns)
            for way in WAYS
            if recording.packets("heavy", way)["arrived_ns"].count()
        }
        what = "saturation in either direction: it shows no rate"
    else:
        tables = {"rtt": table} if (table := delays(recording)).height else {}
        what = "train that was answered: it shows no round-trip time"
    if not tables:
        raise RecordingError(f"the recording has no {what}")
    write: dict[Ending, Callable[[pl.DataFrame, Path], None]] = {
        "csv": lambda table, path: table.write_csv(path),
        "parquet": lambda table, path: table.write_parquet(path),
    }

    def fill(unfinished: Path) -> None:
        for stem, table in tables.items():
            write[ending](table, unfinished / f"{stem}.{ending}")
        (unfinished / README).write_text("".join(f"{note}\n" for note in notes), encoding="utf-8")

    files = [f"{stem}.{ending}" for stem in tables]
    if to == "rate":
        notes = rate_notes({way: f"rate-{way}.{ending}" for way in WAYS if f"rate-{way}" in tables})
    else:
        notes = round_trip_notes(files[0])
    write_folder(folder, fill)
    return Exported(to, folder, (*files, README), notes)
