"""Write the tables of the reference of scenario files from its schema, and the recorder's default trains:
`python scripts/reference.py [--check]`.

A page has a table between `<!-- keys: TABLE … -->` or `<!-- kinds: PLACE -->` and `<!-- end -->`. `keys` lists the keys
of tables, of an application beyond the shared ones; `kinds` lists the keys of all kinds of a stage, after an example
of each.
"""

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cellbed.recordings.conditional import conditional_plan
from cellbed.scenario.applications import tables
from cellbed.scenario.json_schema import json_schema, schema_of
from cellbed.scenario.model import Scenario
from cellbed.scenario.stage_tables import stage_tables
from cellbed.scenario.table import Table

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
PROBES = REFERENCE.parents[1] / "crates" / "recorder" / "src" / "command" / "probes.json"
"""Trains of a default recording, for the recorder alone."""
KEYS = {"loss": "loss", "delay": "base_delay", "schedule": "up", "queue": "queue"}
"""Keys of a mobile link in the examples of kinds."""
_BLOCK = re.compile(r"(<!-- (keys|kinds): (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)

Schema = dict[str, Any]


def value_words(schema: Schema, definitions: dict[str, Schema]) -> str:
    """Return the values that a schema allows, in words."""
    if "$comment" in schema:
        return re.sub(r'[a-z ]+, (above )?"(.*)" to "(.*)"', r"\1\2–\3", str(schema["$comment"]))
    if "$ref" in schema:
        return _table_words(definitions[schema["$ref"].rpartition("/")[2]])
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _any_words(schema[word], definitions)
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        return f"list: {value_words(schema.get('items', {}), definitions)}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"table: {value_words(inner, definitions)}" if isinstance(inner, dict) else "table"
    words = {"boolean": "`true`/`false`", "integer": "whole number", "number": "number", "string": "text"}
    return words.get(str(kind), "value") + _limits(schema)


def _limits(schema: Schema) -> str:
    below, above = schema.get("exclusiveMaximum"), schema.get("exclusiveMinimum")
    least = f"above {above:g}" if above is not None else f"{schema['minimum']:g}" if "minimum" in schema else ""
    most = f"below {below:g}" if below is not None else f"{schema['maximum']:g}" if "maximum" in schema else ""
    return f" {least}–{most}" if least and most else f" {least or most}".rstrip()


def _table_words(definition: Schema) -> str:
    kind = definition["properties"].get("kind", {})
    return f"table `{kind['const']}`" if "const" in kind else "table"


def _any_words(options: list[Schema], definitions: dict[str, Schema]) -> str:
    ways = [each for each in options if {"uplink", "downlink"} == set(each.get("properties", ()))]
    plain = [each for each in options if each not in ways]
    if any("%" in str(each.get("pattern", "")) for each in plain):
        words = ["probability" + (" below 1" if any("exclusiveMaximum" in each for each in plain) else "")]
        words += ["table"] if any("$ref" in each or "oneOf" in each for each in plain) else []
    else:
        words = list(dict.fromkeys(value_words(each, definitions) for each in plain))
        kinds = [word for word in words if word.startswith("table `")]
        if len(kinds) > 1:
            words = [*(word for word in words if word not in kinds), "table"]
    return " or ".join(words) + (", both ways" if ways else "")


def toml(value: Any) -> str:
    """Return a value as in a scenario file."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _rows(schema: Schema, definitions: dict[str, Schema], keys: set[str] | None) -> Iterator[tuple[str, str, str, str]]:
    """Yield key, value, default and meaning."""
    for key, field in schema["properties"].items():
        if (keys is None or key in keys) and "const" not in field:
            default = f"`{toml(field['default'])}`" if "default" in field else ""
            if key in schema.get("required", ()):
                default = "required"
            yield f"`{key}`", value_words(field, definitions), default, field.get("description", "")


def _own_keys(table: type[Table]) -> set[str] | None:
    """Return the keys of a kind of application beyond the shared ones."""
    if table not in tables().values():
        return None
    shared = set(_find_table("Load").model_fields)
    own = {field.alias or name for name, field in table.model_fields.items() if name not in shared}
    changed = inspect.get_annotations(table).keys() & shared
    return own | set(changed)


def _find_table(name: str) -> type[Table]:
    waiting: list[type[Table]] = [Table]
    for each in waiting:
        if each.__name__ == name:
            return each
        waiting += each.__subclasses__()
    raise SystemExit(f"no table {name}")


def _table(heading: str, rows: list[tuple[str, ...]]) -> str:
    lines = [heading, "|---" * (heading.count("|") + 1) + "|", *("|".join(row) for row in rows)]
    return "".join(f"|{line}|\n" if not line.startswith("|---") else line + "\n" for line in lines)


def keys_table(names: list[str]) -> str:
    """Return the table of the keys of tables, equal keys of several in one row; without those `beyond` another one."""
    beyond: set[str] = set()
    if "beyond" in names:
        *names, _, base = names
        beyond = set(_find_table(base).model_fields)
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for name in names:
        table = _find_table(name)
        schema = json_schema() if table is Scenario else schema_of(table, name)
        kind = schema["properties"].get("kind", {})
        kinds = ", ".join(f"`{value}`" for value in kind.get("enum", [kind.get("const", "")]))
        for row in _rows(schema, schema.get("$defs", {}), _own_keys(table)):
            if row[0].strip("`") not in beyond:
                found.setdefault(row, []).append(kinds)
    return _format(found, len(names))


def kinds_table(place: str) -> str:
    """Return an example of each kind of a place, and the table of their keys."""
    examples, found = [], {}
    known = stage_tables(place)
    for kind, table in known.items():
        schema = schema_of(table, kind)
        example = {"kind": kind}
        for key, field in schema["properties"].items():
            if (table.model_fields[key].is_required() and key != "kind") or key in ("steps", "points"):
                example[key] = field["examples"][0]
        examples.append(f"{KEYS[place]} = {toml(example)}")
        for row in _rows(schema, schema.get("$defs", {}), None):
            found.setdefault(row, []).append(f"`{kind}`")
    meanings = [(f"`{kind}`", table.__doc__ or "") for kind, table in known.items()]
    code = "```toml\n" + "\n".join(examples) + "\n```\n\n"
    return code + _table("kind|meaning", meanings) + "\n" + _format(found, len(known))


def _format(found: dict[tuple[str, str, str, str], list[str]], count: int) -> str:
    if count == 1:
        return _table("key|value|default|meaning", [*found])
    rows = [
        (key, "all" if len(kinds) == count else ", ".join(kinds), *rest) for (key, *rest), kinds in sorted_rows(found)
    ]
    return _table("key|kinds|value|default|meaning", rows)


def sorted_rows(found: dict[tuple[str, str, str, str], list[str]]) -> list[tuple[tuple[str, str, str, str], list[str]]]:
    """Return rows with equal keys together."""
    order = list(dict.fromkeys(row[0] for row in found))
    return sorted(found.items(), key=lambda item: order.index(item[0][0]))


def render(page: str) -> str:
    """Return a page with its tables."""

    def block(match: re.Match[str]) -> str:
        table = keys_table(match[3].split()) if match[2] == "keys" else kinds_table(match[3])
        return f"{match[1]}\n{table}\n{match[4]}"

    return _BLOCK.sub(block, page)


def main() -> None:
    """Write the files, or with `--check` compare them."""
    pages = [REFERENCE / "scenario.md", *sorted(REFERENCE.glob("scenario/*.md"))]
    files = {path: render(path.read_text()) for path in pages}
    files[PROBES] = conditional_plan().model_dump_json(exclude_none=True) + "\n"
    for path, right in files.items():
        if path.exists() and right == path.read_text():
            continue
        if "--check" in sys.argv:
            raise SystemExit(f"{path} is not current: run python scripts/reference.py")
        path.write_text(right)


if __name__ == "__main__":
    main()
