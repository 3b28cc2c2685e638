"""``cellbed web``: recorded sites, which scenarios and mm-webreplay replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cellbed_node.errors import LeftOut
    from cellbed_node.web.site import Site

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="""Record, import and show sites that scenarios replay.

    \b
    Examples:
      cellbed web record https://example.org/ --name example
      cellbed web show example
    """,
)

_Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write the site to a file, name.warc.gz, not to the archive."),
]
_Name = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Name of the new entry of the archive. Default: the host of the page."),
]
_Replace = Annotated[bool, typer.Option("--replace", help="Replace an existing entry of that name.")]


@app.command()
def record(
    url: Annotated[str, typer.Argument(help="URL of a page.")],
    name: _Name = None,
    replace: _Replace = False,
    out: _Out = None,
    no_sandbox: Annotated[
        bool, typer.Option("--no-sandbox", help="Load a page that you trust without Chromium's sandbox.")
    ] = False,
) -> None:
    """Record every request and reply of a page.

    Loads the page with Chromium through mitmproxy. The proxy checks the servers' certificates; the authority of its own
    certificates exists for this recording alone. The browser runs in a sandbox and reaches only the proxy; if started
    by root, it runs as the user `nobody`.

    \b
    Examples:
      cellbed web record https://example.org/ --name example
      cellbed web record https://example.org/ -o example.warc.gz
    """
    from cellbed.workloads.web.record import record
    from cellbed_node.errors import LeftOut
    from cellbed_node.web.site import Site

    name = _entry_name(url, name, replace, out)
    made = record(url, sandboxed=not no_sandbox)
    failed = LeftOut()
    for each, why in made.failed.items():
        failed.add(each, why)
    _list("no reply", failed)
    _keep(Site(url, made.exchanges), "recorded", name, replace, out)


@app.command("import")
def import_(
    recording: Annotated[Path, typer.Argument(help="HTTP Archive (HAR), WARC file, or folder of mm-webrecord.")],
    name: _Name = None,
    replace: _Replace = False,
    out: _Out = None,
) -> None:
    """Import a site from other programs' recordings.

    Browsers export an HTTP Archive (HAR) in the network panel of their developer tools ("Save all as HAR with
    content"). Entries without content and malformed entries are left out, named and counted.

    \b
    Examples:
      cellbed web import example.org.har --name example
      cellbed web import recorded/ -o example.warc.gz
    """
    from cellbed.workloads.web import har, mahimahi
    from cellbed_node.web import warc

    if recording.is_dir():
        site = mahimahi.read(recording)
    elif recording.name.endswith((".warc", ".warc.gz")):
        site = warc.read(recording, partly=True)
    else:
        site = har.read(recording)
    _list("left out", site.left_out, *site.remarks)
    _keep(site, "imported", _entry_name(site.exchanges[0].url, name, replace, out), replace, out)


@app.command()
def show(
    site: Annotated[str, typer.Argument(help="Recorded site of the archive, or WARC file.")],
) -> None:
    """Show the origins, objects and bytes of a site.

    \b
    Examples:
      cellbed web show example
      cellbed web show example.warc.gz
    """
    from cellbed.workloads.web import archived
    from cellbed_node.web import warc

    _summarise(warc.read(archived.find(site)))


def _list(what: str, left_out: LeftOut, *remarks: str) -> None:
    import sys

    lines = [f"{what}: {line}" for line in left_out.named]
    lines += [f"{what}: {left_out.count} of the requests"] if left_out.count else []
    print(*lines, *remarks, sep="\n", end="\n" if lines or remarks else "", file=sys.stderr)


def _entry_name(url: str, name: str | None, replace: bool, out: Path | None) -> str | None:
    """Return the name of a new entry, None for a file. With `replace` an entry of that name may exist."""
    from cellbed.workloads.web.archived import free_name

    if out is None:
        return free_name(url, name, replace=replace)
    if name is not None or replace:
        raise typer.BadParameter("--name and --replace are for entries of the archive: remove them, or --out")
    return None


def _keep(site: Site, made: str, name: str | None, replace: bool, out: Path | None) -> None:
    from cellbed.workloads.web import archived

    if name is not None:
        archived.keep(site, name, made, replace=replace)
    elif out is not None:
        archived.write_warc(out, site)
    _summarise(site)
    if name is not None:
        print(f"added {name}: `cellbed traces show {name}`")


def _summarise(site: Site) -> None:
    import sys

    from cellbed.archive.entry_view import site_summary
    from cellbed.support.console import Console
    from cellbed.workloads.web import archived
    from cellbed_node.web.site import SiteError

    Console().print(site_summary(archived.summary(site)))
    try:
        _ = site.page
    except SiteError as error:
        print(error, file=sys.stderr)
