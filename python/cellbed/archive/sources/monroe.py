"""MONROE: round-trip times of European mobile operators, measured each second by nodes in homes, buses and trains."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.archive.draft import Draft
from cellbed.archive.entry import About
from cellbed.archive.errors import TraceError
from cellbed.archive.series import Part
from cellbed.archive.sources.reading import reading
from cellbed.archive.sources.series_files import put_round_trips
from cellbed.archive.sources.source import Recording, Source, named

if TYPE_CHECKING:
    import polars as pl

_SECOND = 1_000_000_000
_COLUMNS = ("timestamp", "rtt", "nodeid", "operator", "host", "dataid")
"""In small letters, as the platform's dumps of its database have them; results of the experiment have NodeId, and
versions of it TimeStamp or Timestamp."""
_PING = "MONROE.EXP.PING"


def _convert(folder: Path, _way: Part) -> Iterator[Recording]:
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".jsonl", ".ndjson", ".csv")):
        of = path.relative_to(folder).as_posix()
        with reading(of):
            rows = _read(path)
        if rows is None:
            continue
        for (node, operator, host), group in rows.group_by("nodeid", "operator", "host", maintain_order=True):
            yield _of_node(group, str(node), operator, host, of)


def _read(path: Path) -> pl.DataFrame | None:
    """The pings in a file; None if there are none."""
    import polars as pl

    if path.suffix == ".csv":
        # Python writes None for what the database does not have; the dump is in Latin-1.
        table = pl.read_csv(path, infer_schema=False, null_values=["", "None"], encoding="latin-1")
    else:
        table = pl.read_ndjson(path, infer_schema_length=None)
    found: dict[str, pl.Expr] = {}
    for name in table.columns:
        found.setdefault(name.lower(), pl.col(name))
    if not {"timestamp", "rtt"} <= set(found):
        return None
    columns = [
        found.get(name, pl.lit(None)).cast(pl.Float64 if name in ("timestamp", "rtt") else pl.String).alias(name)
        for name in _COLUMNS
    ]
    return table.select(columns).filter(pl.col("dataid").fill_null(_PING) == _PING)


def _of_node(rows: pl.DataFrame, node: str, operator: str | None, host: str | None, of: str) -> Recording:
    import datetime

    started = rows["timestamp"].min()
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

        series = rows.drop_nulls("timestamp").sort("timestamp")
        if not series.height:
            raise TraceError(f"{of}: node {node} has no times")
        at = ((pl.col("timestamp") - float(series["timestamp"][0])) * _SECOND).round().cast(pl.Int64)
        series = series.select(at_ns=at, round_trip_ns=(pl.col("rtt") * 1e6).round().cast(pl.Int64))
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
        "The platform's dump of a day, DATE_SECONDS_monroe_exp_ping.csv: nodeid, iccid, timestamp in s since 1970, "
        "sequencenumber, bytes, dataid, dataversion, guid, host, operator, rtt in ms. Or results of the ping "
        "experiment: a JSON object a line with DataId MONROE.EXP.PING, Timestamp, Rtt, Operator, NodeId, Host. Each "
        "node and operator of a file becomes an entry with round-trip times; a probe without rtt was lost."
    ),
    checked=(
        "the platform's own programs that write the dumps (repository MONROE-PROJECT/Database), and the experiment's "
        "readme, with its examples of results; no dump was at hand"
    ),
    convert=_convert,
    doubt=(
        "No public address of the platform's round-trip data is known, nor their licence; others who used them wrote "
        "that they may not pass them on. Dumps and results that you have are converted by `cellbed traces fetch monroe "
        "--from FILE`. The open data set MONROE-Nettest (speed tests of two countries, 2018 and 2019: a file "
        "monroe-nettest-DATE.CSV a day) is described at "
        "https://mosaic-simulamet.com/large-scale-speedtest-experimentation-in-mobile-broadband-networks/, but its "
        "columns could not be looked up: import it with `cellbed traces add` and a mapping of columns."
    ),
)
