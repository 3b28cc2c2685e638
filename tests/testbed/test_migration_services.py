"""A service that nobody here wrote, moved under load: PostgreSQL. ``-s`` shows the gaps."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed_node.processes import find
from moving_services import CRIU_NODES, Place, files_of, left_of_moves, needs_criu, skip_without, standing
from scenario_text import app_table, server_keys

POSTGRES = next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), "")
WRITERS, ROWS = 3, 100_000
SERVICE = app_table(
    "base",
    server=server_keys(
        ["sh", "postgres.sh"], 5432, "cloud", copy_in={"postgres.sh": "postgres.sh"}, stop={"signal": "SIGINT"}
    ),
)
POSTGRES_SH = f"""
mkdir data && chown postgres data || exit 1
exec unshare --ipc setpriv --reuid=postgres --regid=postgres --clear-groups sh -c '
PATH={Path(POSTGRES).parent}:$PATH
initdb -D data -A trust --wal-segsize=1 --no-sync || exit 1
echo host all all all trust >>data/pg_hba.conf
exec postgres -D data -h "*" -k "$PWD/data"'
"""
WRITER_PY = f"""
import json, pathlib, subprocess, sys, threading, time
stop, acknowledged, lost, gaps = pathlib.Path(sys.argv[1]), [], [], []
ready = threading.Barrier({WRITERS} + 1)

def connected():
    pipe, command = subprocess.PIPE, ["psql", "-h", "base", "-U", "postgres", "-qAtX"]
    return subprocess.Popen(command, text=True, bufsize=1, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

def write(writer):
    psql = connected()
    number, longest, last = writer * 1_000_000, 0.0, None
    while not stop.exists():
        number += 1
        try:
            psql.stdin.write("INSERT INTO written VALUES (%d) RETURNING n;\\n" % number)
            is_there = psql.stdout.readline() == "%d\\n" % number
        except BrokenPipeError:
            is_there = False
        if not is_there:
            lost.append(number)
            psql.kill()
            psql = connected()
            continue
        if last is None:
            ready.wait()
            last = time.monotonic()
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
        acknowledged.append(number)
    gaps.append(longest)

writers = [threading.Thread(target=write, args=(each,)) for each in range({WRITERS})]
for each in writers:
    each.start()
ready.wait()
print("connected", flush=True)
for each in writers:
    each.join()
print(json.dumps([max(gaps), len(lost), acknowledged]))
"""
pytestmark = [pytest.mark.needs_tun, pytest.mark.slow, needs_criu]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not POSTGRES or find("psql") is None:
        pytest.skip("postgresql is not installed")
    folder = tmp_path_factory.mktemp("standing")
    for name, text in {"postgres.sh": POSTGRES_SH, "writer.py": WRITER_PY}.items():
        (folder / name).write_text(text)
    nodes = CRIU_NODES.replace("40 Mbit/s", "400 Mbit/s").replace("10 ms", "2 ms")
    with standing(folder, nodes + SERVICE) as place:
        sql(place, "CREATE TABLE written (n int PRIMARY KEY)")
        sql(place, f"CREATE TABLE filling AS SELECT n, repeat('x', 100) FROM generate_series(1, {ROWS}) AS n")
        yield place


def sql(place: Place, query: str) -> str:
    done = place.run("exec", "endpoint-0", "--", "psql", "-h", "base", "-U", "postgres", "-qAtX", "-c", query)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def busy(place: Place) -> Iterator[list[Any]]:
    """Meanwhile a client writes; what it prints at its end is in the list then."""
    stop = place.folder / f"stop-{len(list(place.folder.glob('stop-*')))}"
    found: list[Any] = []
    with place.popen("exec", "endpoint-0", "--", sys.executable, place.folder / "writer.py", stop) as process:
        try:
            assert process.stdout.readline() == "connected\n"
            yield found
            stop.touch()
            found += json.loads(process.stdout.readline())
        except BaseException:
            process.kill()
            raise


@pytest.mark.parametrize("strategy", ["stop-and-copy", "post-copy"])
def test_postgres_moves_with_its_connections_and_loses_no_acknowledged_row(place: Place, strategy: str) -> None:
    skip_without(strategy)
    sql(place, "TRUNCATE written")
    for node in ("edge-0", "cloud-0"):
        with busy(place) as found:
            moved = place.run("migrate", "base", "--to", node, "--strategy", strategy, "--json")
            assert moved.returncode == 0, moved.stderr
            assert place.servers()["base"] == node
        gap_s, lost, acknowledged = found
        print(f"\nPostgreSQL {strategy} to {node}: {json.loads(moved.stdout)['bytes'] / 1e6:.0f} MB, gap {gap_s:.2f} s")
        assert lost == 0  # connections
        stored = set(map(int, sql(place, "SELECT n FROM written").split()))
        assert stored >= set(acknowledged)
        assert files_of(place, "data") == [node]
        sql(place, "TRUNCATE written")
    assert sql(place, "SELECT count(*) FROM filling") == str(ROWS)
    assert left_of_moves(place) == []
