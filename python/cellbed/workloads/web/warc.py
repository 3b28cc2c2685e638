"""Recorded sites as WARC files (ISO 28500, version 1.1), those of web archives: other tools read and write them, too.

An exchange is a record of the request and one of the response, which have the messages as HTTP/1.1 frames them.
"""

import functools
import gzip
import io
import re
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellbed.support import inputs
from cellbed.support.whole_files import write_whole
from cellbed.workloads.web.site import UNKNOWN, Exchange, Headers, Message, Site, SiteError, exchange, header

_NAMESPACE = uuid.UUID("8f4bd1a0-39e6-4b0f-a0c4-61a1b35d4d0a")
_ABOUT = b"software: cellbed\r\nformat: WARC File Format 1.1\r\n"
_AGAIN = "record it again, or fetch the file again"


def write(path: Path, exchanges: Sequence[Exchange]) -> None:
    """Write a site; each record is compressed if the name ends with ``.gz``. Errors: ``OSError``."""
    date = min((each.date for each in exchanges), default=UNKNOWN)
    about = [("WARC-Record-ID", _identifier("about")), ("WARC-Date", date)]
    records = [_record("warcinfo", "application/warc-fields", about, _ABOUT)]
    for number, each in enumerate(exchanges):
        common = [("WARC-Target-URI", each.url), ("WARC-Date", each.date)]
        common += [("WARC-IP-Address", each.address)] if each.address else []
        reply, request = (_identifier(f"{kind} {number} {each.url}") for kind in ("response", "request"))
        block = _message(f"HTTP/1.1 {each.status} {each.reason}", each.reply, each.body)
        fields = [*common, ("WARC-Record-ID", reply)]
        records.append(_record("response", "application/http;msgtype=response", fields, block))
        host = () if header(each.request, "host") else (("Host", each.origin.netloc),)
        block = _message(f"{each.method} {each.target} HTTP/1.1", (*host, *each.request), each.sent)
        fields = [*common, ("WARC-Record-ID", request), ("WARC-Concurrent-To", reply)]
        records.append(_record("request", "application/http;msgtype=request", fields, block))
    if path.suffix == ".gz":
        records = [gzip.compress(each, mtime=0) for each in records]
    write_whole(path, lambda file: file.write_bytes(b"".join(records)))


def _identifier(name: str) -> str:
    return f"<urn:uuid:{uuid.uuid5(_NAMESPACE, name)}>"


def _message(line: str, headers: Headers, body: bytes) -> bytes:
    length = (("Content-Length", str(len(body))),) if body or line.startswith("HTTP/") else ()
    head = [line, *(f"{name}: {value}" for name, value in (*headers, *length)), "", ""]
    return "\r\n".join(head).encode("latin-1", "replace") + body


def _record(kind: str, media: str, fields: list[tuple[str, str]], block: bytes) -> bytes:
    fields = [("WARC-Type", kind), *fields, ("Content-Type", media), ("Content-Length", str(len(block)))]
    return (
        "\r\n".join(["WARC/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]).encode()
        + block
        + b"\r\n\r\n"
    )


@dataclass(slots=True)
class _Record:
    """A record. at: its first byte in the file."""

    at: int
    fields: dict[str, str]
    block: bytes

    @property
    def kind(self) -> str:
        return self.fields.get("warc-type", "")

    @property
    def url(self) -> str:
        return self.fields.get("warc-target-uri", "").strip("<>")

    @property
    def names(self) -> set[str]:
        """Identifiers of it and of records of the same exchange."""
        return {value for name in ("warc-record-id", "warc-concurrent-to") if (value := self.fields.get(name))}


def read(path: Path) -> Site:
    """Read a site, once as long as its file does not change. Errors: :class:`SiteError`."""
    try:
        status = path.stat()
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror}: write the path of a WARC file") from None
    return _read(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, _size: int) -> Site:
    requests: dict[str, list[_Record]] = {}
    replies: list[_Record] = []
    for each in _records(path, _content(path)):
        if each.kind == "revisit":
            raise SiteError(f"{path}: the reply of {each.url} refers to another one: record without deduplication")
        if each.kind == "request":
            requests.setdefault(each.url, []).append(each)
        elif each.kind == "response" and each.url.startswith(("http:", "https:")):
            replies.append(each)
    exchanges = []
    for each in replies:
        asked = requests.get(each.url, [])
        request = next((one for one in asked if one.names & each.names), asked[0] if asked else None)
        if request is not None:
            asked.remove(request)
        exchanges.append(_exchange(path, request, each))
    if not exchanges:
        raise SiteError(f"{path}: has no reply over HTTP: {_AGAIN}")
    return Site(str(path), exchanges)


def _content(path: Path) -> bytes:
    most = inputs.share_of_memory()
    try:
        content = inputs.content(path, most)
        if content.startswith(b"\x1f\x8b"):
            with gzip.open(io.BytesIO(content)) as file:
                content = file.read(most + 1)
    except EOFError:
        raise SiteError(f"{path}: truncated: {_AGAIN}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise SiteError(f"{path}: malformed compression ({error}): {_AGAIN}") from None
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}: write the path of a WARC file") from None
    if len(content) > most:
        raise SiteError(f"{path}: larger than {most >> 20} MiB, a quarter of the memory: record a smaller site")
    if not content.startswith(b"WARC/"):
        raise SiteError(f"{path}: not a WARC file: `cellbed web import` makes one of a HAR or a folder of Mahimahi")
    return content


def _records(path: Path, content: bytes) -> Iterator[_Record]:
    at = 0
    while at < len(content):
        end = content.find(b"\r\n\r\n", at)
        fields = _fields(content[at:end]) if end >= 0 else {}
        length = fields.get("content-length", "")
        if not content.startswith(b"WARC/", at) or (end >= 0 and not re.fullmatch("[0-9]{1,15}", length)):
            raise SiteError(f"{path}: byte {at}: malformed record: {_AGAIN}")
        if end < 0 or end + 4 + int(length) > len(content):
            raise SiteError(f"{path}: byte {at}: truncated record: {_AGAIN}")
        yield _Record(at, fields, content[end + 4 : end + 4 + int(length)])
        at = end + 4 + int(length)
        while content[at : at + 1] in (b"\r", b"\n"):
            at += 1


def _fields(head: bytes) -> dict[str, str]:
    """Return the fields below the first line, by names in lower case."""
    return {name.lower(): value for name, value in _lines(head.decode("utf-8", "replace"))}


def _lines(head: str) -> list[tuple[str, str]]:
    lines = re.sub(r"\r?\n[ \t]+", " ", head).splitlines()[1:]
    return [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]


def _exchange(path: Path, request: _Record | None, reply: _Record) -> Exchange:
    asked, answered = (_message_of(each.block) if each else ("GET", [], b"") for each in (request, reply))
    fields = reply.fields
    try:
        return exchange(reply.url, asked, answered, fields.get("warc-ip-address"), fields.get("warc-date", UNKNOWN))
    except ValueError as error:
        raise SiteError(f"{path}: byte {reply.at}: {error}: {_AGAIN}") from None


def _message_of(block: bytes) -> Message:
    head, _, body = block.partition(b"\r\n\r\n")
    text = head.decode("latin-1")
    return text.partition("\r\n")[0], _lines(text), body
