"""A run's folder: its description, and atomic writes of results."""

import contextlib
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.support.errors import CellbedError
from cellbed.support.whole_files import Content, write_whole
from cellbed_node import inputs

if TYPE_CHECKING:
    import polars as pl
    from pydantic import TypeAdapter

    from cellbed.runformat.description import Description

FORMAT = 1
_PIECES = 64
"""Number of pieces of a file (1 MiB each) that are parsed together."""


class MeasureError(CellbedError):
    """An invalid run folder, or an invalid file in it."""


def read_run(run: Path) -> dict[str, Any]:
    """Return the content of ``run.json``.

    Raises MeasureError for a path that is not a run's folder, or has a format that this version does not read.
    """
    if not run.is_dir():
        raise MeasureError(f"{run}: not a run folder: no such directory")
    if not (run / "run.json").exists():
        raise MeasureError(
            f"{run}: not a run folder: it has no run.json; give the path that `cellbed run` printed, "
            "for example runs/offload-lte-20250101-120000"
        )
    return read_account(run / "run.json")


def read_account(path: Path) -> dict[str, Any]:
    """Return the description of a run or a shell from a JSON file. Raises MeasureError for other files and versions."""
    try:
        content = inputs.json_value(path)
    except OSError as error:
        raise MeasureError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise MeasureError(f"{path}: not JSON in UTF-8: {error}") from None
    if not isinstance(content, dict):
        raise MeasureError(f"{path}: not a JSON object; the file is damaged")
    if content.get("format") != FORMAT:
        raise MeasureError(
            f"{path}: format {content.get('format')!r} where this version reads {FORMAT}; use the version of cellbed "
            "that made the run"
        )
    from pydantic import ValidationError

    from cellbed.runformat.schema import Account

    try:
        Account.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise MeasureError(f"{path}: {key}: {first['msg'].lower()}; the file was damaged or edited") from None
    return content


def read_tables(run: Path, *names: str, requests: "Collection[str] | None" = None) -> "list[pl.DataFrame]":
    """Return the tables of a measured run. names: without ``.parquet``. requests: the columns of ``requests`` to read,
    if present; default all. Raises MeasureError for a missing or damaged table."""
    import polars as pl

    def read(name: str) -> pl.DataFrame:
        path = inputs.check(run / f"{name}.parquet")
        if name != "requests" or requests is None:
            return pl.read_parquet(path)
        return pl.read_parquet(path, columns=[each for each in pl.read_parquet_schema(path) if each in requests])

    try:
        return [read(name) for name in names]
    except (OSError, pl.exceptions.PolarsError) as error:
        raise MeasureError(f"{run}: {str(error).splitlines()[0]}; `cellbed report {run}` rebuilds it") from None


def read_lines(path: Path, schema: dict[str, Any]) -> "pl.DataFrame":
    """Return the JSON lines of `path` as a table. Unknown keys are ignored, missing keys are null, and samples without
    a time or an owner are left out.

    A last line without a line feed, from a killed process, is left out. A missing file gives an
    empty table.
    """
    import polars as pl

    def parse(content: bytes) -> pl.DataFrame:
        if not content.strip():
            return pl.DataFrame(schema=schema)
        try:
            return pl.read_ndjson(content, schema=schema)
        except pl.exceptions.PolarsError as error:
            raise MeasureError(f"{path}: not the JSON lines expected: {str(error).splitlines()[0]}") from None

    tables, pieces = [pl.DataFrame(schema=schema)], [b""]
    with contextlib.suppress(FileNotFoundError):
        for piece in inputs.pieces(path, inputs.share_of_memory()):
            pieces.append(piece)
            # The table takes less memory than the lines.
            if len(pieces) > _PIECES and (end := piece.rfind(b"\n") + 1):
                tables.append(parse(b"".join([*pieces[:-1], piece[:end]])))
                pieces = [piece[end:]]
    content = b"".join(pieces)
    tables.append(parse(content[: content.rfind(b"\n") + 1]))
    return pl.concat(tables).drop_nulls([name for name in ("time_ns", "node", "program") if name in schema])


def read_records(folder: Path, app: str, name: str, schema: dict[str, Any], ahead: dict[str, int]) -> "pl.DataFrame":
    """Return the records of an application's nodes, with stamps by this machine's clock. ahead: clock lead by node, ns.

    The name of a file begins with its application.
    """
    import polars as pl

    tables = []
    for path in sorted(folder.glob(f"*.{name}")):
        *of, node = path.name.removesuffix(f".{name}").split(".")
        if of != [app]:
            continue
        table = read_lines(path, schema)
        if offset := ahead.get(node, 0):
            stamps = [each for each in schema if each.endswith("_ns") and each != "buffer_full_ns"]
            table = table.with_columns(pl.col(stamps) - offset)
        tables.append(table)
    return pl.concat(tables) if tables else pl.DataFrame(schema=schema)


def clocks(description: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the lead of a node's clock over this machine's clock, and its uncertainty, ns, for nodes with another
    clock."""
    return {
        str(node["name"]): (clock["offset_ns"], clock["uncertainty_ns"])
        for node in description.get("nodes") or []
        if (clock := node.get("clock"))
    }


@cache
def _applications() -> "TypeAdapter[list[Description]]":
    """Return the parser for the applications of a run. Building it takes 5 ms."""
    from pydantic import TypeAdapter

    from cellbed.runformat.description import AnyDescription

    return TypeAdapter(list[AnyDescription])


def applications_of(description: dict[str, Any]) -> "list[Description]":
    """Return the applications of a run. description: the content of ``run.json``. Raises MeasureError for malformed
    applications."""
    from pydantic import ValidationError

    try:
        return _applications().validate_python(description.get("applications"))
    except ValidationError as error:
        first = str(error).splitlines()[0]
        raise MeasureError(f"run.json: applications: {first}; the file was damaged or edited") from None


def replace(path: Path, content: Content) -> None:
    """Write a file of a run at once: a temporary file takes its place when it is complete.

    Args:
        path: The file.
        content: Its content.

    Raises:
        MeasureError: The file cannot be written.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        raise MeasureError(f"{path}: cannot be written: {error.strerror or error}") from None
