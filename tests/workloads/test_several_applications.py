"""Two node groups with their own links and two applications in one run."""

import json
from pathlib import Path

import polars as pl
import pytest

from cellbed.measure.links import read_links
from cellbed.measure.outages import find_outages
from in_process import cellbed

SCENARIO = Path(__file__).parents[2] / "scenarios" / "two-applications.toml"


@pytest.mark.needs_tun
def test_each_group_has_its_link_and_each_application_its_results(tmp_path: Path) -> None:
    done = cellbed("run", SCENARIO, "--out", tmp_path, "--no-limits", status=0)
    (run,) = tmp_path.iterdir()
    summary = {each["name"]: each for each in json.loads((run / "summary.json").read_text())["applications"]}
    assert set(summary) == {"page", "poll"}
    requests = pl.read_parquet(run / "requests.parquet")
    assert set(requests["app"]) == {"page"}
    assert set(requests["endpoint"]) == {"phone-0", "phone-1"}
    assert len(requests) == 40
    clients = pl.read_parquet(run / "connections.parquet").group_by("app").agg(pl.col("client").unique().sort())
    assert dict(clients.iter_rows()) == {"page": ["phone-0", "phone-1"], "poll": ["car-0"]}
    described = json.loads((run / "run.json").read_text())
    played = {each["name"]: each["trace"] for each in described["directions"] if each["trace"] is not None}
    assert [played[f"mobile-phone-{index}.uplink"]["offset_ns"] for index in (0, 1)] == [0, 5 * 10**9]
    assert "mobile-car-0.uplink" not in played
    failed = [each for each in find_outages(described, read_links(run, described)) if each.endpoint == "car-0"]
    assert [(each.way, round(each.begin_s, 1), round(each.length_s, 1)) for each in failed] == [
        ("uplink", 2.0, 0.5),
        ("downlink", 2.0, 0.5),
    ]
    done = cellbed(
        "log", "convert", run, "--to", "mahimahi", "--direction", "mobile-phone-1.uplink", "-o", "-", status=0
    )
    assert " # 1500" in done.stdout
