"""A scenario of imported services: its text with comments, and the files that it needs."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, cast

import tomli_w

from cellbed.importing.services import Imported, Note, Service
from cellbed.scenario import Scenario, load_text
from cellbed.scenario.nodes import CLASSES, NodeClass
from cellbed.scenario.reader import tables
from cellbed.support.errors import CellbedError, printable
from cellbed.support.near_names import did_you_mean
from cellbed.support.units import SIZE
from cellbed.support.whole_files import write_whole
from cellbed_node.processes import find

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_MOST_SHOWN = 20
_LEAST_MEMORY = 64 << 20
_MOST_NODES = 1000
_LEAST_CPUS, _MOST_CPUS = 0.1, 1024


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices that an imported file does not contain.

    placed: node class by service name; other services have their default. up, down, duration: capacities of the mobile
    link, and the workload's duration; None for the default of the kind of file.
    cpus, memory: limits of services without limits. load: service that receives HTTP load from an endpoint. out: output
    file, None for standard output. images: local image by image name in the file. before: text of the scenario to
    extend; its links and duration stay. built: whether the images are built.
    """

    placed: Mapping[str, NodeClass] = field(default_factory=dict)
    up: str | None = None
    down: str | None = None
    duration: str | None = None
    cpus: float = 1.0
    memory: int = 512 << 20
    load: str | None = None
    out: Path | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    before: str | None = None
    built: bool = False


