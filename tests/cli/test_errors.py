"""What errors say."""

import os
from pathlib import Path

import pytest

from cellbed.scenario import load_text
from cellbed.support.errors import CellbedError
from in_process import cellbed
from run_commands import run_process


def test_what_a_terminal_would_act_on_is_escaped() -> None:
    assert str(CellbedError("a\x1b[2Jb\nµ — ü")) == "a\\u001b[2Jb\nµ — ü"
    with pytest.raises(CellbedError) as caught:
        load_text('"na\\u001bme" = 1\n', Path("x\x07.toml"))
    assert "\x1b" not in str(caught.value)
    assert "\x07" not in str(caught.value)


def test_a_refusal_of_the_operating_system_is_a_sentence_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop.toml"
    loop.symlink_to(loop)
    monkeypatch.setenv("XDG_DATA_HOME", str(loop))
    done = cellbed("run", loop)
    assert done.returncode != 0
    assert f"{loop}: " in done.stderr
    assert "symbolic link" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["shell", "--", "true"], ["run", "x.toml"]])
def test_a_deleted_working_directory_is_no_traceback(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "gone").mkdir()
    done = run_process(*words, cwd=tmp_path / "gone", preexec_fn=(tmp_path / "gone").rmdir)
    assert "Traceback" not in done.stderr
    if words[0] == "shell":
        assert done.returncode == 1
        assert done.stderr == "error: the current working directory has been deleted; change to another one\n"


def test_a_name_that_is_not_utf_8_is_escaped(tmp_path: Path) -> None:
    name = os.fsdecode(b"r\xfcns")
    (tmp_path / name).mkdir()
    done = run_process("report", name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: r\\udcfcns: not a run folder")
    done = run_process("shell", "--log", f"{name}/log", "--", "true", cwd=tmp_path)
    assert done.returncode == 1
    assert "/r\\udcfcns/log: this name is not UTF-8; rename it or choose another place\n" in done.stderr
