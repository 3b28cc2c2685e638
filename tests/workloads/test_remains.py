"""Runs with browsers, relays, codecs and networks leave no process and no folder, killed at any moment or not."""

import os
import random
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import test_call
import test_video
import test_vision
import test_web
from cellbed_node.offloading.broker import find_mosquitto
from descendants import descendants, words
from run_commands import command, processes_of

CYCLES = 20
needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")
BROWSER = (test_web.needs_browser, test_web.needs_openssl)
VISION = f"{test_vision.NAMED}[apps.x]\n{test_vision.KEYS}images = 3\n"
KINDS = {
    "web": (f'{test_web.NAMED}{test_web.APP}page = "google"\narrivals = "closed"\n', (*BROWSER, test_web.needs_nginx)),
    "video": (
        f"{test_video.HEAD}{test_video.NODES}\n{test_video.APP}",
        (*BROWSER, test_web.needs_nginx, test_video.needs_ffmpeg, test_video.needs_players),
    ),
    "call": (test_call.NAMED + test_call.APP + test_call.SMALL, (*BROWSER, test_call.needs_relay)),
    "segmentation": (f'{VISION}kind = "segmentation"\n', (needs_mosquitto, test_vision.needs_person)),
    "plates": (f'{VISION}kind = "plates"\n', (needs_mosquitto, test_vision.needs_reader)),
}


@pytest.mark.needs_tun
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=needs) for kind, (_, needs) in KINDS.items()])
def test_runs_leave_no_process_and_no_folder(tmp_path: Path, kind: str) -> None:
    (tmp_path / "x.toml").write_text(KINDS[kind][0])
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
