"""Real programs over emulated links: iperf3, nginx with curl, and Redis, measured by cellbed and by themselves."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed.measure.connections import PARTS
from cellbed.scenario import parse
from cellbed_node.processes import find
from in_process import cellbed as in_process
from in_process import run_apart
from run_commands import needs_limits
from run_commands import run as run_cellbed
from scenario_text import GOOD, NODES, refusal

SCENARIOS = Path(__file__).parents[2] / "scenarios"
REAL = f"""
name = "real"
duration = "300 s"
{NODES}
[apps.speed]
kind = "program"
client = {{ on = "endpoint", command = "iperf3 --client {{server.address}} --bytes 2M --json" }}
server = {{ on = "edge", command = "iperf3 --server", ready = {{ port = 5201 }} }}

[apps.voice]
kind = "program"
client = {{ on = "endpoint", command = "iperf3 --client {{server.address}} --port 5202 --udp --bytes 100K --json" }}
server = {{ on = "edge", command = "iperf3 --server --port 5202", ready = {{ port = 5202 }} }}

[apps.store]
kind = "program"
client = {{ on = "endpoint", command = "redis-benchmark -h {{server.address}} -t set -n 40 -c 1 --csv" }}
server = {{ on = "edge", command = "redis-server --save '' --protected-mode no", ready = {{ port = 6379 }} }}

[apps.web]
kind = "program"
after = ["store"]

[apps.web.client]
on = "endpoint"
command = ["sh", "-c", '''
for n in 1 2 3; do
    curl --silent --output page-$n --write-out "$FORMAT\\n" http://web:8080/
done''']
environment = {{ FORMAT = '%{{{{time_connect}}}} %{{{{time_starttransfer}}}} %{{{{time_total}}}}' }}
copy_out = ["page-3"]

