"""Kubernetes manifests: from YAML to services, by the Kubernetes API reference."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellbed.importing.documents import Map, Place, as_text, documents, read_text
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
)

_UNITS = {"": 1} | {unit + ending: base**power for base, ending in ((1000, ""), (1024, "i"))
                    for power, unit in enumerate("KMGTPE", 1)} | {"k": 1000}  # fmt: skip
_WORKLOADS = ("Pod", "Deployment", "StatefulSet", "ReplicaSet", "ReplicationController", "DaemonSet", "Job")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_FIELDS = {"metadata.name": "{node.name}", "status.podIP": "{node.address}", "status.hostIP": "{node.address}",
           "spec.nodeName": "{node.name}"}  # fmt: skip
_LONGEST = 1 << 20
"""Maximum characters of a text with references replaced: nested references can grow without bound."""
_LOCALHOST = r"(?<![\w.-])(localhost|127\.0\.0\.1|\[::1\])"
_UNNEEDED_KINDS = (
    "ClusterRole", "ClusterRoleBinding", "Namespace", "PersistentVolume", "PersistentVolumeClaim",
    "PodDisruptionBudget", "Role", "RoleBinding", "ServiceAccount", "StorageClass",
)  # fmt: skip
_UNNEEDED_IN_WORKLOAD = ("progressDeadlineSeconds", "revisionHistoryLimit", "strategy", "updateStrategy")
_UNNEEDED_IN_POD = (
    "automountServiceAccountToken", "enableServiceLinks", "imagePullSecrets", "schedulerName", "serviceAccount",
    "serviceAccountName", "terminationGracePeriodSeconds",
)  # fmt: skip
_UNNEEDED_IN_CONTAINER = ("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy")
_UNNEEDED_IN_SERVICE = (
    "allocateLoadBalancerNodePorts", "clusterIP", "clusterIPs", "externalTrafficPolicy", "healthCheckNodePort",
    "ipFamilies", "ipFamilyPolicy", "loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges",
    "publishNotReadyAddresses",
)  # fmt: skip
_OF_POD = {
    "nodeSelector": "use --place",
    "tolerations": "use --place",
    "initContainers": "a container that runs before the others: run it yourself, or put its work into the image",
}
_OF_CONTAINER = {"livenessProbe": "a program is restarted when it ends, not when it does not answer"}


def read_manifests(paths: Sequence[Path]) -> Imported:
    """Return the services of Kubernetes manifests in at least one file. Raises ImportedFileError."""
    cluster = _Cluster()
    for path in paths:
        for document in documents(read_text(path), str(path)):
            cluster.add(document, Place(str(path), 1))
    first = paths[0].absolute()
    return cluster.imported(first.stem if len(paths) == 1 else first.parent.name, Place(str(paths[0]), 1))


@dataclass(slots=True)
class _Object:
    """An object of a manifest. keys: all keys of the object."""

    kind: str
    name: str
    namespace: str
    labels: dict[str, str]
    keys: Keys


@dataclass(slots=True)
class _Pod:
    """A workload with a service for each container. shared: volumes that several containers mount."""

    name: str
    namespace: str
    labels: dict[str, str]
    shared: set[str]
    services: list[Service] = field(default_factory=list)
    named_ports: dict[str, int] = field(default_factory=dict)


class _Cluster:
    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.objects: list[_Object] = []
        self.moved: list[tuple[str, str]] = []
        """Patterns of a Service's name and port, each with its replacement: name and container port."""

    def add(self, document: Any, place: Place) -> None:
        if document is None:
            return
        if not isinstance(document, Map) or "kind" not in document:
            raise place.error("not a manifest: a mapping with 'apiVersion' and 'kind' is needed")
        keys = Keys(document, "", document.place, self.notes)
        kind = (keys.text("kind") or "").strip()
        keys.take("apiVersion")
        if kind == "List":
            for item, where in keys.entries("items"):
                self.add(item, where)
            keys.close(harmless=["metadata"])
            return
        metadata = keys.inside("metadata")
        name = metadata.text("name") or metadata.text("generateName") or ""
        labels = metadata.pairs("labels")
        if len(self.objects) >= MOST_SERVICES:
            raise document.place.error(f"more than {MOST_SERVICES} objects: import fewer")
        if kind in _WORKLOADS and not name:
            raise document.place.error(f"{kind}: metadata.name is missing")
        found = _Object(kind, name, metadata.text("namespace") or "default", labels, keys)
        metadata.close(harmless=list(metadata.value))
        keys.path = f"{kind}/{name}"
        self.objects.append(found)

    def imported(self, name: str, place: Place) -> Imported:
        found = Imported(name, notes=self.notes)
        for each in self.objects:
            if each.kind in ("ConfigMap", "Secret"):
                for key in ("binaryData", "data", "stringData"):
                    each.keys.take(key)
                each.keys.close(harmless=["immutable", "type"])
        self.data = {(it.kind, it.namespace, it.name): it for it in self.objects if it.kind in ("ConfigMap", "Secret")}
        pods = [self._pod(each) for each in self.objects if each.kind in _WORKLOADS]
        for each in self.objects:
            if each.kind == "Service":
                self._service(each, pods)
            elif each.kind not in (*_WORKLOADS, "ConfigMap", "Secret"):
                level: Level = "not needed" if each.kind in _UNNEEDED_KINDS else "not mapped"
                text = "a scenario has no counterpart of this kind"
                self.notes.append(Note(level, each.keys.place, f"{each.kind}/{each.name}", text))
        found.services = [service for pod in pods for service in pod.services]
        if not found.services:
            raise place.error(f"no {', '.join(_WORKLOADS[:-1])} or {_WORKLOADS[-1]}: give manifests with one")
        for service in found.services:
            _replace(service, self.moved)
        selected = any(service.offers for service in found.services)
        for service in found.services:
            service.uses = selected and not service.offers
        return found

    def _pod(self, workload: _Object) -> _Pod:
        """Return the services of a workload's containers."""
        keys, labels, count = workload.keys, workload.labels, 1
        spec = keys.inside("spec")
        kept: set[str] = set()
        if workload.kind != "Pod":
            count = spec.whole("replicas", 1)
            spec.take("selector")
            kept = {as_text((each.inside("metadata")).text("name")) for each in spec.mappings("volumeClaimTemplates")}
            headless = spec.text("serviceName")
            template = spec.inside("template")
            metadata = template.inside("metadata")
            labels = metadata.pairs("labels") or labels
            metadata.close(harmless=list(metadata.value))
            if workload.kind == "DaemonSet":
                spec.note("differs", "template", "one node runs the workload of a DaemonSet")
            spec.close(harmless=_UNNEEDED_IN_WORKLOAD)
            spec = template.inside("spec")
            template.close()
        keys.close(harmless=["status"])
        default = "OnFailure" if workload.kind == "Job" else "Always"
        policy = spec.text("restartPolicy") or default
        policies = {"Always": "always", "OnFailure": "on-failure", "Never": "never"}
        if policy not in policies:
            spec.refuse("restartPolicy", f"one of {', '.join(policies)} is needed")
        hostname = spec.text("hostname")
        volumes = {as_text(each.text("name")): each for each in spec.mappings("volumes")}
        containers = spec.mappings("containers")
        if len(containers) > MOST_SERVICES // 10:
            raise spec.place.error(f"{spec.path or keys.path}: more than {MOST_SERVICES // 10} containers")
        if not containers:
            raise spec.place.error(f"{spec.path or keys.path}: no containers")
        pod = _Pod(workload.name, workload.namespace, labels, _common_volumes(containers))
        for container in containers:
            inner_name = container.text("name") or "container"
            name = workload.name if container is containers[0] else f"{workload.name}-{inner_name}"
            service = Service(name, container.place, count=count, restart=policies[policy])
            container.notes = service.notes
            if hostname:
                service.aliases.append(hostname)
            if workload.kind == "StatefulSet" and headless:
                service.aliases.append(f"{workload.name}-0.{headless}")
            pod.services.append(service)
            _Container(self, container, service, pod, volumes, kept).read()
        if len(containers) > 1:
            text = f"containers of a Pod share an address; here each of the {len(containers)} has a node"
            for service in pod.services:
                there = {port: each.name for each in pod.services for port in each.ports if port not in service.ports}
                _replace(service, [(rf"{_LOCALHOST}:{port}(?!\d)", f"{name}:{port}") for port, name in there.items()])
                for port, name in there.items():
                    text += f"; in {service.name} 'localhost:{port}' becomes '{name}:{port}'"
            spec.note("differs", "containers", f"{text}; a server that listens on localhost only is not reached")
        for volume in volumes.values():
            volume.close(dict.fromkeys(volume.value, "no container mounts the volume, or its type is not supported"))
        spec.close(_OF_POD, _UNNEEDED_IN_POD)
        return pod

    def _service(self, each: _Object, pods: list[_Pod]) -> None:
        """Add a Service's names to a node that the Service selects."""
        keys = each.keys
        spec = keys.inside("spec")
        wanted = spec.pairs("selector")
        chosen = [
            pod for pod in pods if wanted and pod.namespace == each.namespace and wanted.items() <= pod.labels.items()
        ]
        kind = spec.text("type")
        ports = spec.mappings("ports")
        if kind not in (None, "ClusterIP"):
            spec.note("not needed", "type", f"{kind}: nodes reach the service at its node")
        spec.close(harmless=_UNNEEDED_IN_SERVICE)
        keys.close(harmless=["status"])
        if not chosen:
            self.notes.append(
                Note("not mapped", keys.place, keys.path, "no imported workload has the labels of its selector")
            )
            return
        if len(chosen) > 1:
            text = f"of {', '.join(pod.name for pod in chosen)} the first has the name '{each.name}'"
            self.notes.append(Note("differs", keys.place, keys.path, text))
        domains = ("", f".{each.namespace}", f".{each.namespace}.svc", f".{each.namespace}.svc.cluster.local")
        names = [each.name + domain for domain in domains]
        for pod in chosen:
            pod.services[0].offers = True
        behind = [self._port(port, chosen[0], names) for port in ports]
        first = next((service for service in behind if service is not None), chosen[0].services[0])
        first.aliases += names
        first.offers = True
        for port, service in zip(ports, behind, strict=True):
            if service not in (first, None):
                port.note(
                    "not mapped", "port", f"'{each.name}' is the node of {first.name}; write {service.name} for this"
                )

    def _port(self, port: Keys, pod: _Pod, names: list[str]) -> Service | None:
        """Return the container that listens on a port of a Service; None if no such container is known."""
        wanted, target = _port_number(port, "port", {}), port.text("targetPort") or ""
        port.take("nodePort")
        protocol = port.text("protocol") or "TCP"
        port.close(harmless=["name", "appProtocol"])
        actual = wanted
        if target and not target.isdecimal() and target not in pod.named_ports:
            port.note("not mapped", "targetPort", f"no container port is called '{target}'")
        elif target:
            actual = _port_number(port, "targetPort", pod.named_ports)
        if actual != wanted:
            for name in names:
                host = rf"(?<![\w.-]){re.escape(name)}"
                self.moved.append((rf"{host}:{wanted}(?!\d)", f"{name}:{actual}"))
                if wanted == 80:
                    self.moved.append((rf"(?<=http://){re.escape(name)}(?![\w.:-])", f"{name}:{actual}"))
            change = f"'{names[0]}:{wanted}' becomes '{names[0]}:{actual}' in commands, variables and files"
            text = f"nodes have no port mapping: {change}"
            port.note("differs", "targetPort", text)
        found = next((service for service in pod.services if actual in service.ports), None)
        service = found or pod.services[0]
        if protocol == "TCP" and not service.ports:
            service.ports.append(actual)
            service.ready = service.ready or {"port": actual, "timeout": "120 s"}
        return found

    def values(self, kind: str, namespace: str, name: str) -> dict[str, bytes] | None:
        """Return the data of a ConfigMap or Secret; None if it is not among the manifests."""
        found = self.data.get((kind, namespace, name))
        if found is None:
            return None
        values: dict[str, bytes] = {}
        for key in ("binaryData", "data", "stringData"):
            table = found.keys.inside(key)
            for inner in table.value:
                text = table.text(inner) or ""
                encoded = key == "binaryData" or (kind == "Secret" and key == "data")
                try:
                    values[inner] = base64.b64decode(text, validate=False) if encoded else text.encode()
                except (binascii.Error, ValueError):
                    table.refuse(inner, "not Base64")
        return values


