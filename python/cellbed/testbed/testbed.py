"""The testbed: an emulator and the nodes around it, from start to removal."""

from __future__ import annotations

import contextlib
import functools
import os
import pkgutil
import resource
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.laws.kernel import compile_for_programs
from cellbed.laws.law import Law, LawError, load_shipped
from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import SIZE
from cellbed.testbed.links.emulator import Emulator
from cellbed.testbed.machine import cgroups
from cellbed.testbed.machine.certificates import PROGRAM
from cellbed.testbed.machine.flows import compile_sampler
from cellbed.testbed.machine.interface import Interface, obstacle
from cellbed.testbed.machine.process import Place, ProgramError
from cellbed.testbed.machine.state import RUN_VARIABLE, Record
from cellbed.testbed.nodes import tower
from cellbed.testbed.nodes.backend import TCP_SETTINGS, Backend, Limits, Setup
from cellbed_node.extras import remedy
from cellbed_node.processes import find
from cellbed_node.temporary import remove_tree

if TYPE_CHECKING:
    from cellbed.scenario import Scenario
    from cellbed.scenario.applications import Application
    from cellbed.scenario.problems import Problem

_Key = tuple[str | int, ...]
KINDS = {
    "namespace": "cellbed.testbed.nodes.namespace:NamespaceNode",
    "container": "cellbed.testbed.nodes.container:ContainerNode",
    "vm": "cellbed.testbed.nodes.vm:VmNode",
    "host": "cellbed.testbed.nodes.host:HostNode",
}
"""Class of each kind of back end, imported on demand; see :class:`~cellbed.testbed.nodes.backend.Backend`."""
_CONGESTION_CONTROLS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_ALLOWED, _OWN = "tcp_allowed_congestion_control", "tcp_congestion_control"
_MOST_BUFFERS = {"receive_buffer": "/proc/sys/net/core/rmem_max", "send_buffer": "/proc/sys/net/core/wmem_max"}
"""Files with the maximum that a socket may request, half of its buffer (socket(7)), by key of a program."""
_LONGEST_PARENT = 107 - len("/cellbed-testbed-4194304-012345/n/s/b10-10/org.chromium.Chromium.012345/SingletonSocket")
"""Maximum length of the path, in bytes, above the nodes' folders: Chromium has sockets there (unix(7): 107)."""
LEAST_PROCESSES = 64
"""Minimum limit of processes for a small run, mostly threads of Polars and the emulator; with fewer, it fails later."""
AT_ONCE = 2
"""Maximum number of nodes that start at the same time, per processor of this machine."""


def check(scenario: Scenario, text: str, source: str, *, running: bool, limits: cgroups.Enforcement = True) -> None:
    """Check that this machine has what the nodes and programs of a scenario need; nothing is started.

    text, source: content and name of the scenario file. running: as in :meth:`Backend.obstacles`. limits: enforcement
    in the run. Errors: :class:`~cellbed.scenario.ScenarioError` with the line of each key that needs something missing.
    """
    from cellbed.scenario.reader import refuse

    refuse(text, source, obstacles(scenario, running=running, limits=limits))
    if running and (forbidden := list(_find_missing_rights(limits))):
        raise CellbedError("\n".join(forbidden))


