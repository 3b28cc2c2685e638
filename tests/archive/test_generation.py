"""Generators: what they say of themselves is so, equal seeds give equal values, and what is fitted comes close."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.stats import ks_2samp, wasserstein_distance
from typer.testing import CliRunner, Result

from cellbed.archive import Archive, TraceError, resolve
from cellbed.archive.generation.markov import fit
from cellbed.archive.generation.models import MOBILITY, Order, radio
from cellbed.archive.generation.presets import PRESETS
from cellbed.archive.generation.radio import Handover, RadioLink
from cellbed.archive.generation.recorded import OUTAGE_NS, Recorded, read_recorded
from cellbed.archive.generation.series import (
    FINEST_NS,
    OPPORTUNITY_BITS,
    Capacity,
    Generated,
    Grain,
    opportunities,
    write,
)
from cellbed.archive.randomness import Stream
from cellbed.archive.series import Part
from cellbed.cli.traces import app

SECOND = 1_000_000_000


def _values(generated: Generated, folder: Path) -> str:
    path = folder / "values.parquet"
    path.unlink(missing_ok=True)
    return write(generated, path, "uplink", lambda part, share: None).values_sha256


def _times(generated: Generated) -> Any:
    return pl.concat(generated.chunks())["at_ns"].to_numpy()


# --- capacity and opportunities


@some.composite
def _capacities(draw: some.DrawFn) -> Capacity:
    lengths = draw(some.lists(some.integers(1, 5 * FINEST_NS), min_size=1, max_size=20))
    rates = draw(some.lists(some.integers(0, 10**11), min_size=len(lengths), max_size=len(lengths)))
    ends = np.cumsum(np.array(lengths, np.int64))
    return Capacity(ends - np.array(lengths), np.array(rates, np.int64) // (1 + len(lengths)), int(ends[-1]))


@given(
    _capacities(),
    some.builds(Grain, some.sampled_from([1, 125_000, 1_000_000]), some.integers(4, 36), some.booleans()),
)
@settings(max_examples=60, deadline=None)
def test_opportunities_are_as_many_as_the_rate_pays_for_and_in_order(capacity: Capacity, grain: Grain) -> None:
    found = [at for chunk in opportunities(capacity, grain, Stream(1, "test")) for at in chunk.tolist()]
    lasts = np.append(capacity.at_ns[1:], capacity.end_ns) - capacity.at_ns
    bits = sum(int(rate) * int(length) for rate, length in zip(capacity.bit_s, lasts, strict=True)) / 1e9
    # Each piece of a spell loses less than what 1000 bit/s carry in it, and a bit.
    lost = sum((int(length) // FINEST_NS + 1) * 2 + int(length) * 1e-6 for length in lasts)
    assert (bits - lost) / OPPORTUNITY_BITS - 1 <= len(found) <= bits / OPPORTUNITY_BITS
    assert found == sorted(found)
    assert all(0 < at <= capacity.end_ns for at in found)
    assert all(at % grain.slot_ns == 0 or at == capacity.end_ns for at in found)


# --- the same everywhere

PROMISED = {
    "lte-netherlands": "7a7033f05eeb9c50e222fa4d78faf659add5dfc1dc8451e077f3f78f0cdbbcc4",
    "5g-window-netherlands": "41bd1b4f090294ca7bfa3b57b271d257bcc54ee4782f88a7ab217122177d7199",
}
"""Of the downlink of seed 1 and the model's own duration: what no machine and no version may change."""
MODELS = {model.name: model for model in PRESETS}


