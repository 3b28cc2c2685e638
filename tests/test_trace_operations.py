"""Operations on recordings keep what they should, in order, and say what they did."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from cellbed.archive import Archive, TraceError, open_archive
from cellbed.archive.entry import About
from cellbed.archive.operations import STEPS, StepError, check, edit, pair, parse_step
from cellbed.archive.operations.apply import seam, shares
from cellbed.archive.operations.entries import begun
from cellbed.archive.operations.pairing import pairing
from cellbed.archive.operations.timeline import Timeline
from cellbed.archive.series import Content, Series
from cellbed.archive.warnings import warnings

S = 10**9


@st.composite
def opportunities(draw: st.DrawFn) -> Timeline:
    times = sorted(draw(st.lists(st.integers(1, 400), min_size=1, max_size=30)))
    return line(times, times[-1] + draw(st.integers(0, 50)))


@st.composite
def rates(draw: st.DrawFn) -> Timeline:
    gaps = draw(st.lists(st.integers(1, 60), min_size=1, max_size=12))
    values = draw(st.lists(st.integers(0, 50), min_size=len(gaps), max_size=len(gaps)))
    times = [sum(gaps[:index]) for index in range(len(gaps))]
    rows = pl.LazyFrame({"at_ns": times, "bit_s": [float(value) for value in values]}).set_sorted("at_ns")
    return Timeline(Content.RATE, rows, sum(gaps))


@st.composite
def trips(draw: st.DrawFn) -> Timeline:
    times = sorted(draw(st.sets(st.integers(0, 400), min_size=1, max_size=30)))
    values = [draw(st.one_of(st.none(), st.integers(1, 10**6))) for _ in times]
    rows = pl.LazyFrame(
        {"at_ns": times, "round_trip_ns": values}, schema={"at_ns": pl.Int64, "round_trip_ns": pl.Int64}
    )
    return Timeline(Content.ROUND_TRIP, rows.set_sorted("at_ns"), times[-1] + 1 + draw(st.integers(0, 50)))


timelines = st.one_of(opportunities(), rates(), trips())


def line(times: list[int], duration: int) -> Timeline:
    return Timeline(
        Content.OPPORTUNITIES, pl.LazyFrame({"at_ns": times}, schema={"at_ns": pl.Int64}).set_sorted("at_ns"), duration
    )


def rows(timeline: Timeline) -> list[tuple[int, ...]]:
    """The rows; they are in order of time, and within the duration."""
    found = timeline.rows.collect()
    assert found["at_ns"].is_sorted()
    assert not len(found) or (found["at_ns"][0] >= 0 and found["at_ns"][-1] <= timeline.duration)
    return found.rows()


def rates_over(timeline: Timeline, until: int | None = None) -> list[float]:
    """The rate that holds at each ns."""
    found = rows(timeline)[::-1]
    until = timeline.duration if until is None else until
    return [next((bit_s for begun, bit_s in found if begun <= at), 0.0) for at in range(until)]


@given(timelines)
def test_a_cut_of_the_whole_is_the_whole(timeline: Timeline) -> None:
    assert rows(timeline.cut(0, timeline.duration)) == rows(timeline)


@given(timelines, st.data())
def test_two_halves_make_a_whole(timeline: Timeline, data: st.DataObject) -> None:
    assume(timeline.duration > 1)
    middle = data.draw(st.integers(1, timeline.duration - 1))
    halves = timeline.cut(0, middle).then(timeline.cut(middle, timeline.duration))
    assert halves.duration == timeline.duration
    if timeline.content is Content.RATE:
        assert rates_over(halves) == rates_over(timeline)
    else:
        assert rows(halves) == rows(timeline)


@given(timelines, st.integers(1, 1500))
def test_a_loop_is_the_recording_over_and_over(timeline: Timeline, more: int) -> None:
    until = timeline.duration + more
    looped = timeline.repeated(until)
    assert looped.duration == until
    rounds = -(-until // timeline.duration)
    expected = [(at + k * timeline.duration, *rest) for k in range(rounds) for at, *rest in rows(timeline)]
    last = until if timeline.content is Content.OPPORTUNITIES else until - 1
    assert rows(looped) == [row for row in expected if row[0] <= last]


@given(opportunities(), st.fractions(min_value=Fraction(1, 20), max_value=5, max_denominator=50))
def test_scaled_opportunities_are_so_many_up_to_any_moment(timeline: Timeline, factor: Fraction) -> None:
    before, after = ([at for (at,) in rows(each)] for each in (timeline, timeline.scaled(factor)))
    assert set(after) <= set(before)
    for moment in before:
        count = sum(at <= moment for at in before)
        assert sum(at <= moment for at in after) == int(count * factor)


@given(rates(), st.fractions(min_value=Fraction(1, 20), max_value=5, max_denominator=50))
def test_scaled_rates_are_so_much_higher(timeline: Timeline, factor: Fraction) -> None:
    assert rows(timeline.scaled(factor)) == [(at, pytest.approx(bit_s * float(factor))) for at, bit_s in rows(timeline)]


@given(timelines, st.data())
def test_nothing_passes_in_an_outage_and_all_else_stays(timeline: Timeline, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, timeline.duration - 1))
    end = data.draw(st.integers(start + 1, timeline.duration))
    out = timeline.without(start, end)
    assert out.duration == timeline.duration
    match timeline.content:
        case Content.RATE:
            expected = rates_over(timeline)
            expected[start:end] = [0.0] * (end - start)
            assert rates_over(out) == expected
        case Content.OPPORTUNITIES:
            assert rows(out) == [row for row in rows(timeline) if not start < row[0] <= end]
        case Content.ROUND_TRIP:
            assert rows(out) == [(at, None if start <= at < end else trip) for at, trip in rows(timeline)]


@given(st.one_of(opportunities(), rates()), st.integers(1, 120))
def test_bins_hold_all_bits_and_each_its_own(timeline: Timeline, width: int) -> None:
    found = timeline.bits(width).collect()
    assert found["at_ns"].to_list() == list(range(0, timeline.duration, width))
    if timeline.content is Content.OPPORTUNITIES:
        expected = [
            12_000 * sum(begin < max(at, 1) <= begin + width for (at,) in rows(timeline)) for begin in found["at_ns"]
        ]
    else:
        each = rates_over(timeline)
        expected = [sum(each[begin : begin + width]) / 1e9 for begin in found["at_ns"]]
    assert found["bits"].to_list() == pytest.approx(expected, abs=1e-12)


@given(st.one_of(opportunities(), rates()), st.integers(1, 120))
def test_resampling_keeps_the_bits(timeline: Timeline, width: int) -> None:
    resampled = timeline.resampled(width)
    assert resampled.content is Content.RATE
    before, after = (each.bits(timeline.duration).collect()["bits"][0] for each in (timeline, resampled))
    assert after == pytest.approx(before, rel=1e-9, abs=1e-12)


@given(opportunities(), opportunities())
def test_capacities_add_up(one: Timeline, two: Timeline) -> None:
    both = one.plus(two)
    assert both.duration == min(one.duration, two.duration)
    assert rows(both) == sorted(row for each in (one, two) for row in rows(each) if row[0] <= both.duration)


@given(rates(), rates())
def test_rates_add_up(one: Timeline, two: Timeline) -> None:
    both = one.plus(two)
    summed = (rates_over(each, both.duration) for each in (one, two))
    assert rates_over(both) == pytest.approx([a + b for a, b in zip(*summed, strict=True)])


@given(opportunities(), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_shares_of_opportunities_add_up(timeline: Timeline, users: list[int]) -> None:
    steps = [(index * 80, 1 / count) for index, count in enumerate(users)]
    mine = timeline.shared(lambda: pl.LazyFrame(steps, schema={"at_ns": pl.Int64, "share": pl.Float64}, orient="row"))
    kept, offered = rows(mine), rows(timeline)
    due = 0.0
    for index, row in enumerate(offered):
        due += next(share for begun, share in reversed(steps) if begun <= row[0])
        if row not in offered[index + 1 : index + 2]:  # of equal ones, which were kept cannot be seen
            assert sum(each <= row for each in kept) == pytest.approx(due, abs=1.0)


@settings(max_examples=20)
@given(users=st.integers(2, 10), active=st.floats(0.05, 1.0), seed=st.integers(0, 5))
def test_users_are_active_for_their_share_of_the_time(users: int, active: float, seed: int) -> None:
    duration = 4000 * S
    steps = shares(duration, users, active, S, seed)
    ends = [at for at, _ in steps[1:]] + [duration]
    others = sum((1 / share - 1) * (end - at) for (at, share), end in zip(steps, ends, strict=True)) / duration
    # Spells of one second: the mean of 4000 s of each user has a deviation of at most 1 / √2000 of half.
    assert others == pytest.approx(active * (users - 1), abs=5 * 0.5 / 2000**0.5 * users**0.5 + 1e-9)
    assert steps == shares(duration, users, active, S, seed)


def test_a_seam_is_where_the_start_comes_again() -> None:
    random = np.random.default_rng(1)
    motif, middle, rest = random.random(40), random.random(300), random.random(25)
    rates = np.concatenate([motif, middle, motif[:20], rest])
    end, leap = seam([rates], within=100, window=10)
    assert end == 340
    assert leap == 0.0


def noise(seed: int, seconds: int, shift: int = 0) -> Timeline:
    """A rate that wanders, and one that follows it `shift` bins later, by its seed."""
    random = np.random.default_rng(seed)
    steps = np.cumsum(random.normal(0, 0.8, seconds * 10 + 200))
    rate = 1e7 * np.exp(np.sin(steps))[100 + shift : 100 + shift + seconds * 10]
    at = [index * S // 10 for index in range(len(rate))]
    return Timeline(Content.RATE, pl.LazyFrame({"at_ns": at, "bit_s": rate}).set_sorted("at_ns"), seconds * S)


def test_a_pair_that_was_moved_is_noticed_and_by_how_much() -> None:
    apart = pairing(noise(3, 120), noise(3, 120, shift=-30))
    assert apart.better_at is not None
    assert abs(apart.better_at) == 3 * S
    together = pairing(noise(3, 120), noise(3, 120))
    assert together.correlation == pytest.approx(1)
    assert together.better_at is None


@pytest.mark.parametrize("seed", range(8))
def test_strangers_are_not_called_moved(seed: int) -> None:
    assert pairing(noise(seed, 120), noise(seed + 100, 120)).better_at is None


def test_lengths_and_directions_that_do_not_fit_are_doubted() -> None:
    slow, fast = noise(1, 60).scaled(Fraction(1, 10)), noise(1, 90)
    doubts = " ".join(pairing(fast, slow).doubts)
    assert "90 s" in doubts
    assert "exchanged" in doubts


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return open_archive()


def test_an_edited_entry_has_its_history_and_says_what_it_is(archive: Archive) -> None:
    add(archive, "walk", line(list(range(S // 100, 20 * S, S // 100)), 20 * S))
    cut, _ = edit(archive, "walk", [parse_step("cut 2s 12s")], "short")
    assert cut.about.origin == "recorded"
    assert cut.parts["uplink"].duration_ns == 10 * S
    out, _ = edit(archive, "short", [parse_step("outage 1s 2s"), parse_step("splice walk")], "out")
    assert out.about.origin == "synthetic"
    assert [step.what for step in out.history] == ["edited", "cut", "edited", "outage", "splice"]
    assert out.history[-1].how == {"step": "splice walk"}
    assert out.history[-1].of == {"walk uplink": archive.entry("walk").parts["uplink"].sha256}
    assert out.parts["uplink"].duration_ns == 30 * S
    assert archive.series("out", "uplink").scan().select(pl.len()).collect().item() == 1000 - 200 + 1999


def add(archive: Archive, name: str, timeline: Timeline) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        path = draft.folder / "uplink.parquet"
        timeline.rows.collect().write_parquet(path)
        draft.parts["uplink"] = Series(timeline.content, path, timeline.duration)
        archive.keep(draft, name)


@pytest.mark.parametrize("kind", STEPS)
def test_every_step_does_as_its_example_says(archive: Archive, kind: str) -> None:
    entry, _ = edit(archive, "lte-suburban", [parse_step(STEPS[kind].example)], "made")
    assert entry.history[-1].what == kind
    assert [(name, faults) for name, faults in archive.verify(["made"]) if faults] == []


@pytest.mark.parametrize(
    ("step", "complaint"),
    [
        ("", "is not a step"),
        ("cutt 1s 2s", "did you mean 'cut'"),
        ("cut 1s", "write cut FROM TO"),
        ("cut 1 2", "has no unit"),
        ("cut 2s 1s", "keeps nothing"),
        ("cut 0s 1h", "ends after the end"),
        ("loop 1s", "is shorter than the entry"),
        ("loop 1000h", "1000 times"),
        ("scale 0", "is not from"),
        ("scale x", "is not a number"),
        ("scale 1/0", "is not a number"),
        ("share 1", "2 to 10000"),
        ("share 3 120%", "more than 1"),
        ("outage 5min 1s", "begins after the end"),
        ("outage 5s 0s", "an empty span"),
        ("resample 1h", "wider"),
        ("splice nobody", "has no 'nobody'"),
        ("splice 'x", "No closing quotation"),
        ("splice rates", "resample both first"),
        ("scale 1000", "resample first"),
    ],
)
def test_a_step_that_cannot_be_done_is_refused_and_leaves_nothing(archive: Archive, step: str, complaint: str) -> None:
    from cellbed.cli.traces import app

    edit(archive, "lte-suburban", [parse_step("resample 1s")], "rates")
    before = archive.names()
    done = CliRunner().invoke(app, ["edit", "lte-suburban", step, "--name", "made"])
    assert complaint in str(done.exception)
    assert archive.names() == before
    assert not list(archive.folder.glob(".*made*"))


def test_two_entries_become_a_pair(archive: Archive) -> None:
    from cellbed.cli.traces import app

    add(archive, "walk", line(list(range(S // 100, 20 * S, S // 100)), 20 * S))
    done = CliRunner().invoke(app, ["pair", "walk", "lte-suburban", "--name", "both", "--json"])
    assert done.exit_code == 1  # their lengths differ
    assert "drift apart" in json.loads(done.stdout)["doubts"][0]
    both = archive.entry("both")
    assert set(both.parts) == {"uplink", "downlink"}
    assert both.about.origin == "synthetic"
    assert both.about.technology is None
    assert set(both.history[0].of) == {"walk uplink", "lte-suburban downlink"}
    apart = "a pair of walk and lte-suburban: the correlation of the two directions was not measured"
    assert apart in warnings(both)
    assert apart not in warnings(both, parts={"uplink"})
    said = CliRunner().invoke(app, ["pair", "lte-suburban", "lte-suburban", "--name", "twice"]).stdout
    assert "added twice; in a scenario: twice.up and twice.down" in said
    assert not [each for each in warnings(archive.entry("twice")) if each.startswith("a pair")]


@pytest.mark.parametrize(
    ("date", "steps", "then"),
    [
        ("2021-04-30T14:05", ["cut 10min 20min"], "2021-04-30T14:15"),
        ("2021-04-30T23:50:10Z", ["cut 20min 2h", "scale 0.5", "cut 1s 1h"], "2021-05-01T00:10:11Z"),
        ("2021-04-30T14:05", ["cut 0s 20min", "loop 10h"], "2021-04-30T14:05"),
        ("2021-04-30T14:05+02:00", ["cut 1min 20min"], "2021-04-30T14:06+02:00"),
        ("2021-04-30T14:05", ["cut 1min 20min", "stretch 2"], "2021-04-30"),
        ("2021-04", ["cut 10min 20min"], "2021-04"),
    ],
)
def test_a_cut_begins_later_in_the_day(date: str, steps: list[str], then: str) -> None:
    about = About(origin="recorded", date=date)
    assert begun(about, [parse_step(step) for step in steps]).date == then


def test_a_direction_that_is_named_takes_the_place_it_is_written_in(archive: Archive) -> None:
    found = check(archive, "lte-suburban.up", "5g-midband.down")
    assert found.doubts == check(archive, "lte-suburban", "5g-midband").doubts
    assert check(archive, "lte-suburban.up") == check(archive, "lte-suburban")
    exchanged = check(archive, "lte-suburban.up", "5g-midband.up")
    assert exchanged.doubts[0] == "'5g-midband': its uplink takes the place of the downlink"
    both = pair(archive, "lte-suburban.up", "5g-midband.up", "both")
    bits = {part: held.statistics["mean_bit_s"] for part, held in both.parts.items() if held.statistics}
    figures = archive.entry("5g-midband").parts["uplink"].statistics
    assert figures is not None
    assert bits["downlink"] == pytest.approx(figures["mean_bit_s"], rel=1e-6)
    assert both.history[-1].how == {"uplink": "lte-suburban.up", "downlink": "5g-midband.up"}
    with pytest.raises(TraceError, match="is a downlink: write the uplink before it, or 'lte-suburban' for both"):
        check(archive, "lte-suburban.down")


def test_what_would_fill_the_machine_is_refused_before_it_is_begun(archive: Archive) -> None:
    with pytest.raises(StepError, match="rows of the uplink"):
        edit(archive, "lte-suburban", [parse_step("loop 30h"), parse_step("scale 100")], "made")


def test_parts_of_different_lengths_are_not_joined_out_of_step(archive: Archive) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        for part, seconds in (("uplink", 20), ("downlink", 15)):
            path = draft.folder / f"{part}.parquet"
            pl.DataFrame({"at_ns": range(0, seconds * S, S // 100)}, schema={"at_ns": pl.Int64}).write_parquet(path)
            draft.parts[part] = Series(Content.OPPORTUNITIES, path, seconds * S)
        archive.keep(draft, "uneven")
    for step in ("loop 60s", "seam 5s", "splice uneven"):
        with pytest.raises(StepError, match="first write 'cut 0s 15s'"):
            edit(archive, "uneven", [parse_step(step)], "made")
    made, _ = edit(archive, "uneven", [parse_step("cut 0s 15s"), parse_step("loop 60s")], "made")
    assert {held.duration_ns for held in made.parts.values()} == {60 * S}


def test_interrupting_an_edit_leaves_nothing_and_says_nothing_of_polars(archive: Archive) -> None:
    words = [sys.executable, "-m", "cellbed", "traces", "edit", "lte-suburban", "loop 30h", "scale 2", "--name", "made"]
    running = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(path.suffix == ".parquet" for path in archive.folder.glob(".*/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "panicked" not in said
    assert "Traceback" not in said
    assert not archive.has("made")
    assert not [path for path in archive.folder.glob(".*") if path.is_dir() and any(path.iterdir())]
