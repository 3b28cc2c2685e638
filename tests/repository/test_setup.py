"""The set-up of a clone."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
APT_GET = SCRIPTS / "apt_get.sh"


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


COMPILER = """#!/bin/sh
# A tool that notes its call, makes its program, and during which somebody edits a file: the first line of `edits`.
echo "${0##*/} $(echo "$*" | grep -o 'bin [a-z-]*')" >> calls
mkdir -p target/release
touch target/release/cellbed-net target/release/cellbed-init
sleep 0.05
edited=$(head -n 1 edits)
sed -i 1d edits
[ -z "$edited" ] || echo >> "$edited"
"""


@pytest.mark.skipif(not Path("/usr/include/stdio.h").exists(), reason="the set-up would install libc6-dev")
def test_what_is_edited_while_the_set_up_compiles_is_compiled_by_the_next_one(tmp_path: Path) -> None:
    tools, venv = tmp_path / "tools", tmp_path / ".venv" / "bin"
    sources = ["crates/link/src/lib.rs", "crates/init/src/main.rs", "crates/nethelper/src/lib.rs", "Cargo.lock"]
    present = ["Cargo.toml", "crates/netdev/Cargo.toml", "pyproject.toml", "constraints.txt", "edits", "calls"]
    beside = ["python/cellbed/testbed/x", "python/cellbed/report/assets/uPlot.iife.min.js"]
    for name in [*sources, *present, *beside]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "setup.sh", tmp_path / "scripts")
    for folder, names in ((tools, ["mosquitto", "nft", "cc"]), (venv, ["python", "cellbed"])):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).symlink_to("/bin/true")
    for path in (tools / "cargo", venv / "pip", venv / "maturin"):
        path.write_text(COMPILER)
        path.chmod(0o755)
    (tools / "rustc").write_text("#!/bin/sh\necho rustc 1.99.0")
    (tools / "rustc").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": "/bin/true"}

    def compiled(*edits: str) -> list[str]:
        (tmp_path / "calls").write_text("")
        (tmp_path / "edits").write_text("".join(f"{name}\n" for name in edits))
        subprocess.run([tmp_path / "scripts" / "setup.sh", "demo"], check=True, env=environment, capture_output=True)
        return (tmp_path / "calls").read_text().split("\n")[:-1]

    module, net, init = ["maturin "], ["cargo bin cellbed-net"], ["cargo bin cellbed-init"]
    install = ["pip ", "pip "]
    assert compiled("", "constraints.txt", "", sources[1]) == install + net + init
    assert compiled("", sources[0]) == install + init
    assert compiled(sources[2]) == module + net
    assert compiled() == module + net
    assert compiled() == []
