"""Import of the logs of downloads on the move in Norway: 3G, bus to ferry (Riiser et al., MMSys 2013).

A line has the time in s since 1970, ms since an own origin, latitude, longitude, and the bytes and ms since the line
before, between blanks.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import polars as pl

from cellbed.archive.entry import Draft
from cellbed.archive.errors import TraceError
from cellbed.archive.importers.format import add_metadata, set_start
from cellbed.archive.importers.written import in_order, write_series
from cellbed_node import inputs
from cellbed_node.errors import LeftOut

FIRST_LINE: Final = re.compile(rb"\d{10} +\d{1,12}( +-?\d{1,3}(\.\d{1,9})?){2} +\d{1,10} +\d{1,7} *\r?\n")
_LINE: Final = r"^(?<stamp>\d{10}) +(?<at>\d{1,12}) +\S+ +\S+ +(?<size>\d{1,10}) +(?<lasts>\d{1,7}) *\r?$"


def read(path: Path, draft: Draft) -> None:
    """Write the rates of the downlink into the draft. A rate holds from the line before. Raises TraceError."""
    options: Any = {"has_header": False, "new_columns": ["line"], "infer_schema": False, "encoding": "utf8-lossy"}
    try:
        lines = pl.read_csv(inputs.check(path), separator="\x1f", quote_char=None, **options)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise TraceError(f"{path}: not a log of downloads: {str(error).splitlines()[0]}") from None
    words = lines.select(pl.col("line").str.extract_groups(_LINE)).unnest("line")
    rows = words.select(pl.all().cast(pl.Int64)).with_row_index("line", 1)
    good = rows.filter(pl.col("lasts") > 0)
    left_out = LeftOut()
    left_out.add_all(
        rows.filter(pl.col("lasts").fill_null(0) == 0)["line"].to_list(), lambda line: (f"line {line}", "not a sample")
    )
    begins = ((good["at"] - good["lasts"]) * 1_000_000).to_numpy()
    kept = in_order(begins, path, lambda row: f"line {good['line'][row]}", left_out)
    good, begins = good.filter(pl.Series(kept)), begins[kept]
    rates, ends = (good["size"] * 8e3 / good["lasts"]).to_numpy(), (good["at"] * 1_000_000).to_numpy()
    zero = int(begins[0]) if len(begins) else 0
    end = int(ends[-1]) - zero if len(ends) else 0
    write_series(draft, "downlink", begins - zero, rates, end, path, lambda row: f"line {good['line'][row]}", left_out)
    set_start(draft, (int(good["stamp"][0]) * 1000 - int(good["lasts"][0])) * 1_000_000)
    add_metadata(draft, method="bytes of HTTP downloads, each second")