@pytest.mark.parametrize("name", PROMISED)
def test_values_are_the_same_everywhere(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    assert _values(model.make(Order(name, 1, model.duration_ns))["downlink"], tmp_path) == PROMISED[name]


def test_other_seeds_and_directions_give_other_values(tmp_path: Path) -> None:
    model = MODELS["lte-netherlands"]
    order = Order(model.name, 5, 10 * SECOND)
    made = [model.make(order), model.make(order), model.make(replace(order, seed=6))]
    assert len({_values(each[part], tmp_path) for each in made for part in ("uplink", "downlink")}) == 4


# --- presets

PUBLISHED = [
    # Mishchenko, 2025, §5.3: the highest second, Mbit/s
    ("lte-netherlands", "uplink", 18, 22),
    ("lte-netherlands", "downlink", 72, 88),
    ("5g-netherlands", "uplink", 67.5, 82.5),
    ("5g-netherlands", "downlink", 180, 220),
    ("5g-window-netherlands", "uplink", 22, 25.2),
    ("5g-window-netherlands", "downlink", 180, 220),
    # Lim et al., 2024, §V-A
    ("lte-att-edge", "downlink", 270, 282),
]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("name", "part", "low", "high"), PUBLISHED)
def test_the_highest_second_is_as_published(name: str, part: Part, low: float, high: float, seed: int) -> None:
    order = Order(name, seed, MODELS[name].duration_ns)
    seconds = Recorded(_times(MODELS[name].make(order)[part]), order.duration_ns).rates(SECOND) / 1e6
    assert low <= seconds.max() <= high
    if (name, part) == ("5g-window-netherlands", "uplink"):
        assert np.mean((seconds >= 10) & (seconds <= 25.2)) >= 0.9  # "largely"


@pytest.mark.parametrize("every", MOBILITY.values())
def test_handovers_come_as_often_as_published(every: int) -> None:
    link = RadioLink("lowband-good", handover=Handover(every))
    gaps = np.diff(_times(link.saturated("uplink", 4 * every, 1)))
    long = gaps[gaps >= 75_000_000]
    assert len(long) == 4
    assert all(75_000_000 < gap < 400_000_000 for gap in long)


