"""Transfers over TCP, UDP and QUIC: on loopback, in virtual time, and in real runs."""

import json
import socket
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed.measure.packets import read_packets
from cellbed.scenario import ScenarioError, parse
from cellbed.support.flow_files import PUBLISHED, draw, load_published
from cellbed.testbed.machine import certificates
from cellbed.workloads.kind import Deployment
from cellbed.workloads.transfers import kind
from cellbed_node.transfers import udp
from in_process import cellbed, run_scenario
from run_commands import free_port
from scenario_text import NODES, scenario_head
from workload_needs import needs_openssl
from workload_program import SECOND, Node, Program

SIZES = {"upload": ["14 kB", "200 kB"], "download": ["14 kB", "500 kB"]}
STEPS = {"upload 14 kB": (14_000, 0), "upload 200 kB": (200_000, 0)}
STEPS |= {"download 14 kB": (0, 14_000), "download 500 kB": (0, 500_000)}
KEYS = {"tcp": "", "udp": 'protocol = "udp"\nbit_rate = "8 Mbit/s"\n', "quic": 'protocol = "quic"\n'}
APP = '[apps.files]\nkind = "transfers"\nserver = "edge"\n' + "".join(f"{way} = {SIZES[way]}\n" for way in SIZES)
LOAD = 'rate = "4 /s"\n'
NAMED = f'name = "transfers"\nduration = "6 s"\nseed = 3\n{NODES}\n'
LOSSY = NAMED.replace('base_delay = "10 ms"', 'base_delay = "10 ms"\nloss = "3 %"')
WHOLE = udp.HEADER.size + udp.PAYLOAD


def _requests(run: Path) -> pl.DataFrame:
    return pl.read_parquet(run / "requests.parquet")


def _run(folder: Path, text: str, *options: str) -> Path:
    folder.mkdir(exist_ok=True)
    return run_scenario(folder, text, *options)


def test_drawn_sizes_have_the_distribution_and_are_named_by_powers_of_ten(tmp_path: Path) -> None:
    (tmp_path / "sizes.txt").write_text("2 1 0.5\n2 1 0.5\n20 1 1\n")
    app = '[apps.files]\nkind = "transfers"\nserver = "edge"\n{}rate = "20 /s"\n'
    run = _run(tmp_path, NAMED + app.format('upload_sizes = "sizes.txt"\ndownload_sizes = "sizes.txt"\n'), "--virtual")
    rows = _requests(run).with_columns(size=pl.max_horizontal("bytes_up", "bytes_down"))
    assert set(rows["step"]) == {f"{way} to {size} kB" for way in ("upload", "download") for size in (10, 100)}
    assert rows["size"].max() <= 30_000
    assert (rows["size"] < 4_000).mean() == pytest.approx(0.5, abs=0.15)
    text = (tmp_path / "x.toml").read_text().replace("sizes.txt", "../sizes.txt")
    again = _requests(_run(tmp_path / "again", text, "--virtual"))
    assert again["bytes_up"].to_list() == rows["bytes_up"].to_list()
    for text, problem in (
        ("1 1 0.5\n", "the last cumulative share is 0.5"),
        ("1 1 0\n1e6 1 1\n", "end the distribution there"),
    ):
        (tmp_path / "sizes.txt").write_text(text)
        with pytest.raises(ScenarioError, match=problem):
            parse(NAMED + app.format('download_sizes = "sizes.txt"\n'), source="x.toml", folder=tmp_path)


def test_published_distributions_have_the_published_figures() -> None:
    files = load_published("ftp-ngmn")
    draws = [draw(files, (number + 0.5) / 1000) for number in range(1000)]
    # The cut at 5 MB takes 0.4 % of the flows.
    assert np.mean(draws) == pytest.approx(2e6, rel=0.01)
    assert np.std(draws) == pytest.approx(0.722e6, rel=0.05)
    assert max(draws) <= 5e6
    flows = load_published("campus")
    shares = [
        np.mean([draw(flows, (number + 0.5) / 10_000) <= size for number in range(10_000)]) for size in (128, 10**5)
    ]
    assert shares == pytest.approx([0.3234, 0.9840], abs=2e-3)  # of whole bytes
    for name in PUBLISHED:
        app = f'[apps.files]\nkind = "transfers"\nserver = "edge"\nupload_sizes = "{name}"\nrate = "1 /s"\n'
        scenario = parse(NAMED + app, source="x.toml", folder=Path())
        assert scenario.resolved()["apps"]["files"]["upload_sizes"] == name


