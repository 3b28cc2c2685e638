"""pDCell, a transport for edge data centres: the paper's settings, assertions and figures, as data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cellbed.extension.files import flow_files
from cellbed.extension.reports import Interval, formats, mean_interval
from cellbed_datacentre import read_qualities, run_content
from cellbed_papers.drawings import Setting, bars, curves, distributions, lines, listed
from cellbed_papers.publication import (
    LARGER,
    NEAR,
    Answer,
    Claim,
    Data,
    Draw,
    Finding,
    Input,
    Measure,
    Range,
    Simulated,
    SimulatedPublication,
    Trials,
    Values,
    leave_one_out,
    pair_repetitions,
    ratio,
    statements,
    untried_claims,
    values_above,
    values_below,
)

if TYPE_CHECKING:
    from pathlib import Path

PAPER, STABLE = "paper-like", "stable"
MODES = (PAPER, STABLE)
"""Loads: a batch at 0.6 of the central unit's link, far more than the cell carries; or 0.6 of the mean capacity of the
cell."""
PDCELL, PHOST, INFINITE, TCP = "pDCell", "pHost", "pHost, infinite queue", "TCP"
MRFS, PFS, ROUND_ROBIN = "MRFS", "PFS", "round robin"
TRACE, FIXED = "varying", "fixed"
ALL, SHARE = "all to the CU", "20 % to the CU"
USUAL = {"load": PAPER, "transport": PDCELL, "scheduler": MRFS, "cqi": TRACE, "traffic": ALL, "buffer": "usual"} | {
    "network load": "0.6"
}
"""Factors, with the default level of a setting. The usual buffer is 3 MB with pDCell's admission, and 1024 packets per
user with other transports."""
BUFFERS = {"3 MB": 3_000_000, "7.5 MB": 7_500_000, "15 MB": 15_000_000, "30 MB": 30_000_000}
FULL = 0.95
"""Minimum occupancy of a full buffer, as a share."""
SHORT_BYTES = 10_240
"""Maximum size of a short flow."""
LONG_BYTES = 102_400
"""Size above which a flow is long."""
QUALITIES = {"bad": (0, 6), "medium": (7, 9), "good": (10, 15)}
"""Minimum and maximum mean CQI of a user, rounded. The paper omits 6 and has 10 twice; these limits are those of QPSK,
16QAM and 64QAM (3GPP TS 36.213, table 7.2.3-1)."""
PERCENTILES = (10, 50, 90, 99)
_HUNDREDFOLD = (10**1.5, 10**2.5)
"""Range of factors that are nearer to 100 than to 10 or 1000."""
SEGMENT = 1460

_SCHEDULERS = {
    MRFS: {"kind": "shortest-remaining"},
    PFS: {"kind": "proportional-fair"},
    ROUND_ROBIN: {"kind": "round-robin"},
}
_TRANSPORTS: Mapping[str, Mapping[str, Any]] = {
    PDCELL: {"kind": "pdcell"},
    PHOST: {"kind": "phost"},
    INFINITE: {"kind": "phost"},
    # Minimum timeout of RFC 6298, §2.4: the usual minimum in data centres is below the radio's round-trip time.
    TCP: {"kind": "tcp", "control": "newreno", "least_timeout_ps": 1_000_000_000_000},
}


def sizes() -> list[tuple[float, float]]:
    """Return our flow sizes: points with bytes, and the share of flows of at most this size.

    Log-uniform between the published points: one packet as minimum, 80 % at most 10 KB (Benson, Akella & Maltz,
    "Network Traffic Characteristics of Data Centers in the Wild", IMC 2010; pDCell, §4.2), and a maximum of 3 MB
    (pDCell, §4.1).
    """
    found = []
    for (low, first), (high, last) in (((SEGMENT, 0.0), (10_240, 0.8)), ((10_240, 0.8), (3_000_000, 1.0))):
        steps = np.linspace(0, 1, 17)
        found += [(float(low * (high / low) ** each), float(first + each * (last - first))) for each in steps]
    return found[:16] + found[17:]


def flow_sizes(files: Sequence[Path]) -> tuple[list[tuple[float, float]], Input]:
    """Return the distribution of flow sizes in a file, or ours; and its description. Errors: :class:`CellbedError`."""
    if not files:
        note = "log-uniform from 1460 B to 10 KB (80 % of the flows) and to 3 MB, after published values"
        return sizes(), Input("flow sizes", note, True)
    return flow_files.read_sizes(files[0]), Input("flow sizes", f"{files[0].name} (given)", False)


def channel_qualities(files: Sequence[Path]) -> tuple[dict[str, Any], Input]:
    """Return the varying channel qualities, recorded or ours, and their description. Errors: :class:`CellbedError`."""
    if not files:
        return {"kind": "gauss-markov"}, Input("channel qualities", "Gauss-Markov process around uniform means", True)
    note = f"{', '.join(each.name for each in files)} (given); a user begins at a random report of a file"
    return {"kind": "trace", "traces": [read_qualities(each) for each in files]}, Input(
        "channel qualities", note, False
    )


# ---- simulations


def describe(labels: Mapping[str, str], scale: Mapping[str, int], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the simulation of a setting in the simulator's format. content: of `flow_sizes` and `channel_qualities`,
    by option."""
    mobile = 0.2 if labels["traffic"] == SHARE else 1.0
    radio: dict[str, Any] = {
        "scheduler": _SCHEDULERS[labels["scheduler"]],
        "cqi": {"kind": "fixed"} if labels["cqi"] == FIXED else content["cqi"],
        "load_of": "cell" if labels["load"] == STABLE else "cu-link",
        "share": mobile,
    }
    if labels["transport"] == INFINITE:
        radio["admission"] = "infinite"
    if labels["buffer"] in BUFFERS and (labels["transport"], labels["buffer"]) != (PDCELL, "3 MB"):
        radio["buffer_bytes"] = BUFFERS[labels["buffer"]]
    return {
        "topology": {
            "kind": "leaf-spine",
            "racks": 9,
            "hosts_per_rack": 16,
            "spines": 4,
            "host_bps": 10e9,
            "core_bps": 40e9,
            "hop_ps": 200_000,
        },
        "transport": _TRANSPORTS[labels["transport"]],
        "traffic": {
            "flows": round(scale["flows"] / mobile),
            "load": float(labels["network load"]),
            "sizes": [list(each) for each in content["sizes"]],
        },
        "radio": radio,
    }


