"""Helpers that connect an ordinary user's namespace to the network: pasta (package passt) or slirp4netns.

Both run in the host's network namespace as the user. They serve a device in the other namespace with ordinary sockets.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
import time

from cellbed.support.bounded import run_bounded
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine.process import Place
from cellbed_node.processes import die_with_parent, find
from cellbed_node.temporary import temporary_folder

DEVICE = "host0"
NETWORK = "100.127.128.0/24"
HOST, HOST_IPV6 = "100.127.128.2", "fd63:656c:6c62:fe00::1"
"""The helper's end, an alias of the host. The numbers of both ends follow slirp4netns(1)."""
_END, _END_IPV6 = "100.127.128.100", "fd63:656c:6c62:fe00::2"
"""The namespace's end. The network (shared address space, RFC 6598) exists only in that namespace."""
_PATIENCE_S = 10.0


class NetworkError(CellbedError):
    """The network of a shell, or its connection, could not be created. The text contains the program's reason."""

    exit_code = 1


def find_helpers() -> list[str]:
    """Return the names of the installed helpers, the better one first."""
    names = [name for name in ("pasta", "slirp4netns") if find(name) is not None]
    pasta = find("pasta")
    if len(names) == 2 and pasta is not None and is_early_pasta(_version(pasta)):
        names.reverse()
    return names


def is_early_pasta(version: str) -> bool:
    """Return whether `version`, as ``pasta --version`` prints it, is from 2023 or before, or unknown as in Debian 12.

    Early versions send into a bottleneck without congestion control, and the bottleneck drops most of the packets.
    """
    found = re.search(r"\b(?:git)?(20[0-9]{2})[_0-9]", version)
    return found is None or int(found[1]) < 2024


def _version(path: str) -> str:
    try:
        done = run_bounded([path, "--version"], timeout_s=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode(errors="replace").partition("\n")[0]


def pasta_command(path: str, place: Place, ipv6: bool, ready: str) -> list[str]:
    """Return the command of pasta(1). Private addresses at both ends keep all host addresses reachable. No ports lead
    in."""
    command = [path, "--foreground", "--quiet", "--config-net", "--netns", place.network_namespace]
    if place.user_namespace is not None:
        command += ["--userns", place.user_namespace]
    addresses = ["--address", _END, "--netmask", "24", "--gateway", HOST]
    if ipv6:
        addresses += ["--address", _END_IPV6, "--gateway", HOST_IPV6]
    ports = ["-t", "none", "-u", "none", "-T", "none", "-U", "none"]
    family = [] if ipv6 else ["--ipv4-only"]
    return [*command, *addresses, *family, *ports, "--mtu", "1500", "--ns-ifname", DEVICE, "--pid", ready]


def slirp4netns_command(path: str, place: Place, ready: int, leave: int) -> list[str]:
    """Return the command of slirp4netns(1), IPv4 only: its IPv6 addresses are fixed and may be in use."""
    command = [path, "--configure", "--mtu=1500", f"--cidr={NETWORK}", "--netns-type=path"]
    if place.user_namespace is not None:
        command.append(f"--userns-path={place.user_namespace}")
    return [*command, f"--ready-fd={ready}", f"--exit-fd={leave}", place.network_namespace, DEVICE]


def start(name: str, place: Place, ipv6: bool) -> subprocess.Popen[bytes]:
    """Connect the namespaces of `place` through the helper called `name`, and wait until the helper is ready.

    The helper ends with this process.
    Errors: :class:`NetworkError`.
    """
    path = find(name)
    if path is None:
        raise NetworkError(f"{name} is not installed")
    with tempfile.TemporaryFile() as errors:
        if name == "pasta":
            return _start_pasta(path, place, ipv6, errors.fileno())
        return _start_slirp4netns(path, place, errors.fileno())


def _start_pasta(path: str, place: Place, ipv6: bool, errors: int) -> subprocess.Popen[bytes]:
    with temporary_folder() as folder:
        ready = folder / "pasta.pid"
        command = pasta_command(path, place, ipv6, str(ready))
        process = _start(command, errors)
        deadline = time.monotonic() + _PATIENCE_S
        while not (ready.exists() and ready.read_text(encoding="utf-8").strip()):
            _check("pasta", process, errors, deadline)
            time.sleep(0.005)
        return process


def _start_slirp4netns(path: str, place: Place, errors: int) -> subprocess.Popen[bytes]:
    ready, ready_write = os.pipe()
    leave_read, _leave = os.pipe()
    try:
        command = slirp4netns_command(path, place, ready_write, leave_read)
        process = _start(command, errors, keep=(ready_write, leave_read))
        os.close(ready_write)
        ready_write = -1
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            readable, _, _ = select.select([ready], [], [], 0.05)
            if readable and os.read(ready, 1):
                return process
            _check("slirp4netns", process, errors, deadline)
    finally:
        # `_leave` stays open while this process lives: the helper ends when `_leave` is closed.
        for descriptor in (ready, ready_write, leave_read):
            if descriptor >= 0:
                os.close(descriptor)


def _start(command: list[str], errors: int, keep: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        pass_fds=keep,
        preexec_fn=die_with_parent,
    )


def _check(name: str, process: subprocess.Popen[bytes], errors: int, deadline: float) -> None:
    if process.poll() is None and time.monotonic() < deadline:
        return
    said = os.pread(errors, 1 << 16, 0).decode(errors="replace")
    # Without a system logger, pasta also prints complaints about syslog.
    lines = [line for line in said.splitlines() if line.strip() and "syslog" not in line]
    how = f"exit status {process.returncode}" if process.poll() is not None else f"no answer in {_PATIENCE_S:g} s"
    if process.poll() is None:
        process.kill()
        process.wait()
    raise NetworkError(f"{name} cannot connect the shell to the network: {lines[-1] if lines else how}")
