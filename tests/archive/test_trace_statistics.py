"""Statistics of series: held against plain computations over all rows, and against what a model must give."""

import itertools
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellbed.archive import TraceError
from cellbed.archive.series import Content, Series
from cellbed.archive.statistics import FIGURES, Definition, analyse, dependence, statistics
from cellbed.archive.statistics.dependence import autocorrelation, kpss

MS = 10**6
S = 10**9


def opportunities(folder: Path, at_ns: Sequence[int] | Any, duration_ns: int) -> Series:
    path = folder / "uplink.parquet"
    pl.DataFrame({"at_ns": pl.Series(at_ns, dtype=pl.Int64)}).write_parquet(path)
    return Series(Content.OPPORTUNITIES, path, duration_ns)


def rates(folder: Path, at_ns: Any, bit_s: Any, duration_ns: int) -> Series:
    path = folder / "downlink.parquet"
    columns = {"at_ns": pl.Series(at_ns, dtype=pl.Int64), "bit_s": pl.Series(bit_s, dtype=pl.Float64)}
    pl.DataFrame(columns).write_parquet(path)
    return Series(Content.RATE, path, duration_ns)


def round_trips(folder: Path, at_ns: Any, trips: Any, duration_ns: int) -> Series:
    path = folder / "round-trip.parquet"
    columns = {"at_ns": pl.Series(at_ns, dtype=pl.Int64), "round_trip_ns": pl.Series(trips, dtype=pl.Int64)}
    pl.DataFrame(columns).write_parquet(path)
    return Series(Content.ROUND_TRIP, path, duration_ns)


def poisson(rate: float, seconds: float, seed: int = 1) -> Any:
    random = np.random.default_rng(seed)
    at = np.cumsum(random.exponential(S / rate, int(rate * seconds * 1.2)))
    return at[at < seconds * S].astype(np.int64)


