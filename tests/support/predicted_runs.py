"""Folders of runs for tests that measure and report: predictions, of which a test may change single values.

A scenario is predicted once in each process.
"""

import atexit
import contextlib
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cellbed.experiments.listener import Listener
from cellbed.experiments.virtual import run as prediction
from cellbed.experiments.virtual.profile import Profile
from cellbed.measure.packets import MAGIC, read_packets
from cellbed.measure.summary import ApplicationSummary, Summary
from cellbed.scenario import parse
from cellbed.testbed.plan import make_plan
from cellbed_node.temporary import temporary_folder
from in_process import cellbed
from scenario_text import app_table, scenario_head

SECOND = 1_000_000_000
PORT = 40_000
"""Of the first connection of each endpoint."""
SAMPLE = {
    "generator": 50_000,
    "preprocessing": 6_000_000,
    "remote_stack": 400_000,
    "dispatch": 50_000,
    "decode": 4_000_000,
    "inference": 12_000_000,
    "reply": 100_000,
    "remote_reply": 400_000,
    "receive": 200_000,
    "input": "000.jpg",
    "bytes_up": 60_000,
    "output": "class 417",
}
"""Times of the programs for a request, ns; the inference up to 3.5 ms more."""
_PROOF = [
    {"what": "edge-0 CPU limit", "asked": 1.0, "measured": 0.99, "unit": "CPUs", "ok": True, "note": ""},
    {"what": "mobile-0.uplink rate", "asked": 8.0, "measured": 7.94, "unit": "Mbit/s", "ok": True, "note": ""},
    {"what": "mobile-0.uplink delay", "asked": 10.0, "measured": 10.06, "unit": "ms", "ok": True, "note": ""},
]


def make_run(
    path: Path,
    *,
    duration: float = 8,
    rate: float = 7,
    endpoints: int = 1,
    uplink: float = 8,
    queue: str = "250 kB",
    loss: float = 0,
    outages: tuple[tuple[float, float], ...] = (),
    timeout: float = 4,
    drain: float = 5,
    other: float | None = None,
    proxy: str | None = None,
    seed: int = 1,
    packet_log: str | None = None,
    **description: Any,
) -> None:
    """Fill `path` with a run of image classification without tables and report, predicted but described as a real one.

    Times in s, rates in Mbit/s and requests a second. uplink: its mean capacity; outages: begins and lengths, of the
    uplinks. other: rate of a second application, in the cloud. proxy: kind of one at the tower. packet_log: its
    maximum size. description: replaces values in ``run.json``.
    """
    node = {"cpus": 1.0, "memory": "512 MiB"}
    nodes = {"endpoint": {"count": endpoints, **node}, "edge": node} | ({"cloud": node} if other is not None else {})
    mobile = {
        "up": f"{uplink}.up",
        "down": "12.down",
        "base_delay": "10 ms",
        "queue": {"kind": "droptail", "limit": queue},
        "loss": {"uplink": loss},
        "outage": {"uplink": [[f"{begin} s", f"{length} s"] for begin, length in outages]},
    } | ({"proxy": {"kind": proxy}} if proxy else {})
    core, transport = {"edge": "500 us", "cloud": "500 us"}, {"congestion_control": "cubic"}
    about = {"name": "offload-simulated", "duration": f"{duration} s", "seed": seed}
    about |= {"packet_log": packet_log} if packet_log is not None else {}
    text = scenario_head(nodes, mobile=mobile, core=core, **about, transport=transport)
    for name, server, each in (("workload", "edge", rate), ("other", "cloud", other)):
        if each is not None:
            load = {"rate": f"{each} /s", "arrivals": "periodic", "timeout": f"{timeout} s", "drain": f"{drain} s"}
            text += app_table(name, "image-classification", server=server, images=20, **load)
    shutil.copytree(_predicted(text), path, ignore=shutil.ignore_patterns("profile.json"), dirs_exist_ok=True)
    described = json.loads((path / "run.json").read_text())
    for direction in described["directions"]:
        for played in (direction["trace"], direction["played"]):
            if played:
                played["synthetic"] = True
    described |= {"clock": "real", "notes": [], "proof": _PROOF, "first_request_s": 1.9}
    described["emulator"]["lateness_ns"] = {"p50": 28_000, "p99": 180_000, "max": 900_000}
    described["emulator"]["interfaces"] = {node["name"]: {"dropped": 0, "packets": 9} for node in described["nodes"]}
    _write_samples(path / "raw", described)
    (path / "run.json").write_text(json.dumps(described | description))


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Change the value in a JSON file in place."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def read_lines(path: Path) -> list[Any]:
    """Return the values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: list[Any]) -> None:
    """Write a file of JSON lines."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read_log(run: Path) -> np.ndarray[Any, Any]:
    """Return a copy of the packet log of a run."""
    return np.array(read_packets(run / "raw" / "packets.bin"))


def write_log(run: Path, records: np.ndarray[Any, Any]) -> None:
    """Write the packet log of a run."""
    (run / "raw" / "packets.bin").write_bytes(MAGIC + records.tobytes())


