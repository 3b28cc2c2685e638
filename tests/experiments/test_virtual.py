"""Runs in virtual time: ``cellbed run --virtual`` and what its folder contains."""

import html
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import small_scenario
from cellbed.experiments.virtual import profile as profiles
from cellbed.measure.summary import Summary
from cellbed.workloads.virtual.world import Processors
from in_process import cellbed
from predicted_runs import SAMPLE
from scenario_text import app_table, recorded_scenario, tables

TRANSLATION = tables(workload={"kind": "translation", "server": "edge", "rate": "4 /s", "arrivals": "poisson"})
WEB = app_table(
    "web",
    "http",
    url="http://{server.address}:8080/",
    version="VERSION",
    rate="4 /s",
    server={"on": "edge", "command": "python3 -m http.server 8080"},
)
SERVED = small_scenario.SERVED | {"bytes_down": 76_000, "wire_down": 76_200, "head": 76_200}


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the programs take: always the same."""
    taken = SAMPLE | {"inference": 20_000_000, "output": "una frase"}
    offloaded = [taken | {"input": f"{number:03d}", "bytes_up": 100 + number} for number in range(20)]
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    profiles.Profile("the test", {"workload": offloaded, "web": [SERVED] * 20}).write(path)
    return path


def head(count: int = 1, duration: str = "5 s") -> str:
    return recorded_scenario(count, name="virtual", duration=duration, transport={"congestion_control": "reno"})


def predict(
    folder: Path,
    profile: Path,
    text: str,
    *,
    count: int = 1,
    duration: str = "5 s",
    up: str = "lte-suburban.up",
    more: str = "",
) -> Path:
    """The folder of a run in virtual time. more: tables of the scenario."""
    scenario = folder / "scenario.toml"
    scenario.write_text(head(count, duration).replace("lte-suburban.up", up) + text + more)
    before = set(folder.glob("virtual-*"))
    done = cellbed("run", scenario, "--virtual", "--profile", profile, "--out", folder, status=0)
    (made,) = set(folder.glob("virtual-*")) - before
    assert "predicted" in done.stdout
    return made


SMALL = {"bytes_down": 900, "wire_down": 1100, "head": 1100}


def predict_web(
    folder: Path, served: dict[str, Any] | list[dict[str, Any]], version: str = "1.1", *, keys: str = "", **options: Any
) -> Path:
    """The folder of a run in virtual time of an HTTP server. served: what its samples have in place of the usual
    values; keys: of the load, in place of its rate."""
    samples = served if isinstance(served, list) else [served] * 20
    folder.mkdir(exist_ok=True)
    profiles.Profile("the test", {"web": [SERVED | each for each in samples]}).write(folder / "profile.json")
    text = WEB.replace("VERSION", version).replace('rate = "4 /s"', keys or 'rate = "4 /s"')
    return predict(folder, folder / "profile.json", text, **options)


def sample(run: Path) -> dict[str, Any]:
    """The first sample of the profile that is read from a run."""
    return profiles.extract_profile(run).applications["web"][0]


def requests(run: Path) -> pl.DataFrame:
    return pl.read_parquet(run / "requests.parquet")


@pytest.fixture(scope="module")
def translated(profile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return predict(tmp_path_factory.mktemp("translated"), profile, TRANSLATION, count=2)


def test_a_prediction_is_an_ordinary_run_folder_that_is_marked(translated: Path) -> None:
    assert described(translated)["clock"] == "virtual"
    assert Summary.read(translated).predicted
    assert "simulated in virtual time" in (translated / "report.html").read_text()
    assert (translated / "profile.json").exists()


def test_every_millisecond_of_a_request_has_a_part(translated: Path) -> None:
    found = requests(translated)
    assert len(found) > 20
    assert found["status"].unique().to_list() == ["ok"]
    assert (found["residual_s"].abs() < 1e-9).all()
    assert (found["part_inference"] >= 0.02).all()
    assert (found["part_uplink_delay"] >= 0.01).all()
    # One worker for both endpoints: some requests wait.
    assert found["part_server_queue"].max() > 0.001  # type: ignore[operator]
    assert sorted(found["endpoint"].unique()) == ["endpoint-0", "endpoint-1"]


def test_the_same_seed_gives_the_same_tables(translated: Path, profile: Path, tmp_path: Path) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    again = predict(tmp_path, profile, TRANSLATION, count=2)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
    for name in ("requests.parquet", "links.parquet", "connections.parquet"):
        assert_frame_equal(pl.read_parquet(translated / name), pl.read_parquet(again / name))
    assert (translated / "raw" / "packets.bin").read_bytes() == (again / "raw" / "packets.bin").read_bytes()


@pytest.mark.parametrize("version", ["1.1", "2"])
def test_http_has_the_bytes_and_the_time_of_the_profile(profile: Path, tmp_path: Path, version: str) -> None:
    found = requests(predict(tmp_path, profile, WEB.replace("VERSION", version)))
    assert found["status"].unique().to_list() == ["ok"]
    assert found["bytes_down"].unique().to_list() == [76_000]
    assert (found["part_server"] >= 0.002).all()
    if version == "1.1":
        assert (found["downlink_end"] - found["downlink_start"]).unique().to_list() == [76_200]
        assert found["order"].max() > 0  # type: ignore[operator]


def overload(folder: Path, profile: Path) -> Path:
    """The folder of a prediction over HTTP/2 in which the send buffer is full, and replies wait in the server."""
    text = (head() + WEB).replace('"lte-suburban.down"', '"1 Mbit/s"').replace('"1 MB"', '"30 kB"')
    scenario = folder / "scenario.toml"
    # More than twice of what the link carries.
    scenario.write_text(text.replace("VERSION", "2"))
    cellbed("run", scenario, "--virtual", "--profile", profile, "--out", folder, status=0)
    return next(folder.glob("virtual-*"))


def test_http2_replies_send_their_heads_before_the_bodies_that_wait(profile: Path, tmp_path: Path) -> None:
    found = requests(overload(tmp_path, profile)).drop_nulls("residual_s").sort("downlink_start")
    assert found["local_port"].n_unique() == 1
    starts, ends = found["downlink_start"].to_list(), found["downlink_end"].to_list()
    overtakes = [start < end for start, end in zip(starts[1:], ends, strict=False)]
    assert sum(overtakes) > len(overtakes) // 2
    # A head overtakes the bodies of several replies, and bodies follow in the order of the heads.
    assert any(start < end for start, end in zip(starts[3:], ends, strict=False))
    assert ends == sorted(ends)
    assert found["part_downlink_transport"].max() > 0.5  # type: ignore[operator]
    assert found["part_server"].max() < 0.1  # type: ignore[operator]


@pytest.mark.parametrize("turn", [16_384, 40_000])
def test_http2_replies_share_the_connection_in_the_turns_of_the_profile(tmp_path: Path, turn: int) -> None:
    served = [SERVED | {"head": 1448, "turn": turn, "last": turn % 2}] * 20
    profiles.Profile("the test", {"web": served}).write(tmp_path / "profile.json")
    run = overload(tmp_path, tmp_path / "profile.json")
    found = requests(run)
    cut = found.filter(pl.col("turn") < pl.col("bytes_down"))
    assert len(cut) >= 3
    assert cut["turn"].median() == turn
    assert sample(run)["turn"] == turn


@pytest.mark.parametrize("nagle", [True, False])
def test_the_end_of_a_reply_waits_for_the_acknowledgement_of_its_header_as_in_the_profile(
    tmp_path: Path, nagle: bool
) -> None:
    run = predict_web(tmp_path, SMALL | {"head": 200, "nagle": nagle})
    # The way there and back takes 20 ms and more.
    assert (requests(run)["part_downlink_transport"] > 0.02).all() is nagle
    assert sample(run)["nagle"] is nagle


@pytest.mark.parametrize(("head", "tail", "last"), [(100, 909, 900), (100, 9, 0), (1009, 9, 0)])
def test_a_reply_over_http2_is_written_in_the_parts_of_the_profile(
    tmp_path: Path, head: int, tail: int, last: int
) -> None:
    wire = 1018 if last == 0 else 1009
    run = predict_web(tmp_path, {"bytes_down": 900, "wire_down": wire, "head": head, "tail": tail, "last": last}, "2")
    found = profiles.extract_profile(run).applications["web"]
    assert {(each["tail"], each["last"]) for each in found} == {(tail, last)}
    if head == 100:
        assert {each["head"] for each in found[1:]} == {head}


def test_a_server_closes_idle_connections_as_in_the_profile(tmp_path: Path) -> None:
    keys = "arrivals = {kind = 'recorded', times = ['0.1 s', '1.5 s', '4.5 s', '5.1 s']}"
    outage = {"kind": "outage", "link": "mobile-0", "at": "5 s", "for": "3 s"}
    run = predict_web(tmp_path, SMALL | {"idle": 2 * 10**9}, keys=keys, duration="9 s", more=tables(faults=[outage]))
    found = requests(run).sort("request")
    assert found["order"].to_list() == [0, 1, 0, 1]
    assert found["status"].to_list() == ["ok", "ok", "ok", "lost"]
    assert sample(run)["idle"] == pytest.approx(2 * 10**9, rel=0.01)


def test_only_the_first_requests_take_the_time_of_cold_programs(tmp_path: Path) -> None:
    first = {"server": 30_000_000, "cold": 0, "generator": 20_000_000, "first": "endpoint-0"}
    run = predict_web(tmp_path, [*[SMALL] * 20, SMALL | first])
    found = requests(run).sort("request")
    assert found["part_server"][0] == pytest.approx(0.03, abs=1e-3)
    assert found["part_server"][1:].max() < 0.01  # type: ignore[operator]
    assert found["part_generator"][0] == pytest.approx(0.02, abs=1e-3)
    assert found["part_generator"][1:].max() < 0.01  # type: ignore[operator]
    # The connection opens when the generator has taken up the request, 10 ms and more before the server has it.
    assert found["part_connect_uplink"][0] > 0.01
    again = profiles.extract_profile(run).applications["web"]
    assert [round(each["server"], -6) for each in again if "cold" in each] == [30_000_000]


def test_requests_and_replies_that_come_at_once_wait_for_each_other_as_in_the_profile(tmp_path: Path) -> None:
    def latency(each: tuple[int, int], *, together: bool = False) -> pl.DataFrame:
        served = {"server": 200_000, "bytes_down": 20, "wire_down": 60, "head": 60, "each": each, "together": together}
        # The packets of eight requests fit into the window.
        times = ["0.1 s", "0.6 s", "1.1 s", *["2 s"] * 8, *["3 s"] * 8]
        keys = f"arrivals = {{kind = 'recorded', times = {times}}}"
        run = predict_web(tmp_path / f"{each} {together}", served, "2", keys=keys)
        found = sample(run)
        assert found["each"] == pytest.approx(each, abs=300_000)
        assert found["together"] is together
        return requests(run).sort("request")

    alone, server, endpoint = latency((0, 0)), latency((3_000_000, 0)), latency((0, 2_000_000))
    for found in (server, endpoint):
        assert found["latency_s"][0] == pytest.approx(alone["latency_s"][0], abs=2e-3)
    assert server["part_server"].max() == pytest.approx(0.021, abs=2e-3)
    assert endpoint["part_endpoint_receive"].max() == pytest.approx(0.014, abs=2e-3)
    # A server that writes its replies when all are there.
    assert latency((3_000_000, 0), together=True)["part_server"][3:].min() > 0.018  # type: ignore[operator]
    assert alone["part_server"].max() < 0.01  # type: ignore[operator]


def test_the_times_of_a_request_are_those_of_one_measured_request(tmp_path: Path) -> None:
    times = [number * 1_000_000 for number in range(1, 13)]
    served = [SMALL | {"generator": time, "server": time, "receive": time} for time in times]
    found = requests(predict_web(tmp_path, served, duration="3 s"))
    assert len(found) == len(times)
    for part in ("part_generator", "part_endpoint_receive"):
        assert found[part].to_list() == pytest.approx(found["part_server"].to_list(), abs=5e-4), part


def test_replies_that_follow_each_other_are_received_in_the_time_of_the_profile(tmp_path: Path) -> None:
    # Of replies over HTTP/2 on a full link, a packet follows the previous one in less time than a program takes.
    run = predict_web(tmp_path, {"receive": 40_000_000}, "2", keys='rate = "60 /s"', duration="3 s")
    received = requests(run)["part_endpoint_receive"]
    assert received.min() == pytest.approx(0.04, abs=1e-3)
    assert received.median() == pytest.approx(0.04, abs=1e-3)


def test_requests_with_long_bodies_draw_each_sample_once(tmp_path: Path) -> None:
    times = [number * 1_000_000 for number in range(1, 13)]
    post = 'rate = "4 /s"\nmethod = "POST"\nbody_size = "100 kB"'
    served = [{"head": 1448, "server": time} for time in times]
    found = requests(predict_web(tmp_path, served, keys=post, duration="3 s"))
    assert len(found) == len(times)
    assert sorted(found["part_server"].round(3)) == [time / 1e9 for time in times]


def test_bodies_of_requests_over_http2_wait_only_for_windows_that_the_server_granted(tmp_path: Path) -> None:
    def latency(window: int, link: str) -> float:
        served = {"wire_down": 80, "bytes_down": 0, "head": 80, "granted": [window, window, 100]}
        post = 'rate = "0.5 /s"\nmethod = "POST"\nbody_size = "400 kB"'
        folder = tmp_path / f"{window} {link[0]}"
        run = predict_web(folder, served, "2", keys=post, duration="6 s", up=link)
        return requests(run)["latency_s"].median()  # type: ignore[return-value]

    small, large = (1 << 16) - 1, 1 << 20
    # A window of 64 KiB is five times what is on the way, and half of it is granted again in time.
    assert latency(small, "4 Mbit/s") == pytest.approx(latency(large, "4 Mbit/s"), rel=0.05)
    assert latency(small, "90 Mbit/s") > 1.3 * latency(large, "90 Mbit/s")


def test_windows_over_http2_are_granted_for_the_bytes_of_incomplete_frames(tmp_path: Path) -> None:
    def latency(window: int) -> float:
        served = {"wire_down": 80, "bytes_down": 0, "head": 80, "granted": [window, window, 100]}
        times = "arrivals = {kind = 'recorded', times = ['0.1 s', '1 s', '1 s', '1 s']}"
        post = f"method = 'POST'\nbody_size = '29 kB'\n{times}"
        run = predict_web(tmp_path / str(window), served, "2", keys=post, up="10 Mbit/s")
        return requests(run)["latency_s"].max()  # type: ignore[return-value]

    assert latency((1 << 16) - 1) == pytest.approx(latency(1 << 20), abs=2e-3)


def test_a_server_over_http2_begins_in_the_packets_and_at_the_time_of_the_profile(tmp_path: Path) -> None:
    opening = {"opening": [51, 60, 9], "opening_ns": 3_000_000, "server": 20_000_000}
    found = sample(predict_web(tmp_path, SMALL | opening, "2"))
    assert found["opening"] == (51, 60, 9)
    assert found["opening_ns"] == pytest.approx(3_000_000, abs=200_000)


@pytest.mark.parametrize("ordered", [True, False])
def test_replies_over_a_connection_begin_in_the_order_of_the_profile(tmp_path: Path, ordered: bool) -> None:
    served = [SMALL | {"server": time, "ordered": ordered} for time in (1_000_000, 8_000_000) * 10]
    keys = f"arrivals = {{kind = 'recorded', times = {['0.1 s', *['1 s'] * 20]}}}"
    run = predict_web(tmp_path, served, "2", keys=keys)
    assert requests(run).sort("request")["downlink_entered_ns"].is_sorted() is ordered
    assert sample(run)["ordered"] is ordered


def test_a_prediction_is_compared_with_other_runs(translated: Path, profile: Path, tmp_path: Path) -> None:
    real = tmp_path / "real"
    shutil.copytree(translated, real)
    (real / "run.json").write_text(json.dumps(described(translated) | {"clock": "real"}))
    done = cellbed("report", real)
    assert "predicted" not in done.stdout
    done = cellbed("compare", real, translated, "--out", tmp_path / "page.html", status=0)
    assert "in virtual time" in done.stdout


def refusal(folder: Path, profile: Path, text: str) -> str:
    scenario = folder / "scenario.toml"
    scenario.write_text(head(duration="5 s") + text)
    done = cellbed("run", scenario, "--virtual", "--profile", profile, "--out", folder / "runs")
    assert done.returncode != 0
    assert not (folder / "runs").exists()
    return str(done.stderr)


def test_a_meter_is_of_real_time(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(head(duration="5 s") + TRANSLATION)
    done = cellbed("run", tmp_path / "scenario.toml", "--virtual", "--meter", "--out", tmp_path / "runs")
    assert (done.returncode, done.stderr) == (2, "error: --meter shows a run in real time: remove it, or --virtual\n")


WITHOUT_MODEL = (
    tables(faults=[{"kind": "crash", "node": "edge-0", "at": "1 s", "for": "1 s"}])
    + app_table(
        "flood",
        client={"on": "endpoint", "command": "ping -f -c 3 -Q 4 {server.address}"},
        server={"on": "edge", "command": "sleep 100"},
    )
    + app_table("again", client={"on": "endpoint", "command": "iperf3 -c edge", "restart": "always"})
    + app_table("capture", client={"on": "endpoint", "command": "/usr/bin/tcpdump -c 1"})
    + app_table("datagrams", client={"on": "endpoint", "command": "iperf3 -c edge -u -b 400k"})
    + app_table("mqtt", "translation", server="edge", rate="1 /s")
    + app_table("web", "http", url="http://192.0.2.1/", rate="1 /s")
)


def test_what_has_no_model_is_named_before_anything_starts(profile: Path, tmp_path: Path) -> None:
    message = refusal(tmp_path, profile, WITHOUT_MODEL)
    assert "application 'flood': -f -Q of ping (modelled: -4, -c, -s, -i, -w, -W, -q, -n)" in message
    assert "application 'again': restart of its client" in message
    assert "application 'capture': the client '/usr/bin/tcpdump'" in message
    assert "application 'datagrams': -u -b of iperf3" in message
    assert "application 'web': the URL of 192.0.2.1, which is no node" in message
    assert "fault 'crash'" in message
    assert "'mqtt'" not in message


PROGRAMS = """
[apps.probe]
kind = "program"
client = { on = "endpoint", command = "ping -c 12 -i 0.1 -s 100 edge" }
server = { on = "edge", command = "sleep 100" }

