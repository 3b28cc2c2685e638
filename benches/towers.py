"""Downloads without a proxy, through the emulator's proxy, and through a program like it on the node of a tower.

    .venv/bin/python benches/towers.py --conditions 8                   # five minutes when idle
    .venv/bin/python benches/towers.py --conditions 8 --proxy mmcptp

A condition is drawn by its number and --seed alone: rates of the radio link, delays of radio and core, loss, size of
the files, and two users with one or two flows each, one file after the other. The result is the mean completion time of
the files, and its ratios. --first: number of the first condition.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import tomli_w

from cellbed import radio
from cellbed.experiments.listener import Listener
from cellbed.experiments.real_run import Options, run
from cellbed.experiments.run import finish
from cellbed.scenario.reader import parse
from cellbed.testbed.plan import make_plan

EXAMPLES = Path(__file__).parents[1] / "scenarios"
READER = Path(radio.__file__)
WAYS = ("none", "emulator", "tower")


def draw(seed: int, number: int) -> dict[str, Any]:
    """Return a condition."""
    of = Random(f"{seed} {number}")
    return {
        "down_mbit_s": of.choice([10, 20, 40, 60]),
        "radio_ms": of.choice([5, 10, 20]),
        "core_ms": of.choice([20, 40, 80]),
        "loss_percent": of.choice([0.0, 0.1, 0.5]),
        "size_kb": of.choice([200, 500, 1000]),
        "flows": of.choice([2, 4]),
    }


def scenario(condition: dict[str, Any], way: str, proxy: str) -> dict[str, Any]:
    """Return the scenario of a condition. proxy: split or mmcptp."""
    node = {"cpus": 1.0, "memory": "256 MiB"}
    mobile: dict[str, Any] = {
        "up": "20 Mbit/s",
        "down": f"{condition['down_mbit_s']} Mbit/s",
        "base_delay": f"{condition['radio_ms']} ms",
        "queue": {"kind": "droptail", "limit": "1 MB"},
        "loss": {"downlink": f"{condition['loss_percent']} %"},
    }
    nodes: dict[str, Any] = {"endpoint": {**node, "count": 2}, "cloud": node}
    download = {
        "kind": "transfers",
        "server": "cloud",
        "download": [f"{condition['size_kb']} kB"],
        "arrivals": "closed",
    }
    apps: dict[str, Any] = {f"files{number}": {**download} for number in range(condition["flows"] // 2)}
    if way == "emulator":
        mobile["proxy"] = {"kind": proxy}
    if way == "tower":
        nodes["mast"] = {**node, "class": "tower", "intercept": 5000}
        server = {"on": "mast", "command": f"python3 tower-{proxy}.py 5000", "ready": {"port": 5000}}
        server["copy_in"] = {str(EXAMPLES / f"tower-{proxy}.py"): f"tower-{proxy}.py", str(READER): READER.name}
        apps = {name: {**table, "after": ["proxy"]} for name, table in apps.items()}
        apps["proxy"] = {"kind": "program", "server": server}
    return {
        "name": f"towers-{way}",
        "duration": "8 s",
        "nodes": nodes,
        "links": {"mobile": mobile, "core": {"cloud": f"{condition['core_ms']} ms"}},
        "transport": {"congestion_control": "reno"},
        "apps": apps,
    }


def measure(condition: dict[str, Any], way: str, proxy: str, folder: Path) -> float:
    """Return the mean completion time of a condition's files, seconds."""
    text = tomli_w.dumps(scenario(condition, way, proxy))
    plan = make_plan(parse(text, source=way, folder=folder))
    listener = Listener()
    outcome = run(text, plan, Options(folder, limits=False, proof=False), listener)
    finish(outcome, listener)
    assert outcome.folder is not None
    requests = pl.read_parquet(outcome.folder / "requests.parquet").filter(pl.col("status") == "ok")
    return float(requests["latency_s"].mean() or float("nan"))  # type: ignore[arg-type]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conditions", type=int, default=8)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--proxy", choices=("split", "mmcptp"), default="split")
    asked = parser.parse_args()
    print(f"condition, seconds without a proxy, {asked.proxy} / without, tower-{asked.proxy}.py / {asked.proxy}")
    for number in range(asked.first, asked.first + asked.conditions):
        condition = draw(asked.seed, number)
        with tempfile.TemporaryDirectory(prefix="cellbed-towers-") as folder:
            none, own, tower = (measure(condition, way, asked.proxy, Path(folder)) for way in WAYS)
        print(f"{number} {condition}: {none:.3f} {own / none:.3f} {tower / own:.3f}", flush=True)


if __name__ == "__main__":
    main()
