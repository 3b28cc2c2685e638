"""Downloads: repeated and checked; from a server on the loopback that misbehaves in the ways servers do."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.archive import TraceError
from cellbed.archive.sources import download as download_module
from cellbed.archive.sources.download import download
from cellbed.archive.sources.source import Checksum, RemoteFile, digest
from file_server import FileServer, file_server

CONTENT = random.Random(1).randbytes(300_000)
SHA256 = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(download_module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(download_module, "SILENCE_S", 0.5)
    with file_server({"/data.zip": CONTENT}) as server:
        yield server


def remote(server: FileServer, checksum: Checksum | None = None, path: str = "/data.zip") -> RemoteFile:
    return RemoteFile(server.address + path, "data.zip", checksum)


def fetched(server: FileServer, folder: Path, checksum: Checksum | None = None) -> Path:
    return download(remote(server, checksum), folder)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_nothing_else_stays(server: FileServer, tmp_path: Path) -> None:
    seen: list[str] = []
    place = download(remote(server, SHA256), tmp_path, seen.append)
    assert place.read_bytes() == CONTENT
    assert left(tmp_path) == ["data.zip"]
    assert seen[-1] == "data.zip: 0.3 of 0.3 MB"


def test_a_file_that_is_there_is_not_asked_for_again(server: FileServer, tmp_path: Path) -> None:
    fetched(server, tmp_path, SHA256)
    fetched(server, tmp_path, SHA256)
    assert len(server.asked) == 1
    assert left(tmp_path) == ["data.zip"]


def test_a_broken_download_begins_again(server: FileServer, tmp_path: Path) -> None:
    server.cut_after["/data.zip"] = [100_000]
    assert fetched(server, tmp_path).read_bytes() == CONTENT
    server.cut_after["/data.zip"] = [100_000, 0, 0, 0, 0]
    (tmp_path / "data.zip").unlink()
    with pytest.raises(TraceError, match="ended after 0 of 300,000 bytes"):
        fetched(server, tmp_path, SHA256)


def test_an_unreachable_server_is_reported_with_a_remedy(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"refused\): try again later, or download it elsewhere .*\(--from\)"):
        download(RemoteFile("http://127.0.0.1:9/x", "x"), tmp_path)


def test_a_cut_that_nobody_can_see_is_found_by_the_checksum(server: FileServer, tmp_path: Path) -> None:
    server.length = False
    server.cut_after["/data.zip"] = [1000]
    with pytest.raises(TraceError, match="not what its publisher says"):
        fetched(server, tmp_path, SHA256)
    assert left(tmp_path) == []
    server.cut_after.clear()
    assert fetched(server, tmp_path, SHA256).read_bytes() == CONTENT


def test_checksums_are_those_of_the_publishers_tools(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    assert digest(path, "git-blob") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert digest(path, "md5") == "b1946ac92492d2347c6235b4d2611184"


def test_a_server_that_falls_silent_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    server.stalls.add("/data.zip")
    assert fetched(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("/data.zip", "answers 302"),
        ("ftp://127.0.0.1/x", "cannot vouch for the files"),
        ("file:///etc/passwd", "is not allowed"),
    ],
)
def test_redirections_that_lead_nowhere_are_refused(server: FileServer, tmp_path: Path, to: str, says: str) -> None:
    server.redirects["/data.zip"] = to
    with pytest.raises(TraceError, match=says):
        fetched(server, tmp_path)


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_missing_file_is_not_requested_again(server: FileServer, tmp_path: Path, status: int) -> None:
    server.statuses["/data.zip"] = [status]
    with pytest.raises(TraceError, match=rf"answers {status}.*may have moved.*--from"):
        fetched(server, tmp_path)
    assert len(server.asked) == 1


def test_a_busy_server_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    server.statuses["/data.zip"] = [503, 429]
    news: list[str] = []
    path = download(remote(server), tmp_path, report=news.append)
    assert path.read_bytes() == CONTENT
    assert "the server answers 503 (Service Unavailable): once more in 10 ms, attempt 2 of 5" in news
