"""HTTP Archives (HAR 1.2) as browsers and proxies export them.

Archives contain decoded bodies. Here a body is compressed again as its reply states, by gzip if Python has no encoder.
"""

import base64
import gzip
import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cellbed_node import inputs
from cellbed_node.errors import LeftOut, shorten
from cellbed_node.web.site import Exchange, Headers, Site, SiteError, begins_page, clean, exchange, header, split

T = TypeVar("T")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_TEXTUAL = re.compile(r"text/|.*(?:json|javascript|xml)")
_MAGIC = {"gzip": b"\x1f\x8b", "x-gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
"""First bytes of an encoded body, by encoding."""
_MOST_REMARKS = 20
_MOST_ENTRIES = 100_000


def read(path: Path) -> Site:
    """Read an archive. Malformed entries and entries without content are left out. Errors: :class:`SiteError`."""
    try:
        value = inputs.json_value(inputs.content(path, inputs.share_of_memory()))
        log = _member(value, "log", dict)
        entries = _member(log, "entries", list)
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}: write the path of a HAR file") from None
    except _OddError:
        raise SiteError(f"{path}: not an HTTP Archive, it has no log.entries: export it again") from None
    except ValueError as error:
        raise SiteError(f"{path}: not a whole JSON file ({error}): export it again") from None
    if len(entries) > _MOST_ENTRIES:
        raise SiteError(f"{path}: {len(entries)} entries, more than {_MOST_ENTRIES}: export the load of one page")
    exchanges: list[Exchange] = []
    left_out, remarks = LeftOut(), Counter[str]()
    for number, entry in enumerate(entries):
        try:
            exchanges.append(_exchange(entry, remarks))
        except ValueError as error:
            left_out.add(_url(entry) or f"entry {number}", error)
    if not exchanges:
        why = f", as {left_out.count} entries are without one ({left_out.named[0]})" if left_out.count else ""
        raise SiteError(f"{path}: has no reply with its content{why}: export it with contents ('Save all as HAR')")
    lines = [f"{count} {what}" for what, count in remarks.most_common(_MOST_REMARKS)]
    return Site(str(path), exchanges, _start(log, entries), left_out, lines)


class _OddError(ValueError):
    """The reason for leaving an entry out."""


def _member(value: Any, name: str, kind: type[T]) -> T:
    """Return a member of an object. Raises _OddError if it is missing or of another type."""
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, kind):
        raise _OddError(f"no {name}" if found is None else f"malformed {name}")
    return found


def _number(value: Any) -> int:
    """Return a whole number, possibly written as text; -1 for other values."""
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else -1
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return int(value) if is_number else -1


def _exchange(entry: Any, remarks: Counter[str]) -> Exchange:
    """Return the exchange of an entry. remarks: counts changed bodies. Raises ValueError for an entry to leave out."""
    request, response = _member(entry, "request", dict), _member(entry, "response", dict)
    url, method = _member(request, "url", str), _member(request, "method", str)
    split(url)
    status, headers = _number(response.get("status")), _headers(_member(response, "headers", list))
    if not 200 <= status <= 599:
        raise _OddError(f"no reply over HTTP (status {response.get('status')})")
    content = response["content"] if isinstance(response.get("content"), dict) else {}
    kind = _kind(content, headers)
    if kind and header(headers, "content-type") is None:
        headers = (*headers, *clean([("Content-Type", kind)]))
    has_none = method == "HEAD" or status in (204, 205) or (300 <= status < 400 and status != 304)
    if not content.get("text") and not has_none:
        _require_empty(content, response)
    status = 200 if status == 304 else status  # the content came from the browser's cache
    body, headers = _encode(_body(content, remarks), headers, remarks)
    posted = request["postData"].get("text") if isinstance(request.get("postData"), dict) else None
    sent = posted.encode("utf-8", "replace") if isinstance(posted, str) else b""
    asked = (method, _headers(request["headers"] if isinstance(request.get("headers"), list) else []), sent)
    answered = (f"HTTP/1.1 {status} {response.get('statusText') or ''}", headers, body)
    return exchange(url, asked, answered, str(entry.get("serverIPAddress")), str(entry.get("startedDateTime")))


def _require_empty(content: Mapping[str, Any], response: Mapping[str, Any]) -> None:
    """Raise _OddError for a reply without text, unless its body was empty."""
    lengths = [_number(content.get("size")), _content_length(response)]
    lengths += [0] if content.get("text") == "" else []
    if (
        _number(response.get("status")) == 304
        or 0 not in lengths
        or max(*lengths, _number(response.get("bodySize"))) > 0
    ):
        raise _OddError("no content")


