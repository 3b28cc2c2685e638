"""Pages that Chromium loads from nginx and Caddy: generated files, errors, real runs, and what is left after them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from cellbed.workloads.browsing.origins import find_browser
from cellbed.workloads.web.pages import hosts, pages, write
from cellbed_node.browsing.browser import Browser
from cellbed_node.browsing.netlog import NetLog
from cellbed_node.lifecycle import WorkloadError
from cellbed_node.processes import find as find_program
from in_process import cellbed, run_scenario
from packet_logs import lateness_s
from run_commands import apply_marks
from scenario_text import NODES
from workload_needs import end_run, needs_browser, needs_nginx, needs_openssl

STUDY = {"google": 1_500_000, "facebook": 4_300_000, "amazon": 5_000_000, "cnn": 7_200_000, "netflix": 10_300_000}
"""Bytes of the pages of Lim et al., §VII-A."""
NAMED = f'name = "web"\nduration = "6 s"\nseed = 3\n{NODES}\n'
APP = '[apps.web]\nkind = "web"\nserver = "edge"\n'
PATIENT = 'timeout = "5 min"\ndrain = "5 min"\n'
SITE = {
    "index.html": '<link rel="icon" href="data:,"><link rel="stylesheet" href="a.css"><h1>x</h1><img src="b.png">',
    "a.css": "h1{color:red}/*" + "x" * 50_000 + "*/",
    "b.png": "no picture " * 2000,
}


real = apply_marks(pytest.mark.needs_tun, needs_browser, needs_nginx, needs_openssl)
"""A test with a browser on a node."""


def _site(folder: Path) -> None:
    (folder / "site").mkdir()
    for name, content in SITE.items():
        (folder / "site" / name).write_text(content)


def _requests(run: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the loads of a run and their objects."""
    table = pl.read_parquet(run / "requests.parquet")
    return table.filter(app="web"), table.filter(app="web:objects")


@pytest.mark.parametrize("name", STUDY)
def test_generated_pages_have_exactly_the_bytes_of_the_study(tmp_path: Path, name: str) -> None:
    write(name, tmp_path / "a")
    objects = pages()[name]
    sizes = {f"{hosts(name)[each.origin]}/{each.path.lstrip('/') or 'index.html'}": each.size for each in objects}
    found = {str(file.relative_to(tmp_path / "a")): file for file in (tmp_path / "a").rglob("*") if file.is_file()}
    assert {key: file.stat().st_size for key, file in found.items()} == sizes
    assert sum(sizes.values()) == STUDY[name]
    for each in objects[1:]:
        parent = objects[each.parent]
        text = found[f"{hosts(name)[parent.origin]}/{parent.path.lstrip('/') or 'index.html'}"].read_text()
        assert f"https://{hosts(name)[each.origin]}{each.path}" in text
    if name == "google":
        write(name, tmp_path / "b")
        assert all(file.read_bytes() == Path(str(file).replace("/a/", "/b/")).read_bytes() for file in found.values())


@needs_browser
@needs_nginx
@needs_openssl
def test_a_folder_for_temporary_files_with_a_long_path_is_an_error_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(f'{NAMED}{APP}page = "google"\nrate = "1 /s"\n')
    done = cellbed("run", tmp_path / "x.toml", "--dry-run", env={"TMPDIR": str(tmp_path)}, status=2)
    assert "apps.web.kind: sockets of the browser need a short path, and TMPDIR is longer" in done.stderr


def test_a_log_of_the_network_that_is_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    types = {"TCP_CONNECT": 1, "SOCKET_BYTES_SENT": 2}
    lines = [json.dumps({"constants": {"logEventTypes": types}}, separators=(",", ":"))[:-1] + ",", '"events": [']
    address = {"local_address": "10.0.0.1:5000", "remote_address": "10.0.0.2:8443"}
    for number, (phase, params) in {1: (1, {}), 2: (2, address)}.items():
        event = {"params": params, "phase": phase, "source": {"id": 7}, "time": str(number), "type": 1}
        lines.append(json.dumps(event, separators=(",", ":")) + ",")
    path = tmp_path / "net.json"
    path.write_text("\n".join([*lines, '{"params":{"byte_c']))
    log = NetLog(path)
    log.read()
    assert (log.wires[7].local_port, log.wires[7].remote_port) == (5000, 8443)
    with path.open("a") as file:
        file.write('ount":9},"phase":0,"source":{"id":7},"time":"3","type":2},\n')
    log.read()
    assert log.wires[7].sent == 9


