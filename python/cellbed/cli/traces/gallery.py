"""``cellbed traces gallery``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cellbed.cli.traces.options import entry_names


def gallery(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Entries. Default: all.", show_default=False, autocompletion=entry_names),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Output page.")] = Path("traces.html"),
) -> None:
    """Write one HTML page of the archive's entries, with search and filters, that opens offline.

    The page uses stored statistics; `cellbed traces stats --all` computes missing ones.

    \b
    Examples:
      cellbed traces gallery
      cellbed traces gallery lte-suburban 5g-midband -o two.html
    """
    from cellbed.archive import open_archive
    from cellbed.cli.traces.surveying import waiting
    from cellbed.report.gallery.drawing import write_content
    from cellbed.report.gallery.page import gallery_page
    from cellbed.report.gallery.read import readable

    archive = open_archive()
    for name in names or ():
        if not archive.has(name):
            archive.entry(name)  # says what may have been meant
    with waiting("reading the archive"):
        entries, problems = readable(archive, names or archive.names())
        page = gallery_page(entries, problems).encode()
    for problem in problems:
        print(f"warning: {problem}", file=sys.stderr)
    write_content(page, out)
    print(out)
