"""The check of the places that follow paths of nodes."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = [sys.executable, str(ROOT / "scripts" / "node_paths.py")]


@pytest.mark.parametrize(
    "line",
    [
        'Path(f"/proc/{self._pid}/root") / path',
        'open(f"/proc/{process}/root/etc/passwd")',
        'open("/proc/self/root" + path)',
        'os.listdir(f"/proc/{pid}/cwd")',
        'Path(f"/proc/self/fd/{root}/etc")',
        'Path("/proc", str(pid), "root") / path',
        'std::fs::read(format!("/proc/{pid}/root/etc/passwd"))',
        "shutil.rmtree(folder, ignore_errors=True)",
        "held.callback(shutil.rmtree, folder)",
        "shutil.copytree(one, other)",
        "with tempfile.TemporaryDirectory() as folder:",
    ],
)
def test_a_path_below_the_root_of_a_process_and_a_recursive_removal_are_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "x.py").write_text(f"x = 1\n{line}\n")
    done = subprocess.run([*LINT, tmp_path / "x.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{tmp_path}/x.py:2: " in done.stdout


def test_the_sources_follow_paths_of_nodes_in_one_module() -> None:
    done = subprocess.run(LINT, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "")
