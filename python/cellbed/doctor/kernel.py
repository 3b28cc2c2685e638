"""Checks of the hardware and the kernel: CPUs, memory, version, namespaces, TUN devices, congestion control."""

from __future__ import annotations

import os
import platform
import re

from cellbed.doctor.machine import Check, Machine, output_of
from cellbed.laws.kernel import load_law
from cellbed.laws.law import LawError, load_shipped
from cellbed.support import worker_pool

ENOUGH_CPUS = 2
ENOUGH_MEMORY = 2 << 30


def processors(count: int | None = None) -> Check:
    """Check the number of CPUs that this process may use."""
    count = worker_pool.processors() if count is None else count
    if count < ENOUGH_CPUS:
        return Check("CPUs", "warn", str(count), "the nodes of a scenario share it: use small CPU limits")
    return Check("CPUs", "ok", str(count))


def memory(machine: Machine) -> Check:
    """Check the available memory of the machine."""
    sizes = {}
    for line in (machine.read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if value.strip().endswith("kB"):
            sizes[name] = int(value.split()[0]) << 10
    total, available = sizes.get("MemTotal", 0), sizes.get("MemAvailable", 0)
    found = f"{total / 2**30:.1f} GiB, {available / 2**30:.1f} GiB available"
    if available < ENOUGH_MEMORY:
        return Check("memory", "warn", found, "the memory limits of a scenario may not fit: lower them or free memory")
    return Check("memory", "ok", found)


OLDEST = (5, 15)
"""The oldest kernel known to work, from Ubuntu 22.04."""
RESTRICTIONS = {
    "kernel.unprivileged_userns_clone": ("0", "1", "the kernel refuses user namespaces to ordinary users"),
    "user.max_user_namespaces": ("0", "15000", "the kernel allows no user namespaces"),
    "kernel.apparmor_restrict_unprivileged_userns": (
        "1",
        "0",
        "AppArmor restricts the user namespaces of ordinary users (Ubuntu 23.10 and later)",
    ),
}
"""Settings that can deny user namespaces to ordinary users: the denying and the permitting value, and a description."""


def setting_path(name: str) -> str:
    """Return the path of a kernel setting."""
    return "/proc/sys/" + name.replace(".", "/")


def kernel(release: str | None = None) -> Check:
    """Check whether the kernel is recent enough. release: as ``uname -r`` prints it."""
    release = platform.release() if release is None else release
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if platform.system() != "Linux" or numbers is None:
        return Check("kernel", "missing", f"{platform.system()} {release}", "cellbed needs Linux")
    if (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return Check("kernel", "warn", release, f"older than {oldest}, which we test; an upgrade may be needed")
    return Check("kernel", "ok", release)


def namespace_restrictions(machine: Machine) -> list[str]:
    """Return the names of the settings that now deny user namespaces to ordinary users."""
    return [name for name, (bad, _, _) in RESTRICTIONS.items() if machine.read(setting_path(name)) == bad]


def user_namespaces(machine: Machine) -> Check:
    """Check whether the user may create a user namespace with a network namespace inside; root needs none."""
    name = "user namespaces"
    if machine.user == 0:
        return Check(name, "ok", "not needed by root")
    restrictions = namespace_restrictions(machine)
    status, said = output_of(["unshare", "--user", "--map-current-user", "--net", "true"])
    if status == 0:
        return Check(name, "ok", "allowed")
    if restrictions:
        return Check(name, "missing", RESTRICTIONS[restrictions[0]][2], machine.grant_command)
    found = said.splitlines()[-1] if said else f"refused (status {status})"
    return Check(
        name, "missing", found, "a container needs --privileged, or seccomp and AppArmor profiles that allow it"
    )


def tun(machine: Machine) -> Check:
    """Check whether the user may open ``/dev/net/tun``."""
    name, device = "TUN devices", machine.path("/dev/net/tun")
    if not device.exists():
        return Check(name, "missing", "no /dev/net/tun", "sudo modprobe tun; in a container: --device /dev/net/tun")
    mode = f"/dev/net/tun, mode {device.stat().st_mode & 0o777:04o}"
    try:
        os.close(os.open(device, os.O_RDWR))
    except PermissionError:
        return Check(name, "missing", f"{mode}: not for user {machine.user_name}", machine.grant_command)
    except OSError as error:
        return Check(name, "missing", f"/dev/net/tun: {error.strerror}", "sudo modprobe tun")
    return Check(name, "ok", mode)


def congestion_control(machine: Machine) -> Check:
    """List the TCP congestion controls, and check whether a node may use CUBIC.

    All network namespaces except the first, root's too, accept only the allowed congestion controls
    (net/ipv4/tcp_cong.c, ``tcp_set_default_congestion_control``).
    """
    name = "congestion control"
    available = (machine.read("/proc/sys/net/ipv4/tcp_available_congestion_control") or "").split()
    allowed = (machine.read("/proc/sys/net/ipv4/tcp_allowed_congestion_control") or "").split()
    default = machine.read("/proc/sys/net/ipv4/tcp_congestion_control") or "unknown"
    found = f"{' '.join(available) or 'none'}; default {default}"
    if "cubic" not in available:
        return Check(name, "warn", found, "cubic is missing: sudo modprobe tcp_cubic")
    if "cubic" not in allowed and default != "cubic":
        remedy = machine.grant_command
        if machine.user == 0:
            remedy = f'sysctl -w net.ipv4.tcp_allowed_congestion_control="{" ".join([*allowed, "cubic"])}"'
        return Check(name, "warn", f"{found}; nodes may have only {' '.join(allowed)}", remedy)
    return Check(name, "ok", found)


def laws() -> Check:
    """Check whether the kernel accepts congestion control laws, by loading one."""
    name = "congestion control laws"
    try:
        with load_law(load_shipped()["reno-cellbed"]):
            return Check(name, "ok", "one was loaded into the kernel")
    except (LawError, OSError) as error:
        problem, _, remedy = str(error).partition(": ")
        return Check(name, "warn", problem, remedy)
