"""Warnings about traces, and the time of day at which they begin."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from archive_examples import MS, SECOND, write_rates, write_round_trips
from cellbed.archive import Archive
from cellbed.archive.entry import About, Entry, StoredSeries, second_of_day
from cellbed.archive.series import Content
from cellbed.archive.warnings import Replayed, warnings
from cellbed.cli.main import app
from scenario_text import NODES


@pytest.mark.parametrize(
    ("date", "second"),
    [
        ("2021-04-30T14:05", 50_700),
        ("2021-04-30 00:00:01", 1),
        ("2021-04-30T14:05:00Z", 50_700),
        *((date, None) for date in ("2021-04-30", "2021", "some time in spring", None)),
    ],
)
def test_the_hour_is_known_where_the_date_contains_it(date: str | None, second: float | None) -> None:
    assert second_of_day(About(origin="recorded", date=date)) == second


def entry_with(origin: str = "recorded", *, pair: bool = True, **figures: Any) -> Entry:
    held = StoredSeries(
        file="uplink.parquet",
        content=Content.OPPORTUNITIES,
        sha256="0" * 64,
        duration_ns=100 * SECOND,
        rows=100,
        statistics=figures or None,
    )
    parts = {"uplink": held} | ({"downlink": held.model_copy(update={"statistics": None})} if pair else {})
    return Entry(name="walk", about=About(origin=origin), parts=parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entry", "workload_s", "words"),
    [
        (entry_with(), None, None),
        (entry_with(), 100, None),
        (entry_with("synthetic"), None, "made by a model"),
        (entry_with(pair=False), None, "no downlink"),
        (entry_with(pair=False), 250, "100 s is shorter than the workload of 250 s, which meets the same 2.5 times"),
        (entry_with(outage_longest_ms=900, outage_longest_at_s=3), None, None),
        (entry_with(outage_longest_ms=1200, outage_longest_at_s=43.4), None, "1.2 s at 43.4 s is 1.2 % of 100 s"),
        (entry_with(outage_longest_ms=900, outage_longest_at_s=3), 30, "is 3 % of 30 s"),
        (entry_with(batched_share_5ms=0.19), None, None),
        (entry_with(batched_share_5ms=0.25), None, "25 % of the opportunities came in bursts"),
        (entry_with(p99_bit_s_100ms=9e9), None, None),
        (entry_with(p99_bit_s_100ms=12e9), None, "12 Gbit/s or more; 10 Gbit/s is the most"),
        (entry_with(spacing_ms=1000.0), None, "rates 1 s apart"),
    ],
)
def test_warnings_of_an_entry(entry: Entry, workload_s: int | None, words: str | None) -> None:
    found = warnings(entry, None if workload_s is None else Replayed(workload_s * SECOND))
    if words is None:
        assert found == []
    else:
        assert words in found[-1] or words in found[0]


@pytest.mark.parametrize(
    ("start_s", "workload_s", "loop", "words"),
    [
        (0, 10, True, None),
        (0, 21, True, "of 1.2 s at 20 s, met for 1 s (from 20 s of the run on), is 4.8 % of 21 s"),
        (15, 10, True, "of 1.2 s at 20 s is 12 % of 10 s"),
        (115, 10, True, "at 20 s is 12 %"),  # start lies behind the end: it counts from the beginning again
        (95, 30, True, "at 20 s is 4 % of 30 s"),  # over the end into the next round
        (20.5, 10, True, "met for 0.7 s (from 0 s of the run on),"),
        (61, 99.5, True, "met for 1.5 s (from 0 s and 99 s of the run on),"),
        (62, 10, True, None),
        (62, 30, False, None),
        (30, 200, True, "of 2 s at 60 s is 2 % of 100 s"),
    ],
)
def test_warnings_cover_only_outages_within_the_run(
    start_s: float, workload_s: float, loop: bool, words: str | None
) -> None:
    entry = entry_with(
        outage_longest_ms=2000, outage_longest_at_s=60, outage_begins_s=[20, 60], outage_lengths_s=[1.2, 2]
    )
    replayed = Replayed(round(workload_s * SECOND), round(start_s * SECOND), loop)
    reported = [each for each in warnings(entry, replayed) if "outage" in each]
    assert len(reported) == (words is not None)
    assert words is None or words in reported[0]


def test_a_trace_that_is_not_looped_ends() -> None:
    (reported, _) = warnings(entry_with(), Replayed(90 * SECOND, 40 * SECOND, loop=False))
    assert reported == "uplink: it is over after 60 s of the workload of 90 s, and offers nothing from then on"
    assert warnings(entry_with(), Replayed(60 * SECOND, 40 * SECOND, loop=False)) == []


def test_directions_of_different_lengths_are_a_warning() -> None:
    entry = entry_with()
    longer = entry.parts["downlink"].model_copy(update={"duration_ns": 130 * SECOND})
    entry = entry.model_copy(update={"parts": entry.parts | {"downlink": longer}})
    drift = "the uplink lasts 100 s, the downlink 130 s: looped, they drift apart"
    assert warnings(entry) == [drift]
    assert warnings(entry, parts=["uplink"]) == []
    assert warnings(entry, Replayed(60 * SECOND)) == []
    assert warnings(entry, Replayed(60 * SECOND, 50 * SECOND)) == [drift]
    assert drift not in warnings(entry, Replayed(110 * SECOND, loop=False))


def cautions(scenario: Path) -> list[str]:
    result = CliRunner().invoke(app, ["run", str(scenario), "--dry-run", "--json"])
    return list(json.loads(result.output)["cautions"])


def test_a_dry_run_says_what_to_know_of_its_traces(archive: Archive, tmp_path: Path) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        write_rates(draft, "uplink", [(0, 5e6), (10 * SECOND, 0), (12 * SECOND, 5e6)], 20 * SECOND)
        write_rates(draft, "downlink", [(0, 9e6)], 20 * SECOND)
        archive.keep(draft, "walk")
    example = Path(__file__).parents[2] / "scenarios" / "offload-lte.toml"
    text = example.read_text().replace("lte-suburban", "walk")
    assert text.count('"walk.') == 2
    (tmp_path / "walk.toml").write_text(text)
    result = CliRunner().invoke(app, ["run", str(tmp_path / "walk.toml"), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "note: walk: uplink: the outage of 2 s at 10 s" in result.output
    assert "shorter than the workload" in result.output
    (tmp_path / "walk.toml").write_text(re.sub(r"(?m)^duration = .*$", 'duration = "5 s"', text))
    assert not any("outage" in caution for caution in cautions(tmp_path / "walk.toml"))
    assert any("synthetic" in caution for caution in cautions(example))


SPEED = """
[apps.speed]
kind = "program"
server = { on = "edge", command = "iperf3 -s" }
client = { on = "endpoint", command = "iperf3 -c {server.address} -t 1" }
"""


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_a_run_notes_traces_of_files_that_are_shorter_than_it(tmp_path: Path) -> None:
    """Once for each trace, however many endpoints replay it."""
    (tmp_path / "short.trace").write_text("".join(f"{at}\n" for at in range(1, 301)))
    path = tmp_path / "x.toml"
    nodes = NODES.replace("[nodes.endpoint]", '[nodes.endpoint]\ncount = 2\nstagger = "10 ms"')
    for loop, note in (
        ("true", "0.3 s is shorter than the workload of 6 s, which meets the same 20 times over"),
        ("false", "it is over after 0.29 s of the workload of 6 s, and offers nothing from then on"),
    ):
        short = nodes.replace('up = "20 Mbit/s"', f'up = "short.trace"\nloop = {loop}')
        path.write_text(f'name = "x"\nduration = "6 s"\n{short}{SPEED}')
        found = [each for each in cautions(path) if "short.trace" in each]
        assert found == [f"short.trace: uplink: {note}"]
    CliRunner().invoke(app, ["run", str(path), "--virtual", "--out", str(tmp_path / "runs")])
    (description,) = tmp_path.glob("runs/*/run.json")
    assert f"short.trace: uplink: {note}" in json.loads(description.read_bytes())["notes"]


def test_a_pause_of_the_probes_is_told_and_so_is_a_start_beyond_the_end(archive: Archive, tmp_path: Path) -> None:
    at = [*range(0, 20_000, 200), *range(1_080_000, 1_083_000, 200)]
    with archive.draft(About(origin="recorded")) as draft:
        write_round_trips(draft, [(stamp * MS, 30 * MS) for stamp in at], 1_083 * SECOND)
        entry = archive.keep(draft, "lo")
    (reported,) = warnings(entry)
    assert reported.startswith(
        "round-trip: nothing was sent for 17.7 min from 19.8 s on, where probes are 200 ms apart"
    )
    assert warnings(entry, Replayed(10 * SECOND)) == []
    example = (Path(__file__).parents[2] / "scenarios" / "offload-lte.toml").read_text()
    core = '[links.core]\nedge = { kind = "round-trips", record = "lo", start = "6 h" }'
    scenario = re.sub(r"(?m)^duration = .*$", 'duration = "10 s"', example)
    scenario = re.sub(r"(?ms)^\[links\.core\].*?(?=^\[|\Z)", f"{core}\n\n", scenario)
    (tmp_path / "lo.toml").write_text(scenario)
    result = CliRunner().invoke(app, ["run", str(tmp_path / "lo.toml"), "--dry-run"])
    assert result.exit_code == 0, result.output
    shown = " ".join(result.output.split())
    assert "lo: round-trip: the start at 6 h lies beyond its end, for it lasts 18.1 min: it goes round" in shown
