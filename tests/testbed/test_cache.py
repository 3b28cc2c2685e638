"""`cellbed clean --cache`: what it removes, what it keeps, and what it never touches."""

import json
from pathlib import Path
from typing import Any

import pytest

from cellbed.archive.unfinished import make_unfinished_beside
from cellbed.testbed.machine.state import Record
from in_process import cellbed


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with compiled laws and an input of an application, and registries of this test."""
    for name in ("CACHE", "STATE", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    folder = tmp_path / "cache" / "cellbed"
    (folder / "laws").mkdir(parents=True)
    (folder / "laws" / "vegas.so").write_bytes(b"x" * 100_000)
    (folder / "model.onnx").write_bytes(b"x" * 50_000)
    return folder


def clean(*options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cellbed("clean", "--cache", "--json", *options, status=0).stdout)
    return found


def test_the_cache_is_removed_with_sizes_by_entry(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "data" / "cellbed" / "traces").mkdir(parents=True)
    assert "would free " in cellbed("clean", "--cache", "--dry-run", status=0).stdout
    planned = clean("--dry-run")
    assert (cache / "model.onnx").exists()
    assert clean() == planned
    sizes = {Path(each["path"]).name: each["bytes"] for each in planned["cache"]}
    assert sizes["laws"] >= 100_000
    assert 50_000 <= sizes["model.onnx"] < 100_000
    assert planned["bytes"] == sum(sizes.values())
    assert list(cache.iterdir()) == []
    assert (tmp_path / "data" / "cellbed" / "traces").is_dir()
    assert clean()["cache"] == []
    assert cellbed("clean", "--cache", status=0).stdout.endswith("nothing to clean\n")


def test_everything_stays_while_a_run_lives(cache: Path) -> None:
    record = Record.create("run")
    kept = clean()
    assert {each["kept"] for each in kept["cache"]} == {f"{record.identifier} is live"}
    assert kept["bytes"] == 0
    assert (cache / "laws" / "vegas.so").exists()
    record.remove()
    clean()
    assert list(cache.iterdir()) == []


def test_folders_that_a_command_fills_stay(cache: Path) -> None:
    (cache / "downloads").mkdir()
    with make_unfinished_beside(cache / "photographs"), make_unfinished_beside(cache / "downloads" / "x"):
        kept = [each["path"] for each in clean()["cache"] if each["kept"] == "a command works in it"]
        assert len(kept) == 2
        assert sorted(kept) == sorted(map(str, cache.iterdir()))
    clean()
    assert list(cache.iterdir()) == []


def test_nothing_outside_of_the_cache_is_removed(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "mine"
    outside.mkdir()
    (outside / "file").write_text("mine")
    (cache / "link").symlink_to(outside)
    (cache / "laws" / "inner").symlink_to(outside)
    clean()
    assert list(cache.iterdir()) == []
    assert (outside / "file").read_text() == "mine"
    cache.rmdir()
    cache.symlink_to(outside)
    refused = cellbed("clean", "--cache", status=2).stderr
    assert refused == f"error: {cache}: a link or another user's folder: its files are not removed\n"
    assert (outside / "file").read_text() == "mine"
    assert cellbed("clean", "--dry-run", status=2).stderr == "error: --dry-run needs --cache: add it\n"
