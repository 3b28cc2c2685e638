"""When a run is called disturbed: the judgement over numbers, and samples of a real machine."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from cellbed.measure.connections import SCHEMA
from cellbed.measure.disturbance import (
    MAGIC,
    RECORD,
    Load,
    delays_by_machine,
    judge,
    machine,
    read_seconds,
    shifts,
    unread_datagrams,
)
from cellbed.measure.statistics import percentile
from cellbed.report.formats import machine as words
from cellbed.runformat.spans import Span
from cellbed.testbed.programs.pressure import Pressure

T0 = 5_000_000_000_000
S = 1_000_000_000
MS = 1_000_000
DESCRIPTION = {"t0_ns": T0, "duration_ns": 60 * S, "status": "complete"}


def emulator(count: int = 60, **changed: dict[int, int]) -> np.ndarray[Any, np.dtype[Any]]:
    """The emulator's records of an undisturbed run, from one second before it; changed: by field, a value by second."""
    records = np.zeros(count + 1, RECORD)
    records["start"] = T0 + (np.arange(count + 1) - 1) * S
    records["end"] = records["start"] + S
    records["packets"], records["late"] = 100, 1
    records["lateness"], records["standstill"] = 2 * MS, 1 * MS
    records["stood_until"] = records["start"] + S // 2
    for name, values in changed.items():
        for second, value in values.items():
            records[name][second + 1] = value
    return records


def host(count: int = 60, cpus: int = 2, **changed: dict[int, int]) -> list[dict[str, Any]]:
    """Samples of a machine on which nothing else runs: a node uses half a processor and is throttled; changed: growth
    of a figure in a second."""
    undisturbed = {
        "realtime_ns": 0,
        "boottime_ns": 0,
        "idle_ns": round(1.38 * S),
        "steal_ns": 0,
        "pressure_ns": S // 10,
        "own_ns": 600 * MS,
        "cpu_ns": 500 * MS,
        "waited_ns": 320 * MS,
        "throttled_ns": 300 * MS,
    }
    total = dict.fromkeys(undisturbed, 7)
    lines = []
    for second in range(count + 1):
        node = {name: total[name] for name in ("cpu_ns", "waited_ns", "throttled_ns")}
        machine = {name: value for name, value in total.items() if name not in node}
        lines.append({"time_ns": T0 + second * S, "cpus": cpus, **machine, "nodes": [{"node": "edge-0", **node}]})
        for name, growth in undisturbed.items():
            total[name] += changed.get(name, {}).get(second, growth)
    return lines


def seconds(
    folder: Path,
    records: np.ndarray[Any, np.dtype[Any]] | None,
    samples: list[dict[str, Any]],
    description: dict[str, Any] = DESCRIPTION,
) -> pl.DataFrame:
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / "host.jsonl").write_text("".join(json.dumps(line) + "\n" for line in samples))
    if records is not None:
        (folder / "raw" / "lateness.bin").write_bytes(MAGIC + records.tobytes())
    return read_seconds(folder, description)


SPANS = (Span("link", "uplink", "", "", "", ""), Span("server", "remote", "", "", "", ""))


def requests(latency_s: float = 0.1, server_s: float = 0.01, late_s: float = 0.0) -> pl.DataFrame:
    """Ten requests a second for a minute to edge-0, whose latencies differ by 2 % beside `latency_s`."""
    intended = np.arange(600) / 10
    latency = latency_s * (1 + 0.02 * np.random.default_rng(1).random(600))
    return pl.DataFrame(
        {
            "status": "ok",
            "endpoint": "endpoint-0",
            "server": "edge-0",
            "intended_s": intended,
            "latency_s": latency,
            "part_link": latency - server_s - late_s,
            "part_server": np.full(600, server_s),
            "residual_s": np.full(600, late_s),
        }
    )


def load(table: pl.DataFrame, requests: pl.DataFrame) -> Load:
    """The requests of an application as the judgement takes them."""
    latencies = requests["latency_s"].fill_null(np.inf).to_numpy()
    percentiles = [percentile(latencies, quantile) for quantile in (0.5, 0.9, 0.99)]
    moved = shifts(latencies, delays_by_machine(requests, SPANS, table), percentiles)
    gone = requests.filter(pl.col("latency_s").is_null())["intended_s"].to_numpy()
    return Load("web", percentiles, moved, gone)


