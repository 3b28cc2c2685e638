"""Campaigns: a recording at each due time, in spite of failures of clock, disk, server and this program."""

import errno
import json
import os
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cellbed.experiments.campaign import STATE, Clock, Recorded, run_campaign
from cellbed.support.errors import CellbedError
from recorder_server import RECORD, secret, serving

__all__ = ["secret"]

HOUR = 3600 * 10**9


class VirtualClock(Clock):
    """Begins at 22:00. The machine is asleep from just before 02:00 to 04:36."""

    hours = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 30, 22, tzinfo=UTC) + timedelta(hours=self.hours)

    def wait(self, seconds: float) -> None:
        self.hours = 6.6 if 3.99 < self.hours < 4 else self.hours + seconds / 3600


def test_recordings_begin_at_due_times_and_failed_and_missed_times_are_named(tmp_path: Path) -> None:
    clock, begins = VirtualClock(), []

    def record(folder: Path, limit_s: float) -> Recorded:
        begins.append(clock.hours)
        number = round(clock.hours)
        clock.hours += 1.6 if number == 2 else 0.3  # the third is too long for the fourth time
        if number == 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        return Recorded(None, "no answer") if number == 1 else Recorded(60.0)

    done = run_campaign(tmp_path, HOUR, 10 * HOUR, ("vps:7700",), record, clock)
    fine, asleep = ("recorded", None), ("missed", "nothing ran then")
    late, full = "the recording before it had not ended", f"{tmp_path}: cannot be written: No space left on device"
    told = [fine, ("failed", "no answer"), fine, ("missed", late), *[asleep] * 3, fine, ("failed", full), fine]
    assert [(turn.outcome, turn.problem) for turn in done.turns] == told
    assert begins == pytest.approx([0, 1, 2, 7, 8, 9])
    assert done.turns[9].folder == "2026-12-01T07-00-00Z"
    assert done == run_campaign(tmp_path, HOUR, 10 * HOUR, ("vps:7700",), record, clock)
    with pytest.raises(CellbedError, match="other --every"):
        run_campaign(tmp_path, 2 * HOUR, 10 * HOUR, ("vps:7700",), record, clock)
    for text in ("", "{}", '{"format": "cellbed-campaign"}', "[" * 100_000, "\0"):
        (tmp_path / STATE).write_text(text)
        with pytest.raises(CellbedError, match="not the state of a campaign"):
            run_campaign(tmp_path, HOUR, HOUR, (), record, clock)


def test_a_campaign_over_loopback_survives_kills_and_a_server_that_is_gone(secret: Path, tmp_path: Path) -> None:
    def start(server: str, name: str, every: str = "20 s", length: str = "40 s") -> subprocess.Popen[str]:
        light = ["--only", "light", "--no-calibration", "--light-train", "2:2", "--gap", "20 ms", "--duration", "5 s"]
        times = ["--every", every, "--for", length, "--out", str(tmp_path / name), "--json"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*RECORD, server, "--secret", str(secret), *light, *times], **pipes)

    def wait_for_packets(name: str) -> None:
        while not any(journal.stat().st_size > 10_000 for journal in tmp_path.glob(f"{name}/*/journal")):
            time.sleep(0.05)

    def turns(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
        output, errors = process.communicate(timeout=300)
        assert "Traceback" not in errors
        found: list[dict[str, Any]] = json.loads(output.splitlines()[-1])["turns"]
        return found

    with serving(secret) as server:
        first = start(server, "killed")
        wait_for_packets("killed")
        first.kill()
        first.communicate()
        second = turns(start(server, "killed"))  # waits for the orphaned recorder
        assert [turn["outcome"] for turn in second] == ["recorded"] * 2
        assert second[0]["problem"] == "cut off: cellbed was killed"
        folders = [turn["folder"] for turn in second]
        assert sorted(each.name for each in (tmp_path / "killed").iterdir()) == sorted([STATE, *folders])
        assert all((tmp_path / "killed" / folder / "recording.json").exists() for folder in folders)
        assert turns(start(server, "killed")) == second
        stopped = start(server, "stopped")
        wait_for_packets("stopped")
        os.kill(stopped.pid, signal.SIGINT)
        assert [turn["outcome"] for turn in turns(stopped)] == ["recorded"]
    [tried] = turns(gone := start("127.0.0.1:9", "gone", "8 s", "8 s"))
    assert (tried["outcome"], gone.returncode) == ("failed", 1)
    wrong = start("x:1", "wrong", "soon")
    assert "not a duration" in wrong.communicate(timeout=200)[1]
    assert not (tmp_path / "wrong").exists()
