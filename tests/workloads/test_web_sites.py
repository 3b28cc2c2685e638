"""Recorded sites: HARs, WARC files and Mahimahi's folders, matching, replay to a browser, and recording."""

import contextlib
import gzip
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h11
import polars as pl
import pytest

from cellbed.archive import Archive
from cellbed.scenario import parse
from cellbed.workloads.web import mahimahi
from cellbed_node.processes import find as find_program
from cellbed_node.web import warc
from cellbed_node.web.matcher import Matcher
from cellbed_node.web.site import Exchange, Replies, SiteError, split
from descendants import descendants, words
from in_process import cellbed
from packet_logs import lateness_s
from run_commands import apply_marks, free_port, only_folder, run
from scenario_text import NODES
from shell_world import wait_until
from site_examples import ADDRESSES, BODIES, PAGE, har
from site_examples import mahimahi as write_mahimahi
from workload_needs import needs_browser, needs_nginx

NAMED = f'name = "web"\nduration = "6 s"\nseed = 3\n{NODES}\n'
APP = '[apps.web]\nkind = "web"\nserver = "edge"\narrivals = "closed"\ntimeout = "5 min"\ndrain = "5 min"\n'
needs_proxy = pytest.mark.skipif(find_program("mitmdump") is None, reason="mitmproxy is not installed")
slow_with_proxy = apply_marks(needs_browser, needs_proxy, pytest.mark.slow)


def _imported(folder: Path, **changes: object) -> Path:
    (folder / "shop.har").write_text(json.dumps(har(**changes)))
    cellbed("web", "import", folder / "shop.har", "-o", folder / "shop.warc.gz", status=0)
    return folder / "shop.warc.gz"


def _check(exchanges: list[Exchange]) -> None:
    """Compare a site, from any kind of file, with the example."""
    assert [each.url for each in exchanges] == list(BODIES)
    for each in exchanges:
        kind, body = BODIES[each.url]
        reply = dict(each.reply)
        assert (gzip.decompress(each.body) if kind == "text/css" else each.body) == body
        assert {name.lower(): value for name, value in reply.items()} == {
            "content-type": kind,
            "x-origin": each.url,
            **({"content-encoding": "gzip"} if kind == "text/css" else {}),
        }
        assert each.address == ADDRESSES[each.origin.host]


def test_a_har_becomes_a_warc_file_with_every_reply(tmp_path: Path) -> None:
    site = warc.read(_imported(tmp_path))
    _check(list(site.exchanges))
    assert site.page == PAGE
    assert {each.date for each in site.exchanges} == {"2026-02-03T03:05:06.789000Z"}
    shown = [line.split() for line in cellbed("web", "show", tmp_path / "shop.warc.gz").stdout.splitlines()]
    size = sum(len(each.body) for each in site.exchanges)
    assert [words[:3] for words in shown[1:3]] == [
        ["https://www.shop.test", "203.0.113.5", "3"],
        ["https://cdn.shop.test", "203.0.113.6", "2"],
    ]
    assert shown[3:] == [["2", "origins", "5", f"{size:,}"], ["page:", PAGE]]


def test_a_site_is_an_entry_of_the_archive(tmp_path: Path, archive: Archive) -> None:
    file = _imported(tmp_path)
    assert "added www-shop-test" in cellbed("web", "import", file, status=0).stdout
    assert "already has 'www-shop-test'" in cellbed("web", "import", file, status=2).stderr
    cellbed("web", "import", file, "--name", "shop", status=0)
    size = sum(len(each.body) for each in warc.read(file).exchanges)
    (row,) = json.loads(cellbed("traces", "ls", "shop", "--where", "name = shop", "--json").stdout)
    assert (row["site_origins"], row["site_objects"], row["site_bytes"]) == (2, 5, size)
    assert row["date"] == "2026-02-03T03:05:06.789000Z"
    shown = cellbed("traces", "show", "shop").stdout
    for line in (f"source: {PAGE}", f"page: {PAGE}", 'in a scenario: site = "shop"'):
        assert line in shown
    assert ["https://cdn.shop.test", "203.0.113.6", "2"] in [line.split()[:3] for line in shown.splitlines()]
    assert cellbed("web", "show", "shop").stdout == cellbed("web", "show", file).stdout
    scenario = parse(f'{NAMED}{APP}site = "shop"\n', source="x.toml", folder=tmp_path)
    kept = scenario.applications["web"].site  # type: ignore[attr-defined]
    _check(list(warc.read(kept).exchanges))
    cellbed("traces", "verify", "shop", status=0)
    kept.write_bytes(kept.read_bytes()[:-1])
    assert "its SHA-256 differs" in cellbed("traces", "verify", "shop").stdout
    done = cellbed("traces", "export", "shop", "--format", "mahimahi", "-o", "x")
    assert "cannot be written as mahimahi" in done.stderr
    cellbed("traces", "rm", "shop", status=0)
    assert "shop" not in archive.names()


