"""Every figure of the statistics: its unit and meaning, for the terminal and the documentation's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cellbed.archive.statistics.analysis import TRIP_PERCENTILES
from cellbed.archive.statistics.capacity import PERCENTILES, SCALES_NS
from cellbed.archive.statistics.dependence import LAGS_S


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure. unit: unit of the value, empty if none. about: meaning of the value."""

    unit: str
    about: str


_SCALES: Final = {"10ms": "10 ms", "100ms": "100 ms", "1s": "1 s"}
assert set(_SCALES) == set(SCALES_NS)

_COMMON: Final = {
    "definition": Figure("", "version of these definitions"),
    "outage_from_ms": Figure("ms", "minimum length of a silence that counts as an outage"),
    "outages": Figure("", "number of outages"),
    "outage_share": Figure("", "share of time in outages"),
    "outage_mean_ms": Figure("ms", "mean length of an outage"),
    "outage_p50_ms": Figure("ms", "median length of an outage"),
    "outage_p95_ms": Figure("ms", "P95 of the lengths of outages"),
    "outage_longest_ms": Figure("ms", "length of the longest outage"),
    "outage_longest_at_s": Figure("s", "when the longest outage begins"),
    "outage_begins_s": Figure("s", "when the 64 longest outages begin, in order of time"),
    "outage_lengths_s": Figure("s", "their lengths"),
    "kpss": Figure("", "statistic of the KPSS test for a constant level, over means of 1 s"),
    "stationary": Figure("", "whether the KPSS test does not reject a constant level at 5 % (0.463)"),
    "correlation_time_s": Figure("s", "first lag at which the autocorrelation of the means of 1 s is below 1/e"),
    "hours": Figure(
        "h", "hours of the day that the series reaches, or hours since its beginning where that is unknown"
    ),
    "hours_known": Figure("", "whether `hours` are of the day"),
} | {
    f"autocorrelation_{lag}s": Figure("", f"autocorrelation of the means of 1 s at a lag of {lag} s") for lag in LAGS_S
}

_CAPACITY: Final = (
    {"mean_bit_s": Figure("bit/s", "all bits divided by the whole duration")}
    | {
        f"p{at}_bit_s_{scale}": Figure("bit/s", f"P{at} of the rates over {words} each")
        for scale, words in _SCALES.items()
        for at in PERCENTILES
    }
    | {f"cv_{scale}": Figure("", f"coefficient of variation of the rates over {_SCALES[scale]}") for scale in _SCALES}
    | {
        "autocorrelation_100ms": Figure("", "autocorrelation of the rates over 100 ms at a lag of 100 ms"),
        "longest_silence_ms": Figure("ms", "longest time without an opportunity, outage or not"),
        "burst_mean": Figure("", "mean number of opportunities in a millisecond that has one"),
        "burst_p50": Figure("", "median of that number"),
        "burst_p99": Figure("", "P99 of that number"),
        "burst_max": Figure("", "highest of that number"),
        "busy_ms_share": Figure("", "share of the milliseconds that have an opportunity"),
        "batching_p50_ms": Figure("ms", "half of the opportunities came in a burst after a silence of at least this"),
        "batching_p95_ms": Figure("ms", "one of twenty came in a burst after a silence of at least this"),
        "batched_share_5ms": Figure(
            "", "share of the opportunities that came in a burst after a silence of 5 ms or more"
        ),
        "spacing_ms": Figure("ms", "median time between the rows of a series of rates"),
        "hourly_mean_bit_s": Figure("bit/s", "mean rate in each of `hours`"),
    }
)

_FROM: Final = {
    name: "" if share == 0.5 else f", from {round(1 / min(share, 1 - share)):,} answers on"
    for name, share in TRIP_PERCENTILES.items()
}
_ROUND_TRIPS: Final = {
    "probes": Figure("", "number of probes"),
    "lost": Figure("", "probes without an answer"),
    "loss": Figure("", "their share"),
    "loss_longest_run": Figure("", "longest sequence of lost probes"),
    "interval_ms": Figure("ms", "median time between one probe and the next"),
    "pause_longest_ms": Figure("ms", "longest time between one probe and the next, for which a replay holds one value"),
    "pause_longest_at_s": Figure("s", "when it begins"),
    "mean_ms": Figure("ms", "mean round-trip time"),
    "least_ms": Figure("ms", "shortest round-trip time"),
    "most_ms": Figure("ms", "longest round-trip time"),
    "cv": Figure("", "coefficient of variation of round-trip times"),
    "jitter_ms": Figure("ms", "mean difference between one answer's time and the next one's"),
    "hourly_p50_ms": Figure("ms", "median in each of `hours`"),
    "hourly_p95_ms": Figure("ms", "P95 in each of `hours`"),
    "hourly_loss": Figure("", "loss in each of `hours`"),
} | {
    f"{name}_ms": Figure("ms", f"P{share * 100:g} of round-trip times{_FROM[name]}")
    for name, share in TRIP_PERCENTILES.items()
}

FIGURES: Final = _CAPACITY | _ROUND_TRIPS | _COMMON
