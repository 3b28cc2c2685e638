"""Archives that nobody vouches for: what is in them comes out, and nothing else happens."""

import contextlib
import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cellbed.archive import TraceError
from cellbed.archive.sources.download import is_archive, unpack

Files = dict[str, bytes]


def zipped(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


def tarred(path: Path, files: Files) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


Make = Callable[[Path, Files], Path]
BOTH = pytest.mark.parametrize(("make", "name"), [(zipped, "a.zip"), (tarred, "a.tar.gz")])


def taken(archive: Path, folder: Path) -> Files:
    folder.mkdir(exist_ok=True)
    unpack(archive, folder)
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@BOTH
def test_all_files_come_out(make: Make, name: str, tmp_path: Path) -> None:
    files = {"set/a.csv": b"1\n" * 100, "set/deep/b.csv": b"2", "set/c.txt": b"3"}
    archive = make(tmp_path / name, files)
    assert is_archive(archive)
    assert taken(archive, tmp_path / "all") == files


@BOTH
@pytest.mark.parametrize("evil", ["../evil", "/etc/evil"])
def test_no_file_leaves_its_folder(make: Make, name: str, evil: str, tmp_path: Path) -> None:
    archive = make(tmp_path / name, {"good": b"1", evil: b"x"})
    with contextlib.suppress(TraceError):
        taken(archive, tmp_path / "out")
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} <= {name, "out"}
    assert not Path("/etc/evil").exists()


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a": bytes(range(256)) * 100})
    content = archive.read_bytes()
    middle = len(content) // 3
    archive.write_bytes(content[:middle] + b"\xff" * 20 + content[middle + 20 :])
    with pytest.raises(TraceError, match=r"a\.zip"):
        taken(archive, tmp_path / "out")
