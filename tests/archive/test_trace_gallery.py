"""Pictures of traces: as data, as files, and on the terminal."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from typer.testing import CliRunner

from archive_examples import MS, SECOND, copied, write_opportunities, write_round_trips
from cellbed.archive import Archive, TraceError
from cellbed.archive.entry import About, Entry
from cellbed.cli.main import app
from cellbed.report.plot import label_decades
from cellbed.report.trace_pictures import (
    SEVERAL,
    Panel,
    PictureError,
    analyse_entry,
    comparison,
    draw,
    fill,
    portrait,
    sentence,
)
from cellbed.report.trace_tables import words
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
        column = pl.Series((trips * MS).astype(np.int64)).set(pl.Series(random.random(len(at)) < 0.01), None)
        write_round_trips(draft, list(zip((at * SECOND).tolist(), column, strict=True)), hours * 3600 * SECOND)
        return archive.keep(draft, name)


@pytest.fixture(scope="module")
def home(archive_of_examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """An archive with two links and round trips, which no test changes."""
    with copied(archive_of_examples, tmp_path_factory.mktemp("home")) as archive:
        add_link(archive, "walk", outage=(20, 21), technology="5g", place="<Delft> & $x$")
        add_link(archive, "tram")
        add_trips(archive, "ping", date="2026-04-01T22:00")
        yield archive


def drawn(panel: Panel) -> Axes:
    axes = Figure().add_subplot()
    fill(axes, panel, 1)
    return axes


def test_every_panel_has_axes_with_units(home: Archive) -> None:
    picture = portrait("walk", home.entry("walk").about, analyse_entry(home, "walk"))
    rates, outages, distribution = map(drawn, picture.panels)
    assert [axes.get_xlabel() for axes in (rates, outages, distribution)] == [
        *["time since the start, s"] * 2, "rate, Mbit/s",
    ]  # fmt: skip
    assert (rates.get_ylabel(), distribution.get_ylabel()) == ("rate, Mbit/s", "share at most that, %")
    assert [line.get_label() for line in rates.lines] == ["Uplink", "Downlink"]
    for line, mean in zip(rates.lines, (6, 24), strict=True):
        assert np.mean(line.get_ydata()) == pytest.approx(mean, rel=0.05)
    assert [label.get_text() for label in outages.get_yticklabels()] == ["Uplink: 1", "Downlink: 0"]
    ((span,), _) = (collection.get_paths() for collection in outages.collections)
    assert span.get_extents().bounds[::2] == pytest.approx((20, 2), abs=0.05)
    assert [line.get_ydata()[-1] for line in distribution.lines] == [100] * 4  # type: ignore[index]


def test_delay_is_drawn_over_time_as_distribution_and_by_hour(home: Archive) -> None:
    picture = portrait("ping", home.entry("ping").about, analyse_entry(home, "ping"))
    over_time, distribution, hours = map(drawn, picture.panels)
    assert over_time.get_xlabel() == "time since the start, h"
    assert [line.get_label() for line in over_time.lines] == ["Round-trip time", "lost"]
    assert distribution.get_xscale() == "log"
    assert hours.get_title() == "Round-trip time by hour of the day"
    assert list(hours.lines[0].get_xdata()) == [0, 1, 2, 21.5, 22, 23]


def test_the_same_picture_is_the_same_file(home: Archive) -> None:
    picture = portrait("walk", home.entry("walk").about, analyse_entry(home, "walk", parts=("uplink",)))
    content = draw(picture, "svg")
    assert content == draw(picture, "svg")
    for word in ("rate, Mbit/s", "Uplink", "&lt;Delft&gt;", "$x$"):
        assert word in content.decode()


def test_entries_are_compared_on_the_same_axes(home: Archive) -> None:
    entries = {name: analyse_entry(home, name) for name in ("walk", "tram", "ping")}
    picture = comparison(entries)
    titles = [panel.title for panel in picture.panels]
    assert len([title for title in titles if title.startswith("Uplink")]) == 3
    assert "Round-trip time over time" in titles
    for axes in map(drawn, picture.panels):
        colours = {str(line.get_label()).split(",")[0]: line.get_color() for line in axes.lines}
        colours.pop("lost", None)
        assert colours.items() <= {"walk": SEVERAL[0], "tram": SEVERAL[1], "ping": SEVERAL[2]}.items()
    assert len(comparison(entries, ("downlink",)).panels) == 3


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["traces", *arguments])


def test_a_direction_is_drawn_into_what_the_name_ends_with(
    home: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, name in ((["walk.up"], "walk.up.png"), (["walk.down", "-o", "down.svg"], "down.svg")):
        result = run("plot", *arguments)
        assert result.exit_code == 0, result.output
        assert result.output.strip() == name
    assert (tmp_path / "walk.up.png").stat().st_size > 10_000
    drawn = (tmp_path / "down.svg").read_text()
    assert "walk.down" in drawn
    assert "Downlink mean" in drawn
    assert "Uplink" not in drawn
    assert {path.name for path in tmp_path.iterdir()} == {"walk.up.png", "down.svg"}
    reported = json.loads(run("compare", "walk.up", "walk.down", "--json").output)
    assert {name: list(parts) for name, parts in reported.items()} == {"walk.up": ["uplink"], "walk.down": ["downlink"]}
    assert list(json.loads(run("stats", "walk.down", "--json").output)["walk.down"]) == ["downlink"]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["plot", "walk", "-o", "a.gif"], PictureError, "ends with .png, .svg or .html"),
        (["plot", "walk", "-o", "/nowhere/a.png"], PictureError, "/nowhere/a.png: cannot be written"),
        (["plot", "wlak"], TraceError, "did you mean 'walk'"),
        (["compare", "walk.up", "--part", "downlink"], TraceError, "has no downlink: it has only the uplink"),
        (["export", "walk.up", "--format", "rate", "-o", "a"], TraceError, "only whole entries can be exported"),
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
    assert "the length of an outage must be above 0" in run("stats", "walk", "--outage", "0 s").output


def test_rates_durations_figures_and_moments_are_written_to_be_read() -> None:
    rates = {834e3: "834 kbit/s", 16.7e6: "16.7 Mbit/s", 999.7e6: "1000 Mbit/s", 2.5e9: "2.5 Gbit/s", 0: "0 bit/s"}
    assert {each: rate_words(each) for each in rates} == rates
    durations = {0: "0 s", 40e-9: "40 ns", 56.3e-6: "56.3 µs", 0.0239: "23.9 ms", 1.2: "1.2 s", 599: "599 s"}
    durations |= {1012.5: "16.9 min", 86_400: "24 h"}
    assert {each: duration_words(each) for each in durations} == durations
    figures = {("outage_longest_ms", 78319.0): "78.3 s", ("p50_ms", 0.0563): "56.3 µs", ("outages", 1234): "1,234"}
    figures |= {("correlation_time_s", 4000): "66.7 min", ("p5_bit_s_100ms", 0.0): "0 bit/s"}
    assert {each: words(*each) for each in figures} == figures
    dates = {"2025-03-14T08:59:59Z": "2025-03-14 08:59 UTC", "2025-03-14T08:59": "2025-03-14 08:59"}
    dates |= {"2025-03-14T08:59:59.5+02:00": "2025-03-14 08:59 +02:00", "2025-03": "2025-03"}
    assert {each: date_words(each) for each in dates} == dates
    assert all(read in sentence(About(origin="recorded", date=each), SECOND) for each, read in dates.items())


def test_labels_of_logarithmic_axes_do_not_overlap_for_any_span() -> None:
    random = np.random.default_rng(48)
    for least, factor in zip(10 ** random.uniform(0, 3, 60), 10 ** random.uniform(0.01, 2, 60), strict=True):
        axes = Figure(figsize=(11, 3.1)).subplots()
        axes.set(xscale="log", yscale="log", xlim=(least, least * factor), ylim=(least, least * factor))
        for axis in (axes.xaxis, axes.yaxis):
            label_decades(axis, least, least * factor)
        axes.figure.draw_without_rendering()
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            boxes = [
                tick.label1.get_window_extent() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
            assert len(boxes) > 2
            assert not any(one.overlaps(other) for one, other in pairwise(boxes)), (least, factor)
