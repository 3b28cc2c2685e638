"""The registry of live runs: what `cellbed clean` does with records, and what no record can have it do."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.state import Record, parse_record
from cellbed_node.temporary import temporary_folder
from in_process import cellbed
from run_commands import needs_limits

NAME = "run-1-0a1b2c"
STALE: dict[str, Any] = asdict(Record(NAME, "run", process=1, process_start=0, boot="an earlier one"))
OTHER_USER = 42420


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a registry that no other test uses, and another one for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    folder = tmp_path / "state" / "cellbed" / "live"
    folder.mkdir(parents=True)
    return folder


def write(live: Path, name: str = NAME, **values: Any) -> Path:
    path = live / f"{name}.json"
    path.write_text(json.dumps(STALE | values))
    path.chmod(0o600)
    return path


def clean() -> list[str]:
    done = cellbed("clean", "--json", status=0)
    # Other tests may have left some at the same time.
    return [line for line in json.loads(done.stdout) if not line.startswith("removed control group ")]


def unstarted(path: Path) -> Path:
    (path / "raw").mkdir(parents=True)
    (path / "scenario.toml").write_text("")
    return path


ELSEWHERE = ["unshare", "--pid", "--fork", "--kill-child", *([] if os.geteuid() == 0 else ["--map-root-user"])]
RECORD = """
from cellbed.testbed.machine.state import Record, records
print(Record.create("run").identifier, [each.is_stale() for each in records()], flush=True)
input()
"""


@pytest.mark.skipif(
    subprocess.run([*ELSEWHERE, "--mount-proc", "true"], capture_output=True, check=False).returncode != 0,
    reason="no PID namespaces here",
)
def test_runs_in_another_pid_namespace_are_live(live: Path) -> None:
    own = Record.create("run")
    command = [*ELSEWHERE, "--mount-proc", sys.executable, "-c", RECORD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        name, _, seen_there = other.stdout.readline().strip().partition(" ")
        assert seen_there == "[False, False]"
        assert not [line for line in clean() if name in line or own.identifier in line]
        assert (live / f"{name}.json").exists()
        other.kill()
    clean()
    assert own.is_registered()
    own.remove()

    if Path("/proc/self/ns/pid").stat().st_ino == 0xEFFFFFFC:  # else this process does not see all others
        while list(live.glob("*.json")):  # what ran inside ends after unshare
            clean()


TEMPORARY = """
from cellbed_node.temporary import temporary_folder
with temporary_folder() as folder:
    print(folder, flush=True)
    input()
