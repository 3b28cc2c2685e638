"""Files of others of every kind, for every command that reads files: an answer or one error, never a wait."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cellbed as cellbed_package
from hostile_files import KINDS, opened
from in_process import cellbed, each_in_one_process
from predicted_runs import make_run


def hostile(folder: Path, names: list[str], kinds: list[str], at: Path) -> Iterator[Path]:
    """Copies of a folder below `at`, in each of which one file is of another kind."""
    for name in names:
        for kind in kinds:
            copy = at / f"{name.replace('/', '-')}-{kind}"
            shutil.copytree(folder, copy)
            (copy / name).unlink(missing_ok=True)
            KINDS[kind](copy / name)
            yield copy


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "run"
    make_run(folder, duration=1, rate=3)
    for name in ("events.jsonl", "raw/changes.jsonl", "raw/programs.jsonl", "raw/lateness.bin"):
        (folder / name).touch()
    assert cellbed("report", folder).returncode == 0
    return folder


def test_report_of_a_folder_with_hostile_files(run: Path, tmp_path: Path) -> None:
    folders = [*hostile(run, ["run.json", "events.jsonl"], ["pipe", "deep"], tmp_path / "copies")]
    folders += hostile(run, ["raw/series.bin"], ["sparse"], tmp_path / "copies")
    each_in_one_process(tmp_path, [("report", folder) for folder in folders])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("verb", [("report",), ("log", "show"), ("compare",)])
def test_every_kind_of_file_in_a_folder_of_a_run(run: Path, verb: tuple[str, ...], tmp_path: Path) -> None:
    names = ["run.json", "events.jsonl", "scenario.toml", "scenario.resolved.json", "environment.json"]
    names += ["requests.parquet", "summary.json"] if verb == ("compare",) else []
    names += sorted(f"raw/{path.name}" for path in (run / "raw").iterdir()) if verb != ("compare",) else []
    more = [run] if verb == ("compare",) else []
    folders = hostile(run, names, list(KINDS), tmp_path / "copies")
    each_in_one_process(tmp_path, [(*verb, folder, *more) for folder in folders])


COMMANDS = [
    ("run", "FILE", "--dry-run"), ("run", "FILE", "--virtual", "--dry-run"), ("run", "named.toml", "--dry-run"),
    ("sweep", "FILE", "--dry-run"), ("sweep", "sweep.toml", "--dry-run"), ("sweep", "report", "swept"),
    ("log", "show", "FILE"),
    ("import", "compose", "FILE"), ("import", "kube", "FILE"), ("import", "continuum", "FILE"),
    ("import", "compose", "env.yaml"),
    ("traces", "add", "FILE", "--name", "x"),
    ("traces", "add", "FILE", "--as", "parquet", "--name", "y"),
]  # fmt: skip
"""FILE is the hostile one; the other files name it."""


def _write_files(folder: Path) -> None:
    texts = {
        "named.toml": (Path(__file__).parents[2] / "scenarios/offload-lte.toml").read_text().replace(
            '"lte-suburban.up"', '"FILE"'),
        "sweep.toml": 'name = "s"\nscenario = "FILE"\n[factors.x]\nkey = "seed"\nlevels = [1, 2]\n',
        "swept/sweep.toml": 'name = "s"\nscenario = "x.toml"\n[factors.x]\nkey = "seed"\nlevels = [1, 2]\n',
        "env.yaml": "services: {web: {image: nginx, env_file: FILE}}\n",
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "pipe" else pytest.mark.slow) for kind in KINDS]
)
def test_commands_with_a_hostile_file(kind: str, tmp_path: Path) -> None:
    _write_files(tmp_path)
    KINDS[kind](tmp_path / "FILE")
    KINDS[kind](tmp_path / "swept/trials.parquet")
    found = each_in_one_process(tmp_path, COMMANDS)
    for shown, command in zip(found, COMMANDS, strict=True):
        assert kind in ("nothing", "empty", "numbers") or shown[0] != "0", (command, shown)


_KUBE = """apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: web
    image: nginx
    env:
