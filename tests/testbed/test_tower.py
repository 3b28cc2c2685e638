"""Runs with a program at the tower, for root, ordinary users and containers; nothing is left of them."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import cellbed
from cellbed.measure.packets import read_packets
from cellbed.testbed.nodes.tower import MEMORY
from cellbed_node.processes import find
from container_images import image, needs_containers, own_folders
from moving_services import standing
from run_commands import command, only_folder, run
from scenario_text import app_table, scenario_head, server_keys, tables
from shell_world import ORDINARY_USER, World, missing, wait_until
from shell_world import cellbed as cellbed_of

__all__ = ["image", "own_folders"]

EXAMPLES = Path(cellbed.__path__[0]) / "examples"
needs_tproxy = pytest.mark.skipif(find("nft") is None or find("ip") is None, reason="needs nft and ip")
pytestmark = [pytest.mark.needs_tun, needs_tproxy]

#: Answers each connection with the client's address and what the client has sent, and ends.
SERVER = """
import socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        whole = b"".join(iter(lambda: self.request.recv(1 << 20), b""))
        self.request.sendall(self.client_address[0].encode() + b" " + whole)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 200
with Server(("", 8080), Handler) as server:
    server.serve_forever()
"""
CLIENT = """
import concurrent.futures, random, socket, sys
own, server, flows, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
def once(number):
    data = random.Random(number).randbytes(size)
    with socket.create_connection((server, 8080), timeout=60) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(1 << 20), b"")) == own.encode() + b" " + data
with concurrent.futures.ThreadPoolExecutor(flows) as pool:
    print(list(pool.map(once, range(2 * flows))))
