"""A testbed that stands while services of it move, driven by commands as a user gives them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import in_process


class Place:
    """A testbed that stands, with a registry of its own."""

    def __init__(self, folder: Path, scenario: str) -> None:
        self.folder = folder
        (folder / "runtime").mkdir()
        self.variables = {"XDG_STATE_HOME": str(folder / "state"), "XDG_RUNTIME_DIR": str(folder / "runtime")}
        (folder / "x.toml").write_text(scenario)

    def popen(self, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-m", "cellbed", *map(str, words)]
        pipe = subprocess.PIPE
        environment = os.environ | self.variables
        return subprocess.Popen(command, text=True, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        with self.popen(*words) as process:
            output, errors = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    @property
    def record(self) -> tuple[str, dict[str, Any]]:
        """The identifier of the testbed, and its record."""
        (path,) = (self.folder / "state" / "cellbed" / "live").glob("testbed-*.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return path.stem, found

    def kill_and_clean(self, moving: subprocess.Popen[str]) -> None:
        """Kill the testbed while a command moves a service, which must report that, and clean up."""
        os.kill(self.record[1]["process"], signal.SIGKILL)
        assert "the testbed has ended" in moving.communicate()[1]
        assert self.run("clean").returncode == 0

    @contextlib.contextmanager
    def occupied(self, node: str, port: int) -> Iterator[None]:
        """Meanwhile another program of a node listens at a port."""
        code = f"import socket, time; s = socket.create_server(('', {port})); print('up', flush=True); time.sleep(600)"
        with self.popen("exec", node, "--", sys.executable, "-c", code) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "up\n"
            try:
                yield
            finally:
                other.terminate()

    def request(self, path: str, body: str | None = None) -> str:
        """A request of the endpoint; its reply."""
        method = ["-X", "PUT", "--data-binary", body] if body is not None else []
        done = self.run("exec", "endpoint-0", "--", "curl", "-sS", "--max-time", "20", *method, f"http://{path}")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def servers(self) -> dict[str, str]:
        """Where the programs run, by application."""
        found = json.loads(in_process.cellbed("status", "x", "--json", env=self.variables).stdout)["programs"]
        return {each["name"].partition(".")[0]: each["node"] for each in found if each["state"] == "ready"}

    def left_at(self, node: str) -> str:
        """Programs on a node beside this look at it."""
        return self.run("exec", node, "--", "sh", "-c", "ss -Htlpn; ls -d /var/tmp/*/.cellbed-migration* 2>&1").stdout


@contextlib.contextmanager
def standing(folder: Path, scenario: str) -> Iterator[Place]:
    """A testbed "x" of this scenario. folder: of its files."""
    place = Place(folder, scenario)
    done = place.run("up", "x.toml", "--name", "x", "--no-limits")
    assert done.returncode == 0, done.stderr
    yield place
    place.run("down", "x")
    for record in (place.folder / "state" / "cellbed" / "live").glob("testbed-*.json"):
        os.kill(json.loads(record.read_text())["process"], signal.SIGKILL)


def events(place: Place) -> list[dict[str, Any]]:
    """What has happened in the testbed since it began."""
    (path,) = (place.folder / "runs").glob("*/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(place: Place, after: int, **wanted: str) -> dict[str, Any]:
    """The first event with these values after so many."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for event in events(place)[after:]:
            if all(event.get(key) == value for key, value in wanted.items()):
                return event
        time.sleep(0.02)
    raise AssertionError(f"no event {wanted}")
