"""Settings of TCP of single programs: on one node, in the kernel and in virtual time."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cellbed.laws.kernel import ProgramTcp, apply_tcp
from cellbed.support.errors import CellbedError
from cellbed.testbed.machine import cgroups
from cellbed.testbed.programs.environment import host_congestion_control
from in_process import cellbed, run_scenario
from law_examples import fixed
from run_commands import needs_limits, only_folder, run
from scenario_text import NODES, app_table, iperf3_table, server_keys, tables

ALLOWED = [Path("/proc/sys/net/core", name) for name in ("rmem_max", "wmem_max")]


def reason() -> str | None:
    """Return an obstacle to settings of single programs here, or ``None``."""
    parent = cgroups.program_parent(None, f"test-{os.getpid()}")
    if parent is None:
        return "no control groups of version 2"
    try:
        parent.mkdir(parents=True)
        with apply_tcp(ProgramTcp("reno", None, None), parent):
            return None
    except (CellbedError, OSError) as error:
        return str(error).splitlines()[0]
    finally:
        cgroups.remove(parent)


in_the_kernel = pytest.mark.skipif((why := reason()) is not None, reason=str(why))

# Connects, and prints what ss has of its connection, and the window before the first byte.
CLIENT = """
import socket, struct, subprocess, sys, time
server = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print("window", struct.unpack_from("I", server.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 80)[0])
server.sendall(b"x")
time.sleep(1)
port = str(server.getsockname()[1])
print(subprocess.run(["ss", "-tinmH", "sport", "= :" + port], capture_output=True, text=True, check=True).stdout)
"""
# Prints the same of the connections that it accepts.
SERVER = """
import socket, subprocess, sys
listening = socket.create_server(("", int(sys.argv[1])))
while True:
    client, _ = listening.accept()
    client.recv(1)
    command = ["ss", "-tinmH", "state", "established", "sport", "= :" + sys.argv[1]]
    print(subprocess.run(command, capture_output=True, text=True, check=True).stdout, flush=True)
