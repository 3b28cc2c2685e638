"""Nodes that are virtual machines: QEMU behind a tap in the node's namespace, with limits outside and inside the VM."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cellbed.scenario.nodes import VmBackend
from cellbed.support.bounded import run_bounded
from cellbed.support.user_folders import cache_folder
from cellbed.testbed.machine.cgroups import Group, Sample
from cellbed.testbed.machine.process import spawn
from cellbed.testbed.machine.state import RUN_VARIABLE, boot_identifier
from cellbed.testbed.nodes.backend import Setup
from cellbed.testbed.nodes.remote import NOTHING, RemoteGroup, RemoteNode
from cellbed.testbed.nodes.vm_image import PORT, Image, ImageError, image
from cellbed_node import inputs
from cellbed_node.processes import find, kill

QEMU = "qemu-system-x86_64"
MEBIBYTE = 1 << 20
DEFAULT_MEMORY = 512 * MEBIBYTE
"""Memory of a VM whose node has no limit."""
KERNEL_MEMORY = 96 * MEBIBYTE
"""Memory of a VM in addition to its node's limit, for kernel and agent: programs reach the node's limit first."""
PROBE_S = 5.0
"""Maximum time for KVM to start the kernel, seconds; a working KVM takes half a second."""
KVM, VHOST = Path("/dev/kvm"), Path("/dev/vhost-net")
_LIKE_SHUTDOWN = ("-no-reboot", "-nodefaults", "-no-user-config", "-display", "none")
_KERNEL = "quiet panic=-1 no_timer_check tsc=unstable random.trust_cpu=on console=ttyS0"


class VmNode(RemoteNode):
    """A virtual machine with a copy-on-write disk; it ends with this process."""

    device = "tap0"
    far_device = "eth0"
    path = "its virtual network card"

    def __init__(self, setup: Setup, table: VmBackend) -> None:
        super().__init__(setup, table)
        self._process: subprocess.Popen[bytes] | None = None
        self._host_group = setup.group

    @staticmethod
    def obstacles(table: VmBackend, *, running: bool) -> Iterator[tuple[str, str]]:
        if find(QEMU) is None:
            yield "kind", f"{QEMU} is not installed: sudo apt install qemu-system-x86"
        try:
            image(table.image)
        except ImageError as error:
            yield "image", str(error)

    def start(self) -> None:
        setup = self.setup
        booted = image(self.table.image)
        accelerator = "kvm" if can_use_kvm(booted) else "tcg"
        vhost = os.access(VHOST, os.R_OK | os.W_OK)  # this machine's kernel moves packets
        self.facts |= {"accelerator": accelerator, "vhost": vhost, "image": str(booted.disk)}
        limits = setup.limits
        cpus = limits.cpus if limits and limits.cpus else 1.0
        memory = limits.memory_bytes if limits and limits.memory_bytes else DEFAULT_MEMORY
        if self._host_group is not None:
            # The limit applies to the node's programs, not to booting.
            self._host_group.limit(None, None)
        owner = f" user {os.geteuid()}" if os.geteuid() else ""
        self.run_ip(f"tuntap add {self.device} mode tap vnet_hdr{owner}")
        setup.folder.mkdir(mode=0o700, exist_ok=True)
        near, far = socket.socketpair()
        memory += KERNEL_MEMORY + (setup.disk_bytes or 0)
        command = [
            str(find(QEMU)),
            *machine(accelerator, min(math.ceil(cpus), os.cpu_count() or 1), memory, booted),
            *network(self.device, self.far_mac, vhost=vhost),
            *("-chardev", "socket,id=agent,fd=0", "-device", "virtio-serial-pci"),
            *("-device", f"virtserialport,chardev=agent,name={PORT}"),
            *("-chardev", f"file,id=console,path={_escape(self._console)}", "-serial", "chardev:console"),
        ]
        with near, far:
            with self._console.with_suffix(".err").open("wb") as errors:
                self._process = spawn(
                    command,
                    replace(setup.place, binds=()),
                    environment={**os.environ, RUN_VARIABLE: setup.run},
                    stdin=far.fileno(),
                    stdout=errors,
                    stderr=errors,
                )
            self.open_agent(near, kind="vm", name=self.name, limited=limits is not None)

    @property
    def _console(self) -> Path:
        return self.setup.folder / "console.log"

    def wait_ready(self) -> None:
        super().wait_ready()
        limits = self.setup.limits
        if limits is not None and self._host_group is not None:
            self.group = VmGroup(self, self._host_group, limits.memory_bytes)
            self.group.limit(limits.cpus, limits.memory_bytes)

    def why(self) -> str:
        for path in (self._console.with_suffix(".err"), self._console):
            with contextlib.suppress(OSError):
                lines = [line.strip() for line in inputs.text(path).splitlines() if line.strip()]
                # The reason of a kernel panic precedes the panic's lines.
                if own := [line for line in lines if not line.startswith("[")] or lines:
                    return f"the VM's last message is: {own[-1]}"
        return "the VM has printed nothing"

    def sample(self) -> Sample | None:
        """Return the CPU time of the whole VM, and the memory in use inside."""
        inside = super().sample()
        return combine(inside or NOTHING, self._host_group) if self._host_group is not None else inside

    def stop(self) -> None:
        if self._process is not None:
            kill(self._process)
        super().stop()


class VmGroup(RemoteGroup):
    """Limits of CPU time outside the VM and of memory inside; the VM has somewhat more memory."""

    def __init__(self, node: VmNode, around: Group, memory_bytes: int | None) -> None:
        super().__init__(node)
        self._around = around
        self._memory_bytes = memory_bytes

    def limit(self, cpus: float | None, memory_bytes: int | None) -> None:
        self._around.limit(cpus, None)
        super().limit(None, memory_bytes)

    def limits(self) -> tuple[float | None, int | None]:
        return self._around.limits()[0], super().limits()[1]

    def sample(self) -> Sample:
        return combine(super().sample(), self._around)


def combine(inside: Sample, around: Group) -> Sample:
    """Return the sample measured outside a VM, with memory as measured inside."""
    return replace(around.sample(), memory_bytes=inside.memory_bytes, oom_kills=inside.oom_kills)


def machine(accelerator: str, cpus: int, memory_bytes: int, booted: Image) -> list[str]:
    """Return QEMU's arguments for a machine that boots an image. accelerator: ``kvm`` or ``tcg``."""
    return [
        *_LIKE_SHUTDOWN,
        *("-accel", "kvm" if accelerator == "kvm" else "tcg,thread=multi,tb-size=128"),
        *("-cpu", "host" if accelerator == "kvm" else "max"),
        *("-smp", str(cpus), "-m", f"{memory_bytes // MEBIBYTE}M"),
        *("-kernel", str(booted.kernel), "-initrd", str(booted.initial)),
        *("-append", _KERNEL),
        *("-drive", f"file={_escape(booted.disk)},format={_format(booted.disk)},if=none,id=disk,snapshot=on"),
        *("-device", "virtio-blk-pci,drive=disk"),
    ]


