"""Images and folders for tests of containers."""

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.nodes.container import INIT, RUNTIME
from cellbed_node.processes import find

NEEDED = {name: find(name) is not None for name in ("podman", RUNTIME, "busybox")} | {INIT.name: INIT.exists()}
LACKING = ", ".join(name for name, there in NEEDED.items() if not there)
needs_containers = pytest.mark.skipif(bool(LACKING) and "CI" not in os.environ, reason=f"needs {LACKING}")
CONFIG = [
    *('CMD ["sh", "-c", "echo own $COLOUR; exec sleep 1000"]', "ENV COLOUR=blue", "WORKDIR /srv"),
    *("USER worker",),
]


def root_file_system() -> bytes:
    """BusyBox, users, and a link that leads elsewhere outside of the container, as an archive."""
    busybox = str(find("busybox"))
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:

        def add(name: str, content: bytes = b"", **changes: Any) -> None:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content))

        for folder in ("bin", "etc", "tmp", "srv"):
            add(folder, type=tarfile.DIRTYPE, mode=0o777)
        add("bin/busybox", Path(busybox).read_bytes(), mode=0o755)
        for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
            add(f"bin/{name}", type=tarfile.SYMTYPE, linkname="busybox") if name != "busybox" else None
        odd = b"worker:x:zero:0::/:/bin/sh\n"
        add("etc/passwd", odd + b"root:x:0:0::/root:/bin/sh\nworker:x:1000:1000::/srv:/bin/sh\n")
        add("etc/group", b"root:x:0:\nworker:x:1000:\nodd:x::worker\nmore:x:77:worker\n")
        add("linked", type=tarfile.SYMTYPE, linkname="/tmp/there")
    return made.getvalue()


def import_image(
    name: str, command: list[str], env: dict[str, str] | None = None, content: bytes | None = None
) -> None:
    """Make an image of Podman from an archive. command: what starts Podman."""
    changes = [word for change in CONFIG for word in ("--change", change)]
    command = [*command, "import", *changes, "-", name]
    done = subprocess.run(command, input=content or root_file_system(), capture_output=True, env=env)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    name = f"localhost/cellbed-test:{os.getpid()}"
    import_image(name, ["podman"])
    yield name
    subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=False)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A registry and a cache for each test, and a folder for sockets, whose paths must be short."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        yield
