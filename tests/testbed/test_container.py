"""Container nodes: what programs find there, their limits, how they end, and that nothing is left of them."""

import contextlib
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from cellbed.scenario.nodes import ContainerBackend
from cellbed.support.errors import CellbedError
from cellbed.testbed.clean import clean
from cellbed.testbed.machine.state import Record, records
from cellbed.testbed.nodes.backend import Backend, Limits
from cellbed.testbed.nodes.container import INSIDE, RUNTIME, ContainerError, find_image
from cellbed.testbed.nodes.devices import DeviceError, find_devices
from cellbed.testbed.plan import Node
from cellbed.testbed.proof.limits import Limited, prove_limits
from cellbed.testbed.testbed import Testbed
from cellbed_node.processes import Running, find, kill
from container_images import image, import_image, needs_containers, own_folders, root_file_system
from emulator_process import EDGE, line_of_two
from in_process import cellbed
from run_commands import command_line, needs_limits, processes_of, run
from scenario_text import NODES, app_table, scenario_head, tables
from shell_world import ORDINARY_USER, World, missing, python, wait_until

__all__ = ["image", "own_folders"]

pytestmark = [pytest.mark.needs_tun, needs_containers]
MEBIBYTE = 1 << 20


def tampered() -> bytes:
    """The same with members that lead out of it, a device file of this machine's memory, and a program of root's."""
    made = io.BytesIO(root_file_system())
    with tarfile.open(fileobj=made, mode="a") as archive:
        for name, keys in TAMPERED.items():
            member = tarfile.TarInfo(name)
            for key, value in keys.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(b"#!/bin/sh" * (member.size > 0)))
    return made.getvalue()


TAMPERED: dict[str, dict[str, Any]] = {
    "../../../../../../tmp/cellbed-escaped": {"size": 9},
    "/tmp/cellbed-escaped-absolute": {"size": 9},
    "out": {"type": tarfile.SYMTYPE, "linkname": "/tmp"},
    "out/cellbed-escaped-link": {"size": 9},
    "up": {"type": tarfile.SYMTYPE, "linkname": "../../../../../../../tmp"},
    "up/cellbed-escaped-up": {"size": 9},
    "memory": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 1, "mode": 0o666},
    "zero": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5, "mode": 0o666},
    "root-shell": {"size": 9, "mode": 0o4755},
}


@pytest.fixture
def record() -> Iterator[Record]:
    record = Record.create("run")
    yield record
    record.remove()


def table_of(image: str, **keys: Any) -> ContainerBackend:
    """The table of a scenario."""
    return ContainerBackend.model_validate({"kind": "container", "image": image, **keys})


def bed(record: Record, table: ContainerBackend, limits: Limits | None, **more: Any) -> Testbed:
    """An edge that is a container, and an endpoint that is a namespace."""
    return Testbed(
        line_of_two([], []),
        record.identifier,
        limits={"edge": limits} if limits else {},
        backends={"edge": table},
        record=record,
        **more,
    )


def output(process: Running) -> str:
    """What a program writes until it ends."""
    with process.stdout as stdout:
        text = stdout.read().decode()
    process.wait()
    return text


def inside(node: Backend, script: str) -> str:
    return output(node.spawn(["sh", "-c", script], stdout=subprocess.PIPE))


def run_for_ever(node: Backend) -> None:
    while True:
        node.spawn(["true"]).wait()


def left(record: Record) -> list[str]:
    """What there is of a run beyond its record: processes, folders, groups, mounts, containers."""
    found = [command_line(process).decode() for process in processes_of(record.identifier)]
    paths = [*record.cgroups, *([record.scratch] if record.scratch else [])]
    found += [path for path in paths if Path(path).exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if record.identifier in line]
    listed = subprocess.run(
        ["podman", "ps", "--all", "--external", "--format", "{{.Names}}"], capture_output=True, text=True
    )
    return found + [name for name in listed.stdout.split() if record.identifier in name]


def wait_for_end(record: Record) -> None:
    """Wait until nothing is left of a run: processes that were killed end when they have a processor."""
    wait_until(lambda: left(record) == [])


