"""Transports of data centres have the same keys in simulation files as in the simulator."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from cellbed.scenario.table import Table
from cellbed_datacentre import _core
from cellbed_datacentre.transports import AnyTransport

ROOT = Path(__file__).parents[1]
MODEL: dict[str, dict[str, Any]] = {it["table"]["kind"]: it["table"] for it in json.loads(_core.transports())}
TABLES: dict[str, type[Table]] = {
    get_args(table.model_fields["kind"].annotation)[0]: table for table in get_args(AnyTransport)
}
MODEL_ONLY = {"dctcp": {"control"}}
"""Keys that have no effect for a kind."""


def test_simulation_files_have_all_transports_of_the_simulator() -> None:
    assert set(TABLES) == set(MODEL)


def test_the_reference_has_a_row_of_every_transport() -> None:
    page = (ROOT / "docs/simulation-file.md").read_text()
    section = page.partition("\n## `transport`\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r'^\| `"(\S+)"`', section, re.MULTILINE)) == sorted(MODEL)


@pytest.mark.parametrize("kind", TABLES)
def test_keys_of_a_transport_are_those_of_the_simulator(kind: str) -> None:
    model = {key.removesuffix("_ps") for key in MODEL[kind]} - MODEL_ONLY.get(kind, set())
    assert set(TABLES[kind].model_fields) == model