def test_other_tools_read_our_warc_files(tmp_path: Path) -> None:
    reader = pytest.importorskip("warcio.archiveiterator", reason="warcio is not installed")
    with _imported(tmp_path).open("rb") as file:
        bodies = {}
        for record in reader.ArchiveIterator(file, check_digests=True):
            if record.rec_type == "response":
                bodies[record.rec_headers.get_header("WARC-Target-URI")] = record.content_stream().read()
    assert bodies == {url: body for url, (_, body) in BODIES.items()}


def test_warc_files_of_wget_are_read(tmp_path: Path) -> None:
    if find_program("wget") is None:
        pytest.skip("wget is not installed")
    (tmp_path / "www").mkdir()
    (tmp_path / "www" / "index.html").write_text("<h1>x</h1><img src=b.png>")
    (tmp_path / "www" / "b.png").write_bytes(bytes(range(256)) * 300)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    server = subprocess.Popen(
        command, cwd=tmp_path / "www", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        url = server.stdout.readline().split("(")[1].split(")")[0]
        wget = ["wget", "-q", "-p", url, "--warc-file", tmp_path / "x", "-P", tmp_path / "out"]
        subprocess.run(wget, check=False, timeout=200)
    finally:
        server.kill()
        server.wait()
    site = warc.read(tmp_path / "x.warc.gz")
    assert site.page == url
    assert {each.url.removeprefix(url): each.body for each in site.exchanges if each.status == 200} == {
        path.replace("index.html", ""): (tmp_path / "www" / path).read_bytes() for path in ("index.html", "b.png")
    }
    assert all(("User-Agent" in dict(each.request)) for each in site.exchanges)


def test_folders_of_mahimahi_are_read_in_the_order_of_their_files(tmp_path: Path) -> None:
    write_mahimahi(tmp_path / "recorded")
    for number, file in enumerate(sorted((tmp_path / "recorded").iterdir(), reverse=True)):
        os.utime(file, ns=(number * 10**9, number * 10**9))
    _check(list(mahimahi.read(tmp_path / "recorded").exchanges))
    cellbed("web", "import", tmp_path / "recorded", "-o", tmp_path / "x.warc", status=0)
    _check(list(warc.read(tmp_path / "x.warc").exchanges))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("x.warc", b"", "not a WARC file"),
        ("x.har", b'{"log": 3}', "not an HTTP Archive"),
        ("x.har", json.dumps(har(text=None)).encode(), "export it with contents"),
    ],
)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    done = cellbed("web", "import", tmp_path / name, "-o", tmp_path / "site.warc", status=2)
    assert done.stderr.startswith(f"error: {tmp_path / name}: ")
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "site.warc").exists()


