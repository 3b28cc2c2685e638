"""Files below the root of a node, where programs may change them at any time. Only this module follows such paths.

The kernel resolves a path, with all links in it, below a root (openat2(2), ``RESOLVE_IN_ROOT``): so a program's links
never lead to other files of this machine. Roots and folders are passed as descriptors.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import struct
import tarfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath

from cellbed.support.errors import CellbedError
from cellbed_node.temporary import remove_tree

MOST_FILES = 1_000_000
MOST_BYTES = 16 << 30
"""Maximum number of files and size, bytes, of one copy: programs must not fill this machine's disk."""
_OPENAT2 = 437
_RESOLVE = 0x02 | 0x10
"""``RESOLVE_NO_MAGICLINKS`` and ``RESOLVE_IN_ROOT``."""
_MOST_ATTEMPTS = 1000
"""Maximum attempts to resolve a path: a rename of any folder makes the kernel fail to resolve ``..`` (``EAGAIN``)."""
_MOST_LINKS = 40
_REMOVAL_S = 60.0
_LONGEST_NAME = 200
"""Maximum number of characters of a name in an error."""
_OF_THE_KERNEL = frozenset(
    {
        *(0x9FA0, 0x62656572, 0x27E0EB, 0x63677270, 0x64626720, 0x74726163, 0x73636673, 0xCAFE4A11, 0x62656570),
        *(0x6165676C, 0xDE5E81E4, 0xF97CFF8C, 0x6E736673),
    }
)
"""Types (statfs(2)) of file systems whose files invoke the kernel, which may block forever: proc, sysfs, cgroup,
cgroup2, debugfs, tracefs, securityfs, bpf, configfs, pstore, efivarfs, selinux, nsfs."""
_TOO_MUCH = f"more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB"
_TYPES = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}
"""Kinds of copied files, with their types in an archive."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


def root_of(process: int) -> int:
    """Return a descriptor of the root of a process's files. Errors: ``OSError``."""
    return os.open(f"/proc/{process}/root", os.O_PATH)


def open_folder(root: int, path: PurePath, *, make: bool = False) -> int:
    """Return a descriptor of a folder below a root. make: create it and missing parents. Errors: ``OSError``."""
    if make:
        os.close(make_folder(root, path))
    return open_below(root, path, _FOLDER)


@contextlib.contextmanager
def new_folder(parent: int, name: str) -> Iterator[int]:
    """Make a folder in another one, for this user alone; at the end, remove any file of its name.

    Errors: ``OSError``, also if the name exists.
    """
    os.mkdir(name, 0o700, dir_fd=parent)
    with close_after(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)) as folder:
        try:
            yield folder
        finally:
            with contextlib.suppress(OSError):  # the node has ended
                _remove_tree(folder)
                remove(parent, name)


def names_in(folder: int) -> list[str]:
    """Return the names of the files in a folder. Errors: ``OSError``, also for more than :data:`MOST_FILES`."""
    with os.scandir(folder) as entries:
        names = [each.name for each in islice(entries, MOST_FILES + 1)]
    if len(names) > MOST_FILES:
        raise OSError(f"a folder has more than {MOST_FILES:,} files")
    return names


