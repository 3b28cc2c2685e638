"""The disk image, kernel and initial file system of VM nodes, built once from Debian's packages and cached."""

from __future__ import annotations

import gzip
import lzma
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cellbed.archive.unfinished import make_unfinished_beside
from cellbed.support.errors import CellbedError
from cellbed.support.user_folders import cache_folder
from cellbed_node.agent import BOOTSTRAP
from cellbed_node.processes import find
from cellbed_node.temporary import remove_tree, temporary_folder

SUITE = "bookworm"
PACKAGES = ("python3", "iproute2", "procps", "busybox-static")
MODULES = (
    *("virtio_pci", "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console"),
    *("crc32c_generic", "ext4", "tcp_bbr", "tcp_htcp", "tcp_highspeed"),
    *("veth", "nf_tables", "unix_diag", "tcp_diag", "udp_diag", "netlink_diag", "af_packet_diag"),
)
"""Kernel modules that a VM needs, without their dependencies; CRIU needs the last seven."""
DISK_BYTES = 2 << 30
"""Size of the disk; the file is sparse."""
PORT = "cellbed"
"""Name of the virtio-serial port between the agent and this machine."""

_HOOK = """set -e
kernel=$(APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-cache depends linux-image-cloud-amd64 |
    sed -n 's/.*Depends: \\(linux-image-.*\\)/\\1/p' | head -n 1)
(cd "$2" && APT_CONFIG=$MMDEBSTRAP_APT_CONFIG apt-get -qq download "$kernel")
cp "$1/bin/busybox" "$2/busybox"
rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/usr/share/doc/* "$1"/usr/share/locale/*
: > "$1/etc/resolv.conf"
mkdir "$2/root"
mount --bind "$1" "$2/root"
mke2fs -q -F -t ext4 -O ^has_journal -L cellbed -d "$2/root" "$2/disk.img"
umount "$2/root"
"""
"""Runs after the packages are installed. $1: the new root; $2: folder for kernel, BusyBox and disk.

The bind mount shows the root without the file systems mounted in it."""

LOAD_MODULES = """#!/bin/busybox sh
export PATH=/bin
busybox mount -t devtmpfs dev /dev
exec < /dev/console > /dev/console 2>&1
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
for module in /modules/*; do busybox insmod "$module"; done
"""
"""The beginning of the first program of a VM."""
_INIT = f"""{LOAD_MODULES}
# Mounts the disk and starts what receives the agent.
if busybox grep -q cellbed.probe /proc/cmdline; then
    busybox echo booted
    busybox poweroff -f
fi
for port in /sys/class/virtio-ports/*; do
    [ "$(busybox cat "$port/name" 2>/dev/null)" = {PORT} ] && break
done
disk=/dev/vda
[ -b /dev/vda1 ] && disk=/dev/vda1
busybox mount "$disk" /root || {{
    busybox echo "the disk has no file system that this kernel reads"
    busybox poweroff -f
}}
for folder in dev proc sys run tmp; do busybox mkdir -p "/root/$folder"; done
busybox mount -t tmpfs run /root/run
for folder in dev proc sys; do busybox mount -o move "/$folder" "/root/$folder"; done
python=/usr/bin/python3
[ -e /root/usr/bin/python3 ] || python=/usr/local/bin/python3
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
exec busybox switch_root /root "$python" -I -S -c '{BOOTSTRAP}' "/dev/${{port##*/}}"
"""


class ImageError(CellbedError):
    """The image of VM nodes cannot be built or used."""


@dataclass(frozen=True, slots=True)
class Image:
    """The image that a VM boots: a disk with the root file system, a kernel, and its initial file system."""

    disk: Path
    kernel: Path
    initial: Path


def folder() -> Path:
    """Return the folder of the built image."""
    return cache_folder() / "vm"


def image(disk: Path | None = None) -> Image:
    """Return the built image, with another `disk` if given. Errors: :class:`ImageError` if it is not built or
    missing."""
    found = Image(disk or folder() / "disk.img", folder() / "vmlinuz", folder() / "initrd")
    if not found.kernel.exists() or not found.initial.exists():
        raise ImageError("VM nodes have no kernel and disk image yet; build them with: cellbed vm build")
    if not found.disk.exists():
        raise ImageError(f"{found.disk}: no such disk image")
    return found