def test_over_tcp_bytes_are_exact_and_overhead_and_repetitions_are_those_of_the_packet_log(tmp_path: Path) -> None:
    run = _run(tmp_path, LOSSY + APP + LOAD, "--virtual")
    requests = _requests(run)
    assert set(requests["status"]) == {"ok"}
    assert {row["step"]: (row["bytes_up"], row["bytes_down"]) for row in requests.iter_rows(named=True)} == STEPS
    assert (requests["residual_s"].abs() < 1e-6).all()
    packets = read_packets(run / "raw" / "packets.bin")
    mobile = packets[packets["source_vertex"] != packets["destination_vertex"]]
    port = mobile["source_port"].clip(min=mobile["destination_port"])  # that of the client
    for row in requests.iter_rows(named=True):
        own = mobile[port == row["local_port"]]
        sent = {int(each["packet"]): int(each["bytes"]) for each in own}
        assert row["overhead_bytes"] == sum(sent.values()) - row["bytes_up"] - row["bytes_down"]
        throughput = 8e-6 * (row["bytes_up"] + row["bytes_down"]) / row["latency_s"]
        assert row["effective_throughput_mbit_s"] == pytest.approx(throughput)
    connections = pl.read_parquet(run / "connections.parquet")
    again = connections.select(pl.sum_horizontal("to_server_retransmitted", "to_client_retransmitted").sum()).item()
    assert requests["retransmitted"].sum() == again > 0


ROUTE = [{"at": "1 s", "cell": "south"}, {"at": "2 s", "cell": "north", "queued": "drop", "down": "20 Mbit/s"}]
SITES = scenario_head(
    {"endpoint": {"count": 2, "cell": "north", "route": ROUTE}, "edge": {"site": "north"}},
    mobile={"down": "40 Mbit/s", "base_delay": "5 ms", "loss": "0.5 %", "proxy": {"kind": "mmcptp"}},
    core={},
    name="sites",
    duration="4 s",
    sites={name: {"core": "10 ms"} for name in ("north", "south")},
    cells={name: {"site": name, "scheduler": "round-robin"} for name in ("north", "south")},
)


