"""Services that nobody here wrote, moved under load: PostgreSQL and a game server. ``-s`` shows the gaps."""

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

TEEWORLDS = find("teeworlds-server") or next(map(str, Path("/usr/games").glob("teeworlds-server")), "")
POSTGRES = next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))), "")
WRITERS, ROWS = 3, 100_000
SERVICES = app_table(
    "base",
    server=server_keys(
        ["sh", "postgres.sh"], 5432, "cloud", copy_in={"postgres.sh": "postgres.sh"}, stop={"signal": "SIGINT"}
    ),
) + app_table("game", server=server_keys([TEEWORLDS, "sv_port 8303; sv_register 0; sv_name cellbed"], 8303, "cloud"))
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
PLAYER_PY = r"""
import json, pathlib, select, socket, struct, sys, time
CONTROL, CONNLESS = 1 << 2, 8 << 2 | 1  # flags of packets of Teeworlds 0.7, in the upper six bits
CONNECT, ACCEPT, TOKEN = 1, 2, 5
NO_TOKEN, OWN, ASK = 0xFFFFFFFF, 0x12345678, b"\xff\xff\xff\xffgie3\x01"
PADDED = struct.pack("!I", OWN) + bytes(508)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.connect(("game", 8303))

def control(token, kind, content=b""):
    server.send(struct.pack("!BBBIB", CONTROL, 0, 0, token, kind) + content)

def token_of(reply):
    if reply[0] == CONTROL and reply[7] == TOKEN:
        return struct.unpack_from("!I", reply, 8)[0]

def replies(wait_s):
    while select.select([server], [], [], wait_s)[0]:
        yield server.recv(2048)
        wait_s = 0

connection = asking = None
is_accepted = False
while not is_accepted:
    control(connection or NO_TOKEN, CONNECT if connection else TOKEN, PADDED)
    for reply in replies(1):
        connection = asking = connection or token_of(reply)
        is_accepted |= reply[0] == CONTROL and reply[7] == ACCEPT
print("connected", flush=True)
longest, last, info = 0.0, time.monotonic(), b""
stop = pathlib.Path(sys.argv[1])
while not stop.exists():
    server.send(struct.pack("!BBBI", 0, 0, 0, connection))  # a player who is silent for 10 s is dropped
    server.send(struct.pack("!BII", CONNLESS, asking, OWN) + ASK)
    if time.monotonic() > last + 0.2:  # a server makes new tokens every 16 s
        control(NO_TOKEN, TOKEN, PADDED)
    for reply in replies(0.05):
        asking = token_of(reply) or asking
        if reply[0] == CONNLESS:
            info, now = reply, time.monotonic()
            longest, last = max(longest, now - last), now
    time.sleep(0.02)
print(json.dumps([longest, repr(info)]))
"""
pytestmark = [pytest.mark.needs_tun, pytest.mark.slow, needs_criu]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if not POSTGRES or find("psql") is None:
        pytest.skip("postgresql is not installed")
    if not TEEWORLDS:
        pytest.skip("teeworlds-server is not installed")
    folder = tmp_path_factory.mktemp("standing")
    for name, text in {"postgres.sh": POSTGRES_SH, "writer.py": WRITER_PY, "player.py": PLAYER_PY}.items():
        (folder / name).write_text(text)
    nodes = CRIU_NODES.replace("40 Mbit/s", "400 Mbit/s").replace("10 ms", "2 ms")
    with standing(folder, nodes + SERVICES) as place:
        sql(place, "CREATE TABLE written (n int PRIMARY KEY)")
        sql(place, f"CREATE TABLE filling AS SELECT n, repeat('x', 100) FROM generate_series(1, {ROWS}) AS n")
        yield place


def sql(place: Place, query: str) -> str:
    done = place.run("exec", "endpoint-0", "--", "psql", "-h", "base", "-U", "postgres", "-qAtX", "-c", query)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextlib.contextmanager
def busy(place: Place, client: str) -> Iterator[list[Any]]:
    """Meanwhile a client uses a service; what it prints at its end is in the list then."""
    stop = place.folder / f"stop-{client}-{len(list(place.folder.glob('stop-*')))}"
    found: list[Any] = []
    with place.popen("exec", "endpoint-0", "--", sys.executable, place.folder / client, stop) as process:
        try:
            assert process.stdout.readline() == "connected\n"
            yield found
            stop.touch()
            found += json.loads(process.stdout.readline())
        except BaseException:
            process.kill()
            raise


def move(place: Place, app: str, node: str, strategy: str) -> tuple[float, float]:
    """Move a service. Return for how long it stood still, s, and the size of its snapshot with its files, MB."""
    moved = place.run("migrate", app, "--to", node, "--strategy", strategy, "--json")
    assert moved.returncode == 0, moved.stderr
    account = json.loads(moved.stdout)
    assert place.servers()[app] == node
    return account.get("facts", {}).get("stood_still_s", 0.0), account["bytes"] / 1e6


@pytest.mark.parametrize("strategy", ["stop-and-copy", "post-copy"])
def test_postgres_moves_with_its_connections_and_loses_no_acknowledged_row(place: Place, strategy: str) -> None:
    skip_without(strategy)
    sql(place, "TRUNCATE written")
    for node in ("edge-0", "cloud-0"):
        with busy(place, "writer.py") as found:
            still_s, sent_mb = move(place, "base", node, strategy)
        gap_s, lost, acknowledged = found
        print(f"\nPostgreSQL {strategy} to {node}: {sent_mb:.0f} MB, stood still {still_s:.2f} s, gap {gap_s:.2f} s")
        assert lost == 0  # connections
        stored = set(map(int, sql(place, "SELECT n FROM written").split()))
        assert stored >= set(acknowledged)
        assert files_of(place, "data") == [node]
        sql(place, "TRUNCATE written")
    assert sql(place, "SELECT count(*) FROM filling") == str(ROWS)
    assert left_of_moves(place) == []


@pytest.mark.parametrize("strategy", ["stop-and-copy", "post-copy", "redeploy"])
def test_a_game_server_moves_and_keeps_its_players_unless_it_starts_anew(place: Place, strategy: str) -> None:
    skip_without(strategy)
    for node in ("edge-0", "cloud-0"):
        with busy(place, "player.py") as found:
            still_s, sent_mb = move(place, "game", node, strategy)
        gap_s, info = found
        print(f"\ngame {strategy} to {node}: {sent_mb:.1f} MB, stood still {still_s:.2f} s, gap {gap_s:.2f} s")
        assert ("(connecting)" in info) == (strategy != "redeploy")
    assert left_of_moves(place) == []