def build(note: Callable[[str], None], packages: Iterable[str] = (), suite: str = SUITE, mirror: str = "") -> Path:
    """Build the image in the user's cache folder, replacing an older one; return its folder.

    note: called with a line for each step. packages: Debian packages besides :data:`PACKAGES`. Errors:
    :class:`ImageError`.
    """
    if platform.machine() != "x86_64":
        raise ImageError(f"images can be built for x86_64 only; this machine is {platform.machine()}")
    needed = {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "dpkg-deb": "dpkg"}
    if os.geteuid() != 0:
        needed["newuidmap"] = "uidmap"
    for program, package in needed.items():
        if find(program) is None:
            raise ImageError(f"{program} is not installed: sudo apt install {package}")
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    # An ordinary user's mmdebstrap runs under other user ids, which must be able to write here.
    with temporary_folder() as work, make_unfinished_beside(place) as unfinished:
        work.chmod(0o777)
        (work / "disk.img").touch()
        os.truncate(work / "disk.img", DISK_BYTES)
        (work / "disk.img").chmod(0o666)
        hook = work / "hook"
        hook.write_text(_HOOK)
        note(f"installing Debian {suite} ({', '.join((*PACKAGES, *packages))})")
        include = ",".join((*PACKAGES, *packages))
        _run(
            [
                *("mmdebstrap", "--quiet", "--variant=essential", f"--include={include}"),
                *("--aptopt=APT::Sandbox::User root", "--dpkgopt=path-exclude=/usr/share/man/*"),
                *(f'--customize-hook=sh {hook} "$1" {work}', suite, "/dev/null", *([mirror] if mirror else [])),
            ]
        )
        note("making the initial file system")
        kernel = next(work.glob("linux-image-*.deb"))
        _run(["dpkg-deb", "-x", str(kernel), str(work / "kernel")])
        shutil.copy(next((work / "kernel/boot").glob("vmlinuz-*")), unfinished / "vmlinuz")
        (unfinished / "initrd").write_bytes(gzip.compress(_initial(work / "kernel", work / "busybox"), 1, mtime=0))
        _run(["cp", "--sparse=always", str(work / "disk.img"), str(unfinished / "disk.img")])
        (unfinished / "README").write_text(f"Debian {suite}, {kernel.name}, packages: {include}\n")
        if place.exists():
            old = unfinished / "old"
            place.rename(old)
        unfinished.rename(place)
    remove_tree(place / "old", ignore_errors=True)
    return place


def _run(command: list[str]) -> None:
    outcome = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if outcome.returncode:
        lines = [line for line in outcome.stderr.splitlines() if line.startswith(("E:", "error"))]
        reason = (lines or outcome.stderr.strip().splitlines() or ["no reason given"])[0]
        raise ImageError(f"{command[0]} failed: {reason}")


def _initial(kernel: Path, busybox: Path) -> bytes:
    """Return an initial file system (cpio, "newc") that loads the kernel's modules and mounts the disk."""
    entries: list[tuple[str, int, bytes]] = [
        (name, 0o040755, b"") for name in ("bin", "dev", "proc", "sys", "root", "modules")
    ]
    entries += [("bin/busybox", 0o100755, busybox.read_bytes()), ("init", 0o100755, _INIT.encode())]
    for number, (name, content) in enumerate(_modules(kernel)):
        entries.append((f"modules/{number:02}-{name}.ko", 0o100644, content))
    return pack_initial(entries)


def pack_initial(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """Return an archive (cpio, "newc") of files: name, mode and content."""
    archive = bytearray()
    for number, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        archive += bytes(-len(archive) % 4) + content
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def _modules(kernel: Path) -> list[tuple[str, bytes]]:
    """Return the modules that VMs need, in loading order; missing ones are built into the kernel."""
    files = {path.name.split(".")[0].replace("-", "_"): path for path in kernel.rglob("*.ko*")}
    ordered: dict[str, bytes] = {}

    def add(name: str) -> None:
        path = files.get(name)
        if path is None or name in ordered:
            return
        content = path.read_bytes()
        if path.suffix == ".xz":
            content = lzma.decompress(content)
        found = re.search(rb"\0depends=([^\0]*)\0", content)
        for needed in found[1].decode().split(",") if found else ():
            add(needed.replace("-", "_"))
        ordered[name] = content

    for name in MODULES:
        add(name)
    return list(ordered.items())
