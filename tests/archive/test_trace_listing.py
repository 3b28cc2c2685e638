"""Tables that fit where they are printed: the list of the archive, and the plan of a run."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from archive_examples import add
from cellbed.archive import Archive
from cellbed.cli.main import app
from cellbed.support.console import IN_A_PIPE
from run_commands import command, run_on_a_terminal
from scenario_text import GOOD

PLACE = 'cloud = { kind = "place", name = "us-east-1", rate = "1 Gbit/s", loss = "0.01 %" }'
SCENARIO = GOOD.replace('edge = "base-edge"', PLACE).replace("nodes.edge", "nodes.cloud").replace('"edge"', '"cloud"')


def test_a_terminal_is_not_overrun(archive: Archive, tmp_path: Path) -> None:
    add(archive, "walk-1", place="Platform 2 of the railway station, beside the stairs, behind the kiosk",
        operator="Koninklijke PTT Nederland", technology="5g", mobility="walking", obstacle="window", date="2025-03-14",
        band="mid", parts=("uplink", "downlink"))  # fmt: skip
    (tmp_path / "far.toml").write_text(SCENARIO)
    for words in (["traces", "ls"], ["run", "--dry-run", str(tmp_path / "far.toml")]):
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", run_on_a_terminal(*words, NO_COLOR="1")).splitlines()
        assert max(map(len, shown)) <= 80, shown
        assert not any("…" in line and "core" in line for line in shown)


def test_a_plan_fits_a_pipe_too_and_says_all(tmp_path: Path) -> None:
    (tmp_path / "far.toml").write_text(SCENARIO)
    for wide, most in (("", IN_A_PIPE), ("100", 100)):
        done = CliRunner().invoke(app, ["run", "--dry-run", str(tmp_path / "far.toml")], env={"COLUMNS": wide})
        assert done.exit_code == 0, done.output
        lines = done.output.splitlines()
        assert max(map(len, lines)) <= most
        (title,) = [number for number, line in enumerate(lines) if line.startswith("direction")]
        words = " ".join(line[lines[title].index("what") :].strip() for line in lines[title + 1 :])
        assert "round trips of us-east-1 in off-peak hours (synthetic)" in words


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a read-only folder")
def test_an_empty_read_only_archive_is_reported_as_such(archive: Archive) -> None:
    read_only = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$0" && exec "$@"', str(archive.folder)]
    done = subprocess.run([*read_only, *command("traces", "ls")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "the archive is empty" in done.stderr
