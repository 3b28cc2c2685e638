"""External programs with a limit of time: nothing of them is left, whichever part of cellbed runs them."""

import ast
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import cellbed
from cellbed.support.bounded import run_bounded
from run_commands import has_ended

HANGS = """#!/bin/sh
touch "$TMPDIR/left"
setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' &
sh -c 'echo $$ >> {pids}; exec sleep 1000' &
echo $$ >> {pids}
exec sleep 1000
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_program_that_is_timed_out_leaves_no_process_and_no_file(tmp_path: Path, temporary: Path) -> None:
    program, pids = tmp_path / "program", tmp_path / "pids"
    program.write_text(HANGS.format(pids=pids))
    program.chmod(0o755)
    with pytest.raises(subprocess.TimeoutExpired):
        run_bounded([str(program)], timeout_s=5)
    for number in pids.read_text().split():
        while not has_ended(int(number)):  # until it has been collected
            time.sleep(0.01)
    assert not list(temporary.iterdir())


def test_descendants_of_a_program_end_with_it(tmp_path: Path, temporary: Path) -> None:
    done = run_bounded(["sh", "-c", "sleep 1000 & echo $!; echo wrong >&2; exit 3"], timeout_s=30)
    assert (done.returncode, done.stderr) == (3, b"wrong\n")
    while not has_ended(int(done.stdout)):
        time.sleep(0.01)
    assert not list(temporary.iterdir())


def test_output_files_and_memory_are_limited(temporary: Path) -> None:
    assert len(run_bounded(["cat", "/dev/zero"], timeout_s=60).stdout) == 64 << 20
    assert run_bounded(["python3", "-c", "bytearray(5 << 30)"], timeout_s=60).returncode != 0
    written = run_bounded(["sh", "-c", "cat /dev/zero > $TMPDIR/file; wc -c < $TMPDIR/file"], timeout_s=60)
    assert int(written.stdout) == 64 << 20


def test_programs_with_a_limit_of_time_are_run_by_one_mechanism() -> None:
    for path in sorted(Path(cellbed.__file__).parent.rglob("*.py")):
        if "subprocess." not in (text := path.read_text()):
            continue
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("subprocess."):
                assert "timeout" not in [each.arg for each in call.keywords], f"{path}:{call.lineno}: use run_bounded"
