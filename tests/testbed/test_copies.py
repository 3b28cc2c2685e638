"""Copies between this machine and a node: programs of the node cannot lead them to other files, nor hold them up."""

import io
import os
import socket
import stat
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from cellbed.support.errors import CellbedError
from cellbed.testbed.nodes import copies
from cellbed.testbed.nodes.copies import MOST_BYTES, close_after, copy, new_folder, pack, read, remove, unpack
from hostile_folders import flipping, make_deep

NAMES = [f"file{number}" for number in range(100)]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The root of a node's files, with a folder; beside it a folder of this machine with files of the same names."""
    for folder, content in (("node/d", "of the node"), ("machine", "of the machine")):
        (tmp_path / folder).mkdir(parents=True)
        for name in NAMES:
            (tmp_path / folder / name).write_text(content)
    return tmp_path / "node"


def copy_out(node: Path, path: str, target: Path) -> str:
    """Copy from a node; returns the error, if there is one."""
    try:
        copy((str(node), PurePosixPath(path)), (str(target.parent), PurePosixPath(target.name)))
    except OSError as error:
        return str(error)
    return ""


def test_a_folder_that_a_program_replaces_by_a_link_is_never_followed_to_this_machine(
    tmp_path: Path, node: Path
) -> None:
    contents = set()
    with flipping(node, tmp_path / "machine"):
        for number in range(20):
            problem = copy_out(node, "/d", tmp_path / f"out{number}")
            assert "\n" not in problem
            contents |= {path.read_text() for path in (tmp_path / f"out{number}").glob("file*")}
    assert contents <= {"of the node"}


def test_nothing_is_written_where_such_a_link_leads(tmp_path: Path, node: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    for name in NAMES:
        (new / name).write_text("new")
    with flipping(node, tmp_path / "machine"):
        for _ in range(10):
            with suppress(OSError):
                copy(("/", new), (str(node), PurePosixPath("/d")))
    assert {path.read_text() for path in (tmp_path / "machine").iterdir()} == {"of the machine"}


def test_links_are_those_of_the_node(tmp_path: Path, node: Path) -> None:
    (node / "absolute").symlink_to("/d")
    (node / "up").symlink_to("../../../../d")
    (node / "d" / "gone").symlink_to(tmp_path / "machine")
    assert copy_out(node, "/absolute/file0", tmp_path / "one") == ""
    assert copy_out(node, "/up", tmp_path / "all") == ""
    assert (tmp_path / "one").read_text() == "of the node"
    assert (tmp_path / "all" / "gone").readlink() == tmp_path / "machine"
    assert "No such file" in copy_out(node, "/d/gone/file0", tmp_path / "none")
    # Into a folder that only a link has, which is made where the link leads on the node.
    (node / "new").symlink_to("/there/deep")
    copy(("/", tmp_path / "one"), (str(node), PurePosixPath("/new/one")))
    assert (node / "there" / "deep" / "one").read_text() == "of the node"
    # A copied link does not lead the next copy out of the folder with the copies.
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / "x").symlink_to(tmp_path / "machine")
    copy_out(node, "/d", copies / "x")
    assert (tmp_path / "machine" / "file0").read_text() == "of the machine"
    (node / "loop").symlink_to("loop")
    assert "Too many levels of symbolic links" in copy_out(node, "/loop/x", tmp_path / "none")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        copy(("/", tmp_path / "one"), (str(node), PurePosixPath("/loop/x")))


def test_only_files_folders_and_links_are_copied_and_the_error_is_one_line(tmp_path: Path, node: Path) -> None:
    for name in ("pipe", "pipe2"):
        os.mkfifo(node / "d" / name)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(node / "d" / "socket"))
    (node / "d" / "inner").mkdir(mode=0o500)
    (node / "d" / "program").write_text("x")
    (node / "d" / "program").chmod(0o6755)
    problem = copy_out(node, "/d", tmp_path / "out")
    assert "neither a file nor a folder nor a link (and 2 more)" in problem
    assert "\n" not in problem
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*NAMES, "inner", "program"}
    # A program of the node gets no set-user-ID file on this machine.
    assert stat.S_IMODE((tmp_path / "out" / "program").stat().st_mode) == 0o755
    assert "neither" in copy_out(node, "/d/pipe", tmp_path / "none")
    with pytest.raises(OSError, match="not a file"):
        read(str(node), PurePosixPath("/d/pipe"))
    for path in ("/proc/kmsg", "/proc/self", "/sys/kernel"):
        assert copy_out(Path("/"), path, tmp_path / "none") == "in a file system of the kernel"
    assert not (tmp_path / "none").exists()


def test_the_size_of_a_copy_is_limited(tmp_path: Path, node: Path) -> None:
    with (node / "d" / "sparse").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    assert copy_out(node, "/d", tmp_path / "out") == "sparse: more than 1,000,000 files or 16 GiB"
    assert not (tmp_path / "out" / "sparse").exists()


LEASE = """
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(os.open(sys.argv[1], os.O_RDWR), fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("leased", flush=True)
signal.pause()
"""


