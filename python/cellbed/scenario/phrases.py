"""Values of the scenario file in one line of text, as command lines have them: ``codel target=5ms limit=100 packets``.

A plain value is written as in the file, without quotes. A table is its kind followed by its keys, ``normal mean=20ms
deviation=3ms``, or TOML's inline table. Short forms: a queue's limit follows its kind and stands alone for drop-tail, a
recording is named by its CSV file, a delay without a unit counts milliseconds as with mm-delay.
"""

import re
import tomllib
from typing import Any

from cellbed.support.units import UnitError, parse_probability

_KEY = re.compile(r"(?:^|\s+)([a-z_]+)\s*=\s*")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?")
_CHANCES = ("loss", "duplication", "corruption")


def written(key: str, text: str, *, running: bool = False) -> Any:
    """Return the scenario file's value where `key` (``rate``, ``delay``, ``queue``, ``loss`` …) has this `text`.

    running: of a link that runs already, which may lose everything.

    Errors: :class:`UnitError` for malformed text; values are validated later.
    """
    text = text.strip()
    if text[:1] in ("{", "["):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except ValueError as error:
            raise UnitError(f'{text} is not an inline table of TOML: write {{ kind = "…", … }}') from error
    head, *rest = _KEY.split(text)
    keys = {name: _value(value.strip()) for name, value in zip(rest[::2], rest[1::2], strict=True)}
    if key == "queue":
        return _queue(head.strip(), keys)
    if keys:
        return {"kind": head.strip(), **keys}
    if text.endswith(".csv"):
        return {"kind": "series", "file": text}
    if key == "delay" and text.isascii() and text.replace(".", "", 1).isdecimal():
        return f"{text} ms"
    return parse_probability(text, certain=running and key == "loss") if key in _CHANCES else text


def _queue(head: str, keys: dict[str, Any]) -> dict[str, Any]:
    if not head:
        raise UnitError("not a queue: write '1 MB', '100 packets', 'infinite' or a kind such as 'codel'")
    kind, _, limit = head.partition(" ") if head[0].isalpha() else ("droptail", "", head)
    return {"kind": kind, **({"limit": limit.strip()} if limit.strip() else {}), **keys}


def _value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    return text
