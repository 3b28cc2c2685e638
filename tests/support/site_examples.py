"""A recorded site of tests: a page of two origins, as a HAR and as files of mm-webrecord."""

import base64
import gzip
import io
import random
from pathlib import Path
from typing import Any

from PIL import Image

PAGE = "https://www.shop.test/?visit=1"
AGENT = "Tester/1.0"
DOCUMENT = (
    '<!doctype html><link rel="icon" href="data:,"><link rel="stylesheet" href="/a.css"><h1>shop</h1>'
    '<img src="https://cdn.shop.test/b.png?size=2&stamp=RANDOM"><script src="/c.js"></script>'
)
SCRIPT = 'for (const url of ["/missing.json", "https://elsewhere.test/x"]) fetch(url).catch(() => 0)'


def _picture() -> bytes:
    """Return a picture that is whole: a browser breaks the transfer of another off."""
    file = io.BytesIO()
    Image.frombytes("L", (160, 160), random.Random(1).randbytes(160 * 160)).save(file, "png")
    return file.getvalue()


BODIES = {
    PAGE: ("text/html; charset=utf-8", DOCUMENT.encode()),
    "https://www.shop.test/a.css": ("text/css", b"h1{color:red}" + b"/* style */" * 2000),
    "https://cdn.shop.test/b.png?size=2&stamp=1": ("image/png", _picture()),
    "https://cdn.shop.test/b.png?size=3&stamp=1": ("image/png", b"another"),
    "https://www.shop.test/c.js": ("text/javascript", SCRIPT.encode() + b"//" + b"x" * 10_000),
}
ADDRESSES = {"www.shop.test": "203.0.113.5", "cdn.shop.test": "203.0.113.6"}


def har(**changes: Any) -> dict[str, Any]:
    """Return the site as a browser exports it, styles compressed. changes: of the content of each reply."""
    entries = []
    for url, (kind, body) in BODIES.items():
        text = (
            {"text": body.decode()}
            if "text" in kind
            else {"text": base64.b64encode(body).decode(), "encoding": "base64"}
        )
        encoded = [{"name": "content-encoding", "value": "gzip"}] if kind == "text/css" else []
        headers = [{"name": "content-type", "value": kind}, {"name": "x-origin", "value": url}, *encoded]
        content = {"size": len(body), "mimeType": kind, **text, **changes}
        entries.append(
            {
                "startedDateTime": "2026-02-03T04:05:06.789+01:00",
                "serverIPAddress": ADDRESSES[url.split("/")[2]],
                "request": {"method": "GET", "url": url, "headers": [{"name": "user-agent", "value": AGENT}]},
                "response": {
                    "status": 200,
                    "statusText": "OK",
                    "headers": [{"name": ":status", "value": "200"}, *headers],
                    "content": {name: value for name, value in content.items() if value is not None},
                },
            }
        )
    return {"log": {"version": "1.2", "creator": {"name": "test"}, "entries": entries}}


def mahimahi(folder: Path) -> None:
    """Write the site as Mahimahi's mm-webrecord does: http_record.proto, one reply in chunks."""
    folder.mkdir()
    for number, (url, (kind, body)) in enumerate(BODIES.items()):
        host, _, path = url.removeprefix("https://").partition("/")
        if kind == "text/css":
            packed = gzip.compress(body)
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
            framing = {"Content-Encoding": "gzip", "Transfer-Encoding": "chunked"}
        else:
            framing = {"Content-Length": str(len(body))}
        request = _message(f"GET /{path} HTTP/1.1", {"Host": host, "User-Agent": AGENT}, b"")
        reply = _message("HTTP/1.1 200 OK", {"Content-Type": kind, "X-Origin": url, **framing}, body)
        made = (
            _bytes(1, ADDRESSES[host].encode()) + b"\x10\xbb\x03" + b"\x18\x02" + _bytes(4, request) + _bytes(5, reply)
        )
        (folder / f"save.{9 - number}").write_bytes(made)


def _message(line: str, headers: dict[str, str], body: bytes) -> bytes:
    pairs = (_bytes(1, name.encode()) + _bytes(2, value.encode()) for name, value in headers.items())
    return _bytes(1, line.encode()) + b"".join(_bytes(2, pair) for pair in pairs) + _bytes(3, body)


def _bytes(field: int, value: bytes) -> bytes:
    length, size = len(value), b""
    while length > 127:
        length, size = length >> 7, size + bytes([length & 127 | 128])
    return bytes([field << 3 | 2]) + size + bytes([length]) + value
