"""Imports of HARs and WARC files of others: odd entries are left out by name, the others are read rightly."""

import base64
import gzip
import json
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from cellbed.workloads.web import har
from cellbed.workloads.web.archived import write_warc
from cellbed_node.web import warc
from cellbed_node.web.site import Exchange, Site, SiteError
from in_process import cellbed

PAGE = "https://shop.test/"
ODD = "https://shop.test/odd"
HTML = "<html><body>hello</body></html>"


def entry(url: str = ODD, **response: Any) -> dict[str, Any]:
    """Return an entry of a HAR; response: changes of its reply."""
    headers = [{"name": "Content-Type", "value": "text/html"}]
    content = {"size": len(HTML), "mimeType": "text/html", "text": HTML}
    reply = {"status": 200, "statusText": "", "headers": headers, "content": content} | response
    return {"request": {"method": "GET", "url": url, "headers": []}, "response": reply}


def read_har(folder: Path, *entries: Any, **log: Any) -> Site:
    path = folder / "x.har"
    path.write_text(json.dumps({"log": {"entries": entries, **log}}))
    return har.read(path)


def changed(*keys: str, value: Any = ...) -> dict[str, Any]:
    """Return an entry with a member of another value, or without it."""
    made: Any = entry()
    inner = made
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("odd", "line"),
    [
        (changed("response"), f"{ODD}: no response"),
        (changed("response", value=None), f"{ODD}: no response"),
        (changed("response", value=[]), f"{ODD}: malformed response"),
        (changed("response", "headers"), f"{ODD}: no headers"),
        (changed("response", "headers", value=[{"value": "x"}]), f"{ODD}: no name"),
        (changed("response", "status", value=None), f"{ODD}: no reply over HTTP (status None)"),
        (changed("response", "status", value=101), f"{ODD}: no reply over HTTP (status 101)"),
        (changed("response", "status", value=float("nan")), f"{ODD}: no reply over HTTP (status nan)"),
        (changed("response", "content", "text", value=[1]), f"{ODD}: malformed text"),
        (changed("request", "url", value=5), "entry 1: malformed url"),
        (changed("request", "url", value="http://[::1]:x/"), "http://[::1]:x/: not a URL of HTTP"),
        (changed("request", "method"), f"{ODD}: no method"),
        (None, "entry 1: no request"),
        ("x", "entry 1: no request"),
        (entry("https://x.test/\x1b[2J" + "y" * 10_000, status=0), "https://x.test/\\u001b[2J" + "y" * 20),
    ],
)
def test_an_odd_entry_of_a_har_is_left_out_and_named(tmp_path: Path, odd: Any, line: str) -> None:
    site = read_har(tmp_path, entry(PAGE), odd)
    assert [each.url for each in site.exchanges] == [PAGE]
    assert site.left_out.count == 1
    assert site.left_out.named[0].startswith(line)
    assert len(site.left_out.named[0]) < 450
    with pytest.raises(SiteError, match="1 entries are without one"):
        read_har(tmp_path, odd)


LENGTH = [{"name": "Content-Length", "value": "51200"}]
ZERO = [{"name": "content-length", "value": "0"}]


@pytest.mark.parametrize(
    ("content", "more", "is_empty"),
    [
        ({}, {}, False),
        ({"size": None}, {}, False),
        ({"size": -1}, {}, False),
        ({"size": 0}, {"headers": LENGTH}, False),
        ({"size": 0, "text": ""}, {"bodySize": 700}, False),
        ({"size": 5, "text": ""}, {}, False),
        ({"size": 0}, {"status": 304}, False),
        ({"size": 0}, {}, True),
        ({"text": ""}, {}, True),
        ({}, {"headers": ZERO}, True),
        ({"size": 12}, {"status": 302}, True),
        ({}, {"status": 204}, True),
    ],
)
def test_a_reply_without_text_is_empty_only_if_the_har_states_it(
    tmp_path: Path, content: dict[str, Any], more: dict[str, Any], is_empty: bool
) -> None:
    site = read_har(tmp_path, entry(PAGE), entry(content=content, **more))
    assert [each.body for each in site.exchanges[1:]] == [b""] * is_empty
    assert site.left_out.named == [] if is_empty else [f"{ODD}: no content"]


def only(site: Site) -> Exchange:
    (each,) = site.exchanges
    return each


