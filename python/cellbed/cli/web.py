"""``cellbed web``: recorded sites, which scenarios and mm-webreplay replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cellbed.workloads.web.site import Site

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Record, import and show sites."
)

_MOST = 20
_Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Write the site here: name.warc.gz.")]


@app.command()
def record(url: Annotated[str, typer.Argument(help="URL of a page.")], out: _Out) -> None:
    """Load a page with Chromium through mitmproxy, and record every request and reply.

    The proxy has certificates of an authority that exists for this recording alone; it checks those of the servers.

    \b
    Example:
      cellbed web record https://example.org/ -o example.warc.gz
    """
    from cellbed.workloads.web.record import record
    from cellbed.workloads.web.site import Site

    made = record(url)
    _list("no reply", [f"{each:.200}: {why}" for each, why in made.failed.items()])
    _write(Site(str(out), made.exchanges), out)


@app.command("import")
def import_(
    recording: Annotated[Path, typer.Argument(help="HTTP Archive (HAR), or folder of mm-webrecord.")],
    out: _Out,
) -> None:
    """Make a site of an HTTP Archive with contents.

    Browsers export one from the network panel of their developer tools ("Save all as HAR with content"). Entries
    without content are left out, named and counted.

    \b
    Example:
      cellbed web import example.org.har -o example.warc.gz
    """
    import sys

    from cellbed.workloads.web import har, mahimahi

    if recording.is_dir():
        _write(mahimahi.read(recording), out)
        return
    imported = har.read(recording)
    _list("left out", imported.left_out)
    for line in imported.remarks:
        print(line, file=sys.stderr)
    _write(imported.site, out)


@app.command()
def show(
    site: Annotated[Path, typer.Argument(help="WARC file of a site.")],
) -> None:
    """Show the origins, objects and bytes of a site.

    \b
    Example:
      cellbed web show example.warc.gz
    """
    from cellbed.workloads.web import warc

    _summarise(warc.read(site))


def _list(what: str, lines: list[str]) -> None:
    import sys

    for line in lines[:_MOST]:
        print(f"{what}: {line}", file=sys.stderr)
    if lines:
        print(f"{what}: {len(lines)} of the requests", file=sys.stderr)


def _write(site: Site, out: Path) -> None:
    from cellbed.workloads.web import warc

    warc.write(out, site.exchanges)
    _summarise(site)


def _summarise(site: Site) -> None:
    import contextlib

    from rich.table import Table

    from cellbed.support.console import Console
    from cellbed.workloads.web.site import SiteError

    table = Table("origin", "address", box=None, pad_edge=False)
    for name in ("objects", "bytes"):
        table.add_column(name, justify="right")
    for origin, exchanges in [*site.origins.items(), (f"{len(site.origins)} origins", site.exchanges)]:
        addresses = dict.fromkeys(each.address for each in exchanges if each.address and not isinstance(origin, str))
        size = sum(len(each.body) for each in exchanges)
        table.add_row(str(origin), " ".join(addresses), f"{len(exchanges):,}", f"{size:,}")
    Console().print(table)
    with contextlib.suppress(SiteError):  # no page: of an API
        print(f"page: {site.page}")
