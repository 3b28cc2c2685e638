"""Fixtures of several files."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from cellbed.archive import Archive, open_archive
from shell_world import World, open_world

# A loaded machine is no fault of what is tested. `make test` has the same cases in every run; `make test-slow` explores
# with new seeds (--hypothesis-profile=explore).
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("fixed")
# A runner in the background may ignore them, and so would every program that a test interrupts or hangs up.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Workers of pytest-xdist inherit the width of a terminal, which tables would follow.
os.environ.pop("COLUMNS", None)
# A worker of pytest-xdist has no arguments, and `cellbed` without arguments only lists its commands.
sys.argv[1:] = sys.argv[1:] or ["tests"]


def _end(process: subprocess.Popen[Any], kind: object, error: object, trace: object) -> None:
    """Leave a context of a process. After a failure, also of time, the process would be waited for without an end."""
    if kind is not None:
        process.kill()
    _wait(process, kind, error, trace)


_wait, subprocess.Popen.__exit__ = subprocess.Popen.__exit__, _end  # type: ignore[method-assign, assignment]
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield running
        running.close()


@pytest.fixture
def world() -> Iterator[World]:
    """A world of one's own."""
    with open_world() as world:
        yield world


@pytest.fixture(scope="session")
def archive_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with the examples alone: it takes seconds to make them."""
    archive = Archive(tmp_path_factory.mktemp("examples"))
    archive.contents()
    return archive.folder


@pytest.fixture
def bare_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive that nobody has looked into."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return open_archive()


@pytest.fixture
def archive(bare_archive: Archive, archive_of_examples: Path) -> Archive:
    """An archive that has been looked into."""
    shutil.copytree(archive_of_examples, bare_archive.folder)
    return bare_archive


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what this machine cannot run, before its fixtures."""
    if item.get_closest_marker("needs_tun") and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        pytest.skip("/dev/net/tun cannot be opened")