def remove(folder: int, name: str) -> None:
    """Remove a file or a folder with its content, without following links; files that cannot be removed are left."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:  # a folder
        _remove_tree(folder, name)


def _remove_tree(folder: int, name: str = "") -> None:
    """Remove a file with its content, or the content of the folder, in bounded time: a program may keep adding
    files."""
    remove_tree(f"/proc/self/fd/{folder}/{name}", ignore_errors=True, pass_fds=[folder], timeout=_REMOVAL_S)


def copy(source: tuple[str, PurePath], target: tuple[str, PurePath]) -> None:
    """Copy a file or a folder with its content; missing folders above the target are made.

    source, target: root of a node's files (``"/"`` for this machine's), and a path below this root. Files, folders and
    links are copied, up to :data:`MOST_FILES` and :data:`MOST_BYTES`. They keep their permissions, except set-user-ID
    and the like. Errors: ``OSError`` with one line, after everything else was copied.
    """
    problems = list[str]()
    with close_after(os.open(source[0], os.O_PATH)) as origin, close_after(os.open(target[0], os.O_PATH)) as end:
        for part, entry, status in _walk(origin, source[1], [PurePosixPath()], problems):
            there = target[1] / part
            with _note_errors(part, problems):
                if stat.S_ISLNK(status.st_mode):
                    _copy_link(entry, end, there)
                elif stat.S_ISDIR(status.st_mode):
                    os.close(make_folder(end, there, status.st_mode & 0o777 | stat.S_IRWXU))
                elif stat.S_ISREG(status.st_mode):
                    _copy_file(entry, status, end, there)
                else:
                    raise OSError("neither a file nor a folder nor a link")
    if problems:
        more = f" (and {len(problems) - 1} more)" if problems[1:] else ""
        raise OSError(problems[-1] + more)


def pack(folder: int, names: Iterable[str] | None, archive: tarfile.TarFile) -> None:
    """Write the files of a folder to an archive, without sockets. names: default: all files. Errors: ``OSError``."""
    starts = [PurePosixPath(each) for each in (names_in(folder) if names is None else names)]
    for part, entry, status in _walk(folder, PurePosixPath(), starts):
        kind = stat.S_IFMT(status.st_mode)
        if kind == stat.S_IFSOCK:
            continue
        member = tarfile.TarInfo(str(part))
        member.mode, member.uid, member.gid = status.st_mode & 0o1777, status.st_uid, status.st_gid
        member.mtime = status.st_mtime
        with _note_errors(part):
            if kind not in _TYPES:
                raise OSError("a device, which does not move")
            member.type = _TYPES[kind]
            if kind == stat.S_IFLNK:
                member.linkname = os.readlink("", dir_fd=entry)
            if kind != stat.S_IFREG:
                archive.addfile(member)
                continue
            member.size = status.st_size
            with open(_read_only(entry), "rb") as file:
                archive.addfile(member, file)


def unpack(archive: tarfile.TarFile, folder: int) -> None:
    """Write the members of an archive below a folder, without set-user-ID and the like. Existing files are replaced.
    Errors: ``OSError``."""
    left = MOST_BYTES
    for count, member in enumerate(archive):
        path, left = PurePosixPath(member.name), left - member.size
        if count >= MOST_FILES or left < 0:
            raise OSError(_TOO_MUCH)
        with _note_errors(path), close_after(_create_member(member, path, folder)) as made:
            if (content := archive.extractfile(member) if member.isreg() else None) is not None:
                with open(made, "wb", closefd=False) as file:
                    shutil.copyfileobj(content, file, 1 << 20)
            itself = f"/proc/self/fd/{made}"
            os.chown(itself, member.uid, member.gid)
            if not member.issym():
                Path(itself).chmod(member.mode & 0o1777)
                os.utime(itself, (member.mtime, member.mtime))


def _create_member(member: tarfile.TarInfo, path: PurePosixPath, folder: int) -> int:
    """Create the file of a member, and return its descriptor, writable for a regular file."""
    if ".." in path.parts or member.type not in _TYPES.values():
        raise OSError("neither a file nor a folder nor a link")
    if member.isdir():
        return make_folder(folder, path)
    with close_after(make_folder(folder, path.parent)) as parent:
        remove(parent, path.name)
        if member.isreg():
            return os.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=parent)
        if member.issym():
            os.symlink(member.linkname, path.name, dir_fd=parent)
        else:
            os.mkfifo(path.name, 0o600, dir_fd=parent)
        return os.open(path.name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)


def read(root: str, path: PurePath, most: int = 1 << 20) -> bytes:
    """Return the beginning of a regular file below `root`. Errors: ``OSError``."""
    with close_after(os.open(root, os.O_PATH)) as folder, close_after(open_below(folder, path, os.O_PATH)) as entry:
        if not stat.S_ISREG(os.fstat(entry).st_mode) or _file_system(entry) in _OF_THE_KERNEL:
            raise OSError(f"{path}: not a file")
        with open(_read_only(entry), "rb") as file:
            return file.read(most)


def make_folder(root: int, path: PurePath, mode: int = 0o777, links: int = _MOST_LINKS) -> int:
    """Make a folder below a root with missing parents, even at the target of a link; return its descriptor.

    Errors: ``OSError``.
    """
    with contextlib.suppress(FileNotFoundError):
        return open_below(root, path, os.O_PATH | os.O_DIRECTORY)
    with close_after(make_folder(root, path.parent, links=links)) as parent:
        try:
            os.mkdir(path.name, mode, dir_fd=parent)
        except FileExistsError:
            if links == 0:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            leads_to = path.parent / os.readlink(path.name, dir_fd=parent)
            return make_folder(root, leads_to, mode, links - 1)
    return open_below(root, path, os.O_PATH | os.O_DIRECTORY)


def _walk(
    root: int, base: PurePath, waiting: list[PurePosixPath], problems: list[str] | None = None
) -> Iterator[tuple[PurePosixPath, int, os.stat_result]]:
    """Yield files below a path, folders first: the relative path, an ``O_PATH`` descriptor and the status of each file.

    waiting: relative paths to begin with; a link is followed only at the path itself. problems: list that receives
    errors; without it, errors are raised.
    """
    count, size = len(waiting), 0
    while waiting:
        part = waiting.pop()
        with _note_errors(part, problems):
            # Nothing is opened before its kind is known: opening a FIFO or a device has effects.
            flags = os.O_PATH | (os.O_NOFOLLOW if part.parts else 0)
            with close_after(open_below(root, base / part, flags)) as entry:
                status = os.fstat(entry)
                is_folder = stat.S_ISDIR(status.st_mode)
                if (is_folder or stat.S_ISREG(status.st_mode)) and _file_system(entry) in _OF_THE_KERNEL:
                    raise OSError("in a file system of the kernel")
                if is_folder:
                    with os.scandir(f"/proc/self/fd/{entry}") as entries:
                        found = [part / each.name for each in islice(entries, MOST_FILES - count + 1)]
                    count += len(found)
                    waiting += found
                elif stat.S_ISREG(status.st_mode):
                    size += status.st_size
                if count > MOST_FILES or size > MOST_BYTES:
                    waiting.clear()
                    raise OSError(_TOO_MUCH)
                yield part, entry, status


@contextlib.contextmanager
def _note_errors(part: PurePath, problems: list[str] | None = None) -> Iterator[None]:
    """Add an error, with the path, to `problems`, or raise it."""
    try:
        yield
    except OSError as error:
        name = str(part) if str(part).isprintable() else ascii(str(part))
        name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
        text = (f"{name}: " if part.parts else "") + (error.strerror or str(error))
        if problems is None:
            raise OSError(text) from error
        problems[-1:] = ["", text] if problems else [text]  # keep the last error, and the number of errors


def _copy_link(entry: int, root: int, path: PurePath) -> None:
    with close_after(make_folder(root, path.parent)) as parent:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path.name, dir_fd=parent)
        os.symlink(os.readlink("", dir_fd=entry), path.name, dir_fd=parent)


def _copy_file(entry: int, status: os.stat_result, root: int, path: PurePath) -> None:
    os.close(make_folder(root, path.parent))
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
    with (
        close_after(_read_only(entry)) as reading,
        close_after(open_below(root, path, flags, 0o600)) as writing,
    ):
        there = os.fstat(writing)
        if os.path.samestat(status, there):  # same file under another name: truncating would empty it
            return
        if not stat.S_ISREG(there.st_mode):
            raise OSError("the target is not a file")
        left = status.st_size  # a program may append meanwhile
        while left and (count := os.sendfile(writing, reading, None, min(left, 1 << 30))):
            left -= count
        os.ftruncate(writing, status.st_size - left)
        os.fchmod(writing, status.st_mode & 0o777)
        os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))


def _read_only(entry: int) -> int:
    """Open a regular file by its descriptor, without waiting for a lease of a program. Errors: ``OSError``."""
    return os.open(f"/proc/self/fd/{entry}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def open_below(root: int, path: PurePath, flags: int, mode: int = 0) -> int:
    """Return a descriptor of a file below a root. Errors: ``OSError``; :class:`CellbedError` if the kernel is too
    old."""
    name, how = os.fsencode(path), struct.pack("QQQ", flags | os.O_CLOEXEC, mode, _RESOLVE)
    if b"\0" in name:
        raise OSError(f"{str(path)!a} has a zero character")
    arguments = ctypes.c_long(root), ctypes.c_char_p(name), ctypes.c_char_p(how), ctypes.c_size_t(len(how))
    for _ in range(_MOST_ATTEMPTS):
        descriptor: int = _libc.syscall(ctypes.c_long(_OPENAT2), *arguments)
        if descriptor >= 0:
            return descriptor
        if ctypes.get_errno() != errno.EAGAIN:
            break
    if ctypes.get_errno() == errno.ENOSYS:
        raise CellbedError("this kernel has no openat2(2), which opens files of nodes: use Linux 5.6 or newer")
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))


def _file_system(descriptor: int) -> int:
    """Return the type of an open file's file system, the first member of the structure of statfs(2)."""
    found = ctypes.create_string_buffer(256)
    if _libc.fstatfs(descriptor, found) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    number: int = struct.unpack_from("l", found)[0]
    return number


@contextlib.contextmanager
def close_after(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the context."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)
