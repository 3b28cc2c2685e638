"""Recorded sites as WARC files (ISO 28500, version 1.1), the format of web archives and their tools.

Each exchange has a record of the request and one of the response, with the messages in HTTP/1.1 framing.
"""

import functools
import gzip
import re
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cellbed_node import inputs
from cellbed_node.errors import LeftOut
from cellbed_node.web.site import UNKNOWN, Exchange, Headers, Message, Site, SiteError, exchange, header

_NAMESPACE = uuid.UUID("8f4bd1a0-39e6-4b0f-a0c4-61a1b35d4d0a")
_ABOUT = "software: cellbed\r\nformat: WARC File Format 1.1\r\n"
_PAGE = "cellbed-page"
"""Field in a site's first record: the URL of its page."""
_AGAIN = "record it again, or fetch the file again"
_HEAD_ENDS = re.compile(rb"\r?\n\r?\n")
_INTERIM = re.compile(rb"HTTP/[0-9.]+ +1[0-9]{2}\b")
_RECORD_BEGINS = re.compile(rb"\nWARC/[0-9]")
_PIECE = 1 << 14
_BLANKS = " \t\r"


def encode(site: Site, *, compressed: bool) -> bytes:
    """Return a site as a file's content. compressed: compress each record."""
    date = min((each.date for each in site.exchanges), default=UNKNOWN)
    about = [("WARC-Record-ID", _identifier("about")), ("WARC-Date", date)]
    page = f"{_PAGE}: {site.start}\r\n" if site.start is not None else ""
    records = [_record("warcinfo", "application/warc-fields", about, (_ABOUT + page).encode())]
    for number, each in enumerate(site.exchanges):
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
    return b"".join(gzip.compress(each, mtime=0) if compressed else each for each in records)


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
    """A record. at: offset of its first byte in the file."""

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
    def name(self) -> str:
        """URL of the record, or its place in the file."""
        return self.url or f"record at byte {self.at}"

    @property
    def names(self) -> set[str]:
        """Identifiers of the record and of other records of the same exchange."""
        return {value for name in ("warc-record-id", "warc-concurrent-to") if (value := self.fields.get(name))}


def read(path: Path, *, partly: bool = False) -> Site:
    """Read a site; an unchanged file is read only once. partly: omit damaged records.

    Errors: :class:`SiteError`, without `partly` also for damaged records.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror}: write the path of a WARC file") from None
    site = _read(path, status.st_mtime_ns, status.st_size)
    if site.left_out.count and not partly:
        remedy = "`cellbed web import` makes a site of the others"
        raise SiteError(f"{path}: {site.left_out.note('record is', 'records are')}: {remedy}")
    return site


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, _size: int) -> Site:
    requests: dict[str, list[_Record]] = {}
    replies: list[_Record] = []
    left_out, start = LeftOut(), None
    for each in _records(_content(path, left_out), left_out):
        if each.kind == "warcinfo":
            start = _fields(b"\n" + each.block).get(_PAGE, start)
        elif each.kind == "revisit":
            left_out.add(each.name, "its reply is in another record: record without deduplication")
        elif each.kind == "request":
            requests.setdefault(each.url, []).append(each)
        elif each.kind == "response" and (not each.url or each.url.startswith(("http:", "https:"))):
            replies.append(each)
    exchanges = []
    for each in replies:
        asked = requests.get(each.url, [])
        request = next((one for one in asked if one.names & each.names), asked[0] if asked else None)
        if request is not None:
            asked.remove(request)
        try:
            exchanges.append(_exchange(request, each))
        except ValueError as error:
            left_out.add(each.name, error)
    if not exchanges:
        why = f" ({left_out.note('record is', 'records are')})" if left_out.count else ""
        raise SiteError(f"{path}: has no reply over HTTP{why}: {_AGAIN}")
    return Site(str(path), exchanges, start, left_out)


def _content(path: Path, left_out: LeftOut) -> bytes:
    most = inputs.share_of_memory()
    try:
        content = inputs.content(path, most)
    except OSError as error:
        raise SiteError(f"{path}: {error.strerror or error}: write the path of a WARC file") from None
    if content.startswith(b"\x1f\x8b"):
        content = _decompress(path, content, most, left_out)
    if not content.startswith(b"WARC/"):
        raise SiteError(f"{path}: not a WARC file: `cellbed web import` makes one of a HAR or a folder of Mahimahi")
    return content


def _decompress(path: Path, content: bytes, most: int, left_out: LeftOut) -> bytes:
    """Return the content of all members of a gzip file up to the first damaged one."""
    parts, size, at = [], 0, 0
    while at < len(content):
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not member.eof and at < len(content):
            try:
                parts.append(member.decompress(content[at : at + _PIECE]))
            except zlib.error as error:
                left_out.add(f"compressed byte {at}", f"malformed compression ({error}), all behind it is missing")
                return b"".join(parts)
            at, size = at + _PIECE, size + len(parts[-1])
            if size > most:
                raise SiteError(f"{path}: larger than {most >> 20} MiB, a quarter of the memory: record a smaller site")
        at = min(at, len(content)) - len(member.unused_data)
        if not member.eof:
            left_out.add(f"compressed byte {at}", "truncated")
    return b"".join(parts)


def _records(content: bytes, left_out: LeftOut) -> Iterator[_Record]:
    """Yield the records. After a malformed record, continue at the next line that begins a record."""
    at = 0
    while at < len(content):
        head = _HEAD_ENDS.search(content, at)
        fields = _fields(content[at : head.start()]) if head else {}
        length = fields.get("content-length", "")
        is_head = head is not None and content.startswith(b"WARC/", at) and re.fullmatch("[0-9]{1,15}", length)
        end = head.end() + int(length) if head and is_head else at
        if head and is_head and end <= len(content) and content[end : end + 1] in b"\r\n":
            yield _Record(at, fields, content[head.end() : end])
            at = end
        else:
            truncated = not head or end > len(content)
            name = _Record(at, fields, b"").name
            left_out.add(name, "truncated record" if truncated else "malformed record")
            following = _RECORD_BEGINS.search(content, at)
            at = following.start() if following else len(content)
        while content[at : at + 1] in (b"\r", b"\n"):
            at += 1


def _fields(head: bytes) -> dict[str, str]:
    """Return the fields after the first line, by names in lower case."""
    return {name.lower(): value for name, value in _lines(head.decode("utf-8", "replace"))}


def _lines(head: str) -> list[tuple[str, str]]:
    lines = re.sub(r"\r?\n[ \t]+", " ", head).split("\n")[1:]
    return [(name.strip(_BLANKS), value.strip(_BLANKS)) for name, _, value in (line.partition(":") for line in lines)]


def _exchange(request: _Record | None, reply: _Record) -> Exchange:
    """Return the exchange of two records. Raises ValueError if a record is not HTTP."""
    asked, answered = (_message_of(each.block) if each else ("GET", [], b"") for each in (request, reply))
    fields = reply.fields
    return exchange(reply.url, asked, answered, fields.get("warc-ip-address"), fields.get("warc-date", UNKNOWN))


def _message_of(block: bytes) -> Message:
    """Return the message in a block; interim replies (1xx) are skipped."""
    while _INTERIM.match(block) and (following := _HEAD_ENDS.search(block)) and following.end() < len(block):
        block = block[following.end() :]
    ends = _HEAD_ENDS.search(block)
    text, body = block[: ends.start() if ends else None].decode("latin-1"), block[ends.end() :] if ends else b""
    return text.partition("\n")[0].rstrip("\r"), _lines(text), body