def test_a_type_that_only_the_content_states_is_that_of_the_reply(tmp_path: Path) -> None:
    content = {"mimeType": "text/html; charset=utf-8", "text": HTML}
    cached = read_har(tmp_path, entry(PAGE, status=304, headers=[], content=content))
    assert (only(cached).status, only(cached).kind, cached.page) == (200, "text/html", PAGE)
    unknown = read_har(tmp_path, entry(PAGE, headers=[], content={"mimeType": "x-unknown", "text": "x"}))
    assert only(unknown).reply == ()


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ('{"user":"abcdefgh"}', b'{"user":"abcdefgh"}'),
        ('{"id":"abcde"}', b'{"id":"abcde"}'),
        ("größer", "größer".encode()),
        ("hello", b"hello"),
        (base64.b64encode(b"hello you").decode(), b"hello you"),
        (base64.encodebytes(bytes(range(100))).decode(), bytes(range(100))),
    ],
)
def test_text_that_is_no_base64_is_kept_as_it_is(tmp_path: Path, text: str, body: bytes) -> None:
    content = {"mimeType": "application/json", "encoding": "base64", "text": text}
    assert only(read_har(tmp_path, entry(content=content))).body == body


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(HTML.encode(), mtime=0)),
        ("GZIP", gzip.compress(HTML.encode(), mtime=0)),
        ("deflate", zlib.compress(HTML.encode())),
        ("zstd", b"\x28\xb5\x2f\xfdxyz"),
        ("br", b"\x1b\x1e\x00\xf8\x8d\x94"),
    ],
)
def test_a_body_that_is_still_compressed_is_kept(tmp_path: Path, encoding: str, packed: bytes) -> None:
    headers = [{"name": "Content-Type", "value": "text/html"}, {"name": "Content-Encoding", "value": encoding}]
    content = {"encoding": "base64", "text": base64.b64encode(packed).decode()}
    site = read_har(tmp_path, entry(headers=headers, content=content))
    assert only(site).body == packed
    assert dict(only(site).reply)["Content-Encoding"] == encoding
    assert site.remarks == ["1 bodies are compressed in the archive and are kept so"]
    plain = read_har(tmp_path, entry(headers=headers))
    assert only(plain).body != HTML.encode()


def test_a_long_name_of_an_encoding_is_shortened(tmp_path: Path) -> None:
    headers = [{"name": "Content-Encoding", "value": "x" * (3 << 20)}]
    (line,) = read_har(tmp_path, entry(headers=headers)).remarks
    assert len(line) < 300


def test_the_page_is_the_first_document_of_the_har_or_none(tmp_path: Path) -> None:
    frame = entry("https://tracker.test/frame.html")
    for main in (
        entry(PAGE, content={"mimeType": "text/html", "size": 80_000}),
        entry(PAGE, status=0, headers=[], content={}),
    ):
        beacon = entry("https://tracker.test/beacon", headers=[], content={"mimeType": "image/gif", "text": "x"})
        of_page = [each | {"pageref": "p1"} for each in (main, frame)]
        site = read_har(tmp_path, beacon, *of_page, pages=[{"id": "p1"}])
        with pytest.raises(SiteError, match=f"no reply of its page {PAGE}"):
            _ = site.page
        write_warc(tmp_path / "x.warc.gz", site)
        with pytest.raises(SiteError, match=f"no reply of its page {PAGE}"):
            _ = warc.read(tmp_path / "x.warc.gz").page
    with pytest.raises(SiteError, match="no reply of its page"):
        _ = read_har(tmp_path, entry(PAGE, content={}), frame).page
    done = cellbed("web", "import", tmp_path / "x.har", "-o", tmp_path / "y.warc", status=0)
    assert f"no reply of its page {PAGE}: export its load again" in done.stderr
    behind = read_har(tmp_path, frame, entry(PAGE) | {"pageref": "p1"}, pages=[{"id": "p1"}])
    assert behind.page == PAGE


def record(block: bytes, url: str = ODD, kind: str = "response", ends: bytes = b"\r\n") -> bytes:
    head = [b"WARC/1.0", b"WARC-Type: " + kind.encode(), b"WARC-Target-URI: " + url.encode()]
    head += [b"Content-Length: %d" % len(block), b"", b""]
    return ends.join(head) + block + b"\r\n\r\n"


GOOD = record(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + HTML.encode(), PAGE)