def test_a_program_with_a_lease_on_a_file_keeps_no_copy_waiting(tmp_path: Path, node: Path) -> None:
    # The kernel would let a reader wait for 45 s, and then succeed (fcntl(2)).
    command = [sys.executable, "-c", LEASE, str(node / "d" / "file0")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout.readline() == b"leased\n"
            assert copy_out(node, "d", tmp_path / "out") == "file0: Resource temporarily unavailable"
            with pytest.raises(BlockingIOError):
                read(str(node), PurePosixPath("d/file0"))
        finally:
            program.kill()


def test_a_shorter_file_replaces_a_longer_one_but_a_file_not_itself(tmp_path: Path, node: Path) -> None:
    (tmp_path / "short").write_text("short")
    copy(("/", tmp_path / "short"), (str(node), PurePosixPath("/d/file1")))
    assert (node / "d" / "file1").read_text() == "short"
    copy(("/", node / "d"), (str(node), PurePosixPath("/d")))
    (node / "other").hardlink_to(node / "d" / "file0")
    copy(("/", node / "other"), (str(node), PurePosixPath("/d/file0")))
    assert (node / "d" / "file0").read_text() == "of the node"
    assert read(str(node), PurePosixPath("/d/file0")) == b"of the node"


def test_a_kernel_without_openat2_gets_one_error(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_OPENAT2", 100_000)  # a call that no kernel has
    with pytest.raises(CellbedError, match=r"no openat2\(2\).*Linux 5\.6 or newer"):
        read(str(node), PurePosixPath("/d/file0"))


def folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def test_a_packed_folder_is_unpacked_with_its_kinds_owners_and_modes(tmp_path: Path, node: Path) -> None:
    for name in NAMES[2:]:
        (node / "d" / name).unlink()
    (node / "d" / "link").symlink_to(tmp_path / "machine")
    os.mkfifo(node / "d" / "pipe")
    (node / "d" / "inner").mkdir(mode=0o700)
    (node / "d" / "inner" / "program").write_text("x")
    (node / "d" / "inner" / "program").chmod(0o4751)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(node / "d" / "socket"))
    made, target = io.BytesIO(), tmp_path / "target"
    target.mkdir()
    with close_after(folder(node / "d")) as source, close_after(folder(target)) as there:
        with tarfile.open(fileobj=made, mode="w") as archive:
            pack(source, ["file0", "link", "pipe", "inner", "socket"], archive)
        for _ in range(2):  # in place of those that are there
            made.seek(0)
            with tarfile.open(fileobj=made) as archive:
                unpack(archive, there)
    assert {each.name for each in target.iterdir()} == {"file0", "link", "pipe", "inner"}
    assert (target / "link").readlink() == tmp_path / "machine"
    assert (target / "pipe").is_fifo()
    assert stat.S_IMODE((target / "inner").stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "inner" / "program").stat().st_mode) == 0o751


def test_members_of_an_archive_are_written_below_the_folder_only(tmp_path: Path, node: Path) -> None:
    def written(*members: tuple[str, bytes, str]) -> str:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for name, kind, link in members:
                member = tarfile.TarInfo(name)
                member.type, member.linkname, member.size = kind, link, 3 if kind == tarfile.REGTYPE else 0
                archive.addfile(member, io.BytesIO(b"new") if member.size else None)
        made.seek(0)
        try:
            with close_after(folder(node / "d")) as there, tarfile.open(fileobj=made) as archive:
                unpack(archive, there)
        except OSError as error:
            return str(error)
        return ""

    machine = str(tmp_path / "machine")
    assert written(("file0", tarfile.SYMTYPE, f"{machine}/file0"), ("file0", tarfile.REGTYPE, "")) == ""
    assert (node / "d" / "file0").read_text() == "new"
    for link in (machine, "../../machine", "/"):
        assert written(("out", tarfile.SYMTYPE, link), ("out/file1", tarfile.REGTYPE, "")) == ""
    assert written((f"{machine}/file1", tarfile.REGTYPE, "")) == ""
    for name, kind, link in (
        ("../../machine/file2", tarfile.REGTYPE, ""),
        ("hard", tarfile.LNKTYPE, f"{machine}/file2"),
        ("device", tarfile.CHRTYPE, ""),
    ):
        assert "neither a file nor a folder nor a link" in written((name, kind, link))
    (node / "d" / "planted").symlink_to(machine)
    written(("planted/file3", tarfile.REGTYPE, ""))
    assert {path.read_text() for path in (tmp_path / "machine").iterdir()} == {"of the machine"}


def test_what_a_program_puts_in_place_of_a_folder_is_removed_without_following_it(tmp_path: Path, node: Path) -> None:
    with close_after(folder(node)) as parent:
        with new_folder(parent, "new") as new:
            os.mkdir("inner", dir_fd=new)
            (node / "new").rename(node / "moved")
            (node / "new").symlink_to(tmp_path / "machine")
        assert not (node / "new").is_symlink()
        assert not list((node / "moved").iterdir())
        (node / "d" / "out").symlink_to(tmp_path / "machine")
        make_deep(node / "d")
        remove(parent, "d")
        assert not (node / "d").exists()
    assert len(list((tmp_path / "machine").iterdir())) == len(NAMES)
