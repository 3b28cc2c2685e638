"""``cellbed traces fetch``."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.tables import print_table
from cellbed.support.standard_streams import StatusLine

if TYPE_CHECKING:
    from cellbed.archive.sources import Fetched, Source


_MOST_FILES = 16
"""Maximum number of files of a data set to print for people."""


def _names(incomplete: str) -> list[str]:
    from cellbed.archive.sources import SOURCES

    return [source.name for source in SOURCES if source.name.startswith(incomplete)]


def fetch(
    name: Annotated[
        str | None, typer.Argument(help="Name of a data set. Default: list all.", autocompletion=_names)
    ] = None,
    given: Annotated[
        list[Path] | None, typer.Option("--from", help="File, archive or folder already downloaded. Repeatable.")
    ] = None,
    only: Annotated[str, typer.Option(help="Only entries whose names match: '*-driving-*'.", show_default=False)] = "*",
    everything: Annotated[
        bool, typer.Option("--all", help="Include recordings skipped by default, such as video sessions.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing entries of the same names.")] = False,
    about: Annotated[
        bool, typer.Option("--about", help="Only print address, terms and layout of the data set.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Download a public data set and add its recordings to the archive.

    \b
    Examples:
      cellbed traces fetch                         list the data sets
      cellbed traces fetch cork-5g --about         address, terms, layout
      cellbed traces fetch mahimahi                download, check, convert
      cellbed traces fetch cork-5g --only '*-driving-*'
      cellbed traces fetch cellreplay --from ~/Downloads/cellular-traces.zip

    The same command continues after an interruption. The data sets belong to their authors; cellbed contains only
    their addresses (docs/how-to/sources.md).
    """
    from cellbed.archive import open_archive
    from cellbed.archive.sources import SOURCES, FetchOptions, find_source
    from cellbed.archive.sources import fetch as fetched
    from cellbed.recordings.importing import recognise

    if name is None:
        _print_all(SOURCES, as_json)
        return
    source = find_source(name)
    if about:
        _print_source(source, as_json)
        return

    options = FetchOptions(given or (), everything, only, replace)
    print(f"{source.title}\nlicence: {source.licence}. {source.terms}", file=sys.stderr)
    try:
        with StatusLine() as line:
            result = fetched(
                source, open_archive(), options, recognise, lambda text: line.note(f"  {text}"), line.state
            )
    except KeyboardInterrupt:
        print("interrupted; downloaded files are kept: run the command again to resume", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(asdict(result), indent=2))
    else:
        _print_result(source, result)


def _print_all(sources: tuple[Source, ...], as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_json(source) for source in sources], indent=2))
        return
    print_table(("name", "what", "licence"), [[each.name, each.title, each.licence] for each in sources])
    print("Details of a data set: cellbed traces fetch NAME --about")


def _as_json(source: Source) -> dict[str, object]:
    files = [{"address": each.address, "checksum": str(each.checksum or "") or None} for each in source.remote]
    return {
        "name": source.name,
        "title": source.title,
        "page": source.page,
        "licence": source.licence,
        "terms": source.terms,
        "citation": source.citation,
        "layout": source.layout,
        "checked against": source.checked,
        "not certain": source.doubt,
        "files": files,
    }


def _print_source(source: Source, as_json: bool) -> None:
    facts = _as_json(source)
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    files = facts.pop("files")
    for key, value in facts.items():
        if value:
            print(f"{key:16}{value}")
    assert isinstance(files, list)
    for file in files[:_MOST_FILES]:
        print(f"{'file':16}{file['address']}" + (f"  {file['checksum']}" if file["checksum"] else ""))
    if len(files) > _MOST_FILES:
        print(f"{'':16}and {len(files) - _MOST_FILES} more (see --json)")


def _print_result(source: Source, result: Fetched) -> None:
    for name in result.kept:
        print(name + "".join(f"; {note}" for note in result.notes.get(name, ())))
    for of, why in result.left_out.items():
        print(f"left out: {of}: {why}", file=sys.stderr)
    if result.there:
        print(f"{len(result.there)} already in the archive (--replace adds them again)", file=sys.stderr)
    if result.unwanted:
        print(f"{result.unwanted} more available (--all, --only)", file=sys.stderr)
    print(f"cite: {source.citation}", file=sys.stderr)