def measure(description: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Run a simulation, and return measures of the flows to users.

    ``fct_s``: sorted completion times of these flows, at the user; infinite for a flow that did not end. ``bytes``:
    sorted sizes of these flows.
    ``fct_mean_s``, ``fct_pNN_s``. ``short_QUALITY_s``: mean over short flows to users of this quality;
    ``short_by_cqi_s``: the same by mean CQI, from 0;
    ``short_beside_s``: mean over short flows that begin during a long flow to the same user; ``short_alone_s``: over
    the other short flows. ``refused_share``: share of the packets that arrived at the central unit. ``times_s``,
    ``occupancy``: of its buffer, in packets; ``full_after_s``: when the buffer was first full; ``full_share``: share of
    the time from the first packet to the last with a full buffer.
    """
    found = run_content({**description, "radio": [description["radio"]]}, seed)
    flows = found["flows"]
    (tables,) = found["tables"].values()
    users, queues, counts = (tables[name] for name in ("users", "queues", "counts"))
    mobile = flows["user"] >= 0
    user, size, start, end = (flows[name][mobile] for name in ("user", "bytes", "start_ps", "end_ps"))
    ends = np.where(end < 0, math.inf, (end - start) * 1e-12)
    times = np.sort(ends)
    offered, refused = (float(counts[f"{name}_packets"][0]) for name in ("offered", "refused"))
    measured: dict[str, Any] = {
        "flows": len(times),
        "unfinished": int(np.isinf(times).sum()),
        "fct_s": times.tolist(),
        "bytes": np.sort(size).tolist(),
        "fct_mean_s": float(times.mean()),
        **{f"fct_p{each}_s": rank(times, each / 100) for each in PERCENTILES},
        "duration_s": found["end_ps"] * 1e-12,
        "elapsed_s": found["elapsed_s"],
        "refused_share": refused / offered if offered else None,
        "bits_per_block": 8 * float(counts["delivered_bytes"][0]) / max(1.0, float(counts["resource_blocks"][0])),
    }
    quality = np.round(users["mean_cqi"])[user]
    groups = {name: (quality >= low) & (quality <= high) for name, (low, high) in QUALITIES.items()}
    beside = find_concurrent(user, size > LONG_BYTES, start, np.where(end < 0, np.iinfo(np.int64).max, end))
    for name, group in {**groups, "beside": beside, "alone": ~beside}.items():
        chosen = ends[(size <= SHORT_BYTES) & group]
        measured[f"short_{name}_s"] = float(chosen.mean()) if len(chosen) else None
        measured[f"short_{name}"] = len(chosen)
    by_cqi = [ends[(size <= SHORT_BYTES) & (quality == cqi)] for cqi in range(16)]
    measured["short_by_cqi_s"] = [float(each.mean()) if len(each) else None for each in by_cqi]
    capacity = description["radio"].get("buffer_bytes", BUFFERS["3 MB"]) // 1500
    return measured | occupancy(queues["time_s"], queues["unit_packets"], capacity)


def occupancy(at: Any, packets: Any, capacity: int) -> dict[str, Any]:
    """Return the occupancy of a buffer over time. at: times of samples, in order; an empty buffer has no samples."""
    if not len(at):
        return {"times_s": [], "occupancy": [], "full_after_s": None, "full_share": None, "mean_packets": 0.0}
    full = packets >= FULL * capacity
    grid = np.linspace(at[0], at[-1], 200)
    shown = packets[np.searchsorted(at, grid, "right") - 1]
    return {
        "times_s": (grid - at[0]).tolist(),
        "occupancy": shown.tolist(),
        "full_after_s": float(at[full.argmax()] - at[0]) if full.any() else math.inf,
        "full_share": float(full.mean()),
        "mean_packets": float(packets.mean()),
    }


def find_concurrent(user: Any, long: Any, start: Any, end: Any) -> Any:
    """Return for each flow whether it begins during a long flow to the same user."""
    found = np.zeros(len(user), bool)
    for each in np.flatnonzero(long):
        found |= (user == user[each]) & (start > start[each]) & (start < end[each])
    return found


def rank(ordered: Any, at: float) -> float:
    """Return the order statistic of rank ⌈n · at⌉."""
    return float(ordered[max(0, math.ceil(len(ordered) * at - 1e-9) - 1)])


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the maximum distance between two cumulative distributions (Kolmogorov-Smirnov)."""
    first, second = np.sort(np.asarray(one)), np.sort(np.asarray(other))
    both = np.concatenate([first, second])
    below = [np.searchsorted(each, both, "right") / len(each) for each in (first, second)]
    return float(np.abs(below[0] - below[1]).max())


# ---- claims


def _name(load: str) -> str:
    return load.replace("-like", "")


def _section(experiment: str) -> str:
    return "§1" if experiment == "load" else f"Fig. {experiment}"


def _fill_delay(one: Setting, other: Setting, data: Data) -> Values:
    """Return the additional time until the buffer is first full in `one`; never counts as the simulation's end."""
    trials = data["11b"]
    times = [[trials.values(each, **setting) for each in ("full_after_s", "duration_s")] for setting in (one, other)]
    first, second = ({seed: min(value, ends[seed]) for seed, value in full.items()} for full, ends in times)
    return pair_repetitions(operator.sub, first, second)


def _describe_settings(experiment: str, settings: Sequence[Setting], data: Data) -> str:
    return " ".join(filter(None, (describe_setting(data[experiment], each) for each in settings)))


def name(setting: Mapping[str, str]) -> str:
    """Return the paper's name of a setting, with the levels that differ from the defaults."""
    labels = {**USUAL, **setting}
    joined = "-" if labels["transport"] == PDCELL else " + "
    others = [labels[each] for each in ("cqi", "traffic", "buffer", "network load") if labels[each] != USUAL[each]]
    return ", ".join([f"{labels['transport']}{joined}{labels['scheduler']}", *others])


def describe_setting(trials: Trials, setting: Setting) -> str:
    """Return a sentence on a setting: times, refused packets and the buffer; empty without simulations."""
    measured = ("fct_p50_s", "fct_p99_s", "mean_packets", "refused_share", "short_beside_s", "short_alone_s")
    median, tail, packets, refused, beside, alone = (_mean(trials, each, setting).value for each in measured)
    if median is None:
        return ""
    text = f"{name(setting)}: median {formats.duration(median)}" + (
        f", P99 {formats.duration(tail)}" if tail is not None else ""
    )
    if beside is not None and alone is not None:
        text += (
            f"; flows of at most 10 KB take {formats.duration(alone)} on average, {formats.duration(beside)} where "
            "they begin while one of more than 100 KB to the same user is under way"
        )
    if packets is not None:
        text += f"; {packets:,.0f} packets wait at the CU on average"
    if refused:
        text += f", and it refuses {formats.share(refused)} of those that arrive"
    if unfinished := _mean(trials, "unfinished", setting).value:
        text += f"; {unfinished:.3g} flows in a simulation do not end"
    return f"{text}."


def _mean(trials: Trials, column: str, setting: Setting) -> Interval:
    """Return the mean of the finite values over seeds, with its interval."""
    found = trials.values(column, **setting).values()
    return mean_interval([each for each in found if math.isfinite(each)], least=0)


def _distance(load: str, data: Data) -> Values:
    """Return the distance between the completion times of the traffic matrices over all repetitions, with the
    contribution of each."""
    found = [_times(data["8"], {"load": load, **each}) for each in _MATRICES.values()]

    def statistic(seeds: Sequence[int]) -> float:
        return distance(*([time for seed in seeds for time in times[seed]] for times in found))

    return leave_one_out(statistic, sorted(set.intersection(*map(set, found))))


def _pool(trials: Trials, setting: Setting) -> list[float]:
    return [time for times in _times(trials, setting).values() for time in times]


def _times(trials: Trials, setting: Setting) -> dict[int, Sequence[float]]:
    """Return the completion times by repetition."""
    found = trials.at(**setting)
    if "fct_s" not in found.columns:
        return {}
    return dict(found.select("repetition", "fct_s").drop_nulls().iter_rows())


def _explain_chance(load: str, data: Data) -> str:
    """Return a sentence with the distance that arises by chance alone."""
    counts = [len(_pool(data["8"], {"load": load, **each})) for each in _MATRICES.values()]
    critical = 1.358 * math.sqrt(sum(1 / each for each in counts))
    return (
        f"Jackknife over the repetitions: {counts[0]:,} and {counts[1]:,} flows. Two samples of one distribution "
        f"are up to {critical:.3f} apart in 95 % of the cases."
    )


Judged = tuple[Range | None, str]
"""Values in the paper's direction, and the name of this direction."""
_ABOVE_1: Judged = LARGER, "above 1"
_ABOVE_0: Judged = values_above(0), "above 0"
_ALIKE: Judged = (0.9, 1.1), "within 10 % of 1"
_SIGNIFICANT: Judged = values_above(NEAR), f"above {NEAR:g} times"
"""Meaning of "significant" in the paper."""


_PDCELL_MRFS: Setting = {}
_PDCELL_PFS: Setting = {"scheduler": PFS}
_PHOST_PFS: Setting = {"transport": PHOST, "scheduler": PFS}
_INFINITE_PFS: Setting = {"transport": INFINITE, "scheduler": PFS}
_TCP_PFS: Setting = {"transport": TCP, "scheduler": PFS}
_NAMES = {"pDCell-MRFS": _PDCELL_MRFS, "pDCell-PFS": _PDCELL_PFS, "pHost+PFS": _PHOST_PFS, "TCP+PFS": _TCP_PFS}
_MATRICES = {ALL: {"traffic": ALL}, SHARE: {"traffic": SHARE}}


def _claim(
    load: str, key: str, statement: str, published: str, measure: Callable[[Data], Values], judged: Judged, **more: Any
) -> Claim:
    """Return a claim with a load. key: the experiment and a name."""
    experiment, mode = key.partition("-")[0], f" ({load})"
    if "group" in more:
        more["group"] += mode
    agrees, direction = judged
    own = {"direction": direction, "agrees": agrees, **more}
    return Claim(f"{key}-{_name(load)}", experiment, _section(experiment), statement + mode, published, measure, **own)


def _compare(
    load: str, experiment: str, column: str, settings: Sequence[Setting], how: Callable[[float, float], float]
) -> tuple[Measure, Callable[[Data], str]]:
    """Return a comparison of two settings, and its explanation."""
    first, second = ({"load": load, **each} for each in settings)
    explain = partial(_describe_settings, experiment, (first, second))
    return Measure(experiment, column, first, second, how=how), explain


def _transport_claims(load: str) -> Iterator[Claim]:
    for key, statement, settings in (
        ("3-finite", "Median FCT, TCP over pHost with a finite queue", (_TCP_PFS, _PHOST_PFS)),
        ("3-infinite", "Median FCT, pHost with an infinite queue over TCP", (_INFINITE_PFS, _TCP_PFS)),
    ):
        found, why = _compare(load, "3", "fct_p50_s", settings, operator.truediv)
        yield _claim(load, key, statement, "above 1", found, _ABOVE_1, explain=why)
    statement = "Distance of the FCT distributions, all traffic to the CU and 20 % of it"
    more: dict[str, Any] = {"unit": "number", "explain": partial(_explain_chance, load), "made": ("background",)}
    yield _claim(
        load, "8", statement, "negligible", partial(_distance, load), ((-math.inf, 0.05), "at most 0.05"), **more
    )
    better, schedulers = "outperforms significantly", (_PDCELL_PFS, _PDCELL_MRFS)
    for key, statement, published, settings, judged in (
        ("9-schedulers", "pDCell-PFS over pDCell-MRFS", "consistently reduced", schedulers, _ABOVE_1),
        ("9-phost", "pHost+PFS over pDCell-PFS", better, (_PHOST_PFS, _PDCELL_PFS), _SIGNIFICANT),
        ("9-tcp", "TCP+PFS over pDCell-PFS", better, (_TCP_PFS, _PDCELL_PFS), _SIGNIFICANT),
        ("9-phost-mrfs", "pHost+PFS over pDCell-MRFS", better, (_PHOST_PFS, _PDCELL_MRFS), _SIGNIFICANT),
        ("9-tcp-mrfs", "TCP+PFS over pDCell-MRFS", better, (_TCP_PFS, _PDCELL_MRFS), _SIGNIFICANT),
    ):
        for percentile in PERCENTILES:
            found, why = _compare(load, "9", f"fct_p{percentile}_s", settings, operator.truediv)
            explain = partial(_explain_readings, why) if key == "9-schedulers" else why
            more = {"explain": explain, "group": f"FCT, {statement}"}
            text = f"P{percentile} of the FCT, {statement}"
            yield _claim(load, f"{key}-p{percentile}", text, published, found, judged, **more)


def _channel_claims(load: str) -> Iterator[Claim]:
    schedulers = (_PDCELL_PFS, _PDCELL_MRFS)
    found, _ = _compare(load, "10a", "fct_mean_s", schedulers, operator.truediv)
    statement = "Mean FCT with varying CQI, PFS over MRFS"
    yield _claim(load, "10a-advantage", statement, "a significant advantage", found, _SIGNIFICANT)
    judged: Judged
    for scheduler, published, judged in (
        (MRFS, "sub-optimal with fixed CQI", _ABOVE_1),
        (PFS, "similar", _ALIKE),
        (ROUND_ROBIN, "–", (None, "")),
    ):
        statement, own = f"Mean FCT of {scheduler}, fixed CQI over varying CQI", f"10a-{scheduler.lower()}"
        more: dict[str, Any] = {"explain": partial(_explain_channels, load, scheduler)}
        if scheduler == ROUND_ROBIN:
            yield _claim(load, own, statement, published, _gain(load, scheduler), judged, **more)
            continue
        yield _claim(load, own, statement, published, _gain(load, scheduler), judged, **more, group=statement)
        text = "The same over round robin's, which ignores the channel"
        yield _claim(load, f"{own}-net", text, published, partial(_net, load, scheduler), judged, group=statement)
    for kind, scheduler, agrees, words in (
        ("pfs", PFS, values_above(0.5), "above half"),
        ("mrfs", MRFS, values_below(0.5), "below half"),
    ):
        statement = f"Variance of short flows' mean FCT by CQI that a line explains, {scheduler}"
        published = "linear" if scheduler == PFS else "not linear"
        line = partial(_linearity, load, scheduler)
        yield _claim(load, f"10b-line-{kind}", statement, published, line, (agrees, words), unit="share")
    pfs, mrfs = ({"load": load, "scheduler": each} for each in (PFS, MRFS))
    gains = [Measure("10b", column, pfs, mrfs) for column in ("short_good_s", "fct_mean_s")]
    statement = "Gain by MRFS of flows of at most 10 KB in good channels over the gain of all flows"
    most = partial(_ratio_of_gains, gains)
    explain = partial(_explain_readings, lambda data: "")
    yield _claim(load, "10b-most", statement, "especially", most, _ABOVE_1, explain=explain)
    short = "Mean FCT of flows of at most 10 KB"
    for quality in QUALITIES:
        found, _ = _compare(load, "10b", f"short_{quality}_s", schedulers, operator.truediv)
        statement = f"{short} to users with a {quality} channel, PFS over MRFS"
        more = {
            "group": "Mean FCT of flows of at most 10 KB, PFS over MRFS",
            "explain": partial(_explain_readings, partial(_explain_quality, load)),
        }
        published = "outperforms significantly"
        if quality == "bad":
            published, more["figure"] = "two orders of magnitude", _HUNDREDFOLD
        yield _claim(load, f"10b-{quality}", statement, published, found, _SIGNIFICANT, **more)


def _explain_readings(explain: Callable[[Data], str], data: Data) -> str:
    return f"It depends on readings of the paper that were chosen after first results. {explain(data)}".strip()


def _ratio_of_gains(gains: Sequence[Measure], data: Data) -> Values:
    return ratio(*(gain(data) for gain in gains))


def _linearity(load: str, scheduler: str, data: Data) -> Values:
    """Return the share of the variance of the mean FCT that a line over the CQI explains, by repetition."""
    trials = data["10b"].at(load=load, scheduler=scheduler)
    if "short_by_cqi_s" not in trials.columns:
        return {}
    found = {}
    for repetition, means in trials.select("repetition", "short_by_cqi_s").iter_rows():
        points = [(cqi, mean) for cqi, mean in enumerate(means) if mean is not None and math.isfinite(mean)]
        if len(points) > 2:
            found[repetition] = float(np.corrcoef(np.array(points).T)[0, 1] ** 2)
    return found


def _buffer_claims(load: str) -> Iterator[Claim]:
    more: dict[str, Any] = {"unit": "change", "group": "Refused packets, pHost minus pDCell"}
    for buffer in BUFFERS:
        settings = [{**each, "buffer": buffer} for each in (_PHOST_PFS, _PDCELL_PFS)]
        found, why = _compare(load, "11a", "refused_share", settings, operator.sub)
        statement = f"Share of packets that the CU refuses, pHost minus pDCell, {buffer}"
        yield _claim(load, f"11a-{buffer}", statement, "above 0", found, _ABOVE_0, explain=why, **more)
    phost, pdcell = ({"load": load, **each, "buffer": "3 MB"} for each in (_PHOST_PFS, _PDCELL_PFS))
    found, why = _compare(load, "11b", "full_share", (phost, pdcell), operator.sub)
    statement = "Time until the buffer of 3 MB is full, pDCell minus pHost"
    first, judged = partial(_fill_delay, pdcell, phost), (_ABOVE_0[0], "above 0 s")
    explain = partial(_describe_settings, "11b", (pdcell, phost))
    yield _claim(load, "11b-first", statement, "pHost is quicker", first, judged, unit="change", explain=explain)
    statement, whole = "Share of the time with a full buffer, pHost", ((0.95, 1.0), "at least 95 %")
    more = {"unit": "share", "explain": partial(_explain_fullness, phost)}
    yield _claim(load, "11b-full", statement, "the entire period", Measure("11b", "full_share", phost), whole, **more)
    statement = "The same, pHost minus pDCell"
    yield _claim(load, "11b-less", statement, "pDCell has less", found, _ABOVE_0, unit="change", explain=why)
    statement, waiting = (
        "Packets that wait on average, pHost over pDCell",
        Measure("11b", "mean_packets", phost, pdcell),
    )
    yield _claim(load, "11b-waiting", statement, "minimal with pDCell", waiting, _SIGNIFICANT, explain=why)


def _scale_claims(load: str) -> Iterator[Claim]:
    similar: Judged = (1 / NEAR, NEAR), "from 0.8 to 1.25 times"
    for experiment, statement, factor, levels, published, judged in (
        ("11c", "buffer of 30 MB over 3 MB", "buffer", ("30 MB", "3 MB"), "very similar", _ALIKE),
        ("load", "load 0.8 over 0.2", "network load", ("0.8", "0.2"), "not significantly affected", similar),
    ):
        for scheduler in (MRFS, PFS):
            settings = [{"scheduler": scheduler, factor: each} for each in levels]
            found, why = _compare(load, experiment, "fct_mean_s", settings, operator.truediv)
            more: dict[str, Any] = {"explain": why, "group": f"Mean FCT, {statement}"}
            more |= {"made": ("batch",)} if (experiment, load) == ("load", PAPER) else {}
            text = f"Mean FCT of pDCell-{scheduler}, {statement}"
            yield _claim(load, f"{experiment}-{scheduler.lower()}", text, published, found, judged, **more)


def _gain(load: str, scheduler: str) -> Measure:
    """Return the gain by varying channels, as a factor of the mean completion time."""
    fixed, varying = ({"load": load, "scheduler": scheduler, "cqi": cqi} for cqi in (FIXED, TRACE))
    return Measure("10a", "fct_mean_s", fixed, varying)


def _net(load: str, scheduler: str, data: Data) -> Values:
    """Return the gain without the gain by the cell's capacity: varying CQI is at least 1, which helps bad channels."""
    return ratio(_gain(load, scheduler)(data), _gain(load, ROUND_ROBIN)(data))


def _explain_fullness(setting: Setting, data: Data) -> str:
    shares, lengths = [], []
    found = data["11b"].at(**setting)
    for times, packets in found.select("times_s", "occupancy").drop_nulls().iter_rows():
        full = np.flatnonzero(np.array(packets, float) >= FULL * BUFFERS["3 MB"] / 1500)
        if len(full):
            shares.append(len(full) / (full[-1] - full[0] + 1))
            lengths.append(float(times[full[-1]]) / float(times[-1]))
    if not shares:
        return describe_setting(data["11b"], setting)
    part, end = (formats.share(float(np.mean(each))) for each in (shares, lengths))
    return (
        f"From the first to the last instant at which it is full, the buffer is full for {part} of the time; the "
        f"last one is after {end} of the simulation. {describe_setting(data['11b'], setting)}"
    )


def _explain_channels(load: str, scheduler: str, data: Data) -> str:
    settings = [{"load": load, "scheduler": scheduler, "cqi": cqi} for cqi in (TRACE, FIXED)]
    varying, fixed = (_mean(data["10a"], "bits_per_block", each).value for each in settings)
    if varying is None or fixed is None:
        return ""
    return f"With varying CQI the cell delivers {varying:.0f} bits in a resource block, with fixed CQI {fixed:.0f}."


def _explain_quality(load: str, data: Data) -> str:
    texts = []
    for scheduler in (MRFS, PFS):
        setting = {"load": load, "scheduler": scheduler}
        means = {
            name: mean
            for name in (*QUALITIES, "beside", "alone")
            if (mean := _mean(data["10b"], f"short_{name}_s", setting).value) is not None
        }
        text = f"{scheduler}: " + ", ".join(
            f"{formats.duration(means[name])} ({name})" for name in QUALITIES if name in means
        )
        if "beside" in means and "alone" in means:
            text += (
                f"; {formats.duration(means['beside'])} where the flow begins while one of more than 100 KB to the "
                f"same user is under way, else {formats.duration(means['alone'])}"
            )
        texts.append(f"{text}.")
    return " ".join(texts)


_UNTRIED = untried_claims(
    (
        "540",
        "§3.3",
        "Queueing delay with 1024 packets per user",
        "up to 540 ms",
        "From a cited work on TCP beside URLLC.",
    ),
    ("cluster", "§4.1", "Flows of a data mining cluster, to 1 GB", "–", "The paper shows no result by workload."),
    ("dual", "§5", "Users attached to two distributed units", "minimal modifications", "The paper evaluates none."),
)


# ---- experiments

_LEGACY = {"pHost, finite queue": _PHOST_PFS, "TCP": _TCP_PFS, "pHost, infinite queue": _INFINITE_PFS}
_REPORTED = {"fixed CQI": {"cqi": FIXED}, "varying CQI": {"cqi": TRACE}}
_SCHEDULERS_10A = (MRFS, PFS, ROUND_ROBIN)
_LEVELS = ("0.2", "0.4", "0.6", "0.8")


_MEAN_FCT = "mean FCT, s (logarithmic)"
_BY_QUALITY = {quality: {"quality": quality} for quality in QUALITIES}
_MEGABYTES = ("buffer at the CU, MB", {buffer: size / 1e6 for buffer, size in BUFFERS.items()})


def _experiment(
    name: str, title: str, settings: Sequence[Setting], drawn: str, draw: Draw, *others: tuple[str, Draw]
) -> Simulated:
    both = tuple({"load": load, **each} for load in MODES for each in settings)
    figure = f"{_section(name)}: {drawn}"
    return Simulated(name, title, _section(name), both, drawings=((figure, draw), *others))


def _named(*names: str) -> Mapping[str, Setting]:
    return {name: _NAMES[name] for name in names}


def _draw_times(named: Mapping[str, Setting]) -> Draw:
    return distributions("flow completion time, s", listed("fct_s"), named, "load", of="flows", log=True)


def _average_occupancy(trials: Trials, setting: Setting) -> Any:
    """Return times and mean occupancies of the buffer over the repetitions that have not ended, per cent."""
    found = trials.at(**{**setting, "buffer": "3 MB"})
    rows = found.select("times_s", "occupancy").iter_rows() if "times_s" in found.columns else ()
    drawn = [(np.array(times, float), np.array(packets, float)) for times, packets in rows if times]
    if not drawn:
        return np.empty((0, 2))
    grid = np.linspace(0, max(times[-1] for times, _ in drawn), 300)
    means = np.nanmean([np.interp(grid, times, packets, right=np.nan) for times, packets in drawn], axis=0)
    return np.column_stack([grid, means * 100 * 1500 / BUFFERS["3 MB"]])


def _vary_factor(settings: Sequence[Setting], factor: str, levels: Sequence[str]) -> list[Setting]:
    return [{**each, factor: level} for level in levels for each in settings]


EXPERIMENTS = (
    _experiment(
        "3",
        "Transports that do not know the radio",
        tuple(_LEGACY.values()),
        "flow completion times",
        _draw_times(_LEGACY),
        (
            "Fig. 7: sizes of the flows",
            distributions("size, kB", listed("bytes", 1e-3), {"flows to users": _PHOST_PFS}, of="flows", log=True),
        ),
    ),
    *(
        _experiment(name, title, tuple(named.values()), "flow completion times", _draw_times(named))
        for name, title, named in (("8", "Traffic matrices", _MATRICES), ("9", "pDCell, pHost and TCP", _NAMES))
    ),
    _experiment(
        "10a",
        "Reports of the channel quality",
        _vary_factor(tuple(_REPORTED.values()), "scheduler", _SCHEDULERS_10A),
        "mean completion times",
        bars(_MEAN_FCT, "fct_mean_s", "scheduler", _REPORTED, "load", log=True),
    ),
    _experiment(
        "10b",
        "Short flows by channel quality",
        (_PDCELL_MRFS, _PDCELL_PFS),
        "mean completion times of flows of at most 10 KB",
        bars(_MEAN_FCT, "short_{quality}_s", _BY_QUALITY, "scheduler", "load", log=True),
    ),
    _experiment(
        "11a",
        "Packets that are not admitted",
        _vary_factor((_PHOST_PFS, _PDCELL_PFS, _PDCELL_MRFS), "buffer", tuple(BUFFERS)),
        "refused packets",
        lines(
            "packets that the CU refuses, %",
            "refused_share",
            "buffer",
            _MEGABYTES,
            _named("pHost+PFS", "pDCell-PFS", "pDCell-MRFS"),
            "load",
            factor=100.0,
        ),
    ),
    _experiment(
        "11b",
        "Buffer over time",
        _vary_factor((_PHOST_PFS, _PDCELL_PFS), "buffer", ("3 MB",)),
        "occupancy of the buffer",
        curves(
            ("time since the first packet, s", "buffer of 3 MB in use, %"),
            _average_occupancy,
            _named("pHost+PFS", "pDCell-PFS"),
            "load",
        ),
    ),
    _experiment(
        "11c",
        "Completion times by buffer",
        _vary_factor((_PDCELL_MRFS, _PDCELL_PFS), "buffer", tuple(BUFFERS)),
        "mean completion times",
        lines("mean FCT, s", "fct_mean_s", "buffer", _MEGABYTES, _named("pDCell-MRFS", "pDCell-PFS"), "load"),
    ),
    _experiment(
        "load",
        "Network load",
        _vary_factor((_PDCELL_MRFS, _PDCELL_PFS), "network load", _LEVELS),
        "mean completion times by load",
        bars(_MEAN_FCT, "fct_mean_s", "network load", "scheduler", "load", log=True),
    ),
)


# ---- main findings


def _verdict(findings: Mapping[str, Finding], beginning: str) -> str:
    found = list(statements(each for key, each in findings.items() if key.startswith(beginning)).values())
    if not found:
        raise KeyError(beginning)
    others = [f", {found.count(key)} {word}" for key, word in _OTHERS.items() if key in found]
    return f"{found.count('yes')} of {len(found)} statements hold{''.join(others)}"


_OTHERS = {"part": "hold in part", "no": "do not", "open": "are undecided", "not measured": "are not measured"}


def _answer_transports(findings: Mapping[str, Finding], data: Data) -> str:
    median, tail = (
        ", ".join(f"{findings[f'9-{other}-p{each}-{_name(load)}'].ours} ({load}, {words})" for other, words in
                  (("phost", "pHost"), ("tcp", "TCP")) for load in MODES)
        for each in (50, 99)
    )  # fmt: skip
    return f"{_verdict(findings, '9-')}. The median FCT over pDCell-PFS's: {median}. The P99: {tail}."


def _answer_scalability(findings: Mapping[str, Finding], data: Data) -> str:
    ratios = ", ".join(f"{findings[f'load-{each.lower()}-{_name(load)}'].ours} ({load}, {each})"
                       for load in MODES for each in (MRFS, PFS))  # fmt: skip
    return f"{_verdict(findings, 'load')}. The mean FCT at a load of 0.8 over 0.2: {ratios}."


def _answer_queues(findings: Mapping[str, Finding], data: Data) -> str:
    less = ", ".join(f"{findings[f'11a-3 MB-{_name(load)}'].ours} ({load})" for load in MODES)
    return (
        f"{_verdict(findings, '11')}. Of the packets that arrive at a CU with 3 MB, the share that it refuses is "
        f"higher with pHost than with pDCell by {less}."
    )


_DIFFERENCES = (
    "The paper does not state the reference of its load of 0.6: 20 % of the traffic of 144 hosts would be 173 Gbit/s, "
    "and the CU has 10 Gbit/s. Both modes are ours: paper-like, a batch of flows at 0.6 of the CU's link, which the "
    "cell then carries, and whose size is ours and decides some verdicts (papers/docs/reproduce-pdcell.md); stable, "
    "0.6 of the mean capacity of the cell.",
    "The paper's CQI traces are not public. Without --cqi, ours is a Gauss-Markov process around a mean of each user.",
    "The paper's simulator of the mobile network is not public. Rules and constants are as printed; where the paper is "
    "silent or contradicts itself, the choice is ours (datacentre/docs/pdcell.md). Three were made after first "
    "results had been seen, and favour the paper's claims; the same page compares them with the other readings.",
    "A flow ends when its last byte is at the user.",
)
PUBLICATION = SimulatedPublication(
    name="pdcell",
    title="pDCell: an End-to-End Transport Protocol for Mobile Edge Computing Architectures",
    citation="Fiandrino, de la Oliva, Widmer & Kogan, ICDCN 2019, doi:10.1145/3288599.3288636",
    experiments=EXPERIMENTS,
    inputs=(
        Input(
            "background", "other hosts send at most 2 % of the fabric's load, and the central unit gets the same", True
        ),
        Input("batch", "with the paper-like load all flows arrive in 0.15 s, and the cell needs 30 s", True),
    ),
    claims=(
        *(
            claim
            for each in EXPERIMENTS
            for load in MODES
            for made in (_transport_claims, _channel_claims, _buffer_claims, _scale_claims)
            for claim in made(load)
            if claim.experiment == each.name
        ),
        *_UNTRIED,
    ),
    answers=(
        Answer(
            "Transports",
            "pDCell significantly outperforms data center transport solutions that are not aware of the wireless "
            "domain.",
            _answer_transports,
        ),
        Answer(
            "Scalability",
            "pDCell is scalable, as the increase in network load does not significantly affect the average FCT.",
            _answer_scalability,
        ),
        Answer(
            "Queues",
            "pDCell operates with minimal queue occupancy and prevents unnecessary retransmissions.",
            _answer_queues,
        ),
    ),
    differences=_DIFFERENCES,
    short_note="A short reproduction: few seeds and few flows. Its intervals are wide, and with the paper-like load "
    "its verdicts are for a smaller batch and can differ.",
    usual=USUAL,
    read={"sizes": flow_sizes, "cqi": channel_qualities},
    full={"flows": 1000, "seeds": 20},
    short={"flows": 200, "seeds": 5},
    describe=describe,
    measure=measure,
)
