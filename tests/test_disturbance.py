"""When a run is called disturbed: the judgement over numbers, and samples of a real machine."""

from __future__ import annotations

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

from cellbed.measure.disturbance import MAGIC, RECORD, judge, machine, read_seconds
from cellbed.report.formats import machine as words
from cellbed.testbed.pressure import Pressure

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
    folder: Path, records: np.ndarray[Any, np.dtype[Any]] | None, samples: list[dict[str, Any]]
) -> pl.DataFrame:
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "raw" / "host.jsonl").write_text("".join(json.dumps(line) + "\n" for line in samples))
    if records is not None:
        (folder / "raw" / "lateness.bin").write_bytes(MAGIC + records.tobytes())
    return read_seconds(folder, DESCRIPTION)


def judged(folder: Path, records: np.ndarray[Any, np.dtype[Any]], samples: list[dict[str, Any]]) -> list[str]:
    return judge(seconds(folder, records, samples), DESCRIPTION)


def test_an_undisturbed_run_is_not_called_disturbed(tmp_path: Path) -> None:
    table = seconds(tmp_path, emulator(), host())
    assert judge(table, DESCRIPTION) == []
    figures = machine(table, 60)
    assert (figures.lateness_s, figures.late_share, figures.standstill_s) == (0.002, 0.01, 0.001)
    assert figures.foreign_cpus == pytest.approx(0.02)
    assert figures.waiting == pytest.approx(0.02)  # without what its limit made it wait
    assert (figures.pressure, figures.pressure_peak) == pytest.approx((0.1, 0.1))
    assert "waited for a processor in 10 % of the time (PSI), at most 10 % of a second" in words(asdict(figures))
    assert table.filter(pl.col("second") == 59)["edge-0.waited_s"].to_list() == [pytest.approx(0.02)]


def test_a_frozen_emulator_always_disturbs(tmp_path: Path) -> None:
    frozen = {"standstill": {20: 150 * MS}, "stood_until": {20: T0 + round(20.75 * S)}}
    (reason,) = judged(tmp_path, emulator(**frozen), host())
    assert reason == "the emulator stood still for 150 ms from 20.6 s on"
    # Stopped for the rest of the run and longer: one record for all of it.
    records = emulator(4, standstill={3: 14 * S}, stood_until={3: T0 + 17 * S}, end={3: T0 + 17 * S})
    assert "the emulator stood still for 14 s from 3.0 s on" in judged(tmp_path, records, host())
    # Never continued: its records end.
    (reason,) = judged(tmp_path, emulator(4), host())
    assert reason.startswith("the emulator recorded nothing from 4.0 s on")
    (reason,) = judged(tmp_path, emulator(0), host())
    assert reason.startswith("the emulator recorded nothing from 0.0 s on")


def test_late_packets_disturb_where_they_are_more_than_one_second_in_a_hundred(tmp_path: Path) -> None:
    (reason,) = judged(tmp_path, emulator(late={7: 11}), host())
    assert reason.startswith("the emulator was late in 1 of 60 seconds: by up to 2 ms, and with 11 % of")
    (reason,) = judged(tmp_path, emulator(lateness={7: 11 * MS, 8: 30 * MS}), host())
    assert reason.startswith("the emulator was late in 2 of 60 seconds: by up to 30 ms")
    few = seconds(tmp_path, emulator(200, lateness={7: 11 * MS, 8: 30 * MS}), host(200))
    assert judge(few, DESCRIPTION | {"duration_ns": 200 * S}) == []


def test_other_programs_disturb_only_where_a_node_waits_for_them(tmp_path: Path) -> None:
    busy = {"idle_ns": dict.fromkeys(range(10, 20), 0)}
    waiting = {"waited_ns": dict.fromkeys(range(10, 20), 500 * MS)}
    assert judged(tmp_path, emulator(), host(**busy)) == []  # it got what it wanted
    assert judged(tmp_path, emulator(), host(**waiting)) == []  # its own programs wait for each other
    (reason,) = judged(tmp_path, emulator(), host(**busy, **waiting))
    assert reason == (
        "other programs kept edge-0 waiting for a processor: edge-0 in 10 of 60 seconds, 0.4 s for each second of "
        "processor time, while they used 1.4 of 2 processors"
    )