"""


def application(
    name: str, port: int, server: dict[str, Any] | None = None, client: dict[str, Any] | None = None
) -> str:
    """Return the table of a client and a server. server, client: further keys of the roles."""
    connect = ["python3", "-c", CLIENT, "{server.address}", str(port)]
    listening = server_keys(["python3", "-c", SERVER, str(port)], port, **(server or {}))
    return app_table(name, server=listening, client={"on": "endpoint", "command": connect, **(client or {})})


def law_and_buffers(text: str) -> tuple[str, int, int]:
    """Return the congestion control, receive and send buffer in the output of ss."""
    found = re.search(r"skmem:\(r\d+,rb(\d+),t\d+,tb(\d+),.*?\) (?:ts |sack |ecn |ecnseen )*(\w+)", text)
    assert found is not None, text
    return found[3], int(found[1]), int(found[2])


@in_the_kernel
@needs_limits
@pytest.mark.needs_tun
def test_programs_of_one_node_have_their_laws_buffers_and_pacing(tmp_path: Path) -> None:
    fixed(tmp_path / "mine.h", window=20)
    (tmp_path / "programs.toml").write_text(
        tables(name="programs", duration="60 s", transport={"initial_window": 30, "pacing": True})
        + NODES
        + application("plain", 7001, {"pacing": False}, {"pacing": False})
        + application("laws", 7002, {"congestion_control": "reno"}, {"congestion_control": "./mine.h"})
        + application("buffers", 7003, {"send_buffer": "200 kB"}, {"receive_buffer": "300 kB"})
    )
    done = run("run", tmp_path / "programs.toml", "--out", tmp_path / "runs", status=0)
    assert "apps.laws.client: TCP mine" in done.stdout
    raw = only_folder(tmp_path / "runs") / "raw"
    client = {app: (raw / f"{app}.endpoint-0.client.out").read_text() for app in ("plain", "laws", "buffers")}
    server = {app: (raw / f"{app}.edge-0.server.out").read_text() for app in client}
    assert law_and_buffers(client["plain"])[0] == law_and_buffers(server["plain"])[0] == host_congestion_control()
    assert law_and_buffers(client["laws"])[0].startswith("mine_")
    assert "cwnd:20 " in client["laws"]
    assert law_and_buffers(server["laws"])[0] == "reno"
    # The others are those of the nodes.
    assert law_and_buffers(client["buffers"])[:2] == (host_congestion_control(), 300_000)
    assert law_and_buffers(server["buffers"])[2] == 200_000
    assert law_and_buffers(client["laws"])[1] == law_and_buffers(client["plain"])[1] != 300_000
    assert client["plain"].startswith("window 30\n")
    # A socket is paced if its rate has a limit.
    limited = re.compile(r" pacing_rate \d+bps/\d+bps ")
    for end in (client, server):
        assert [app for app, text in end.items() if limited.search(text)] == ["laws", "buffers"]


@in_the_kernel
def test_buffer_above_the_limit_of_the_machine_is_refused_with_the_remedy(tmp_path: Path) -> None:
    most = 2 * int(ALLOWED[0].read_text())
    text = NODES + application("one", 7001, client={"receive_buffer": f"{most + 2} B"})
    (tmp_path / "large.toml").write_text(f'name = "large"\nduration = "3 s"\n{text}')
    done = cellbed("run", tmp_path / "large.toml", "--dry-run", status=2)
    assert "apps.one.client.receive_buffer" in done.stderr
    assert f"sudo sysctl -w net.core.rmem_max={most // 2 + 1}" in done.stderr


def run_virtually(folder: Path, apps: str, *, nodes: str = NODES, **transport: Any) -> Path:
    """Run 5 s in virtual time, and return the folder of the run."""
    folder = Path(tempfile.mkdtemp(dir=folder))
    return run_scenario(folder, tables(name="tcp", duration="5 s", transport=transport) + nodes + apps, "--virtual")


def test_law_of_a_program_in_virtual_time(tmp_path: Path) -> None:
    law = {"congestion_control": str(fixed(tmp_path / "two.h", window=2))}
    wide = {"congestion_control": str(fixed(tmp_path / "wide.h", window=500)), "send_buffer": "128 KiB"}
    folder = run_virtually(
        tmp_path,
        iperf3_table("plain", "-t 3")
        + iperf3_table("up", "-t 3", 5202, client=law)
        + iperf3_table("down", "-t 3 -R", 5203, server=law)
        + iperf3_table("small", "-t 3 -R", 5204, client={"receive_buffer": "128 KiB"})
        + iperf3_table("kept", "-t 3 -R", 5205, server=wide),
        series=True,
    )
    connections = pl.read_parquet(folder / "connections.parquet")

    def carried(app: str, way: str) -> int:
        return int(connections.filter(app=app)[f"{way}_bytes"].max())  # type: ignore[arg-type]

    # In 3 s at most two segments of 1500 bytes in each round trip of 26 ms, against the link's 20 Mbit/s.
    limited = 3 * 2 * 1500 / 0.026
    assert carried("up", "to_server") <= limited
    assert carried("down", "to_client") <= limited
    assert carried("plain", "to_server") > 5 * limited
    # In each round trip one window at most.
    assert 5 * limited < carried("small", "to_client") <= 3 * (128 << 10) / 0.026
    # What is not acknowledged stays in the send buffer.
    flows = pl.read_parquet(folder / "flows.parquet").filter(app="kept")
    # Short segments count as full ones.
    assert 64 << 10 < flows["in_flight_bytes"].max() < (128 << 10) + 2 * 1448  # type: ignore[operator]


def test_law_learns_of_a_link_that_the_receive_window_fills(tmp_path: Path) -> None:
    """ExLL ends its start-up by the delivery rate, which the application does not limit then (Linux: rate.c)."""
    transport = {"congestion_control": "exll", "receive_buffer": "300 kB", "series": True}
    folder = run_virtually(tmp_path, iperf3_table("bulk", "-t 4 -R"), **transport)
    late = pl.read_parquet(folder / "flows.parquet").filter(pl.col("time_s") > 2)
    # The shortest is 26 ms, the calibration adds 5 ms; a window full of data would take 120 ms.
    assert late["rtt_s"].median() < 0.04  # type: ignore[operator]


def test_initial_window_in_virtual_time(tmp_path: Path) -> None:
    def taken(**transport: int) -> float:
        folder = run_virtually(tmp_path, iperf3_table("short", "-n 40K -l 40K"), **transport)
        data = pl.read_parquet(folder / "connections.parquet").sort("to_server_bytes")[-1]
        return float((data["to_server_last_s"] - data["to_server_first_s"]).item())

    # 29 segments of 0.6 ms each: at once, or the last one when the tenth is acknowledged, after 26 ms.
    assert taken() - taken(initial_window=30) == pytest.approx(0.026 + (10 - 29) * 0.0006, abs=0.003)


def test_paced_window_fits_a_shallow_queue_in_virtual_time(tmp_path: Path) -> None:
    def lost(of_all: dict[str, bool], of_client: dict[str, bool]) -> tuple[int, bool]:
        """Return segments lost, and whether a sample has a pacing rate."""
        transport = {"congestion_control": "reno", "initial_window": 30, "series": True, **of_all}
        nodes = NODES.replace("base_delay", 'queue = { kind = "droptail", limit = "30 kB" }\nbase_delay')
        transfer = iperf3_table("short", "-n 42K -l 42K", client=of_client)
        folder = run_virtually(tmp_path, transfer, nodes=nodes, **transport)
        flows = pl.read_parquet(folder / "flows.parquet").filter(sender="endpoint-0")
        return int(flows["lost"].sum()), flows["pacing_mbit_s"].count() > 0

    # 30 segments at once overflow the queue of 20; from the eleventh on at 27 Mbit/s, twice the window in 26 ms, they
    # queue behind those that leave at 20 Mbit/s.
    plain, paced = lost({"pacing": True}, {"pacing": False}), lost({"pacing": True}, {})
    assert plain[0] > 5
    assert not plain[1]
    assert paced == lost({}, {"pacing": True}) == (0, True)


def test_setting_without_a_model_is_named_in_the_error(tmp_path: Path) -> None:
    text = NODES + application("one", 7001, {"congestion_control": "reno"})
    (tmp_path / "one.toml").write_text(f'name = "one"\nduration = "3 s"\n{text}')
    done = cellbed("run", tmp_path / "one.toml", "--virtual", "--out", tmp_path / "runs", status=2)
    assert "congestion_control of its server" in done.stderr