[apps.web.server]
on = "edge"
command = ["nginx", "-p", ".", "-e", "stderr", "-c", "nginx.conf"]
ready = {{ http = "http://{{node.address}}:8080/" }}
copy_in = {{ "web-nginx-curl.conf" = "nginx.conf", "web-nginx-curl.toml" = "html/index.html" }}
"""
DELAY = 0.013
"""One way, in seconds."""


PROGRAMS = ("iperf3", "curl", "nginx", "redis-server", "redis-benchmark")
MISSING = ", ".join(name for name in PROGRAMS if find(name) is None)


def needs_nodes(test: Any) -> Any:
    """Skip a test where nodes or the programs are missing."""
    programs = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")
    return pytest.mark.needs_tun(needs_limits(programs(test)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for name in ("web-nginx-curl.conf", "web-nginx-curl.toml"):
        (folder / name).write_bytes((SCENARIOS / name).read_bytes())
    (folder / "real.toml").write_text(REAL)
    run_cellbed("run", str(folder / "real.toml"), "--out", str(folder / "runs"), status=0)
    (path,) = (folder / "runs").iterdir()
    return path


def connections(run: Path, app: str) -> pl.DataFrame:
    return pl.read_parquet(run / "connections.parquet").filter(app=app)


@needs_nodes
def test_curls_times_contain_those_of_its_connections(run: Path) -> None:
    stated = [
        list(map(float, line.split())) for line in (run / "raw" / "web.endpoint-0.client.out").read_text().splitlines()
    ]
    # The name has an IPv6 address, too, at which this server refuses connections.
    found = connections(run, "web").sort("opened_ns").drop_nulls("connect_s")
    assert len(stated) == len(found) == 3
    columns = ("connect_s", "to_client_first_s", "to_client_last_s")
    for (connect, first, total), row in zip(stated, found.iter_rows(named=True), strict=True):
        measured = [row[name] for name in columns]
        # curl's clock starts before its first packet enters the network, and stops after the last has left it.
        assert connect >= measured[0] >= 2 * DELAY
        assert first >= measured[1] >= 4 * DELAY
        assert total >= measured[2] >= measured[1]
        # A request of one packet, and a handshake: their delays are those of the links.
        assert row["part_to_server_delay"] == pytest.approx(DELAY)
        assert row["to_server_delay_s"] == row["to_client_delay_s"] == pytest.approx(DELAY)
        assert sum(row[f"part_{name}"] for name in PARTS) == pytest.approx(row["to_client_last_s"])
        assert row["exchanges"] == 1
        assert row["to_client_bytes"] > (SCENARIOS / "web-nginx-curl.toml").stat().st_size
    page = run / "files" / "web" / "endpoint-0" / "page-3"
    assert page.read_bytes() == (SCENARIOS / "web-nginx-curl.toml").read_bytes()


@needs_nodes
def test_iperf3_counts_the_bytes_of_its_connection(run: Path) -> None:
    stated = json.loads((run / "raw" / "speed.endpoint-0.client.out").read_text())["end"]
    bulk = connections(run, "speed").sort("to_server_bytes").row(-1, named=True)
    cookie = 37  # with which each connection begins
    assert stated["sum_received"]["bytes"] <= bulk["to_server_bytes"] - cookie <= stated["sum_sent"]["bytes"]
    assert bulk["to_server_retransmitted"] >= stated["sum_sent"]["retransmits"]  # read before the connection closed
    # 2 MB do not pass 20 Mbit/s in less time, and do not wait for their sender or receiver.
    assert bulk["to_server_last_s"] >= bulk["to_server_bytes"] * 8 / 20e6
    assert bulk["part_to_server_transport"] > 0.5 * bulk["to_server_bytes"] * 8 / 20e6


@needs_nodes
def test_a_udp_flow_has_the_packets_that_iperf3_sent(run: Path) -> None:
    stated = json.loads((run / "raw" / "voice.endpoint-0.client.out").read_text())["end"]["sum"]
    (flow,) = connections(run, "voice").filter(protocol="udp").iter_rows(named=True)
    assert flow["to_server_packets"] == stated["packets"] + 1  # one opens the flow
    assert flow["to_server_dropped"] == 0
    assert flow["to_server_delay_s"] == pytest.approx(DELAY)


@needs_nodes
def test_each_request_to_redis_is_an_exchange(run: Path) -> None:
    found = connections(run, "store")
    assert found["exchanges"].max() == 40
    busiest = found.sort("exchanges").row(-1, named=True)
    under_way = sum(busiest[f"part_{name}"] for name in PARTS if name not in ("connect", "client", "server"))
    assert under_way >= 40 * 2 * DELAY
    for way in ("to_server", "to_client"):
        assert busiest[f"part_{way}_delay"] == pytest.approx(40 * DELAY)


@needs_nodes
def test_the_run_ends_with_its_clients_and_reports_each_application(run: Path) -> None:
    description = json.loads((run / "run.json").read_text())
    assert description["status"] == "complete"
    assert description["deaths"] == []
    assert description["duration_ns"] < 300e9
    assert any(note.startswith("all clients had ended after") for note in description["notes"])
    peers = {(peer["app"], peer["port"]) for peer in json.loads((run / "summary.json").read_text())["connections"]}
    assert peers == {("speed", 5201), ("voice", 5202), ("store", 6379), ("web", 8080)}
    done = in_process("report", str(run), status=0)
    for words in ("nginx on edge", "edge-0 port 6379", "Handshake", "all clients had ended after"):
        assert words in done.stdout


@needs_nodes
def test_a_client_that_fails_ends_the_run_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "fails.toml").write_text(
        f'name = "fails"\nduration = "300 s"\n{NODES}\n[apps.web]\nkind = "program"\n'
        'client = { on = "endpoint", command = "curl --no-progress-meter http://{edge.address}:1/" }\n'
        '[apps.edge]\nkind = "program"\nserver = { on = "edge", command = "sleep 600" }\n'
    )
    done = run_cellbed("run", str(tmp_path / "fails.toml"), "--out", str(tmp_path / "runs"), status=1)
    assert "web.endpoint-0.client on endpoint-0 ended with status 7: curl: (7) Failed to connect" in done.stderr
    assert "its output: " in done.stderr
    (path,) = (tmp_path / "runs").iterdir()
    assert json.loads((path / "run.json").read_text())["status"] == "failed"
    (refused,) = pl.read_parquet(path / "connections.parquet").iter_rows(named=True)
    assert refused["connect_s"] is None


APP = '\n[apps.web]\nkind = "program"\n'
MANY = GOOD[: GOOD.index("[workload]")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "apps.web.client: missing, and 'server' too: write client = "),
        ('client = "endpoint"', 'apps.web.client.command: missing: write the program and its arguments, command = "'),
        ('client = { on = "endpoint", command = "x \'y" }', "no closing quotation: close it, or write a list of words"),
        (
            'client = { on = "endpoint", command = "curl {server.adress}" }',
            "apps.web.client.command[1]: unknown name '{server.adress}': did you mean 'server.address'?",
        ),
        (
            'server = { on = "edge", command = "x", ready = { port = 80, line = "up" } }',
            "apps.web.server.ready: needs one of port, line, file, http, command: write for example { port = 8080 }",
        ),
        ('server = { on = "edge", command = "x", ready = { line = "(" } }', "'(' is not a regular expression: "),
        (
            'server = { on = "edge", command = "x", copy_in = { "nothing" = "x" } }',
            "there is no file or folder 'nothing': write a path relative to the scenario file",
        ),
        (
            'server = { on = "edge", command = "x", copy_in = { "." = "/etc" } }',
            "a namespace node shares this machine's files, and '/etc' is one of them: write a relative path",
        ),
        (
            'client = { on = "endpoint", command = "x", measures = "result.txt" }',
            "apps.web.client.measures: 'result.txt' does not end in .json, .csv, .parquet: write a file with one of",
        ),
        (
            'client = { on = "endpoint", command = "x", measures = "/tmp/result.json" }',
            "apps.web.client.measures: '/tmp/result.json' is outside of the node's own folder, where files of earlier",
        ),
        (
            'client = { on = "endpoint", command = "x", measures = { line = "fps=([0-9]+)" } }',
            "apps.web.client.measures.line: 'fps=([0-9]+)' needs named groups, with names of at most 64 letters",
        ),
        (
            'client = { on = "endpoint", command = "x", measures = { line = "(?P<fps>.)", units = { fsp = "/s" } } }',
            "apps.web.client.measures.units.fsp: the expression has no such group: did you mean 'fps'?",
        ),
        (
            'client = { on = "endpoint", command = "x", ready = { port = 80 } }',
            "apps.web.client.ready: nothing waits for a client: remove this key",
        ),
        ('server = { on = "edge", command = "x" }\nafter = ["web"]', "'web' comes before 'web' itself"),
    ],
)
def test_mistakes_in_a_program_are_errors_of_their_key(text: str, message: str, tmp_path: Path) -> None:
    error = refusal(MANY + APP + text, tmp_path)
    assert message in error
    assert "\n" not in error


UNUSABLE = """\
name = "unusable"
duration = "1 s"
links.mobile = { up = "unlimited", down = "unlimited" }
links.core.edge = "1 ms"
nodes.endpoint = { cpus = 1.0, memory = "128 MiB" }
nodes.edge = { cpus = 1.0, memory = "128 MiB" }
[nodes.box]
class = "edge"
cpus = 1.0
memory = "128 MiB"
backend = { kind = "container", image = "localhost/absent:1" }
[nodes.machine]
class = "edge"
cpus = 1.0
memory = "128 MiB"
backend = { kind = "vm" }
[apps.absent]
kind = "program"
client = { on = "endpoint", command = "no-such-program {seed}" }
[apps.absent.server]
on = "edge"
command = "no-such-program"
environment = { PATH = "%s" }
ready = { command = "/no/such/check" }
[apps.there]
kind = "program"
client = { on = "endpoint", command = "./made-on-the-node" }
server = { on = "edge", command = "no-such-program", environment = { PATH = "%s" } }
[apps.elsewhere]
kind = "program"
client = { on = "machine", command = "no-such-program" }
server = "box"
"""


def test_what_this_machine_lacks_is_an_error_of_its_line(tmp_path: Path) -> None:
    path, folder = tmp_path / "x.toml", tmp_path / "bin"
    folder.mkdir()
    (folder / "no-such-program").symlink_to("/bin/true")
    path.write_text(UNUSABLE % (tmp_path, folder))
    own = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    for words in (("run", path, "--dry-run"), ("run", path), ("up", path)):
        done = in_process(*words, "--out", tmp_path / "runs", "--no-limits", env=own, status=2)
        reported = [
            line.removeprefix("error: ")
            for line in done.stderr.splitlines()
            if str(path) in line and "backend.kind" not in line
        ]
        # One line for each, and a dry run shows the plan.
        assert all(line.removeprefix("error: ").startswith(str(path)) for line in done.stderr.splitlines())
        assert ("endpoint-0" in done.stdout) == ("--dry-run" in words)
        assert [line.split(": ")[:2] for line in reported] == [
            [f"{path}:11", "nodes.box.backend.image"],
            [f"{path}:16", "nodes.machine.backend.image"],
            [f"{path}:19", "apps.absent.client.command"],
            [f"{path}:22", "apps.absent.server.command"],
            [f"{path}:24", "apps.absent.server.ready.command"],
        ], done.stderr
        assert f"there is no program 'no-such-program' in {tmp_path}: install it" in reported[3]
        assert "'/no/such/check' is not an executable file" in reported[4]
    assert not (tmp_path / "runs").exists()


@pytest.mark.needs_tun
def test_a_client_writes_its_results_in_the_drain_under_the_name_of_its_node(tmp_path: Path) -> None:
    text = f"""
name = "late"
duration = "1 s"
{NODES}
[apps.own]
kind = "program"
drain = "1 h"
client = {{ on = "endpoint", command = ["sh", "-c", "sleep 2; uname -n > result"], copy_out = ["result"] }}
[apps.ended]
kind = "program"
client = {{ on = "endpoint", command = "sleep 600" }}
"""
    folder = run_apart(tmp_path, text)
    assert (folder / "files" / "own" / "endpoint-0" / "result").read_text() == "endpoint-0\n"
    (warning,) = json.loads((folder / "run.json").read_bytes())["warnings"]
    assert warning.startswith("ended.endpoint-0.client still ran after 1 s, the end of its load, and was ended")


def test_a_client_that_takes_the_duration_has_time_to_end() -> None:
    timed = 'client = { on = "endpoint", command = "sleep {duration_s}", stop = { signal = "SIGINT" } }\n'
    for drain, kept in (("", "5 s"), ('drain = "1 s"\n', "1 s")):
        app: Any = parse(MANY + APP + drain + timed, source="test.toml", folder=Path()).resolved()["apps"]["web"]
        assert (app["drain"], app["client"]["stop"]) == (kept, {"signal": "SIGINT", "grace": "5 s"})
