"""Downloads: resumed, checked, limited; from a server on the loopback that misbehaves in the ways servers do."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.archive import TraceError
from cellbed.archive.sources.download import Patience, _pool, download, listed
from cellbed.archive.sources.source import Checksum, Listing, RemoteFile, digest
from file_server import FileServer, file_server

CONTENT = random.Random(1).randbytes(300_000)
SHA256 = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())
HASTY = Patience(attempts=3, first_wait_s=0.01, silence_s=0.5)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with file_server({"/data.zip": CONTENT}) as server:
        yield server


def remote(server: FileServer, checksum: Checksum | None = None, path: str = "/data.zip") -> RemoteFile:
    return RemoteFile(server.address + path, "data.zip", checksum)


def fetched(server: FileServer, folder: Path, checksum: Checksum | None = None, most: int = 10**6) -> Path:
    return download(remote(server, checksum), folder, most, lambda *_: None, HASTY)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_nothing_else_stays(server: FileServer, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    place = download(remote(server, SHA256), tmp_path, 10**6, lambda *reported: seen.append(reported), HASTY)
    assert place.read_bytes() == CONTENT
    assert left(tmp_path) == ["data.zip"]
    assert seen[-1] == ("data.zip", len(CONTENT), len(CONTENT))


def test_a_file_that_is_there_is_not_asked_for_again(server: FileServer, tmp_path: Path) -> None:
    fetched(server, tmp_path, SHA256)
    fetched(server, tmp_path, SHA256)
    assert len(server.asked) == 1
    assert left(tmp_path) == ["data.zip"]


def test_a_file_that_is_there_and_wrong_is_fetched_anew(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_bytes(b"cut")
    assert fetched(server, tmp_path, SHA256).read_bytes() == CONTENT


def test_broken_connections_go_on_where_they_broke(server: FileServer, tmp_path: Path) -> None:
    server.cut_after["/data.zip"] = [100_000, 50_000]
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges_asked() == [None, "bytes=100000-", "bytes=150000-"]
    assert server.asked[1][1]["if-range"] == server.etag("/data.zip")


def test_a_later_call_goes_on_where_an_earlier_one_gave_up(server: FileServer, tmp_path: Path) -> None:
    server.cut_after["/data.zip"] = [1000, 0, 0, 0]
    with pytest.raises(TraceError, match="1,000 bytes are kept: run the command again"):
        fetched(server, tmp_path)
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges_asked()[-1] == "bytes=1000-"


def test_halves_of_two_versions_are_never_joined(server: FileServer, tmp_path: Path) -> None:
    server.cut_after["/data.zip"] = [100_000, 0, 0, 0]
    with pytest.raises(TraceError):
        fetched(server, tmp_path)
    server.files["/data.zip"] = newer = CONTENT[::-1]
    assert fetched(server, tmp_path).read_bytes() == newer


@pytest.mark.parametrize("checksum", [None, SHA256])
def test_without_a_version_only_what_is_checked_is_gone_on_with(
    server: FileServer, tmp_path: Path, checksum: Checksum | None
) -> None:
    server.tagged = False
    server.cut_after["/data.zip"] = [1000, 0, 0, 0]
    with pytest.raises(TraceError):
        fetched(server, tmp_path, checksum)
    assert fetched(server, tmp_path, checksum).read_bytes() == CONTENT
    assert server.ranges_asked()[-1] == ("bytes=1000-" if checksum else None)


def test_a_server_without_ranges_begins_again(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.cut_after["/data.zip"] = [100_000]
    assert fetched(server, tmp_path, SHA256).read_bytes() == CONTENT


def test_a_part_that_was_not_asked_for_is_thrown_away(server: FileServer, tmp_path: Path) -> None:
    server.cut_after["/data.zip"] = [100_000]
    server.content_range = f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges_asked() == [None, "bytes=100000-", None]


def test_a_part_that_is_complete_is_recognised(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetched(server, tmp_path)
    assert left(tmp_path) == ["data.zip.part", "data.zip.part.json"]
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges_asked() == [None, f"bytes={len(CONTENT)}-"]


def test_a_cut_that_nobody_can_see_is_found_by_the_checksum(server: FileServer, tmp_path: Path) -> None:
    server.length = False
    server.cut_after["/data.zip"] = [1000, 0, 0, 0]
    with pytest.raises(TraceError, match="not what its publisher says"):
        fetched(server, tmp_path, SHA256)
    assert left(tmp_path) == []
    server.cut_after.clear()
    assert fetched(server, tmp_path, SHA256).read_bytes() == CONTENT


def test_what_does_not_match_its_checksum_is_thrown_away(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"sha256:0+.*thrown away"):
        fetched(server, tmp_path, Checksum("sha256", "0" * 64))
    assert left(tmp_path) == []


def test_checksums_are_those_of_the_publishers_tools(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    assert digest(path, "git-blob") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert digest(path, "md5") == "b1946ac92492d2347c6235b4d2611184"


def test_a_file_that_is_too_large_is_refused_before_it_comes(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has 300,000 bytes, the limit is 1,000"):
        fetched(server, tmp_path, most=1000)
    assert (tmp_path / "data.zip.part").stat().st_size == 0


def test_a_file_that_does_not_say_its_size_is_cut_off(server: FileServer, tmp_path: Path) -> None:
    server.length = False
    with pytest.raises(TraceError, match="goes on after 1,000 bytes"):
        fetched(server, tmp_path, most=1000)


def test_a_server_that_falls_silent_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    server.stalls.add("/data.zip")
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    assert server.ranges_asked()[1] is not None


def test_redirections_are_followed(server: FileServer, tmp_path: Path) -> None:
    server.redirects["/old.zip"] = "/data.zip"
    place = download(remote(server, SHA256, "/old.zip"), tmp_path, 10**6, lambda *_: None, HASTY)
    assert place.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("/data.zip", "more than 10 redirections"),
        ("ftp://127.0.0.1/x", "not an HTTP or HTTPS address"),
        ("file:///etc/passwd", "not"),
    ],
)
def test_redirections_that_lead_nowhere_are_refused(server: FileServer, tmp_path: Path, to: str, says: str) -> None:
    server.redirects["/data.zip"] = to
    with pytest.raises(TraceError, match=says):
        fetched(server, tmp_path)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not here to make a certificate")
def test_certificates_are_looked_at_and_https_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    monkeypatch.setenv("no_proxy", "*")
    with file_server({"/data.zip": CONTENT}, (certificate, key)) as server:
        _pool.cache_clear()
        with pytest.raises(TraceError, match="certificate is not to be trusted"):
            fetched(server, tmp_path)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        _pool.cache_clear()
        assert fetched(server, tmp_path).read_bytes() == CONTENT
        server.redirects["/elsewhere"] = "http://127.0.0.1:9/data.zip"
        with pytest.raises(TraceError, match="cannot vouch for the files"):
            download(RemoteFile(f"{server.address}/elsewhere", "b"), tmp_path, 10**6, lambda *_: None, HASTY)
    _pool.cache_clear()


@pytest.mark.parametrize("status", [403, 404, 410])
def test_what_is_not_there_is_said_at_once(server: FileServer, tmp_path: Path, status: int) -> None:
    server.statuses["/data.zip"] = [status]
    with pytest.raises(TraceError, match=rf"answers {status}.*may have moved.*--from"):
        fetched(server, tmp_path)
    assert len(server.asked) == 1


def test_a_busy_server_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    server.statuses["/data.zip"] = [503, 429]
    news: list[str] = []
    path = download(remote(server), tmp_path, 10**6, lambda *_: None, HASTY, news.append)
    assert path.read_bytes() == CONTENT
    assert "the server answers 503 (Service Unavailable): once more in 10 ms, attempt 2 of 3" in news


def test_no_server_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    news: list[str] = []
    with pytest.raises(TraceError, match=r"cannot be reached: try again later, or download it elsewhere .*\(--from\)"):
        download(RemoteFile("http://127.0.0.1:9/x", "x"), tmp_path, 10**6, lambda *_: None, HASTY, news.append)
    assert news == [
        "downloading http://127.0.0.1:9/x",
        "the server cannot be reached: once more in 10 ms, attempt 2 of 3",
        "the server cannot be reached: once more in 20 ms, attempt 3 of 3",
    ]


def test_two_at_once_do_not_spoil_each_other(server: FileServer, tmp_path: Path) -> None:
    outcomes: list[str] = []

    def one() -> None:
        try:
            outcomes.append(hashlib.sha256(fetched(server, tmp_path, SHA256).read_bytes()).hexdigest())
        except TraceError as error:
            outcomes.append("refused" if "another process is downloading" in str(error) else str(error))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {SHA256.digest, "refused"}
    assert SHA256.digest in outcomes
    assert (tmp_path / "data.zip").read_bytes() == CONTENT


def test_the_environments_proxy_is_used_and_its_exceptions_heeded(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server answers a proxy's requests as if it had passed them on.
    monkeypatch.setenv("http_proxy", server.address.replace("http://", "http://user:secret@"))
    monkeypatch.setenv("no_proxy", "localhost")
    elsewhere = RemoteFile("http://data.invalid/data.zip", "one.zip", SHA256)
    assert download(elsewhere, tmp_path, 10**6, lambda *_: None, HASTY).read_bytes() == CONTENT
    assert server.asked[0][1]["proxy-authorization"] == "Basic dXNlcjpzZWNyZXQ="
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert download(remote(server), tmp_path, 10**6, lambda *_: None, HASTY).read_bytes() == CONTENT
    assert "proxy-authorization" not in server.asked[1][1]


def test_an_interrupt_keeps_what_has_come(server: FileServer, tmp_path: Path) -> None:
    server.stalls.add("/data.zip")
    program = (
        "import sys; from pathlib import Path\n"
        "from cellbed.archive.sources.download import download\n"
        "from cellbed.archive.sources.source import RemoteFile\n"
        "download(RemoteFile(sys.argv[1], 'data.zip'), Path(sys.argv[2]), 10**6, lambda *t: print(t[1], flush=True))\n"
    )
    environment = {**os.environ, "no_proxy": "*"}
    command = [sys.executable, "-c", program, f"{server.address}/data.zip", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < len(CONTENT) // 2:
            pass
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert (tmp_path / "data.zip.part").stat().st_size == len(CONTENT) // 2
    assert fetched(server, tmp_path, SHA256).read_bytes() == CONTENT
    assert server.ranges_asked()[-1] == f"bytes={len(CONTENT) // 2}-"


def page(*links: str) -> bytes:
    return ("<html><body>" + "".join(f'<a href="{link}">x</a>' for link in links) + "</body></html>").encode()


def test_a_servers_pages_lead_to_the_files(server: FileServer) -> None:
    up = ("?C=M;O=D", "../", "/", "http://elsewhere.invalid/bus.z/", "//elsewhere.invalid/bus.z/")
    server.files["/logs/"] = page(
        *up, "bus.a-b/", "bus.a-b/", "readme.html", "%2e%2e/", "car.c%20d/", "car.%2e%2e%2fx/"
    )
    server.files["/logs/bus.a-b/"] = page(*up, "report.1.log", "picture.png", "report.2.log/", "../report.3.log")
    server.files["/logs/car.c%20d/"] = page("report.4.log")
    found = listed(Listing(f"{server.address}/logs/", r"(bus|car)\..+", r"report\.\d\.log"))
    assert [each.path for each in found] == ["bus.a-b/report.1.log", "car.c d/report.4.log"]
    assert found[1].address == f"{server.address}/logs/car.c%20d/report.4.log"


def test_pages_that_lead_nowhere_are_said(server: FileServer) -> None:
    server.files["/logs/"] = page("imprint.html")
    with pytest.raises(TraceError, match="lists none of the files"):
        listed(Listing(f"{server.address}/logs/", ".*", ".*"))
    with pytest.raises(TraceError, match="answers 404"):
        listed(Listing(f"{server.address}/gone/", ".*", ".*"))
