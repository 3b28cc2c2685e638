"""Tables that fit where they are printed: the list of the archive, and the plan of a run."""

from __future__ import annotations

import os
import pty
import re
import shutil
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from archive_examples import add, write_rates
from cellbed.archive import Archive
from cellbed.archive.entry import About
from cellbed.archive.listing import listing
from cellbed.archive.search import Query, found
from cellbed.cli.main import app
from cellbed.cli.width import IN_A_PIPE

PLACE = "Platform 2 of the railway station, beside the stairs to the north, by the third pillar, behind the kiosk"


def _listed(archive: Archive, width: int, sort: str = "name") -> tuple[list[str], list[str]]:
    return listing(found(archive.contents().frame, Query(sort=sort)), sort, width)


def _describe(archive: Archive) -> Archive:
    """Adds an entry of which everything is known, at length."""
    add(archive, "walk-1", place=PLACE, operator="Koninklijke PTT Nederland", technology="5g", mobility="walking",
        obstacle="window", date="2025-03-14", band="mid", parts=("uplink", "downlink"))  # fmt: skip
    return archive


@pytest.fixture
def described(archive: Archive) -> Archive:
    """An archive of one's own with it."""
    return _describe(archive)


@pytest.fixture(scope="module")
def described_once(tmp_path_factory: pytest.TempPathFactory, archive_of_examples: Path) -> Archive:
    """An archive with it for those who only read it."""
    folder = tmp_path_factory.mktemp("data") / "traces"
    shutil.copytree(archive_of_examples, folder)
    return _describe(Archive(folder))


def test_a_wide_line_has_everything(described_once: Archive) -> None:
    (heading, *rows), left_out = _listed(described_once, IN_A_PIPE)
    assert left_out == []
    assert max(map(len, rows)) <= IN_A_PIPE
    for word in (
        "name",
        "tech",
        "band",
        "operator",
        "place",
        "date",
        "mobility",
        "obstacle",
        "uplink Mbit/s",
        "origin",
    ):
        assert word in heading
    assert "Koninklijke PTT Nederland" in rows[-1]
    assert "Platform 2 of the railway" in rows[-1]
    assert PLACE not in rows[-1]


def test_in_80_letters_texts_are_shortened_and_columns_left_out(described_once: Archive) -> None:
    lines, left_out = _listed(described_once, 80)
    assert max(map(len, lines)) <= 80
    assert left_out[:2] == ["origin", "obstacle"]
    (walk,) = [line for line in lines if line.startswith("walk-1")]
    assert walk.split()[:2] == ["walk-1", "5g"]
    assert "Platform 2" in walk
    assert walk.split()[-2:] == ["12.00", "12.00"]
    assert lines[0].split() == ["name", "tech", "place", "mobility", "s", "uplink", "Mbit/s", "downlink", "Mbit/s"]


def test_the_column_of_the_order_stays(described_once: Archive) -> None:
    lines, left_out = _listed(described_once, 80, "obstacle")
    assert "obstacle" not in left_out
    assert "window" in "\n".join(lines)
    assert max(map(len, _listed(described_once, 80, "citation")[0])) <= 80


@settings(max_examples=25, deadline=None)
@given(width=st.integers(20, 250))
def test_a_line_is_never_too_long_and_a_name_never_shortened(described_once: Archive, width: int) -> None:
    lines, left_out = _listed(described_once, width)
    assert any(line.split()[0] == "walk-1" for line in lines if line)
    if len(left_out) < 7:
        assert max(map(len, lines)) <= width


def test_little_is_not_nothing(archive: Archive) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        write_rates(draft, "downlink", [(0, 3_400.0)], 10_000_000)
        archive.keep(draft, "thin")
    lines, _ = _listed(archive, 160)
    (thin,) = [line for line in lines if line.startswith("thin")]
    assert thin.split() == ["thin", "0.01", "0.0034", "recorded"]


def _on_a_terminal(words: list[str], wide: int) -> str:
    """What a command shows in a terminal of that width, without what makes it bold."""
    ours, its = pty.openpty()
    ioctl(its, TIOCSWINSZ, struct.pack("HHHH", 24, wide, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= {"TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(words, stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        said = b""
        while True:
            try:
                some = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            said += some
    os.close(ours)
    assert process.returncode == 0, said.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())


SCENARIO = """
name = "far"
duration = "10 s"
[nodes.endpoint]
cpus = 1.0
memory = "512 MiB"
[nodes.cloud]
cpus = 1.0
memory = "1 GiB"
[links.mobile]
up = "12 Mbit/s"
down = "12 Mbit/s"
[links.core]
cloud = { kind = "place", name = "us-east-1", rate = "1 Gbit/s", loss = "0.01 %" }
[workload]
kind = "image-classification"
on = "cloud"
rate = "4 /s"
"""


def test_a_terminal_is_not_overrun(described: Archive, tmp_path: Path) -> None:
    (tmp_path / "far.toml").write_text(SCENARIO)
    for words in (["traces", "ls"], ["run", "--dry-run", str(tmp_path / "far.toml")]):
        shown = _on_a_terminal([sys.executable, "-P", "-m", "cellbed", *words], 80).splitlines()
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
    words = [sys.executable, "-P", "-m", "cellbed", "traces", "ls"]
    read_only = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$0" && exec "$@"', str(archive.folder)]
    done = subprocess.run([*read_only, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert "the archive has no entries" in done.stderr
