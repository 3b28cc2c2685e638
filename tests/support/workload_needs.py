"""Programs that tests of workloads need, and runs of them that are ended."""

import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cellbed.workloads.video.table import LIBRARIES
from cellbed_node.browsing import PROGRAMS
from cellbed_node.processes import find as find_program
from descendants import descendants, words
from in_process import cellbed
from run_commands import command

needs_browser = pytest.mark.skipif(not any(map(find_program, PROGRAMS)), reason="chromium is not installed")
needs_nginx = pytest.mark.skipif(find_program("nginx") is None, reason="nginx is not installed")
needs_caddy = pytest.mark.skipif(find_program("caddy") is None, reason="caddy is not installed")
needs_openssl = pytest.mark.skipif(find_program("openssl") is None, reason="openssl is not installed")

needs_relay = pytest.mark.skipif(find_program("turnserver") is None, reason="coturn is not installed")

needs_ffmpeg = pytest.mark.skipif(find_program("ffmpeg") is None, reason="ffmpeg is not installed")
needs_players = pytest.mark.skipif(
    not all(file.is_file() for file in LIBRARIES.values()),
    reason="the players are missing: python scripts/fetch_assets.py players",
)


def _needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


needs_person = _needs("ai_edge_litert", "mediapipe")
needs_reader = _needs("rapidocr_onnxruntime")


def wait_for_content(run: subprocess.Popen[Any], folder: Path, pattern: str) -> dict[int, bytes]:
    """Wait until a file of a run has content; return its processes."""
    while not any(file.stat().st_size for file in folder.glob(pattern)):
        assert run.poll() is None
        time.sleep(0.1)
    return descendants(run.pid)


@contextmanager
def end_run(
    folder: Path, text: str, pattern: str, how: signal.Signals | None = signal.SIGKILL
) -> Iterator[dict[int, bytes]]:
    """Run a scenario until a file has content, yield its processes, end it, and wait until all of them have ended."""
    (folder / "x.toml").write_text(text)
    arguments = command("run", folder / "x.toml", "--no-limits", "--out", folder / "r")
    run = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ours = wait_for_content(run, folder / "r", pattern)
        yield ours
        if how is not None:
            os.kill(run.pid, how)
        run.wait()
    finally:
        run.kill()
    while any(words(pid) == line for pid, line in ours.items()):  # the test has a time limit
        time.sleep(0.1)
    assert cellbed("clean").returncode == 0
