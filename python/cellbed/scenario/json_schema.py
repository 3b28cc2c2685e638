"""The JSON Schema of scenario files (draft 2020-12), for completion and checks in editors."""

from typing import Any

from cellbed.scenario.model import Scenario
from cellbed.scenario.table import Table

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the schema of a scenario file: quantities are text with a unit, unknown keys are refused."""
    return schema_of(Scenario, "cellbed scenario")


def schema_of(model: type[Table], title: str) -> dict[str, Any]:
    """Return the schema of a kind of file."""
    return {"$schema": DRAFT, **_clean_schema(model.model_json_schema()), "title": title}


def _clean_schema(node: Any, *, names: bool = False) -> Any:
    """Return ``node`` without null, which TOML lacks, and without titles, which only repeat the key's name.

    names: whether the keys of ``node`` are names in the scenario, not words of the schema language.
    """
    if isinstance(node, list):
        return [_clean_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    if names:
        return {name: _clean_schema(inner) for name, inner in node.items()}
    kept = {
        word: _clean_schema(inner, names=word in ("properties", "$defs"))
        for word, inner in node.items()
        if word not in ("title", "discriminator") and not (word == "default" and inner is None)
    }
    options = [option for option in kept.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        del kept["anyOf"]
        return {**options[0], **kept}
    return kept
