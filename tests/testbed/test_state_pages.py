"""State in memory of a fixed size: its rounds have what was written, and a service moves with it under load."""

import json
import mmap
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed import state
from cellbed.state import Pages
from cellbed_node.processes import find
from moving_services import standing
from scenario_text import app_table, scenario_head, server_keys

PAGES = 600
SIZE = PAGES * mmap.PAGESIZE
WRITES = st.lists(st.tuples(st.integers(0, SIZE - 1), st.binary(min_size=1, max_size=9000)), max_size=40)
SCENARIO = scenario_head(
    {"endpoint": {"memory": "128 MiB"}, "cloud": {"memory": "512 MiB"}, "edge": {"memory": "512 MiB"}},
    mobile={"up": "50 Mbit/s", "down": "50 Mbit/s"},
    core={"edge": "2 ms", "cloud": {"kind": "delay", "delay": "10 ms", "rate": "1 Gbit/s"}},
    name="pages",
    duration="15 s",
) + app_table(
    "world",
    server=server_keys(
        [sys.executable, "world.py"], 7000, "cloud", copy_in={"world.py": "world.py", "state.py": "state.py"}
    ),
)
WORLD = """
import socketserver
from state import Pages

world = Pages(100 << 20)

class Client(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            slot, *value = map(int, line.split())
            place = slice(slot * 4096, slot * 4096 + 8)
            with world.lock:
                if value:
                    world.memory[place] = value[0].to_bytes(8, "big")
                self.wfile.write(b"%d\\n" % int.from_bytes(world.memory[place], "big"))

class Server(socketserver.ThreadingTCPServer):
    daemon_threads, allow_reuse_address = True, True

with Server(("", 7000), Client) as server:
    world.announce()
    server.serve_forever()
"""
CLIENT = """
import json, pathlib, random, socket, sys, time

def asked(*words):
    global replies, connection
    connection.sendall(b" ".join(b"%d" % word for word in words) + b"\\n")
    reply = replies.readline()
    if not reply.endswith(b"\\n"):
        raise OSError("the connection has ended")
    return int(reply)

def connect():
    global replies, connection
    while True:
        try:
            connection = socket.create_connection(("world", 7000), timeout=200)
            replies = connection.makefile("rb")
            return
        except OSError:
            time.sleep(0.05)

connect()
sent, acknowledged, choose = {}, {}, random.Random(1)
while not pathlib.Path(sys.argv[1]).exists():
    slot = choose.randrange(200)
    value = sent[slot] = sent.get(slot, 0) + 1
    try:
        if asked(slot, value) == value:
            acknowledged[slot] = value
    except OSError:
        connect()
    if sum(sent.values()) == 1:
        print("writes", flush=True)
lost = sum(not acknowledged[slot] <= asked(slot) <= sent[slot] for slot in acknowledged)
print(json.dumps({"acknowledged": sum(acknowledged.values()), "lost": lost}))
"""


def take(pages: Pages, other: Pages, *, everything: bool = False) -> int:
    """Bytes of a round that another instance has loaded."""
    parts = list(pages.save(everything))
    for part in parts:
        other.load(part)
    return sum(map(len, parts))


def write(pages: Pages, place: int, data: bytes) -> None:
    data = data[: SIZE - place]
    pages.memory[place : place + len(data)] = data


@pytest.fixture(params=["tracked", "compared"])
def pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Pages:
    if request.param == "compared":
        monkeypatch.setattr(state, "_USERFAULTFD", {})
    pages = Pages(SIZE)
    list(pages.save(True))
    if request.param == "tracked" and not pages.tracks:
        pytest.skip("the kernel does not note writes (Linux 6.7)")
    assert pages.tracks == (request.param == "tracked")
    return pages


@settings(max_examples=25, deadline=None)
@given(rounds=st.lists(WRITES, max_size=5), before=WRITES, tracks=st.booleans())
def test_rounds_replayed_at_another_instance_give_equal_memory(
    rounds: list[list[tuple[int, bytes]]], before: list[tuple[int, bytes]], tracks: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not tracks:
            patch.setattr(state, "_USERFAULTFD", {})
        pages, other = Pages(SIZE), Pages(SIZE)
        for number, writes in enumerate([before, *rounds]):
            for place, data in writes:
                write(pages, place, data)
            take(pages, other, everything=number == 0)
            assert pages.memory[:] == other.memory[:]


def test_a_round_has_the_pages_that_were_written_and_no_others(pages: Pages) -> None:
    other = Pages(SIZE)
    assert take(pages, other) == 0
    write(pages, 5 * mmap.PAGESIZE + 7, b"a")
    write(pages, 300 * mmap.PAGESIZE - 1, b"bc")
    with Path(__file__).open("rb", buffering=0) as file:  # by the kernel
        assert file.readinto(memoryview(pages.memory)[400 * mmap.PAGESIZE :][:100]) == 100
    assert 4 * mmap.PAGESIZE <= take(pages, other) < 5 * mmap.PAGESIZE
    assert take(pages, other) == 0


def test_what_is_written_during_a_round_is_in_the_next_one(pages: Pages) -> None:
    other = Pages(SIZE)
    for value in (b"1", b"2"):
        write(pages, 0, value * SIZE)
        parts = pages.save(False)
        sent = next(parts)  # its pages are sent, others are not
        for place in range(0, SIZE, mmap.PAGESIZE):
            write(pages, place, b"now" + value)
        for part in (sent, *parts):
            other.load(part)
        take(pages, other)
        assert other.memory[:] == pages.memory[:]
    assert take(pages, other) == 0


def test_a_failed_round_is_repaired_by_saving_everything(pages: Pages) -> None:
    other = Pages(SIZE)
    write(pages, 0, b"x" * SIZE)
    next(iter(pages.save(False)))  # and the migration ends
    take(pages, other, everything=True)
    assert other.memory[:] == pages.memory[:]


@pytest.mark.slow
@pytest.mark.needs_tun
@pytest.mark.skipif(find("nft") is None, reason="nft is not installed")
def test_a_world_moves_while_it_changes_and_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    (tmp_path / "world.py").write_text(WORLD)
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "state.py").write_text(Path(state.__file__).read_text())
    with (
        standing(tmp_path, SCENARIO) as place,
        place.popen("exec", "endpoint-0", "--", sys.executable, tmp_path / "client.py", tmp_path / "stop") as client,
    ):
        try:
            assert client.stdout.readline() == "writes\n"
            for node in ("edge-0", "cloud-0"):
                moved = place.run("migrate", "world", "--to", node, "--strategy", "state", "--json")
                assert moved.returncode == 0, moved.stderr
                phases = {each["name"]: each for each in json.loads(moved.stdout)["phases"]}
                assert phases["last round"]["bytes"] < phases["round 1"]["bytes"] / 2
            (tmp_path / "stop").touch()
            found = json.loads(client.stdout.readline())
            assert found["acknowledged"] > 0
            assert found["lost"] == 0
        finally:
            client.kill()
