"""Whole runs of an ordinary user, and with few processes allowed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cellbed_node.exports import HEADER
from scenario_text import NODES, app_table, server_keys, tables
from shell_world import ORDINARY_USER, World, cellbed, missing

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

FETCH = """
import os, socket, sys, time, urllib.request as r
begin = time.monotonic_ns()
open('page', 'wb').write(r.urlopen(sys.argv[1]).read())
own = socket.socket(socket.AF_UNIX)
own.connect(os.environ["CELLBED_REQUESTS"])
own.send(b"page %d %d ok\\n" % (begin, time.monotonic_ns()))
to = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
r.urlopen(r.Request(to, b"", dict([("Content-Type", "application/x-protobuf")])))
"""
CLIENT = {"on": "endpoint", "command": [sys.executable, "-c", FETCH, "http://web:8080/page"], "copy_out": ["page"]}
SERVER = server_keys([sys.executable, "-m", "http.server", "8080"], 8080, copy_in={"page": "page"})
SCENARIO = (
    tables(name="ordinary", duration="5 s") + NODES + app_table("web", telemetry=True, client=CLIENT, server=SERVER)
)


def run(world: World, user: int, before: str = "") -> tuple[subprocess.CompletedProcess[str], Path]:
    """Run the scenario; returns its end, and the home of the user. before: begins the command of a shell."""
    home = world.home(user)
    (home / "page").write_text("a page\n")
    (home / "run.toml").write_text(SCENARIO)
    words = [*cellbed("run"), str(home / "run.toml"), "--out", str(home / "runs"), "--no-limits"]
    command = ["sh", "-c", f'{before} exec "$@"', "sh", *words]
    return world.run(["env", f"XDG_RUNTIME_DIR={home}", f"TMPDIR={home}", *command], user=user, timeout=400), home


def left(home: Path) -> list[str]:
    """Records, sockets and temporary files in a user's home."""
    return [str(path) for pattern in (".local/state/cellbed/live/*.json", "cellbed-*") for path in home.glob(pattern)]


def test_a_run_of_an_ordinary_user_is_whole_and_leaves_nothing(world: World) -> None:
    done, home = run(world, ORDINARY_USER)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (home / "runs").glob("ordinary-*")
    assert (folder / "files" / "web" / "endpoint-0" / "page").read_text() == "a page\n"
    content = json.loads((folder / "run.json").read_text())
    assert content["status"] == "complete"
    assert not [each for each in content["warnings"] if "refused" in each]
    assert len((folder / "raw" / "web.endpoint-0.requests.jsonl").read_text().splitlines()) == 1
    assert folder.stat().st_uid == ORDINARY_USER
    assert (folder / "raw" / "endpoint-0.otlp").stat().st_size == HEADER.size  # of an empty export
    assert left(home) == []


@pytest.mark.parametrize("processes", [1, 20])
def test_few_allowed_processes_are_one_clear_error_that_leaves_nothing(world: World, processes: int) -> None:
    # The limit counts all processes of a user: this one has no others.
    done, home = run(world, ORDINARY_USER + processes, f"prlimit --pid $$ --nproc={processes};")
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"error: this user may have {processes} processes and threads")
    assert error.endswith("(ulimit -u)")
    assert left(home) == []
