"""From the series of an archive's entry to the files of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from cellbed.archive import Archive
from cellbed.archive.replayable import write_text
from cellbed.archive.series import OPPORTUNITY_BYTES, Content, Part, Series
from cellbed.recordings.errors import RecordingError
from cellbed.recordings.export import LEAST_BIN_NS, README, Ending, Exported, Format
from cellbed.recordings.recording import write_folder
from cellbed.recordings.replaying import rate_notes, round_trip_notes, trace_notes

if TYPE_CHECKING:
    import polars as pl

    from cellbed.ways import Way

_SHORT: Final[dict[Part, str]] = {"uplink": "up", "downlink": "down"}


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
    """Columns time_s and rate_bit_s, as a scenario's rate series reads them."""
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
