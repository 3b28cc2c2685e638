"""What wheels contain and require, and their installation in a fresh root."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cellbed.laws import law
from cellbed.recordings import recorder
from cellbed.report.html import ASSETS, FILES
from cellbed.scenario.applications import Application
from cellbed.scenario.examples import examples
from cellbed.support.extensions import entries
from cellbed.testbed.machine.privilege import COMPILED_HELPER
from cellbed.testbed.nodes.container import INIT
from cellbed.workloads.video.table import LIBRARIES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
MOST_BYTES = 40_000_000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a fresh root file system is entered as root")
PROGRAMS = [recorder._PROGRAM, COMPILED_HELPER, INIT]


def _shipped() -> set[str]:
    """Return the names in the wheel of files beside the Python code."""
    beside = [*PROGRAMS, *(ASSETS / name for name in FILES), *LIBRARIES.values()]
    return {str(path.relative_to(ROOT / "python")) for path in beside}


def test_the_wheel_includes_what_is_made_beside_the_python_code() -> None:
    patterns = [each["path"].removeprefix("python/") for each in PROJECT["tool"]["maturin"]["include"]]
    for name in _shipped():
        assert any(Path(name).match(pattern) for pattern in patterns), name


def _imports(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file and the top-level name of each import in it, but for those of type checkers."""
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from ((path, each.name.partition(".")[0]) for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield path, node.module.partition(".")[0]


def test_each_import_is_of_the_base_installation_or_of_an_extra() -> None:
    extras = [
        *(
            each
            for name in ("migration", "quic", "tensorflow", "torch", "translation", "vision")
            for each in EXTRAS[name]
        )
    ]
    declared = {canonicalize_name(Requirement(each).name) for each in (*PROJECT["project"]["dependencies"], *extras)}
    declared |= {"google", "hpack", "markupsafe", "pydantic-core", "protobuf"}  # of packages that are declared
    owners = packages_distributions()
    for folder in ("cellbed", "cellbed_node"):
        for path, name in _imports(ROOT / "python" / folder):
            if path.name == "pytest_plugin.py":  # loaded by pytest alone
                continue
            if name in sys.stdlib_module_names or name.startswith("cellbed") or "examples" in path.parts:
                continue
            assert {canonicalize_name(each) for each in owners.get(name, [name])} & declared, f"{path}: {name}"


def test_kinds_name_extras_that_exist_and_all_has_each() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])
    # The two frameworks have gigabytes, and only runtimes of their names need them.
    assert everything.extras == EXTRAS.keys() - {"all", "dev", "tensorflow", "torch"}
    for entry in entries("applications").values():
        table = entry.load()
        assert issubclass(table, Application)
        source = Path(str(import_module(table.__module__).__file__)).read_text()
        for extra in re.findall(r'"[\w-]+": "(\w+)"[,}]', source.partition("def packages")[2].partition("\n\n")[0]):
            assert extra in EXTRAS


def test_objects_of_other_sources_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(law.FOLDER, tmp_path / "laws")
    monkeypatch.setattr(law, "FOLDER", tmp_path / "laws")
    law._sources.cache_clear()
    folder = tmp_path / "laws" / "objects" / law._sources()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flows.o").touch()
    assert law.kernel_object("flows.c", tmp_path) == folder / "flows.o"
    (tmp_path / "laws" / "law.h").open("a").write("\n")
    law._sources.cache_clear()
    assert law._packaged("flows.o") is None
    law._sources.cache_clear()


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    """A folder for root file systems: other runs of pytest remove old folders of `tmp_path`."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def wheel(work: Path) -> Path:
    """The wheel of the core, built in the clone."""
    (work / "wheel").mkdir()
    subprocess.run([ROOT / "scripts" / "build.sh", "wheel", "."], check=True)
    (found,) = (ROOT / "build" / "dist").glob("cellbed-[0-9]*.whl")
    return Path(shutil.copy(found, work / "wheel"))


@pytest.mark.slow
def test_the_wheel_is_small_complete_and_runs_on_old_distributions(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    laws = {f"{name}{end}" for name in law.load_shipped() for end in (".so", ".1.o", ".3.o")} | {"flows.o", "program.o"}
    ready = {f"cellbed/examples/{name}.toml" for name in examples()}
    objects = {f"cellbed/laws/objects/{law._sources()}/{name}" for name in laws}
    assert names >= _shipped() | ready | objects | {"cellbed/_core.abi3.so", "cellbed/LICENCES.txt"}
    assert any(name.endswith("share/man/man1/cellbed-run.1") for name in names)
    assert any(name.endswith("sboms/core.cdx.json") for name in names)
    shown = subprocess.run(
        [Path(sys.executable).with_name("auditwheel"), "show", wheel], check=True, capture_output=True, text=True
    ).stdout
    assert "manylinux_2_28" in shown


def test_a_build_from_source_names_missing_compilers() -> None:
    command = [sys.executable, "-c", "import backend; backend.get_requires_for_build_wheel()"]
    environment = {"PATH": "", "PYTHONPATH": str(ROOT / "packaging")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert "rustup" in done.stderr
    assert "gcc" in done.stderr


@pytest.mark.slow
def test_the_source_distribution_builds_a_complete_wheel(wheel: Path, work: Path) -> None:
    folder = work / "source"
    subprocess.run([Path(sys.executable).with_name("maturin"), "sdist", "--out", folder], check=True, cwd=ROOT)
    (source,) = folder.iterdir()
    options = ["--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    # The least work for the compiler, as names are compared.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0"}
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, source], check=True, env=environment)
    (built,) = folder.glob("*.whl")
    assert set(zipfile.ZipFile(built).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def _fresh_root(folder: Path) -> None:
    """Make a root file system of Debian 12 with nothing but Python, which knows this machine's package index."""
    packages = "--include=python3,python3-venv,ca-certificates"
    made = subprocess.run(["mmdebstrap", "--variant=minbase", packages, "bookworm", folder], check=False)
    if made.returncode:
        pytest.skip("mmdebstrap cannot make a root file system here: is a mirror of Debian reachable?")
    for name in ("etc/resolv.conf", "etc/ssl/certs/ca-certificates.crt", "etc/pip.conf"):
        if Path("/", name).exists():
            shutil.copy(Path("/", name), folder / name)