def test_pressure_disturbs_where_other_programs_use_the_processors(tmp_path: Path) -> None:
    busy = {"idle_ns": dict.fromkeys(range(10, 20), 0)}
    pressed = {"pressure_ns": dict.fromkeys(range(10, 20), 450 * MS)}
    assert judged(tmp_path, emulator(), host(**pressed)) == []  # its own programs wait for each other
    # A CPU limit stops edge-0 for 0.3 s of each second, which PSI counts as waiting.
    limited = {"pressure_ns": dict.fromkeys(range(10, 20), 390 * MS)}
    assert judged(tmp_path, emulator(), host(**busy, **limited)) == []
    (reason,) = judged(tmp_path, emulator(), host(**busy, **pressed))
    assert reason == (
        "the machine's processors were under pressure in 10 of 60 seconds: programs waited for them in up to 45 % of a "
        "second (PSI), while other programs used 1.4 of 2 processors"
    )
    # One sentence is enough where a node is known to have waited.
    waiting = {"waited_ns": dict.fromkeys(range(10, 20), 500 * MS)}
    (reason,) = judged(tmp_path, emulator(), host(**busy, **pressed, **waiting))
    assert reason.startswith("other programs kept edge-0 waiting")
    unknown = [sample | {"pressure_ns": None} for sample in host(**busy)]
    table = seconds(tmp_path, emulator(), unknown)
    assert judge(table, DESCRIPTION) == []
    assert "the kernel does not report CPU pressure" in words(asdict(machine(table, 60)))


def test_nodes_that_together_need_more_than_the_machine_disturb(tmp_path: Path) -> None:
    """Nobody else runs: what edge-0 lacks other nodes of the run have."""
    full = {"own_ns": dict.fromkeys(range(10, 20), 2 * S), "idle_ns": dict.fromkeys(range(10, 20), 0)}
    waiting = {"waited_ns": dict.fromkeys(range(10, 20), 900 * MS)}

    def judged_with(limit: float, **changed: dict[int, int]) -> list[str]:
        table = seconds(tmp_path, emulator(), host(**changed))
        return judge(table, DESCRIPTION | {"nodes": [{"name": "edge-0", "cpus": limit}]})

    assert judged_with(0.5, **full, **waiting) == []  # it had what its limit allows
    assert judged_with(8, **waiting) == []  # the machine was idle: its own tasks waited for each other
    assert judged_with(8, **full) == []  # it waited for nothing
    assert judged_with(8, **full, **waiting) == [
        "the nodes together needed more than the 2 processors of this machine: edge-0 had 0.5 of its 8 CPUs and waited "
        "in 10 of 60 seconds"
    ]


def test_clocks_that_are_set_and_workers_that_die_disturb(tmp_path: Path) -> None:
    found = judged(tmp_path, emulator(), host(realtime_ns={4: -3600 * S, 9: 1 * MS}, boottime_ns={5: 3 * S}))
    assert found == ["the wall clock was set by −60 min at 4 s", "the machine was suspended for 3 s at 5 s"]
    table = seconds(tmp_path, emulator(), host())
    assert judge(table, DESCRIPTION | {"deaths": ["worker 0 was killed"]}) == ["worker 0 was killed"]


def test_a_late_sample_has_its_own_second(tmp_path: Path) -> None:
    samples = host()
    for sample in samples[1::3]:
        sample["time_ns"] += 600 * MS
    assert seconds(tmp_path, emulator(), samples)["second"].to_list() == list(range(-1, 60))


def test_a_run_without_records_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for description in (DESCRIPTION, {}):
        table = read_seconds(tmp_path, description)
        assert judge(table, description) == []
        assert machine(table, 60).foreign_cpus is None


def test_samples_count_the_processor_time_of_descendants() -> None:
    burn = "import os, sys, time; os.fork()\nwhile time.process_time() < 0.2: pass\nprint(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
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
