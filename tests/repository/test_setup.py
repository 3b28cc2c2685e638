"""The set-up of a clone."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCRIPTS = Path(__file__).parents[2] / "scripts"
REQUIREMENTS = SCRIPTS.parent / "requirements"


BUILD = """#!/bin/sh
echo "$@" >> calls
[ "$1" != wheel ] || { mkdir -p build/dist && touch build/dist/cellbed-1-py3-none-any.whl; }
"""
needs_libc = pytest.mark.skipif(not Path("/usr/include/stdio.h").exists(), reason="the set-up would install libc6-dev")
PINNED = "requirements/demo.txt"


def _clone(path: Path) -> dict[str, str]:
    """Make a clone whose compilers and installers only note their calls. Return the environment of its set-up."""
    tools, venv = path / "tools", path / ".venv" / "bin"
    for folder in (tools, venv, path / "scripts", path / "requirements"):
        folder.mkdir(parents=True)
    for name in ("pyproject.toml", PINNED, "requirements/test.txt"):
        (path / name).touch()
    shutil.copy(SCRIPTS / "setup.sh", path / "scripts")
    for folder, names in ((tools, ["cargo"]), (venv, ["python", "cellbed", "pip"])):
        for name in names:
            (folder / name).symlink_to("/bin/true")
    programs = {"rustc": "#!/bin/sh\necho rustc 1.99.0", "../scripts/build.sh": BUILD}
    programs["../.venv/bin/uv"] = '#!/bin/sh\necho uv "$@" | grep -oE "^uv|[^ ]*(txt|whl)$" | xargs >> calls\n'
    for name, content in programs.items():
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHON": "/bin/true"}


@needs_libc
def test_a_demo_installs_the_wheel_that_it_builds_but_not_over_an_editable_installation(tmp_path: Path) -> None:
    environment = _clone(tmp_path)

    def calls() -> list[str]:
        (tmp_path / "calls").write_text("")
        subprocess.run([tmp_path / "scripts" / "setup.sh", "demo"], check=True, env=environment, capture_output=True)
        return (tmp_path / "calls").read_text().split("\n")[:-1]

    wheel = ["wheel .", "uv build/dist/cellbed-1-py3-none-any.whl"]
    assert calls() == [f"uv {PINNED}", *wheel]
    assert calls() == wheel
    (tmp_path / PINNED).write_text("changed")
    assert calls() == [f"uv {PINNED}", *wheel]
    (tmp_path / ".venv" / ".editable").touch()
    assert calls() == ["uv requirements/test.txt", "beside", "editable ."]


def _wheel(folder: Path, content: str) -> str:
    """Write the wheel of a package `example` into a folder. Return its SHA-256."""
    path = folder / "example-1.0-py3-none-any.whl"
    files = {
        "example.py": content,
        "example-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: example\nVersion: 1.0\n",
        "example-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "example-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(zipfile.ZipInfo(name), text)  # the same bytes at any time
    return hashlib.sha256(path.read_bytes()).hexdigest()


@needs_libc
def test_the_set_up_refuses_a_package_whose_file_was_altered_or_has_no_hash(tmp_path: Path) -> None:
    environment = _clone(tmp_path)
    served, installed = tmp_path / "served", tmp_path / "installed"
    served.mkdir()
    venv, uv = tmp_path / ".venv" / "bin", Path(sys.executable).with_name("uv")
    (venv / "uv").write_text(f'#!/bin/sh\ncase "$*" in *" -r "*) exec {uv} "$@" --target {installed} ;; esac\n')
    (venv / "python").unlink()
    (venv / "python").symlink_to(sys.executable)
    index = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(served)}
    options = [line for line in (REQUIREMENTS / "demo.txt").read_text().splitlines() if not re.match(r"\w", line)]

    def set_up(requirement: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / PINNED).write_text("\n".join([*options, requirement]))
        command = [tmp_path / "scripts" / "setup.sh", "demo"]
        return subprocess.run(command, env=environment | index, capture_output=True, text=True, check=False)

    pinned = f"example==1.0 --hash=sha256:{_wheel(served, 'original')}"
    assert set_up("example==1.0").returncode != 0
    _wheel(served, "altered")
    refused = set_up(pinned)
    assert refused.returncode != 0
    assert "Hash mismatch" in refused.stderr
    assert not (installed / "example.py").exists()
    _wheel(served, "original")
    assert set_up(pinned).returncode == 0
    assert (installed / "example.py").read_text() == "original"


def test_the_set_up_installs_nothing_but_pinned_packages_and_the_clone() -> None:
    script = (SCRIPTS / "setup.sh").read_text()
    (by_pip,) = re.findall(r'pip" install .*', script)
    assert by_pip.endswith("--no-deps -r requirements/uv.txt")
    (by_uv,) = re.findall(r'uv" pip install .*', script)
    assert by_uv.endswith('--no-deps "$@"')
    arguments = set(re.findall(r"    add_packages (-[^;\n]*)", script))
    assert arguments == {'-r "requirements/$pins.txt"', "--reinstall build/dist/cellbed-*.whl"}
    (editable,) = re.findall(r"uv pip install .*\n.*-e", (SCRIPTS / "build.sh").read_text())
    assert "--no-deps" in editable
    assert "--no-build-isolation" in editable


def _pins(name: str) -> dict[str, str]:
    """Return the pinned version of each package in a file of requirements/, whose lines all have hashes."""
    options, lines = (REQUIREMENTS / f"{name}.txt").read_text().split("--require-hashes\n")
    assert "--only-binary :all:" in options
    pinned = r"([\w.-]+)==(\S+)(?: ;.*?)?(?: --hash=sha256:[0-9a-f]{64})+"
    matches = [re.fullmatch(pinned, line) for line in lines.splitlines()]
    assert all(matches), name
    return {canonicalize_name(match[1]): match[2] for match in matches if match}


@pytest.mark.parametrize("name", ["demo", "test", "quic", "vision", "npm", "uv"])
def test_pinned_packages_satisfy_the_project_and_agree_with_the_tested_ones(name: str) -> None:
    pins = _pins(name)
    project = tomllib.loads((REQUIREMENTS.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    extra = {"test": ["dev", "migration", "quic", "translation", "vision"]}.get(name, [name])
    needed = [each for kind in extra for each in extras.get(kind, [])]
    if name in ("demo", "test"):
        needed = [*needed, *project["project"]["dependencies"], *project["build-system"]["requires"]]
    if name == "test":
        papers = tomllib.loads((REQUIREMENTS.parent / "papers" / "pyproject.toml").read_text())
        found = [*papers["project"]["dependencies"], *papers["build-system"]["requires"]]
        needed += [each for each in found if not each.startswith("cellbed")]
    for requirement in map(Requirement, needed):
        assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement
    tested = _pins("test")
    assert name in ("npm", "uv") or pins.items() <= tested.items()