def _in_root(folder: Path, command: str) -> str:
    """Run a shell command in a root file system, in namespaces of mounts and processes; return its output."""
    enter = (
        'mount --bind "$0" "$0"; mount -t proc proc "$0/proc"; '
        'mount --rbind /sys "$0/sys"; mount --rbind /dev "$0/dev"; '
        'exec chroot "$0" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -ec "$1"'
    )
    index = {key: value for key, value in os.environ.items() if key in ("PIP_CERT", "PIP_INDEX_URL")}
    exports = "".join(f"export {key}='{value}'; " for key, value in index.items())
    arguments = ["unshare", "--mount", "--pid", "--fork", "bash", "-ec", enter, str(folder), exports + command]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=550)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def fresh(wheel: Path, work: Path) -> Path:
    """A fresh root with the wheel and the recipe of the Debian package in /root."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is missing: sudo apt install mmdebstrap")
    folder = work / "root"
    _fresh_root(folder)
    shutil.copy(wheel, folder / "root")
    shutil.copy(ROOT / "packaging" / "debian.sh", folder / "root")
    return folder


RUN = "run --example smoke --no-limits --overcommit"


@pytest.mark.slow
@pytest.mark.needs_tun
@needs_root
def test_a_fresh_system_needs_nothing_but_python_and_the_wheel(fresh: Path) -> None:
    install = "python3 -m venv /venv; /venv/bin/pip install -q /root/cellbed-*.whl"
    _in_root(fresh, f"cd /root; {install}; /venv/bin/cellbed {RUN}; test -s runs/*/report.html")


@pytest.mark.slow
@pytest.mark.needs_tun
@needs_root
def test_the_debian_package_installs_and_runs(fresh: Path) -> None:
    build = "./debian.sh cellbed-*.whl . ; dpkg --install cellbed_*.deb"
    _in_root(fresh, f"cd /root; {build}; cellbed {RUN}; test -s /usr/share/man/man1/cellbed-run.1")


def _podman(*words: str) -> str:
    """Run a command of Podman; return its output."""
    return subprocess.run(["podman", *words], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _entry_point(image: str) -> list[str]:
    return json.loads(_podman("image", "inspect", "--format={{json .Config.Entrypoint}}", image))


@pytest.mark.slow
@pytest.mark.needs_tun
@needs_root
def test_the_image_builds_from_a_local_root_and_runs(fresh: Path, wheel: Path) -> None:
    if shutil.which("podman") is None:
        pytest.skip("podman is missing: sudo apt install podman")
    base, image = "localhost/cellbed-test-base", "localhost/cellbed-test"
    try:
        packed = subprocess.Popen(["tar", "-C", fresh, "--one-file-system", "-c", "."], stdout=subprocess.PIPE)
        subprocess.run(["podman", "import", "-", base], check=True, stdin=packed.stdout)
        recipe = ROOT / "packaging" / "Containerfile"
        options = ["--network=host", "--isolation=chroot", f"--build-arg=BASE={base}", "--build-arg=PACKAGES="]
        subprocess.run(["podman", "build", *options, "--tag", image, "--file", recipe, wheel.parent], check=True)
        # Entered as any root, since runtimes of containers refuse some layouts of control groups.
        folder = _podman("mount", _podman("create", image))
        _in_root(
            Path(folder), f"mkdir -p /work; cd /work; {' '.join(_entry_point(image))} {RUN}; test -s runs/*/report.html"
        )
    finally:
        subprocess.run(["podman", "rmi", "--force", image, base], check=False)


def test_a_missing_library_of_the_system_is_one_error_with_its_package() -> None:
    code = (
        "import sys; from cellbed.cli import main\n"
        "def app(**_): raise ImportError('numpy: libstdc++.so.6: cannot open shared object file: No such file')\n"
        "main.app = app; main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith("sudo apt install libstdc++6\n")
