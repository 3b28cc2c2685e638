"""From a recording, or the series of an archive's entry, to the files of other programs.

A directory is written whole or not at all; its README has the commands that replay the files.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import polars as pl

from cellbed.archive import Archive
from cellbed.archive.replayable import write_text
from cellbed.archive.series import OPPORTUNITY_BYTES, Content, Part, Series
from cellbed.recordings.cellreplay import CellReplay, derive
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.recording import Recording, write_folder
from cellbed.recordings.saturation import opportunities
from cellbed.recordings.series import delays, fixed_delay, rates
from cellbed.recordings.tool_files import NAMES, heavy_text, light_text, offsets_text
from cellbed.support.ways import WAYS, Way

if TYPE_CHECKING:
    pass


_SHORT: Final[dict[Part, str]] = {"uplink": "up", "downlink": "down"}


def trace_notes(files: Mapping[Way, str]) -> tuple[str, ...]:
    """Return the lines that replay Mahimahi's traces, of both directions or of one."""
    options = " ".join(f"--{_SHORT[way]} {shlex.quote(file)}" for way, file in files.items())
    shell = f"cellbed shell {options} -- COMMAND"
    if len(files) == len(WAYS):
        return (f"mm-link {' '.join(shlex.quote(files[way]) for way in WAYS)} -- COMMAND", shell)
    (missing,) = (way for way in WAYS if way not in files)
    return (shell, f"There is no trace of the {missing}: mm-link wants one of each direction.")


def rate_notes(files: Mapping[Way, str]) -> tuple[str, ...]:
    """Return the lines that replay rates over time."""
    lines = tuple(f'{_SHORT[way]} = {{ kind = "series", file = "{file}" }}' for way, file in files.items())
    about = "rate_bit_s holds from time_s, seconds since the start, until the next row. In a scenario's mobile link:"
    return (about, *lines, *_unread(files.values()))


def round_trip_notes(file: str) -> tuple[str, ...]:
    """Return the lines that replay round-trip times."""
    about = "round_trip_ms is of what was sent at time_s, seconds since the start. In a scenario's [links.core]:"
    return (about, f'cloud = {{ kind = "round-trips", record = "{file}" }}', *_unread([file]))


def _unread(files: Iterable[str]) -> tuple[str, ...]:
    if all(file.endswith(".csv") for file in files):
        return ()
    return ("Scenarios read CSV alone: export without --parquet for them.",)


Format = Literal["mahimahi", "cellreplay", "rate", "rtt"]
FORMATS: tuple[Format, ...] = ("mahimahi", "cellreplay", "rate", "rtt")
Ending = Literal["csv", "parquet"]

MAHIMAHI_BYTES = 1500
"""IP bytes that an opportunity of Mahimahi delivers of full packets: it carries 1504 and charges each packet 4 more."""

LEAST_BIN_NS = 1_000_000

README = "README"


@dataclass(frozen=True, slots=True)
class Exported:
    """The result. files: names in `folder`. notes: instructions for replaying them, a sentence each."""

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
    of any size, instead of one for each 1500 bytes. precise: light rows to the ns where the public tool reads whole ms.
    train: packets of the trains that become light rows, uplink and downlink. bin_ns: of rates. ending: of rates and
    round-trip times.

    Errors: :class:`RecordingError` for missing data, and for failed writes.
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
    """Traces of the saturated directions, for a link with its delay behind it."""
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
    """Return the arguments of ``mm-cellular`` before the program, without their number."""
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


def export_entry(
    archive: Archive, name: str, to: Format, folder: Path, *, bin_ns: int = 100_000_000, ending: Ending = "csv"
) -> Exported:
    """Write an entry in another format into the directory `folder`, which must be empty or not there.

    mahimahi: ``NAME.up`` and ``NAME.down``. rate: the opportunities of each direction over bins of bin_ns, or the rates
    as they are. rtt: round-trip times; empty where no answer came. ending: of rates and round-trip times.

    Errors: :class:`RecordingError` for what the entry does not have and what cannot be written;
    :class:`cellbed.archive.TraceError` for what is damaged.
    """
    if to == "rate" and bin_ns < LEAST_BIN_NS:
        raise RecordingError(f"a bin of {bin_ns / 1e6:g} ms is too short for a rate: write 1 ms or more")
    parts: tuple[Part, ...] = ("round-trip",) if to == "rtt" else tuple(_SHORT)
    has = archive.entry(name).parts
    found = {part: archive.series(name, part) for part in parts if part in has}
    if to == "cellreplay" or not found:
        lacking = {"cellreplay": "recording of two workloads", "rtt": "round-trip times"}.get(to, "uplink or downlink")
        raise RecordingError(f"'{name}' has no {lacking}: it cannot be written as {to}")
    stems = {part: f"{name}.{_SHORT[part]}" if to == "mahimahi" else _stem(to, part) for part in found}
    files = {part: stem if to == "mahimahi" else f"{stem}.{ending}" for part, stem in stems.items()}

    def fill(unfinished: Path) -> None:
        for part, series in found.items():
            path = unfinished / files[part]
            if to == "mahimahi":
                write_text(series, path)
            else:
                table = _round_trips(series) if to == "rtt" else _rates(series, bin_ns)
                table.write_csv(path) if ending == "csv" else table.write_parquet(path)

        (unfinished / README).write_text("".join(f"{note}\n" for note in notes), encoding="utf-8")

    ways: dict[Way, str] = {part: file for part, file in files.items() if part != "round-trip"}
    told = {"mahimahi": trace_notes, "rate": rate_notes}.get(to)
    notes = round_trip_notes(files["round-trip"]) if told is None else told(ways)
    about = archive.entry(name).about
    if about.origin == "synthetic":
        made = "" if about.method is None else f": {about.method}"
        notes = (f"Synthetic{made}. Added to an archive again, it is --origin synthetic.", *notes)
    write_folder(folder, fill)
    return Exported(to, folder, (*files.values(), README), notes)


def _stem(to: Format, part: Part) -> str:
    return "rtt" if to == "rtt" else f"rate-{part}"


def _rates(series: Series, bin_ns: int) -> pl.DataFrame:
    """Return columns time_s and rate_bit_s, as a scenario's rate series reads them."""
    import polars as pl

    if series.content is Content.RATE:
        return series.scan().select(time_s=pl.col("at_ns") / 1e9, rate_bit_s=pl.col("bit_s")).collect()
    # An opportunity counts for the time before it, so that the one at the very end of a loop is in its last bin.
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
    import polars as pl

    # Polars divides by a constant with its reciprocal, which is off by a last bit.
    columns = {"time_s": (pl.col("at_ns") / 1e9).round(9), "round_trip_ms": (pl.col("round_trip_ns") / 1e6).round(6)}
    return series.scan().select(**columns).collect()
