"""Public data sets: downloads, archives, and the entries that each documented layout becomes."""

import contextlib
import hashlib
import json
import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import source_examples as examples
from archive_examples import add
from cellbed.archive import Archive, TraceError, open_archive
from cellbed.archive.sources import SOURCES, Fetched, FetchOptions, Source, fetch, find_source
from cellbed.archive.sources import download as download_module
from cellbed.archive.sources.download import download, unpack
from cellbed.archive.sources.source import Checksum, RemoteFile, digest
from cellbed.recordings.importing import recognise
from cellbed.recordings.recording import read_recording
from file_server import FileServer, file_server
from in_process import cellbed

S = 1_000_000_000
CONTENT = random.Random(1).randbytes(300_000)
SHA256 = Checksum("sha256", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(download_module, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(download_module, "SILENCE_S", 0.5)
    return tmp_path


@pytest.fixture
def archive(home: Path) -> Archive:
    return open_archive()


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server({"/data.zip": CONTENT}) as server:
        yield server


def taken(source: Source, archive: Archive, options: FetchOptions) -> Fetched:
    return fetch(source, archive, options, recognise)


def given(name: str, archive: Archive, files: dict[str, bytes], folder: Path, **options: Any) -> Fetched:
    """What becomes of files that somebody has downloaded."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return taken(find_source(name), archive, FetchOptions(given=[folder / path for path in files], **options))


def rows(archive: Archive, name: str, part: Any) -> list[tuple[Any, ...]]:
    return archive.series(name, part).scan().collect().rows()


def test_every_source_is_described_and_documented() -> None:
    assert {source.name for source in SOURCES} == {
        *("mahimahi", "cellreplay", "kpn", "cork-4g", "cork-5g", "5g-in-the-wild", "nyc-2018", "nyc-2019"),
    }
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "sources.md").read_text()
    for source in SOURCES:
        assert f"|`{source.name}`|" in page.replace(" ", "")
        assert all((source.title, source.licence, source.terms, source.citation, source.layout, source.checked))
        assert all(each.startswith("https://") for each in (source.page, *(remote.address for remote in source.remote)))
        assert not any(Path(remote.path).is_absolute() for remote in source.remote)


def test_mahimahis_recordings(archive: Archive, tmp_path: Path) -> None:
    result = given("mahimahi", archive, examples.mahimahi(), tmp_path / "got")
    assert result.kept == ["att-lte-driving-2016", "tmobile-umts-driving"]
    entry = archive.entry("att-lte-driving-2016")
    about = entry.about
    assert (about.technology, about.operator, about.mobility, about.date) == ("4g", "AT&T", "driving", "2016")
    assert archive.entry("tmobile-umts-driving").about.technology == "3g"
    assert (entry.parts["uplink"].duration_ns, entry.parts["uplink"].rows) == (100_000_000, 100)
    assert (entry.parts["downlink"].duration_ns, entry.parts["downlink"].rows) == (50_000_000, 100)
    assert rows(archive, "att-lte-driving-2016", "downlink")[:3] == [(1_000_000,), (1_000_000,), (2_000_000,)]
    assert entry.history[-1].how == {"source": "mahimahi", "file": "ATT-LTE-driving-2016.down"}
    assert set(entry.history[-1].of) == {"ATT-LTE-driving-2016.up", "ATT-LTE-driving-2016.down"}


def test_kpns_recordings_are_known_by_the_names_of_the_testbed(archive: Archive, tmp_path: Path) -> None:
    files = {
        name: examples.lines(*range(1, 50)) for name in ("KPN_5G.up", "KPN_5G_low_band.down", "KPN_4G.up", "other.up")
    }
    assert given("kpn", archive, files, tmp_path / "got").kept == ["kpn-lte", "kpn-5g", "kpn-5g-window"]
    assert archive.entry("kpn-5g-window").about.obstacle == "window"


def test_cellreplays_recording_keeps_both_workloads(archive: Archive, tmp_path: Path) -> None:
    result = given("cellreplay", archive, {"cellular-traces.zip": examples.cellreplay()}, tmp_path / "got")
    assert result.kept == ["cellreplay-tmobile-driving"]
    entry = archive.entry("cellreplay-tmobile-driving")
    assert (entry.about.operator, entry.about.mobility) == ("T-Mobile", "driving")
    # 1001 opportunities of 1400 bytes carry as much as 934 of 1500.
    assert entry.parts["uplink"].rows == 1001 * 1400 // 1500
    assert entry.parts["uplink"].duration_ns == 1 * S
    recording = read_recording(archive.recording("cellreplay-tmobile-driving"))
    assert recording.description.light is not None


def test_corks_drives_of_2018(archive: Archive, tmp_path: Path) -> None:
    result = given("cork-4g", archive, {"LTE_Dataset.zip": examples.cork_4g()}, tmp_path / "got")
    assert result.kept == ["cork-4g-bus-a-2018-02-05-133550", "cork-4g-pedestrian-b-2018-01-17-155648"]
    about = archive.entry("cork-4g-pedestrian-b-2018-01-17-155648").about
    assert (about.mobility, about.date, about.technology) == ("walking", "2018-01-17", "4g")
    (of, why), *others = result.left_out.items()
    assert not others
    assert of == "Dataset/static/B_2018.01.18_15.56.48.csv"
    assert "not as documented" in why


def test_corks_drives_of_2020(archive: Archive, tmp_path: Path) -> None:
    result = given("cork-5g", archive, {"5G-production-dataset.zip": examples.cork_5g()}, tmp_path / "got")
    name = "cork-5g-driving-b-2019-12-14-101630"
    assert result.kept == [name, "cork-5g-netflix-static-animated-rickandmorty-b-2019-12-14-101630"]
    assert rows(archive, name, "downlink") == [(0, 100e6), (1 * S, 150e6), (3 * S, 40e6)]
    assert rows(archive, name, "round-trip") == [(1 * S, 40_000_000), (3 * S, 74_500_000)]
    assert "uplink" not in archive.entry(name).parts
    assert result.notes[name] == ["the phone's clock was set back 1 times, by 2 s at most; times are constant there"]
    about = archive.entry(name).about
    assert (about.technology, about.note) == ("5g", "On 5G 60%, LTE 40% of the rows.")
    assert "player's" in (archive.entry(result.kept[1]).about.note or "")


def test_new_york_universitys_opportunities(archive: Archive, server: FileServer, tmp_path: Path) -> None:
    result = given("nyc-2018", archive, examples.nyc_2018(), tmp_path / "2018")
    assert result.kept == ["nyc-2018-3g-with-cross-subway", "nyc-2018-4g-no-cross-times"]
    entry = archive.entry("nyc-2018-4g-no-cross-times")
    assert {part: (held.rows, held.duration_ns) for part, held in entry.parts.items()} == {
        "uplink": (25, 96_000_000),
        "downlink": (101, 100_000_000),
    }
    assert (entry.about.technology, entry.about.mobility) == ("4g", None)
    # Files have no endings here, and yet an entry is made of its own two only.
    assert set(entry.history[-1].of) == {"downlink-4g-no-cross-times", "uplink-4g-no-cross-times"}
    subway = archive.entry("nyc-2018-3g-with-cross-subway")
    assert (subway.about.mobility, list(subway.parts)) == ("subway", ["downlink"])

    source = at_server(find_source("nyc-2019"), server, examples.nyc_2019())
    result = taken(source, archive, FetchOptions())
    about = {name: archive.entry(name).about.mobility for name in result.kept}
    assert about == {
        "nyc-2019-taxi-2767958": "driving",
        "nyc-2019-timessquare-3199718": "walking",
        "nyc-2019-timessquare-3457194": "stationary",
    }
    entry = archive.entry("nyc-2019-taxi-2767958")
    assert list(entry.parts) == ["downlink"]
    assert list(entry.history[-1].of) == ["trace-2767958-taxi1"]


def test_traces_of_mmwave_in_the_wild(archive: Archive, server: FileServer) -> None:
    source = at_server(find_source("5g-in-the-wild"), server, examples.in_the_wild())
    result = taken(source, archive, FetchOptions())
    name = "5g-in-the-wild-5g-walking-100"
    assert result.kept == ["5g-in-the-wild-4g-driving-50015-dr", name]
    assert rows(archive, name, "downlink") == [(0, 91e6), (1 * S, 150e6), (3 * S, 0.0)]
    about = archive.entry(name).about
    assert (about.technology, about.band, about.operator, about.mobility) == ("5g", "mmwave", "Verizon", "walking")
    assert archive.entry(result.kept[0]).about.band is None
    assert result.left_out == {"4g_trace_walking_60048_c": "line 2: not a time and a rate; number of such lines: 1"}


def at_server(source: Source, server: FileServer, files: dict[str, bytes]) -> Source:
    """A source as it would be if this server had it, with the checksums that the files have."""
    server.files |= {f"/{name}": content for name, content in files.items()}
    remote = tuple(
        RemoteFile(f"{server.address}/{name}", name, Checksum("sha256", hashlib.sha256(content).hexdigest()))
        for name, content in files.items()
    )
    return replace(source, remote=remote)


def test_a_data_set_is_downloaded_checked_and_converted(archive: Archive, server: FileServer, home: Path) -> None:
    source = at_server(find_source("cork-5g"), server, {"5G-production-dataset.zip": examples.cork_5g()})
    server.cut_after["/5G-production-dataset.zip"] = [100]
    result = taken(source, archive, FetchOptions())
    assert result.kept == ["cork-5g-driving-b-2019-12-14-101630"]
    assert result.unwanted == 1  # video sessions are no measure of a network
    assert not [path for path in (home / "cache").rglob("*") if path.is_file() and path.name != ".lock"]
    more = taken(source, archive, FetchOptions(everything=True))
    assert (more.there, len(more.kept)) == (result.kept, 1)


def test_a_data_set_that_moved_is_an_error_with_a_remedy(archive: Archive, server: FileServer) -> None:
    source = at_server(find_source("mahimahi"), server, examples.mahimahi())
    server.files.clear()
    with pytest.raises(TraceError, match=r"nothing to convert \(3 others failed, too\).*answers 404.*--from"):
        taken(source, archive, FetchOptions())


def test_of_several_files_those_that_are_gone_are_left_out(archive: Archive, server: FileServer) -> None:
    source = at_server(find_source("mahimahi"), server, examples.mahimahi())
    del server.files["/ATT-LTE-driving-2016.up"]
    result = taken(source, archive, FetchOptions())
    assert result.kept == ["att-lte-driving-2016", "tmobile-umts-driving"]
    assert list(archive.entry("att-lte-driving-2016").parts) == ["downlink"]
    assert list(result.left_out) == ["ATT-LTE-driving-2016.up"]


def test_a_web_page_is_not_taken_for_a_file(archive: Archive, server: FileServer) -> None:
    source = at_server(find_source("cork-5g"), server, {"data.zip": b"<html>Search</html>"})
    server.kinds["/data.zip"] = "text/html; charset=utf-8"
    with pytest.raises(TraceError, match=r"a web page instead of the file: .*--from"):
        taken(source, archive, FetchOptions())


def test_a_damaged_archive_is_not_kept(archive: Archive, server: FileServer) -> None:
    good = examples.cork_5g()
    source = at_server(find_source("cork-5g"), server, {"data.zip": good[: len(good) // 2]})
    with pytest.raises(TraceError, match="damaged"):
        taken(source, archive, FetchOptions())
    assert taken(at_server(source, server, {"data.zip": good}), archive, FetchOptions()).kept


def test_files_that_give_no_entry_are_refused_with_the_reason(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no file of the documented layout"):
        given("cork-4g", archive, {"a.csv": b"x,y\n1,2\n"}, tmp_path / "got")
    with pytest.raises(TraceError, match="there is no file or folder"):
        taken(find_source("cork-4g"), archive, FetchOptions(given=[tmp_path / "nowhere"]))
    (tmp_path / "ATT-LTE-driving.up").write_bytes(examples.lines(1, 2, 3))
    with pytest.raises(TraceError, match=r"none of its entries is called 'no\*' .*such as 'att-lte-driving'"):
        taken(find_source("mahimahi"), archive, FetchOptions(given=[tmp_path], only="no*"))
    add(archive, "att-lte-driving")
    with pytest.raises(TraceError, match="the archive has a 'att-lte-driving' that is not of this data set"):
        taken(find_source("mahimahi"), archive, FetchOptions(given=[tmp_path]))


def test_a_folder_is_converted_where_it_is(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "ATT-LTE-driving.up").write_bytes(examples.lines(1, 2, 3))
    options = FetchOptions(given=[tmp_path])
    assert taken(find_source("mahimahi"), archive, options).kept == ["att-lte-driving"]
    again = taken(find_source("mahimahi"), archive, options)
    assert (again.kept, again.there) == ([], ["att-lte-driving"])


def test_replacing_puts_entries_anew(archive: Archive, tmp_path: Path) -> None:
    given("mahimahi", archive, examples.mahimahi(), tmp_path / "one", only="tmobile*")
    result = given("mahimahi", archive, examples.mahimahi(), tmp_path / "two", replace=True)
    assert result.kept == ["att-lte-driving-2016", "tmobile-umts-driving"]
    assert not result.there


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return cellbed("traces", "fetch", *arguments)


def test_the_command_lists_what_there_is_and_suggests_a_name() -> None:
    assert "cork-5g" in run().stdout
    refused = run("cork")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "no data set is called 'cork': did you mean 'cork-4g' or 'cork-5g'?" in refused.stderr
    reported = json.loads(run("--json").stdout)
    assert [each["name"] for each in reported] == [source.name for source in SOURCES]
    mahimahi = next(each for each in reported if each["name"] == "mahimahi")
    assert all(each["checksum"].startswith("git-blob:") for each in mahimahi["files"])


def test_fetch_prints_new_entries_and_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "set.zip").write_bytes(examples.cork_4g())
    done = run("cork-4g", "--from", str(tmp_path / "set.zip"))
    kept = ["cork-4g-bus-a-2018-02-05-133550", "cork-4g-pedestrian-b-2018-01-17-155648"]
    assert (done.returncode, done.stdout.splitlines()) == (0, kept)
    assert "left out: Dataset/static/B_2018.01.18_15.56.48.csv" in done.stderr
    assert "licence: CC-BY-4.0" in done.stderr
    assert "\x1b" not in done.stderr
    again = run("cork-4g", "--from", str(tmp_path / "set.zip"), "--json")
    assert json.loads(again.stdout)["there"] == kept


# Downloads from a server that misbehaves in the ways servers do.


def fetched(server: FileServer, folder: Path, checksum: Checksum | None = None, **options: Any) -> Path:
    return download(RemoteFile(f"{server.address}/data.zip", "data.zip", checksum), folder, **options)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_once_and_nothing_else_stays(server: FileServer, tmp_path: Path) -> None:
    seen: list[str] = []
    assert fetched(server, tmp_path, SHA256, state=seen.append).read_bytes() == CONTENT
    assert seen[-1] == "data.zip: 0.3 of 0.3 MB"
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


def test_an_unreachable_server_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"refused\): try again later, or download it elsewhere .*\(--from\)"):
        download(RemoteFile("http://127.0.0.1:9/x", "x"), tmp_path)


def test_a_cut_that_nobody_can_see_is_found_by_the_checksum(server: FileServer, tmp_path: Path) -> None:
    server.length = False
    server.cut_after["/data.zip"] = [1000]
    with pytest.raises(TraceError, match="not have the published checksum"):
        fetched(server, tmp_path, SHA256)
    assert left(tmp_path) == []
    server.cut_after.clear()
    assert fetched(server, tmp_path, SHA256).read_bytes() == CONTENT


def test_checksums_are_those_of_the_publishers_tools(tmp_path: Path) -> None:
    path = tmp_path / "hello"
    path.write_bytes(b"hello\n")
    assert digest(path, "git-blob") == "ce013625030ba8dba906f756967f9e9ca394464a"  # git hash-object
    assert digest(path, "md5") == "b1946ac92492d2347c6235b4d2611184"


@pytest.mark.parametrize(
    ("to", "says"),
    [
        ("/data.zip", "answers 302"),
        ("ftp://127.0.0.1/x", "which is not HTTPS"),
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


def test_a_server_that_is_busy_or_falls_silent_is_asked_again(server: FileServer, tmp_path: Path) -> None:
    server.statuses["/data.zip"] = [503, 429]
    server.stalls.add("/data.zip")
    news: list[str] = []
    assert fetched(server, tmp_path, report=news.append).read_bytes() == CONTENT
    assert "the server answers 503 (Service Unavailable): retry in 10 ms, attempt 2 of 5" in news


# Archives that nobody vouches for: their files come out, and nothing else happens.

Files = dict[str, bytes]
BOTH = pytest.mark.parametrize(("pack", "name"), [(examples.zipped, "a.zip"), (examples.tarred, "a.tar.gz")])


def unpacked(archive: Path, folder: Path) -> Files:
    folder.mkdir(exist_ok=True)
    unpack(archive, folder)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@BOTH
def test_all_files_come_out(pack: Callable[[Files], bytes], name: str, tmp_path: Path) -> None:
    files = {"set/a.csv": b"1\n" * 100, "set/deep/b.csv": b"2", "set/c.txt": b"3"}
    (tmp_path / name).write_bytes(pack(files))
    assert unpacked(tmp_path / name, tmp_path / "all") == files


@BOTH
@pytest.mark.parametrize("evil", ["../evil", "/etc/evil"])
def test_no_file_leaves_its_folder(pack: Callable[[Files], bytes], name: str, evil: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(pack({"good": b"1", evil: b"x"}))
    with contextlib.suppress(TraceError):
        unpacked(tmp_path / name, tmp_path / "out")
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} <= {name, "out"}
    assert not Path("/etc/evil").exists()
