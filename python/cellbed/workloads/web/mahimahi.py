"""Folders of sites. Those of Mahimahi's mm-webrecord have a file per exchange, a message of Protocol Buffers.

Fields by number (Mahimahi's ``http_record.proto``): in a file 1 address, 2 port, 3 scheme (1 HTTP, 2 HTTPS), 4 request,
5 response; in a request or response 1 first line, 2 header (repeated), 3 body; in a header 1 name, 2 value.
"""

from pathlib import Path

from cellbed.support.protobuf import content, fields
from cellbed_node import inputs
from cellbed_node.errors import LeftOut
from cellbed_node.web import warc
from cellbed_node.web.site import Exchange, Message, Site, SiteError, exchange, header

_SCHEMES = ("http", "https")

SITE = "site.warc.gz"
"""Name of the file in folders of our mm-webrecord."""


def read(folder: Path) -> Site:
    """Read a folder of our or Mahimahi's mm-webrecord, in order of file times. Files of another kind are left out.

    Errors: :class:`SiteError`.
    """
    if (folder / SITE).exists():
        return warc.read(folder / SITE, partly=True)
    try:
        files = sorted(folder.iterdir(), key=lambda file: (file.lstat().st_mtime_ns, file.name))
    except OSError as error:
        raise SiteError(f"{folder}: {error.strerror}: write the path of mm-webrecord's folder") from None
    exchanges, left_out = [], LeftOut()
    for file in files:
        try:
            exchanges.append(_read(file))
        except (OSError, ValueError) as error:
            left_out.add(file.name, getattr(error, "strerror", None) or error)
    if not exchanges:
        why = f"no file of it is whole ({left_out.named[0]})" if left_out.count else "is empty"
        raise SiteError(f"{folder}: {why}: write the path of mm-webrecord's folder")
    return Site(str(folder), exchanges, left_out=left_out)


def _read(file: Path) -> Exchange:
    """Return the exchange of a file. Raises OSError, and ValueError for a file of another kind."""
    data = inputs.content(file, inputs.share_of_memory())
    try:
        found = dict(fields(data))
        request, reply = _message(found[4]), _message(found[5])
        target, scheme = request[0].split(" ")[1], _SCHEMES[int(found[3]) - 1]
        server = content(found[1]).decode("ascii")
        host = header(tuple(request[1]), "host") or f"{server}:{int(found[2])}"
        url = target if target.startswith("http") else f"{scheme}://{host}{target}"
    except (KeyError, ValueError, TypeError, IndexError):
        raise ValueError("not a whole file of mm-webrecord") from None
    return exchange(url, request, reply, server, file.stat().st_mtime)


def _message(data: bytes | int) -> Message:
    """Return a request or reply."""
    line, headers, body = "", [], b""
    for number, value in fields(content(data)):
        if number == 2:
            pair = {of: content(text).decode("latin-1") for of, text in fields(content(value))}
            headers.append((pair[1], pair.get(2, "")))
        elif number == 1:
            line = content(value).decode("latin-1").rstrip("\r\n")
        elif number == 3:
            body = content(value)
    return line, tuple(headers), body