def test_figures_of_opportunities_are_those_of_a_plain_computation(tmp_path: Path) -> None:
    at = poisson(400, 61.27)
    at = at[(at < 20 * S) | (at > 23.5 * S)]
    found = statistics(opportunities(tmp_path, at, 61_270 * MS))
    assert found["mean_bit_s"] == pytest.approx(len(at) * 12_000 / 61.27, rel=1e-5)
    for scale, width in (("10ms", 10 * MS), ("100ms", 100 * MS), ("1s", S)):
        counts = np.bincount(at // width, minlength=61_270 * MS // width)[: 61_270 * MS // width]
        rate = counts * 12_000 * S / width
        for percentile in (1, 5, 25, 50, 75, 95, 99):
            expected = np.percentile(rate, percentile, method="inverted_cdf")
            assert found[f"p{percentile}_bit_s_{scale}"] == pytest.approx(expected, rel=1e-5)
        assert found[f"cv_{scale}"] == pytest.approx(rate.std() / rate.mean(), rel=1e-5)
    assert found["outages"] == 1
    begin = at[at < 20 * S][-1]
    length = at[at > 23 * S][0] - begin
    assert found["outage_longest_ms"] == pytest.approx(length / MS, rel=1e-5)
    assert found["outage_longest_at_s"] == pytest.approx(begin / S, rel=1e-5)
    assert found["outage_share"] == pytest.approx(length / (61_270 * MS), rel=1e-5)
    assert found["longest_silence_ms"] == found["outage_longest_ms"]
    _, bursts = np.unique(at // MS, return_counts=True)
    assert found["burst_mean"] == pytest.approx(bursts.mean(), rel=1e-5)
    assert found["burst_max"] == bursts.max()
    assert found["busy_ms_share"] == pytest.approx(len(bursts) / 61_270, rel=1e-4)
    assert set(found) <= set(FIGURES)


def test_outages_follow_the_definition_across_the_seam(tmp_path: Path) -> None:
    at = np.concatenate((np.arange(200, 1000, 10), np.arange(1200, 2000, 10))) * MS
    series = opportunities(tmp_path, at, 2150 * MS)
    found = statistics(series)
    assert found["outages"] == 1
    assert found["outage_longest_ms"] == 360  # 1990 to 2150, and again 0 to 200
    assert found["outage_longest_at_s"] == 1.99
    found = statistics(series, Definition(outage_ns=200 * MS))
    assert found["outages"] == 2
    assert found["outage_from_ms"] == 200
    assert statistics(series, Definition(outage_ns=400 * MS))["outages"] == 0


def test_a_rate_too_low_for_one_opportunity_in_an_outage_is_none(tmp_path: Path) -> None:
    # 300 ms for 1500 bytes are 40 kbit/s.
    bit_s = [1e6, 39_000, 0, 1e6, 41_000, 1e6]
    found = statistics(rates(tmp_path, np.arange(6) * S, bit_s, 6 * S))
    assert found["outages"] == 1
    assert (found["outage_longest_at_s"], found["outage_longest_ms"]) == (1, 2000)
    assert found["spacing_ms"] == 1000
    assert "p50_bit_s_1s" in found
    assert "p50_bit_s_100ms" not in found  # rows a second apart say nothing of that
    assert found["mean_bit_s"] == pytest.approx(sum(bit_s) / 6)


def test_batching_distinguishes_bursts_from_a_slow_link(tmp_path: Path) -> None:
    slow = statistics(opportunities(tmp_path, np.arange(0, 60_000, 12) * MS, 60 * S))
    assert (slow["burst_max"], slow["batching_p50_ms"], slow["batched_share_5ms"]) == (1, 0, 0)
    gathered = np.repeat(np.arange(0, 60_000, 8), 4) * MS
    found = statistics(opportunities(tmp_path, gathered, 60 * S))
    assert (found["burst_p50"], found["batching_p50_ms"]) == (4, 8)
    assert found["batched_share_5ms"] > 0.99
    fast = statistics(opportunities(tmp_path, np.arange(0, 60 * S, S // 5000), 60 * S))
    assert fast["burst_p50"] == 5
    assert fast["batched_share_5ms"] < 0.01


def test_a_constant_level_is_stationary_and_a_drift_is_not() -> None:
    random = np.random.default_rng(3)
    rejected = sum(kpss(random.normal(size=200)) > 0.463 for _ in range(400))
    assert 0.02 <= rejected / 400 <= 0.09  # 5 % by the test's level
    walks = sum(kpss(np.cumsum(random.normal(size=200))) > 0.463 for _ in range(100))
    assert walks >= 70
    assert kpss(random.normal(size=300) + np.linspace(0, 2, 300)) > 0.463
    assert kpss(np.full(100, 7.0)) == 0


def test_the_autocorrelation_is_that_of_the_process() -> None:
    random = np.random.default_rng(4)
    noise = random.normal(size=20_000)
    values = np.zeros(20_000)
    for i in range(1, len(values)):
        values[i] = 0.8 * values[i - 1] + noise[i]
    found = autocorrelation(values, 19_990)
    np.testing.assert_allclose(found[:6], 0.8 ** np.arange(6), atol=0.04)
    deviations = values - values.mean()
    for lag in (0, 1, 2, 4096, 19_990):
        expected = deviations[lag:] @ deviations[: len(values) - lag] / (deviations @ deviations)
        assert found[lag] == pytest.approx(expected, abs=1e-12)
    # Of a step in the middle of T values it is 1 - 3 k / T at a lag k.
    step = np.repeat([20.0, 50.0], 50_000)
    assert dependence.figures(step)["correlation_time_s"] == pytest.approx((1 - 1 / np.e) * len(step) / 3, rel=1e-4)


def test_delay_loss_and_load_by_hour_of_day(tmp_path: Path) -> None:
    seconds = np.arange(0, 6 * 3600, 2)
    hour = 22 + seconds // 3600
    trips = np.where((hour % 24 >= 1), 30 * MS + hour * MS // 100, 60 * MS)
    lost = (seconds // 2) % 10 == 0
    series = round_trips(tmp_path, seconds * S, pl.Series(trips).set(pl.Series(lost), None), 6 * 3600 * S)
    found = statistics(series, starts_at_s=22 * 3600)
    assert found["hours"] == [0, 1, 2, 3, 22, 23]
    assert found["hours_known"] is True
    assert found["hourly_p50_ms"][0] == 60
    assert 30 <= found["hourly_p50_ms"][1] <= 31
    assert found["hourly_loss"] == pytest.approx([0.1] * 6, abs=0.001)
    assert (found["probes"], found["lost"]) == (len(seconds), int(lost.sum()))
    assert found["loss_longest_run"] == 1
    assert statistics(series)["hours_known"] is False
    at = np.arange(0, 7200, 1) * S
    found = statistics(rates(tmp_path, at, np.where(at < 3600 * S, 1e6, 3e6), 7200 * S), starts_at_s=8 * 3600)
    assert (found["hours"], found["hourly_mean_bit_s"]) == ([8, 9], [1e6, 3e6])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(1, 500)), min_size=1, max_size=60), st.integers(0, 999))
def test_losses_are_counted_by_runs(trips: list[int | None], tail: int) -> None:
    values = [None if trip is None else trip * MS for trip in trips]
    with tempfile.TemporaryDirectory() as folder:
        at = np.arange(len(trips)) * 200 * MS
        found = statistics(round_trips(Path(folder), at, values, int(at[-1]) + tail * MS + 1))
    runs = [len(list(group)) for lost, group in itertools.groupby(trip is None for trip in trips) if lost]
    assert (found["loss_longest_run"], found["lost"]) == (max(runs, default=0), sum(runs))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 900), st.sampled_from([0.0, 1e4, 5e5, 2e6])), min_size=1, max_size=50),
    st.integers(1, 3000),
)
def test_the_bits_of_a_rate_are_all_in_the_bins(rows: list[tuple[int, float]], tail: int) -> None:
    at = np.cumsum([0, *(ms * MS for ms, _ in rows[:-1])])
    bit_s = np.array([1e6, *(rate for _, rate in rows[1:])])
    duration = (int(at[-1]) + tail * MS) // (10 * MS) * 10 * MS + 10 * MS
    with tempfile.TemporaryDirectory() as folder:
        found = analyse(rates(Path(folder), at, bit_s, duration))
    bits = float((bit_s * np.diff(np.append(at, duration))).sum()) / S
    assert found.statistics["mean_bit_s"] * duration / S == pytest.approx(bits, rel=1e-5)


