"""Nodes in namespaces of this machine. They share its file system; each node also has a folder."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Unpack

from cellbed.testbed.machine.process import Place, Streams, signal_inhabitants, spawn
from cellbed.testbed.machine.state import RUN_VARIABLE
from cellbed.testbed.nodes.backend import Backend, Setup
from cellbed.testbed.nodes.copies import close_after, copy, open_below, open_folder, read, root_of
from cellbed_node.processes import Running, kill, search_path

if TYPE_CHECKING:
    from cellbed_node.agent import Disk


class LocalNode(Backend):
    """A node whose files are accessible through this machine's kernel."""

    place: Place
    _disk: Disk

    @abstractmethod
    def _below(self, path: str) -> tuple[str, PurePath]:
        """Return a path of the node in the format of :mod:`~cellbed.testbed.nodes.copies`."""

    def copy_in(self, source: Path, target: str) -> None:
        copy(("/", source.absolute()), self._below(target))

    def copy_out(self, source: str, target: Path) -> None:
        copy(self._below(source), (str(target.parent), PurePath(target.name)))

    def read(self, source: str, most: int) -> bytes:
        return read(*self._below(source), most)

    def open_folder(self, path: str, *, make: bool = False) -> int:
        root, below = self._below(path)
        with close_after(os.open(root, os.O_PATH)) as descriptor:
            return open_folder(descriptor, below, make=make)

    def fill_disk(self, full: bool) -> None:
        self._disk.fill(full)


class NamespaceNode(LocalNode):
    """A node in namespaces made by the emulator and a control group made by the testbed."""

    def __init__(self, setup: Setup, table: object = None) -> None:
        super().__init__(setup, table)
        self._holder: subprocess.Popen[bytes] | None = None
        # A node's folder requires a record: otherwise nothing would remove the folder after a `kill -9`.
        self._folder = setup.folder if setup.record is not None else None

    @staticmethod
    def missing(
        table: object, command: Sequence[str], environment: Mapping[str, str], folder: str | None
    ) -> str | None:
        # The node's folder does not have its files yet.
        path = environment.get("PATH", search_path())
        has_path = "/" in command[0]
        program = str(Path(folder or "", command[0])) if has_path else command[0]
        places = [program] if has_path else path.split(os.pathsep)
        if "{" in program + path or not all(map(os.path.isabs, places)) or shutil.which(program, path=path):
            return None
        if has_path:
            return f"'{program}' is not an executable file: correct the path"
        return f"there is no program '{program}' in {path}: install it, or write its path"

    def start(self) -> None:
        """Mount the node's file system, if its size is limited, over its folder, in a mount namespace that ends with
        the node's first process, and so with this process."""
        if self.setup.disk_bytes is None:
            return
        from cellbed_node.agent import Disk  # not needed by shells

        assert self._folder is not None
        self._folder.mkdir()
        first = replace(self.place, cgroups=(), disk=(str(self._folder), self.setup.disk_bytes))
        environment = {**os.environ, RUN_VARIABLE: self.setup.run}
        self._holder = spawn(["cat"], first, environment=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.place = replace(self.place, binds=(), mount_namespace=f"/proc/{self._holder.pid}/ns/mnt")
        self._disk = Disk(f"/proc/self/fd/{self._own}")

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        cgroups: Sequence[str] = (),
        **streams: Unpack[Streams],
    ) -> Running:
        return spawn(
            command,
            replace(self.place, cgroups=(*self.place.cgroups, *cgroups)),
            environment={**os.environ, "PATH": search_path(), **self.setup.variables, **(environment or {})},
            folder=str(self._resolve(folder or "")) if self._folder or folder else None,
            **streams,
        )

    def open_store(self) -> int:
        return os.dup(self._own)

    def inside(self, path: str) -> str:
        return str(self._resolve(path).absolute())

    def _resolve(self, path: str) -> Path:
        """Return a path of this machine; relative paths begin in the node's folder."""
        if self._folder is None:
            return Path(path)
        self._folder.mkdir(exist_ok=True)
        return self._folder / path

    def _below(self, path: str) -> tuple[str, Path]:
        # Relative paths begin in the node's folder.
        if self._folder is None or Path(path).is_absolute():
            return f"/proc/self/fd/{self._root}", Path(path).absolute()
        return f"/proc/self/fd/{self._own}", Path(path)

    @functools.cached_property
    def _root(self) -> int:
        """A descriptor of the root of the files of the node's programs."""
        return root_of(self._holder.pid if self._holder is not None else os.getpid())

    @functools.cached_property
    def _own(self) -> int:
        """A descriptor of the node's folder."""
        assert self._folder is not None
        self._folder.mkdir(exist_ok=True)
        with close_after(open_below(self._root, self._folder.parent.absolute(), os.O_PATH)) as parent:
            return os.open(self._folder.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)

    def signal(self, number: int) -> None:
        signal_inhabitants(self.place.network_namespace, number, [self._holder.pid] if self._holder is not None else [])

    def stop(self) -> None:
        if self._holder is not None:
            kill(self._holder)
        super().stop()
        for name in ("_root", "_own"):
            if name in self.__dict__:
                os.close(self.__dict__.pop(name))
