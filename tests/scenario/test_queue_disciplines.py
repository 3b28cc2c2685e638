"""Queue disciplines have the same keys and defaults in scenarios as in the path model."""

import json
from typing import Any, get_args

import pytest

from cellbed import _core
from cellbed.scenario.queues import Discipline, Queue

MODEL: dict[str, dict[str, Any]] = {table["kind"]: table for table in json.loads(_core.queue_disciplines())}
TABLES: dict[str, type[Discipline]] = {
    get_args(table.model_fields["kind"].annotation)[0]: table for table in get_args(get_args(Queue)[0])
}
MAHIMAHI = {"mahimahi-codel", "mahimahi-pie"}
"""Disciplines of Mahimahi's commands alone."""
LIMIT = {"packets", "bytes"}
MODEL_ONLY = {"service_ns", "seed"}
"""Keys without a counterpart in scenarios; the seed is the run's."""


def test_scenarios_have_all_disciplines_of_the_path_model() -> None:
    assert set(TABLES) == set(MODEL) - MAHIMAHI


@pytest.mark.parametrize("kind", TABLES)
def test_keys_and_defaults_of_a_discipline_are_those_of_the_path_model(kind: str) -> None:
    table = TABLES[kind].model_validate({"kind": kind})
    written, model = table.stage(), MODEL[kind]
    assert set(written) == set(model) - MODEL_ONLY
    assert ("seed" in model) == table.DRAWS
    assert {key: written[key] for key in set(written) - LIMIT} == {key: model[key] for key in set(written) - LIMIT}