def _find_missing_rights(limits: cgroups.Enforcement) -> Iterator[str]:
    """Yield the rights that a run needs and this user lacks, as errors."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        yield f"cannot open /dev/net/tun: {error.strerror}: run `sudo cellbed grant USER`, or see `cellbed doctor`"
    try:
        _ = cgroups.locate() if limits else None
    except cgroups.LimitsError as error:
        yield str(error)


def available_congestion_controls() -> tuple[str, ...] | None:
    """Return the congestion controls that this kernel now has; None if unknown."""
    try:
        return tuple(_CONGESTION_CONTROLS.read_text(encoding="utf-8").split()) or None
    except OSError:
        return None


def congestion_problem(name: str, present: Sequence[str] | None) -> str | None:
    """Return why a kernel with the congestion controls ``present`` lacks the congestion control ``name``; None if it
    does not."""
    if present is None or name in present:
        return None
    hint = did_you_mean(name, present)
    own = f", or write '{name}-cellbed'" if f"{name}-cellbed" in load_shipped() else ""
    remedy = "" if hint else f"; try: sudo modprobe tcp_{name}{own}"
    return f"'{name}' is not available: {hint}this kernel has {' '.join(present)} now{remedy}"


def refusal_to_nodes(name: str) -> str | None:
    """Return why this machine refuses nodes, root's too, a congestion control of its kernel; None if it does not.

    Network namespaces other than the first may use the allowed ones and the first one's default (net/ipv4/tcp_cong.c,
    ``tcp_set_default_congestion_control``).
    """
    try:
        allowed, own = ((_CONGESTION_CONTROLS.parent / file).read_text("utf-8").split() for file in (_ALLOWED, _OWN))
    except OSError:
        return None
    if name in (*allowed, *own):
        return None
    remedy = f'sudo sysctl -w net.ipv4.{_ALLOWED}="{" ".join((*allowed, name))}"'
    return f"this machine allows nodes only {' '.join(allowed)}, not '{name}': {remedy}"


def _control_problems(scenario: Scenario, *, running: bool) -> Iterator[tuple[_Key, str]]:
    """Yield the keys of congestion controls that nodes cannot have, and why. Laws are compiled to find out. running: as
    in `check`; settings of this machine may change before a later run."""
    here = {name: group for name, group in scenario.nodes.items() if not group.backend.routed}
    asked: list[tuple[_Key, Law | str | None]] = [
        (("transport", "congestion_control"), scenario.transport.congestion_control),
        *((("nodes", name, "congestion_control"), group.congestion_control) for name, group in here.items()),
        *(((*path, "congestion_control"), role.congestion_control) for path, role in scenario.roles()),
        *((("migrations", n, "congestion_control"), it.congestion_control) for n, it in enumerate(scenario.migrations)),
    ]
    for key, control in asked:
        if isinstance(control, Law):
            try:
                control.compiled("kernel")
            except LawError as error:
                yield key, str(error)
        elif control is not None and (wrong := congestion_problem(control, available_congestion_controls())):
            yield key, wrong
    if scenario.transport.series:
        try:
            compile_sampler()
        except LawError as error:
            yield ("transport", "series"), str(error)
    for control in {scenario.control_of(name) for name in here}:
        if running and isinstance(control, str) and (wrong := refusal_to_nodes(control)):
            own = [name for name, group in here.items() if group.congestion_control == control]
            yield ("nodes", own[0], "congestion_control") if own else ("transport", "congestion_control"), wrong
    for name, group in scenario.nodes.items():
        if group.backend.routed and scenario.transport.initial_window is not None:
            text = f"nodes '{name}' have their own kernel, where it is not set: remove it, or run them here"
            yield ("transport", "initial_window"), text
        control = scenario.control_of(name)
        if group.backend.routed and isinstance(control, Law):
            yield (
                ("nodes", name),
                f"the law '{control.name}' is loaded into this machine's kernel, and nodes '{name}' have their own: "
                "run them here, or write one of the kernel's such as 'cubic'",
            )


def _program_problems(scenario: Scenario) -> Iterator[tuple[_Key, str]]:
    """Yield the keys of programs whose TCP settings this machine cannot apply, and why."""
    for path, role in scenario.roles():
        if not (tcp := scenario.tcp_of(role)) or role.on not in scenario.nodes:
            continue
        key: _Key = (*path, next(iter(role.tcp))) if role.tcp else ("transport", "pacing")
        if scenario.nodes[role.on].backend.routed:
            remedy = "remove pacing" if "pacing" in tcp else "write it in [transport]"
            yield key, f"nodes '{role.on}' have their own kernel: {remedy}, or run them here"
        elif cgroups.program_parent(None, "") is None:
            yield key, "needs control groups of version 2: mount -t cgroup2 none FOLDER, or write it for the node"
        else:
            try:
                compile_for_programs()
            except LawError as error:
                yield key, str(error)
        for name, setting in _MOST_BUFFERS.items():
            size, most = getattr(role, name) or 0, 2 * int(Path(setting).read_text(encoding="utf-8"))
            if size > most:
                remedy = f"sudo sysctl -w net.core.{Path(setting).name}={(size + 1) // 2}, or write it in [transport]"
                yield (*path, name), f"this machine gives a program at most {SIZE.format(most)}: {remedy}"


def obstacles(scenario: Scenario, *, running: bool, limits: cgroups.Enforcement = True) -> list[Problem]:
    """Return the requirements of a scenario that this machine lacks, by key. running, limits: as in `check`."""
    from cellbed.scenario.problems import Problem

    found = [Problem(*each) for each in _check_machine(scenario)] if limits is True else []
    if running and (live := scenario.live) and (text := obstacle(live.interface, shared=live.shared)):
        found.append(Problem(("links", "mobile", "interface"), text))
    found += [Problem(*each) for each in (*_control_problems(scenario, running=running), *_program_problems(scenario))]
    for name, application in scenario.applications.items():
        if application.has_certificate and find(PROGRAM) is None:
            text = f"certificates for TLS need {PROGRAM}: sudo apt install {PROGRAM}"
            found.append(Problem((*scenario.path_of(name), "kind"), text))
        routed = [key for key, role in application.roles() if scenario.nodes[role.on].backend.routed]
        for where, what, command, is_here, roles in _needs(application):
            text = f"needs {what}: {command}"
            if is_here and any(role in routed for role in roles):
                text = f"needs {what}, which is not sent to nodes that are other machines: use nodes here"
            elif is_here:
                continue
            found.append(Problem((*scenario.path_of(name), where), text))
        has_browser = any("chromium" in names for _, names, _ in application.tools)
        if has_browser and len(os.fsencode(_scratch_parent())) > _LONGEST_PARENT:
            text = f"sockets of the browser need a short path, and TMPDIR is longer than {_LONGEST_PARENT} bytes: "
            found.append(Problem((*scenario.path_of(name), "kind"), f"{text}export TMPDIR=/var/tmp"))
        if application.balance == "connection" and find("nft") is None:
            text = "connections are spread by nft: sudo apt install nftables"
            found.append(Problem((*scenario.path_of(name), "balance"), text))
    sound: dict[str, Callable[..., str | None]] = {}
    for name, group in scenario.nodes.items():
        if running and group.speed != 1:
            text = "programs run as fast as this machine: predict it with --virtual, or remove this key"
            found.append(Problem(("nodes", name, "speed"), text))
        if group.node_class == "tower":
            lacks = tower.obstacles(group, is_root=os.geteuid() == 0)
            found += [Problem(("nodes", name, key), problem) for key, problem in lacks]
        backend: type[Backend] = pkgutil.resolve_name(KINDS[group.backend.kind])
        if lacking := list(backend.obstacles(group.backend, running=running)):
            found += [Problem(("nodes", name, "backend", key), problem) for key, problem in lacking]
        else:
            sound[name] = functools.partial(backend.missing, group.backend)
    for path, role in scenario.programs():
        if role.on in sound:
            for key, program in role.commands():
                if problem := sound[role.on](program, role.environment, role.folder):
                    found.append(Problem((*path, *key), problem))
    return [*found, *_migration_problems(scenario, sound)]


def _migration_problems(scenario: Scenario, sound: Mapping[str, Callable[..., str | None]]) -> Iterator[Problem]:
    """Yield what this machine lacks for migrations. sound: functions that return why a node cannot start a program."""
    from cellbed.scenario.problems import Problem

    for index, each in enumerate(scenario.migrations):
        servers = [role for key, role in scenario.applications[each.app].programs() if key == "server"]
        for node, role in product(each.targets(), servers):
            missing = sound.get(node.rpartition("-")[0])
            for _, command in role.commands():
                if missing and (problem := missing(command, role.environment, role.folder)):
                    yield Problem(("migrations", index, "to"), f"'{each.app}' cannot run on {node}: {problem}")
        if each.policy is not None:
            try:
                each.policy.decider()
            except CellbedError as error:
                yield Problem(("migrations", index, "policy"), str(error))
        if each.compression and find_spec("zstandard") is None:
            text = f"the package zstandard is missing: {remedy('migration')}"
            yield Problem(("migrations", index, "compression"), text)
        if find("nft") is None:
            yield Problem(("migrations", index, "to"), "clients follow a service by nft: sudo apt install nftables")
        elif (lacking := each.traits.lacks()) is not None:
            yield Problem(("migrations", index, "strategy"), lacking)


def _needs(application: Application) -> Iterator[tuple[str, str, str, bool, tuple[str, ...]]]:
    """Yield the packages, programs and files that an application needs: key, description, how to install it, whether
    it is installed, and the roles that run it."""
    for name, extra in application.packages.items():
        is_here = find_spec(name.replace("-", "_")) is not None
        yield "kind", f"the package {name}", remedy(extra), is_here, ("client", "server")
    for key, names, package in application.tools:
        yield key, f"the program {names[0]}", f"sudo apt install {package}", any(map(find, names)), ("client",)
    for key, file, command in application.third_party_files:
        yield key, f"the file {file.name}", command, file.is_file(), ("client",)


def _scratch_parent() -> Path:
    """Return the parent of the runs' folders for files of nodes: not in memory, where /tmp may be."""
    return Path(os.environ.get("TMPDIR") or "/var/tmp")


