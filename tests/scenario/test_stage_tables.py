"""The tables that the path model's schema makes: what they write is what the path model reads."""

import json
from pathlib import Path
from typing import Any

import pytest

from cellbed import _core
from cellbed.scenario.json_schema import schema_of
from cellbed.scenario.stage_tables import StageTable, stage_tables
from cellbed.support.stages import describe_queue, describe_stage, place_of

PLACES = ("loss", "delay", "schedule", "queue", "flow-limit", "bottleneck")
TABLES = {f"{place} {kind}": table for place in PLACES for kind, table in stage_tables(place).items()}
del TABLES["bottleneck conditional"]  # cellbed derives its file


def written(table: type[StageTable]) -> dict[str, Any]:
    """Return a table as in a file, of the examples of its required keys."""
    properties = schema_of(table, "a table")["properties"]
    keys = {
        key: (field.get("examples") or field["enum"])[0]
        for key, field in properties.items()
        if table.model_fields[key].is_required() and key != "kind"
    }
    if "kind" in properties:
        keys["kind"] = properties["kind"]["const"]
    if "steps" in properties:
        keys["steps"] = [["0 s", properties["steps"]["examples"][0][0][1]]]
    return keys | ({"points": [["0 s", "10 ms"]]} if "points" in properties else {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "delay.csv").write_text("delay_ms\n9\n11\n")
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "up-delay-light-pdo").write_text("0 20 0 1 3 6\n")
    (tmp_path / "recordings" / "up-heavy-pdo").write_text("2\n4\n")
    return tmp_path


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_of_examples_is_a_stage_that_is_described(table: type[StageTable], folder: Path) -> None:
    stage = table.model_validate(written(table), context={"folder": folder}).stage(start_ns=1000, seed=7)
    place = table.KIND.place
    if place == "queue":
        assert describe_queue(stage).partition(" queue")[0] == table.KIND.schema["title"]
        stage = {"kind": "bottleneck", "schedule": {"kind": "unlimited"}, "queue": stage}
    elif place == "schedule":
        stage = {"kind": "bottleneck", "schedule": stage, "queue": {"kind": "infinite"}}
    elif place == "flow-limit":
        stage = {"kind": place, **stage}
    elif place == "bottleneck":
        stage |= {"queue": {"kind": "infinite"}}
    _core.Direction(json.dumps([stage]), [])
    assert "{" not in describe_stage(stage)
    assert place_of(stage) == {"queue": "bottleneck", "schedule": "bottleneck"}.get(place, place)