def test_a_damaged_file_of_mm_webrecord_is_left_out_and_named(tmp_path: Path) -> None:
    write_mahimahi(tmp_path / "recorded")
    file = tmp_path / "recorded" / "save.9"
    good = file.read_bytes()
    for end in (0, 1, 5, 20, len(good) // 2, len(good) - 1):
        file.write_bytes(good[:end])
        site = mahimahi.read(tmp_path / "recorded")
        assert site.left_out.named == ["save.9: not a whole file of mm-webrecord"]
        assert {each.url for each in site.exchanges} == set(BODIES) - {PAGE}
    # A number in place of a text.
    file.write_bytes(good + b"\x08" + b"\xff" * 8 + b"\x7f")
    assert mahimahi.read(tmp_path / "recorded").left_out.named == ["save.9: not a whole file of mm-webrecord"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(SiteError, match=r"no file of it is whole \(notes\.txt: not a whole file"):
        mahimahi.read(tmp_path / "other")


def test_requests_match_as_with_mahimahi() -> None:
    def made(url: str, agent: str, method: str = "GET") -> Exchange:
        origin, target = split(url)
        request = (("User-Agent", agent),)
        return Exchange(method=method, origin=origin, target=target, status=200, reply=(), request=request)

    found = Replies(
        [
            made("https://a.test/x?id=17&t=100", "one"),
            made("https://a.test/x?id=25&t=100", "one"),
            made("https://a.test/x?id=25&t=200", "two"),
            made("https://a.test/x?id=2", "one"),
            made("https://a.test/x", "one"),
            made("http://a.test/x", "one"),
            made("https://a.test:8443/y", "one", "POST"),
        ]
    )

    def target(method: str, origin: str, path: str, agent: str = "one") -> str | None:
        each = found.find(method, origin, path, agent)
        return each.url if each is not None else None

    # The longest common prefix of the query, among those of an equal User-Agent.
    assert target("GET", "https://a.test", "/x?id=25&t=999") == "https://a.test/x?id=25&t=100"
    assert target("GET", "https://a.test", "/x?id=2") == "https://a.test/x?id=2"
    assert target("GET", "https://a.test", "/x?id=1") == "https://a.test/x?id=17&t=100"
    assert target("GET", "https://a.test", "/x?id=25&t=999", "two") == "https://a.test/x?id=25&t=200"
    assert target("GET", "https://a.test", "/x?other", "nobody") == "https://a.test/x?id=17&t=100"
    assert target("GET", "https://a.test", "/x") == "https://a.test/x"
    assert target("GET", "http://a.test", "/x") == "http://a.test/x"
    # Scheme, host, port, method and path are equal, and so is whether there is a query.
    assert target("GET", "http://a.test", "/x?id=25") is None
    assert target("GET", "https://b.test", "/x") is None
    assert target("POST", "https://a.test", "/x") is None
    assert target("GET", "https://a.test", "/X") is None
    assert target("POST", "https://a.test:8443", "/y") == "https://a.test:8443/y"
    assert target("POST", "https://a.test", "/y") is None


def test_unmatched_requests_are_answered_with_404_and_counted() -> None:
    matcher = Matcher(Replies([]))
    assert matcher.note is None
    for number in (1, 1, 2):
        headers = [("Host", "x"), ("Cellbed-Origin", "https://a.test")]
        reply, _ = matcher.answer(h11.Request(method="GET", target=f"/{number}", headers=headers))
        assert reply.status_code == 404
    assert matcher.note == (
        "3 requests matched no recorded one and were answered with 404: GET https://a.test/1 (2×), "
        "GET https://a.test/2 (1×)"
    )


def _replayed(
    folder: Path, keys: str, name: str = "shop.warc.gz", head: str = NAMED
) -> tuple[pl.DataFrame, pl.DataFrame, str]:
    """Run a scenario with a site: its loads and objects, and what it printed."""
    (folder / "x.toml").write_text(f'{head}{APP}site = "{name}"\n{keys}')
    done = cellbed("run", folder / "x.toml", "--no-limits", "--out", folder / "runs", status=0)
    (run,) = (folder / "runs").iterdir()
    table = pl.read_parquet(run / "requests.parquet")
    return table.filter(app="web"), table.filter(app="web:objects"), done.stdout


@pytest.mark.needs_tun
@needs_browser
@needs_nginx
def test_a_site_is_replayed_with_origins_at_different_distances(tmp_path: Path) -> None:
    _imported(tmp_path)
    nodes = '[nodes.cloud]\ncpus = 1.0\nmemory = "256 MiB"\n[links.core]\nedge = "3 ms"\ncloud = "40 ms"\n'
    head = NAMED.split("[links.core]")[0] + nodes
    loads, objects, printed = _replayed(tmp_path, 'origins = { "cdn.*" = "cloud" }\n', head=head)
    assert set(loads["status"]) == {"ok"}
    assert set(loads["broken"]) <= {0, 1, 2}
    assert set(objects["protocol"].drop_nulls()) == {"h2"}
    good = objects.filter(status="ok")
    found = {row["url"].replace("RANDOM", "1") for row in good.iter_rows(named=True)}
    assert found == set(BODIES) - {"https://cdn.shop.test/b.png?size=3&stamp=1"}
    for row in good.iter_rows(named=True):
        size = len(BODIES[row["url"].replace("RANDOM", "1")][1])
        # The stylesheet is compressed; not all headers count.
        assert row["bytes_down"] < 2000 if "a.css" in row["url"] else abs(row["bytes_down"] - size) < 2000
        assert (row["part_uplink_delay"] > 0.049) == ("cdn" in row["url"])
    lateness = lateness_s(only_folder(tmp_path / "runs"))
    assert objects["residual_s"].drop_nulls().median() < 2e-3 + lateness  # type: ignore[operator]
    assert "requests matched no recorded one" in printed
    assert "https://www.shop.test/missing.json" in printed
    assert "requests of hosts that the testbed does not have failed: elsewhere.test" in printed


@pytest.mark.needs_tun
@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("keys", "protocol"), [('version = "1.1"\n', "http/1.1"), ('version = "3"\n', "h3")])
def test_versions_of_a_replay_by_caddy(tmp_path: Path, keys: str, protocol: str) -> None:
    if find_program("caddy") is None:
        pytest.skip("caddy is not installed")
    _imported(tmp_path)
    loads, objects, said = _replayed(tmp_path, f'software = "caddy"\n{keys}')
    assert set(loads["status"]) == {"ok"}
    assert set(objects["protocol"].drop_nulls()) == {protocol}
    assert len(objects.filter(status="ok")["url"].unique()) == len(BODIES) - 1
    assert "requests matched no recorded one" in said


@pytest.mark.needs_tun
@pytest.mark.slow
@pytest.mark.timeout(400)
@needs_browser
@needs_nginx
@pytest.mark.parametrize(
    ("secured", "versions"), [([], "over HTTP/1.1,"), (["cdn"], "over HTTP/2, without TLS HTTP/1.1,")]
)
def test_origins_without_tls_are_served_so_and_their_loads_have_parts(
    tmp_path: Path, secured: list[str], versions: str
) -> None:
    text = json.dumps(har()).replace("https://", "http://")
    for name in secured:
        text = text.replace(f"http://{name}.", f"https://{name}.")
    (tmp_path / "shop.har").write_text(text)
    cellbed("web", "import", tmp_path / "shop.har", "-o", tmp_path / "shop.warc.gz", status=0)
    loads, objects, output = _replayed(tmp_path, "")
    assert versions in output
    good = objects.filter(status="ok")
    assert {row["url"].partition(":")[0] + " " + row["protocol"] for row in good.iter_rows(named=True)} == {
        "http http/1.1",
        *(["https h2"] if secured else []),
    }
    assert good["residual_s"].null_count() == 0
    assert loads.filter(status="ok")["residual_s"].null_count() == 0
    opened = good.filter(pl.col("part_connect_uplink") > 0)
    assert len(opened.filter(pl.col("url").str.starts_with("http:"))) > 0


NGINX = """
daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{}}
http {{
    access_log off; client_body_temp_path t; fastcgi_temp_path t; proxy_temp_path t;
    scgi_temp_path t; uwsgi_temp_path t;
    types {{ text/html html; text/css css; image/png png; }}
    gzip on; gzip_types text/css;
    server {{ listen 127.0.0.1:{0}; root {2}; }}
    server {{ listen 127.0.0.1:{1}; root {2}; add_header X-Origin two; }}
}}
"""


@pytest.fixture
def two_origins(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """URLs of two origins that nginx serves on this machine."""
    ports = free_port(), free_port()
    urls = f"http://127.0.0.1:{ports[0]}/", f"http://localhost:{ports[1]}/"
    files = tmp_path / "www"
    files.mkdir()
    (files / "index.html").write_text(f'<link rel="stylesheet" href="a.css"><h1>x</h1><img src="{urls[1]}b.png?q=1">')
    (files / "a.css").write_text("h1{color:red}" + "/* style */" * 2000)
    (files / "b.png").write_bytes(bytes(range(256)) * 200)
    (tmp_path / "nginx.conf").write_text(NGINX.format(*ports, files))
    command = ["nginx", "-p", str(tmp_path), "-e", "stderr", "-c", str(tmp_path / "nginx.conf")]
    server = subprocess.Popen(command)
    tables = Path(f"/proc/{server.pid}/net/tcp")
    while f":{ports[1]:04X} 00000000:0000 0A" not in tables.read_text():
        assert server.poll() is None
        time.sleep(0.01)
    yield urls
    server.kill()
    server.wait()


@needs_nginx
def test_a_har_of_playwright_has_every_reply(tmp_path: Path, two_origins: tuple[str, str], browser: Any) -> None:
    one, two = two_origins
    context = browser.new_context(record_har_path=tmp_path / "x.har", record_har_content="embed")
    context.new_page().goto(one)
    context.close()
    cellbed("web", "import", tmp_path / "x.har", "-o", tmp_path / "x.warc.gz", status=0)
    site = warc.read(tmp_path / "x.warc.gz")
    replies = {each.url: each for each in site.exchanges}
    assert site.page == one
    assert gzip.decompress(replies[f"{one}a.css"].body) == (tmp_path / "www" / "a.css").read_bytes()
    assert replies[f"{two}b.png?q=1"].body == (tmp_path / "www" / "b.png").read_bytes()
    assert replies[one].address == "127.0.0.1"


@pytest.mark.needs_tun
@pytest.mark.slow
@needs_browser
@needs_nginx
@needs_proxy
def test_a_site_is_recorded_and_every_object_of_it_replayed(tmp_path: Path, two_origins: tuple[str, str]) -> None:
    one, two = two_origins
    cellbed("web", "record", one, "-o", tmp_path / "x.warc.gz", status=0)
    site = warc.read(tmp_path / "x.warc.gz")
    replies = {each.url: each for each in site.exchanges}
    assert {one, f"{one}a.css", f"{two}b.png?q=1"} <= set(replies)
    assert replies[f"{two}b.png?q=1"].body == bytes(range(256)) * 200
    assert dict(replies[f"{one}a.css"].reply)["Content-Encoding"] == "gzip"
    assert {each.address for each in site.exchanges} == {"127.0.0.1"}
    loads, objects, _ = _replayed(tmp_path, 'version = "1.1"\n', name="x.warc.gz")
    assert set(loads["status"]) == {"ok"}
    assert set(loads["broken"]) <= {0, 1}  # no icon, there and here
    assert {one, f"{one}a.css", f"{two}b.png?q=1"} <= set(objects.filter(status="ok")["url"])


@slow_with_proxy
def test_recording_a_server_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    done = cellbed("web", "record", "http://127.0.0.1:4459/", "-o", tmp_path / "x.warc.gz", status=2)
    assert "http://127.0.0.1:4459/: no reply" in done.stderr
    assert not (tmp_path / "x.warc.gz").exists()


@contextlib.contextmanager
def recording(
    *options: str, before: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The recording of a page that never ends loading, while it loads."""
    with socket.create_server(("127.0.0.1", 0)) as site:
        url = f"http://127.0.0.1:{site.getsockname()[1]}/"
        words = [sys.executable, "-m", "cellbed", "web", "record", url, "-o", "/dev/null", *options]
        environment = os.environ | (env or {})
        with subprocess.Popen([*before, *words], stderr=subprocess.PIPE, text=True, env=environment) as process:
            try:
                while not select.select([site], [], [], 0.1)[0] and process.poll() is None:
                    pass
                yield process
            finally:
                process.terminate()


@slow_with_proxy
def test_the_browser_of_a_recording_is_sandboxed_and_nobody_else_reaches_its_proxy() -> None:
    with recording() as process:
        below = descendants(process.pid)
        (proxy,) = (line for line in below.values() if b"mitmdump" in line)
        browsers = {pid: line for pid, line in below.items() if b"/chromium" in line and b"--type=" not in line}
        assert browsers
        for pid, line in browsers.items():
            assert b"--no-sandbox" not in line
            assert b"--ignore-certificate-errors\0" not in line + b"\0"
            assert Path(f"/proc/{pid}").stat().st_uid != 0
        words = proxy.split(b"\0")
        port = int(words[words.index(b"--listen-port") + 1])
        # Another program has the port in the machine's network, and no connection of the browser.
        with socket.create_server(("127.0.0.1", port)) as other:
            other.settimeout(0.2)
            with pytest.raises(TimeoutError):
                other.accept()


@slow_with_proxy
def test_without_a_sandbox_nothing_is_recorded_unless_asked() -> None:
    alone = ["unshare", "--map-root-user"]  # with no user but root, whom the sandbox refuses
    with recording(before=alone) as process:
        assert process.wait() == 2
        assert re.search("sandbox is not possible here .* user namespaces .* --no-sandbox", process.stderr.read())
    with recording("--no-sandbox", before=alone) as process:
        assert process.poll() is None
        assert any(b"--no-sandbox" in line for line in descendants(process.pid).values())


@slow_with_proxy
@pytest.mark.timeout(400)
@pytest.mark.parametrize("part", [b"mitmdump", b"/chromium"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_recording_ends_with_an_error_when_its_proxy_or_browser_ends_or_stands_still(
    part: bytes, number: signal.Signals
) -> None:
    with recording() as process:
        below = descendants(process.pid)
        hit = [pid for pid, line in below.items() if part in line]
        assert hit
        for pid in hit:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        _, errors = process.communicate()
        assert process.returncode == 2
        assert errors.splitlines()[-1].startswith("error: ")
    wait_until(lambda: not any(words(pid) for pid in below))


@needs_browser
@needs_nginx
@pytest.mark.needs_tun
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_replay_whose_matcher_ends_or_stands_still_ends_and_names_it(tmp_path: Path, number: signal.Signals) -> None:
    _imported(tmp_path)
    (tmp_path / "x.toml").write_text(f'{NAMED}{APP.replace("5 min", "5 s")}site = "shop.warc.gz"\n')
    command = [sys.executable, "-P", "-m", "cellbed", "run", "x.toml", "--no-limits"]
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=-1, stderr=-1, text=True) as process:
        found: list[int] = []
        while not found and process.poll() is None:
            started = any("load started" in path.read_text() for path in tmp_path.glob("runs/*/events.jsonl"))
            found = [pid for pid, line in descendants(process.pid).items() if b"web.matcher" in line] * started
        for pid in found:
            os.kill(pid, number)
        _, errors = process.communicate()
    described = json.loads(next(tmp_path.glob("runs/*/run.json")).read_text())
    assert "web.edge-0.replies" in errors + str(described["warnings"])
    wait_until(lambda: not any(words(pid) for pid in found))


@slow_with_proxy
def test_a_recording_that_is_killed_leaves_no_process_and_no_folder() -> None:
    with tempfile.TemporaryDirectory(prefix="c-") as short:  # a browser needs short paths
        folder = Path(short)
        folder.chmod(0o711)
        environment = {"TMPDIR": short, "XDG_STATE_HOME": str(folder / "state")}
        with recording(env=environment) as process:
            below = descendants(process.pid)
            for program in (b"mitmdump", b"chrom"):
                assert program in b" ".join(below.values())
            process.kill()
            assert "Traceback" not in process.communicate()[1]
        wait_until(lambda: not any(words(pid) for pid in below))
        (left,) = folder.glob("cellbed-*")
        assert f"removed {left}, of a killed command" in run("clean", env=environment, status=0).stdout
        assert not list(folder.glob("cellbed-*"))
