"""Compose files: from YAML to services, by the Compose specification.

Variables, `include`, `extends` and further files are not resolved here: ``docker compose config`` resolves them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cellbed.importing.documents import ImportedFileError, Items, Map, Place, as_text, check_size, documents, read_text
from cellbed.importing.services import (
    MOST_SERVICES,
    Imported,
    Keys,
    Level,
    Mount,
    Note,
    Service,
    is_there,
    literal,
    number,
    parse_size,
    seconds,
)

_UNITS = {unit + ending: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t"))
          for ending in ("", "b", "ib")}  # fmt: skip
_UNITS |= {mixed: size for unit, size in _UNITS.items() for mixed in (unit.upper(), unit.title())}
_SERVICE = re.compile(r"[a-zA-Z0-9._-]{1,63}")
_UNNEEDED = (
    "annotations", "attach", "develop", "label_file", "labels", "logging", "mem_reservation", "pull_policy",
    "pull_refresh_after", "stop_grace_period", "stop_signal",
)  # fmt: skip
_ENGINE = ("/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock")
_DOLLAR = re.compile(r"\$(?:(\$)|(\{[^}]{0,60}\}?|[A-Za-z_]\w{0,60}))")
_VARIABLE = re.compile(r"(?:export\s+)?([\w.-]+)")


def read_compose(path: Path, variables: Mapping[str, str], profiles: Iterable[str] = ()) -> Imported:
    """Return the services of a Compose file.

    variables: the environment, for keys that name a variable. profiles: the active profiles. Raises
    ImportedFileError.
    """
    return _Project(path, variables).imported(frozenset(profiles))


class _Project:
    """A Compose file. Its paths are relative to its folder."""

    def __init__(self, path: Path, variables: Mapping[str, str]) -> None:
        self.path, self.folder, self.variables = path, path.parent, variables
        self.notes: list[Note] = []
        self._environments: dict[str, dict[str, str]] = {}
        self._size = 0
        place = Place(str(path), 1)
        found = documents(read_text(path), str(path))
        if len(found) != 1 or not isinstance(found[0], Map):
            raise place.error("not a Compose file: one mapping with 'services' is needed")
        self.root = Keys(self._unescape(found[0], place, {}), "", place, self.notes)
        if "include" in self.root:
            raise self.unresolved(self.root.where("include"), "include: other files are not read")
        self.resources: dict[str, dict[str, Keys]] = {}
        for kind in ("volumes", "configs", "secrets"):
            keys = self.root.inside(kind)
            self.resources[kind] = {name: keys.inside(name) for name in keys.value}
        services = self.root.inside("services")
        if not services.value:
            raise place.error("not a Compose file: no services")
        if len(services.value) > MOST_SERVICES:
            raise place.error(f"more than {MOST_SERVICES} services: a scenario has no room for so many nodes")
        for name in services.value:
            if not _SERVICE.fullmatch(name):
                raise services.where(name).error(f"service '{name[:80]}': use letters, digits, '.', '_' and '-'")
        self.services = {name: services.inside(name) for name in services.value}
        """The table of each service."""

    def unresolved(self, place: Place, problem: str) -> ImportedFileError:
        """Return the error for a part of a file that Compose must resolve first."""
        command = f"docker compose -f {shlex.quote(str(self.path))} config > resolved.yaml"
        return place.error(f"{problem}: resolve the file with `{command}` and import resolved.yaml")

    def _unescape(self, value: Any, place: Place, done: dict[object, Any]) -> Any:
        """Return a value with ``$$`` in texts replaced by ``$``. done: results by text or container identity."""

        def plain(match: re.Match[str]) -> str:
            if match[1] is None:
                raise self.unresolved(place, f"'{match[0]}' is a variable")
            return "$"

        if isinstance(value, str):
            if value not in done:
                done[value] = _DOLLAR.sub(plain, value)
            return done[value]
        if isinstance(value, Map | Items) and id(value) not in done:
            table = done[id(value)] = value
            entries: Iterable[Any] = value.items() if isinstance(value, Map) else enumerate(value)
            for key, each in list(entries):
                table[key] = self._unescape(each, table.places[key], done)
        return value

    def environment(self, name: str, place: Place) -> dict[str, str]:
        """Return the variables of a file with lines ``NAME=VALUE``. Each file is read once."""
        if name not in self._environments:
            self._environments[name] = self._read_variables(self.folder / name)
        self._size = check_size(self._size + len(self._environments[name]), place)
        return self._environments[name]

    def _read_variables(self, path: Path) -> dict[str, str]:
        found = {}
        for index, line in enumerate(read_text(path).splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            before, equals, value = (part.strip() for part in line.partition("="))
            name = _VARIABLE.fullmatch(before)
            quote = value[:1] if value[:1] in ("'", '"') else ""
            if quote:
                value, closed, rest = value[1:].partition(quote)
            else:
                value, closed, rest = re.split(r"(?:^|\s)#", value, maxsplit=1)[0].rstrip(), "#", ""
            needs_compose = ("$" in value and quote != "'") or ("\\" in value and quote == '"')
            if name is None or not closed or rest.partition("#")[0].strip() or needs_compose:
                problem = "not a line NAME=VALUE, or one with a variable, an escape or an open quote"
                raise self.unresolved(Place(str(path), index), problem)
            if equals:
                found[name[1]] = value
            elif name[1] in self.variables:
                found[name[1]] = self.variables[name[1]]
        return found

    def imported(self, active: frozenset[str]) -> Imported:
        name = self.root.text("name")
        found = Imported(name or self.path.absolute().parent.name, notes=self.notes)
        networks = self.root.inside("networks")
        if len(networks.value) > 1:
            self.root.note("differs", "networks", "all nodes reach each other: the networks are not separate")
        for name in networks.value:
            network = networks.inside(name)
            network.close(harmless=["attachable", "driver", "labels", "name"])
        for resources in self.resources.values():
            for resource in resources.values():
                for key in ("content", "environment", "external", "file", "name"):
                    resource.take(key)
                resource.close(harmless=["labels"])
        self.root.close(harmless=["version", *(key for key in self.root.value if key.startswith("x-"))])
        chosen = {}
        for each, keys in self.services.items():
            profiles = keys.texts("profiles")
            if "extends" in keys:
                raise self.unresolved(keys.where("extends"), f"{keys.path}.extends: other services are not read")
            if "provider" in keys:
                keys.note("not mapped", "provider", "the service is no container and is left out")
            elif profiles and not active.intersection(profiles):
                text = f"the service is left out: import it with --profile {profiles[0]}"
                keys.note("not needed", "profiles", text)
            else:
                chosen[each] = keys
        if not chosen:
            raise self.root.place.error(f"no service is left: add --profile for one of {', '.join(self.services)}")
        project = _image_name(found.name)
        aliases: dict[str, list[str]] = {}
        for each, keys in chosen.items():
            found.services.append(_Mapping(self, keys, set(chosen), aliases).service(each, project))
        self._relate(found.services, aliases)
        return found

    def _relate(self, services: list[Service], aliases: dict[str, list[str]]) -> None:
        """Set the fields of services that depend on other services: whether they offer or use, and aliases."""
        used = {name for service in services for name in service.after}
        after = {service.name: set(service.after) for service in services}
        while free := [name for name, names in after.items() if not names & set(after)]:
            for name in free:
                del after[name]
        for service in services:
            if service.name in after:
                raise service.place.error(f"services.{service.name}: depends on itself, by way of {', '.join(after)}")
        # A client uses a service that is reached from outside; a worker uses only services behind such a service.
        front = {each.name for each in services if each.offers}
        front -= {name for each in services if each.offers or each.name in used for name in each.after}
        for service in services:
            service.offers = service.offers or service.name in used
            service.uses = not front.isdisjoint(service.after)
            service.aliases += aliases.get(service.name, [])


def _as_map(value: Any) -> Any:
    """Return a list of ``NAME=VALUE`` or of names as a mapping; a name without a value maps to None."""
    if not isinstance(value, Items):
        return value
    found = Map(value.place)
    for each, place in zip(value, value.places, strict=True):
        if isinstance(each, Map | Items):
            raise place.error("text is needed")
        name, equals, text = as_text(each).partition("=")
        found[name] = text if equals else None
        found.places[name] = place
    return found


def _image_name(name: str) -> str:
    return re.sub(r"[^a-z0-9_-]", "", name.lower()).lstrip("_-") or "project"


class _Mapping:
    """The conversion of one service's keys."""

    def __init__(self, project: _Project, keys: Keys, services: set[str], aliases: dict[str, list[str]]) -> None:
        self.project, self.keys, self.services, self.aliases = project, keys, services, aliases
        self.folder = project.folder

    def service(self, name: str, project: str) -> Service:
        keys = self.keys
        self.found = found = Service(name, keys.place)
        keys.notes = found.notes
        found.image = keys.text("image") or ""
        self._build(f"{project}-{name}")
        found.entrypoint, found.command = keys.words("entrypoint"), keys.words("command")
        self._environment()
        found.folder = keys.text("working_dir")
        self._ports()
        self._volumes()
        self._map_files("configs", "/")
        self._map_files("secrets", "/run/secrets/")
        self._resources()
        self._dependencies()
        self._names()
        self._healthcheck()
        extensions = [key for key in keys.value if key.startswith("x-")]
        keys.close(harmless=[*_UNNEEDED, *extensions])
        return found

    def _build(self, image: str) -> None:
        keys, found = self.keys, self.found
        if "build" not in keys:
            if not found.image:
                raise keys.place.error(f"{keys.path}: neither 'image' nor 'build'")
            return
        found.image = found.image or image
        value = keys.take("build")
        build = Keys(value, keys.key("build"), keys.where("build"), found.notes) if isinstance(value, Map) else None
        context = (build.text("context") if build else keys.text("build")) or "."
        folder = context if "://" in context else str((self.folder / context).absolute())
        command = ["podman", "build", "-t", found.image]
        if build is not None:
            if file := build.text("dockerfile"):
                command += ["-f", str(Path(folder) / file)]
            if target := build.text("target"):
                command += ["--target", target]
            for name, text in Keys(_as_map(build.take("args")), build.key("args"), build.place, []).value.items():
                command += ["--build-arg", name if text is None else f"{name}={as_text(text)}"]
            build.close(dict.fromkeys(build.value, "add it to the command that builds the image"))
        found.build = shlex.join([*command, folder])

    def _environment(self) -> None:
        keys, variables = self.keys, self.project.variables
        found: dict[str, str] = {}
        files = keys.take("env_file")
        for entry in files if isinstance(files, Items) else [] if files is None else [files]:
            table = entry if isinstance(entry, Map) else Map(keys.where("env_file"), {"path": entry})
            file = Keys(table, keys.key("env_file"), keys.where("env_file"), self.found.notes)
            name, needed = file.text("path") or "", "required" not in file or file.flag("required")
            file.close()
            if not needed and not is_there(self.folder / name):
                keys.note("not needed", "env_file", f"'{name}' does not exist and is not required")
                continue
            found |= self.project.environment(name, keys.where("env_file"))
        table = _as_map(keys.take("environment"))
        for name, value in (Keys(table, keys.key("environment"), keys.place, []).value).items():
            if isinstance(value, Map | Items):
                keys.refuse("environment", f"'{name}' needs a text")
            if value is not None:
                found[name] = as_text(value)
            elif name in variables:
                found[name] = variables[name]
            else:
                found.pop(name, None)
                level: Level = "differs" if is_there(self.folder / ".env") else "not needed"  # .env is not read
                keys.note(level, "environment", f"'{name}' has no value in the environment and is not set")
        self.found.environment = found

    def _ports(self) -> None:
        keys, found = self.keys, self.found
        for entry, place in keys.entries("ports"):
            found.offers = True
            if isinstance(entry, Map):
                port = Keys(entry, keys.key("ports"), place, found.notes)
                target, protocol, host = (
                    port.text("target") or "",
                    port.text("protocol") or "tcp",
                    port.text("published"),
                )
                port.close(harmless=["app_protocol", "host_ip", "mode", "name"])
            else:
                text, _, protocol = as_text(entry).partition("/")
                host, _, target = text.rpartition(":")
            first = self._first_port(target, place)
            if protocol in ("", "tcp"):
                found.ports.append(first)
            if host and not host.endswith(target):
                shown = f"{target}{'/' + protocol if protocol not in ('', 'tcp') else ''}"
                text = f"the node has a separate address: port {host} is port {shown} of '{found.name}'"
                found.notes.append(Note("not needed", place, keys.key("ports"), text))
        for text in keys.texts("expose"):
            target, _, protocol = text.partition("/")
            if protocol in ("", "tcp"):
                found.ports.append(self._first_port(target, keys.where("expose")))
        found.ports = list(dict.fromkeys(found.ports))

    def _first_port(self, text: str, place: Place) -> int:
        port = text.partition("-")[0]
        if not (port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536):
            raise place.error(f"{self.keys.path}: '{text[:40]}' is not a port: write '8080' or '8080:80'")
        return int(port)

    def _volumes(self) -> None:
        keys = self.keys
        for entry, place in keys.entries("volumes"):
            if isinstance(entry, Map):
                volume = Keys(entry, keys.key("volumes"), place, self.found.notes)
                kind, source, target = volume.text("type") or "volume", volume.text("source"), volume.text("target")
                if target is None:
                    volume.refuse("target", "missing")
                read_only = volume.flag("read_only")
                volume.inside("bind").close(harmless=["create_host_path"])
                volume.close(harmless=["consistency"])
                self._mount(kind, source, target, read_only, place)
                continue
            text = as_text(entry)
            source, _, rest = text.partition(":")
            target, _, mode = rest.partition(":")
            if not rest:
                source, target = "", source
            bind = source.startswith((".", "/", "~"))
            self._mount("bind" if bind else "volume", source, target, "ro" in mode.split(","), place)
        for target in keys.texts("tmpfs"):
            self._mount("tmpfs", None, target.partition(":")[0], False, keys.where("tmpfs"))

    def _mount(self, kind: str, source: str | None, target: str, read_only: bool, place: Place) -> None:
        found = self.found

        def note(level: Level, text: str) -> None:
            found.notes.append(Note(level, place, self.keys.key("tmpfs" if kind == "tmpfs" else "volumes"), text))

        if kind == "bind" and source:
            # Path.expanduser fails for a user that does not exist.
            path = (self.folder / os.path.expanduser(source)).absolute()  # noqa: PTH111
            if str(path) in _ENGINE:
                note("not mapped", f"{target}: a container must not control the container engine")
            elif not is_there(path):
                note("differs", f"{target}: there is no file or folder {source}; the folder is the container's own")
            else:
                found.mounts.append(Mount(path, target, read_only))
        elif kind == "tmpfs":
            note("differs", f"{target} is on the storage of the container, not in memory")
        elif kind == "volume":
            table = self.project.resources["volumes"].get(source or "")
            users = [each for each, keys in self.project.services.items() if source and _uses(keys.value, source)]
            if table is not None and table.value.get("external") not in (None, False, "false"):
                note("not mapped", f"{target}: volume '{source}' exists outside of the application")
            elif len(users) > 1:
                note("not mapped", f"{target}: each of {', '.join(users)} has its own copy of volume '{source}'")
            else:
                note("not needed", f"{target}: the volume is part of the container and new in each run")
        else:
            note("not mapped", f"{target}: a scenario has no mounts of type '{kind}'")

    def _map_files(self, kind: str, parent: str) -> None:
        """Map configs or secrets to files in the container."""
        keys, found = self.keys, self.found
        for entry, place in keys.entries(kind):
            table = entry if isinstance(entry, Map) else Map(place, {"source": entry})
            grant = Keys(table, keys.key(kind), place, found.notes)
            source = grant.text("source") or ""
            target = grant.text("target") or source
            grant.close()
            if source not in self.project.resources[kind]:
                raise place.error(f"{keys.key(kind)}: '{source}' is not among the file's {kind}")
            target = target if target.startswith("/") else parent + target
            value = self.project.resources[kind][source].value
            if (name := value.get("file")) is not None:
                path = (self.folder / as_text(name)).absolute()
                if is_there(path):
                    found.mounts.append(Mount(path, target, read_only=True))
                else:
                    found.notes.append(Note("not mapped", place, keys.key(kind), f"{target}: there is no file {path}"))
            elif (text := value.get("content")) is not None:
                found.files[target] = as_text(text).encode()
            elif (name := as_text(value.get("environment"))) in self.project.variables:
                found.files[target] = self.project.variables[name].encode()
            else:
                why = f"variable '{name}' is not set" if name else "it exists outside of the application"
                found.notes.append(Note("not mapped", place, keys.key(kind), f"{target}: {why}"))

    def _resources(self) -> None:
        keys, found = self.keys, self.found
        found.cpus, found.memory = number(keys, "cpus"), parse_size(keys, "mem_limit", _UNITS)
        quota, period = number(keys, "cpu_quota"), number(keys, "cpu_period") or 100_000
        if quota:
            found.cpus = quota / period
        found.count = keys.whole("scale", 1)
        self._restart(keys.text("restart"))
        deploy = keys.inside("deploy")
        found.count = deploy.whole("replicas", found.count)
        if deploy.text("mode") == "global":
            deploy.note("differs", "mode", "one node runs the service")
        resources = deploy.inside("resources")
        limits = resources.inside("limits")
        found.cpus = number(limits, "cpus") or found.cpus
        found.memory = parse_size(limits, "memory", _UNITS) or found.memory
        limits.close()
        if "reservations" in resources:
            resources.note("not needed", "reservations", "a node has its CPUs and memory to itself")
        resources.close()
        policy = deploy.inside("restart_policy")
        if "restart_policy" in deploy:
            condition = policy.text("condition") or "any"
            if condition not in ("none", "on-failure", "any"):
                policy.refuse("condition", "one of none, on-failure and any is needed")
            found.restart = {"none": "never", "any": "always"}.get(condition, condition)
        policy.close()
        deploy.close({"placement": "use --place"}, ["labels", "rollback_config", "update_config"])

    def _restart(self, policy: str | None) -> None:
        name, _, most = (policy or "no").partition(":")
        names = {"no": "never", "false": "never", "always": "always", "unless-stopped": "always",
                 "on-failure": "on-failure"}  # fmt: skip
        if name not in names:
            self.keys.refuse("restart", f"one of {', '.join(names)} is needed")
        self.found.restart = names[name]
        if most:
            self.keys.note("not mapped", "restart", f"the limit of {most} restarts")

    def _dependencies(self) -> None:
        keys, found = self.keys, self.found
        table = Keys(_as_map(keys.take("depends_on")), keys.key("depends_on"), keys.where("depends_on"), found.notes)
        for name in table.value:
            dependency = table.inside(name)
            condition = dependency.text("condition") or "service_started"
            required = "required" not in dependency or dependency.flag("required")
            if condition not in ("service_started", "service_healthy", "service_completed_successfully"):
                dependency.refuse("condition", f"'{condition[:40]}' is not a condition")
            if "restart" in dependency:
                dependency.note("not mapped", "restart", "a restart does not restart dependent services")
            dependency.close()
            if name not in self.services:
                if required and name not in self.project.services:
                    table.refuse(name, "no such service")
                table.note("differs", name, "the service is left out, so nothing waits for it")
                continue
            if condition == "service_completed_successfully":
                text = f"the service starts when '{name}' has started, not when it has completed"
                dependency.note("not mapped", "condition", text)
            found.after.append(name)
        for text in keys.texts("links"):
            name, _, alias = text.partition(":")
            if name not in self.services:
                keys.refuse("links", f"no service '{name}'")
            if alias and alias != name:
                self.aliases.setdefault(name, []).append(alias)
            if name not in found.after:
                found.after.append(name)

    def _names(self) -> None:
        keys, found = self.keys, self.found
        for key in ("container_name", "hostname"):
            if name := keys.text(key):
                found.aliases.append(name)
        mode = keys.text("network_mode")
        if mode not in (None, "bridge"):
            keys.note("not mapped", "network_mode", f"a node has its own network, not '{mode}'")
        networks = Keys(_as_map(keys.take("networks")), keys.key("networks"), keys.where("networks"), found.notes)
        for name in networks.value:
            network = networks.inside(name)
            found.aliases += network.texts("aliases")
            network.close(harmless=["priority", "gw_priority"])

    def _healthcheck(self) -> None:
        keys, found = self.keys, self.found
        check = keys.inside("healthcheck")
        test = check.take("test")
        words = [as_text(word) for word in test] if isinstance(test, Items) else ["CMD-SHELL", as_text(test)]
        interval, timeout = seconds(check, "interval", 30), seconds(check, "timeout", 30)
        retries, begin = check.whole("retries", 3), seconds(check, "start_period", 0)
        check.take("start_interval")
        disabled = check.flag("disable") or words[:1] == ["NONE"]
        if not disabled and (words[:1] not in (["CMD"], ["CMD-SHELL"]) or len(words) < 2):
            check.refuse("test", "a list begins with NONE, CMD or CMD-SHELL, the last two with a command")
        check.close()
        if test is not None and not disabled:
            command = words[1:] if words[0] == "CMD" else ["/bin/sh", "-c", *words[1:]]
            patience = begin + retries * (interval + timeout)
            found.ready = {
                "command": list(map(literal, command)),
                "timeout": f"{min(3600, max(30, round(patience)))} s",
            }
        elif found.ports:
            found.ready = {"port": found.ports[0], "timeout": "120 s"}


def _uses(service: Mapping[str, Any], volume: str) -> bool:
    """Return whether a service mounts a named volume."""
    entries = service.get("volumes")
    return any(
        (each.get("source") if isinstance(each, Map) else as_text(each).partition(":")[0]) == volume
        for each in (entries if isinstance(entries, Items) else [])
    )
