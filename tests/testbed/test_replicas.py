"""Replicas: several servers of an application, among which connections or requests are spread."""

import json
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from cellbed.scenario import ScenarioError, parse
from cellbed.testbed.plan import make_plan
from cellbed_node.processes import find
from in_process import run_apart
from predicted_runs import predict_http
from scenario_text import tables

CRASH_S, BACK_S, GIVEN_UP_S = 2.0, 4.5, 1.2
"""Of the replica that fails; and after how long the load generator leaves it out."""
SERVER = """
import socket, sys, threading
keep = sys.argv[2] == "keep"
def serve(connection):
    with connection:
        while connection.recv(65536):
            end = b"" if keep else b"Connection: close\\r\\n"
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n" + end + b"\\r\\nok")
            if not keep:
                return
with socket.create_server(("", int(sys.argv[1])), backlog=64) as server:
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
NODES = tables(
    name="replicas",
    duration="8 s",
    nodes={
        "endpoint": {"cpus": 1.0, "memory": "256 MiB"},
        "web": {"class": "edge", "count": 3, "site": "here", "cpus": 0.5, "memory": "128 MiB", "aliases": ["www"]},
        "lone": {"class": "edge", "site": "here", "cpus": 0.5, "memory": "128 MiB"},
    },
    links={"mobile": {"up": "20 Mbit/s", "down": "20 Mbit/s"}},
    sites={"here": {"core": "2 ms"}},
)


def app(name: str, group: str, port: int, balance: str, *, kept: bool, host: str = "{server.address}") -> str:
    how = "keep" if kept else "close"
    return f"""
[apps.{name}]
kind = "http"
url = "http://{host}:{port}/"
rate = "50 /s"
timeout = "1 s"
drain = "1 s"
balance = "{balance}"
connections = 200

[apps.{name}.server]
on = "{group}"
command = ["{sys.executable}", "-I", "-S", "SERVER", "{port}", "{how}"]
ready = {{ port = {port} }}
"""


APPS = (
    app("each", "web", 8080, "connection", kept=False, host="www")
    + app("turns", "web", 8081, "round-robin", kept=True)
    + app("least", "web", 8082, "least-outstanding", kept=True)
    + app("gone", "lone", 8080, "connection", kept=False)
)
FAULTS = "".join(
    f'[[faults]]\nkind = "crash"\nnode = "{node}"\nat = "{CRASH_S} s"\nfor = "{BACK_S - CRASH_S} s"\n'
    for node in ("web-1", "lone-0")
)
needs_nft = pytest.mark.skipif(find("nft") is None, reason="nft is not installed")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_apart(tmp_path_factory.mktemp("replicas"), NODES + APPS + FAULTS, server=SERVER)


def requests(run: Path, name: str, begin_s: float = 0.0, end_s: float = 8.0) -> pl.DataFrame:
    """The requests of an application that were due in a time."""
    found = pl.read_parquet(run / "requests.parquet").filter(app=name)
    return found.filter(pl.col("intended_s").is_between(begin_s, end_s))


def changes(run: Path, name: str) -> list[tuple[float, list[str]]]:
    """When the servers of an application changed, and those from then on."""
    noted = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [
        (each["at_s"], each["nodes"]) for each in noted if each["event"] == "servers changed" and each["what"] == name
    ]


@pytest.mark.needs_tun
@needs_nft
def test_connections_to_the_address_of_replicas_are_spread_over_those_that_are_ready(run: Path) -> None:
    out_s = next(at for at, nodes in changes(run, "each") if nodes == ["web-0", "web-2"])
    back_s, last = changes(run, "each")[-1]
    assert last == ["web-0", "web-1", "web-2"]
    connections = pl.read_parquet(run / "connections.parquet").filter(app="each")
    before, meanwhile, after = (
        Counter(connections.filter(pl.col("opened_s").is_between(*span))["server"])
        for span in ((0.0, CRASH_S), (out_s, BACK_S), (back_s, 9.0))
    )
    assert before.keys() == after.keys() == {"web-0", "web-1", "web-2"}
    # At random: of 100 connections fewer than 10 in one of 10^7 runs.
    assert min(before.values()) > 10
    assert meanwhile.keys() == {"web-0", "web-2"}
    assert "servers of each: web-0, web-2" in (run / "report.html").read_text()


@pytest.mark.needs_tun
@needs_nft
def test_connections_without_a_ready_replica_are_refused(run: Path) -> None:
    out_s = next(at for at, nodes in changes(run, "gone") if nodes == [])
    meanwhile = requests(run, "gone", out_s, BACK_S).filter(status="lost")
    assert len(meanwhile)
    assert all("refused" in reason for reason in meanwhile["error"])


@pytest.mark.needs_tun
@needs_nft
def test_the_load_generator_takes_servers_in_turn_and_leaves_out_one_that_is_gone(run: Path) -> None:
    found = requests(run, "turns", 0.2, CRASH_S - 0.2)["server"].to_list()
    assert all(len({*found[at : at + 3]}) == 3 for at in range(len(found) - 2))
    for name in ("turns", "least"):
        assert min(Counter(requests(run, name, 0.2, CRASH_S - 0.2)["server"]).values()) > 10
        meanwhile = requests(run, name, CRASH_S + GIVEN_UP_S, BACK_S)
        assert {"web-0", "web-2"} <= set(meanwhile["server"])
        # The one that is gone is tried once a second.
        assert len(meanwhile.filter(status="ok")) > len(meanwhile) / 2


@pytest.mark.needs_tun
@needs_nft
def test_the_report_has_what_each_replica_served(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    found = {(each["app"], each["server"]): each for each in summary["servers"]}
    served = Counter(requests(run, "each")["server"].drop_nulls())
    assert {name: found["each", name]["requests"] for name in served} == served
    assert {each["policy"] for each in summary["servers"]} == {"connection", "round-robin", "least-outstanding"}


def test_a_prediction_spreads_alike(tmp_path: Path) -> None:
    text = NODES.replace("8 s", "2 s") + APPS.replace("SERVER", "server.py")
    found = predict_http(tmp_path, text, "each", "turns", "least", "gone", kept=False)
    turns = Counter(requests(found, "turns")["server"])
    assert max(turns.values()) - min(turns.values()) <= 1
    spread = Counter(requests(found, "each")["server"])
    assert spread.keys() == {"web-0", "web-1", "web-2"}
    assert set(requests(found, "gone")["server"]) == {"lone-0"}


def test_names_of_a_group_mean_the_address_of_its_replicas() -> None:
    plan = make_plan(parse(NODES + APPS, source="x.toml", folder=Path()))
    (address,) = {str(plan.services["each"].address)}
    lines = plan.hosts.splitlines()
    assert {f"{address} web", f"{address} www", f"{address} each"} <= {*lines}
    assert f"{plan.node('web-0').ipv4} turns" in lines


@pytest.mark.parametrize(
    ("wrong", "right", "words"),
    [
        ('balance = "round-robin"', 'balance = "nearest"', ("apps.turns.balance",)),
        ("{server.address}:8081", "web-0:8081", ("write {server.address} as the host",)),
        ('balance = "round-robin"', 'balance = "round-robin"\nedge_policy = "nearest"', ("chooses the server",)),
    ],
)
def test_a_balance_that_does_not_fit_is_refused(wrong: str, right: str, words: tuple[str, ...]) -> None:
    assert wrong in APPS
    with pytest.raises(ScenarioError) as caught:
        make_plan(parse((NODES + APPS).replace(wrong, right), source="x.toml", folder=Path()))
    assert all(word in str(caught.value) for word in words), caught.value
