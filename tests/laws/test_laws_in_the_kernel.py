"""Laws in the kernel: loaded for a run, and gone with it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cellbed.laws.kernel import load_law
from cellbed.laws.law import LawError, kernel_version, load_shipped, read
from cellbed.support.errors import CellbedError
from law_examples import fixed
from run_commands import command, needs_limits, only_folder, run
from scenario_text import NODES, app_table, tables

AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def reason() -> str | None:
    """Return an obstacle to loading laws here, or ``None``."""
    try:
        with load_law(load_shipped()["reno-cellbed"]):
            return None
    except CellbedError as error:
        return str(error).splitlines()[0]


pytestmark = pytest.mark.skipif((why := reason()) is not None, reason=str(why))


def available(prefix: str) -> set[str]:
    """Laws of this kernel whose names begin so."""
    return {name for name in AVAILABLE.read_text().split() if name.startswith(prefix)}


def wait_until_gone(prefix: str) -> None:
    """The kernel unloads a law some time after its last user."""
    while available(prefix):
        time.sleep(0.05)


@pytest.mark.parametrize("name", load_shipped())
def test_connection_under_a_shipped_law_carries_data(name: str) -> None:
    with load_law(load_shipped()[name]) as control, socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.socket()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        client.connect(server.getsockname())
        connection, _ = server.accept()
        with client, connection:
            received = 0
            for _ in range(40):
                client.sendall(bytes(50_000))
                while received < 50_000:
                    received += len(connection.recv(1 << 20))
                received = 0


def test_law_is_loaded_twice_under_different_names_and_unloaded(tmp_path: Path) -> None:
    law = read(fixed(tmp_path / "twice.h"))
    with load_law(law) as first, load_law(law) as second:
        assert first != second
        assert {first, second} <= available("twice_")
    wait_until_gone("twice_")


HOLD = """
import sys, time
from pathlib import Path
from cellbed.laws.kernel import load_law
from cellbed.laws.law import read
with load_law(read(Path(sys.argv[1]))):
    print("loaded", flush=True)
    while True:  # in short steps: Python defers a signal that comes just before a sleep until the sleep's end
        time.sleep(0.1)
"""


@pytest.mark.skipif(kernel_version() < (6, 4), reason="Linux before 6.4 keeps a law after kill -9")
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_process_that_ends_leaves_no_law(tmp_path: Path, end: signal.Signals) -> None:
    law = fixed(tmp_path / "held.h")
    for _ in range(3):
        holding = [sys.executable, "-c", HOLD, str(law)]
        with subprocess.Popen(holding, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as holder:
            assert holder.stdout.readline() == b"loaded\n"
            assert available("held_")
            holder.send_signal(end)
        wait_until_gone("held_")


def test_refusal_of_the_verifier_is_one_error_with_its_last_lines(tmp_path: Path) -> None:
    law = read(fixed(tmp_path / "endless.h", ack="while (1) window->ssthresh++;"))
    refused = r"(?s)endless\.h: the kernel's verifier refuses it:\n.*infinite loop"
    with pytest.raises(LawError, match=refused), load_law(law):
        pass
    assert not available("endless_")


ASK = """
import socket
print(socket.socket().getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).decode())
for name in "rmem", "wmem", "ecn", "no_metrics_save":
    print(open("/proc/sys/net/ipv4/tcp_" + name).read().split()[-1])
"""


@pytest.mark.needs_tun
@needs_limits
def test_nodes_of_a_run_have_their_laws(tmp_path: Path) -> None:
    fixed(tmp_path / "mine.h", window=20)
    nodes = NODES.replace("[nodes.edge]", '[nodes.edge]\ncongestion_control = "vegas"')
    transport = {"congestion_control": "./mine.h", "receive_buffer": "8 MB", "send_buffer": "4 MiB"}
    ends = [app_table(on, client={"on": on, "command": ["python3", "-c", ASK]}) for on in ("endpoint", "edge")]
    (tmp_path / "laws.toml").write_text(
        tables(name="laws", duration="60 s", transport={**transport, "ecn": True, "metrics_cache": False})
        + nodes
        + "".join(ends)
    )
    done = run("run", tmp_path / "laws.toml", "--out", tmp_path / "runs", status=0)
    assert "TCP mine" in done.stdout
    folder = only_folder(tmp_path / "runs")
    control, *settings = (folder / "raw/endpoint.endpoint-0.client.out").read_text().split()
    assert control.startswith("mine_")
    assert settings == ["8000000", str(4 << 20), "1", "1"]
    assert (folder / "raw/edge.edge-0.client.out").read_text().startswith("vegas_")
    described = json.loads((folder / "run.json").read_text())
    assert described["congestion_control"] == {"name": "mine", "asked": True}
    assert [each.get("congestion_control") for each in described["nodes"]] == [None, "vegas"]
    wait_until_gone("mine_")


def test_run_with_a_law_that_does_not_compile_is_refused_at_its_line(tmp_path: Path) -> None:
    fixed(tmp_path / "mine.h", ack="no_such_function();")
    text = f'name = "laws"\nduration = "1 s"\n{NODES}\n[transport]\ncongestion_control = "./mine.h"\n'
    (tmp_path / "laws.toml").write_text(text)
    done = run("run", tmp_path / "laws.toml", "--out", tmp_path / "runs", status=2)
    line = text.splitlines().index('congestion_control = "./mine.h"') + 1
    assert f"laws.toml:{line}" in done.stderr
    assert "no_such_function" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(
    subprocess.run(["unshare", "-Ur", "true"], check=False).returncode != 0, reason="no user namespaces here"
)
def test_user_without_rights_gets_one_error_with_the_remedy() -> None:
    done = subprocess.run(
        ["unshare", "-Ur", *command("cc", "check", "vegas")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "virtual time: vegas, loaded\n")
    assert len(done.stderr.splitlines()) == 1
    assert "sudo" in done.stderr
    assert "--virtual" in done.stderr


@pytest.mark.needs_tun
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_shell_has_a_law_until_it_ends(tmp_path: Path) -> None:
    law = fixed(tmp_path / "shells.h")
    done = run("shell", "--offline", "--cc", law, "--", "python3", "-c", ASK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("shells_")
    wait_until_gone("shells_")
