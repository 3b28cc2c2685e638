"""Errors of delays and releases in µs, beside a bare timer and a plain veth of the same run.

``own`` is the time from a packet's modelled departure until the emulator writes the packet. The other error is from
program to program. It includes the kernel's path to and from the devices and the wake-ups of two programs, as over the
veth. The bare timer is a Python program that only sleeps until absolute times; the interpreter causes some µs of
lateness.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from emulator_nodes import (
    ADDRESSES,
    Case,
    Stages,
    background,
    configuration,
    connect_by_veth,
    delay_stage,
    inside,
    quantiles,
    start_emulator,
    trace_stages,
    write_trace,
)
from measuring import Figures, Meter

from cellbed.measure.packets import MAGIC, RECORD, read_records

#: Interval of the probe's datagrams, about 200/s. Being odd, it moves their phase evenly over the milliseconds.
INTERVAL_NS = 4_993_700
DELAY_NS = 20_000_000

#: Time to leave out at the beginning of a saturated trace: later, the queue is never empty.
FILLING_NS = 200_000_000

UDP = 17

#: Sleeps until absolute deadlines and prints the lateness in ns as a JSON list.
BARE_TIMER = """
import ctypes, json, os, sys, time
ctypes.CDLL(None).prctl(29, 1)  # PR_SET_TIMERSLACK, 1 ns
if sys.argv[3] == "fifo":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
interval, count = int(sys.argv[1]), int(sys.argv[2])
due, late = time.monotonic_ns(), []
for _ in range(count):
    due += interval
    time.sleep(max(0, due - time.monotonic_ns()) / 1e9)  # clock_nanosleep to an absolute time
    late.append(time.monotonic_ns() - due)
print(json.dumps(late))
"""


@contextlib.contextmanager
def bare_timer(interval_ns: int, seconds: float) -> Iterator[Figures]:
    """Run a timer in the background, scheduled like the emulator's event loop. The figures are set at the end."""
    figures: Figures = {}
    scheduling = "fifo" if os.geteuid() == 0 else "ordinary"
    count = str(round(seconds * 1e9 / interval_ns))
    timer = subprocess.Popen(
        [sys.executable, "-c", BARE_TIMER, str(interval_ns), count, scheduling], stdout=subprocess.PIPE
    )
    yield figures
    late = quantiles(json.loads(timer.communicate()[0]))
    figures |= {"bare p50": late["p50"], "bare p99": late["p99"]}


def datagrams(size: int, bit_rate: int, seconds: float) -> dict[str, Any]:
    """Return a flow for the emulator's probe."""
    return {
        "from": "endpoint",
        "to": "edge",
        "bytes": size,
        "bit_rate": bit_rate,
        "duration_ns": round(seconds * 1e9),
        "family": 4,
    }


def delay_error(load: int = 0, over_veth: bool = False) -> Case:
    """Return a case with a delay of 20 ms and `load` bit/s of TCP in the background; over a veth, without a delay."""
    delay_ns = 0 if over_veth else DELAY_NS

    def measure(seconds: float) -> Figures:
        flow = datagrams(200, 200 * 8 * 10**9 // INTERVAL_NS, seconds)
        with start_emulator(configuration([delay_stage(DELAY_NS / 1e6)])) as emulator:
            if over_veth:
                connect_by_veth(emulator, True)
                for node, peer in (("endpoint", "edge"), ("edge", "endpoint")):
                    route = ["ip", "route", "add", f"{ADDRESSES[peer]}/32", "dev", "veth0", "src", ADDRESSES[node]]
                    subprocess.run(route, preexec_fn=inside(emulator, node, True), check=True)
            with background(emulator, load) if load else contextlib.nullcontext():
                meter = Meter(emulator.pid)
                with bare_timer(INTERVAL_NS, seconds) as bare:
                    [seen] = emulator.probe([flow], seconds + 30)
                    share = meter.share
            lateness = emulator.stop()["lateness_ns"]
        pairs = zip(seen["sent_ns"], seen["received_ns"], strict=True)
        errors = quantiles([there - sent - delay_ns for sent, there in pairs if there is not None])
        figures = {"p50": errors["p50"], "p99": errors["p99"], "least": errors["min"]}
        if not over_veth:
            figures |= {"own p50": lateness["p50"] / 1e3, "own p99": lateness["p99"] / 1e3}
        return figures | bare | {"cpu": share}

    return measure


def release_error(stages: Stages, bit_rate: int) -> Case:
    """Return a case with a trace at 110 % load by datagrams of 1500 bytes. Figures: departures in the packet log and
    arrivals at the receiving program, both less the model's departures."""

    def measure(seconds: float) -> Figures:
        flow = datagrams(1500, bit_rate * 11 // 10, seconds)
        with tempfile.TemporaryDirectory() as folder:
            with start_emulator(configuration(stages, Path(folder))) as emulator:
                meter = Meter(emulator.pid)
                with bare_timer(1_000_000, seconds) as bare:
                    [seen] = emulator.probe([flow], seconds + 30)
                    share = meter.share
                emulator.stop()
            log = np.array(read_records(Path(folder, "packets.bin"), MAGIC, RECORD))
        log = log[(log["direction"] == 0) & (log["protocol"] == UDP) & (log["drop"] == 0)]
        arrivals = np.array([np.nan if there is None else there for there in seen["received_ns"]])
        if len(log) != np.isfinite(arrivals).sum():
            sys.exit(f"error: {len(log)} datagrams left the emulator and {np.isfinite(arrivals).sum()} arrived")
        saturated = log["departed"] > log["departed"][0] + FILLING_NS
        off_grid = int(((log["departed"] - log["departed"][0]) % 1_000_000 != 0).sum())
        own = quantiles((log["observed"] - log["departed"])[saturated].tolist())
        there = quantiles((arrivals[np.isfinite(arrivals)] - log["departed"])[saturated].tolist())
        return {
            "own p50": own["p50"],
            "own p99": own["p99"],
            "own least": own["min"],
            "p50": there["p50"],
            "p99": there["p99"],
            "least": there["min"],
            **bare,
            "off the trace's milliseconds": off_grid,
            "cpu, probe included": share,
        }

    return measure


def delay_cases() -> dict[str, Case]:
    """Return cases of delays with and without load, and cases over the veth."""
    cases: dict[str, Case] = {}
    for name, load in (("", 0), (" under 500 Mbit/s", 500_000_000)):
        cases[f"veth, no delay,{name}".rstrip(",")] = delay_error(load, over_veth=True)
        cases[f"delay{name}"] = delay_error(load)
    return cases


def release_cases(folder: Path) -> dict[str, Case]:
    """Return cases of releases with traces of two rates."""
    cases: dict[str, Case] = {}
    for megabits in (12, 100):
        stages = trace_stages(write_trace(folder, megabits * 10**6), 64_000_000)
        cases[f"release, {megabits} Mbit/s"] = release_error(stages, megabits * 10**6)
    return cases