@dataclass(frozen=True, slots=True)
class Written:
    """A scenario made from other files.

    nodes: node group and class of each service. files: contents of the files that the scenario names, by path.
    """

    text: str
    nodes: dict[str, tuple[str, NodeClass]]
    files: dict[Path, bytes]
    notes: list[Note]

    def placement(self) -> str:
        """Return a line that lists the services of each node class."""
        lines = []
        for node_class in CLASSES:
            names = [name for name, (_, it) in self.nodes.items() if it == node_class]
            more = ", …" if len(names) > _MOST_SHOWN else ""
            lines += [f"{node_class}: {', '.join(names[:_MOST_SHOWN])}{more}"] if names else []
        return f"{'; '.join(lines)} (another place: --place SERVICE=CLASS)"

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the files as JSON values."""
        return {
            "scenario": self.text,
            "services": {
                name: {"nodes": group, "class": node_class} for name, (group, node_class) in self.nodes.items()
            },
            "notes": [
                {"level": it.level, "file": it.place.source, "line": it.place.line, "key": it.key, "text": it.text}
                for it in self.notes
            ],
        }


def parse_classes(texts: Iterable[str]) -> dict[str, NodeClass]:
    """Return the class of each service, from ``NAME=CLASS``. Errors: :class:`CellbedError`."""
    found: dict[str, NodeClass] = {}
    for text in texts:
        name, equals, node_class = text.partition("=")
        if not equals or node_class not in CLASSES:
            raise CellbedError(f"--place: '{text[:80]}': write NAME=CLASS with one of {', '.join(CLASSES)}")
        found[name] = cast(NodeClass, node_class)
    return found


def parse_images(texts: Iterable[str]) -> dict[str, str]:
    """Return the local image for each image of the file, from ``IMAGE=LOCAL``. Errors: :class:`CellbedError`."""
    found = {}
    for text in texts:
        image, _, local = text.partition("=")
        if not image or not local:
            raise CellbedError(f"--map: '{text[:80]}': write IMAGE=LOCAL, such as redis:7=localhost/redis")
        found[image] = local
    return found


def build(imported: Imported, choices: Choices) -> None:
    """Build the images of services with a build context by Podman or Docker. Build output goes to standard error.

    Errors: :class:`CellbedError`.
    """
    engine = next((name for name in ("podman", "docker") if find(name) is not None), None)
    for service in imported.services:
        if service.build is None or service.image in choices.images:
            continue
        if engine is None:
            raise CellbedError("--build: neither podman nor docker is installed: sudo apt install podman")
        words = [engine, *shlex.split(service.build)[1:]]
        if subprocess.run(words, stdin=subprocess.DEVNULL, stdout=2, check=False).returncode != 0:
            command = shlex.join(words)
            raise CellbedError(f"--build: the image of '{service.name}' was not built; the command was: {command}")


def save(written: Written, out: Path | None) -> Scenario:
    """Check a scenario, and write it with its files if `out` is a path. Errors: :class:`CellbedError`, ``OSError``."""
    made = [path for path in written.files if not path.exists()]
    try:
        for path, content in written.files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        scenario = load_text(written.text, out or Path("scenario.toml"))
        if out is not None:
            write_whole(out, written.text)
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
            for folder in (path.parent, path.parent.parent):
                with contextlib.suppress(OSError):  # the folder has other files
                    folder.rmdir()
        raise
    return scenario


def write(imported: Imported, choices: Choices, command: str) -> Written:
    """Return the scenario of imported services. command: the import command, for the scenario's first comment.

    Errors: :class:`CellbedError` for a chosen service that does not exist.
    """
    imported = _drop_services_without_nodes(imported)
    services = {service.name: service for service in imported.services}
    for option, name in [*(("--place", name) for name in choices.placed), ("--load", choices.load)]:
        if name is not None and name not in services:
            hint = did_you_mean(name, services) or f"write one of {', '.join(services)}"
            raise CellbedError(f"{option}: no service '{name[:80]}': {hint}")
    images = {service.image for service in imported.services}
    for name in choices.images:
        if name not in images:
            hint = did_you_mean(name, images) or f"write one of {', '.join(sorted(images))}"
            raise CellbedError(f"--map: no service has the image '{name[:80]}': {hint}")
    there = tables(choices.before, str(choices.out)) if choices.before is not None else {}
    groups, hosts = _names(imported.services, there)
    classes = {name: choices.placed.get(name, service.node_class) for name, service in services.items()}
    scenario = re.sub(r"[^A-Za-z0-9._-]+", "-", imported.name).strip("-._")[:64] or "imported"
    sites = _sites(scenario, classes.values(), there.get("sites", {}))
    writer = _Writer(choices, groups, hosts, sites, [*imported.notes])
    parts = [writer.service(service, classes[service.name]) for service in imported.services]
    if choices.load is not None or ("endpoint" not in classes.values() and not there):
        parts.insert(0, _load(choices, services, groups))
    links = {"mobile": {"up": choices.up or "5g-midband.up", "down": choices.down or "5g-midband.down"}}
    cores = {"sites": {site: {"core": _CORE[node_class]} for node_class, site in sites.items()}}
    common = {} if there else {"name": scenario, "duration": choices.duration or "60 s", "links": links}
    head = [
        *([choices.before] if choices.before is not None else []),
        comment(f"Made by: {command}", summary(writer.notes), *map(str, imported.notes)),
        tomli_w.dumps(common | cores),
    ]
    nodes = {name: (groups[name], node_class) for name, node_class in classes.items()}
    return Written("\n".join([*head, *parts]), nodes, writer.files, writer.notes)


def _drop_services_without_nodes(imported: Imported) -> Imported:
    """Return the services with replicas; note the others. Errors: :class:`CellbedError` if no service has any."""
    none = {service.name for service in imported.services if service.count == 0}
    if len(none) == len(imported.services):
        raise CellbedError(f"{imported.services[0].place}: all services have 0 replicas: set at least one to 1")
    notes = [Note("differs", service.place, f"{service.name}.replicas", "0 replicas: the service has no node")
             for service in imported.services if service.name in none]  # fmt: skip
    kept = [replace(service, after=[name for name in service.after if name not in none])
            for service in imported.services if service.name not in none]  # fmt: skip
    return Imported(imported.name, kept, imported.notes + notes)


_CORE: dict[NodeClass, str] = {"edge": "base-edge", "cloud": "eu-west-3"}


def _sites(scenario: str, classes: Collection[NodeClass], taken: Collection[str]) -> dict[NodeClass, str]:
    """Return the site of each class but the endpoint. One site has the name of the scenario. The cloud has a second
    site if services are at the edge, too. taken: existing names."""
    name = first = scenario.replace(".", "-")[:22]
    for number in count(2):
        if not {name, f"{name}-cloud"} & set(taken):
            break
        name = f"{first}-{number}"
    used = [node_class for node_class in _CORE if node_class in classes]
    return {node_class: f"{name}-{node_class}" if number else name for number, node_class in enumerate(used)}


def _names(services: Sequence[Service], there: Mapping[str, Any]) -> tuple[dict[str, str], set[str]]:
    """Return the node group of each service, and the names of all groups and nodes. A group has its service's name if
    possible. there: tables of the scenario to extend. Errors: :class:`CellbedError` for a name that it already has."""
    found: dict[str, str] = {}
    others = {*there.get("apps", {})}
    for name, group in there.get("nodes", {}).items():
        others |= {name, *group.get("aliases", ()), *(f"{name}-{index}" for index in range(group.get("count", 1)))}
    for service in services:
        if both := others & {service.name, *service.aliases}:
            raise CellbedError(
                f"--add: {service.place}: the scenario has a node '{min(both)}' already, which would be reached by "
                "this name: rename one of the two"
            )
    taken = {"tower", "localhost"} | others
    for service in services:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", service.name).lstrip("_-")[:32] or "service"
        chosen, number = name, 2
        while chosen in taken or taken & {f"{chosen}-{index}" for index in range(_nodes(service))}:
            chosen, number = f"{name[:28]}-{number}", number + 1
        taken |= {chosen, *(f"{chosen}-{index}" for index in range(_nodes(service)))}
        found[service.name] = chosen
    return found, taken


def _nodes(service: Service) -> int:
    return min(_MOST_NODES, service.count)


class _Writer:
    def __init__(
        self,
        choices: Choices,
        groups: dict[str, str],
        hosts: set[str],
        sites: Mapping[NodeClass, str],
        notes: list[Note],
    ) -> None:
        self.choices, self.groups, self.notes, self._hosts, self._sites = choices, groups, notes, hosts, sites
        self.files: dict[Path, bytes] = {}

    def service(self, service: Service, node_class: NodeClass) -> str:
        """Return the tables of one service."""
        notes = list(service.notes)
        group = self.groups[service.name]
        image = self.choices.images.get(service.image, service.image)
        backend: dict[str, Any] = {"kind": "container", "image": image, **self._command(service, notes)}
        if service.environment:
            backend["environment"] = service.environment
        if mounts := self._mounts(service, group, notes):
            backend["mounts"] = mounts
        site = {"site": self._sites[node_class]} if node_class in self._sites else {}
        node = {"class": node_class, **site, **self._size(service, notes), "backend": backend}
        if aliases := self._aliases(service, group, notes):
            node["aliases"] = aliases
        role = {
            "on": group,
            **({"folder": service.folder} if service.folder else {}),
            **({"restart": service.restart} if service.restart != "never" else {}),
            **({"environment": service.templates} if service.templates else {}),
        }
        app: dict[str, Any] = {"kind": "program"}
        if service.after:
            app["after"] = [self.groups[name] for name in service.after]
        if node_class == "endpoint" and not service.offers:
            app["client"] = role
        else:
            app["server"] = {**role, **({"ready": service.ready} if service.ready else {})}
            if node.get("count", 1) > 1:
                app["balance"] = "connection"
        self.notes += notes
        lines = [f"{service.name}: {service.place}"]
        lines += [f"Build its image first: {service.build}"] if self._is_to_build(service) else []
        lines += [str(note) if note.level != "assumed" else f"assumed: {note.text}" for note in notes]
        return comment(*lines) + tomli_w.dumps({"nodes": {group: node}, "apps": {group: app}}, multiline_strings=True)

    def _is_to_build(self, service: Service) -> bool:
        return service.build is not None and service.image not in self.choices.images and not self.choices.built

    def _command(self, service: Service, notes: list[Note]) -> dict[str, Any]:
        """Return entry point and command. Empty ones, which back ends reject, are left out: the image's own apply."""
        entrypoint, command = service.entrypoint, service.command
        if entrypoint == [] and command:
            return {"entrypoint": command}
        for key, words in (("entrypoint", entrypoint), ("command", command)):
            if words == [] and not (key == "command" and entrypoint):
                notes.append(Note("not mapped", service.place, key, f"the image's own {key} is not removed"))
        return {key: words for key, words in (("entrypoint", entrypoint), ("command", command)) if words}

    def _size(self, service: Service, notes: list[Note]) -> dict[str, Any]:
        """Return number, CPUs and memory of the nodes."""
        found: dict[str, Any] = {}
        if service.count != 1:
            found["count"] = _nodes(service)
            if _nodes(service) != service.count:
                text = f"{service.count} replicas are {_nodes(service)} nodes"
                notes.append(Note("differs", service.place, "replicas", text))
        cpus, memory = service.cpus or self.choices.cpus, service.memory or self.choices.memory
        if not service.cpus or not service.memory:
            text = f"no limits: {cpus:g} CPUs and {SIZE.format(memory)}; see --cpus and --memory"
            notes.append(Note("assumed", service.place, "limits", text))
        if (given := min(max(cpus, _LEAST_CPUS), _MOST_CPUS)) != cpus:
            notes.append(
                Note("differs", service.place, "cpus", f"{cpus:g} CPUs: a node has {_LEAST_CPUS} to {_MOST_CPUS}")
            )
        least = max(memory, _LEAST_MEMORY)
        if least != memory:
            text = f"{SIZE.format(memory)} is less than a node has at least, 64 MiB"
            notes.append(Note("differs", service.place, "memory", text))
        return {**found, "cpus": float(given), "memory": SIZE.format(min(least, 16 << 40))}

    def _aliases(self, service: Service, group: str, notes: list[Note]) -> list[str]:
        found: list[str] = []
        for name in dict.fromkeys([service.name, *service.aliases]):
            if name in (group, f"{group}-0", *found):
                continue
            if not _HOST.fullmatch(name):
                notes.append(Note("not mapped", service.place, "names", f"'{name[:80]}' is not a host name"))
            elif name in self._hosts:
                text = f"another node has the name '{name}': '{group}' is not reached by it"
                notes.append(Note("not mapped", service.place, "names", text))
            else:
                found.append(name)
                self._hosts.add(name)
        return found

    def _mounts(self, service: Service, group: str, notes: list[Note]) -> list[dict[str, Any]]:
        out = self.choices.out
        found: dict[str, dict[str, Any]] = {}
        for mount in service.mounts:
            source = str(mount.source) if out is None else os.path.relpath(mount.source, out.absolute().parent)
            found[mount.target] = {"source": source, "target": mount.target} | (
                {"read_only": True} if mount.read_only else {}
            )
        for number, (target, content) in enumerate(service.files.items()):
            if out is None:
                text = f"{target}: its content needs a file: write the scenario with --out"
                notes.append(Note("not mapped", service.place, "files", text))
                continue
            name = re.sub(r"[^A-Za-z0-9._-]", "-", target.rpartition("/")[2])[:80] or "file"
            path = Path(f"{out.name.removesuffix('.toml')}.files", group, f"{number}-{name}")
            self.files[out.parent / path] = content
            found[target] = {"source": str(path), "target": target, "read_only": True}
        for target in [target for target in found if not re.fullmatch(r"/[^\0]+", target)]:
            notes.append(Note("not mapped", service.place, "mounts", f"'{target[:80]}' is not an absolute path"))
            del found[target]
        return list(found.values())


