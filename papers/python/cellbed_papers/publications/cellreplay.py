"""CellReplay, record and replay of cellular networks: the paper's experiments and claims, as data.

The live networks of the paper are not to be had. Our model of a radio link takes their place: the paper's experiments
run over the model, and over its replays by Mahimahi's and by CellReplay's method.
"""

from __future__ import annotations

import math
import operator as operator_module
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cellbed import CellbedError
from cellbed.extension.files import temporary_folder
from cellbed.extension.recorded import Recording, opportunities, read_recording
from cellbed.extension.reports import Samples
from cellbed_papers.drawings import Levels, Setting, bars, curves, distributions, lines, listed
from cellbed_papers.evaluation.applications import (
    APPLICATIONS,
    ROUND_TRIP,
    Downloads,
    Pages,
    Player,
    Protocol,
    RoundTrips,
    Trains,
    download,
    page,
    train,
)
from cellbed_papers.evaluation.evaluate import LEAD_NS, Plan, replay, run_trials
from cellbed_papers.evaluation.network import REFERENCE, Network, profile_reference
from cellbed_papers.publication import (
    LARGER,
    NEAR,
    SMALLER,
    Answer,
    Claim,
    Data,
    Draw,
    Finding,
    Input,
    Simulated,
    SimulatedPublication,
    Trials,
    Values,
    pair_repetitions,
    values_above,
    values_below,
)

MAHIMAHI, CELLREPLAY = "saturation", "cellreplay"
"""The compared methods, with their names in the evaluation."""
OPERATORS = {"T-Mobile, mid-band": "midband", "Verizon, low-band": "lowband"}
"""The paper's networks, with the band of our model."""
CONDITIONS = {"good": "good", "basement": "weak", "library": "crowded", "walking": "walking", "driving": "driving"}
"""The paper's conditions, with ours."""
PROBES = "probes"
"""Name, among applications, of the measurements of section 3.2 on the live network alone."""
MODEL = "radio model"
"""The input that the effects of section 3 follow from: our model is fitted to them (docs/reference/radio.md)."""
LENGTHS = Trains().lengths
_MS = 1_000_000
_PACKET = 1400
SIZES = (_PACKET, 100)
"""Sizes of packets whose round-trip times are compared, bytes."""
_DRAWN = 200
_PROBED = (50, 100, 500)
"""Lengths of trains whose delivery rates are compared."""
ERRORS = {
    "basement": (0.1522, 0.0587),
    "library": (0.2251, 0.0847),
    "walking": (0.1448, 0.0413),
    "driving": (0.1315, 0.0697),
}
"""Errors of page load times with Mahimahi and CellReplay, by condition (sections 1 and 5.7)."""


# ---- trials


def given(_: Sequence[Path]) -> tuple[None, Input]:
    """Return the description of the network."""
    return None, Input(MODEL, "our model of two operators in five conditions in place of the live networks", True)


def describe(labels: Mapping[str, str], scale: Mapping[str, int], _: Any) -> dict[str, Any]:
    """Return the trial of a setting."""
    profile = f"{OPERATORS[labels['operator']]}-{CONDITIONS[labels['condition']]}"
    return {"profile": profile, "application": labels["application"], **scale}


