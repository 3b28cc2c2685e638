"""What Python sees of the Rust parts besides the emulator: traces and positions in TOML files."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from cellbed._core import parse_trace, toml_longest_key, toml_positions


def test_a_trace_answers_in_bytes_and_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "some.up").write_text("# recorded\n2\n2\r\n\n5")
    trace = parse_trace(tmp_path / "some.up")
    assert trace.opportunities == 3
    assert trace.mean_bit_rate == 3 * 1500 * 8 / 0.005
    assert trace.bins(1_000_000) == [0, 0, 3000, 0, 1500]
    assert trace.capacity(0, 10_000_000_000) == 1500 * (3 * 2000 - 1)
    assert trace.next_opportunity(5_000_001) == 7_000_000
    assert repr(trace) == "Trace(opportunities=3, duration_ns=5000000)"


def test_keys_are_found_wherever_they_stand() -> None:
    text = """\
name = "x"
[links.mobile]
  up = "a"
queue = { kind = "droptail", limit = "1 MB" }
a.b = 3
[[node]]
count = 1
[[node]]
count = 2
list = [1, {y = 2}]
"ü" = "ü"; """.replace("; ", "\n")
    positions = toml_positions(text)
    assert positions["name"] == (1, 1)
    assert positions["links.mobile"] == (2, 8)
    assert positions["links.mobile.up"] == (3, 3)
    assert positions["links.mobile.queue.limit"] == (4, 30)
    assert positions["links.mobile.a"] == (5, 1)
    assert positions["links.mobile.a.b"] == (5, 3)
    assert positions["node[0].count"] == (7, 1)
    assert positions["node[1]"] == (8, 1)
    assert positions["node[1].list[1].y"] == (10, 13)
    assert positions["node[1].ü"] == (11, 1)
    assert toml_positions("") == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [("a = 1\na = 2\n", "2:1: duplicate key"), ("[x\n", "1:3: unclosed table"), ("ok = 1\nb = \n", "2:5: ")],
)
def test_malformed_toml_is_told_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="^" + says):
        toml_positions(text)


PARTS = st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True) | st.text(st.characters(codec="utf-8"), max_size=4)
TABLES = st.recursive(
    st.integers(0, 9) | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(PARTS, each, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(PARTS, TABLES, max_size=4))
def test_every_key_of_a_document_has_a_place_where_it_stands(data: dict[str, Any]) -> None:
    text = tomli_w.dumps(data)
    lines = text.split("\n")
    positions = toml_positions(text)
    # A path as text does not differ for keys with dots, brackets or nothing in them.
    for key in data if all(key.isidentifier() for key in data) else ():
        line, column = positions[key]
        assert lines[line - 1][column - 1 :].startswith((key, '"'))


TOML_BITS = st.sampled_from(
    [*"[]{}.,\n#\\1é", "a", "b.c", '"x"', "'y'", '"""', "'''", "[[", "]]", " = ", "\r\n"],
)


@given(st.text(max_size=60) | st.lists(TOML_BITS, max_size=40).map("".join))
def test_any_text_has_positions_or_an_error_with_a_place(text: str) -> None:
    parts, line = toml_longest_key(text)
    assert parts >= 0
    assert 1 <= line <= text.count("\n") + 1
    try:
        found = toml_positions(text)
    except ValueError:
        return
    for place, column in found.values():
        assert 1 <= place <= text.count("\n") + 1
        assert column >= 1


@pytest.mark.parametrize("length", [65, 500_000])
def test_a_key_of_many_parts_is_refused(length: int) -> None:
    text = ".".join(["a"] * length)
    for whole in (f"{text} = 1", f"[{text}]", f"x = [{{{text} = 1}}]"):
        with pytest.raises(ValueError, match="a key of more than 64 parts"):
            toml_positions(whole)
