"""HTTP Archives (HAR 1.2) as browsers and proxies export them.

They have bodies decoded. Here a body is compressed again as its reply states, by gzip where Python has no encoder.
"""

import base64
import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cellbed.support import inputs
from cellbed.workloads.web.site import UNKNOWN, Exchange, Headers, Site, SiteError, cleaned, exchange, header, split


@dataclass(slots=True)
class Imported:
    """The exchanges of an archive. left_out: entries that are not among them, in a line each; remarks: differences from
    the site."""

    site: Site
    left_out: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def read(path: Path) -> Imported:
    """Read an archive. Errors: :class:`SiteError`."""
    try:
        value = inputs.json_value(inputs.content(path, inputs.share_of_memory()))
        entries = value["log"]["entries"]
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}: write the path of a HAR file") from None
    except ValueError as error:
        raise SiteError(f"{path}: not a whole JSON file ({error}): export it again") from None
    except (KeyError, TypeError):
        raise SiteError(f"{path}: not an HTTP Archive, it has no log.entries: export it again") from None
    exchanges: list[Exchange] = []
    left_out: list[str] = []
    compressed: dict[str, int] = {}
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        try:
            made = _exchange(entry, compressed)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise SiteError(f"{path}: entry {number}: malformed ({error!r}): export the file again") from None
        if isinstance(made, Exchange):
            exchanges.append(made)
        else:
            left_out.append(f"{entry['request']['url']:.200}: {made}")
    if not exchanges:
        why = f", as {len(left_out)} entries are without one ({left_out[0]})" if left_out else ""
        raise SiteError(f"{path}: has no reply with its content{why}: export it with contents ('Save all as HAR')")
    remarks = [f"{count} replies are compressed by gzip instead of {name}" for name, count in compressed.items()]
    return Imported(Site(str(path), exchanges), left_out, remarks)


def _exchange(entry: Mapping[str, Any], compressed: dict[str, int]) -> Exchange | str:
    """Return the exchange of an entry, or why there is none. compressed: counts replies with another encoding than the
    site's. Errors: those of malformed values."""
    request, response = entry["request"], entry["response"]
    content, status = response.get("content") or {}, int(response["status"])
    url = str(request["url"])
    try:
        split(url)
    except ValueError:
        return "not a URL of HTTP"
    if not 200 <= status <= 599:
        return f"no reply over HTTP (status {status})"
    text = content.get("text")
    if status == 304 and text:
        status = 200  # the browser's cache had the content
    needs_none = request["method"] == "HEAD" or status in (204, 205, 304) or 300 <= status < 400
    if text is None and not needs_none and (content.get("size") or 0) > 0:
        return "no content"
    headers = _headers(response)
    body, headers = _encoded(_body(content), headers, compressed)
    posted = str((request.get("postData") or {}).get("text") or "").encode("utf-8", "replace")
    asked = (str(request["method"]), _headers(request), posted)
    answered = (f"HTTP/1.1 {status} {response.get('statusText') or ''}", headers, body)
    return exchange(url, asked, answered, str(entry.get("serverIPAddress")), _date(str(entry.get("startedDateTime"))))


def _date(text: str) -> str:
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    except ValueError:
        return UNKNOWN


def _headers(message: Mapping[str, Any]) -> Headers:
    return cleaned((str(each["name"]), str(each["value"])) for each in message["headers"])


def _body(content: Mapping[str, Any]) -> bytes:
    text = content.get("text") or ""
    if content.get("encoding") == "base64":
        return base64.b64decode(text)
    charset = re.search(r"charset=[\"']?([\w.:-]+)", str(content.get("mimeType")))
    try:
        return str(text).encode(charset[1] if charset else "utf-8")
    except (LookupError, UnicodeEncodeError):
        return str(text).encode("utf-8", "replace")


def _encoded(body: bytes, headers: Headers, compressed: dict[str, int]) -> tuple[bytes, Headers]:
    """Return a body encoded as its headers state, or by gzip, and the headers."""
    encoding = (header(headers, "content-encoding") or "identity").strip().lower()
    if encoding == "identity" or not body:
        return body, headers
    if encoding == "deflate":
        return zlib.compress(body), headers
    if encoding not in ("gzip", "x-gzip"):
        compressed[encoding] = compressed.get(encoding, 0) + 1
        headers = tuple((name, "gzip" if name.lower() == "content-encoding" else value) for name, value in headers)
    return gzip.compress(body, 9, mtime=0), headers
