"""`cellbed doctor` and `cellbed grant`: what is said of machines of several kinds, and what is changed on this one."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cellbed.doctor import Check, can_run, changes, kernel, limits, software
from cellbed.doctor.changes import grant_to
from cellbed.doctor.examine import show
from cellbed.doctor.machine import Machine
from cellbed.testbed.migration import checkpoint
from cellbed.testbed.migration.criu import find_criu
from in_process import cellbed

USER = 42420
VERSION_1 = "".join(
    f"3{number} 25 0:2{number} / /sys/fs/cgroup/{name} rw,relatime - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("cpu", "cpuacct", "memory", "pids"))
)
VERSION_2 = "35 25 0:29 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def machine(root: Path, files: dict[str, str], user: int = USER) -> Machine:
    """A machine that consists of the given files."""
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Machine(root=root, user=user, environment={"PATH": "/usr/bin"})


def program(root: Path, path: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)


def test_in_a_pipe_each_check_is_a_line_and_only_what_is_missing_keeps_a_run_from_working() -> None:
    output = io.StringIO()
    checks = [Check("a", "warn", "x", "y"), Check("broker", "missing", "not installed", "sudo apt install it")]
    show(checks, output)
    _, line, verdict = output.getvalue().splitlines()
    assert line == "missing broker: not installed -> sudo apt install it"
    assert "not work" in verdict
    assert can_run(checks[:1])
    assert not can_run(checks)


def test_every_check_has_a_remedy_unless_all_is_well_and_decides_the_exit_status() -> None:
    done = cellbed("doctor", "--json")
    checks = json.loads(done.stdout)
    assert len({check["name"] for check in checks}) == len(checks)
    for check in checks:
        assert {"name", "status", "found", "remedy"} == set(check)
        assert check["found"]
        assert (check["remedy"] == "") == (check["status"] == "ok"), check
    assert done.returncode == (1 if any(check["status"] == "missing" for check in checks) else 0)


def test_kernels(tmp_path: Path) -> None:
    statuses = {"6.8.0-31-generic": "ok", "5.15.0-1": "ok", "5.10.0-28-amd64": "warn", "banana": "missing"}
    assert {release: kernel.kernel(release).status for release in statuses} == statuses
    check = kernel.tun(machine(tmp_path, {}))
    assert (check.status, check.remedy[:18]) == ("missing", "sudo modprobe tun;")


def test_settings_that_forbid_user_namespaces(tmp_path: Path) -> None:
    clone, apparmor = "kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns"
    for values, names in (({}, []), ({clone: 1}, []), ({clone: 0}, [clone]), ({clone: 1, apparmor: 1}, [apparmor])):
        files = {f"/proc/sys/{name.replace('.', '/')}": f"{value}\n" for name, value in values.items()}
        assert kernel.namespace_restrictions(machine(tmp_path, files)) == names


@pytest.mark.parametrize(
    ("available", "allowed", "user", "status", "remedy"),
    [
        ("reno cubic", "reno cubic", USER, "ok", ""),
        ("reno bbr cubic", "reno bbr", USER, "warn", "grant"),
        ("reno bbr cubic", "reno bbr", 0, "warn", 'allowed_congestion_control="reno bbr cubic"'),
        ("reno", "reno", USER, "warn", "modprobe tcp_cubic"),
    ],
)
def test_congestion_control(tmp_path: Path, available: str, allowed: str, user: int, status: str, remedy: str) -> None:
    folder = "/proc/sys/net/ipv4/tcp_"
    files = {f"{folder}available_congestion_control": available, f"{folder}allowed_congestion_control": allowed}
    check = kernel.congestion_control(machine(tmp_path, files, user))
    assert check.status == status
    assert remedy in check.remedy


def test_size_of_the_machine(tmp_path: Path) -> None:
    small = machine(
        tmp_path, {"/proc/meminfo": "MemTotal:  2000000 kB\nMemAvailable:   900000 kB\nHugePages_Total: 0\n"}
    )
    assert kernel.memory(small).status == "warn"
    assert kernel.memory(small).found == "1.9 GiB, 0.9 GiB available"
    assert (kernel.processors(1).status, kernel.processors(2).status) == ("warn", "ok")


def test_programs_are_found_where_ordinary_users_do_not_look(tmp_path: Path) -> None:
    bare = machine(tmp_path, {})
    assert software.way_out(bare).remedy == "sudo apt install nftables"
    assert software.program(bare, "mosquitto", "mosquitto", "the workload", "missing").status == "missing"
    program(tmp_path, "/usr/sbin/mosquitto")
    program(tmp_path, "/usr/sbin/nft")
    assert software.way_out(bare).remedy == "sudo apt install slirp4netns"
    assert software.way_out(machine(tmp_path, {}, user=0)).status == "ok"
    program(tmp_path, "/usr/bin/slirp4netns")
    assert software.program(bare, "mosquitto", "mosquitto", "the workload", "missing").status == "ok"
    assert software.way_out(bare).status == "ok"


def test_what_containers_need_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare, programs = machine(tmp_path, {}), tmp_path / "usr/bin"
    monkeypatch.setenv("PATH", "/usr/bin")
    programs.mkdir(parents=True)
    assert software.containers(bare).remedy == "sudo apt install podman crun"
    (programs / "docker").touch(mode=0o755)
    assert software.containers(bare).remedy == "sudo apt install crun"
    (programs / "crun").touch(mode=0o755)
    monkeypatch.setattr("cellbed.testbed.nodes.container.INIT", tmp_path / "absent")
    assert software.containers(bare).remedy == "make setup"
    monkeypatch.setattr("cellbed.testbed.nodes.container.INIT", programs / "crun")
    assert (software.containers(bare).status, software.containers(bare).found) == ("ok", str(programs / "docker"))
    (programs / "podman").touch(mode=0o755)
    assert software.containers(bare).remedy == "sudo apt install uidmap"
    assert software.containers(machine(tmp_path, {}, user=0)).status == "ok"
    (programs / "newuidmap").touch(mode=0o755)
    assert software.containers(bare).status == "ok"


def test_strategies_of_migration_are_listed_with_what_the_others_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert software.migrations(machine(tmp_path, {})).remedy == "sudo apt install nftables"
    if Machine().find("nft") is None:
        pytest.skip("nft is not installed")
    monkeypatch.setenv("CELLBED_CRIU", "/nowhere/criu")
    caches = find_criu, checkpoint._find_obstacle
    for each in caches:
        each.cache_clear()
    check = software.migrations(Machine())
    for each in caches:
        each.cache_clear()
    can, cannot = check.found.split("; not ")
    assert {"redeploy", "state"} <= set(can.split(", "))
    assert cannot.startswith("post-copy, ")
    assert cannot.endswith(": there is no file /nowhere/criu")
    assert "sudo scripts/criu.sh" in check.remedy


def test_devices_that_make_virtual_machines_fast_are_named(tmp_path: Path) -> None:
    bare = machine(tmp_path, {})
    assert software.virtual_machines(bare).remedy == "sudo apt install qemu-system-x86"
    program(tmp_path, "/usr/bin/qemu-system-x86_64")
    assert "/dev/vhost-net is missing or closed" in software.virtual_machines(bare).found
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/vhost-net").touch()
    check = software.virtual_machines(bare)
    assert (check.status, check.remedy) == ("ok", "")
    assert check.found.endswith("; /dev/kvm is missing or closed; /dev/vhost-net moves their packets")


SLICE = f"/user.slice/user-{USER}.slice"
DELEGATED = f"/sys/fs/cgroup{SLICE}/user@{USER}.service/cgroup.controllers"
CONTROLLERS = {"/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n", "/proc/self/mountinfo": VERSION_2}
SYSTEMD = CONTROLLERS | {
    "/proc/self/cgroup": f"0::{SLICE}/session-1.scope\n",
    f"/run/user/{USER}/systemd/private": "",
}


def test_limits_without_control_groups_and_with_version_1(tmp_path: Path) -> None:
    check = limits.limits(machine(tmp_path, {"/proc/self/mountinfo": ""}))
    assert check.status == "missing"
    assert "--no-limits" in check.remedy
    here = machine(tmp_path, {"/proc/self/mountinfo": VERSION_1})
    check = limits.limits(here)
    assert check.status == "missing"
    assert f"grant {USER}" in check.remedy
    for name in limits.VERSION_1:
        (tmp_path / f"sys/fs/cgroup/{name}/cellbed-{USER}").mkdir(parents=True)
    assert limits.limits(here).status == "ok"


def test_limits_with_version_2_that_systemd_delegates_or_keeps(tmp_path: Path) -> None:
    here = machine(tmp_path, SYSTEMD | {DELEGATED: "cpu memory pids\n"})
    program(tmp_path, "/usr/bin/systemd-run")
    assert limits.limits(here) == Check("CPU and memory limits", "ok", "version 2, delegated by systemd")
    # Ubuntu 22.04: user@.service delegates memory and pids only.
    here = machine(tmp_path, {DELEGATED: "memory pids\n", "/run/systemd/system/x": ""})
    check = limits.limits(here)
    assert check.status == "missing"
    assert "does not delegate cpu" in check.found
    [change] = grant_plan(here)
    assert change.do.splitlines()[-2:] == [
        "systemctl daemon-reload",
        f"runuser -u {USER} -- env XDG_RUNTIME_DIR=/run/user/{USER} systemctl --user daemon-reexec",
    ]
    assert "[Service]\nDelegate=cpu cpuset io memory pids\n" in change.do


def test_limits_with_version_2_without_systemd(tmp_path: Path) -> None:
    here = machine(tmp_path, CONTROLLERS | {"/proc/self/cgroup": "0::/\n"})
    check = limits.limits(here)
    assert check.status == "missing"
    assert "grant" in check.remedy
    folder, join = grant_plan(here, caller=4711)
    group = tmp_path / f"sys/fs/cgroup/cellbed-{USER}"
    assert folder.do == f"divide {group.parent}\ngive {group} {USER}"
    assert join.do == f"give {group}/supervisor {USER}\necho 4711 > {group}/supervisor/cgroup.procs"
    (tmp_path / "proc/self/cgroup").write_text(f"0::/cellbed-{USER}/supervisor\n")
    assert limits.limits(here).status == "ok"


def grant_plan(here: Machine, caller: int | None = None) -> list[changes.Change]:
    """The plan, on a machine whose TUN device everybody may open."""
    device = here.path("/dev/net/tun")
    device.parent.mkdir(parents=True, exist_ok=True)
    device.touch()
    device.chmod(0o666)
    return changes.plan(here, caller)


def poor_machine(root: Path) -> Machine:
    """A machine on which everything has to be granted."""
    folder = "/proc/sys/net/ipv4/tcp_"
    files = {
        "/proc/self/mountinfo": VERSION_1,
        f"{folder}available_congestion_control": "reno bbr cubic\n",
        f"{folder}allowed_congestion_control": "reno mine_97a4 bbr\n",
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
        "/etc/sysctl.d/60-cellbed.conf": "net.core.somaxconn = 4096\n",
        "/etc/udev/udev.conf": "",
        "/dev/net/tun": "",
    }
    here = machine(root, files)
    program(root, "/usr/bin/udevadm")
    (root / "dev/net/tun").chmod(0o600)
    for name in ("cpu", "cpuacct", "memory", "pids"):
        (root / "sys/fs/cgroup" / name).mkdir(parents=True)
    return here


def contents(root: Path) -> dict[str, tuple[int, str | None]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_text() if path.is_file() else None)
        for path in root.rglob("*")
        if "var" not in path.relative_to(root).parts and path.name not in ("rules.d",)
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders to another user")
def test_a_grant_changes_what_lacks_once_and_can_be_taken_back(tmp_path: Path) -> None:
    here = poor_machine(tmp_path)
    before = contents(tmp_path)
    planned = changes.plan(here)
    assert contents(tmp_path) == before
    changes.do(planned, here)
    assert (tmp_path / "dev/net/tun").stat().st_mode & 0o777 == 0o666
    for name in ("cpu", "cpuacct", "memory"):
        assert (tmp_path / f"sys/fs/cgroup/{name}/cellbed-{USER}").stat().st_uid == USER
    # Else the user could leave an administrator's limit of processes.
    assert not list((tmp_path / "sys/fs/cgroup/pids").iterdir())
    assert (tmp_path / "proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text() == "reno mine_97a4 bbr cubic"
    assert (tmp_path / "proc/sys/kernel/apparmor_restrict_unprivileged_userns").read_text() == "0"
    assert (tmp_path / "etc/sysctl.d/60-cellbed.conf").read_text().splitlines() == [
        "net.core.somaxconn = 4096",
        "net.ipv4.tcp_allowed_congestion_control = reno bbr cubic",
        "kernel.apparmor_restrict_unprivileged_userns = 0",
    ]
    assert limits.limits(here).status == "ok"
    assert changes.plan(here) == []
    undone = changes.undo(here)
    assert undone == [change.undo for change in reversed(planned)]
    after = contents(tmp_path)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    # The kernel's files end without a line break, as they were written.
    assert {name for name in changed if not name.startswith("proc/sys/")} == set()
    assert changes.undo(here) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give folders to another user")
def test_a_grant_that_fails_halfway_changes_nothing(tmp_path: Path) -> None:
    here = poor_machine(tmp_path)
    before = contents(tmp_path)
    refused = changes.Change(f"echo 1 > {tmp_path}/no_such_folder/x", ":")
    with pytest.raises(changes.GrantError, match=r"(?s)cannot do this: .*no_such_folder.*nothing was granted"):
        changes.do([*changes.plan(here), refused], here)
    changed = {name: text for name, text in contents(tmp_path).items() if before.get(name) != text}
    assert {name: text for name, (_, text) in changed.items() if not name.startswith("proc/sys/")} == {}
    assert changes.undo(here) == []


def test_everything_but_what_cannot_be_undone_is_undone(tmp_path: Path) -> None:
    here = machine(tmp_path, {})
    changed, stuck = tmp_path / "changed", tmp_path / "stuck"
    changes.do([changes.Change(f"touch {path}", f"rm {path}") for path in (changed, stuck)], here)
    stuck.unlink()
    stuck.mkdir()
    with pytest.raises(changes.GrantError, match=r"(?s)1 changes were undone, but not these.*rm .*stuck"):
        changes.undo(here)
    assert not changed.exists()
    stuck.rmdir()
    stuck.touch()
    assert changes.undo(here) == [f"rm {stuck}"]


def test_a_user_without_a_login_name_can_be_granted() -> None:
    lines = grant_to(str(USER), dry_run=True)
    assert all(line.startswith(("would do: ", "note: ", "nothing to do: ", "should ")) for line in lines)
    if os.geteuid() == 0:
        with_sudo = {**os.environ, "SUDO_UID": str(USER), "SUDO_USER": "gone"}
        command = [sys.executable, "-P", "-m", "cellbed", "grant", "--dry-run"]
        # Tests beside this one load laws and make groups: what they change meanwhile is compared again.
        for _ in range(20):
            before = grant_to(str(USER), dry_run=True)
            done = subprocess.run(command, env=with_sudo, capture_output=True, text=True, check=False)
            if before == grant_to(str(USER), dry_run=True):
                break
        assert done.stdout.splitlines() == "\n".join(before).splitlines(), done.stderr
        assert grant_to(str(USER), take_back=True) == [f"nothing was granted to {USER}"]


def test_nobody_is_granted_anything_by_mistake() -> None:
    with pytest.raises(changes.GrantError, match="no user called 'no-such-user'"):
        grant_to("no-such-user")
    with pytest.raises(changes.GrantError, match="root needs no grant"):
        grant_to("root")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
def test_without_root_the_error_is_the_command_to_type() -> None:
    # An ordinary user that may read this Python.
    rights = ("--reuid=nobody", "--clear-groups", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    command = ["setpriv", *rights, sys.executable, "-c", "from cellbed.cli.main import main; main()", "grant"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: this needs root:\n  sudo /")
    assert done.stderr.endswith("cellbed grant nobody\n")


@pytest.fixture
def granted_group() -> Iterator[Path]:
    """A real control group folder, version 1, given to the ordinary user."""
    here = Machine(user=USER)
    mounts = limits.version_1(here)
    if os.geteuid() != 0 or "cpu" not in mounts:
        pytest.skip("needs root and control groups of version 1")
    path = Path(f"{mounts['cpu']}/cellbed-{USER}")
    [folder] = (change for change in changes.plan(here) if f"give {path} " in change.do)
    try:
        changes.do([folder], here)
    except changes.GrantError as error:
        pytest.skip(f"needs control groups that can be written: {error}")
    yield path
    changes.undo(here)
    assert not path.exists()


def test_a_granted_control_group_is_the_users_to_divide(granted_group: Path) -> None:
    script = f"""
        mkdir {granted_group}/run {granted_group}/run/node
        echo 50000 > {granted_group}/run/node/cpu.cfs_quota_us
        echo $$ > {granted_group}/run/node/cgroup.procs
        cat /proc/self/cgroup
    """
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "sh", "-ec", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f":cpu:/cellbed-{USER}/run/node" in done.stdout, done.stderr
