"""The gaps that the report states of users of a service that moves, against clients with their own clock."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed_node.processes import find
from in_process import run_apart
from moving_services import needs_criu
from scenario_text import app_table, migration, scenario_head, server_keys

ROOT = Path(__file__).parents[2]
USERS = 3
SCENARIO = scenario_head(
    {"endpoint": {"count": USERS, "cpus": 0.2, "memory": "128 MiB"}, "cloud": {"cpus": 0.4}, "edge": {"cpus": 0.4}},
    mobile={"up": "50 Mbit/s", "down": "50 Mbit/s"},
    core={"edge": {"kind": "delay", "delay": "2 ms", "rate": "80 Mbit/s"}, "cloud": "20 ms"},
    name="gaps",
    duration="40 s",
) + app_table("polls", "http", url="http://copies:9001/b", client="endpoint", connections=1, rate="10 /s")


def service(app: str, port: int, folder: Path) -> str:
    """Return the table of a service with its client. folder: of the client's stamps."""
    asking = [sys.executable, "client.py", str(folder), app, str(port)]
    client = {"on": "endpoint", "command": asking, "copy_in": {name: name for name in ("client.py", "spans.py")}}
    files = {name: name for name in ("sessions.py", "state.py")}
    server = server_keys([sys.executable, "sessions.py", str(port), "1048576"], port, "cloud", copy_in=files)
    return app_table(app, client=client, server=server)


MOVES = (
    ("sessions", "state", "edge-0", 3),
    ("sessions", "redeploy", "cloud-0", 8),
    ("copies", "stop-and-copy", "edge-0", 12),
)
CLIENT = """
import http.client, json, os, sys, time
import spans
folder, app, port = sys.argv[1:]
connection = http.client.HTTPConnection(app, int(port), timeout=200)
with open(f"{folder}/{app}-{os.getpid()}.jsonl", "w", buffering=1) as own:
    while True:
        begin = time.monotonic_ns()
        try:
            with spans.request("get"):
                connection.request("GET", "/a")
                connection.getresponse().read()
                first = time.monotonic_ns()
        except (OSError, http.client.HTTPException):
            connection.close()
            first = None
        own.write(json.dumps([begin, first, time.monotonic_ns()]) + "\\n")
"""
pytestmark = [
    needs_criu,
    pytest.mark.needs_tun,
    pytest.mark.slow,
    pytest.mark.skipif(find("nft") is None, reason="nft is not installed"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gaps")
    for name, source in {
        "sessions.py": "scenarios",
        "state.py": "python/cellbed",
        "spans.py": "python/cellbed",
    }.items():
        (folder / name).write_text((ROOT / source / name).read_text())
    (folder / "client.py").write_text(CLIENT)
    services = [service("sessions", 9000, folder), service("copies", 9001, folder)]
    moves = [migration(app, node, at, strategy) for app, strategy, node, at in MOVES]
    return run_apart(folder, "".join([SCENARIO, *services, *moves]))


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_text())
    return found


def own_gaps(path: Path, begin_ns: float, end_ns: float) -> tuple[float, float]:
    """The least and the most that the longest time between two replies around a migration can have been, s.

    A reply was there between two stamps of the client. Of a time for which it had not asked less may count.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    replies = [number for number, (_, first, _) in enumerate(lines) if first is not None]
    low = high = 0.0
    for one, other in pairwise(replies):
        (_, earliest, last), asked, (_, first, latest) = lines[one], lines[one + 1][0], lines[other]
        if last < end_ns and first > begin_ns:
            low = max(low, (first - last - max(0, asked - earliest)) / 1e9)
        if earliest < end_ns and latest > begin_ns:
            high = max(high, (latest - earliest) / 1e9)
    return low, high


@pytest.mark.parametrize("number", range(len(MOVES)), ids=[strategy for _, strategy, _, _ in MOVES])
def test_the_gap_of_each_user_is_that_of_its_own_clock(run: Path, number: int) -> None:
    move = summary(run)["migrations"][number]
    assert move["failed"] is None
    t0_ns = json.loads((run / "run.json").read_text())["t0_ns"]
    span = (t0_ns + move["begin_s"] * 1e9, t0_ns + move["end_s"] * 1e9)
    owns = sorted(own_gaps(path, *span) for path in run.parents[1].glob(f"{move['app']}-*.jsonl"))
    assert len(owns) == move["users"] == USERS
    lows, highs = ([each[end] for each in owns] for end in (0, 1))
    assert max(lows) - 1e-6 <= move["gap_s"] <= max(highs) + 1e-6
    assert sorted(lows)[1] - 1e-6 <= move["gap_p50_s"] <= sorted(highs)[1] + 1e-6


@pytest.mark.parametrize("app", ["copies", "polls"])
def test_requests_over_connections_that_criu_moved_have_their_server_and_parts(run: Path, app: str) -> None:
    move = summary(run)["migrations"][-1]
    later = pl.read_parquet(run / "requests.parquet").filter(
        pl.col("app") == app, pl.col("intended_s") + pl.col("latency_s") > move["end_s"]
    )
    assert set(later["server"]) == {"edge-0"}
    assert later["residual_s"].null_count() == 0
    ports = pl.read_parquet(run / "requests.parquet").filter(
        pl.col("app") == app, pl.col("intended_s").is_between(move["begin_s"] - 1, move["begin_s"])
    )["local_port"]
    assert set(later["local_port"]) & set(ports)


def test_a_run_with_migrations_begins_with_before_and_after(run: Path) -> None:
    output = (run.parents[1] / "output").read_text()
    own = output[output.index("\nsessions  ") :]
    assert own.index("before → after") < own.index("state of sessions") < own.index("where ")
    page = (run / "report.html").read_text()
    summary, own = page.split(">sessions <", 1)
    assert "before → after the move" in summary
    assert own.index("<h3>Migrations") < own.index("Where the time goes")
