"""Pictures of traces: as data, as files, and on the terminal."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image
from typer.testing import CliRunner

from archive_examples import MS, SECOND, write_opportunities, write_rates, write_round_trips
from cellbed.archive import Archive, TraceError
from cellbed.archive.entry import About, Entry, Step
from cellbed.archive.series import Content, Series
from cellbed.cli.main import app
from cellbed.report.gallery.drawing import PictureError, draw, fill
from cellbed.report.gallery.pictures import Curve, Panel, Picture, comparison, portrait, sentence
from cellbed.report.gallery.read import analysed
from cellbed.report.gallery.terminal import beside, words
from cellbed.report.plot import of_place
from cellbed.support.console import Console
from cellbed.support.readable import date_words, duration_words, rate_words


def add_link(archive: Archive, name: str, *, seconds: int = 60, outage: Sequence[int] = (), **about: str) -> Entry:
    """Both directions; the downlink has four times the rate. outage: seconds in which the uplink is silent."""
    random = np.random.default_rng(len(name))
    with archive.draft(About.model_validate({"origin": "recorded"} | about)) as draft:
        for part, each in (("uplink", 1000), ("downlink", 4000)):
            count = each * seconds // 2
            stamps = np.sort(random.integers(0, seconds * 1000, count))
            if part == "uplink":
                stamps = stamps[~np.isin(stamps // 1000, list(outage))]
            write_opportunities(draft, part, stamps.tolist(), seconds * SECOND)  # type: ignore[arg-type]
        return archive.keep(draft, name)


def add_trips(archive: Archive, name: str, *, hours: int = 5, **about: str) -> Entry:
    """Round-trip times with a change of route in the middle, and some lost."""
    random = np.random.default_rng(7)
    at = np.arange(0, hours * 3600, 2)
    trips = np.where(at < hours * 1800, 20, 30) + random.gamma(2, 0.4, len(at))
    with archive.draft(About.model_validate({"origin": "recorded"} | about)) as draft:
        path = draft.folder / "round-trip.parquet"
        column = pl.Series((trips * MS).astype(np.int64)).set(pl.Series(random.random(len(at)) < 0.01), None)
        pl.DataFrame({"at_ns": at * SECOND, "round_trip_ns": column}).write_parquet(path)
        draft.parts["round-trip"] = Series(Content.ROUND_TRIP, path, hours * 3600 * SECOND)
        return archive.keep(draft, name)


def test_every_panel_has_axes_with_units(archive: Archive) -> None:
    entry = add_link(archive, "walk", outage=(20, 21))
    picture = portrait("walk", entry.about, analysed(archive, "walk"))
    kinds = [panel.kind for panel in picture.panels]
    assert kinds == ["time", "spans", "distribution", "scatter"]
    for panel in picture.panels:
        assert re.search(r", (s|h|Mbit/s|ms|%)$", panel.x_label), panel
        assert panel.kind == "spans" or re.search(r", (Mbit/s|ms|%)$", panel.y_label), panel
    rates, outages, distribution, asymmetry = picture.panels
    assert [curve.name for curve in rates.curves] == ["Uplink", "Downlink"]
    for curve, mean in zip(rates.curves, (6, 24), strict=True):
        assert np.mean(curve.y) == pytest.approx(mean, rel=0.05)
    assert [(row.name, len(row.begins)) for row in outages.rows] == [("Uplink: 1", 1), ("Downlink: 0", 0)]
    assert outages.rows[0].begins[0] == pytest.approx(20, abs=0.02)
    assert outages.rows[0].lengths[0] == pytest.approx(2, abs=0.02)
    assert [curve.y[-1] for curve in distribution.curves] == [100] * 4
    assert "downlink to uplink 4.1" in asymmetry.note


def test_directions_are_held_against_each_other_in_what_they_share(archive: Archive) -> None:
    """The uplink goes on for 40 s with nothing: that is no time in which the downlink had anything to be compared."""
    with archive.draft(About(origin="recorded")) as draft:
        up = [(at * SECOND, (2 + at % 2) * 1e6) for at in range(20)]
        write_rates(draft, "uplink", [*up, (20 * SECOND, 0)], 60 * SECOND)
        write_rates(draft, "downlink", [(at, rate * 10) for at, rate in up], 20 * SECOND)
        entry = archive.keep(draft, "walk")
    picture = portrait("walk", entry.about, analysed(archive, "walk"))
    (asymmetry,) = [panel for panel in picture.panels if panel.kind == "scatter"]
    assert asymmetry.note == (
        "downlink to uplink 10 on average in the 20 s of both · Pearson correlation of the rates over 1 s 1.00"
    )
    points, equal = asymmetry.curves
    assert points.x.max() == equal.x.max() == equal.y.max() == pytest.approx(3)  # no axis is stretched by the line
    assert points.y.max() == pytest.approx(30)


def one_direction(archive: Archive, name: str, rows: Sequence[tuple[int, float]], duration_ns: int) -> Picture:
    """The picture of an entry that has these rates (ns, bit/s) for a downlink."""
    with archive.draft(About(origin="recorded")) as draft:
        write_rates(draft, "downlink", rows, duration_ns)
        entry = archive.keep(draft, name)
    return portrait(name, entry.about, analysed(archive, name))


def test_a_rate_holds_until_the_next_row(archive: Archive) -> None:
    rows = [(at * SECOND, rate * 1e6) for at, rate in enumerate([5, 8, 2])]
    picture = one_direction(archive, "steps", rows, 3 * SECOND)
    (curve,) = picture.panels[0].curves
    assert curve.steps
    assert curve.x.tolist() == [0, 1, 2, 3]
    assert curve.y.tolist() == pytest.approx([5, 8, 2, 2])


@pytest.mark.parametrize("duration_ms", [500, 1000, 60_000])
def test_one_row_is_a_line_and_no_frame_is_empty(archive: Archive, duration_ms: int) -> None:
    picture = one_direction(archive, "one", [(0, 5e6)], duration_ms * MS)
    (curve,) = picture.panels[0].curves
    assert (curve.x[0], curve.x[-1]) == pytest.approx((0, duration_ms / 1000))
    assert curve.y.tolist() == pytest.approx([5] * len(curve.y))
    for panel in picture.panels:
        assert panel.kind == "spans" or all(len(each.x) > 1 for each in panel.curves), panel
    draw(picture, "png")


def test_a_long_entry_does_not_squeeze_a_short_one(archive: Archive) -> None:
    for name, seconds in (("short", 10), ("long", 90), ("middle", 30)):
        add_link(archive, name, seconds=seconds)
    over_time = [
        panel
        for panel in comparison({name: analysed(archive, name) for name in ("short", "long")}).panels
        if panel.kind in ("time", "spans")
    ]
    assert {panel.end for panel in over_time} == {20}
    assert all("drawn are the first 20 s of 90 s" in panel.note for panel in over_time)
    assert all("numbers are of all" in panel.note for panel in over_time if panel.kind == "spans")
    near = comparison({name: analysed(archive, name) for name in ("long", "middle")}).panels[0]
    assert (near.end, "drawn are" in near.note) == (90, False)


def test_hours_since_the_start_end_with_the_recording(archive: Archive) -> None:
    entry = add_trips(archive, "ping")
    picture = portrait("ping", entry.about, analysed(archive, "ping"))
    (hours,) = [panel for panel in picture.panels if panel.kind == "hours"]
    assert hours.end == 4
    (distribution,) = [panel for panel in picture.panels if panel.kind == "distribution"]
    assert distribution.log_x
    assert distribution.x_label == "round-trip time (logarithmic), ms"
    ticks = re.findall(r">([0-9.]+)</text>", draw(Picture("", "", [distribution]), "svg").decode())
    assert {"20", "30"} <= set(ticks)


def test_delay_is_drawn_over_time_as_distribution_and_by_hour(archive: Archive) -> None:
    entry = add_trips(archive, "ping", date="2026-04-01T22:00")
    picture = portrait("ping", entry.about, analysed(archive, "ping"))
    over_time, _, hours = picture.panels
    assert over_time.x_label == "time since the start, h"
    curve, lost = over_time.curves
    assert curve.low is not None
    assert curve.high is not None
    known = np.isfinite(curve.y)
    assert (curve.low[known] <= curve.y[known]).all()
    assert (curve.y[known] <= curve.high[known]).all()
    assert (lost.name, lost.dots) == ("lost", True)
    assert hours.title == "Round-trip time by hour of the day"
    assert hours.curves[0].x.tolist() == [0, 1, 2, 21.5, 22, 23]


def test_no_line_leads_over_lost_probes_and_pauses(archive: Archive) -> None:
    probes = [(at * 10 * MS, None if 2000 <= at < 4000 else 30 * MS) for at in [*range(6000), *range(20_000, 24_000)]]
    sparse = [(at * SECOND, None if 20 <= at < 40 else 30 * MS) for at in range(100)]
    for name, rows, seconds in (("dense", probes, 240), ("sparse", sparse, 100)):
        with archive.draft(About(origin="recorded")) as draft:
            write_round_trips(draft, rows, seconds * SECOND)
            archive.keep(draft, name)
    dense = comparison({"dense": analysed(archive, "dense")}).panels[0]
    gaps = dense.curves[0].x[np.isnan(dense.curves[0].y)]
    assert ((gaps > 19.9) & (gaps < 40.1)).sum() > 10
    assert ((gaps > 59.9) & (gaps < 200)).any()
    assert "means, and least to most, of" in dense.note
    single = comparison({"sparse": analysed(archive, "sparse")}).panels[0]
    assert single.curves[0].dots
    assert "single probes" in single.note
    assert len(single.curves[0].x) == 80
    assert len(single.curves[1].x) == 20
    both = comparison({name: analysed(archive, name) for name in ("dense", "sparse")}).panels[0]
    assert "means of 240 ms and single probes" in both.note


@pytest.mark.parametrize(("least", "most"), [(10.01, 24), (9, 200), (1.1, 9000), (12, 14), (98, 103)])
def test_a_logarithmic_axis_has_labels_from_its_lower_end_on(least: float, most: float) -> None:
    axes = Panel(
        "distribution", "t", "x", "y", [Curve("a", "#000000", np.array([least, most]), np.array([0.0, 100.0]))]
    )
    (low, high), labels = drawn_axis(replace(axes, log_x=True))
    seen = [label for label in labels if low <= label <= high]
    assert 4 <= len(seen) <= 16
    assert seen[0] <= low * (high / low) ** 0.35


def drawn_axis(panel: Panel) -> tuple[tuple[float, float], list[float]]:
    """The ends of its horizontal axis, and where the labels are."""
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    fill(axes, panel, 1)
    return axes.get_xlim(), [float(tick) for tick in axes.get_xticks()]


def test_the_same_picture_is_the_same_file(archive: Archive) -> None:
    entry = add_link(archive, "walk", technology="5g", place="<Delft> & $x$")
    picture = portrait("walk", entry.about, analysed(archive, "walk"))
    content = draw(picture, "svg")
    assert content == draw(picture, "svg")
    for word in ("rate, Mbit/s", "time since the start, s", "share at most that, %", "Uplink", "&lt;Delft&gt;", "$x$"):
        assert word in content.decode()


def test_a_png_has_the_colours_of_both_directions(archive: Archive, tmp_path: Path) -> None:
    add_link(archive, "walk", outage=(5,))
    (tmp_path / "a.png").write_bytes(draw(portrait("walk", About(origin="recorded"), analysed(archive, "walk")), "png"))
    pixels = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    for colour in (of_place("uplink")[1], of_place("downlink")[1]):
        wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        assert (np.abs(pixels.astype(int) - wanted).max(axis=1) < 8).sum() > 500


def test_entries_are_compared_on_the_same_axes(archive: Archive) -> None:
    for name in ("one", "three"):
        add_link(archive, name)
    add_trips(archive, "ping")
    entries = {name: analysed(archive, name) for name in ("one", "three", "ping")}
    picture = comparison(entries)
    titles = [panel.title for panel in picture.panels]
    assert len([title for title in titles if title.startswith("Uplink")]) == 3
    assert "Round-trip time over time" in titles
    colours = [{curve.name.split(",")[0]: curve.colour for curve in panel.curves} for panel in picture.panels]
    for found in colours:
        assert all(colours[0].get(name, colour) == colour for name, colour in found.items())
    assert len(comparison(entries, ("downlink",)).panels) == 3
    draw(picture, "png")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["traces", *arguments])


@pytest.fixture
def home(archive: Archive) -> Archive:
    """The user's archive with two links."""
    add_link(archive, "walk", outage=(20, 21))
    add_link(archive, "tram")
    return archive