[apps.lasting]
kind = "program"
client = { on = "endpoint", command = "iperf3 -c edge -p 5203 -t 60" }
server = { on = "edge", command = "iperf3 -s -p 5203", ready = { port = 5203 } }
stop = "4 s"

[apps.up]
kind = "program"
client = { on = "endpoint", command = "iperf3 --client {server.address} --time 3" }
server = { on = "edge", command = "iperf3 --server", ready = { port = 5201 } }

[apps.down]
kind = "program"
client = { on = "endpoint", command = "iperf3 -c {server.address} -p 5202 -R -n 2M -P 2" }
server = { on = "edge", command = "iperf3 -s -p 5202", ready = { port = 5202 } }
"""


def test_ping_and_iperf3_carry_what_the_real_ones_do(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(head(duration="20 s") + PROGRAMS)
    # Without a profile: none is needed.
    done = cellbed("run", scenario, "--virtual", "--out", tmp_path, status=0)
    assert "the run ended then" in done.stderr
    (run,) = tmp_path.glob("virtual-*")
    probe = (run / "raw" / "probe.endpoint-0.client.out").read_text().splitlines()
    assert probe[0] == "PING edge (100.64.64.2) 100(128) bytes of data."
    reply = r"108 bytes from edge-0 \(100.64.64.2\): icmp_seq=\d+ ttl=64 time=(.*) ms"
    times = [float(found[1]) for line in probe if (found := re.fullmatch(reply, line))]
    # Twice the base delay; a full queue can drop a few.
    assert len(times) >= 8
    assert min(times) > 20
    assert f"12 packets transmitted, {len(times)} received" in probe[-2]

    # What iperf3 has carried is in the tables.
    connections = pl.read_parquet(run / "connections.parquet").sort("to_server_bytes")
    up = connections.filter(server_port=5201)["to_server_bytes"].to_list()[-1]
    assert up > 500_000
    assert len(connections.filter(server_port=5202)) == 3

    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    statuses = {each["what"]: each["status"] for each in events if each["event"] == "program ended"}
    assert statuses.pop("lasting.endpoint-0.client") == 1
    assert list(statuses.values()) == [0, 0, 0]


def test_a_program_that_fails_ends_the_prediction(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    text = head(duration="5 s").replace("base_delay", 'outage = [["0 s", "5 s"]]\nbase_delay')
    client = {"on": "endpoint", "command": "ping -c 2 -i 0.2 -W 1 edge"}
    scenario.write_text(text + app_table("probe", client=client))
    done = cellbed("run", scenario, "--virtual", "--out", tmp_path)
    assert "probe.endpoint-0.client on endpoint-0 ended with status 1: 2 packets transmitted, 0 received" in done.stderr
    assert done.returncode == 1
    assert (next(tmp_path.glob("virtual-*")) / "report.html").exists()


def test_a_profile_does_not_depend_on_links(tmp_path: Path) -> None:
    web = head(duration="5 s") + WEB.replace("VERSION", "1.1")
    same = [
        web,
        web.replace("base-edge", "80 ms"),
        web.replace('edge = "base-edge"', 'edge = "base-edge"\ncloud = "80 ms"'),
        web.replace("[nodes.edge]", '[nodes.edge]\ncore = "70 ms"'),
        web.replace("[nodes.edge]\ncpus = 1.0", "[nodes.edge]\ncpus = 0.3"),
        web.replace('rate = "4 /s"', 'rate = "9 /s"\nconnections = 2'),
    ]
    assert len(set(same)) == len(same)
    assert len({profiles.cache_path(text, tmp_path, limits=True) for text in same}) == 1
    text = head(duration="5 s") + TRANSLATION
    other = [text, text.replace("[nodes.edge]\ncpus = 1.0", "[nodes.edge]\ncpus = 0.3")]
    assert len({profiles.cache_path(text, tmp_path, limits=True) for text in other}) == 2


def test_a_profile_is_of_the_files_that_programs_get(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    text = head(duration="5 s") + WEB.replace("VERSION", "1.1").replace(
        '8080" }', '8080", copy_in = { "site" = "site" } }'
    )
    places = {profiles.cache_path(text, tmp_path, limits=True)}
    for content in ("first", "second"):
        page = site / "index.html"
        page.write_text(content)
        os.utime(page, ns=(len(places), len(places)))
        places.add(profiles.cache_path(text, tmp_path, limits=True))
    assert len(places) == 3


def test_a_profile_that_has_changed_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    for source in ("the first run", "the second one", "the first run"):
        profiles.Profile(source, {"web": [SERVED]}).write(file)
        assert profiles.read(file).source == source


def test_a_profile_of_other_programs_is_refused(profile: Path, tmp_path: Path) -> None:
    other = TRANSLATION.replace("[workload]", "[apps.other]")
    assert "has 0 requests of 'other'" in refusal(tmp_path, profile, other)
    assert "another kind" in refusal(tmp_path, profile, TRANSLATION.replace("[workload]", "[apps.web]"))
    content = json.loads(profile.read_text())
    del content["applications"]["workload"][0]["bytes_up"]
    edited = tmp_path / "edited.json"
    edited.write_text(json.dumps(content))
    assert "'workload' has requests without all parts" in refusal(tmp_path, edited, TRANSLATION)
    text = tmp_path / "text.json"
    text.write_text("{}")
    assert "not a profile" in refusal(tmp_path, text, TRANSLATION)


def test_a_profile_of_a_disturbed_or_lossy_run_is_not_kept(translated: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    shutil.copytree(translated, made)
    (made / "profile.json").unlink()
    assert profiles.extract_profile(made).objections == []
    (made / "run.json").write_text(json.dumps(described(made) | {"deaths": ["the service was replaced"]}))
    record = made / "raw" / "workload.endpoint-0.requests.jsonl"
    record.write_text(record.read_text().replace('"status":"ok"', '"status":"lost"', 2))
    profile = profiles.extract_profile(made)
    place = tmp_path / "cache" / "0123.json"
    with pytest.raises(profiles.ProfileError) as caught:
        profiles.keep(profile, place)
    assert "2 requests of 'workload' got no reply; disturbed: the service was replaced" in str(caught.value)
    assert not place.exists()
    refused = place.with_suffix(".refused.json")
    assert f"--profile {refused}" in str(caught.value)
    # A user who accepts it sees that in each prediction.
    (tmp_path / "scenario.toml").write_text(head(duration="2 s") + TRANSLATION)
    done = cellbed(
        "run", tmp_path / "scenario.toml", "--virtual", "--profile", refused, "--out", tmp_path / "runs", status=0
    )
    (run,) = (tmp_path / "runs").iterdir()
    quality = f"{len(profile.applications['workload'])} requests of 'workload'; 2 requests of 'workload' got no reply"
    (note,) = described(run)["notes"]
    assert quality in note
    assert "disturbed: the service was replaced" in note
    assert quality in " ".join(done.stdout.split())
    assert quality in html.unescape((run / "report.html").read_text())


def test_a_cpu_limit_stops_a_node_until_the_next_period() -> None:
    half = Processors(0.5)
    # 5 ms of each period of 10 ms.
    assert half.run(0, 5_000_000) == 5_000_000
    assert half.run(5_000_000, 6_000_000) == 21_000_000
    assert Processors(2.0).run(3, 25_000_000) == 25_000_003


def test_the_speed_of_a_node_divides_the_times_of_its_servers(profile: Path, tmp_path: Path) -> None:
    text = head(duration="3 s").replace("[nodes.edge]", "[nodes.edge]\nspeed = 20") + TRANSLATION
    (tmp_path / "scenario.toml").write_text(text)
    asked = ("--virtual", "--profile", profile, "--out", tmp_path)
    done = cellbed("run", tmp_path / "scenario.toml", *asked, status=0)
    assert "the measured times of servers and pre-processing on edge are divided by 20" in done.stdout
    found = requests(next(tmp_path.glob("virtual-*")))
    assert found["part_inference"].unique().to_list() == [0.001]  # of 20 ms
    assert found["part_preprocessing"].min() >= 0.001  # type: ignore[operator]
    real = cellbed("run", tmp_path / "scenario.toml", status=2)
    assert "nodes.edge.speed: programs run as fast as this machine: predict it with --virtual" in real.stderr


def described(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found
