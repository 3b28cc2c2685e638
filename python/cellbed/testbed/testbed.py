"""The testbed: an emulator and the nodes around it, from their start to their removal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cellbed.testbed import cgroups
from cellbed.testbed.backend import Limits, NamespaceNode
from cellbed.testbed.emulator import Emulator
from cellbed.testbed.process import Place
from cellbed.testbed.state import RUN_VARIABLE


class Testbed:
    """A context: nothing is there before it, and nothing is left after it.

    emulator: with the links. nodes: by name, each vertex of the emulator's configuration with a new namespace.
    """

    __test__ = False  # for pytest

    def __init__(
        self,
        config: dict[str, Any],
        run: str,
        *,
        limits: Mapping[str, Limits] | None = None,
        note_group: Callable[[Path], None] = lambda _: None,
        binds: tuple[tuple[str, str], ...] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        """Start nothing yet.

        config: of the emulator. run: identifier in the environment of each process, by which `cellbed clean` finds what
        a killed run left. limits: of the nodes that have any. note_group: called with the path of each control group
        before it is created. binds: (source, target) files that programs see instead of the machine's. descriptors:
        those that `config` names.
        """
        self._config, self._run = config, run
        self._limits, self._note_group = limits or {}, note_group
        self._binds, self._descriptors = binds, descriptors
        self._stack = contextlib.ExitStack()
        self.nodes: dict[str, NamespaceNode] = {}

    def __enter__(self) -> Testbed:
        """Start the emulator and the nodes.

        Errors: :class:`CellbedError`, for instance of limits that this user cannot enforce; nothing is left then.
        """
        with self._stack:
            groups: dict[str, cgroups.Group] = {}
            if self._limits:
                everything = cgroups.open_groups(self._run, self._note_group)
                self._stack.callback(everything.remove)
                groups = {name: everything.create(name) for name in self._limits}
            self.emulator = Emulator.start(self._config, {RUN_VARIABLE: self._run}, descriptors=self._descriptors)
            self._stack.callback(self.emulator.kill)
            for vertex in self._config["vertices"]:
                if vertex.get("namespace") == "new":
                    self._add(vertex["name"], groups.get(vertex["name"]))
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _add(self, name: str, group: cgroups.Group | None) -> None:
        place = Place(
            network_namespace=self.emulator.namespace(name),
            user_namespace=self.emulator.user_namespace,
            binds=self._binds,
            cgroups=group.join_files if group else (),
        )
        node = NamespaceNode(name, place, group, self._limits.get(name))
        node.start()
        self._stack.callback(node.stop)
        self.nodes[name] = node
