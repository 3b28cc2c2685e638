"""What a web server lists: the folders of a data set and the files in each."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import unquote, urljoin, urlsplit

from cellbed.archive.errors import TraceError
from cellbed.archive.sources.http import in_words, open_address
from cellbed.archive.sources.source import Listing, RemoteFile

_MOST_BYTES = 4 << 20
"""Of a page; an entry of Apache's listings takes some 200."""


def listed(listing: Listing) -> tuple[RemoteFile, ...]:
    """The files that a listing leads to, each at ``FOLDER/FILE``. Raises TraceError when there are none to be read."""
    files = []
    for folder in _names(listing.address, listing.folders, folders=True):
        address = urljoin(listing.address, f"{folder}/")
        files += [
            RemoteFile(urljoin(address, name), f"{unquote(folder)}/{unquote(name)}")
            for name in _names(address, listing.files, folders=False)
        ]
    if not files:
        raise TraceError(
            f"{listing.address}: the page lists none of the files that were there: the data set may have moved; "
            "give its new address (--address) or the downloaded files (--from)"
        )
    return tuple(files)


def _names(address: str, pattern: str, *, folders: bool) -> list[str]:
    """What a page links to directly below itself and a pattern matches, once each, as the links spell it."""
    links = _Links()
    links.feed(_page(address))
    below = urlsplit(address).path
    found = dict.fromkeys(urlsplit(urljoin(address, link))[:3] for link in links.found)
    here = urlsplit(address)[:2]
    names = [path[len(below) :] for *host, path in found if tuple(host) == here and path.startswith(below)]
    bare = [name.removesuffix("/") for name in names if name.endswith("/") == folders]
    plain = [name for name in bare if "/" not in unquote(name) and unquote(name) not in ("", ".", "..")]
    return sorted(name for name in plain if re.fullmatch(pattern, unquote(name)))


def _page(address: str) -> str:
    import urllib3

    try:
        response = open_address(address, {})
        try:
            if response.status != 200:
                raise TraceError(
                    f"{address}: the server answers {response.status}: the data set may have moved; "
                    "give its new address (--address) or the downloaded files (--from)"
                )
            text = response.read(_MOST_BYTES + 1, decode_content=False)
        finally:
            response.close()
    except urllib3.exceptions.HTTPError as error:
        raise TraceError(
            f"{address}: cannot read the list of files there: {in_words(error)}: try again later, or download them "
            "elsewhere and give them (--from)"
        ) from error
    if len(text) > _MOST_BYTES:
        raise TraceError(f"{address}: the list of files there has more than {_MOST_BYTES >> 20} MiB")
    return text.decode(errors="replace")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]