def _load(choices: Choices, services: Mapping[str, Service], groups: Mapping[str, str]) -> str:
    """Return an endpoint and its HTTP load. The load is a comment unless `choices` names a service to load."""
    node = {"cpus": choices.cpus, "memory": SIZE.format(choices.memory)}
    inner = {name for service in services.values() for name in service.after}
    offering = sorted((name for name, each in services.items() if each.offers and each.ports), key=inner.__contains__)
    name = choices.load or next(iter(offering), next(iter(services)))
    port = next(iter(services[name].ports), 80)
    device, app = (
        next(each for each in chain([name], (f"{name}{number}" for number in count(2))) if each not in groups.values())
        for name in ("endpoint", "load")
    )
    load = {
        "kind": "http",
        "client": device,
        "server": groups[name],
        "url": f"http://{{server.address}}{'' if port == 80 else f':{port}'}/",
        "rate": "5 /s",
    }
    text = tomli_w.dumps({"nodes": {device: {"class": "endpoint", **node}}})
    if choices.load is not None:
        return f"{text}\n{tomli_w.dumps({'apps': {app: load}})}"
    lines = tomli_w.dumps({"apps": {app: load}}).splitlines()
    why = "No service is on an endpoint: place one with --place NAME=endpoint, or add a load, such as with --load NAME:"
    return comment(why) + text + "\n" + comment(*lines)


def summary(notes: list[Note]) -> str:
    """Return a line with the numbers of keys that are not mapped or not needed."""
    count = sum(note.is_loss for note in notes)
    line = f"{_settings(count)} not mapped or approximated" if count else "Everything is mapped"
    rest = sum(note.level == "not needed" for note in notes)
    return f"{line}; {_settings(rest)} not needed."


def _settings(count: int) -> str:
    return "1 setting is" if count == 1 else f"{count} settings are"


def comment(*lines: str) -> str:
    """Return lines as comments, without characters that TOML or a terminal would interpret."""
    return "".join(f"# {printable(line, kept='')}".rstrip() + "\n" for line in lines)