def read_warc(folder: Path, *records: bytes) -> Site:
    path = folder / "x.warc"
    path.write_bytes(b"".join(records))
    return warc.read(path, partly=True)


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        *((record(b"HTTP/1.1 %s x\r\n\r\n" % status), "no status of HTTP") for status in (b"999", b"000", b"100")),
        (record(b"<html>no status</html>"), "no status of HTTP"),
        (record(b"ICY 200 OK\r\n\r\nx"), "no status of HTTP"),
        (record(b""), "no status of HTTP"),
        *((record(b"HTTP/1.1 200 OK\r\n\r\n", url), "not a URL of HTTP")
          for url in ("http://[2001:db8::1]/", "http://a b/", "http://x:port/", "http://x:99999/")),
        (record(b"HTTP/1.1 200 OK\r\n\r\n", ""), "not a URL of HTTP"),
        (record(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), "chunks are truncated"),
        (record(b"x", kind="revisit"), "record without deduplication"),
        (GOOD.replace(b"Content-Length: 7", b"Content-Length: 9"), "https://shop.test/: malformed record"),
        (GOOD.replace(b"Content-Length: 7", b"Content-Length: 99"), "https://shop.test/: truncated record"),
        (GOOD.replace(b"Content-Length: ", b"Content-Length: -"), "malformed record"),
        (b"what is this?\r\n\r\n", "malformed record"),
    ],
)  # fmt: skip
def test_an_odd_record_of_a_warc_file_is_left_out_and_named(tmp_path: Path, odd: bytes, why: str) -> None:
    last = GOOD.replace(b"shop.test/", b"shop.test/last")
    site = read_warc(tmp_path, GOOD, odd, last)
    assert [each.url for each in site.exchanges] == [PAGE, f"{PAGE}last"]
    assert [each.body for each in site.exchanges] == [HTML.encode()] * 2
    assert site.left_out.count == 1
    assert why in site.left_out.named[0]
    with pytest.raises(SiteError, match=r"1 record is left out: .*`cellbed web import` makes a site of the others"):
        warc.read(tmp_path / "x.warc")


def test_a_warc_file_that_ends_early_has_the_records_before(tmp_path: Path) -> None:
    path = tmp_path / "x.warc.gz"
    last = GOOD.replace(b"shop.test/", b"shop.test/last")
    path.write_bytes(gzip.compress(GOOD) + gzip.compress(last)[:-20])
    site = warc.read(path, partly=True)
    assert [each.url for each in site.exchanges] == [PAGE]
    assert any("truncated" in line for line in site.left_out.named)


@pytest.mark.parametrize("ends", [b"\r\n", b"\n"])
def test_heads_with_any_line_ends_keep_their_bodies(tmp_path: Path, ends: bytes) -> None:
    def message(*lines: bytes) -> bytes:
        return ends.join([*lines, b"", b"body\n\nmore"])

    asked = record(message(b"POST /odd HTTP/1.1", b"User-Agent: t"), kind="request", ends=ends)
    replied = record(message(b"HTTP/1.1 200 OK", b"X-Name: \xc3\x85", b"Content-Type: text/plain"), ends=ends)
    each = only(read_warc(tmp_path, asked, replied))
    assert (each.method, each.sent, each.body) == ("POST", b"body\n\nmore", b"body\n\nmore")
    assert dict(each.reply) == {"X-Name": "\xc3\x85", "Content-Type": "text/plain"}
    interim = record(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx")
    assert only(read_warc(tmp_path, interim)).body == b"x"


READ = """
import sys
from cellbed.workloads.web import har
try: har.read(har.Path(sys.argv[1]))
except har.SiteError as error: print(error, file=sys.stderr); sys.exit(2)
"""


def test_an_archive_of_too_many_entries_or_origins_is_answered_briefly(tmp_path: Path) -> None:
    (tmp_path / "x.har").write_text('{"log":{"entries":[' + "[]," * 100_001 + "[]]}}")
    assert "export the load of one page" in cellbed("web", "import", tmp_path / "x.har", "-o", "x.warc").stderr
    (tmp_path / "x.har").write_text('{"log":{"entries":[' + "0," * 6_000_000 + "0]}}")
    command = ["prlimit", f"--as={2 << 30}", sys.executable, "-c", READ, str(tmp_path / "x.har")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "not a whole JSON file (more values than a quarter of the memory holds): export it again" in done.stderr
    assert done.returncode == 2
    read_har(tmp_path, *(entry(f"https://h{number}.test/") for number in range(300)))
    done = cellbed("web", "import", tmp_path / "x.har", "-o", tmp_path / "x.warc", status=0)
    assert len(done.stdout.splitlines()) < 110
    assert "300 origins" in done.stdout
