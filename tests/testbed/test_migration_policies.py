"""Services that move by each policy in real runs, and one whose policy fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from cellbed_node.processes import find
from in_process import run_apart
from node_programs import SERVER
from scenario_text import app_table, scenario_head, server_keys, tables

NODES = scenario_head(
    {"endpoint": {}, "cloud": {}, "edge": {}},
    mobile={"up": "50 Mbit/s", "down": "50 Mbit/s"},
    core={"edge": "2 ms", "cloud": "150 ms"},
    name="policies",
    duration="9 s",
)
SITES = scenario_head(
    {
        "endpoint": {"cell": "north", "route": [{"at": "2 s", "cell": "south"}]},
        "cloud": {},
        "north": {"class": "edge", "site": "north"},
        "south": {"class": "edge", "site": "south"},
    },
    mobile={"up": "50 Mbit/s", "down": "50 Mbit/s"},
    core={"cloud": "150 ms"},
    name="sites",
    duration="9 s",
    sites={"north": {"core": "8 ms", "delay": "1 ms"}, "south": {"core": "8 ms", "delay": "1 ms"}},
    cells={"north": {"site": "north"}, "south": {"site": "south"}},
)
LATENCY = {"to": "edge-0", "policy": {"kind": "latency", "above": "250 ms", "for": "2 s", "rest": "60 s"}}
FOLLOW = {"policy": {"kind": "follow", "nodes": ["north-0", "south-0"]}}


def python(name: str) -> dict[str, Any]:
    return {"policy": {"kind": "python", "file": f"{name}.py", "nodes": ["edge-0"]}}


def service(app: str, port: int, move: dict[str, Any], on: str = "cloud") -> str:
    server = server_keys(["python3", "SERVER", str(port)], port, on)
    table = app_table(app, "http", url=f"http://{{server.address}}:{port}/", rate="10 /s", server=server)
    return table + tables(migrations=[{"app": app, "strategy": "redeploy", **move}])


MINE = """
def place(state):
    if state.links["core-cloud-0.uplink"][-1].delay_s > 0.1 and state.replies and state.time_s > 2:
        return "edge-0"
"""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_tun,
    pytest.mark.skipif(find("nft") is None, reason="nft is not installed"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policies")
    (folder / "mine.py").write_text(MINE)
    (folder / "broken.py").write_text("def place(state):\n    return state.nowhere\n")
    apps = service("slow", 8080, LATENCY) + service("mine", 8081, python("mine"))
    return run_apart(folder, NODES + apps + service("broken", 8082, python("broken")), server=SERVER)


def moved(run: Path) -> dict[str, dict[str, Any]]:
    """The migrations by application, one of each; on a busy machine the run may end before they do."""
    accounts = json.loads((run / "run.json").read_text())["migrations"]
    assert all(account["failed"] in (None, "cancelled") for account in accounts), accounts
    assert len({account["app"] for account in accounts}) == len(accounts)
    return {account["app"]: account for account in accounts}


def test_a_service_moves_when_its_latency_is_high(run: Path) -> None:
    account = moved(run)["slow"]
    assert (account["source"], account["target"]) == ("cloud-0", "edge-0")
    assert account["begin_s"] >= 2
    assert account["reason"].startswith("median latency over 2 s, at last ")
    assert account["reason"].endswith("above 250 ms")


def test_a_service_moves_by_a_function_of_the_user(run: Path) -> None:
    account = moved(run)["mine"]
    assert (account["target"], account["reason"]) == ("edge-0", "place() of mine.py")


def test_a_function_that_fails_moves_nothing_and_the_report_has_its_line(run: Path) -> None:
    assert set(moved(run)) == {"slow", "mine"}
    (warning,) = [each for each in json.loads((run / "run.json").read_text())["warnings"] if "policy" in each]
    assert "the policy of 'broken' has failed" in warning
    assert "'broken' stays on cloud-0" in warning
    assert "broken.py:2: AttributeError" in warning
    assert "broken.py:2: AttributeError" in (run / "report.html").read_text()


def test_each_decision_is_an_event(run: Path) -> None:
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    decided = {each["what"]: each for each in events if each["event"] == "move decided"}
    assert set(decided) == {"slow to edge-0", "mine to edge-0"}


def test_a_service_follows_its_endpoint(tmp_path: Path) -> None:
    near = moved(run_apart(tmp_path, SITES + service("near", 8080, FOLLOW, on="north"), server=SERVER))["near"]
    assert (near["source"], near["target"], near["reason"]) == ("north-0", "south-0", "endpoint-0 at south")
    assert near["begin_s"] >= 2