def test_plot_writes_what_the_name_ends_with(home: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, name in (
        (["walk"], "walk.png"),
        (["walk", "-o", "a.svg"], "a.svg"),
    ):
        result = run("plot", *arguments)
        assert result.exit_code == 0, result.output
        assert result.output.strip() == name
        assert (tmp_path / name).stat().st_size > 10_000
    assert not list(tmp_path.glob(".*"))


def test_of_an_entry_one_direction_can_be_drawn(home: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("plot", "walk.down", "-o", "down.svg")
    assert result.exit_code == 0, result.output
    drawn = (tmp_path / "down.svg").read_text()
    assert "walk.down" in drawn
    assert "Downlink mean" in drawn
    assert "Uplink" not in drawn
    assert run("plot", "walk.up").output.strip() == "walk.up.png"
    reported = json.loads(run("compare", "walk.up", "walk.down", "--json").output)
    assert {name: list(parts) for name, parts in reported.items()} == {"walk.up": ["uplink"], "walk.down": ["downlink"]}
    assert list(json.loads(run("stats", "walk.down", "--json").output)["walk.down"]) == ["downlink"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["plot", "walk", "-o", "a.gif"], PictureError, "ends with .png or .svg"),
        (["plot", "walk", "-o", "/nowhere/a.png"], PictureError, "/nowhere/a.png: cannot be written"),
        (["plot", "wlak"], TraceError, "did you mean 'walk'"),
        (["compare", "walk.up", "--part", "downlink"], TraceError, "has no downlink: it has only the uplink"),
        (
            ["export", "walk.up", "--format", "mahimahi", "-o", "a"],
            TraceError,
            "only whole entries can be exported: write 'walk'",
        ),
        (["compare", "walk", "tram", "--part", "round-trip"], TraceError, "'walk' has no round-trip: it has uplink"),
        (["stats", "nobody"], TraceError, "the archive has no 'nobody'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_line(
    home: Archive, arguments: list[str], error: type[Exception], words: str
) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, error)
    assert words in str(result.exception)


@pytest.mark.parametrize("verb", ["plot", "compare", "stats"])
def test_an_outage_of_no_length_is_refused(home: Archive, verb: str) -> None:
    result = run(verb, "walk", "--outage", "0 s")
    assert result.exit_code == 2
    assert "the length of an outage must be above 0" in result.output


def test_compare_puts_figures_beside_each_other(home: Archive, tmp_path: Path) -> None:
    result = run("compare", "walk", "tram", "-o", str(tmp_path / "both.png"))
    assert result.exit_code == 0, result.output
    assert re.search(r"mean\s+5\.\d+\s+6\s+Mbit/s", result.output)
    assert (tmp_path / "both.png").exists()
    reported = json.loads(run("compare", "walk", "tram", "--part", "uplink", "--json").output)
    assert reported["walk"]["uplink"]["outages"] == 1
    assert list(reported["tram"]) == ["uplink"]


def test_stats_tell_every_figure_with_its_meaning(home: Archive) -> None:
    output = run("stats", "walk").output
    assert re.search(r"outages\s+1\s+0\s+number of outages", output)
    reported = json.loads(run("stats", "walk", "--outage", "3 s", "--json").output)
    assert reported["walk"]["uplink"]["outages"] == 0
    assert reported["walk"]["uplink"]["outage_from_ms"] == 3000
    # What was asked for once is not stored.
    assert home.entry("walk").parts["uplink"].statistics["outages"] == 1  # type: ignore[index]
    assert run("stats").exit_code == 2


def test_show_has_the_warnings_of_an_entry(home: Archive) -> None:
    output = run("show", "walk").output
    assert "decides the P99" in output


def test_rates_durations_and_figures_are_written_in_a_unit_that_reads_well() -> None:
    rates = {834e3: "834 kbit/s", 16.7e6: "16.7 Mbit/s", 999.7e6: "1000 Mbit/s", 2.5e9: "2.5 Gbit/s", 0: "0 bit/s"}
    assert {each: rate_words(each) for each in rates} == rates
    durations = {0: "0 s", 40e-9: "40 ns", 56.3e-6: "56.3 µs", 0.0239: "23.9 ms", 1.2: "1.2 s", 599: "599 s"}
    durations |= {1012.5: "16.9 min", 86_400: "24 h"}
    assert {each: duration_words(each) for each in durations} == durations
    figures = {("outage_longest_ms", 78319.0): "78.3 s", ("p50_ms", 0.0563): "56.3 µs", ("outages", 1234): "1,234"}
    figures |= {("correlation_time_s", 4000): "66.7 min", ("p5_bit_s_100ms", 0.0): "0 bit/s"}
    assert {each: words(*each) for each in figures} == figures


def test_a_figure_of_several_entries_has_one_unit() -> None:
    figures = {"slow": {"downlink": {"mean_bit_s": 834e3, "outage_longest_ms": 78319.0, "outage_share": 0.5}}}
    figures["fast"] = {"downlink": {"mean_bit_s": 43.9e6, "outage_longest_ms": 1210.0}}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(beside(figures, ["downlink"]))  # type: ignore[arg-type, list-item]
    shown = console.export_text()
    for row in (r"mean\s+0\.834\s+43\.9\s+Mbit/s", r"longest outage\s+78\.3\s+1\.21\s+s", r"in outages\s+50\s+–\s+%"):
        assert re.search(row, shown), shown


def test_show_tells_times_below_a_millisecond_and_writes_no_python(archive: Archive) -> None:
    with archive.draft(About(origin="recorded")) as draft:
        path = draft.folder / "round-trip.parquet"
        pl.DataFrame({"at_ns": [0, SECOND, 2 * SECOND], "round_trip_ns": [56_300, 71_000, 97_100]}).write_parquet(path)
        draft.parts["round-trip"] = Series(Content.ROUND_TRIP, path, 3 * SECOND)
        draft.history.append(Step(what="generated", how={"seed": 1, "hashes": {"uplink": "ab" * 32}, "loop": True}))
        archive.keep(draft, "edge")
    output = run("show", "edge").output
    assert re.search(r"least, most\s+56\.3\s+97\.1 µs", output)
    assert "history: generated seed 1, loop yes, hashes (uplink abababababab…)" in output


@pytest.mark.parametrize(
    ("date", "read"),
    [
        ("2025-03-14T08:59:59Z", "2025-03-14 08:59 UTC"),
        ("2025-03-14T08:59", "2025-03-14 08:59"),
        ("2025-03-14T08:59:59.5+02:00", "2025-03-14 08:59 +02:00"),
        ("2025-03", "2025-03"),
    ],
)
def test_a_moment_is_written_to_be_read(date: str, read: str) -> None:
    assert date_words(date) == read
    assert read in sentence(About(origin="recorded", date=date), SECOND)