@real
def test_a_page_is_measured_and_every_object_is_found_in_the_packet_log(tmp_path: Path) -> None:
    run = run_scenario(tmp_path, f'{NAMED}{APP}page = "google"\narrivals = "closed"\n{PATIENT}', "--no-limits")
    loads, objects = _requests(run)
    assert set(loads["status"]) == {"ok"}
    assert set(loads["objects"]) == {len(pages()["google"])}
    assert set(loads["broken"]) == set(loads["cached"]) == {0}
    # Two origins; one more connection is for fonts, which come without credentials.
    assert all(2 <= count <= 4 for count in loads["connections"])
    assert all(STUDY["google"] < size < 1.05 * STUDY["google"] for size in loads["bytes_down"])
    times = loads.select("first_byte_s", "first_paint_s", "largest_paint_s", "latency_s")
    assert times.null_count().sum_horizontal().item() == 0
    for row in times.iter_rows(named=True):
        assert 0.026 < row["first_byte_s"] < row["first_paint_s"] <= row["largest_paint_s"]
        assert row["latency_s"] > 0.6  # 1.5 MB at 20 Mbit/s
    # Parts add up: of objects to the emulator's lateness, of a load exactly.
    assert len(objects) == len(loads) * len(pages()["google"])
    assert set(objects["status"]) == {"ok"}
    assert set(objects["protocol"]) == {"h2"}
    assert objects["residual_s"].null_count() == 0
    assert objects["residual_s"].median() < 1e-3 + lateness_s(run)  # type: ignore[operator]
    assert (objects["part_uplink_delay"] > 0.0129).all()  # 10 and 3 ms
    assert (loads["residual_s"].abs() < 1e-6).all()
    sizes = {f"https://{hosts('google')[each.origin]}{each.path}": each.size for each in pages()["google"]}
    for row in objects.iter_rows(named=True):
        assert 0 < row["bytes_down"] - sizes[row["url"]] < 2000
    for number in loads["request"]:
        (har,) = (run / "har" / "web").glob(f"*.{number:04}.har")
        log = json.loads(har.read_text())["log"]
        assert {each["request"]["url"] for each in log["entries"]} == set(sizes)
        assert log["pages"][0]["pageTimings"]["onLoad"] > 0
    page = (run / "report.html").read_text()
    assert "Objects of a load" in page
    assert "(synthetic)" in page


@real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "protocol"),
    [
        ('version = "1.1"\n', "http/1.1"),
        ('software = "caddy"\n', "h2"),
        ('software = "caddy"\nversion = "3"\n', "h3"),
        ('version = "1.1"\ncache = "warm"\n', "http/1.1"),
    ],
)
def test_versions_servers_and_a_warm_cache(tmp_path: Path, keys: str, protocol: str) -> None:
    if "caddy" in keys and find_program("caddy") is None:
        pytest.skip("caddy is not installed")
    _site(tmp_path)
    text = f'{NAMED}{APP}root = "site"\narrivals = "closed"\n{keys}{PATIENT}'
    run = run_scenario(tmp_path, text, "--no-limits")
    loads, objects = _requests(run)
    assert set(loads["status"]) == {"ok"}
    assert set(loads["objects"]) == {3}
    assert set(objects["protocol"]) == {protocol}
    assert set(loads["cached"]) == ({2} if "warm" in keys else {0})
    assert objects["residual_s"].null_count() == 0
    assert objects["residual_s"].median() < 2e-3 + lateness_s(run)  # type: ignore[operator]


NEVER = """
import socket, threading, time
listening = socket.create_server(("", 8000))
page = b"<link rel=icon href=data:,><h1>x</h1><img src=/never.png>"
def serve(peer):
    if peer.recv(9999).startswith(b"GET / "):
        head = "HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\nContent-Length: %d\\r\\n\\r\\n"
        peer.sendall((head % len(page)).encode() + page)
    time.sleep(1000)
while True:
    threading.Thread(target=serve, args=listening.accept()[:1], daemon=True).start()
"""


@real
@pytest.mark.slow
def test_a_page_that_never_ends_loading_is_given_up_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "never.py").write_text(NEVER)
    server = (
        f'server = {{ on = "edge", command = "{sys.executable} {tmp_path}/never.py", ready = {{ port = 8000 }} }}\n'
    )
    keys = 'url = "http://{server.address}:8000/"\nversion = "1.1"\nrate = "0.5 /s"\ntimeout = "4 s"\n'
    text = f'{NAMED}[apps.web]\nkind = "web"\n{keys}{server}'
    loads, _ = _requests(run_scenario(tmp_path, text, "--no-limits", status=1))
    assert set(loads["status"]) == {"timed-out"}
    # A busy machine opens a page too late for some.
    assert any("did not finish loading" in error for error in loads["error"])


