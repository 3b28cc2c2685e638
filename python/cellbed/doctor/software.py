"""Checks of programs and of what cellbed has built and cached."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from cellbed.doctor.check import Check, Status
from cellbed.doctor.machine import Machine

_CACHED = {"neural network": "mobilenetv2-", "photographs": "photographs-"}
"""What a run keeps in the cache, and how the names of the files begin."""


def core() -> Check:
    """Whether the compiled part of cellbed can be loaded."""
    if importlib.util.find_spec("cellbed._core") is None:
        return Check("emulator", "missing", "the compiled module cellbed._core is not built", "make")
    try:
        importlib.import_module("cellbed._core")
    except ImportError as error:
        return Check("emulator", "missing", f"cellbed._core does not load: {error}", "make clean, then make")
    return Check("emulator", "ok", "compiled")


def program(machine: Machine, name: str, package: str, purpose: str, absent: Status = "warn") -> Check:
    """Whether a program is installed. package: where Debian and Ubuntu have it. absent: how bad it is if not."""
    path = machine.find(name)
    if path is not None:
        return Check(name, "ok", path)
    return Check(name, absent, f"not installed; needed for {purpose}", f"sudo apt install {package}")


def address_translation(machine: Machine) -> Check:
    """Whether a shell can translate addresses."""
    for name in ("nft", "iptables"):
        path = machine.find(name)
        if path is not None:
            return Check("nft", "ok", path)
    return Check(
        "nft",
        "warn",
        "neither nft nor iptables: a shell has no access to the host's network",
        "sudo apt install nftables",
    )


def way_out(machine: Machine) -> Check:
    """Whether an ordinary user's shell can reach the host's network."""
    name = "pasta or slirp4netns"
    for candidate in ("pasta", "slirp4netns"):
        path = machine.find(candidate)
        if path is not None:
            return Check(name, "ok", path)
    if machine.user == 0:
        return Check(name, "ok", "not installed, not needed by root")
    return Check(
        name, "warn", "neither: an ordinary user's shell has no access to the host's network", "sudo apt install passt"
    )


def browser(machine: Machine) -> Check:
    """Whether there is a browser for the tests of the report."""
    for candidate in ("chromium", "chromium-browser", "google-chrome"):
        path = machine.find(candidate)
        if path is not None:
            return Check("chromium", "ok", f"{path} (for tests only)")
    return Check("chromium", "warn", "not installed; needed for the report's tests only", "sudo apt install chromium")


def traces(folder: Path, names: tuple[str, ...]) -> Check:
    """Whether the traces of the archive are there. names: what the archive offers."""
    there = [name for name in names if list(folder.glob(f"{name}*"))] if folder.is_dir() else []
    if len(there) == len(names):
        return Check("trace archive", "ok", f"{len(there)} traces in {folder}")
    return _writable(
        "trace archive", folder, f"{len(there)} of {len(names)} traces; the others are created at first use"
    )


def cache(folder: Path) -> Check:
    """Whether the workload's data bank and model are built."""
    there = [name for name, start in _CACHED.items() if list(folder.glob(f"{start}*"))] if folder.is_dir() else []
    if len(there) == len(_CACHED):
        return Check("cache", "ok", f"{' and '.join(there)}, in {folder}")
    absent = " and no ".join(name for name in _CACHED if name not in there)
    return _writable("cache", folder, f"no {absent} yet in {folder}; created once at the first run")


def _writable(name: str, folder: Path, found: str) -> Check:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if os.access(existing, os.W_OK):
        return Check(name, "ok", found)
    return Check(name, "missing", f"{existing} cannot be written", f"sudo chown $USER {existing}")
