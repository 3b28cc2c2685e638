"""The check of the places that follow paths of nodes."""

import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[2] / "scripts"
LINES = [
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
]


def test_a_path_below_the_root_of_a_process_and_a_recursive_removal_are_found(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x = 1\n" + "\n".join(LINES))
    command = [sys.executable, SCRIPTS / "node_paths.py", tmp_path / "x.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    found = [line.partition(": ")[0] for line in done.stdout.splitlines()]
    assert found == [f"{tmp_path}/x.py:{number}" for number in range(2, 2 + len(LINES))]
