"""Checks of the CPU and memory limits that this user can set, as `cellbed.testbed.machine.cgroups` sets them."""

from __future__ import annotations

import os
from pathlib import Path

from cellbed.doctor.machine import Check, Machine, output_of

VERSION_1 = ("cpu", "cpuacct", "memory")
"""Controllers of version 1 whose hierarchies a run divides."""


def version_1(machine: Machine) -> dict[str, str]:
    """Return the mount point of each version 1 controller."""
    found: dict[str, str] = {}
    for kind, mount, options in machine.mounts():
        if kind == "cgroup":
            found |= dict.fromkeys(options, mount)
    return found


def version_2(machine: Machine) -> str | None:
    """Return the mount point of the version 2 hierarchy, if it has the cpu and memory controllers."""
    for kind, mount, _ in machine.mounts():
        controllers = (machine.read(f"{mount}/cgroup.controllers") or "").split()
        if kind == "cgroup2" and {"cpu", "memory"} <= set(controllers):
            return mount
    return None


def limits(machine: Machine) -> Check:
    """Check whether CPU and memory limits can be enforced."""
    name = "CPU and memory limits"
    mounts = version_1(machine)
    if "cpu" in mounts and "memory" in mounts:
        return _version_1(machine, name, mounts)
    unified = version_2(machine)
    if unified is not None:
        return _version_2(machine, name, unified)
    return Check(
        name,
        "missing",
        "no control groups with the cpu and memory controllers are mounted",
        "mount them, or run without limits: cellbed run --no-limits",
    )


def systemd_delegates(machine: Machine, unified: str) -> set[str] | None:
    """Return the controllers that systemd delegates to the user's session manager; ``None`` without one."""
    # Not XDG_RUNTIME_DIR: after `su`, and in `cellbed grant`, the variable is another user's.
    manager = machine.path(f"/run/user/{machine.user}/systemd/private")
    if not os.access(manager, os.F_OK) or machine.find("systemd-run") is None:
        return None
    group = f"{unified}/user.slice/user-{machine.user}.slice/user@{machine.user}.service"
    return set((machine.read(f"{group}/cgroup.controllers") or "").split())


def _version_1(machine: Machine, name: str, mounts: dict[str, str]) -> Check:
    if machine.user == 0:
        folders = {mounts.get(controller, mounts["cpu"]) for controller in VERSION_1}
        closed = sorted(folder for folder in folders if not os.access(machine.path(folder), os.W_OK))
        if closed:
            found = f"version 1, but {closed[0]} is read-only"
            return Check(
                name, "missing", found, "a container needs --privileged; or run without limits: cellbed run --no-limits"
            )
        return Check(name, "ok", "version 1, as root")
    folders = {f"{mounts.get(controller, mounts['cpu'])}/cellbed-{machine.user}" for controller in VERSION_1}
    if all(os.access(machine.path(folder), os.W_OK) for folder in folders):
        return Check(name, "ok", f"version 1, folders cellbed-{machine.user} granted")
    found = f"version 1, not delegated to user {machine.user_name}"
    return Check(name, "missing", found, f"{machine.grant_command}; or run without limits: cellbed run --no-limits")


def _version_2(machine: Machine, name: str, unified: str) -> Check:
    own = (machine.read("/proc/self/cgroup") or "").splitlines()[-1:] or ["0::/"]
    current = own[0].split("::", 1)[-1].strip("/")
    granted = f"cellbed-{machine.user}"
    without = "or run without limits: cellbed run --no-limits"
    if machine.user == 0:
        if os.access(machine.path(f"{unified}/cgroup.procs"), os.W_OK):
            return Check(name, "ok", "version 2, as root")
        return Check(
            name, "missing", f"version 2, but {unified} is read-only", f"a container needs --privileged; {without}"
        )
    if granted in current.split("/"):
        return Check(name, "ok", f"version 2, folder {granted} granted and this session is in it")
    if current and os.access(machine.path(f"{unified}/{current}/cgroup.procs"), os.W_OK):
        have = set((machine.read(f"{unified}/{current}/cgroup.controllers") or "").split())
        if {"cpu", "memory"} <= have:
            return Check(name, "ok", f"version 2, /{current} is this user's")
    delegated = systemd_delegates(machine, unified)
    if delegated is None and machine.path("/run/systemd/system").exists():
        # A shell of su or cron: only users who have logged in, or linger, have a session manager.
        found = f"version 2, but user {machine.user_name} has no systemd session with delegated groups"
        remedy = f"log in as {machine.user_name}, or: sudo loginctl enable-linger {machine.user_name}"
        return Check(name, "missing", found, f"{remedy}; {without}")
    if delegated is None:
        found = f"version 2, but this session's group /{current} is not delegated to the user, and there is no systemd"
        return Check(name, "missing", found, f"{machine.grant_command}; {without}")
    lacking = sorted({"cpu", "memory"} - delegated)
    if lacking:
        found = f"version 2; systemd does not delegate {' and '.join(lacking)} to user {machine.user_name}"
        return Check(name, "missing", found, f"{machine.grant_command}; {without}")
    refused = _scope_refusal(machine, unified)
    if refused is not None:
        return Check(
            name, "missing", f"version 2; systemd makes no scope with them: {refused}", f"log in again; {without}"
        )
    return Check(name, "ok", "version 2, delegated by systemd")


def _scope_refusal(machine: Machine, unified: str) -> str | None:
    """Try to make a scope with limits, as a run does; return why systemd refuses, ``None`` if it does not.

    A session manager does not pass on controllers that were delegated after its start.
    """
    if machine.user != os.geteuid() or machine.root != Path("/"):
        return None
    scope = ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--"]
    look = f'cat "{unified}$(sed -n s/^0:://p /proc/self/cgroup)/cgroup.controllers"'
    runtime = f"XDG_RUNTIME_DIR=/run/user/{machine.user}"
    status, said = output_of(["env", runtime, *scope, "sh", "-c", look])
    if status != 0:
        return said.splitlines()[-1] if said else f"status {status}"
    lacking = sorted({"cpu", "memory"} - set(said.split()))
    return f"no {' and '.join(lacking)} in it" if lacking else None