@pytest.mark.parametrize(
    ("columns", "content", "duration", "words"),
    [
        ({"at_ns": [1, 3, 2]}, Content.OPPORTUNITIES, 10, "times decrease"),
        ({"at_ns": [1, None, 2]}, Content.OPPORTUNITIES, 10, "missing times in at_ns"),
        ({"at_ns": [-1, 2]}, Content.OPPORTUNITIES, 10, "a time is negative"),
        ({"at_ns": []}, Content.OPPORTUNITIES, 10, "has a column at_ns of whole numbers"),
        ({"at_ns": [1, 3]}, Content.OPPORTUNITIES, 2, "a duration of 2 ns does not fit: the last row is at 3 ns"),
        ({"at_ns": [1, 3]}, Content.OPPORTUNITIES, 10**18, "the limit is 400 days"),
        ({"at_ns": [1.0, 3.0]}, Content.OPPORTUNITIES, 10, "has a column at_ns of whole numbers"),
        ({"at_ns": [1, 3]}, Content.RATE, 10, "has a column bit_s of numbers in floating point"),
        ({"at_ns": [1, 3], "bit_s": [1.0, float("nan")]}, Content.RATE, 10, "1 rows have no rate"),
        ({"at_ns": [1, 3], "bit_s": [1.0, None]}, Content.RATE, 10, "1 rows have no rate"),
        ({"at_ns": [1, 3], "bit_s": [1.0, 1e300]}, Content.RATE, 10, "above 1 Tbit/s"),
        ({"at_ns": [1, 3], "round_trip_ns": [5, -1]}, Content.ROUND_TRIP, 10, "a round-trip time is negative"),
        ({"at_ns": [1, 3], "bit_s": [1.0, -1.0]}, Content.RATE, 10, "a rate is negative"),
        ({"at_ns": pl.Series([], dtype=pl.Int64)}, Content.OPPORTUNITIES, 10, "no rows: nothing to replay"),
        ({"at_ns": [1], "round_trip_ns": [10**18]}, Content.ROUND_TRIP, 10, "more than an hour: wrong unit"),
    ],
)
def test_invalid_series_are_refused(
    tmp_path: Path, columns: dict[str, Any], content: Content, duration: int, words: str
) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(TraceError, match=words):
        statistics(Series(content, tmp_path / "x.parquet", duration))


@pytest.mark.parametrize("kept", [0, 3, 60, 400])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, kept: int) -> None:
    series = opportunities(tmp_path, range(10_000), 10_000)
    whole = series.path.read_bytes()
    assert len(whole) > 400
    series.path.write_bytes(whole[:kept])
    with pytest.raises(TraceError, match=r"uplink\.parquet: not a readable Parquet file") as caught:
        statistics(series)
    assert "\n" not in str(caught.value)


def test_one_lost_probe_is_no_outage_but_several_in_a_row_are(tmp_path: Path) -> None:
    trips = [20 * MS] * 20
    for lost in (3, 8, 9, 10, 15):
        trips[lost] = None  # type: ignore[call-overload]
    found = statistics(round_trips(tmp_path, np.arange(20) * S, trips, 20 * S))
    assert (found["lost"], found["loss_longest_run"]) == (5, 3)
    assert (found["outages"], found["outage_longest_at_s"], found["outage_longest_ms"]) == (1, 8, 2000)


@pytest.mark.parametrize(("count", "highest"), [(1, "p50"), (10, "p90"), (99, "p95"), (100, "p99"), (1000, "p999")])
def test_percentiles_need_answers_beyond_them(tmp_path: Path, count: int, highest: str) -> None:
    found = statistics(
        round_trips(tmp_path, np.arange(count) * S, [(20 + at % 7) * MS for at in range(count)], count * S)
    )
    reported = [name for name in ("p50", "p90", "p95", "p99", "p999") if f"{name}_ms" in found]
    assert reported[-1] == highest


def test_the_documentation_names_every_figure() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "trace-statistics.md").read_text()
    names = [name for row in page.partition("| names |")[2].splitlines() for name in re.findall("`(.*?)`", row)]
    pattern = "|".join(names).replace("pN", r"p\d+").replace("BIN", r"\d+m?s").replace("…", ".*")
    assert [key for key in FIGURES if not re.fullmatch(pattern, key)] == []
