"""Recorded sites as entries of the archive of traces."""

from pathlib import Path
from urllib.parse import urlsplit

import cellbed
from cellbed.archive import TraceError, open_archive
from cellbed.archive.adding import is_date
from cellbed.archive.entry import About, Entry, SiteOrigin, SiteSummary, Step, StoredSite
from cellbed.archive.soundness import sha256
from cellbed.archive.store import valid_name
from cellbed.support.whole_files import write_whole
from cellbed_node.web import warc
from cellbed_node.web.site import Site, SiteError


def free_name(url: str, name: str | None, *, replace: bool) -> str:
    """Return the name of a new entry, by default the host of a URL. Errors: :class:`TraceError` if it is taken."""
    name = name or valid_name(urlsplit(url).hostname or "site")
    archive = open_archive()
    (archive.require_valid if replace else archive.require_free)(name)
    return name


def summary(site: Site) -> SiteSummary:
    """Return the origins, objects and bytes of a site."""
    try:
        page = site.page
    except SiteError:  # the site of an API has no page
        page = None
    origins = (
        SiteOrigin(
            origin=str(origin),
            addresses=tuple(dict.fromkeys(each.address for each in exchanges if each.address)),
            objects=len(exchanges),
            bytes=sum(len(each.body) for each in exchanges),
        )
        for origin, exchanges in site.origins.items()
    )
    return SiteSummary(page=page, origins=tuple(origins))


def keep(site: Site, name: str, made: str, *, replace: bool) -> Entry:
    """Add a site to the archive. made: ``recorded`` or ``imported``; replace: replace an entry of that name.

    Errors: :class:`TraceError`.
    """
    contents, source = summary(site), Path(site.source)
    date = min(each.date for each in site.exchanges)
    about = About(origin="recorded", source=(contents.page or "")[:2000] or None, date=date if is_date(date) else None)
    archive = open_archive()
    with archive.draft(about) as draft:
        file = draft.folder / f"{name}.warc.gz"
        with archive.writing():
            write_warc(file, site)
        draft.site = StoredSite(**dict(contents), file=file.name, sha256=sha256(file))
        of = {source.name: sha256(source)} if source.is_file() else {}
        draft.history.append(Step(what=made, of=of, tool=f"cellbed {cellbed.__version__}"))
        return archive.keep(draft, name, replace)


def find(text: str) -> Path:
    """Return the WARC file of a site of the archive, or at a path. Errors: :class:`TraceError`."""
    archive = open_archive()
    if archive.has(text):
        return archive.site(text)
    if Path(text).exists() or "." in text or "/" in text:
        return Path(text)
    raise TraceError(f"there is neither a recorded site '{text:.100}' in the archive nor a file of that name")


def write_warc(path: Path, site: Site) -> None:
    """Write a site as a WARC file; each record is compressed if the name ends with ``.gz``. Errors: ``OSError``."""
    write_whole(path, lambda file: file.write_bytes(warc.encode(site, compressed=path.suffix == ".gz")))