@real
@pytest.mark.parametrize(
    "how", [*(pytest.param(how, marks=pytest.mark.slow) for how in (None, signal.SIGINT)), signal.SIGKILL]
)
def test_the_browser_of_a_run_is_sandboxed_and_none_outlives_it(tmp_path: Path, how: signal.Signals | None) -> None:
    text = NAMED if how is None else NAMED.replace("6 s", "60 s")
    text = f'{text}{APP}page = "google"\narrivals = "closed"\n{PATIENT}'
    with end_run(tmp_path, text, "*/har/web/*.har", how) as ours:
        browsers = {pid: line for pid, line in ours.items() if b"--remote-debugging-pipe" in line}
        assert browsers
        assert not any(b"--no-sandbox" in line for line in browsers.values())
        for pid in browsers:
            with suppress(FileNotFoundError):  # one of them may have ended
                assert Path(f"/proc/{pid}").stat().st_uid != 0
        assert any(line.startswith(b"nginx") for line in ours.values())


@needs_browser
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which has no other user")
def test_a_browser_that_cannot_have_a_sandbox_runs_without_and_says_so(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from cellbed_node.browsing.browser import Browser
from cellbed.workloads.browsing.origins import find_browser
browser = Browser(find_browser(), [], Path({str(tmp_path)!r}), lambda *_: None)
while not (line := Path(f"/proc/{{browser.process.pid}}/cmdline").read_text()):
    assert browser.process.poll() is None
print(line, flush=True)
browser.close()
"""
    command = ["unshare", "--map-root-user", sys.executable, "-P", "-c", script]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    note, line = printed.splitlines()
    assert "the browser runs without a sandbox: Chromium's sandbox is not possible here" in json.loads(note)["text"]
    assert "--no-sandbox" in line


@needs_browser
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose browser is another user")
def test_the_browser_of_root_needs_a_folder_that_others_can_enter(tmp_path: Path) -> None:
    (tmp_path / "closed" / "b").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    with pytest.raises(WorkloadError, match=r"cannot enter .*: export TMPDIR=/var/tmp"):
        Browser(find_browser(), [], tmp_path / "closed" / "b", lambda *_: None)


def _predict(folder: Path, text: str, status: int = 0) -> pl.DataFrame:
    """Return the requests of a prediction with a browser that takes 200 ms for a page."""
    folder.mkdir()
    samples = {"web": [{"browser": 200_000_000, "generator": 0}] * 10}
    (folder / "profile.json").write_text(json.dumps({"format": 6, "source": "a test", "applications": samples}))
    run = run_scenario(folder, text, "--virtual", "--profile", folder / "profile.json", status=status)
    return pl.read_parquet(run / "requests.parquet")


@pytest.mark.parametrize(("version", "connections"), [("1.1", range(16, 23)), ("2", [7])])
def test_a_page_is_predicted_without_a_browser(tmp_path: Path, version: str, connections: Sequence[int]) -> None:
    text = NAMED + APP + f'page = "amazon"\nversion = "{version}"\narrivals = "closed"\n{PATIENT}'
    found = _predict(tmp_path / "near", text)
    loads, objects = (found.filter(pl.col("app") == name) for name in ("web", "web:objects"))
    assert loads["status"].unique().to_list() == ["ok"]
    assert set(loads["connections"]) <= set(connections)  # Chromium opened 19 and 7
    least_s = 5_000_000 * 8 / 20e6
    assert all(least_s < latency_s < 2 * least_s for latency_s in loads["latency_s"])
    first = objects.filter(pl.col("load") == 0).sort("request")
    assert first["step"][0] == "document"
    assert len(first) == len(pages()["amazon"])
    assert first["bytes_down"].sum() > 5_000_000
    far = _predict(tmp_path / "far", text.replace('"3 ms"', '"60 ms"'))
    assert far.filter(pl.col("app") == "web")["latency_s"].min() > loads["latency_s"].max()


def test_a_predicted_page_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    text = NAMED + APP + 'page = "amazon"\narrivals = "closed"\ntimeout = "1 s"\n'
    loads = _predict(tmp_path / "slow", text, status=1).filter(pl.col("app") == "web")
    assert loads["status"].unique().to_list() == ["timed-out"]
    assert len(loads) > 2


def test_a_page_that_cannot_be_predicted_is_an_error_of_its_keys(tmp_path: Path) -> None:
    _site(tmp_path)
    app = f'root = "site"\nversion = "3"\nsoftware = "caddy"\ncache = "warm"\n{PATIENT}arrivals = "closed"\n'
    (tmp_path / "x.toml").write_text(NAMED + APP + app)
    done = cellbed("run", tmp_path / "x.toml", "--virtual")
    assert done.returncode != 0
    for key in ("root", 'version = "3"', 'cache = "warm"'):
        assert key in done.stderr