def measure(description: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Record the network in the weather of a seed, replay the recording, and run an application on all.

    Returns the mean of each measure (of round-trip times the median) over the trials, by network and measure: seconds
    or Mbit/s; ``NETWORK trips_ms``: ranks of its round-trip times.

    Errors: :class:`CellbedError`.
    """
    reference, chosen = profile_reference(description["profile"]), description["application"]
    applications = () if chosen == PROBES else (APPLICATIONS[chosen](),)
    course_ns = description["seconds"] * 1000 * _MS
    plan = Plan((reference,), (MAHIMAHI, CELLREPLAY), applications, description["trials"], 1, course_ns, seed)
    with temporary_folder() as folder:
        networks, _ = replay(plan, folder, reference, 0)
        samples = run_trials(plan, networks, reference, 0)
        refusals = [each for each in networks.values() if isinstance(each, str)] + samples[
            "refused"
        ].drop_nulls().to_list()
        if refusals:
            raise CellbedError(refusals[0])
        if chosen == PROBES:
            (recording,) = (folder / "recordings").iterdir()
            return {**_probe(reference.network(seed).at(LEAD_NS)), **_rates(read_recording(recording))}
    by_measure = samples.with_columns(pl.col("value").fill_null(math.inf)).partition_by(
        "network", "measure", as_dict=True
    )
    found: dict[str, Any] = {}
    for (network, name), each in by_measure.items():
        values = each["value"].sort().to_numpy()
        found[f"{network} {name}"] = float((np.median if name == ROUND_TRIP else np.mean)(values))
        if name == ROUND_TRIP:
            found[f"{network} trips_ms"] = (1e3 * values[_drawn_of(len(values)) - 1]).tolist()
    return found


def _drawn_of(count: int) -> Any:
    """Return the ranks that are drawn of `count` values: at most 200, from 1."""
    return np.unique(np.linspace(1, count, min(count, _DRAWN)).astype(int))


def _rates(recording: Recording) -> dict[str, float]:
    """Return the rate of a saturated downlink, bit/s, and its calibrated gap, s; NaN if it was not found."""
    arrived = opportunities(recording, "downlink")
    rate = (len(arrived) - 1) * recording.description.packet_bytes * 8e9 / float(arrived[-1] - arrived[0])
    calibration = recording.description.calibration
    found = calibration.directions.downlink if calibration else None
    return {"rate": rate, "gap": np.nan if found is None or found.least_gap_ns is None else found.least_gap_ns / 1e9}


def _probe(live: Network) -> dict[str, Any]:
    """Return delivery rates of trains by direction, length and half, bit/s, round-trip times by packet size, s, and
    mean arrivals after the first packet by length, s."""
    found: dict[str, list[float]] = {}
    arrived: dict[str, list[Any]] = {}
    path, gap = live.path(), 400 * _MS
    for uplink, length in [(way, length) for way in (False, True) for length in (10, *_PROBED) for _ in range(10)]:
        sent = path.trains(path.now + gap, lengths=[length], uplink=uplink)
        arrivals = np.sort(sent.arrivals[0][sent.arrivals[0] >= 0])
        if len(arrivals) == length and not uplink:
            arrived.setdefault(f"arrivals {length}", []).append((arrivals - arrivals[0])[_drawn_of(length) - 1] / 1e9)
        for name, part in (("whole", arrivals), ("second", arrivals[length // 2 :]), ("first", arrivals[:50])):
            if len(part) > 1 and part[-1] > part[0]:
                rate = (len(part) - 1) * _PACKET * 8e9 / float(part[-1] - part[0])
                found.setdefault(f"{'up' if uplink else 'down'} {name} {length}", []).append(rate)
    for size in SIZES:
        trips = path.round_trips(path.now + gap, count=200, interval=50 * _MS, request=size, answer=SIZES[1])
        found[f"round trip {size}"] = (trips.taken[trips.answered] / 1e9).tolist()
    return {name: float(np.mean(values)) for name, values in found.items()} | {
        name: np.mean(values, axis=0).tolist() for name, values in arrived.items()
    }


# ---- claims


_GOOD = "good"
Column = Callable[[Data], Values]


def _point(operator: str, application: str, condition: str = _GOOD) -> dict[str, str]:
    return {"operator": operator, "condition": condition, "application": application}


def _combine(how: Callable[..., float], experiment: str, at: Mapping[str, str], *columns: str) -> Column:
    """Return the measure that combines columns of the trials at a point."""
    return lambda data: pair_repetitions(how, *(data[experiment].values(each, **at) for each in columns))


def _errors(
    experiment: str,
    method: str,
    measures: Sequence[str],
    points: Sequence[Mapping[str, str]],
    how: Callable[[Samples], Any] = lambda errors: np.mean(np.abs(errors)),
) -> Column:
    """Return the measure that summarises the errors of a replay, over measures and points. how: of the errors, by
    default the mean of their sizes."""

    def errors(data: Data) -> Values:
        columns = [
            data[experiment].values(f"{network} {name}", **at)
            for at in points
            for name in measures
            for network in (method, REFERENCE)
        ]
        return pair_repetitions(lambda *found: float(how(np.array(found[::2]) / np.array(found[1::2]) - 1)), *columns)

    return errors


def _saved(experiment: str, measures: Sequence[str], points: Sequence[Mapping[str, str]]) -> Column:
    """Return the share of Mahimahi's error that CellReplay saves."""
    ours, theirs = (_errors(experiment, method, measures, points) for method in (CELLREPLAY, MAHIMAHI))
    return lambda data: pair_repetitions(lambda one, other: 1 - one / other, ours(data), theirs(data))


def _excess(operator: str) -> Column:
    """Return by how much trains take longer, at most over their lengths, than a single packet and the saturated rate
    imply."""

    def most(rate: float, single: float, *others: float) -> float:
        lines = [single + (length - 1) * _PACKET * 8 / rate for length in LENGTHS[1:]]
        return max(time / line - 1 for time, line in zip(others, lines, strict=True))

    def excess(data: Data) -> Values:
        rate = data[PROBES].values("rate", **_point(operator, PROBES)) if PROBES in data else {}
        at = _point(operator, Trains.name)
        return pair_repetitions(
            most, rate, *(data["trains"].values(f"{REFERENCE} {train(length)}", **at) for length in LENGTHS)
        )

    return excess


def _pages(*protocols: Protocol) -> list[str]:
    return [page(name, protocol) for protocol in protocols or Pages().protocols for name in Pages().names]


def _live_claims() -> Iterator[Claim]:
    """Return the claims about the live network (sections 3 and 4). The model is fitted to most."""
    tmobile, verizon = OPERATORS
    for operator, slow, excess in ((tmobile, 0.1688, 0.115), (verizon, 0.1325, 0.358)):
        short, at = OPERATORS[operator], [_point(operator, RoundTrips.name)]
        trips = _errors("round-trips", MAHIMAHI, [ROUND_TRIP], at, lambda errors: -errors[0])
        for key, experiment, section, what, share, measure in (
            ("2", "round-trips", "Fig. 2", "Mahimahi's median round trip is too short", slow, trips),
            ("4", "trains", "Fig. 4", "trains take longer than the saturated rate implies", excess, _excess(operator)),
        ):
            yield Claim(f"{key}-{short}", experiment, section, f"{what}, {operator}", f"{share:.2%}", measure,
                        "share", figure=(share, share), made=(MODEL,))  # fmt: skip
    alike = (1 / NEAR, NEAR)
    for key, operator, what, published, one, other, agrees, figure in (
        ("lengths", verizon, "rate of trains of 100 packets over trains of 10", "2.6 times",
         "down whole 100", "down whole 10", LARGER, (2.6, 2.6)),
        ("halves", tmobile, "rate of the second half, 100 packets over 500", "mostly regardless",
         "down second 100", "down second 500", alike, None),
        ("halves", verizon, "rate of the second half, 100 packets over 500", "significantly different",
         "down second 100", "down second 500", values_below(1 / NEAR), None),
        ("first", tmobile, "rate of the first 50 of 500 packets over trains of 50", "slower",
         "down first 500", "down whole 50", SMALLER, None),
        ("first", verizon, "rate of the first 50 of 500 packets over trains of 50", "inverted",
         "down first 500", "down whole 50", LARGER, None),
        ("uplink", verizon, "uplink rate of trains of 50 packets over 100", "a straight line",
         "up whole 50", "up whole 100", alike, None),
    ):  # fmt: skip
        measure = _combine(operator_module.truediv, PROBES, _point(operator, PROBES), one, other)
        yield Claim(f"5-{key}-{OPERATORS[operator]}", PROBES, "Fig. 5", f"{what}, {operator}", published, measure,
                    agrees=agrees, figure=figure, made=(MODEL,))  # fmt: skip
    sooner = _combine(operator_module.sub, PROBES, _point(verizon, PROBES), *(f"round trip {size}" for size in SIZES))
    yield Claim("size", PROBES, "§3.2", f"{SIZES[1]} bytes arrive sooner than {SIZES[0]}, {verizon}", "6.8 ms", sooner,
                "time", agrees=values_above(0), figure=(0.0068, 0.0068), made=(MODEL,))  # fmt: skip
    for operator, short in OPERATORS.items():
        gap = _combine(float, PROBES, _point(operator, PROBES), "gap")
        yield Claim(f"8-{short}", PROBES, "Fig. 8", f"calibrated gap, {operator}", "30 ms in an example", gap, "time")
    yield Claim("beside", PROBES, "§4.2", "trains beside a saturating phone over trains alone", "light service",
                lambda data: {}, untried="Phones share a cell of the model, but not its slots.")  # fmt: skip


def _replay_claims() -> Iterator[Claim]:
    """Return the claims about replays (section 5), which nothing here is fitted to."""
    good = [_point(operator, Pages.name) for operator in OPERATORS]
    yield from _reduced("pages", "§5.4", "page load times", _pages(), good, (0.171, 0.067))
    for protocol in Pages().protocols:
        yield _less("pages", protocol, "§5.5", f"pages by {protocol}", _pages(protocol), good, None)
    fast = _errors("pages", MAHIMAHI, _pages(), good, lambda errors: np.mean(errors < 0))
    yield Claim("pages-sign", "pages", "§1", "share of pages too fast under Mahimahi", "persistent", fast, "share",
                agrees=values_above(0.9))  # fmt: skip
    files = [_point(operator, Downloads.name) for operator in OPERATORS]
    for method, (least, most) in ((MAHIMAHI, (0.079, 0.49)), (CELLREPLAY, (0.002, 0.224))):
        for point, (words, error, how) in product(files, (("least", least, np.min), ("greatest", most, np.max))):
            measure = _errors("downloads", method, _FILES, [point], partial(_of_sizes, how))
            yield Claim(f"files-{words}-{method}-{OPERATORS[point['operator']]}", "downloads", "§5.6",
                        f"{words} error of files by size, {method}, {point['operator']}", f"{error:.1%}", measure,
                        "share", figure=(error, error))  # fmt: skip
    for point in files:
        yield _less("downloads", f"files-{OPERATORS[point['operator']]}", "§1", f"files, {point['operator']}", _FILES,
                    [point], None)  # fmt: skip
    large = _errors("downloads", MAHIMAHI, [download(250_000)], files[1:])
    yield Claim("file-250", "downloads", "§5.6", f"error of 250 KB, {MAHIMAHI}, {list(OPERATORS)[1]}", "49 %", large,
                "share", figure=(0.49, 0.49))  # fmt: skip
    for condition, errors in ERRORS.items():
        points = [_point(operator, Pages.name, condition) for operator in OPERATORS]
        yield from _reduced("conditions", "§5.7", f"page load times, {condition}", _pages(), points, errors)
    for operator, short in OPERATORS.items():
        rules = [f"{network} bit rate {rule}" for network in (REFERENCE, CELLREPLAY) for rule in Player().rules]
        kept = _combine(lambda a, b, c, d: float((a - b) * (c - d) > 0), "player", _point(operator, "player"), *rules)
        yield Claim(f"abr-{short}", "player", "§5.9", f"the order of players' rules is kept by CellReplay, {operator}",
                    "kept", kept, "share", agrees=values_above(0.5))  # fmt: skip
        yield _less("player", f"abr-{short}", "§1", f"bit rates of players, {operator}", _RATES,
                    [_point(operator, "player")], None)  # fmt: skip


def _of_sizes(how: Callable[[Samples], Any], errors: Samples) -> Any:
    return how(np.abs(errors))


def _reduced(
    experiment: str,
    section: str,
    what: str,
    measures: Sequence[str],
    points: Sequence[Mapping[str, str]],
    errors: tuple[float, float],
) -> Iterator[Claim]:
    """Yield the claims that Mahimahi and CellReplay have these errors, and that CellReplay's is smaller."""
    for method, error in zip((MAHIMAHI, CELLREPLAY), errors, strict=True):
        measure = _errors(experiment, method, measures, points)
        yield Claim(f"{what}-{method}", experiment, section, f"error of {what}, {method}", f"{error:.2%}", measure,
                    "share", figure=(error, error))  # fmt: skip
    yield _less(experiment, what, section, what, measures, points, 1 - errors[1] / errors[0])


def _less(
    experiment: str,
    key: str,
    section: str,
    what: str,
    measures: Sequence[str],
    points: Sequence[Mapping[str, str]],
    share: float | None,
) -> Claim:
    """Return the claim that CellReplay saves this share of Mahimahi's error."""
    published, figure = ("–", None) if share is None else (f"{share:.1%}", (share, share))
    return Claim(f"{key}-saved", experiment, section, f"{what}: part of Mahimahi's error that CellReplay saves",
                 published, _saved(experiment, measures, points), "change", agrees=values_above(0),
                 figure=figure)  # fmt: skip


# ---- the publication


def _experiment(
    name: str,
    title: str,
    section: str,
    application: str,
    drawings: Sequence[tuple[str, Draw]],
    conditions: Sequence[str] = (_GOOD,),
) -> Simulated:
    settings = [_point(operator, application, each) for operator in OPERATORS for each in conditions]
    return Simulated(name, title, section, tuple(settings), drawings=tuple(drawings))


_NETWORKS = {
    name: {"network": network}
    for name, network in (("live (our model)", REFERENCE), ("Mahimahi", MAHIMAHI), ("CellReplay", CELLREPLAY))
}
_REPLAYS = {name: setting for name, setting in _NETWORKS.items() if setting["network"] != REFERENCE}
_IN_TRAIN = ("packets of a train", {str(length): float(length) for length in LENGTHS})


def _named(measures: Sequence[str]) -> dict[str, Setting]:
    return {re.sub("^(page|download of|bit rate) ", "", each): {"measure": each} for each in measures}


def _operators(application: str) -> dict[str, Setting]:
    return {operator: _point(operator, application) for operator in OPERATORS}


def _draw_errors(
    label: str, application: str, x: Levels, measures: Sequence[str] = (), how: Callable[[Samples], Any] = np.mean
) -> Draw:
    """Draw errors of the replays, %. measures: default: the setting's. how: summary of their errors."""

    def error(trials: Trials, setting: Setting) -> Values:
        at = {name: setting[name] for name in PUBLICATION.usual}
        return _errors("", setting["network"], measures or [setting["measure"]], [at], how)({"": trials})

    return bars(label, error, x, _REPLAYS, _operators(application), factor=100)


def _average_arrivals(trials: Trials, setting: Setting) -> Any:
    """Return numbers of a train's packets, and their mean arrival times after the first, ms."""
    name = f"arrivals {setting['length']}"
    rows = trials.at(**{name: setting[name] for name in trials.usual})
    found = rows[name].drop_nulls().to_list() if name in rows.columns else []
    return np.column_stack([_drawn_of(int(setting["length"])), 1e3 * np.mean(found, axis=0)]) if found else ()


def _answer(findings: Mapping[str, Finding], _: Data) -> str:
    theirs, ours = (findings[f"page load times-{method}"].ours for method in (MAHIMAHI, CELLREPLAY))
    return f"The error of page load times is {theirs} with Mahimahi, and {ours} with CellReplay."


_FILES = [download(size) for size in Downloads().sizes]
_RATES = [f"bit rate {rule}" for rule in Player().rules]
PUBLICATION = SimulatedPublication(
    name="cellreplay",
    title="CellReplay: Towards accurate record-and-replay for cellular networks",
    citation='Sentosa et al., "CellReplay: Towards accurate record-and-replay for cellular networks", NSDI 2025',
    experiments=(
        _experiment(
            "round-trips",
            "Round trips",
            "Fig. 2",
            RoundTrips.name,
            [
                (
                    "Fig. 2: round trips of packets",
                    distributions(
                        "round trip, ms",
                        listed("{network} trips_ms"),
                        _NETWORKS,
                        _operators(RoundTrips.name),
                        of="packets",
                    ),
                )
            ],
        ),
        _experiment(
            "trains",
            "Trains",
            "Fig. 4",
            Trains.name,
            [
                (
                    "Fig. 4: completion times of trains",
                    lines(
                        "completion time, ms",
                        "{network} {measure}",
                        {str(length): {"measure": train(length)} for length in LENGTHS},
                        _IN_TRAIN,
                        _NETWORKS,
                        _operators(Trains.name),
                        factor=1e3,
                    ),
                )
            ],
        ),
        _experiment(
            PROBES,
            "Rates, sizes and calibration",
            "Figs 5, 8, §3.2",
            PROBES,
            [
                (
                    "Fig. 5: mean arrival of each packet of a train",
                    curves(
                        ("number of the packet in the train", "after the first packet, ms"),
                        _average_arrivals,
                        {f"{length} packets": {"length": str(length)} for length in _PROBED},
                        _operators(PROBES),
                    ),
                ),
                (
                    "§3.2: round trips by size of the packet",
                    bars(
                        "mean round trip, ms",
                        "round trip {size}",
                        {f"{size} bytes": {"size": str(size)} for size in SIZES},
                        panels=_operators(PROBES),
                        factor=1e3,
                    ),
                ),
            ],
        ),
        _experiment(
            "pages",
            "Web pages",
            "§5.4, §5.5",
            Pages.name,
            [("§5.4: errors of page load times", _draw_errors("error of the mean, %", Pages.name, _named(_pages())))],
        ),
        _experiment(
            "downloads",
            "Files",
            "§5.6",
            Downloads.name,
            [("§5.6: errors of downloads", _draw_errors("error of the mean, %", Downloads.name, _named(_FILES)))],
        ),
        _experiment(
            "conditions",
            "Web pages in other conditions",
            "§5.7",
            Pages.name,
            [
                (
                    "§5.7: mean error of page load times by condition",
                    _draw_errors(
                        "mean size of the errors, %",
                        Pages.name,
                        "condition",
                        _pages(),
                        lambda errors: np.mean(np.abs(errors)),
                    ),
                )
            ],
            [*ERRORS],
        ),
        _experiment(
            "player",
            "Players",
            "§5.9",
            Player.name,
            [
                (
                    "§5.9: bit rates of players by rule",
                    bars("bit rate, Mbit/s", "{network} {measure}", _named(_RATES), _NETWORKS, _operators(Player.name)),
                )
            ],
        ),
    ),
    claims=(*_live_claims(), *_replay_claims()),
    answers=(Answer("Pages", "CellReplay reduces the error of page load times from 17.1 % to 6.7 %.", _answer),),
    differences=(
        "The networks are our model, which is fitted to Figs 2, 4 and 5 and to the 6.8 ms of section 3.2: these claims "
        "follow from their input. Basement and library are its conditions weak and crowded. Nothing is fitted to "
        "section 5.",
        "Phones share a cell of the model, but not its slots: a light service beside a saturating phone is not tried.",
        "Pages, players (two rules) and TCP are models; Mahimahi's saturator is the adaptive one of Winstein et al.",
    ),
    short_note="A short reproduction: few recordings and trials, so that intervals are wide.",
    usual=_point(next(iter(OPERATORS)), RoundTrips.name),
    read={"network": given},
    full={"seconds": 120, "trials": 40, "seeds": 5},
    short={"seconds": 60, "trials": 8, "seeds": 3},
    describe=describe,
    measure=measure,
)