"""
#: Accepts connections without IP_TRANSPARENT.
PLAIN = "import socket, time; s = socket.create_server(('', 5000)); time.sleep(1000)"
IDLE = "import time; time.sleep(1000)"


def scenario(proxy: str | None, flows: int = 4, size: int = 300_000, mast: Any = None, **server: Any) -> str:
    """Return a scenario whose clients compare what comes back. proxy: name of an example."""
    own = [sys.executable, "-c"]
    intercept = {"intercept": 5000} if proxy else {}
    nodes = {"endpoint": {"count": 2}, "cloud": {}, "mast": {"class": "tower", **intercept, **(mast or {})}}
    mobile = {"up": "20 Mbit/s", "down": "30 Mbit/s", "base_delay": "5 ms", "loss": {"downlink": "0.2 %"}}
    text = scenario_head(nodes, mobile=mobile, core={"cloud": "30 ms"}, name="tower", duration="6 s")
    if proxy:
        files = {str(EXAMPLES / f"{proxy}.py"): f"{proxy}.py", str(EXAMPLES.parent / "radio.py"): "radio.py"}
        program = [sys.executable, f"{proxy}.py", "5000"]
        text += app_table("proxy", server=server_keys(program, 5000, "mast", copy_in=files, **server))
    client = [*own, CLIENT, "{node.address}", "{server.address}", str(flows), str(size)]
    keys: dict[str, Any] = {"after": ["proxy"]} if proxy else {}
    return text + app_table(
        "echo", server=server_keys([*own, SERVER], 8080, "cloud"), client={"on": "endpoint", "command": client},
        drain="30 s", **keys,
    )  # fmt: skip


def folder_of(text: str, tmp_path: Path, *words: str) -> Path:
    (tmp_path / "run.toml").write_text(text)
    run("run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "runs"), "--no-limits", *words, status=0)
    return only_folder(tmp_path / "runs")


def answers(folder: Path) -> list[str]:
    return [path.read_text().strip() for path in sorted((folder / "raw").glob("echo.endpoint-*.client.out"))]


def pages() -> list[str]:
    """Return the folders of runs whose process has ended: other runs may be under way."""
    names = [path.name for path in MEMORY.glob("cellbed-run-*")]
    return [name for name in names if not Path("/proc", name.split("-")[2]).exists()]


@pytest.mark.parametrize(("proxy", "flows"), [(None, 2), ("tower-split", 4), ("tower-mmcptp", 2)])
def test_all_bytes_of_several_users_and_flows_pass_and_the_server_sees_the_endpoints(
    proxy: str | None, flows: int, tmp_path: Path
) -> None:
    folder = folder_of(scenario(proxy, flows), tmp_path)
    assert answers(folder) == [str([True] * 2 * flows)] * 2
    description = json.loads((folder / "run.json").read_text())
    assert not description["warnings"] or "lost" not in str(description["warnings"])
    log = read_packets(folder / "raw" / "packets.bin")
    names = {each["index"]: each["name"] for each in description["directions"]}
    hops = {
        (names[int(direction)], int(source))
        for direction, source in np.unique(log[["direction", "source_vertex"]])
        if int(source) in (0, 1)
    }
    assert hops == {("core-cloud-0.uplink", 0), ("core-cloud-0.uplink", 1)} | {
        (f"mobile-{number}.uplink", number) for number in (0, 1)
    }
    numbers = [int(node["class"] == "tower") for node in description["nodes"]]
    assert not np.isin(log["source_vertex"], np.flatnonzero(numbers)).any()
    connections = pl.read_parquet(folder / "connections.parquet").filter(pl.col("server_port") == 8080)
    assert len(connections) == 2 * 2 * flows
    assert set(connections["client"]) == {"endpoint-0", "endpoint-1"}
    assert connections["to_server_bytes"].to_list() == [300_000] * len(connections)
    assert not pages()


@pytest.mark.parametrize("links", ["proved", "by name"])
def test_links_are_proved_through_the_node_and_the_report_has_its_part(links: str, tmp_path: Path) -> None:
    if links == "by name":
        text = (EXAMPLES / "tower-mmcptp.toml").read_text().replace('"20 s"', '"4 s"').replace("20 MB", "2 MB")
    else:
        text = (EXAMPLES / "tower-split.toml").read_text().replace('"20 s"', '"6 s"').replace("2 MB", "400 kB")
    for name in ("tower-split.py", "tower-mmcptp.py"):
        text = text.replace(f'"{name}" =', f'"{EXAMPLES / name}" =')
    text = text.replace('"../radio.py"', f'"{EXAMPLES.parent / "radio.py"}"')
    folder = folder_of(text, tmp_path)
    description = json.loads((folder / "run.json").read_text())
    proofs = {each["what"]: each for each in description["proof"]}
    assert {f"mobile-0.{way} {what}" for way in ("uplink", "downlink") for what in ("delay", "rate")} <= set(proofs)
    assert all(each["ok"] for each in proofs.values())
    requests = pl.read_parquet(folder / "requests.parquet").filter(pl.col("status") == "ok")
    assert len(requests)
    parts = [name for name in requests.columns if name.startswith("part_")]
    assert {"part_uplink_proxy", "part_downlink_proxy"} <= set(parts)
    assert requests.select(parts).null_count().sum_horizontal().item() == 0


@pytest.mark.parametrize("program", [PLAIN, IDLE])
def test_an_intercept_without_a_transparent_listener_disturbs_the_run(program: str, tmp_path: Path) -> None:
    text = scenario(None, 1, 10_000, mast={"intercept": 5000})
    text += app_table("proxy", server={"on": "mast", "command": [sys.executable, "-c", program]})
    (tmp_path / "run.toml").write_text(text)
    words = ("--out", str(tmp_path / "runs"), "--no-limits", "--strict")
    done = run("run", str(tmp_path / "run.toml"), *words, status=4)
    sentence = "mast-0 forwarded all connections, since no socket with IP_TRANSPARENT listened on port 5000 (intercept)"
    assert sentence in " ".join(done.stdout.split())
    folder = only_folder(tmp_path / "runs")
    assert sentence in json.loads((folder / "summary.json").read_text())["disturbances"]
    assert answers(folder) == [str([True] * 2)] * 2


def test_a_proxy_that_does_not_become_ready_fails_the_run_and_its_report_has_the_reason(tmp_path: Path) -> None:
    server = {"on": "mast", "command": [sys.executable, "-c", IDLE], "ready": {"port": 5000, "timeout": "1 s"}}
    (tmp_path / "run.toml").write_text(scenario(None, mast={"intercept": 5000}) + app_table("proxy", server=server))
    done = run("run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "runs"), "--no-limits", status=1)
    sentence = "proxy.mast-0.server on mast-0 was not ready within 1 s, since it did not listen on port 5000"
    assert sentence in done.stderr
    summary = json.loads((only_folder(tmp_path / "runs") / "summary.json").read_text())
    assert summary["status"] == "failed"
    assert any(sentence in warning for warning in summary["warnings"])


def test_parts_are_known_after_a_handover_to_a_tower_with_a_node(tmp_path: Path) -> None:
    cell = {"cell": "north", "route": [{"at": "2 s", "cell": "south", "interruption": "20 ms"}]}
    nodes = {"endpoint": cell, "edge": {"site": "south"}, "mast": {"class": "tower", "site": "south"}}
    names = ("north", "south")
    text = scenario_head(nodes, mobile={"base_delay": "5 ms"}, core={}, name="handover", duration="5 s")
    text += tables(sites={name: {"core": "4 ms", "delay": "1 ms"} for name in names})
    text += tables(cells={name: {"site": name} for name in names})
    server = server_keys("python3 -m http.server --protocol HTTP/1.1 8080", 8080)
    text += app_table("shop", "http", url="http://{server.address}:8080/", rate="10 /s", server=server)
    requests = pl.read_parquet(folder_of(text, tmp_path) / "requests.parquet")
    assert (requests["status"] == "ok").all()
    parts = [name for name in requests.columns if name.startswith("part_")]
    assert requests.select(parts).null_count().sum_horizontal().item() == 0
    assert requests.select(pl.min_horizontal(parts).min()).item() >= 0
    delays = [
        requests.filter(pl.col("intended_s").is_between(*span))["part_uplink_delay"].median()
        for span in ((0, 1.9), (2.5, 5))
    ]
    assert delays == pytest.approx([0.005 + 0.008 + 0.001, 0.005 + 0.001], abs=1e-4)


def test_commands_on_the_node_know_the_page(tmp_path: Path) -> None:
    with standing(tmp_path, scenario(None)) as place:
        done = place.run("exec", "mast-0", "--", "sh", "-c", 'head -c 7 "$CELLBED_RADIO"')
        assert (done.returncode, done.stdout) == (0, "cellbed"), done.stderr
        assert place.run("exec", "cloud-0", "--", "sh", "-c", 'echo "$CELLBED_RADIO"').stdout == "\n"


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_an_ordinary_user_has_a_transparent_proxy_and_nothing_is_left(world: World) -> None:
    home = world.home(ORDINARY_USER)
    (home / "run.toml").write_text(scenario("tower-split", 2))
    words = [*cellbed_of("run"), str(home / "run.toml"), "--out", str(home / "runs"), "--no-limits"]
    environment = ["env", f"XDG_RUNTIME_DIR={home}", f"TMPDIR={home}"]
    done = world.run([*environment, *words], user=ORDINARY_USER, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert answers(only_folder(home / "runs")) == [str([True] * 4)] * 2
    assert not [path for path in MEMORY.glob("cellbed-*") if path.stat().st_uid == ORDINARY_USER]


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_a_command_of_an_ordinary_user_can_be_transparent_on_a_tower_alone(world: World) -> None:
    home = world.home(ORDINARY_USER)
    (home / "run.toml").write_text(scenario(None))
    environment = ["env", f"XDG_RUNTIME_DIR={home}", f"TMPDIR={home}"]

    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        return world.run([*environment, *cellbed_of(words[0]), *words[1:]], user=ORDINARY_USER, timeout=100)

    up = command("up", str(home / "run.toml"), "--name", "x", "--out", str(home / "runs"), "--no-limits")
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        words = ["--", sys.executable, "-c", "import socket; socket.socket().setsockopt(socket.SOL_IP, 19, 1)"]
        assert command("exec", "mast-0", *words).returncode == 0
        assert "PermissionError" in command("exec", "cloud-0", *words).stderr
    finally:
        command("down", "x")


@needs_containers
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: containers of ordinary users do not intercept")
def test_a_container_forwards_and_reads_the_page(image: str, own_folders: None, tmp_path: Path) -> None:
    mast = {"backend": {"kind": "container", "image": image}}
    text = scenario(None, 2, mast=mast) + app_table(
        "reader", server={"on": "mast", "command": ["sh", "-c", 'head -c 7 "$CELLBED_RADIO"; '
        'grep ^CapEff /proc/self/status; echo >"$CELLBED_RADIO" || echo refused; sleep 1000']},
    )  # fmt: skip
    folder = folder_of(text, tmp_path)
    assert answers(folder) == [str([True] * 4)] * 2
    said = (folder / "raw" / "reader.mast-0.server.out").read_text()
    assert said.startswith("cellbed")
    capabilities = int(re.findall(r"CapEff:\s*(\w+)", said)[0], 16)
    assert capabilities >> 12 & 3 == 3
    assert said.endswith("refused\n")


def test_a_killed_run_leaves_no_page_after_clean(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(scenario(None, size=100_000_000))
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ["run", str(tmp_path / "run.toml"), "--out", str(tmp_path / "runs"), "--no-limits"]
    with subprocess.Popen(
        command(*words), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        records = tmp_path / "state" / "cellbed" / "live"
        wait_until(lambda: any(json.loads(path.read_text()).get("pages") for path in records.glob("*.json")))
        (record,) = records.glob("*.json")
        page = Path(json.loads(record.read_text())["pages"])
        wait_until(lambda: (page / "mast-0").exists())
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert page.stat().st_mode & 0o777 == 0o700
    done = run("clean", env=environment, status=0)
    assert f"removed {page}" in done.stdout
    assert not page.exists()