def repeat_later(run: Path, port: int) -> None:
    """Repeat all requests of a run of one endpoint 15 s later, over a new connection from this port."""
    later = 15 * SECOND
    log = read_log(run)
    again = log.copy()
    again["packet"] += log["packet"].max() + 1
    again["tcp_sequence"] += 70_000_000
    for stamp in ("arrived", "released", "departed", "observed"):
        again[stamp] += later
    for end in ("source_port", "destination_port"):
        again[end][again[end] == PORT] = port
    write_log(run, np.concatenate([log, again]))
    for path in (run / "raw").glob("workload.*.jsonl"):
        lines = read_lines(path)
        for line in list(lines):
            stamps = [name for name, at in line.items() if name.endswith("_ns") and name != "buffer_full_ns" and at]
            moved = {name: line[name] + later for name in stamps} | {"request": line["request"] + len(lines)}
            lines.append(line | moved | ({"local_port": port} if "local_port" in line else {}))
        write_lines(path, lines)
    change_json(run / "run.json", lambda described: described.update(duration_ns=described["duration_ns"] + later))


def only(summary: Summary) -> ApplicationSummary:
    """Return the application of a run that has one."""
    (found,) = summary.applications
    return found


@functools.cache
def _predicted(text: str) -> Path:
    kept = contextlib.ExitStack()
    folder = kept.enter_context(temporary_folder())
    atexit.register(kept.close)
    scenario_links = [line.split('"')[1] for line in text.splitlines() if line.startswith(("up =", "down ="))]
    for name in scenario_links:
        (folder / name).write_text(_trace(float(name.rpartition(".")[0])))
    samples = [SAMPLE | {"inference": 12_000_000 + 500_000 * number} for number in range(8)] + [SAMPLE] * 2
    profile = Profile("the test", {"workload": samples, "other": samples}, limited=True)
    profile.write(folder / "profile.json")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("XDG_CACHE_HOME", raising=False)  # a test may have its own, without photographs
        scenario = parse(text, source="the scenario", folder=folder)
        options = prediction.Options(folder, folder, profile=folder / "profile.json")
        outcome = prediction.run(text, make_plan(scenario), options, Listener())
    assert outcome.folder is not None, outcome.error
    return outcome.folder


def _trace(rate: float) -> str:
    """Return the opportunities of a minute whose rate swings slowly around a mean, Mbit/s."""
    at = np.arange(60_000)
    swing = 1 + 0.5 * np.sin(at / 4300) + 0.25 * np.sin(at / 900)
    count = np.diff(np.floor(np.cumsum(rate / 12 * swing)), prepend=0).astype(int)
    return "".join(f"{stamp}\n" for stamp in np.repeat(at, count))


def _write_samples(raw: Path, described: dict[str, Any]) -> None:
    """Write samples of the nodes and of a machine on which nothing else runs, as a real run has them."""
    t0, seconds = described["t0_ns"], (described["duration_ns"] + described["drain_ns"]) // SECOND
    nodes = []
    for step in range(10 * seconds):
        for node in described["nodes"]:
            share, throttled = (0.07, 0) if node["class"] == "endpoint" else (0.3, min(max(step - 30, 0), 40))
            sample = {"time_ns": t0 + step * SECOND // 10, "node": node["name"], "oom_kills": 0}
            sample |= {"cpu_ns": round(share * step * SECOND / 10), "memory_bytes": 92_000_000 + 10_000 * step}
            limit = {"throttled_periods": throttled // 2, "throttled_ns": throttled * SECOND // 50}
            nodes.append(sample | limit | {"periods": step})
    write_lines(raw / "nodes.jsonl", nodes)
    undisturbed = {"idle_ns": 1900, "own_ns": 90, "steal_ns": 0, "pressure_ns": 20}
    host = [
        {"time_ns": t0 + second * SECOND, "realtime_ns": 0, "boottime_ns": 0, "cpus": 2, "nodes": []}
        | {name: ms * 1_000_000 * second for name, ms in undisturbed.items()}
        for second in range(seconds)
    ]
    write_lines(raw / "host.jsonl", host)


def predict_http(folder: Path, text: str, *apps: str, size: int = 2, kept: bool = True) -> Path:
    """A run in virtual time. size: of the replies, bytes; kept: whether connections stay."""
    taken = {"generator": 0, "server": 1_000_000, "receive": 0, "bytes_up": 0, "input": None}
    answer = {"code": 200, "bytes_down": size, "wire_down": size + 40, "head": 40, "kept": kept, "services": {}}
    Profile("the test", dict.fromkeys(apps, [taken | answer] * 10)).write(folder / "profile.json")
    (folder / "x.toml").write_text(text)
    asked = ("--virtual", "--profile", folder / "profile.json", "--out", folder / "runs")
    done = cellbed("run", folder / "x.toml", *asked, status=0)
    (folder / "output").write_text(done.stdout)
    (found,) = (folder / "runs").iterdir()
    return found