"""
BOMBS = {
    "dollars": ({"compose.yaml": f"x-a: [&a {'$$' * 200_000}{', *a' * 90_000}]\nx-b: ${{A}}\n"}, "is a variable"),
    "kube": ({"compose.yaml": _KUBE + "    - {name: A0, value: aaaaaaaaaa}\n" + "".join(
        f"    - {{name: A{n + 1}, value: {f'$(A{n})' * 10}}}\n" for n in range(12))}, "1 MiB"),
    "services": ({"compose.yaml": "services:\n" + "".join(f"  s{n}: {{image: nginx}}\n" for n in range(20_000))},
                 "more than 1000 services"),
    "command": ({"compose.yaml": f"services: {{web: {{image: nginx, command: {'x ' * 450_000}}}}}\n"}, "128 KiB"),
}  # fmt: skip


def test_files_that_grow_while_they_are_imported_are_refused(tmp_path: Path) -> None:
    for bomb, (files, _) in BOMBS.items():
        (tmp_path / bomb).mkdir()
        for name, text in files.items():
            (tmp_path / bomb / name).write_text(text)
    commands = [("import", "kube" if bomb == "kube" else "compose", f"{bomb}/compose.yaml") for bomb in BOMBS]
    for shown, (bomb, (_, reason)) in zip(each_in_one_process(tmp_path, commands), BOMBS.items(), strict=True):
        assert shown[0] == "2", (bomb, shown)
        assert reason in shown, (bomb, shown[-500:])


def test_names_of_others_give_no_commands_to_the_terminal(run: Path, tmp_path: Path) -> None:
    odd = "a\x1b[2Jb\x07\x9b1m\u202ec"
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    description = json.loads((copy / "run.json").read_text())
    description |= {"name": odd, "status": odd, "warnings": [odd]}
    description["applications"][0]["title"] = odd
    (copy / "run.json").write_text(json.dumps(description))
    scenario = (Path(__file__).parents[2] / "scenarios/offload-lte.toml").read_text()
    (tmp_path / "base.toml").write_text(scenario)
    (tmp_path / "sweep.toml").write_text(
        'name = "s"\nscenario = "base.toml"\n[factors.x]\nkey = "duration"\n'
        f'levels = {{ {json.dumps(odd)} = "9 s", b = "8 s" }}\n'
    )
    (tmp_path / "compose.yaml").write_text(f"services: {{web: {{image: nginx, {json.dumps(odd)}: 1}}}}\n")
    commands = [
        ("report", copy), ("report", copy, "--json"), ("sweep", "sweep.toml", "--dry-run"), ("run", odd),
        ("import", "compose", "compose.yaml"),
    ]  # fmt: skip
    found = each_in_one_process(tmp_path, commands)
    assert all("\\u0" in shown for shown in found), found
    assert json.loads(found[1].partition("\n")[2])["name"] == odd


def test_a_small_address_space_is_one_error(run: Path) -> None:
    command = ["sh", "-c", 'ulimit -v 600000; exec "$@"', "sh", sys.executable, "-P", "-m", "cellbed", "report", run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: the address space is limited")
    assert done.stderr.count("\n") == 1


def test_an_error_does_not_quote_a_whole_value(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(
        f'name = "x"\nduration = "{"9" * 200_000}"\n[workload]\nkind = "{"A" * 200_000}"\n'
    )
    done = cellbed("run", tmp_path / "x.toml", "--dry-run", status=2)
    assert len(done.stderr) < 10_000


OWN = {
    "files of the kernel, devices, or programs of this machine": (
        "doctor/changes.py", "doctor/kernel.py", "doctor/machine.py", "experiments/position.py",
        "experiments/real_run.py", "shell/wayout.py", "support/processes.py", "support/standard_streams.py",
        "testbed/clean.py", "testbed/machine/cgroups.py", "testbed/machine/events.py", "testbed/migration/snapshot.py",
        "testbed/programs/pressure.py",
    ),
    "a folder, lock or control group of ours, which no other user can enter": (
        "../cellbed_node/lifecycle.py", "../cellbed_node/temporary.py", "archive/sources/download.py",
        "experiments/sweep/store.py", "laws/kernel.py", "shell/helper.py", "testbed/migration/checkpoint.py",
        "testbed/migration/migrations.py", "testbed/migration/state_sockets.py", "testbed/nodes/backend.py",
    ),
    "a descriptor, bytes or output": (
        "measure/packets.py", "measure/run_folder.py", "shell/mahimahi/arguments.py", "support/whole_files.py",
        "testbed/migration/transfer.py", "workloads/browsing/virtual.py",
    ),
    "files of a package": (
        "report/html.py", "testbed/nodes/vm_image.py", "workloads/image_classification/photographs.py",
    ),
    "commands that `cellbed mahimahi install` may have written": ("shell/mahimahi/install.py",),
    "a single file of the standard library, on another machine": ("../cellbed_node/agent.py",),
    "a namespace in /proc": ("../cellbed_node/tunnel.py",),
    "a page of the emulator, copied into programs of the user": ("radio.py",),
    "files of a folder that only this run writes": ("testbed/nodes/container.py",),
    "below the root of a node, by openat2": ("testbed/nodes/copies.py",),
    "a folder of this run, without following links": ("testbed/nodes/namespace.py",),
    "records, opened as `inputs.py` does, and only where this user alone can write": ("testbed/machine/state.py",),
}  # fmt: skip
"""Modules that open files without `cellbed_node.inputs`, by the files that they open."""


def test_files_of_others_are_opened_by_one_module() -> None:
    package = Path(cellbed_package.__file__).parent
    found = opened(package, package.parent / "cellbed_node")
    own = {name for names in OWN.values() for name in names}
    missing = [line for name, lines in found.items() if name not in own for line in lines]
    assert not missing, f"open these with cellbed_node.inputs, or state here why not: {missing}"
    assert own <= set(found), f"exceptions without a use: {own - set(found)}"


def test_only_modules_that_draw_write_past_the_escaping_streams() -> None:
    package = Path(cellbed_package.__file__).parent
    drawing = ("x1b", "rich_proxied_file", 'draw(f"', "drawn.write")
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if any(mark in path.read_text().replace("\\\\x1b", "x1b") for mark in drawing)
    }
    assert found == {
        *("cli/live.py", "cli/progress.py", "measure/meter.py"),
        "support/standard_streams.py",
    }
