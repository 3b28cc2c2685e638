"""Runs with browsers, relays, codecs and networks leave no process and no folder, killed at any moment or not."""

import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from cellbed_node.offloading.broker import find_mosquitto
from descendants import descendants, words
from run_commands import command, processes_of
from scenario_text import NODES
from workload_needs import (
    needs_browser,
    needs_ffmpeg,
    needs_nginx,
    needs_openssl,
    needs_person,
    needs_players,
    needs_reader,
    needs_relay,
)

CYCLES = 20
needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
BROWSER = (needs_browser, needs_openssl)
HEAD = f'name = "x"\nduration = "6 s"\nseed = 3\n{NODES}\n[apps.x]\nserver = "edge"\n'
CALL = 'width = 320\nheight = 180\nrate = "10 /s"\nbit_rate = "300 kbit/s"\ntimeout = "30 s"\ndrain = "30 s"\n'
VISION = 'rate = "3 /s"\ntimeout = "5 min"\ndrain = "5 min"\nimages = 3\n'
KINDS = {
    "web": ('page = "google"\narrivals = "closed"\n', (*BROWSER, needs_nginx)),
    "video": ('length = "8 s"\nrenditions = ["720p"]\n', (*BROWSER, needs_nginx, needs_ffmpeg, needs_players)),
    "call": (CALL, (*BROWSER, needs_relay)),
    "segmentation": (VISION, (needs_mosquitto, needs_person)),
    "plates": (VISION, (needs_mosquitto, needs_reader)),
}


@pytest.mark.needs_tun
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=needs) for kind, (_, needs) in KINDS.items()])
def test_runs_leave_no_process_and_no_folder(tmp_path: Path, kind: str) -> None:
    ends = 2 if kind == "call" else 1
    head = HEAD.replace("[nodes.endpoint]", f"[nodes.endpoint]\ncount = {ends}")
    (tmp_path / "x.toml").write_text(f'{head}kind = "{kind}"\n{KINDS[kind][0]}')
    moments = random.Random(kind)
    # Sockets need short paths.
    with tempfile.TemporaryDirectory(prefix="c-") as folder:
        environment = {**os.environ, "TMPDIR": folder, "XDG_STATE_HOME": str(tmp_path / "state")}
        lasted = _cycle(tmp_path, environment, None)
        for number in range(1, CYCLES):
            # One in four runs ends by itself.
            _cycle(tmp_path, environment, moments.uniform(0, lasted) if number % 4 else None)


def _cycle(place: Path, environment: dict[str, str], killed_s: float | None) -> float:
    """Run the scenario, or kill the run after a time; return how long it lasted."""
    arguments = command("run", place / "x.toml", "--no-limits", "--out", place / "runs")
    began, below = time.monotonic(), dict[int, bytes]()
    with (place / "errors").open("wb") as errors:
        run = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=errors)
    while run.poll() is None:
        below |= descendants(run.pid)
        if killed_s is not None and time.monotonic() - began > killed_s:
            run.kill()
        time.sleep(0.1)
    lasted = time.monotonic() - began
    assert killed_s is not None or run.wait() == 0, (place / "errors").read_text()
    while any(words(pid) == line for pid, line in below.items()):  # the test has a time limit
        time.sleep(0.1)
    clean = subprocess.run(command("clean"), env=environment, capture_output=True, text=True, check=True)
    assert not processes_of(f"run-{run.pid}-"), clean.stdout
    assert list(Path(environment["TMPDIR"]).iterdir()) == [], clean.stdout
    assert not list((place / "state/cellbed/live").glob("*.json"))
    return lasted
