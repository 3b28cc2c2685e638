"""Pre-copy in a virtual machine with Debian's kernel, which tracks the pages that a program writes."""

import gzip
import itertools
import json
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.migration.criu import CriuError, find_criu
from cellbed.testbed.nodes import vm_image
from cellbed.testbed.nodes.vm import MEBIBYTE, machine
from cellbed_node.processes import find
from remote_world import skip_without_vm

GUEST_PYTHON = (3, 11)
"""Python of Debian bookworm: the compiled packages of the guest are those of this machine."""
PACKAGES = ("cellbed", "cellbed_node", "pydantic", "pydantic_core", "annotated_types", "typing_inspection")
INIT = f"""{vm_image.LOAD_MODULES}
busybox mount /dev/vda /root
busybox mount /dev/vdb /root/mnt
for folder in run tmp; do busybox mount -t tmpfs "$folder" "/root/$folder"; done
for folder in dev proc sys; do busybox mount -o move "/$folder" "/root/$folder"; done
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONPATH=/mnt CELLBED_CRIU=/mnt/criu/usr/sbin/criu
exec busybox switch_root /root /bin/sh -c \
    "ip link set lo up; python3 -B /mnt/guest_move.py; echo o > /proc/sysrq-trigger; sleep 60"
"""


def skip_without_guest() -> None:
    """Skip the test if this machine lacks what the guest needs."""
    skip_without_vm()
    if b"nf_tables" not in gzip.decompress(vm_image.image().initial.read_bytes()):
        pytest.skip("the image of VM nodes lacks the modules that CRIU needs: cellbed vm build")
    if find("mke2fs") is None:
        pytest.skip("mke2fs is not installed")
    if sys.version_info[:2] != GUEST_PYTHON:
        pytest.skip(f"the guest has Python {'.'.join(map(str, GUEST_PYTHON))}")
    try:
        find_criu()
    except CriuError as error:
        pytest.skip(str(error))


def make_disk(folder: Path) -> Path:
    """Make a disk with cellbed, CRIU and the program of the guest."""
    files = folder / "files"
    criu = Path(find_criu().program).parents[2]
    if criu == Path("/"):
        pytest.skip("CRIU is part of this system: unpack another one with scripts/criu.sh")
    shutil.copytree(criu, files / "criu", symlinks=True)
    for name in PACKAGES:
        spec = find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        shutil.copytree(spec.submodule_search_locations[0], files / name, ignore=shutil.ignore_patterns("__pycache__"))
    for module in ("typing_extensions", "guest_move"):
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        shutil.copy(spec.origin, files)
    points = distribution("cellbed").read_text("entry_points.txt")
    (files / "cellbed-0.dist-info").mkdir()
    (files / "cellbed-0.dist-info" / "entry_points.txt").write_text(points or "")
    (files / "cellbed-0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: cellbed\nVersion: 0\n")
    disk = folder / "files.img"
    size = sum(each.lstat().st_size for each in files.rglob("*"))
    with disk.open("wb") as file:
        file.truncate(2 * size + (32 << 20))
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", files, disk], check=True)
    shutil.rmtree(files)
    return disk


def boot(folder: Path) -> dict[str, Any]:
    """Boot the machine, and return the account of the migration there."""
    image, disk = vm_image.image(), make_disk(folder)
    initial = image.initial.read_bytes()
    (folder / "initrd").write_bytes(
        initial + bytes(-len(initial) % 4) + vm_image.pack_initial([("init", 0o100755, INIT.encode())])
    )
    command = [
        "qemu-system-x86_64",
        *machine("tcg", 2, 768 * MEBIBYTE, vm_image.Image(image.disk, image.kernel, folder / "initrd")),
        *("-drive", f"file={disk},format=raw,if=none,id=files,snapshot=on", "-device", "virtio-blk-pci,drive=files"),
        *("-serial", "stdio"),
    ]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=800, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("account ")]
    assert lines, done.stdout[-3000:] + done.stderr
    return dict(json.loads(lines[0].removeprefix("account ")))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pages_written_during_the_rounds_follow_under_debians_kernel(tmp_path: Path) -> None:
    skip_without_guest()
    account = boot(tmp_path)
    phases = {each["name"]: each for each in account["phases"]}
    print({name: each.get("bytes") for name, each in phases.items()}, account["facts"])
    rounds = [name for name in phases if name.startswith("round")]
    assert [*phases] == ["prepare", *rounds, "snapshot", "transfer", "restore"]
    assert len(rounds) > 1
    # The first round has all 20 MiB, later ones only what the program changed meanwhile.
    assert phases["round 1"]["pages_bytes"] > 20 << 20 > 3 * phases[rounds[-1]]["pages_bytes"] > 0
    assert phases["transfer"]["bytes"] < phases["round 1"]["bytes"] / 2
    assert float(account["facts"]["dirty_rate"].split()[0]) > 0
    # The memory of the program has moved: its random token, its count without a gap, and the pages of the first round.
    tokens, numbers, whole = zip(*account["progress"], strict=True)
    assert len({*tokens}) == 1
    assert all(int(after) == int(before) + 1 for before, after in itertools.pairwise(numbers))
    assert {*whole} == {"True"}
