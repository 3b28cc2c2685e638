"""``run.log``: what the folder of a run contains about its course and its failure."""

import json
import logging
import os
import subprocess
from pathlib import Path

import pytest

from cellbed.runformat import log
from cellbed.support.errors import CellbedError
from run_commands import only_folder, run
from small_scenario import SCENARIO, WEB

FAILING = WEB.replace("python3 -m http.server --protocol HTTP/1.1 8080", "sh -c 'no-such-program --x'")

FLOOD = """
[apps.flood]
kind = "program"
[apps.flood.client]
on = "endpoint"
command = ["sh", "-c", "yes 0123456789012345678901234567890123456789; sleep 5"]
"""
KILLER = """
[apps.killer]
kind = "program"
[apps.killer.client]
on = "endpoint"
command = ["sh", "-c", "kill -9 $(pgrep -o -P $PPID); sleep 5"]

[apps.web]"""
"""Its shell is a child of the run, whose oldest child is the emulator."""


def scenario(folder: Path, text: str) -> Path:
    path = folder / "failing.toml"
    path.write_text(SCENARIO + text)
    return path


@pytest.mark.needs_tun
def test_a_program_that_is_missing_is_explained_by_the_log_which_is_kept_if_asked_for(tmp_path: Path) -> None:
    path = scenario(tmp_path, FAILING)
    run("run", path, "--out", tmp_path / "out", "--no-limits", env={log.VARIABLE: "info"}, status=1)
    lines = (only_folder(tmp_path / "out") / log.FILE).read_text().splitlines()
    assert len({line.split()[3] for line in lines[10:]}) == 1  # the identifier
    for part in (
        "link mobile-0.uplink: 20 Mbit/s",
        "phase ended: bring up, after ",
        "program web.edge-0.server on edge-0: sh -c 'no-such-program --x'",
        "ended with status 127; its output ended: sh: 1: no-such-program: not found",
        "error   the run failed: web.edge-0.server on edge-0 ended with status 127 before it was ready",
    ):
        assert any(part in line for line in lines), part


def test_an_unknown_level_is_an_error_that_names_the_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(log.VARIABLE, "loud")
    with pytest.raises(CellbedError, match="CELLBED_LOG='loud': expected one of debug, info, warning, error"):
        log.RunLog()


def test_lines_before_the_folder_are_kept_and_names_of_others_are_escaped(tmp_path: Path) -> None:
    logger = logging.getLogger("cellbed.test")
    here = log.RunLog()
    with log.recording(here):
        logger.info("before")
        here.write_into(tmp_path)
        logger.info("\x1b[2J" + "x" * 100_000 + "\nsecond line")
    logger.info("after")
    first, second = (tmp_path / log.FILE).read_text().splitlines()
    assert first.endswith("before")
    assert "\\u001b[2J" in second
    assert second.endswith("second line")
    assert len(second) < 2 * log.LONGEST_LINE


def test_a_flood_of_lines_leaves_room_for_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LARGEST", 10_000)
    here = log.RunLog()
    here.write_into(tmp_path)
    with log.recording(here):
        for number in range(1000):
            logging.getLogger("cellbed.test").info("line %d", number)
        logging.getLogger("cellbed.test").error("why it failed")
    text = (tmp_path / log.FILE).read_text()
    assert len(text) < 21_000
    assert text.count("left out") == 1
    assert text.endswith("why it failed\n")


def test_lines_wait_while_the_disk_is_full(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        here = log.RunLog()
        here.write_into(tmp_path)
        filling = os.open(tmp_path / "filling", os.O_WRONLY | os.O_CREAT)
        while os.statvfs(tmp_path).f_bavail:
            os.write(filling, bytes(4096))
        with log.recording(here):
            logging.getLogger("cellbed.test").error("why it failed")
            os.ftruncate(filling, 0)
            logging.getLogger("cellbed.test").info("the end")
        os.close(filling)
        assert [line.split()[-1] for line in (tmp_path / log.FILE).read_text().splitlines()] == ["failed", "end"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.needs_tun
def test_an_emulator_that_is_killed_is_explained_by_the_log(tmp_path: Path) -> None:
    path = scenario(tmp_path, WEB.replace("[apps.web]", KILLER))
    run("run", path, "--out", tmp_path / "out", "--no-limits", status=1)
    lines = (only_folder(tmp_path / "out") / log.FILE).read_text().splitlines()
    assert any("run failed: the emulator ended unexpectedly (exit status -9)" in line for line in lines)


@pytest.mark.needs_tun
def test_a_disk_that_is_full_at_the_end_is_in_the_log_and_the_report(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", tmp_path], check=False).returncode:
        pytest.skip("needs the right to mount")
    try:
        done = run("run", scenario(tmp_path, FLOOD), "--out", tmp_path / "out", "--no-limits")
        assert (tmp_path / "out").exists(), done.stderr
        folder = only_folder(tmp_path / "out")
        texts = (folder / log.FILE).read_text(), *json.loads((folder / "summary.json").read_text())["warnings"]
        assert sum("was full when the run ended" in text for text in texts) == 2
    finally:
        subprocess.run(["umount", tmp_path], check=True)
