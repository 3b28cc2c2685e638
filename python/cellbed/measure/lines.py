"""JSON lines as tables."""

from pathlib import Path
from typing import Any

import polars as pl

from cellbed.measure.run_folder import MeasureError


def read_lines(path: Path, schema: dict[str, Any]) -> pl.DataFrame:
    """The JSON lines of `path` as a table; unknown keys are ignored, missing ones are null.

    A last line without its line feed is what a killed process leaves: it is left out. A missing file is an
    empty table.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    content = content[: content.rfind(b"\n") + 1]
    if not content.strip():
        return pl.DataFrame(schema=schema)
    try:
        return pl.read_ndjson(content, schema=schema)
    except pl.exceptions.PolarsError as error:
        raise MeasureError(f"{path}: not the JSON lines expected: {str(error).splitlines()[0]}") from None