def test_an_obstacle_takes_the_rate_and_gives_it_back() -> None:
    model = radio("mmwave", "profile", "vehicle", (2 * SECOND,), 2 * SECOND)
    at = _times(model.make(Order("radio", 1, 6 * SECOND))["downlink"])
    rates = np.bincount(np.maximum(at - 1, 0) // (SECOND // 2), minlength=12) * OPPORTUNITY_BITS * 2 / 1e9
    assert all(rate == pytest.approx(2.0, rel=0.2) for rate in [*rates[:4], *rates[8:]])
    assert all(rate == pytest.approx(0.35, rel=0.3) for rate in rates[5:7])


# --- like a recording


def _like(recorded: Recorded, rounds: int = 1) -> Recorded:
    """A series of the model that is fitted to a recording, so many times as long."""
    model, lasts = fit(recorded), rounds * recorded.duration_ns
    chunks = opportunities(model.capacity(lasts, Stream(1, "test")), model.grain, Stream(1, "test opportunities"))
    return Recorded(np.concatenate(list(chunks)), lasts)


def test_a_long_series_has_the_distribution_of_the_recording_that_it_is_like(archive: Archive) -> None:
    (recorded,) = read_recorded("lte-suburban.up", Path()).parts.values()
    found = _like(recorded, 20)
    assert ks_2samp(recorded.rates(), found.rates()).statistic < 0.06
    assert wasserstein_distance(recorded.rates(), found.rates()) < 0.04 * recorded.rates().mean()
    outages = len(found.outages(OUTAGE_NS)[0]) / 20
    assert outages == pytest.approx(len(recorded.outages(OUTAGE_NS)[0]), rel=0.5)


@given(some.integers(0, 2**32), some.integers(25, 60), some.floats(0.0, 0.2), some.integers(1, 2000))
@settings(max_examples=25, deadline=None)
def test_any_recording_that_is_long_enough_is_fitted(seed: int, seconds: int, gaps: float, per_second: int) -> None:
    draw = np.random.default_rng(seed)
    at = np.sort(draw.integers(1, seconds * SECOND, seconds * per_second))
    for begin in draw.integers(0, seconds * SECOND, int(gaps * 10)):
        at = at[(at < begin) | (at > begin + SECOND // 2)]
    recorded = Recorded(at, seconds * SECOND)
    if int(recorded.outages(200_000_000)[1].sum()) > recorded.duration_ns - 21 * SECOND:
        return  # too little is left to be fitted
    generated = _like(recorded)
    assert (np.diff(generated.at_ns) >= 0).all()
    assert 0 < generated.at_ns[0] <= generated.at_ns[-1] <= recorded.duration_ns
    assert len(generated.at_ns) == pytest.approx(len(at), rel=0.5)


# --- the command


def _run(*words: str) -> Result:
    return CliRunner().invoke(app, ["generate", *words], env={"COLUMNS": "120"})


def test_a_generated_entry_names_its_source(bare_archive: Archive) -> None:
    made = _run("5g-window-netherlands", "--duration", "5 s", "--seed", "4", "--json")
    assert made.exit_code == 0, made.output
    entry = bare_archive.entry("5g-window-netherlands")
    about = entry.about
    assert (about.origin, about.technology, about.obstacle) == ("synthetic", "5g", "window")
    assert "Mishchenko" in (about.citation or "")
    assert "not recorded on any network" in (about.note or "")
    (step,) = entry.history
    assert (step.how["model"], step.how["seed"]) == ("5g-window-netherlands", 4)
    assert step.tool.startswith("cellbed ")
    reported = json.loads(made.stdout)["parts"]["uplink"]
    assert reported["values_sha256"] == step.how["values_sha256"]["uplink"]
    values = bare_archive.series("5g-window-netherlands", "uplink").scan().collect()["at_ns"].to_numpy()
    digest = hashlib.sha256(hashlib.sha256(values.astype("<i8").tobytes()).digest()).hexdigest()
    assert digest == reported["values_sha256"]
    trace = resolve("5g-window-netherlands.up", Path()).trace
    assert trace.duration_ns == 5 * SECOND


def test_markov_records_its_input(archive: Archive) -> None:
    made = _run("markov", "--like", "lte-suburban", "--name", "other-suburban")
    assert made.exit_code == 0, made.output
    assert "other-suburban.up" in made.stdout
    entry = archive.entry("other-suburban")
    assert set(entry.parts) == {"uplink", "downlink"}
    (step,) = entry.history
    assert step.of["lte-suburban uplink"] == archive.entry("lte-suburban").parts["uplink"].sha256
    assert entry.about.licence is None


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (("lte-nederlands",), "No such command 'lte-nederlands'"),
        (("markov",), "Missing option '--like'"),
        (("markov", "--like", "nothing-here"), "nothing-here"),
        (("radio", "--obstacle", "body"), "write --profile mmwave"),
        (("radio", "--profile", "mmwave", "--obstacle", "body", "--obstacle-at", "1 s, 2 s"), "obstacles overlap"),
        (("radio", "--profile", "moon"), "moon"),
        (("lte-netherlands", "--duration", "0 s"), "must be above 0"),
        (("lte-netherlands", "--duration", "9999 h"), "at most 31 days"),
        (("lte-netherlands", "--duration", "1 ns"), "--duration: nothing comes through the uplink in 1 ns"),
        (("lte-netherlands", "--name", "Not A Name", "--duration", "1 s"), "is not a valid name"),
        (("lte-netherlands", "--name", "lte-suburban"), "lte-suburban"),
        (("radio", "--profile", "mmwave", "--obstacle", "body", "--obstacle-at", "300 s"), "no obstacle within the"),
        (("radio", "--profile", "mmwave", "--obstacle", "body", "--obstacle-for", "0 s"), "'0 s' is out of range"),
    ],
)
def test_invalid_options_are_refused_in_a_line_before_generation(
    archive: Archive, words: tuple[str, ...], reported: str
) -> None:
    done = _run(*words)
    said = " ".join(f"{done.output} {done.exception}".split())
    assert reported in said
    # Click's own errors, and ours, end with 2.
    assert done.exit_code == 2 or isinstance(done.exception, TraceError)
    assert ".unfinished" not in said
    assert archive.names() == ["5g-midband", "lte-suburban"]


def test_a_recording_that_is_too_short_is_not_fitted(bare_archive: Archive, tmp_path: Path) -> None:
    path = tmp_path / "short.up"
    path.write_text("".join(f"{stamp}\n" for stamp in range(1, 5000)))
    made = _run("markov", "--like", str(path))
    assert "needs at least 20 s" in str(made.exception)
    assert bare_archive.names() == ["5g-midband", "lte-suburban"]