"""


def test_temporary_folders_of_killed_processes_are_removed(live: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", TEMPORARY]
    dead, alive = (subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(2))
    one, other = (Path(process.stdout.readline().strip()) for process in (dead, alive))
    (one / "file").touch()
    dead.kill()
    dead.wait()
    assert f"removed {one}, of a killed command" in clean()
    assert not one.exists()
    assert other.is_dir()
    alive.kill()
    alive.wait()
    with temporary_folder() as mine:
        assert [path for path in (tmp_path / "tmp").glob("cellbed-*") if path.is_dir()] == [mine]
    assert not mine.exists()


@pytest.mark.parametrize(
    "values",
    [
        {"undo": [["/gone/python"]]},
        {"undo": [["touch", "VICTIM/touched"]]},
        {"identifier": "run-1-ffffff"},
        {"process": 0},
        {"cgroups": ["VICTIM"]},
        {"cgroups": [f"/sys/fs/cgroup/../../../VICTIM/{NAME}"]},
        {"scratch": "VICTIM"},
        {"pages": "VICTIM"},
        {"folder": "victim"},
        {"control": "VICTIM/file"},
    ],
)  # fmt: skip
def test_a_malformed_record_is_skipped_with_one_line(live: Path, values: dict[str, Any]) -> None:
    victim = live.parents[2] / "victim"
    victim.mkdir()
    (victim / "file").touch()
    record = write(live, **json.loads(json.dumps(values).replace("VICTIM", str(victim))))
    good = unstarted(live.parents[2] / "runs" / "killed")
    write(live, "run-2-0a1b2c", identifier="run-2-0a1b2c", folder=str(good))
    lines = clean()
    assert [line for line in lines if line.startswith(f"skipped {record}: not a record of ")] == lines[:1]
    assert "\n" not in lines[0]
    assert lines[1:] == [f"run-2-0a1b2c: removed {good}, which contained no measurements"]
    assert [each.name for each in victim.iterdir()] == ["file"]


def test_what_is_no_file_of_this_user_is_skipped_with_one_line(live: Path) -> None:
    os.mkfifo(live / "pipe.json")
    (live / "folder.json").mkdir()
    (live / "gone.json").symlink_to(live / "nothing")
    (live / "long.json").write_text(" " * 100_000)
    (live / "binary.json").write_bytes(b"\xff\x00")
    (live / "nested.json").write_text("[" * 60_000)
    write(live).chmod(0o666)
    lines = clean()
    assert {line.partition(": ")[0] for line in lines} == {f"skipped {path}" for path in live.glob("*.json")}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a file of another user")
def test_root_does_nothing_for_a_record_of_another_user(live: Path) -> None:
    victim = unstarted(live.parents[2] / "victim")
    os.chown(write(live, folder=str(victim)), OTHER_USER, OTHER_USER)
    assert clean() == [f"skipped {live / NAME}.json: it belongs to user 42420, who can run `cellbed clean`"]
    assert victim.is_dir()


def test_only_a_run_s_own_folder_is_removed(live: Path, tmp_path: Path) -> None:
    photographs = unstarted(tmp_path / "photographs")
    (photographs / "holiday.png").touch()
    write(live, folder=str(photographs))
    assert clean() == [f"{NAME}: left {photographs}: it contains files that no run writes"]
    assert photographs.is_dir()
    behind = unstarted(tmp_path / "behind")
    (tmp_path / "link").symlink_to(behind)
    write(live, folder=str(tmp_path / "link"))
    assert clean() == [f"{NAME}: nothing was left but its record"]
    assert behind.is_dir()
    if os.geteuid() == 0:
        os.chown(behind, OTHER_USER, OTHER_USER)
        write(live, folder=str(behind))
        assert clean() == [f"{NAME}: nothing was left but its record"]
        assert behind.is_dir()
    scratch, pages = (tmp_path / place / f"cellbed-{NAME}" for place in ("disk", "memory"))
    scratch.mkdir(parents=True)
    pages.mkdir(parents=True)
    run = unstarted(tmp_path / "run")
    write(live, folder=str(run), scratch=str(scratch), pages=str(pages))
    clean()
    assert not run.exists()
    assert not scratch.exists()
    assert not pages.exists()
    assert not list(live.iterdir())


def test_a_folder_that_is_no_control_group_is_left(live: Path, tmp_path: Path) -> None:
    group = tmp_path / NAME
    group.mkdir()
    (group / "cgroup.procs").write_text(f"{os.getpid()}\n")
    write(live, cgroups=[str(group)])
    assert clean() == [f"{NAME}: nothing was left but its record"]
    assert group.is_dir()


def test_processes_of_another_pid_namespace_are_not_signalled_as_process_0(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("0\n")
    code = "import sys, pathlib; from cellbed.testbed.machine.cgroups import remove; remove(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    assert subprocess.run(command, start_new_session=True, check=False).returncode == 0


def test_a_record_is_not_written_through_a_link_or_outside(live: Path, tmp_path: Path) -> None:
    with pytest.raises(CellbedError, match="'a/b' is not a valid name for a testbed"):
        Record.create("testbed", name="a/b")
    record = Record.create("run")
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (live / f"{record.identifier}.tmp").symlink_to(victim)
    record.note_cgroup(Path("/sys/fs/cgroup", record.identifier))
    assert victim.read_text() == "kept"
    assert parse_record((live / f"{record.identifier}.json").read_bytes(), record.identifier) == record


texts = st.sampled_from([NAME, f"/a/{NAME}", f"/a/../{NAME}", f"/{NAME}.sock", f"/tmp/cellbed-{NAME}", "run", "/"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from([*STALE, "undo"]), values, max_size=4), st.binary(max_size=20) | st.none())
def test_a_parsed_record_names_nothing_but_its_own(changed: dict[str, Any], raw: bytes | None) -> None:
    content = json.dumps(STALE | changed).encode() if raw is None else raw
    try:
        record = parse_record(content, NAME)
    except ValueError:
        return
    assert record.identifier == NAME
    assert record.process > 0
    folders = [each or f"/cellbed-{NAME}" for each in (record.scratch, record.pages)]
    paths = [*record.cgroups, *folders, record.control or f"/{NAME}.sock"]
    for path in paths:
        assert Path(path).name in (NAME, f"cellbed-{NAME}", f"{NAME}.sock")
        assert Path(path).is_absolute()
        assert ".." not in Path(path).parts


@needs_limits
@pytest.mark.parametrize("kind", ["run", "testbed"])
def test_idle_control_groups_of_another_registry_s_run_stay_until_it_is_killed(live: Path, kind: str) -> None:
    # Another folder of state, such as of another XDG_STATE_HOME: this one has no record of the run.
    name = f"{kind}-{os.getpid()}-{0xABCDEF:06x}"
    script = f"""
import time
from cellbed.testbed.machine.cgroups import open_groups
groups = open_groups({name!r}, lambda _: None)
groups.create("idle")
print(*groups.folders, flush=True)
time.sleep(1000)
"""
    with subprocess.Popen([sys.executable, "-P", "-c", script], stdout=subprocess.PIPE, text=True) as idle:
        try:
            folders = [Path(path) for path in idle.stdout.readline().split()]
            for folder in folders:
                os.utime(folder, (0, 0))  # long ago
            clean()
            assert folders
            assert all(folder.is_dir() for folder in folders)
        finally:
            idle.kill()
    clean()  # or another test, meanwhile
    assert not any(folder.exists() for folder in folders)
