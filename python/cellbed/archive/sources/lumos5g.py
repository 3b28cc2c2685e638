"""Lumos5G 1.0: throughput of commercial 5G mmWave on a loop of 1300 m in Minneapolis, walking and driving."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part
from cellbed.archive.sources.reading import reading
from cellbed.archive.sources.series_files import put_rate
from cellbed.archive.sources.source import Recording, RemoteFile, Source, named

if TYPE_CHECKING:
    import polars as pl

_SECOND = 1_000_000_000
_COLUMNS = {"run_num", "seq_num", "nrStatus", "Throughput", "mobility_mode", "trajectory_direction"}


def _convert(folder: Path, _way: Part) -> Iterator[Recording]:
    import polars as pl

    for path in sorted(folder.rglob("*.csv")):
        with reading(path.name):
            table = pl.scan_csv(path, infer_schema=False, null_values=["", "NA", "nan"])
            if not set(table.collect_schema().names()) >= _COLUMNS:
                continue
            rows = (
                table.select(sorted(_COLUMNS))
                .cast({"run_num": pl.Int64, "seq_num": pl.Int64, "Throughput": pl.Float64})
                .collect()
            )
        for run in rows["run_num"].drop_nulls().unique().sort():
            yield _of_run(rows.filter(pl.col("run_num") == run), int(run), path.relative_to(folder).as_posix())


def _of_run(rows: pl.DataFrame, run: int, of: str) -> Recording:
    mobility = str(rows["mobility_mode"][0])
    direction = str(rows["trajectory_direction"][0])
    connected = (rows["nrStatus"] == "CONNECTED").sum() / rows.height
    about = About(
        origin="recorded",
        technology="5g" if connected >= 0.5 else "4g",
        band="mmwave" if connected >= 0.5 else None,
        operator="Verizon",
        place="Minneapolis, United States: a loop of 1300 m near the stadium",
        date="2020",
        mobility=mobility,
        method="throughput of TCP downlink by iPerf 3.7, each second",
        licence=LUMOS5G.licence,
        source=LUMOS5G.page,
        citation=LUMOS5G.citation,
        note=f"Run {run}, {'clockwise' if direction == 'CW' else 'anticlockwise'}; on 5G {connected:.0%} of the time, "
        "else on LTE. The date is that of the publication.",
    )

    def fill(draft: Draft) -> None:
        import polars as pl

        series = (
            rows.drop_nulls(["seq_num", "Throughput"])
            .sort("seq_num")
            .unique("seq_num", keep="last", maintain_order=True)
        )
        if not series.height:
            raise TraceError(f"run {run}: there is no throughput in it")
        second = pl.col("seq_num") - int(series["seq_num"][0])
        series = series.select(at_ns=second * _SECOND, bit_s=pl.col("Throughput") * 1e6)
        put_rate(draft, "downlink", series, _SECOND)
        if lost := rows.height - series.height:
            draft.notes.append(f"{lost} of {rows.height} seconds have no throughput; the rate before each goes on")

    return Recording(named("lumos5g", mobility, direction, f"run-{run:03}"), f"{of} run {run}", about, fill)


LUMOS5G = Source(
    name="lumos5g",
    title="Lumos5G 1.0: 5G mmWave downlink in Minneapolis, walking and driving, a loop of 1300 m",
    status="documented",
    page="https://lumos5g.umn.edu",
    licence="CC-BY-4.0",
    terms="Cite the paper.",
    citation=(
        "A. Narayanan, E. Ramadan, R. Mehta, X. Hu, Q. Liu, R. A. K. Fezeu, U. K. Dayalan, S. Verma, P. Ji, T. Li, F. "
        "Qian, Z.-L. Zhang. Lumos5G: Mapping and Predicting Commercial mmWave 5G Throughput. ACM IMC 2020"
    ),
    layout=(
        "One CSV in the archive, a row a second: run_num, seq_num, nrStatus, Throughput, mobility_mode (walking, "
        "driving), trajectory_direction (CW, ACW) and radio figures. Each run becomes an entry."
    ),
    checked="the data set's README, as kept in a public repository; the table itself was not at hand",
    convert=_convert,
    doubt=(
        "The README gives neither Throughput's unit nor the operator: Mbit/s and Verizon are what the same group says "
        "where it uses the runs again (5g-in-the-wild). No checksum is published. Others report that the server's "
        "certificate has expired; cellbed does not overlook that: download by hand and use --from, or fetch "
        "5g-in-the-wild, which has 296 of these runs."
    ),
    remote=(RemoteFile("https://lumos5g.umn.edu/downloads/Lumos5G-v1.0.zip", "Lumos5G-v1.0.zip"),),
)
