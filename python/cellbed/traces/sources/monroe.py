"""MONROE: round-trip times of European mobile operators, measured each second by nodes in homes, buses and trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.traces.draft import Draft
from cellbed.traces.entry import About
from cellbed.traces.errors import TraceError
from cellbed.traces.series import Part
from cellbed.traces.sources.reading import reading
from cellbed.traces.sources.series_files import put_round_trips
from cellbed.traces.sources.source import Recording, Source, named

if TYPE_CHECKING:
    import polars as pl

_SECOND = 1_000_000_000
_SCHEMA = ("TimeStamp", "Rtt", "SequenceNumber", "NodeId", "Operator", "Host", "InterfaceName", "DataId")
_SAMPLE = 200


def _convert(folder: Path, _way: Part) -> Iterator[Recording]:
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".jsonl", ".ndjson")):
        of = path.relative_to(folder).as_posix()
        with reading(of):
            rows = _read(path)
        if rows is None:
            continue
        for (node, operator, host), group in rows.group_by("NodeId", "Operator", "Host", maintain_order=True):
            yield _of_node(group, str(node), operator, host, of)


def _read(path: Path) -> pl.DataFrame | None:
    """The lines of the ping experiment in a file; None if there are none."""
    import polars as pl

    table = pl.read_ndjson(path, infer_schema_length=None)
    if not {"TimeStamp", "Rtt"} <= set(table.columns):
        return None
    columns = [
        (pl.col(name) if name in table.columns else pl.lit(None))
        .cast(pl.Float64 if name in ("TimeStamp", "Rtt") else pl.String)
        .alias(name)
        for name in _SCHEMA
    ]
    return table.select(columns).filter(pl.col("DataId").fill_null("MONROE.EXP.PING") == "MONROE.EXP.PING")


def _of_node(rows: pl.DataFrame, node: str, operator: str | None, host: str | None, of: str) -> Recording:
    import datetime

    started = rows["TimeStamp"].min()
    begun = None if started is None else datetime.datetime.fromtimestamp(float(str(started)), datetime.UTC)
    about = About(
        origin="recorded",
        operator=operator,
        date=None if begun is None else begun.date().isoformat(),
        method=f"ICMP echo each second to {host or 'a host that is not named'} by fping on MONROE node {node}",
        licence=MONROE.licence,
        source=MONROE.page,
        citation=MONROE.citation,
    )

    def fill(draft: Draft) -> None:
        import polars as pl

        series = rows.drop_nulls("TimeStamp").sort("TimeStamp")
        if not series.height:
            raise TraceError(f"{of}: node {node} has no times")
        at = ((pl.col("TimeStamp") - float(series["TimeStamp"][0])) * _SECOND).round().cast(pl.Int64)
        series = series.select(at_ns=at, round_trip_ns=(pl.col("Rtt") * 1e6).round().cast(pl.Int64))
        put_round_trips(draft, series, _SECOND)

    words = (
        "monroe",
        operator or "operator",
        f"node-{node}",
        "" if begun is None else begun.strftime("%Y-%m-%d-%H%M%S"),
    )
    return Recording(named(*words), of, about, fill)


MONROE = Source(
    name="monroe",
    title="MONROE: round-trip times of mobile operators in Norway, Sweden, Spain and Italy",
    status="uncertain",
    page="https://www.monroe-project.eu",
    licence="not known",
    terms="Not known: ask who gives you the files.",
    citation=(
        "Ö. Alay, A. Lutu, M. Peón-Quirós, V. Mancuso, T. Hirsch, K. Evensen, A. Hansen, S. Alfredsson, J. Karlsson, "
        "A. Brunstrom, A. Safari Khatouni, M. Mellia, M. Ajmone Marsan. Experience: An Open Platform for "
        "Experimentation with Commercial Mobile Broadband Networks. ACM MobiCom 2017"
    ),
    layout=(
        "Results of the ping experiment: a JSON object a line with DataId MONROE.EXP.PING, TimeStamp in s since 1970, "
        "Rtt in ms, Operator, NodeId, Host. Each node and operator of a file becomes an entry with round-trip times."
    ),
    checked="the experiment's readme, with its example of a result",
    convert=_convert,
    doubt=(
        "No public address of the platform's round-trip data is known for certain, nor their licence. The open data "
        "set MONROE-Nettest (throughput, 2018 and 2019; mosaic-simulamet.com) is CSV whose columns could not be looked "
        "up: import one with `cellbed traces add` and its mapping of columns. Results of the ping experiment, one JSON "
        "object a line, are converted by `cellbed traces fetch monroe --from FILE.json`."
    ),
)
