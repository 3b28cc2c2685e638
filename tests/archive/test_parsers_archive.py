"""Parsers of the archive give a value or one line with the fault, for any text."""

import io
import json
import tomllib
from datetime import date
from pathlib import Path
from typing import Any, Final

import pytest
import tomli_w
from hypothesis import example, given, settings
from hypothesis import strategies as st

from any_text import NUMBERS, UNITS, many, value_or_line, value_or_sentence, words
from cellbed.archive import Archive
from cellbed.archive.adding import check_metadata
from cellbed.archive.entry import About
from cellbed.archive.entry_file import entry_text, read_entry
from cellbed.archive.entry_view import show
from cellbed.archive.importers import recognise
from cellbed.archive.importers.column_names import map_columns
from cellbed.scenario import load
from cellbed.support.console import Console
from field_faults import json_faults
from scenario_text import GOOD

DIGEST: Final = "5e" * 32
ENTRY: Final[dict[str, Any]] = {
    "format": "cellbed-trace",
    "version": 1,
    "name": "walk",
    "about": {"origin": "recorded", "technology": "5g", "date": "2021-04-30T14:05", "mobility": "walking"},
    "parts": {
        "uplink": {
            "file": "uplink.parquet",
            "content": "opportunities",
            "sha256": DIGEST,
            "duration_ns": 60_000_000_000,
            "rows": 3,
            "statistics": {
                "definition": 1,
                "mean_bit_s": 8e6,
                "outages": 0,
                "outage_share": 0.0,
                "outage_lengths_s": [1.5],
            },
        }
    },
    "recording": "recording",
    "recording_files": {"recording.json": DIGEST},
    "history": [{"what": "imported", "how": {"format": "csv"}, "of": {"walk.csv": DIGEST}, "tool": "cellbed"}],
}

FAULTS: Final = [odd for _, odd in json_faults(ENTRY) if "null" not in json.dumps(odd)]  # TOML has no null
WRITTEN: Final = tomli_w.dumps(ENTRY).encode()
DAMAGED = st.builds(
    lambda at, removed, noise: WRITTEN[:at] + noise + WRITTEN[at + removed :],
    st.integers(0, len(WRITTEN)), st.integers(0, 30), st.binary(max_size=12),
)  # fmt: skip


@settings(many, max_examples=80)
@given(entry=st.sampled_from(FAULTS) | DAMAGED | st.binary(max_size=300))
@example(entry=ENTRY | {"about": {"origin": "recorded", "name": "other", "problem": "none"}})
@example(entry=ENTRY | {"about": {"origin": "recorded", "date": date(2021, 4, 30)}})
@example(entry=ENTRY | {"parts": {"uplink": ENTRY["parts"]["uplink"] | {"duration_ns": 2**63}}})
@example(entry=ENTRY | {"parts": {"uplink": ENTRY["parts"]["uplink"] | {"statistics": {"mean_bit_s": 10**400}}}})
@example(entry=ENTRY | {"parts": {"uplink": ENTRY["parts"]["uplink"] | {"statistics": {"mean_bit_s": "fast"}}}})
def test_any_entry_is_read_listed_and_shown_or_an_error(archive: Archive, entry: dict[str, Any] | bytes) -> None:
    folder = archive.folder / "walk"
    folder.mkdir(exist_ok=True)
    text = entry if isinstance(entry, bytes) else tomli_w.dumps(entry).encode(errors="surrogatepass")
    (folder / "entry.toml").write_bytes(text)
    found = value_or_line(lambda: read_entry(folder))
    contents = archive.contents()
    assert ("walk" in contents.problems) == (found is None)
    assert ("walk" in contents.frame["name"].to_list()) == (found is not None)
    if found is not None:
        assert tomllib.loads(entry_text(found))["name"] == "walk"
        Console(file=io.StringIO()).print(show(found, []))