def judged(
    folder: Path,
    records: np.ndarray[Any, np.dtype[Any]],
    samples: list[dict[str, Any]],
    sent: pl.DataFrame | None = None,
    connections: pl.DataFrame | None = None,
    description: dict[str, Any] = DESCRIPTION,
) -> list[str]:
    table = seconds(folder, records, samples, description)
    loads = [load(table, sent)] if sent is not None else []
    return judge(table, description, loads, pl.DataFrame(schema=SCHEMA) if connections is None else connections)


@pytest.mark.parametrize("field", ["standstill", "lateness"])
@pytest.mark.parametrize(
    ("ran", "waited", "changed", "cause"),
    [
        (100, 6_900, {}, "it waited for a processor"),
        (6_900, 100, {}, "it was busy"),
        (100, 100, {}, "it was stopped, or not woken"),
        (100, 100, {"steal_ns": {31: 5 * MS}}, "perhaps the hypervisor, which ran other machines in this second"),
        (100, 100, {"boottime_ns": {31: 6 * MS}}, "the machine was suspended"),
        (0, 0, {}, "its cause was not recorded"),  # by an earlier version
    ],
)
def test_longest_delay_of_the_emulator_has_its_cause_named(
    tmp_path: Path, field: str, ran: int, waited: int, changed: dict[str, dict[int, int]], cause: str
) -> None:
    records = emulator(**{field: {31: 7 * MS}}, ran={31: ran}, waited={31: waited})
    figures = asdict(machine(seconds(tmp_path, records, host(**changed)), 60))
    assert figures["late_cause"] == f"7 ms in second 31: {cause}"
    assert figures["late_cause"] in words(figures)


def test_short_delays_of_the_emulator_are_not_explained(tmp_path: Path) -> None:
    assert machine(seconds(tmp_path, emulator(), host()), 60).late_cause is None


def test_an_undisturbed_run_is_not_called_disturbed(tmp_path: Path) -> None:
    assert judged(tmp_path, emulator(), host()) == []
    table = seconds(tmp_path, emulator(), host())
    figures = machine(table, 60)
    assert (figures.lateness_s, figures.late_share, figures.standstill_s) == (0.002, 0.01, 0.001)
    assert figures.foreign_cpus == pytest.approx(0.02)
    # Without what its limit made it wait: others ran for 2 % of the time, and it was present for 52 %.
    assert figures.waiting == pytest.approx(0.02 * 0.52)
    assert (figures.pressure, figures.pressure_peak) == pytest.approx((0.1, 0.1))
    assert "waited for a processor in 10 % of the time (PSI), at most 10 % of a second" in words(asdict(figures))
    assert table.filter(pl.col("second") == 59)["edge-0.waited_s"].to_list() == [pytest.approx(0.02 * 0.52)]
    unknown = seconds(tmp_path, emulator(), [sample | {"pressure_ns": None} for sample in host()])
    assert "the kernel does not report CPU pressure" in words(asdict(machine(unknown, 60)))


FROZEN = {"standstill": {20: 150 * MS}, "stood_until": {20: T0 + round(20.75 * S)}}


def test_a_frozen_emulator_always_disturbs_a_run_without_requests(tmp_path: Path) -> None:
    (reason,) = judged(tmp_path, emulator(**FROZEN), host())
    assert reason == "the emulator did not run for 150 ms from 20.6 s on"
    # Stopped for the rest of the run and longer: one record for all of it.
    records = emulator(4, standstill={3: 14 * S}, stood_until={3: T0 + 17 * S}, end={3: T0 + 17 * S})
    assert "the emulator did not run for 14 s from 3.0 s on" in judged(tmp_path, records, host())
    # Never continued: its records end.
    (reason,) = judged(tmp_path, emulator(4), host())
    assert reason.startswith("the emulator recorded nothing from 4.0 s on")
    (reason,) = judged(tmp_path, emulator(0), host())
    assert reason.startswith("the emulator recorded nothing from 0.0 s on")