def test_programs_find_their_image_and_their_node(tmp_path: Path, image: str, record: Record) -> None:
    (tmp_path / "hosts").write_text(f"{EDGE[4]} somewhere\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("mounted\n")
    mounts = [{"source": str(tmp_path / "data"), "target": "/data", "read_only": True}]
    table = table_of(image, environment={"SHAPE": "round"}, mounts=mounts)
    with bed(record, table, None, binds=((str(tmp_path / "hosts"), "/etc/hosts"),)) as testbed:
        node = testbed.nodes["edge"]
        assert node.facts["engine"].startswith("podman version")
        assert node.facts["digest"].startswith("sha256:")
        script = """
            id -u; id -g; id -G; pwd; echo $COLOUR $SHAPE $HOME $HOSTNAME; hostname; cat /data/file
            grep somewhere /etc/hosts; touch /data/new 2>&1; echo pid $(cat /proc/1/comm); ls -d /sys/class/net/*
            readlink /proc/self/ns/net; test -c /dev/null && echo > /tmp/written && echo writable
        """
        lines = inside(node, script).splitlines()
        # In the containers of an ordinary user there is only root, and /sys is that of the machine.
        ids, home = (["0", "0", "0"], "/root") if os.geteuid() else (["1000", "1000", "1000 77"], "/srv")
        assert lines[:7] == [*ids, "/srv", f"blue round {home} edge", "edge", "mounted"]
        assert lines[7] == f"{EDGE[4]} somewhere"
        assert "Read-only file system" in lines[8]
        assert lines[9] == "pid .cellbed-init"
        assert os.geteuid() or f"/sys/class/net/{testbed.emulator.interface('edge')}" in lines
        assert str(Path(testbed.emulator.namespace("edge")).readlink()) in lines
        assert lines[-1] == "writable"

        # Streams, statuses and signals are those of the program.
        cat = node.spawn(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, folder="/tmp")
        cat.stdin.write(b"through\n")
        cat.stdin.close()
        assert output(cat) == "through\n"
        assert node.spawn(["sh", "-c", "exit 7"]).wait() == 7
        absent = node.spawn(["no-such-program"], stderr=subprocess.PIPE)
        assert absent.wait() == 127
        own = node.spawn([], stdout=subprocess.PIPE)
        assert own.stdout.readline() == b"own blue\n"
        own.send_signal(signal.SIGTERM)
        assert own.wait() == -signal.SIGTERM
        tree = node.spawn(["sh", "-c", "sleep 1000 & echo started; wait"], stdout=subprocess.PIPE)
        assert tree.stdout.readline() == b"started\n"
        kill(tree)
        assert tree.poll() == -signal.SIGKILL
        while inside(node, "ps").count("sleep"):  # a process takes a moment to end
            time.sleep(0.01)

        # Copies follow the links of the container, not those of this machine.
        node.copy_in(tmp_path / "hosts", "/linked/deep/hosts")
        assert "somewhere" in inside(node, "cat /tmp/there/deep/hosts")
        node.copy_out("/tmp/there", tmp_path / "back")
        assert (tmp_path / "back" / "deep" / "hosts").read_text() == (tmp_path / "hosts").read_text()
        assert node.read("/tmp/there/deep/hosts", 9) == (tmp_path / "hosts").read_bytes()[:9]
        node.copy_in(tmp_path / "hosts", "relative")
        assert inside(node, "ls /srv") == "relative\n"
        assert not (tmp_path / "data" / "new").exists()
        inside(node, f"ln -s {tmp_path} /tmp/machine")
        for path in ("/proc", "/proc/1/root", "/sys/kernel", "/tmp/machine/data"):
            with pytest.raises(OSError, match=r"file system of the kernel|levels of symbolic links|No such file"):
                node.copy_out(path, tmp_path / "none")
        assert not (tmp_path / "none").exists()
        # Other users of this machine cannot read its files either.
        assert record.scratch is not None
        assert stat.S_IMODE((Path(record.scratch) / "n" / "edge").stat().st_mode) == 0o700

        # Without its first process the node is gone.
        os.kill(_children(_children(os.getpid(), RUNTIME)[0], INSIDE[1:])[0], signal.SIGKILL)
        with pytest.raises(OSError, match="the container edge has ended"):
            run_for_ever(node)
    wait_for_end(record)


def test_a_tampered_image_reaches_no_file_and_no_device_of_this_machine(tmp_path: Path, record: Record) -> None:
    name = f"localhost/cellbed-tampered:{os.getpid()}"
    import_image(name, ["podman"], content=tampered())
    try:
        with bed(record, table_of(name), None) as testbed:
            node = testbed.nodes["edge"]
            assert inside(node, "head -c 1 /zero || echo refused") == "refused\n"
            assert inside(node, "head -c 1 /dev/zero | wc -c") == "1\n"
            images = tmp_path / "cache" / "cellbed" / "images"
            assert images.stat().st_mode & 0o077 == 0
            assert list(images.glob("*/root/root-shell"))
            assert inside(node, "id -u") == "1000\n"
            # A program that traced the first process could keep it from ending with the run.
            assert "can't create /proc/1/mem: Permission denied" in inside(node, ": 2>&1 > /proc/1/mem; :")
            inside(node, "mkdir -p $(printf 'a/%.0s' $(seq 1500))")  # deeper than Python's stack
    finally:
        subprocess.run(["podman", "rmi", "--force", name], capture_output=True, check=False)
    assert not list(Path("/tmp").glob("cellbed-escaped*"))
    wait_for_end(record)


@pytest.mark.skipif(find("docker") is None, reason="needs the program docker")
def test_dockers_client_hands_images_over(
    tmp_path: Path, image: str, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the same interface, which Podman serves, too."""
    address = f"unix://{tmp_path}/engine.sock"
    with subprocess.Popen(["podman", "system", "service", "--time", "0", address]) as service:
        try:
            while not (tmp_path / "engine.sock").exists():
                time.sleep(0.01)
            monkeypatch.setenv("DOCKER_HOST", address)
            with bed(record, table_of(image, engine="docker"), None) as testbed:
                node = testbed.nodes["edge"]
                assert node.facts["engine"].startswith("Docker version")
                assert inside(node, "echo $COLOUR") == "blue\n"
            assert record.engine == "docker"
        finally:
            service.kill()
    wait_for_end(record)


@needs_limits
def test_limits_hold_inside_and_a_memory_hog_is_killed_alone(image: str, record: Record) -> None:
    table = table_of(image)
    with bed(record, table, Limits(0.5, 64 * MEBIBYTE)) as testbed:
        node = testbed.nodes["edge"]
        group = node.group
        planned = Node.__new__(Node)  # all that a proof asks for
        for name, value in {"name": "edge", "group": "edge", "cpus": 0.5, "memory_bytes": 64 * MEBIBYTE}.items():
            object.__setattr__(planned, name, value)
        proofs = prove_limits([Limited(planned, group, node)], os.cpu_count() or 1)
        assert [str(proof) for proof in proofs if not proof.ok] == []
        steady = node.spawn(["sleep", "1000"])
        before = group.sample().oom_kills or 0
        hog = node.spawn(["dd", "if=/dev/zero", "of=/dev/null", f"bs={128 * MEBIBYTE}", "count=1"])
        assert hog.wait() == -signal.SIGKILL
        assert (node.sample() or group.sample()).oom_kills == before + 1
        assert steady.poll() is None
        assert inside(node, "cat /sys/fs/cgroup/memory*/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null")
    wait_for_end(record)


def test_a_container_that_cannot_run_is_an_error_that_names_the_remedy(
    tmp_path: Path, image: str, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of("localhost/absent:1", engine="podman")
    with (
        pytest.raises(CellbedError, match=r"(?s)no image 'localhost/absent:1'.*podman pull localhost/absent:1"),
        bed(record, table, None),
    ):
        pass
    (tmp_path / "gone").mkdir()
    broken = table_of(image, mounts=[{"source": str(tmp_path / "gone"), "target": "/x"}])
    (tmp_path / "gone").rmdir()
    with pytest.raises(ContainerError, match=r"the container edge does not start: .*gone"), bed(record, broken, None):
        pass
    find_image.cache_clear()
    monkeypatch.setattr("cellbed.testbed.nodes.container.find", lambda _: None)
    with pytest.raises(ContainerError, match="sudo apt install podman"):
        find_image(image, "auto")
    with pytest.raises(CellbedError, match="needs crun: sudo apt install crun"), bed(record, broken, None):
        pass
    wait_for_end(record)


CDI = """
cdiVersion: 0.6.0
kind: example.org/random
containerEdits:
  env: [FROM_ALL=1]
devices:
  - name: "0"
    containerEdits:
      env: [FROM_DEVICE=0]
      deviceNodes: [{{path: /dev/my-random, hostPath: /dev/urandom}}]
      mounts: [{{hostPath: {library}, containerPath: /usr/lib/library.so, options: [ro, bind]}}]
      hooks: [{{hookName: createContainer, path: /bin/sh, args: [sh, -c, "touch {hooked}"]}}]
"""


def test_devices_of_a_container_are_files_of_this_machine_and_those_of_specifications(
    tmp_path: Path, image: str, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cdi").mkdir()
    (library := tmp_path / "library.so").write_text("a library\n")
    specification = CDI.format(library=library, hooked=tmp_path / "hooked")
    (tmp_path / "cdi" / "random.yaml").write_text(specification)
    monkeypatch.setattr("cellbed.testbed.nodes.devices.FOLDERS", (tmp_path / "none", tmp_path / "cdi"))
    table = table_of(image, devices=["/dev/full", "example.org/random=0"])
    with bed(record, table, None) as testbed:
        node = testbed.nodes["edge"]
        read = "head -c 4 /dev/my-random | wc -c; cat /usr/lib/library.so; echo $FROM_ALL $FROM_DEVICE"
        assert inside(node, read).split() == ["4", "a", "library", "1", "0"]
        assert inside(node, "test -c /dev/full && echo x > /dev/full || echo full") == "full\n"
        assert inside(node, "test -e /dev/kmsg || echo hidden") == "hidden\n"
    assert (tmp_path / "hooked").exists()
    wait_for_end(record)


@pytest.mark.parametrize(
    ("device", "problem"),
    [
        ("/dev/nothing", "there is no device /dev/nothing"),
        ("/etc/passwd", "/etc/passwd is not a device: write a device file below /dev"),
        ("/dev/../etc/passwd", "is not a device"),
        ("gpu", "'gpu' is no device: write a device file below /dev, or a CDI name"),
        ("example.org/random=1", "no device 'example.org/random=1' in .*: did you mean 'example.org/random=0'?"),
    ],
)
def test_a_device_that_is_missing_is_named(tmp_path: Path, device: str, problem: str) -> None:
    (tmp_path / "random.yaml").write_text(CDI.format(library="/lib", hooked="/dev/null"))
    with pytest.raises(DeviceError, match=problem):
        find_devices([device], (tmp_path,))


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "kind: x",
        "devices: [1]\nkind: x",
        "{",
        "a: &b [*b]",
        "kind: x\ndevices: [{name: y, containerEdits: {mounts: [{}]}}]",
    ],
)
def test_a_malformed_specification_is_one_clear_error(tmp_path: Path, content: str) -> None:
    (tmp_path / "wrong.yaml").write_text(content)
    with pytest.raises(DeviceError, match=r"wrong\.yaml: not a specification of CDI"):
        find_devices(["example.org/random=0"], (tmp_path,))


SCRIPT = """
import json, subprocess, sys
sys.path.insert(0, {tests!r})
from cellbed.scenario.nodes import ContainerBackend
from cellbed.testbed.machine.state import Record
from cellbed.testbed.testbed import Testbed
from emulator_process import line_of_two

record = Record.create("run")
print(json.dumps(record.identifier), flush=True)
table = ContainerBackend.model_validate({{"kind": "container", "image": sys.argv[1]}})
config = line_of_two([], [])
backends = dict.fromkeys(("edge", "endpoint"), table)
with Testbed(config, record.identifier, backends=backends, disks={{"edge": 8 << 20}}, record=record) as bed:
    node = bed.nodes["edge"]
    programs = [each.spawn([], stdout=subprocess.DEVNULL) for each in bed.nodes.values()]
    bound = "until netstat -ltn | grep -q :80; do :; done; echo bound"
    script = "id -u; grep -c cellbed0 /proc/net/dev; nc -l -p 80 > /dev/null & " + bound
    done = node.spawn(["sh", "-c", script], stdout=subprocess.PIPE)
    text = done.stdout.read().decode()
    for full in (True, False):
        node.fill_disk(full)
        done = node.spawn(["dd", "if=/dev/zero", "of=/srv/file", "bs=4096", "count=1"], stderr=subprocess.DEVNULL)
        text += f"full {{full}}: {{done.wait()}}\\n"
    runtime = programs[0].pid
    program = int(open(f"/proc/{{runtime}}/task/{{runtime}}/children").read())
    pids = {{"holder": node._pid, "program": program, "runtime": runtime}}
    print(json.dumps({{"text": text, "pids": pids}}), flush=True)
    sys.stdin.read()
record.remove()
"""


def start_script(image: str) -> subprocess.Popen[str]:
    tests = str(Path(__file__).parent.with_name("support"))
    command = [sys.executable, "-P", "-c", SCRIPT.format(tests=tests), image]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def test_nothing_is_left_of_a_testbed_that_is_killed_at_any_moment(tmp_path: Path, image: str) -> None:
    """`kill -9` of the supervisor at random moments, also while the engine hands the image over."""
    random = Random(14)
    for number in range(3):
        # Every other one begins with an empty cache.
        if number % 2 == 0:
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        process = start_script(image)
        (tmp_path / "state").mkdir(exist_ok=True)
        process.stdout.readline()
        if number == 2:
            process.stdout.readline()
        else:
            time.sleep(random.random() * 0.6)
        process.kill()
        process.communicate()
        (record,) = records()
        clean()
        wait_for_end(record)
        assert records() == []
        assert [path.name for path in (tmp_path / "cache" / "cellbed" / "images").glob(".unfinished*")] == []


@pytest.mark.parametrize(
    "victim", ["holder", "podman", *(pytest.param(each, marks=pytest.mark.slow) for each in ("program", "runtime"))]
)
def test_nothing_is_left_when_a_process_of_a_container_is_killed(image: str, victim: str) -> None:
    process = start_script(image)
    process.stdout.readline()
    (record,) = records()
    if victim == "podman":
        while not (children := _children(process.pid, "podman")) and process.poll() is None:
            time.sleep(0.001)
        for child in children:
            os.kill(child, signal.SIGKILL)
        process.communicate()
        clean()
    else:
        pids = json.loads(process.stdout.readline())["pids"]
        os.kill(pids[victim], signal.SIGKILL)
        process.communicate()
        assert process.returncode == 0
    wait_for_end(record)


def _children(process: int, name: str) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [each.pid for each in psutil.Process(process).children() if each.name() == name]
    return []


def scenario(image: str) -> str:
    """Return a scenario of two containers: a client with its server, and a service that reports spans."""
    box = {"cpus": 0.5, "memory": "64 MiB"}
    httpd = {"kind": "container", "image": image, "entrypoint": "httpd -f -p", "command": "8080"}
    client = {"on": "endpoint", "command": "wget -q -O - http://web:8080/page"}
    server = {"on": "edge", "ready": {"port": 8080}, "copy_in": {"page": "page"}}
    words = ["sh", "-c", "./service endpoint-0/7 && echo reported && exec sleep 1000"]
    service = {"on": "edge", "command": words, "copy_in": {"service": "service"}, "ready": {"line": "reported"}}
    return (
        scenario_head(
            {"endpoint": {**box, "backend": {"kind": "container", "image": image}}, "edge": {**box, "backend": httpd}},
            name="containers",
            duration="2 s",
        )
        + app_table("web", client=client, server=server)
        + app_table("report", server=service)
    )


@needs_limits
def test_a_run_serves_from_a_container_to_a_container(tmp_path: Path, image: str) -> None:
    (tmp_path / "page").write_text("from a container\n")
    tests = Path(__file__).parent.with_name("support")
    header = tests.parents[1] / "python" / "cellbed"
    service = ["-static", "-I", header, "-o", tmp_path / "service", tests / "spans_service.c"]
    subprocess.run(["cc", *map(str, service)], check=True)
    (tmp_path / "run.toml").write_text(scenario(image))
    run("run", tmp_path / "run.toml", "--out", tmp_path, status=0)
    (description,) = tmp_path.glob("containers-*/run.json")
    assert (description.parent / "raw" / "web.endpoint-0.client.out").read_text() == "from a container\n"
    (span,) = (description.parent / "raw" / "report.edge-0.service.jsonl").read_text().splitlines()
    assert (json.loads(span)["endpoint"], json.loads(span)["request"]) == ("endpoint-0", 7)
    content = json.loads(description.read_text())
    assert [proof["what"] for proof in content["proof"] if not proof["ok"]] == []
    nodes = content["nodes"]
    assert [node["backend"]["image"] for node in nodes] == [image, image]
    assert {node["facts"]["digest"] for node in nodes} == {find_image(image, "podman").digest}
    assert list(tmp_path.glob("cellbed-*")) == []


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
def test_an_ordinary_user_runs_containers_as_their_root(world: World) -> None:
    name = "localhost/cellbed-test:rootless"
    home = world.home(ORDINARY_USER)
    command = ["env", f"XDG_RUNTIME_DIR={home}", f"TMPDIR={home}", "podman", "--storage-driver=vfs"]
    import_image(name, world.command(command, user=ORDINARY_USER), world.environment(ORDINARY_USER))
    tests = world.folder / "tests"
    tests.mkdir()
    shutil.copy(Path(__file__).parent.with_name("support") / "emulator_process.py", tests)
    tests.chmod(0o755)
    runtime = [f"XDG_RUNTIME_DIR={home}", f"TMPDIR={home}"]
    done = world.run(
        ["env", *runtime, *python(SCRIPT.format(tests=str(tests)).replace("sys.stdin.read()", "")), name],
        user=ORDINARY_USER,
    )
    assert done.returncode == 0, done.stderr
    text = json.loads(done.stdout.splitlines()[1])["text"]
    assert text == "0\n1\nbound\nfull True: 1\nfull False: 0\n"
    assert not list(home.glob("cellbed-*"))


def test_a_container_is_entered_and_comes_back_after_a_crash(tmp_path: Path, image: str) -> None:
    nodes = NODES.replace("[nodes.edge]", f'[nodes.edge]\nbackend = {{ kind = "container", image = "{image}" }}')
    crash = tables(faults=[{"at": "100 ms", "for": "200 ms", "kind": "crash", "node": "edge-0"}])
    own = app_table("own", server={"on": "edge", "command": "sleep 1000"})
    (tmp_path / "x.toml").write_text(f'name = "boxes"\nduration = "3 s"\n{nodes}{crash}{own}')
    run("up", "x.toml", "--no-limits", "--no-proof", cwd=tmp_path, status=0)
    try:
        found: dict[str, Any] = {"events": []}
        while not any(each["event"] == "fault ended" for each in found["events"]):
            time.sleep(0.05)
            (found,) = json.loads(cellbed("status", "--json").stdout)
        assert [each["state"] for each in found["programs"]] == ["ready"]
        inside = run("exec", "edge-0", "--", "sh", "-c", "cat /etc/passwd; pwd; exit 7", cwd=tmp_path)
        assert (inside.returncode, inside.stdout.splitlines()[2:]) == (7, ["worker:x:1000:1000::/srv:/bin/sh", "/srv"])
    finally:
        run("down", "boxes", cwd=tmp_path)