def machine() -> tuple[int, int]:
    """Return the number of processors that this process may use, and this machine's memory, MiB."""
    return len(os.sched_getaffinity(0)), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20


def _check_machine(scenario: Scenario) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield limits of single nodes that exceed this machine. The sum may exceed this machine: nodes seldom need
    everything at the same time, and if they do, the report calls the run disturbed."""
    cpus, memory = machine()
    for name, group in scenario.nodes.items():
        if not group.backend.uses_this_machine:
            continue
        advice = "or accept fewer with --overcommit (of predictions: --virtual)"
        if group.cpus > cpus:
            yield (
                ("nodes", name, "cpus"),
                f"{group.cpus:g} CPUs, but this machine has {cpus}: write at most {cpus}, {advice}",
            )
        if group.memory >> 20 > memory:
            text = f"{SIZE.format(group.memory)}, but this machine has {memory} MiB: write less, {advice}"
            yield ("nodes", name, "memory"), text


def describe_overcommitment(scenario: Scenario) -> list[str]:
    """Return warnings about limits that this machine can supply to each node, but not to all at the same time."""
    here = [group for group in scenario.nodes.values() if group.backend.uses_this_machine]
    cpus, memory = machine()
    asked_cpus = sum(group.count * group.cpus for group in here)
    asked_memory = sum(group.count * group.memory for group in here) >> 20
    what = "while all are busy, each gets less than its limit"
    found = [f"the nodes may use {asked_cpus:g} CPUs together, and this machine has {cpus}: {what}"]
    full = "while all need it, programs are killed or swapped out"
    more = [f"the nodes may use {asked_memory} MiB of memory together, and this machine has {memory} MiB: {full}"]
    return found * (asked_cpus > cpus) + more * (asked_memory > memory)


class Testbed:
    """A context that creates an emulator and nodes, and removes all of it at the end.

    emulator: the emulator, with the links. nodes: by name, a node per vertex of the configuration with a new namespace.
    sockets: folder for sockets, at the same path for programs of all nodes; only with a record.
    """

    __test__ = False  # for pytest

    def __init__(
        self,
        config: dict[str, Any],
        run: str,
        *,
        limits: Mapping[str, Limits] | None = None,
        backends: Mapping[str, Any] | None = None,
        disks: Mapping[str, int] | None = None,
        record: Record | None = None,
        binds: tuple[tuple[str, str], ...] = (),
        descriptors: Sequence[int] = (),
        underlay: Interface | None = None,
        intercepts: Mapping[str, tuple[int, Sequence[str]]] | None = None,
    ) -> None:
        """Start nothing yet.

        config: the emulator's. run: identifier in the environment of each process, which `cellbed clean` looks for
        after a kill. limits: limits by node, if any. backends: the scenario's tables of back ends
        (``scenario/nodes.py``), by node; a node without one is a namespace. disks: bytes that a node's programs can
        write, by node. record: the run's, to note resources for removal after `kill -9`; limits and nodes of other
        kinds need a record. binds: (source, target) files that programs see instead of the machine's. descriptors: file
        descriptors in `config`. underlay: interface by which tunnels to machines over SSH leave; default: by the routes
        of this machine. intercepts: ports of programs that get the connections of others, and the networks of these
        connections, by node of a tower.
        """
        self._config, self._run = config, run
        self._intercepts = intercepts or {}
        self._limits, self._backends, self._record = limits or {}, backends or {}, record
        self._disks = disks or {}
        self._binds, self._descriptors, self._underlay = binds, descriptors, underlay
        self._stack = contextlib.ExitStack()
        self._view: tuple[tuple[str, str], ...] = ()
        self.nodes: dict[str, Backend] = {}

    def __enter__(self) -> Testbed:
        """Start the emulator and the nodes.

        Errors: :class:`CellbedError`, for instance for limits that this user cannot enforce; nothing is left then.
        """
        processes, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        if os.geteuid() != 0 and processes != resource.RLIM_INFINITY and processes < LEAST_PROCESSES:
            raise CellbedError(
                f"this user may have {processes} processes and threads, and a testbed needs {LEAST_PROCESSES} or more: "
                "raise the limit (ulimit -u)"
            )
        with self._stack:
            groups: dict[str, cgroups.Group] = {}
            if self._limits:
                note = self._record.note_cgroup if self._record is not None else lambda _: None
                everything = cgroups.open_groups(self._run, note)
                self._stack.callback(everything.remove)
                groups = {name: everything.create(name) for name in self._limits}
                for name, limits in self._limits.items():
                    groups[name].limit(limits.cpus, limits.memory_bytes)
            folder = self._make_folder()
            self.sockets = folder / "s"  # the path of a socket has at most 107 bytes
            self._add_pages()
            config = {**self._config, "vertices": [self._leave_tcp(vertex) for vertex in self._config["vertices"]]}
            self.emulator = Emulator.start(config, {RUN_VARIABLE: self._run}, descriptors=self._descriptors)
            self._stack.callback(self.emulator.kill)
            starting: deque[Backend] = deque()
            for vertex in self._config["vertices"]:
                if vertex.get("namespace") == "new":
                    if len(starting) >= AT_ONCE * (os.cpu_count() or 1):
                        starting.popleft().wait_ready()
                    starting.append(self._start(vertex, groups.get(vertex["name"]), folder))
            for node in starting:
                node.wait_ready()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _leave_tcp(self, vertex: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a vertex without settings of TCP if its node has a kernel of its own, which gets them."""
        if (table := self._backends.get(vertex["name"])) is None or not table.routed:
            return vertex
        kept = {key: value for key, value in vertex["sysctls"].items() if not key.startswith(TCP_SETTINGS)}
        return {**vertex, "sysctls": kept}

    def _start(self, vertex: Mapping[str, Any], group: cgroups.Group | None, folder: Path) -> Backend:
        name = vertex["name"]
        table = self._backends.get(name)
        kind = table.kind if table is not None else "namespace"
        sees_sockets = table is None or table.shares_files
        binds = self._binds if sees_sockets else (*self._binds, (str(self.sockets), str(self.sockets)))
        page = (vertex.get("tower") or {}).get("page")
        if page is not None and not sees_sockets:
            binds = (*binds, (page, page))
        setup = Setup(
            name=name,
            place=Place(
                network_namespace=self.emulator.namespace(name),
                user_namespace=self.emulator.user_namespace,
                binds=binds,
                cgroups=group.join_files if group else (),
                host_name=name,
                keep_network_capabilities="tower" in vertex,
            ),
            interface=self.emulator.interface(name),
            addresses=tuple(vertex["addresses"]),
            behind=tuple(vertex.get("behind", ())),
            sysctls=vertex.get("sysctls", {}),
            group=group,
            limits=self._limits.get(name),
            view=self._view,
            run=self._run,
            record=self._record,
            folder=folder / name,
            disk_bytes=self._disks.get(name),
            underlay=self._underlay,
            environment={tower.VARIABLE: page} if page is not None else {},
        )
        if name in self._intercepts:
            place = Place(setup.place.network_namespace, setup.place.user_namespace)
            tower.intercept(place, setup.addresses, *self._intercepts[name])
        backend = pkgutil.resolve_name(KINDS[kind])
        for _, text in backend.obstacles(table, running=False):
            raise CellbedError(f"{name}: {text}")
        node: Backend = backend(setup, table)
        self._stack.callback(node.stop)
        node.start()
        self.nodes[name] = node
        return node

    def idle_intercepts(self) -> Iterator[str]:
        """Yield a sentence for each node whose program got none of the connections that it intercepts."""
        for name, (port, _) in self._intercepts.items():
            place = self.nodes[name].setup.place
            with contextlib.suppress(ProgramError):  # a program of the node may have removed the rules
                if tower.has_only_forwarded(Place(place.network_namespace, place.user_namespace)):
                    why = f"no socket with IP_TRANSPARENT listened on port {port} (intercept)"
                    yield f"{name} forwarded all connections, since {why}"

    def _add_pages(self) -> None:
        """Make the folder for the pages of towers' nodes."""
        towers = [vertex for vertex in self._config["vertices"] if "tower" in vertex]
        if not towers or self._record is None:
            return
        folder = self._record.note_pages(tower.MEMORY)
        self._stack.callback(remove_tree, folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        for vertex in towers:
            vertex["tower"]["page"] = str(folder / vertex["name"])

    def _make_folder(self) -> Path:
        """Return the folder for nodes' files and sockets. Its parent is closed to all other users of this machine.

        Programs of nodes see an open folder instead of the parent, with the same files at the same paths: some programs
        give up root, such as the workers of a web server.
        """
        if self._record is None:
            return Path()
        closed = self._record.note_scratch(_scratch_parent())
        folder, seen = closed / "n", closed / "seen"
        self._stack.callback(remove_tree, closed, ignore_errors=True)
        for path, mode in ((closed, 0o700), (folder, 0o711), (folder / "s", 0o755), (seen, 0o711)):
            path.mkdir(mode=0o700)
            path.chmod(mode)
        (seen / folder.name).mkdir()
        self._view = ((str(folder), str(seen / folder.name)), (str(seen), str(closed)))
        return folder
