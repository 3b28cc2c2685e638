"""Traffic classes from a scenario to its links, in virtual time."""

from pathlib import Path

import polars as pl
import pytest

from in_process import run_scenario
from scenario_text import iperf3_table, scenario_head

RATE = 12.0
"""IP bytes of the downlink, Mbit/s."""


def shares(folder: Path, classes: list[dict[str, object]], dscps: dict[str, int | None], *options: str) -> list[float]:
    """Return the share of each of some servers in the downlink of one endpoint, while all send."""
    nodes = {"endpoint": {"cpus": 1.0}}
    nodes |= {
        name: {"class": "edge", "cpus": 1.0, **({} if dscp is None else {"dscp": dscp})} for name, dscp in dscps.items()
    }
    text = scenario_head(
        nodes,
        mobile={
            **{"up": "unlimited", "down": f"{RATE} Mbit/s", "base_delay": "10 ms"},
            "queue": {"kind": "classes", "classes": classes},
        },
        core={"edge": "0 ms"},
        duration="12 s",
        skip="2 s",
        transport={"congestion_control": "reno"},
    )
    for number, name in enumerate(dscps):
        text += iperf3_table(f"bulk-{name}", "-t 10 -R", 5201 + number, server={"on": name})
    run = run_scenario(folder, text, *options)
    rows = pl.read_parquet(run / "connections.parquet").filter(pl.col("to_client_bytes") > 1000)
    carried = [rows.filter(app=f"bulk-{name}")["to_client_wire_bytes"].sum() for name in dscps]
    assert sum(carried) * 8 / 8e6 > 0.9 * RATE
    return [each / sum(carried) for each in carried]


WEIGHTED = [{"dscp": [10], "weight": 3, "limit": "60 kB"}, {"weight": 1, "limit": "60 kB"}]


def test_weighted_classes_share_a_link(tmp_path: Path) -> None:
    heavy, light = shares(tmp_path, WEIGHTED, {"heavy": 10, "light": None}, "--virtual")
    assert heavy == pytest.approx(0.75, abs=0.02)
    assert light == pytest.approx(0.25, abs=0.02)


def test_strict_class_leaves_nothing_to_a_class_below(tmp_path: Path) -> None:
    classes = [{"dscp": [46], "limit": "60 kB"}, {"limit": "60 kB"}]
    urgent, rest = shares(tmp_path, classes, {"urgent": 46, "rest": None}, "--virtual")
    assert urgent > 0.95
    assert rest < 0.05
