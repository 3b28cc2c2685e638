"""Parts of every page: the chart library, the style, data that a script may read."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from cellbed.measure.run_folder import MeasureError

HERE = Path(__file__).parent
ASSETS = HERE / "assets"
FILES = ("uPlot.iife.min.js", "uPlot.min.css", "uPlot.LICENSE.txt")


class AssetError(MeasureError):
    """The chart library is not installed."""


def chart_library() -> dict[str, str]:
    """Return the text of the chart library's files by name. Raises AssetError where they are missing."""
    return {name: _asset(ASSETS / name) for name in FILES}


def style() -> str:
    """Return the style that all pages begin with."""
    return (HERE / "page" / "page.css").read_text(encoding="utf-8")


def embed_json(data: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


@cache
def _asset(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise AssetError(
            f"{path}: the chart library is missing; run `python scripts/fetch_assets.py` in the clone "
            "(`make setup` does), then the same command again"
        ) from None
