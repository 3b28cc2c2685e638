"""What errors say."""

from __future__ import annotations

from pathlib import Path

import pytest

from cellbed.errors import CellbedError
from cellbed.scenario import load_text


def test_what_a_terminal_would_act_on_is_escaped() -> None:
    assert str(CellbedError("a\x1b[2Jb\nµ — ü")) == "a\\x1b[2Jb\nµ — ü"
    with pytest.raises(CellbedError) as caught:
        load_text('"na\\u001bme" = 1\n', Path("x\x07.toml"))
    assert "\x1b" not in str(caught.value)
    assert "\x07" not in str(caught.value)