def _content_length(response: Mapping[str, Any]) -> int:
    """Return the Content-Length, which cleaned headers lack; -1 if there is none."""
    named = {str(each["name"]).lower(): each.get("value") for each in response["headers"]}
    return _number(named.get("content-length"))


def _headers(headers: Sequence[Any]) -> Headers:
    values = [(_member(each, "name", str), each.get("value")) for each in headers]
    if any(isinstance(value, list | dict) for _, value in values):
        raise _OddError("malformed headers")
    return clean((name, "" if value is None else str(value)) for name, value in values)


def _kind(content: Mapping[str, Any], headers: Headers) -> str:
    """Return the media type with its parameters: from the header, else from the content; empty if neither has one."""
    stated = header(headers, "content-type") or content.get("mimeType")
    return stated if isinstance(stated, str) and _MEDIA_TYPE.match(stated) else ""


def _body(content: Mapping[str, Any], remarks: Counter[str]) -> bytes:
    """Return the decoded body. Raises _OddError."""
    text = _member(content, "text", str) if content.get("text") is not None else ""
    charset = re.search(r"charset=[\"']?([\w.:-]+)", str(content.get("mimeType")))
    try:
        plain = text.encode(charset[1] if charset else "utf-8")
    except (LookupError, UnicodeEncodeError):
        plain = text.encode("utf-8", "replace")
    if str(content.get("encoding")).lower() != "base64":
        return plain
    digits, size = "".join(text.split()), _number(content.get("size"))
    try:
        decoded = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        is_plain = len(digits) % 4 != 0 and len(decoded) != size
    except ValueError:
        is_plain = True
    if is_plain:
        remarks["bodies are marked as Base64 but are plain text"] += 1
        return plain
    return decoded


def _encode(body: bytes, headers: Headers, remarks: Counter[str]) -> tuple[bytes, Headers]:
    """Return a body, encoded as its headers state or by gzip, and the headers."""
    encoding = (header(headers, "content-encoding") or "identity").strip().lower()
    if encoding == "identity" or not body:
        return body, headers
    if _is_encoded(body, encoding, header(headers, "content-type") or ""):
        remarks["bodies are compressed in the archive and are kept so"] += 1
        return body, headers
    if encoding == "deflate":
        return zlib.compress(body), headers
    if encoding not in ("gzip", "x-gzip"):
        remarks[f"replies are compressed by gzip instead of {shorten(encoding)}"] += 1
        headers = tuple((name, "gzip" if name.lower() == "content-encoding" else value) for name, value in headers)
    return gzip.compress(body, 9, mtime=0), headers


def _is_encoded(body: bytes, encoding: str, kind: str) -> bool:
    """Return whether a body in the archive is still encoded. Brotli has no mark, but encoded text is not UTF-8."""
    try:
        if encoding == "deflate":
            zlib.decompressobj().decompress(body, 1)
            return True
        if encoding == "br" and _TEXTUAL.match(kind):
            body.decode()
    except (zlib.error, UnicodeDecodeError):
        return encoding == "br"
    return encoding in _MAGIC and body.startswith(_MAGIC[encoding])


def _url(entry: Any) -> str | None:
    """Return the URL of an entry's request, if it has one."""
    request = entry.get("request") if isinstance(entry, dict) else None
    url = request.get("url") if isinstance(request, dict) else None
    return url if isinstance(url, str) else None


def _start(log: Mapping[str, Any], entries: Sequence[Any]) -> str | None:
    """Return the first URL of the first page, even if its reply is left out."""
    pages = log.get("pages")
    page = pages[0].get("id") if isinstance(pages, list) and pages and isinstance(pages[0], dict) else None
    of_page = [each for each in entries if page is not None and isinstance(each, dict) and each.get("pageref") == page]
    for entry in of_page or entries:
        url, response = _url(entry), entry.get("response") if isinstance(entry, dict) else None
        response = response if isinstance(response, dict) else {}
        status, headers = _number(response.get("status")), response.get("headers")
        content = response["content"] if isinstance(response.get("content"), dict) else {}
        try:
            kind = _kind(content, _headers(headers if isinstance(headers, list) else []))
            origin, target = split(url or "")
        except ValueError:
            continue
        is_failed = bool(of_page) and not 200 <= status <= 599
        if is_failed or begins_page(200 if status == 304 else status, kind.partition(";")[0].strip().lower()):
            return f"{origin}{target}"
    return None
