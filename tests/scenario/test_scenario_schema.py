"""The published JSON Schema accepts what the reader accepts, as a user writes it, and refuses what is wrong."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cellbed.archive import ARCHIVE, resolve
from cellbed.archive.examples import MODELS
from cellbed.scenario import Scenario, load, parse
from cellbed.scenario.json_schema import json_schema
from cellbed.scenario.places import PLACES
from cellbed.support.units import DURATION
from in_process import cellbed
from scenario_text import GOOD

ROOT = Path(__file__).parents[2]
LOADS = [
    ('{ kind = "closed", in_flight = 4 }\npolicy = { kind = "reduce-resolution" }', {"kind": "closed", "in_flight": 4}),
    (
        '{ kind = "bursts", size = 5, interval = "2 s" }\npolicy = { kind = "halve", above = "1 s" }',
        {"kind": "bursts", "size": 5, "interval_ns": 2_000_000_000},
    ),
    ('{ kind = "ramp", from = "0 /s", to = "20 /s" }', {"kind": "ramp", "begin": 0.0, "end": 20.0}),
    ('{ kind = "recorded", file = "arrivals.csv" }', {"kind": "recorded", "times_ns": [0, 250_000_000]}),
]
PAGES = [ROOT / "docs/reference/scenario.md", *sorted((ROOT / "docs/reference/scenario").glob("*.md"))]
SHIPPED = sorted((ROOT / "scenarios").glob("*.toml"))


@pytest.fixture(scope="module")
def validator() -> Any:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is missing: pip install cellbed[dev]")
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_scenarios_are_valid(validator: Any, path: Path) -> None:
    scenario = load(path)
    resolved = json.loads(json.dumps(scenario.resolved()))
    assert Scenario.model_validate(resolved, context={"folder": path.parent}) == scenario
    assert scenario.name == path.stem
    assert [error.message for error in validator.iter_errors(tomllib.loads(path.read_text()))] == []


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("queue =", "qeue ="),
        ('"60 s"', '"60 sec"'),
        ('edge = "base-edge"', 'edge = "us-west-1"'),
        ('start = "0 s"', 'loss = { uplink = "100 %" }'),
        ('on = "edge"\n', ""),
        ('"periodic"', '"closed"'),
        ('name = "test"\n', ""),
    ],
)
def test_mistakes_are_refused(validator: Any, was: str, becomes: str) -> None:
    assert validator.is_valid(tomllib.loads(GOOD))
    assert validator.is_valid(tomllib.loads(GOOD.replace('start = "0 s"', 'loss = { uplink = "1 %" }')))
    assert not validator.is_valid(tomllib.loads(GOOD.replace(was, becomes, 1)))


@pytest.mark.parametrize(("load", "arrivals"), LOADS)
def test_loads_are_valid_and_resolved(validator: Any, tmp_path: Path, load: str, arrivals: dict[str, Any]) -> None:
    (tmp_path / "arrivals.csv").write_text("time_ms,user\n0,a\n250,b\n")
    text = GOOD.replace('rate = "2 /s"\narrivals = "periodic"', f"arrivals = {load}")
    scenario = parse(text, source="x.toml", folder=tmp_path)
    assert scenario.applications["workload"].arrivals.stage() == arrivals
    assert validator.is_valid(tomllib.loads(text))
    assert Scenario.model_validate(scenario.resolved(), context={"folder": tmp_path}) == scenario


def test_defaults_and_examples_in_the_schema_are_valid_by_it(validator: Any) -> None:
    schema = json_schema()
    for field in _fields(schema):
        here = validator.evolve(schema={"$defs": schema["$defs"], **field})
        for value in [*field.get("examples", []), *([field["default"]] if "default" in field else [])]:
            assert here.is_valid(value), (field, value)


def test_command_prints_the_schema() -> None:
    assert json.loads(cellbed("schema").stdout) == json_schema()


def test_every_key_is_described_in_the_schema_and_the_documentation() -> None:
    page = "".join(path.read_text() for path in PAGES)
    for table in [json_schema(), *json_schema()["$defs"].values()]:
        for key, field in table["properties"].items():
            assert f"`{key}`" in page, key
            assert field.get("description") or "const" in field, key


def test_tables_of_the_reference_are_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_documentation_lists_presets_traces_and_the_example() -> None:
    page = "".join(path.read_text() for path in PAGES)
    for preset in PLACES.values():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{preset.name}`"))
        assert DURATION.format(preset.one_way) in row
    for name in ARCHIVE:
        model, trace = MODELS[name], resolve(name, Path()).trace
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert [cell.strip() for cell in row.split("|")[2:7]] == [
            {"up": "uplink", "down": "downlink"}[name.rpartition(".")[2]],
            f"{trace.duration_ns / 1e9:.0f}",
            f"{trace.mean_bit_rate / 1e6:.1f}",
            f"{trace.longest_gap_ns / 1e6:.0f}",
            f"{model.low / 1e6:g} to {model.high / 1e6:g}",
        ]


def test_documentation_shows_a_scenario_that_can_be_read(tmp_path: Path) -> None:
    page = PAGES[0].read_text()
    example = tmp_path / "example.toml"
    example.write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert load(example).name == "offload-lte"


def _fields(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for table in [schema, *schema["$defs"].values()]:
        yield from table["properties"].values()