def _common_volumes(containers: list[Keys]) -> set[str]:
    """Return the names of volumes that several containers mount."""
    mounts = [
        {as_text(mount.value.get("name")) for mount in Keys.mappings(_copy(each), "volumeMounts")}
        for each in containers
    ]
    return {name for number, names in enumerate(mounts) for name in names if any(name in it for it in mounts[:number])}


def _copy(keys: Keys) -> Keys:
    """Return a copy of a mapping; reading the copy marks no key as used."""
    return Keys(keys.value, keys.path, keys.place, [])


class _Container:
    """The conversion of one container's keys."""

    def __init__(
        self, cluster: _Cluster, keys: Keys, found: Service, pod: _Pod, volumes: Mapping[str, Keys], kept: set[str]
    ) -> None:
        self.cluster, self.keys, self.found, self.pod = cluster, keys, found, pod
        self.volumes, self.kept = volumes, kept

    def read(self) -> None:
        keys, found = self.keys, self.found
        found.image = keys.text("image") or ""
        if not found.image:
            raise keys.place.error(f"{keys.path}: 'image' is missing")
        self._environment()
        for key in ("command", "args"):
            words = [self._expand(word) for word in keys.texts(key)]
            if any(template for _, template in words):
                keys.note("not mapped", key, "a command cannot contain what only the node knows, such as its address")
            if key == "command":
                found.entrypoint = [word for word, _ in words] or None
            else:
                found.command = [word for word, _ in words] or None
        found.folder = keys.text("workingDir")
        for port in keys.mappings("ports"):
            target, name = _port_number(port, "containerPort", {}), port.text("name")
            protocol = port.text("protocol") or "TCP"
            if "hostPort" in port:
                port.note("not needed", "hostPort", "the node has a separate address")
            port.close(harmless=["hostIP"])
            if name is not None:
                self.pod.named_ports[name] = target
            if protocol == "TCP":
                found.ports.append(target)
        self._resources()
        self._mounts()
        self._readiness()
        keys.close(_OF_CONTAINER, _UNNEEDED_IN_CONTAINER)

    def _expand(self, text: str) -> tuple[str, bool]:
        """Return the text with references ``$(NAME)`` to the environment replaced, and whether the result has names in
        braces, which the scenario fills in. References to other names stay."""
        found = self.found
        template = any(match[1] in found.templates for match in _REFERENCE.finditer(text))

        size = 0

        def value(match: re.Match[str]) -> str:
            nonlocal size
            if match[1] is None:
                return "$"
            known = (literal if template else str)(found.environment.get(match[1], match[0]))
            known = found.templates.get(match[1], known)
            size += len(known)
            if size > _LONGEST:
                raise self.keys.place.error("longer than 1 MiB with all variables replaced: shorten them")
            return known

        return _REFERENCE.sub(value, literal(text) if template else text), template

    def _environment(self) -> None:
        for source in self.keys.mappings("envFrom"):
            prefix = source.text("prefix") or ""
            for key, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if key in source:
                    reference = source.inside(key)
                    for name, content in self._data(reference, kind, reference.text("name")).items():
                        self._set(reference, prefix + name, content)
                    reference.close()
            source.close()
        for variable in self.keys.mappings("env"):
            name = variable.text("name") or variable.refuse("name", "missing")
            if "valueFrom" in variable:
                self._value_from(variable.inside("valueFrom"), name)
                variable.take("value")
            else:
                value, template = self._expand(variable.text("value") or "")
                (self.found.templates if template else self.found.environment)[name] = value
            variable.close()

    def _value_from(self, source: Keys, name: str) -> None:
        for key, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
            if key in source:
                reference = source.inside(key)
                wanted = reference.text("key") or ""
                data = self._data(reference, kind, reference.text("name"))
                if wanted in data:
                    self._set(reference, name, data[wanted])
                elif data:
                    reference.note("not mapped", "key", f"'{name}' is not set: there is no key '{wanted}'")
                reference.close()
        if "fieldRef" in source:
            reference = source.inside("fieldRef")
            path = reference.text("fieldPath") or ""
            reference.take("apiVersion")
            if path in _FIELDS:
                self.found.templates[name] = _FIELDS[path]
            elif path == "metadata.namespace":
                self.found.environment[name] = self.pod.namespace
            else:
                reference.note("not mapped", "fieldPath", f"'{name}' is not set: a node has no '{path}'")
            reference.close()
        source.close({"resourceFieldRef": f"'{name}' is not set"})

    def _data(self, reference: Keys, kind: str, name: str | None) -> dict[str, bytes]:
        data = self.cluster.values(kind, self.pod.namespace, name or "")
        optional = reference.flag("optional")
        if data is None:
            level: Level = "not needed" if optional else "not mapped"
            reference.note(level, "name", f"{kind} '{name}' is not among the manifests")
        return data or {}

    def _set(self, keys: Keys, name: str, content: bytes) -> None:
        try:
            self.found.environment[name] = content.decode()
        except UnicodeDecodeError:
            keys.note("not mapped", "name", f"'{name}' is not set: its value is not UTF-8 text")

    def _resources(self) -> None:
        resources = self.keys.inside("resources")
        limits = resources.inside("limits")
        self.found.cpus = number(limits, "cpu", milli=True)
        self.found.memory = parse_size(limits, "memory", _UNITS)
        limits.close()
        if "requests" in resources:
            resources.note("not needed", "requests", "a node has its CPUs and memory to itself")
        resources.close()

    def _mounts(self) -> None:
        found = self.found
        for mount in self.keys.mappings("volumeMounts"):
            name, target, part = mount.text("name") or "", mount.text("mountPath"), mount.text("subPath")
            read_only = mount.flag("readOnly")
            mount.close()
            if target is None:
                mount.refuse("mountPath", "missing")
            volume = self.volumes.get(name)
            if volume is None:
                if name not in self.kept:
                    mount.refuse("name", f"no volume '{name[:80]}'")
                mount.note("not needed", "name", f"{target}: the volume is part of the container and new in each run")
            elif "configMap" in volume:
                source = volume.inside("configMap")
                self._files(source, "ConfigMap", source.text("name"), target, part)
            elif "secret" in volume:
                source = volume.inside("secret")
                self._files(source, "Secret", source.text("secretName"), target, part)
            elif "hostPath" in volume:
                source = volume.inside("hostPath")
                path = Path(source.text("path") or "/")
                source.close(harmless=["type"])
                if path.is_absolute() and is_there(path):
                    found.mounts.append(Mount(path / part if part else path, target, read_only))
                else:
                    mount.note("differs", "name", f"{target}: {path} does not exist; the folder is the container's own")
            elif "emptyDir" in volume or "persistentVolumeClaim" in volume:
                volume.take("emptyDir"), volume.take("persistentVolumeClaim")
                if name in self.pod.shared:
                    mount.note(
                        "not mapped", "name", f"{target}: the containers of the Pod do not share volume '{name}'"
                    )
                else:
                    mount.note(
                        "not needed", "name", f"{target}: the volume is part of the container and new in each run"
                    )
            else:
                kinds = ", ".join(key for key in volume.value if key != "name")
                mount.note("not mapped", "name", f"{target}: volumes of type {kinds} are not supported")
                for key in volume.value:
                    volume.take(key)

    def _files(self, source: Keys, kind: str, name: str | None, target: str, part: str | None) -> None:
        data = self._data(source, kind, name)
        items = source.mappings("items")
        if items:
            chosen = {}
            for item in items:
                key, path = item.text("key") or "", item.text("path") or ""
                item.close()
                if key in data:
                    chosen[path] = data[key]
            data = chosen
        source.close(harmless=["defaultMode"])
        if part is not None:
            data = {"": data[part]} if part in data else {}
        for path, content in data.items():
            self.found.files[f"{target.rstrip('/')}/{path}".rstrip("/")] = content

    def _readiness(self) -> None:
        keys, found = self.keys, self.found
        ready: dict[str, Any] | None = None
        for name in ("readinessProbe", "startupProbe"):
            if name not in keys:
                continue
            probe = keys.inside(name)
            begin, period, failures = (
                probe.whole(key, default) or default
                for key, default in (("initialDelaySeconds", 0), ("periodSeconds", 10), ("failureThreshold", 3))
            )
            for key in ("timeoutSeconds", "successThreshold", "terminationGracePeriodSeconds"):
                probe.take(key)
            asked = self._probe(probe)
            if asked is not None and ready is None:
                ready = {**asked, "timeout": f"{min(3600, max(120, begin + period * failures))} s"}
            probe.close()
        if ready is None and found.ports:
            ready = {"port": found.ports[0], "timeout": "120 s"}
        found.ready = ready

    def _probe(self, probe: Keys) -> dict[str, Any] | None:
        if "httpGet" in probe:
            get = probe.inside("httpGet")
            path, port, scheme = (
                get.text("path") or "/",
                _port_number(get, "port", self.pod.named_ports),
                get.text("scheme") or "HTTP",
            )
            get.close()
            if scheme == "HTTP":
                return {"http": f"http://{{node.address}}:{port}/{literal(path.lstrip('/'))}"}
            get.note("differs", "scheme", f"ready means that TCP port {port} is open")
            return {"port": port}
        for kind in ("tcpSocket", "grpc"):
            if kind in probe:
                socket = probe.inside(kind)
                port = _port_number(socket, "port", self.pod.named_ports)
                if kind == "grpc":
                    probe.note("differs", kind, f"ready means that TCP port {port} is open")
                socket.close()
                return {"port": port}
        if "exec" in probe:
            command = probe.inside("exec")
            words = [literal(word) for word in command.texts("command")]
            command.close()
            return {"command": words} if words else None
        return None


def _replace(service: Service, changes: Sequence[tuple[str, str]]) -> None:
    """Replace patterns in commands, variables and files of a container."""

    def replace_all(text: str) -> str:
        for pattern, new in changes:
            text = re.sub(pattern, new.replace("\\", r"\\"), text)
        return text

    service.entrypoint = service.entrypoint and list(map(replace_all, service.entrypoint))
    service.command = service.command and list(map(replace_all, service.command))
    for values in (service.environment, service.templates):
        values.update({name: replace_all(value) for name, value in values.items()})
    for path, content in service.files.items():
        with suppress(UnicodeDecodeError):
            service.files[path] = replace_all(content.decode()).encode()


def _port_number(keys: Keys, key: str, named: Mapping[str, int]) -> int:
    """Return a port by its number or its name."""
    text = keys.text(key) or ""
    port = int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else named.get(text, 0)
    if not 0 < port < 65536:
        keys.refuse(key, f"no port '{text[:40]}'")
    return port
