"""The oldest supported kernel and Debian's newest one load every shipped law, in virtual machines."""

import io
import json
import shutil
import socket
import subprocess
import zipfile
from pathlib import Path

import pytest

import cellbed
from cellbed.laws import law
from cellbed.testbed.nodes import vm, vm_image

SOURCES = (
    "cellbed/__init__.py",
    "cellbed/_core*.so",
    "cellbed/laws/*.py",
    "cellbed/laws/*.h",
    "cellbed/support/*.py",
    "cellbed_node/*.py",
)
VERSIONS = {1: (6, 1), 3: (6, 10)}
"""Versions of Linux by the place of the rate sample in the arguments of cong_control."""
SIZE = 2_000_000
"""Bytes of a transfer."""
BOOT_S = 300
"""Time for booting and loading without KVM."""

PROGRAM = f"""
import io, json, os, socket, subprocess, sys, threading, zipfile
from pathlib import Path
zipfile.ZipFile(io.BytesIO(content)).extractall("/run/cellbed")
sys.path.insert(0, "/run/cellbed")
from cellbed.laws.kernel import load_law
from cellbed.laws.law import Law, kernel_version, load_shipped
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
place = 3 if kernel_version() >= (6, 10) else 1
Law.compiled = lambda law, target: Path(f"/run/cellbed/{{law.name}}-{{place}}.o")
found = {{}}
for name, law in load_shipped().items():
    try:
        with load_law(law) as control, socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            client.connect(server.getsockname())
            threading.Thread(target=client.sendall, args=[bytes({SIZE})], daemon=True).start()
            with server.accept()[0] as receiver:
                left = {SIZE}
                while left:
                    left -= len(receiver.recv(1 << 20))
        found[name] = "carries data"
    except Exception as error:
        found[name] = str(error)
os.write(r, json.dumps([os.uname().release, found]).encode() + b"\\n")
"""


def program(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return what the VM's bootstrap runs: the loader, and all laws for both forms of the kernel's interface."""
    packages = Path(cellbed.__file__).parents[1]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in (path for pattern in SOURCES for path in packages.glob(pattern)):
            archive.write(path, path.relative_to(packages))
        for place, version in VERSIONS.items():
            monkeypatch.setattr(law, "kernel_version", lambda version=version: version)
            for name, each in law.load_shipped().items():
                archive.write(each.compiled("kernel"), f"{name}-{place}.o")
    code = f"content = {content.getvalue()!r}\n{PROGRAM}".encode()
    loop = f"s = b''\nwhile len(s) < {len(code)}: s += f.read(65536)\nexec(s)"
    return f"exec({loop!r})\n".encode() + code


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is missing: apt install clang")
@pytest.mark.skipif(shutil.which(vm.QEMU) is None, reason="QEMU is missing: apt install qemu-system-x86")
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_every_law_carries_data_in_the_kernel_of_debian(
    suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        vm_image.build(print, suite=suite)
    except vm_image.ImageError as error:
        pytest.skip(str(error))
    image = vm_image.image()
    near, far = socket.socketpair()
    command = [
        *(vm.QEMU, *vm.machine("kvm" if vm.can_use_kvm(image) else "tcg", 1, 512 << 20, image)),
        *("-chardev", "socket,id=agent,fd=0", "-device", "virtio-serial-pci"),
        *("-device", f"virtserialport,chardev=agent,name={vm_image.PORT}"),
        *("-serial", f"file:{tmp_path / 'console'}"),
    ]
    with near, subprocess.Popen(command, stdin=far) as machine:
        far.close()
        try:
            near.settimeout(BOOT_S)
            near.sendall(program(monkeypatch))
            answer = near.makefile("rb").readline()
        finally:
            machine.kill()
    assert answer, (tmp_path / "console").read_text(errors="replace")[-2000:]
    release, found = json.loads(answer)
    assert (suite == "bookworm") == release.startswith("6.1."), release
    assert found == dict.fromkeys(law.load_shipped(), "carries data"), release
