"""Checks of programs and of cellbed's built and cached files."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

from cellbed.doctor.machine import Check, Machine, Status


def core() -> Check:
    """Check whether the compiled part of cellbed can be loaded."""
    if importlib.util.find_spec("cellbed._core") is None:
        return Check("emulator", "missing", "the compiled module cellbed._core is not built", "make")
    try:
        importlib.import_module("cellbed._core")
    except ImportError as error:
        return Check("emulator", "missing", f"cellbed._core does not load: {error}", "make clean, then make")
    return Check("emulator", "ok", "compiled")


def program(machine: Machine, name: str, package: str, purpose: str, absent: Status = "warn") -> Check:
    """Check whether a program is installed. package: name in Debian and Ubuntu. absent: status if it is missing."""
    path = machine.find(name)
    if path is not None:
        return Check(name, "ok", path)
    return Check(name, absent, f"not installed; needed for {purpose}", f"sudo apt install {package}")


def virtual_machines(machine: Machine) -> Check:
    """Check whether nodes can be virtual machines, and which kernel devices accelerate them."""
    from cellbed.testbed.nodes.vm import KVM, QEMU, VHOST

    check = program(machine, QEMU, "qemu-system-x86", "nodes that are virtual machines")
    if check.status != "ok":
        return check
    devices = {KVM: "runs their instructions, if it boots them", VHOST: "moves their packets"}
    found = (
        f"{path} {purpose if os.access(machine.path(str(path)), os.R_OK | os.W_OK) else 'is missing or closed'}"
        for path, purpose in devices.items()
    )
    return Check(check.name, "ok", "; ".join((check.found, *found)))


def containers(machine: Machine) -> Check:
    """Check whether nodes can be containers: an engine for images, and the runtime."""
    from cellbed.testbed.machine.state import ENGINES
    from cellbed.testbed.nodes.container import INIT, RUNTIME

    name, purpose = "containers", "not installed; needed for container nodes"
    engines = [path for engine in ENGINES if (path := machine.find(engine)) is not None]
    if not engines:
        return Check(name, "warn", f"Podman or Docker: {purpose}", f"sudo apt install podman {RUNTIME}")
    if machine.find(RUNTIME) is None:
        return Check(name, "warn", f"{RUNTIME}: {purpose}", f"sudo apt install {RUNTIME}")
    if machine.user != 0 and machine.find("podman") is not None and machine.find("newuidmap") is None:
        return Check(
            name, "warn", "newuidmap: not installed; needed for Podman of this user", "sudo apt install uidmap"
        )
    if not INIT.exists():
        return Check(name, "warn", f"{INIT.name} is not built", "make setup")
    if machine.root != Path("/"):
        return Check(name, "ok", ", ".join(engines))
    answers = (
        subprocess.run([path, "--version"], capture_output=True, encoding="utf-8", errors="replace", check=False)
        for path in (*engines, str(machine.find(RUNTIME)))
    )
    return Check(name, "ok", ", ".join(answer.stdout.split("\n", 1)[0] for answer in answers))


def migrations(machine: Machine) -> Check:
    """Check which migration strategies work, by moving a small program; on another machine, nothing is tried."""
    from cellbed.scenario.migrations import load_strategy
    from cellbed.support.extensions import entries

    name = "migrations"
    if machine.find("nft") is None:
        return Check(name, "warn", "nft is not installed; no service can move", "sudo apt install nftables")
    if machine.root != Path("/"):
        return Check(name, "warn", "not tried on another machine")
    lacking = {each: load_strategy(each).lacks() for each in entries("strategies")}
    found = ", ".join(each for each, problem in lacking.items() if problem is None)
    missing: dict[str, list[str]] = {}
    for each, problem in lacking.items():
        if problem is not None:
            missing.setdefault(problem, []).append(each)
    for problem, strategies in missing.items():
        found += f"; not {', '.join(strategies)}: {problem.rpartition(': ')[0]}"
    return Check(name, "warn" if missing else "ok", found, "; ".join(each.rpartition(": ")[2] for each in missing))


def way_out(machine: Machine) -> Check:
    """Check whether this user's shell reaches the network; for another machine or user, only check the programs."""
    from cellbed.shell import wayout

    name = "network of shells"
    if machine.find("nft") is None:
        return Check(name, "warn", "nft is not installed; shells have no network", "sudo apt install nftables")
    if machine.root != Path("/") or machine.user != os.geteuid():
        programs = [program for program in ("pasta", "slirp4netns") if machine.find(program) is not None]
        if machine.user == 0 or programs:
            return Check(name, "ok", programs[0] if programs else "as root")
        return Check(name, "warn", "no pasta, no slirp4netns; shells have no network", "sudo apt install slirp4netns")
    way = wayout.find_way_out()
    if way.kind == "none":
        return Check(name, "warn", way.reason, "then: cellbed doctor")
    if way.kind == "helper":
        found = f"through {way.helpers[0]}, where TCP to the outside ends in front of the link"
        return Check(name, "warn", found, f"for TCP from end to end: {machine.grant_command} --network")
    how = "by the network helper" if way.kind == "granted" else "by the rights of this user"
    return Check(name, "ok", f"TCP from end to end, {how}")


def writable(name: str, folder: Path) -> Check:
    """Check whether files can be created in a folder."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if os.access(existing, os.W_OK):
        return Check(name, "ok", str(folder))
    return Check(name, "missing", f"{existing} cannot be written", f"sudo chown $USER {existing}")