BUSY = {"idle_ns": dict.fromkeys(range(60), 0)}
WAITING = {"waited_ns": dict.fromkeys(range(60), 800 * MS)}


def test_waiting_disturbs_where_it_moves_a_percentile_out_of_its_interval(tmp_path: Path) -> None:
    # edge-0 waits 0.5 s for 0.5 s of processor time: half of its part of each request.
    (reason,) = judged(tmp_path, emulator(), host(**BUSY, **WAITING), requests(server_s=0.02))
    assert reason.startswith("the machine made web slower: without what it added, the median would be about 91 ms")
    assert (
        "edge-0 waited 1 s for each second of processor time, while other programs used 1.4 and the run 0.6 of 2"
        in reason
    )
    # The same waiting of a server that takes 0.2 ms of 100 ms moves no figure that is printed.
    assert judged(tmp_path, emulator(), host(**BUSY, **WAITING), requests(server_s=0.0002)) == []


def test_other_programs_disturb_only_where_a_node_waits_for_them(tmp_path: Path) -> None:
    sent = requests(server_s=0.02)
    assert judged(tmp_path, emulator(), host(**BUSY), sent) == []  # it got what it wanted
    assert judged(tmp_path, emulator(), host(**WAITING), sent) == []  # its own programs wait for each other


def test_what_the_machine_added_is_of_the_seconds_of_a_request(tmp_path: Path) -> None:
    waiting = {"waited_ns": dict.fromkeys(range(10, 20), 800 * MS)}
    table = seconds(tmp_path, emulator(), host(**BUSY, **waiting))
    found = delays_by_machine(requests(server_s=0.02), SPANS, table)
    assert found[105:195] == pytest.approx(0.01, rel=0.1)
    assert (found[:95] < 0.001).all()
    assert (found[205:] < 0.001).all()


def test_late_packets_disturb_where_they_move_a_percentile_out_of_its_interval(tmp_path: Path) -> None:
    (reason,) = judged(tmp_path, emulator(lateness={7: 11 * MS}), host(), requests(server_s=0, late_s=0.01))
    assert "the median would be about 91 ms instead of 101 ms" in reason
    assert "packets or the emulator were up to 11 ms late" in reason
    assert judged(tmp_path, emulator(lateness={7: 11 * MS}), host(), requests(late_s=0.0005)) == []


def test_late_packets_disturb_by_a_tenth_of_a_percentile_whatever_its_interval(tmp_path: Path) -> None:
    # Three requests share each latency, so that the interval of the median is wide.
    latency = pl.Series(0.05 + 0.2 * np.repeat(np.random.default_rng(1).random(200), 3))

    def sent(late_s: float) -> pl.DataFrame:
        return requests().with_columns(latency_s=latency + late_s, residual_s=pl.lit(late_s))

    median = percentile(sent(0.022)["latency_s"].to_numpy(), 0.5)
    assert median.value - median.low > 0.022
    (reason,) = judged(tmp_path, emulator(lateness={7: 23 * MS}), host(), sent(0.022))
    assert "without what it added, the median would be about" in reason
    assert "below its interval" not in reason
    assert judged(tmp_path, emulator(lateness={7: 11 * MS}), host(), sent(0.01)) == []


def test_a_standstill_disturbs_where_requests_were_under_way(tmp_path: Path) -> None:
    stood = emulator(standstill={20: 1500 * MS}, stood_until={20: T0 + round(20.75 * S)})
    slow = requests().with_columns(
        latency_s=pl.when(pl.col("intended_s").is_between(19.2, 20.8)).then(1.5).otherwise("latency_s")
    )
    (reason,) = judged(tmp_path, stood, host(), slow)
    assert "instead of" in reason
    lost = requests().with_columns(
        latency_s=pl.when(pl.col("intended_s").is_between(20.65, 20.75)).then(None).otherwise("latency_s")
    )
    (reason,) = judged(tmp_path, emulator(**FROZEN), host(), lost)
    assert (
        reason == "the emulator did not run for 150 ms from 20.6 s on, and 1 request of web of that time got no reply"
    )


