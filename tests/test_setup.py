"""The set-up of a clone."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

APT_GET = Path(__file__).parent.parent / "scripts" / "apt_get.sh"


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get")
def test_the_set_up_waits_for_another_program_that_holds_the_lock_of_the_package_lists(tmp_path: Path) -> None:
    lists, repository = tmp_path / "lists", tmp_path / "repository"
    for folder in (lists / "partial", tmp_path / "cache" / "archives" / "partial", repository):
        folder.mkdir(parents=True)
    (repository / "Packages").touch()
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    settings = {
        "Dir::State::Lists": lists,
        "Dir::Cache": tmp_path / "cache",
        "Dir::Etc::SourceList": tmp_path / "sources.list",
        "Dir::Etc::SourceParts": tmp_path / "none",
        # The unprivileged user that apt-get takes otherwise cannot enter this folder.
        "APT::Sandbox::User": "root",
    }
    config = tmp_path / "apt.conf"
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()))
    with (lists / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        with subprocess.Popen(
            [APT_GET, "update", "-qq"], stderr=subprocess.PIPE, text=True, env={**os.environ, "APT_CONFIG": str(config)}
        ) as update:
            assert update.stderr is not None
            assert "waiting" in update.stderr.readline()
            assert update.poll() is None
            fcntl.lockf(lock, fcntl.LOCK_UN)
            assert update.stderr.read() == ""
    assert update.returncode == 0
    assert any("repository" in path.name for path in lists.iterdir())