def test_transfers_of_users_of_a_cell_go_on_through_their_proxies_at_another_site(tmp_path: Path) -> None:
    app = '[apps.files]\nkind = "transfers"\nserver = "edge"\nupload = ["1 MB"]\ndownload = ["4 MB"]\n'
    run = _run(tmp_path, SITES + app + 'arrivals = "closed"\ntimeout = "20 s"\n', "--virtual")
    requests = _requests(run)
    assert set(requests["status"]) == {"ok"}
    assert (requests["residual_s"].abs() < 1e-6).all()
    assert {*requests["endpoint"]} == {"endpoint-0", "endpoint-1"}
    # Each queue has what its share of the cell carries in 10 ms.
    packets = read_packets(run / "raw" / "packets.bin")
    described = json.loads((run / "run.json").read_text())["directions"]
    for each in (it for it in described if it["name"].startswith("mobile") and it["name"].endswith("downlink")):
        own = packets[(packets["direction"] == each["index"]) & (packets["drop"] == 0)]
        queued = np.sort(own["released"] - own["arrived"])
        assert queued[len(queued) * 8 // 10] < 12e6


def test_runs_with_and_without_a_proxy_are_compared_part_by_part(tmp_path: Path) -> None:
    text = NAMED + APP + LOAD
    proxied = text.replace("[links.core]", '[links.mobile.proxy]\nkind = "split"\n\n[links.core]')
    runs = [_run(tmp_path / name, each, "--virtual") for name, each in (("plain", text), ("proxied", proxied))]
    done = cellbed("compare", *runs, status=0)
    parts = [line.split() for line in done.stdout.splitlines() if "Proxy" in line]
    assert [row[1] for row in parts] == ["0.00", "0.00"], done.stdout  # of the plain run, each way


def _lost(run: Path, row: dict[str, Any]) -> int:
    """Datagrams of a transfer's payload of which no copy came to its end, by the packet log."""
    packets = read_packets(run / "raw" / "packets.bin")
    up = row["step"].startswith("upload")
    way = packets["source_port" if up else "destination_port"] == row["local_port"]
    own = packets[way & (packets["payload"] == WHOLE)]
    return sum(any(own[own["packet"] == number]["drop"]) for number in set(own["packet"].tolist()))


def test_over_udp_losses_are_exactly_those_of_the_packet_log(tmp_path: Path) -> None:
    requests = _requests(run := _run(tmp_path, LOSSY + APP + KEYS["udp"] + LOAD, "--virtual"))
    assert set(requests["status"]) == {"ok"}
    for row in requests.iter_rows(named=True):
        size = sum(STEPS[row["step"]])
        assert row["datagrams"] == -(-size // udp.PAYLOAD)
        if size % udp.PAYLOAD == 0:  # all datagrams of payload have the same size
            assert row["datagrams_lost"] == _lost(run, row)
            assert row["bytes_up"] + row["bytes_down"] == size - row["datagrams_lost"] * udp.PAYLOAD
    assert requests["datagrams_lost"].sum() > 0
    assert not json.loads((run / "summary.json").read_text())["disturbances"]
    assert requests["datagrams_reordered"].sum() == 0
    known = requests.drop_nulls("residual_s")
    assert len(known) == len(requests)
    assert (known["residual_s"].abs() < 1e-6).all()
    # At 8 Mbit/s, the last datagram of 500 kB leaves half a second after the first.
    download = requests.filter(step="download 500 kB")["latency_s"]
    assert 0.5 < download.min() <= download.max() < 0.6  # type: ignore[operator]


def test_over_udp_reordering_and_jitter_are_counted_and_copies_are_not(tmp_path: Path) -> None:
    delay = 'base_delay = { kind = "uniform", mean = "20 ms", spread = "8 ms", reorder = true }\nduplication = "5 %"'
    text = NAMED.replace('base_delay = "10 ms"', delay)
    requests = _requests(_run(tmp_path / "a", text + APP + KEYS["udp"] + LOAD, "--virtual"))
    assert requests["datagrams_lost"].sum() == 0
    assert requests["datagrams_reordered"].sum() > 20
    assert 1e-3 < requests.filter(step="upload 200 kB")["jitter_s"].median() < 16e-3  # type: ignore[operator]
    smooth = _requests(_run(tmp_path / "b", NAMED + APP + KEYS["udp"] + LOAD, "--virtual"))
    assert smooth["jitter_s"].max() < 1e-3  # type: ignore[operator]


def test_a_dead_uplink_loses_transfers_over_udp_and_ends_the_run(tmp_path: Path) -> None:
    text = NAMED.replace('base_delay = "10 ms"', 'base_delay = "10 ms"\nloss = { uplink = 0.9999 }')
    app = APP + KEYS["udp"] + LOAD + 'timeout = "1 s"\ndrain = "1 s"\n'
    (tmp_path / "x.toml").write_text(text + app)
    cellbed("run", tmp_path / "x.toml", "--virtual", "--out", tmp_path / "runs")
    (run,) = (tmp_path / "runs").iterdir()
    assert set(_requests(run)["status"]) == {"timed-out"}


def test_a_dataset_and_expectations_have_the_measures(tmp_path: Path) -> None:
    expect = '[expect]\ndatagrams_lost_share = "> 1 %"\neffective_throughput_p50_mbit_s = "> 1 Mbit/s"\n'
    expect += 'jitter_p50_s = "< 10 ms"\noverhead_p50_bytes = "> 100 B"\nretransmitted = "< 0"\n'
    run = _run(tmp_path, LOSSY + APP + KEYS["udp"] + LOAD + expect, "--virtual")
    verdicts = json.loads((run / "summary.json").read_text())["expectations"]
    assert [each["met"] for each in verdicts] == [True] * 4 + [False]  # nothing of UDP is sent again


def test_quic_has_no_model_and_the_error_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(NAMED + APP + KEYS["quic"] + LOAD)
    done = cellbed("run", tmp_path / "x.toml", "--virtual", status=2)
    assert "application 'files': protocol = \"quic\"" in done.stderr


def _deployment(folder: Path, protocol: str, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(kind, "PORT", free_port())
    keys = KEYS[protocol] + 'rate = "8 /s"\ntimeout = "5 min"\n'
    table = parse(NAMED + APP + keys, source="x.toml", folder=Path()).applications["files"]
    nodes = [Node("endpoint-0", "endpoint")], [Node("edge-0", "edge")]
    secured: dict[str, Any] = {}
    if protocol == "quic":
        certificates.issue(folder, {"files": ["127.0.0.1"]})
        secured = {"authorities": str(folder / certificates.AUTHORITY)}
    return Deployment("files", table, 0, *nodes, 0, SECOND, **secured)


PROTOCOLS = ["tcp", "udp", pytest.param("quic", marks=needs_openssl)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_programs_transfer_every_byte_beside_hostile_peers(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == "quic":
        pytest.importorskip("aioquic")
    deployed = _deployment(tmp_path, protocol, monkeypatch)
    server, load = (
        Program(each, tmp_path / each.name) for each in kind.processes(deployed, tmp_path, cache=tmp_path, seed=1)
    )
    try:
        server.await_event("ready")
        strangers = _strangers(protocol, kind.PORT)
        load.await_event("ready")
        t0 = time.monotonic_ns()
        load.say(t0_ns=t0, end_ns=t0 + SECOND, drain_ns=300 * SECOND)
        done = load.await_event("done")
        assert server.popen.poll() is None
    finally:
        load.stop()
        assert server.stop() == 0, server.log.read_text()
    for each in strangers:
        each.close()
    records = [json.loads(line) for line in (tmp_path / "files.endpoint-0.requests.jsonl").read_text().splitlines()]
    assert done["completed"] == len(records) == 8, Counter(each["error"] for each in records)
    assert all((each["bytes_up"], each["bytes_down"]) == STEPS[each["step"]] for each in records)
    if protocol == "quic":
        lines = (tmp_path / "files.edge-0.service.jsonl").read_text().splitlines()
        served = {each["request"]: each for each in map(json.loads, lines)}
        assert len(lines) == len(served) == 8
        for each in records:
            its = served[each["request"]]
            assert each["opening_ns"] < its["reached_ns"] < each["sent_ns"] < its["asked_ns"] < each["reply_ns"]


def _strangers(protocol: str, port: int) -> list[socket.socket]:
    """Send what is no transfer to a server; returns sockets that stay open."""
    place = "127.0.0.1", port
    if protocol == "tcp":
        words = (
            b"\x16\x03\x01" * 100,
            b"GET /99999999999 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /" + b"9" * 100_000,
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
            b"GET /268435456 HTTP/1.1\r\nHost: x\r\n\r\n",
            b"",
        )
        peers = [socket.create_connection(place) for _ in words]
        for peer, begin in zip(peers, words, strict=True):
            peer.sendall(begin)
        return peers
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.connect(place)
    huge = (1 << 32) - 1
    for words in (
        b"",
        b"\x01",
        bytes(1200),
        b"\xc3\x00\x00\x00\x01\x08" + bytes(1300),
        udp.HEADER.pack(udp.DATA, 0, 900, huge, 10, 0, (1 << 64) - 1) + bytes(10),
        udp.HEADER.pack(udp.DATA, 0, 900, 3, 10, 0, (1 << 64) - 1) + bytes(10),
        udp.HEADER.pack(udp.DATA, 0, 901, 0, huge, 0, 0),
        udp.HEADER.pack(udp.ASK, 0, 900, 0, 10, 0, 0) + struct.pack("!QQ", 0, 0),
        udp.HEADER.pack(udp.ASK, 0, 902, 0, 1, 0, 0) + struct.pack("!QQ", 1 << 63, 0),
        udp.HEADER.pack(9, 0, 903, 0, 1, 0, 0),
    ):
        peer.send(words)
    return [peer]


def test_a_server_over_udp_remembers_a_bounded_number_of_transfers() -> None:
    server, replies = udp.Server(lambda *_: None), list[bytes]()
    for number in range(udp.MOST_KEPT + 10):
        server.receive(udp.HEADER.pack(udp.DATA, 0, number, 0, 100, 0, 0) + bytes(9), replies.append)
    ask = udp.HEADER.pack(udp.ASK, 0, 5, 0, 100, 7, 0) + struct.pack("!QQ", 0, 1)
    server.receive(ask, replies.append)  # forgotten: it begins anew
    server.receive(ask, replies.append)
    assert {udp.HEADER.unpack_from(each)[0] for each in replies} == {udp.REPORT}
    assert {struct.unpack_from("!QI", each, udp.HEADER.size) for each in replies} == {(0, 0)}


@pytest.mark.slow
@pytest.mark.needs_tun
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_predicted_completion_times_are_within_a_tenth_of_real_ones(tmp_path: Path, protocol: str) -> None:
    text = NAMED.replace("6 s", "15 s") + APP + KEYS[protocol] + 'arrivals = "closed"\n'
    real = _requests(_run(tmp_path / "real", text, "--no-limits"))
    predicted = _requests(_run(tmp_path / "predicted", text, "--virtual", "--no-limits"))
    for found in (real, predicted):
        assert {row["step"]: (row["bytes_up"], row["bytes_down"]) for row in found.iter_rows(named=True)} == STEPS
        assert found["residual_s"].null_count() == 0
    # The fastest of each size: a busy machine delays most of them.
    times = [dict(each.group_by("step").agg(pl.col("latency_s").min()).iter_rows()) for each in (real, predicted)]
    assert times[1] == pytest.approx(times[0], rel=0.1)


@pytest.mark.needs_tun
def test_losses_of_a_real_run_over_udp_are_those_of_the_packet_log(tmp_path: Path) -> None:
    requests = _requests(run := _run(tmp_path, LOSSY + APP + KEYS["udp"] + LOAD, "--no-limits"))
    whole = [row for row in requests.iter_rows(named=True) if row["step"].endswith(" 14 kB")]
    assert len(whole) == 12
    assert [row["datagrams_lost"] for row in whole] == [_lost(run, row) for row in whole]
    assert requests["datagrams_lost"].sum() > 0


@pytest.mark.needs_tun
@needs_openssl
def test_a_real_run_over_quic_has_parts_and_lost_packets(tmp_path: Path) -> None:
    pytest.importorskip("aioquic")
    sizes = 'upload = ["50 kB"]\ndownload = ["50 kB"]\n'
    app = f'[apps.files]\nkind = "transfers"\nserver = "edge"\n{sizes}{KEYS["quic"]}rate = "1 /s"\n'
    patience = 'timeout = "5 min"\ndrain = "5 min"\n'
    requests = _requests(_run(tmp_path, LOSSY + app + patience, "--no-limits"))
    assert set(requests["status"]) == {"ok"}
    assert requests.sort("request")["bytes_up"].to_list() == [50_000, 0] * 3
    assert requests.sort("request")["bytes_down"].to_list() == [0, 50_000] * 3
    parts = requests.select("^part_(generator|handshake_.*|request|reply)$")
    assert parts.width == 5
    assert (parts.sum_horizontal() - requests["latency_s"]).abs().max() < 1e-9  # type: ignore[operator]
    assert (requests["part_handshake_uplink"] > 0.013).all()  # two links of 10 and 3 ms
    assert requests["retransmitted"].sum() > 0
    assert (requests["overhead_bytes"] > 3000).all()  # certificates
