"""Devices of containers: files below /dev, and names of the Container Device Interface (CDI).

A CDI specification is a file of this machine's administrator, made for example by ``nvidia-ctk cdi generate``. The file
describes what a container needs for a device: device files, mounts, environment variables and hooks
(https://github.com/cncf-tags/container-device-interface, SPEC.md, version 0.8).
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellbed.support.errors import CellbedError
from cellbed.support.near_names import did_you_mean
from cellbed_node import inputs

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
"""Folders of specifications; the last one has precedence."""


class DeviceError(CellbedError):
    """A device that a container cannot have here. The text contains the remedy."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Needs of a container. binds: host path, path inside, options of the mount. hooks: in the runtime's format, by
    name."""

    environment: tuple[str, ...] = ()
    binds: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    hooks: tuple[tuple[str, dict[str, Any]], ...] = ()


def find_devices(names: Iterable[str], folders: Sequence[Path] | None = None) -> Edits:
    """Return what a container needs for devices. names: paths below /dev, or CDI names such as ``nvidia.com/gpu=all``.
    folders: of specifications; default: `FOLDERS`. Errors: :class:`DeviceError`."""
    found = [_find_file(name) if name.startswith("/") else _find_named(name, folders or FOLDERS) for name in names]
    # The part of a specification that all its devices share would otherwise be there several times.
    unique = {
        key: [value for each in found for value in getattr(each, key)] for key in ("environment", "binds", "hooks")
    }
    return Edits(*(tuple(value for at, value in enumerate(each) if value not in each[:at]) for each in unique.values()))


def _find_file(name: str) -> Edits:
    path = Path(name)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise DeviceError(f"there is no device {name}: {error.strerror}") from error
    if ".." in path.parts or path.parts[1:2] != ("dev",) or not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
        raise DeviceError(f"{name} is not a device: write a device file below /dev, or a CDI name (nvidia.com/gpu=all)")
    return Edits(binds=((name, name, ("bind",)),))


def _find_named(name: str, folders: Sequence[Path]) -> Edits:
    kind, _, device = name.partition("=")
    known: dict[str, Edits] = {}
    for path in (each for folder in folders for each in folder.glob("*")):
        if path.suffix in (".json", ".yaml", ".yml"):
            known |= _read(path)
    if name not in known:
        places = " and ".join(map(str, folders))
        there = ", ".join(sorted(known)) or "none"
        raise DeviceError(
            f"no device '{name}' in the specifications of {places}: {did_you_mean(name, known)}there are: {there}"
            if device and kind
            else f"'{name}' is no device: write a device file below /dev, or a CDI name (nvidia.com/gpu=all)"
        )
    return known[name]


def _read(path: Path) -> dict[str, Edits]:
    """Return the devices of a specification by CDI name."""
    import yaml

    try:
        content = yaml.safe_load(inputs.content(path))  # JSON is YAML
        shared = content.get("containerEdits") or {}
        return {
            f"{content['kind']}={each['name']}": _edits([shared, each.get("containerEdits") or {}])
            for each in content["devices"]
        }
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DeviceError(f"{path}: not a specification of CDI: {type(error).__name__}: {error}") from error


def _edits(parts: Sequence[dict[str, Any]]) -> Edits:
    environment = [str(value) for part in parts for value in part.get("env") or []]
    binds: list[tuple[str, str, tuple[str, ...]]] = [
        (str(node.get("hostPath") or node["path"]), str(node["path"]), ("bind",))
        for part in parts
        for node in part.get("deviceNodes") or []
    ]
    binds += [
        (str(mount["hostPath"]), str(mount["containerPath"]), tuple(map(str, mount.get("options") or ["rbind", "ro"])))
        for part in parts
        for mount in part.get("mounts") or []
    ]
    hooks = [
        (str(hook["hookName"]), {key: hook[key] for key in ("path", "args", "env", "timeout") if key in hook})
        for part in parts
        for hook in part.get("hooks") or []
    ]
    return Edits(tuple(environment), tuple(binds), tuple(hooks))