def network(tap: str, mac: str, *, vhost: bool) -> list[str]:
    """Return QEMU's arguments for a network card behind a tap. vhost: this machine's kernel moves packets, not QEMU."""
    return [
        *("-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no" + (",vhost=on" if vhost else "")),
        *("-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="),
    ]


def can_use_kvm(booted: Image) -> bool:
    """Return whether KVM boots the kernel here: opening the device is not sufficient proof. Tried once per boot of this
    machine."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return False
    known = cache_folder() / "vm" / f"kvm-{boot_identifier()}"
    with contextlib.suppress(OSError):
        return inputs.text(known) == "yes"
    command = [
        *(str(find(QEMU)), *_LIKE_SHUTDOWN, "-accel", "kvm", "-cpu", "host", "-m", "256M"),
        *("-kernel", str(booted.kernel), "-initrd", str(booted.initial), "-append", f"{_KERNEL} cellbed.probe"),
        *("-serial", "stdio"),
    ]
    try:
        outcome = run_bounded(command, timeout_s=PROBE_S, memory=None)
        works = b"booted" in outcome.stdout
    except subprocess.TimeoutExpired:
        works = False
    for old in known.parent.glob("kvm-*"):
        old.unlink(missing_ok=True)
    known.write_text("yes" if works else "no")
    return works


def _format(disk: Path) -> str:
    with inputs.open_file(disk) as content:
        return "qcow2" if content.read(4) == b"QFI\xfb" else "raw"


def _escape(path: Path) -> str:
    return str(path).replace(",", ",,")
