"""``cellbed traces show``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from cellbed.cli.options import AsJson
from cellbed.cli.traces.options import entries_and_files


def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Entry of the archive, one of its directions, a file, or the directory of a recording.",
            show_default=False,
            autocompletion=entries_and_files,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show the contents of an entry, a file or a recording.
    \b
    Examples:
      cellbed traces show lte-suburban
      cellbed traces show recordings/train.up
    """
    from cellbed.archive import open_archive

    archive = open_archive()
    if archive.has(name) or not ("." in name or "/" in name or Path(name).exists()):
        _show_entry(name, as_json)
    elif Path(name).is_dir():
        _show_recording(Path(name), as_json)
    else:
        _show_trace(name, as_json)


def _show_entry(name: str, as_json: bool) -> None:
    from cellbed.archive import open_archive
    from cellbed.archive.entry_view import show as drawn
    from cellbed.archive.warnings import warnings
    from cellbed.support.console import Console

    archive = open_archive()
    entry = archive.entry(name)
    notes = warnings(entry)
    if as_json:
        facts = entry.model_dump(mode="json") | {"folder": str(archive.folder / name), "warnings": notes}
        print(json.dumps(facts, indent=2))
    else:
        Console(soft_wrap=True, highlight=False).print(drawn(entry, notes))


def _show_trace(name: str, as_json: bool) -> None:
    from cellbed.archive import TraceError, resolve
    from cellbed.archive.catalogue import summarise
    from cellbed.support.readable import duration_words, rate_words

    try:
        summary = summarise(resolve(name, Path.cwd()))
    except TraceError as error:
        raise TraceError(_to_add(name) or str(error)) from None
    if as_json:
        print(json.dumps(asdict(summary), indent=2))
        return
    print(
        f"{summary.name}: {'synthetic' if summary.synthetic else 'recorded'}, "
        f"{duration_words(summary.duration / 1e9)}, mean {rate_words(summary.mean_rate)}, "
        f"longest gap {duration_words(summary.longest_gap / 1e9)}, "
        f"{summary.opportunities:,} opportunities, SHA-256 {summary.sha256}"
    )


def _to_add(name: str) -> str | None:
    """Return a remedy for a file that is a recording of another kind than a trace; null where it is none."""
    from cellbed.archive import TraceError
    from cellbed.recordings.importing import recognise

    path = Path(name)
    if not path.is_file():
        return None
    try:
        importer = recognise([path])
    except TraceError:
        return None
    if importer.format.name == "mahimahi":
        return None
    return f"{importer.what}: add it first: `cellbed traces add {quote(name)}`"


def _show_recording(folder: Path, as_json: bool) -> None:
    from cellbed.recordings.recording import read_recording
    from cellbed.recordings.summary import show as drawn
    from cellbed.recordings.summary import summarise
    from cellbed.support.console import Console

    summary = summarise(read_recording(folder))
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        Console(soft_wrap=True).print(drawn(folder.absolute().name, summary))