@given(
    st.dictionaries(
        st.sampled_from([each for each in About.model_fields if each != "origin"]),
        words("2021", "-04", "-30", "T14:05", "5g", "+24:00", "\x1b") | st.text(max_size=5000),
        max_size=3,
    )
)
@example({"date": "2021-04-30T14:05:00+24:00"})
def test_whatever_is_said_of_a_recording_is_kept_or_refused(asked: dict[str, str]) -> None:
    value_or_line(lambda: check_metadata(origin="recorded", **asked))


NAMES = words("time", "_", "s", "ms", " ", "rate", "mbit_s", "downlink", "rtt", "[", "]", "#", ":")


@given(
    names=st.lists(NAMES, max_size=4),
    asked=st.dictionaries(st.sampled_from(["time", "uplink", "downlink", "round-trip", "x", ""]), NAMES, max_size=3),
    direction=st.none() | st.sampled_from(["uplink", "downlink", "both"]),
    moment=st.booleans(),
)
@example(names=["a", "b"], asked={"time": "1" * 5000}, direction=None, moment=False)
@example(names=["a\nb"], asked={}, direction=None, moment=False)
@example(names=["time\n"], asked={"uplink": "x\n"}, direction=None, moment=False)
@example(names=["time_s", "a_" * 30_000], asked={"uplink": "2"}, direction=None, moment=False)
def test_any_names_of_columns_are_mapped_or_an_error(
    names: list[str], asked: dict[str, str], direction: Any, moment: bool
) -> None:
    mapped = value_or_line(lambda: map_columns(names, asked, direction, lambda _: moment))
    if mapped is not None:
        assert {mapped.time.name, *(each.name for each in mapped.values.values())} <= set(names)
        assert mapped.values


@pytest.mark.parametrize("piece", [b"bytes from ", b'{"Bw', b'{"\xc3', b"PING h (", b"x,", b"(", b"1,"])
def test_a_piece_that_is_repeated_is_recognised_or_refused(tmp_path: Path, piece: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(piece * ((1 << 16) // len(piece)))
    value_or_line(lambda: recognise([path]))
    path.write_bytes(b"{" + piece * ((1 << 16) // len(piece)))
    value_or_line(lambda: recognise([path]))


CELLS = st.sampled_from(("0", "1", "2.5", "-1", "nan", "1e999999", "-1e-999999", "9" * 30, "", '"', "x", "\x00"))
HEADINGS = st.sampled_from(("time_s", "time_ms", "rtt_ms", "round_trip_s", "", "x"))
ROUND_TRIPS: Final = GOOD.replace('edge = "base-edge"', 'edge = { kind = "round-trips", record = "pings.csv" }')


@settings(many, max_examples=40)
@given(
    st.binary(max_size=100)
    | st.tuples(
        st.lists(HEADINGS, max_size=3) | st.just(["time_s", "rtt_ms"]),
        st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=6),
    ).map(lambda it: "\n".join(",".join(line) for line in [it[0], *it[1]]).encode())
)
@example(b"time_s,rtt_ms\n0,1e999999\n1,1\n")
@example(b"time_s,rtt_ms\n0,1\n1e999999,1\n")
def test_any_file_of_round_trips_is_a_core_network_or_an_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pings.csv").write_bytes(content)
    (tmp_path / "core.toml").write_text(ROUND_TRIPS)
    value_or_sentence(lambda: load(tmp_path / "core.toml"))


@settings(many, max_examples=40)
@given(words("base-edge", "eu-west-3", *NUMBERS, *UNITS), words(*NUMBERS, *UNITS))
def test_any_words_are_a_place_or_an_error(tmp_path: Path, place: str, start: str) -> None:
    core = {"edge": place}
    table = {"edge": {"kind": "place", "name": place, "rate": start}}
    for written in (core, table):
        text = GOOD.replace('[links.core]\nedge = "base-edge"', tomli_w.dumps({"links": {"core": written}}))
        (tmp_path / "core.toml").write_text(text, encoding="utf-8")
        value_or_sentence(lambda: load(tmp_path / "core.toml"))
