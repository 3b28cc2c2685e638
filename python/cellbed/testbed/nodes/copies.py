"""Copies of files between this machine and nodes, whose programs may change their files meanwhile.

A path is resolved by the kernel, with all links in it, below the root of the node's files (openat2(2),
``RESOLVE_IN_ROOT``): a link that a program puts in the way never leads to other files of this machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath

MOST_FILES = 1_000_000
MOST_BYTES = 16 << 30
"""Limits of one copy, against programs that would fill this machine's disk."""
_OPENAT2 = 437
_RESOLVE_IN_ROOT = 0x10
_MOST_ATTEMPTS = 1000
"""The kernel gives up resolving ``..`` when some folder of the machine is renamed meanwhile (``EAGAIN``)."""
_MOST_LINKS = 40
_OF_THE_KERNEL = frozenset(
    {
        *(0x9FA0, 0x62656572, 0x27E0EB, 0x63677270, 0x64626720, 0x74726163, 0x73636673, 0xCAFE4A11, 0x62656570),
        *(0x6165676C, 0xDE5E81E4, 0xF97CFF8C, 0x6E736673),
    }
)
"""Types (statfs(2)) of file systems whose files are calls of the kernel, which can wait for ever: proc, sysfs, cgroup,
cgroup2, debugfs, tracefs, securityfs, bpf, configfs, pstore, efivarfs, selinux, nsfs."""
_libc = ctypes.CDLL(None, use_errno=True)


def copy(source: tuple[str, PurePath], target: tuple[str, PurePath]) -> None:
    """Copy a file, or a folder with all in it; folders above the target are made.

    source, target: the root of a node's files, ``"/"`` for this machine's, and a path below it. Copied are files,
    folders and links, up to :data:`MOST_FILES` and :data:`MOST_BYTES`, with their permissions, without set-user-ID and
    the like. Errors: ``OSError`` with one line, after everything else was copied.
    """
    count, size, problems = 1, 0, list[str]()
    waiting = [PurePosixPath()]
    with _opened(os.open(source[0], os.O_PATH)) as origin, _opened(os.open(target[0], os.O_PATH)) as end:
        while waiting:
            part = waiting.pop()
            here, there = source[1] / part, target[1] / part
            try:
                # Nothing is opened before its kind is known: to open a FIFO or a device has effects.
                with _opened(_open(origin, here, os.O_PATH | (os.O_NOFOLLOW if part.parts else 0))) as entry:
                    status = os.fstat(entry)
                    kind = stat.S_IFMT(status.st_mode)
                    if kind == stat.S_IFLNK:
                        _copy_link(entry, end, there)
                    elif kind not in (stat.S_IFDIR, stat.S_IFREG):
                        raise OSError("neither a file nor a folder nor a link")
                    elif _file_system(entry) in _OF_THE_KERNEL:
                        raise OSError("in a file system of the kernel")
                    elif kind == stat.S_IFDIR:
                        os.close(make_folder(end, there, status.st_mode & 0o777 | stat.S_IRWXU))
                        with os.scandir(f"/proc/self/fd/{entry}") as entries:
                            found = [part / each.name for each in islice(entries, MOST_FILES - count + 1)]
                        count += len(found)
                        waiting += found
                    elif (size := size + status.st_size) <= MOST_BYTES:
                        _copy_file(entry, status, end, there)
                    if count > MOST_FILES or size > MOST_BYTES:
                        waiting.clear()
                        raise OSError(f"more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB")
            except OSError as error:
                name = str(part) if str(part).isprintable() else ascii(str(part))
                problems.append((f"{name}: " if part.parts else "") + (error.strerror or str(error)))
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise OSError(problems[-1] + more)


def read(root: str, path: PurePath, most: int = 1 << 20) -> bytes:
    """Return the beginning of a regular file below `root`. Errors: ``OSError``."""
    with _opened(os.open(root, os.O_PATH)) as folder, _opened(_open(folder, path, os.O_PATH)) as entry:
        if not stat.S_ISREG(os.fstat(entry).st_mode) or _file_system(entry) in _OF_THE_KERNEL:
            raise OSError(f"{path}: not a file")
        with Path(f"/proc/self/fd/{entry}").open("rb") as file:
            return file.read(most)


def make_folder(root: int, path: PurePath, mode: int = 0o777, links: int = _MOST_LINKS) -> int:
    """Make a folder below a root with those above it, also where a link leads; returns its descriptor.

    Errors: ``OSError``.
    """
    with contextlib.suppress(FileNotFoundError):
        return _open(root, path, os.O_PATH | os.O_DIRECTORY)
    with _opened(make_folder(root, path.parent, links=links)) as parent:
        try:
            os.mkdir(path.name, mode, dir_fd=parent)
        except FileExistsError:
            if links == 0:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            leads_to = path.parent / os.readlink(path.name, dir_fd=parent)
            return make_folder(root, leads_to, mode, links - 1)
    return _open(root, path, os.O_PATH | os.O_DIRECTORY)


def _copy_link(entry: int, root: int, path: PurePath) -> None:
    with _opened(make_folder(root, path.parent)) as parent:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=parent)
        os.symlink(os.readlink("", dir_fd=entry), path.name, dir_fd=parent)


def _copy_file(entry: int, status: os.stat_result, root: int, path: PurePath) -> None:
    os.close(make_folder(root, path.parent))
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
    with (
        _opened(os.open(f"/proc/self/fd/{entry}", os.O_RDONLY)) as reading,
        _opened(_open(root, path, flags, 0o600)) as writing,
    ):
        there = os.fstat(writing)
        if os.path.samestat(status, there):  # its other name: truncated, it would be empty
            return
        if not stat.S_ISREG(there.st_mode):
            raise OSError("the target is not a file")
        left = status.st_size  # a program may append meanwhile
        while left and (count := os.sendfile(writing, reading, None, min(left, 1 << 30))):
            left -= count
        os.ftruncate(writing, status.st_size - left)
        os.fchmod(writing, status.st_mode & 0o777)
        os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))


def _open(root: int, path: PurePath, flags: int, mode: int = 0) -> int:
    name, how = os.fsencode(path), struct.pack("QQQ", flags | os.O_CLOEXEC, mode, _RESOLVE_IN_ROOT)
    if b"\0" in name:
        raise OSError(f"{str(path)!a} has a zero character")
    arguments = ctypes.c_long(root), ctypes.c_char_p(name), ctypes.c_char_p(how), ctypes.c_size_t(len(how))
    for _ in range(_MOST_ATTEMPTS):
        descriptor: int = _libc.syscall(ctypes.c_long(_OPENAT2), *arguments)
        if descriptor >= 0:
            return descriptor
        if ctypes.get_errno() != errno.EAGAIN:
            break
    if ctypes.get_errno() == errno.EXDEV:
        raise OSError("links of /proc are not followed")
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def _file_system(descriptor: int) -> int:
    """Return the type of the file system with an open file, the first member of the structure of statfs(2)."""
    found = ctypes.create_string_buffer(256)
    if _libc.fstatfs(descriptor, found) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    number: int = struct.unpack_from("l", found)[0]
    return number


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