def test_connections_are_disturbed_by_what_their_nodes_waited(tmp_path: Path) -> None:
    def connection(server_s: float) -> pl.DataFrame:
        row = {"server": "edge-0", "opened_s": 0.0, "part_server": server_s, "part_to_client_delay": 30.0}
        return pl.DataFrame([dict.fromkeys(SCHEMA) | row], schema=SCHEMA)

    (reason,) = judged(tmp_path, emulator(), host(**BUSY, **WAITING), connections=connection(20.0))
    assert reason.startswith("other programs kept nodes waiting for a processor for 20 % of the time of their conn")
    assert judged(tmp_path, emulator(), host(**BUSY, **WAITING), connections=connection(1.0)) == []
    (reason,) = judged(tmp_path, emulator(late=dict.fromkeys(range(60), 11)), host(), connections=connection(1.0))
    assert reason.startswith("the emulator was late: 11 % of the packets by more than 1 ms, by up to 2 ms")


def test_nodes_that_together_need_more_than_the_machine_disturb(tmp_path: Path) -> None:
    """Nobody else runs: what edge-0 lacks other nodes of the run have."""
    full = {"own_ns": dict.fromkeys(range(60), 2 * S), "idle_ns": dict.fromkeys(range(60), 0)}

    def judged_with(limit: float, **changed: dict[int, int]) -> list[str]:
        limited = DESCRIPTION | {"nodes": [{"name": "edge-0", "cpus": limit}]}
        return judged(tmp_path, emulator(), host(**changed), requests(server_s=0.02), description=limited)

    assert judged_with(0.5, **full, **WAITING) == []  # it had what its limit allows
    assert judged_with(8, **WAITING) == []  # the machine was idle: its own tasks waited for each other
    (reason,) = judged_with(8, **full, **WAITING)
    assert (
        "edge-0 waited 1 s for each second of processor time, while other programs used 0 and the run 2 of 2" in reason
    )


def test_clocks_that_are_set_and_workers_that_die_disturb(tmp_path: Path) -> None:
    found = judged(tmp_path, emulator(), host(realtime_ns={4: -3600 * S, 9: 1 * MS}, boottime_ns={5: 3 * S}))
    assert found == ["the wall clock was set by −60 min at 4 s", "the machine was suspended for 3 s at 5 s"]
    table, none = seconds(tmp_path, emulator(), host()), pl.DataFrame(schema=SCHEMA)
    assert judge(table, DESCRIPTION | {"deaths": ["worker 0 was killed"]}, [], none) == ["worker 0 was killed"]


def test_datagrams_that_links_delivered_and_receivers_lost_disturb() -> None:
    requests = pl.DataFrame({"datagrams": [1000, 1000, None], "datagrams_lost": [150, 50, None]})
    links = pl.DataFrame({"dropped_queue": [100, 0], "dropped_loss": [50, 10]})
    (reason,) = unread_datagrams(requests, links)
    assert "40 of 2000 passed the links and were lost" in reason
    assert not list(unread_datagrams(requests, links.with_columns(dropped_loss=50))), "lost on the links"
    assert not list(unread_datagrams(requests, links.clear())), "links unknown"
    assert not list(unread_datagrams(links, links)), "no datagrams"


def test_samples_count_the_processor_time_of_descendants() -> None:
    burn = "import os, sys, time; os.fork()\nwhile time.process_time() < 0.2: pass\nprint(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout.read(2) == b"\n\n"
        pressure = Pressure([os.getpid()])
        first = pressure.sample({"edge-0": [process.pid]}, {"edge-0": 5})
        second = pressure.sample({"edge-0": [process.pid]}, {"edge-0": 5})
        process.stdin.close()
    (node,) = second["nodes"]
    assert node["cpu_ns"] > 400 * MS
    assert node["throttled_ns"] == 5
    assert second["own_ns"] > node["cpu_ns"]
    assert first["time_ns"] < second["time_ns"]
    assert abs(second["boottime_ns"] - first["boottime_ns"]) < 1 * MS
    assert second["idle_ns"] >= first["idle_ns"] >= 0
