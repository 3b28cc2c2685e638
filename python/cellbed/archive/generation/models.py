"""The generators by name: four general ones, and those after published figures."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from cellbed.archive.errors import TraceError
from cellbed.archive.generation.daily import Daily
from cellbed.archive.generation.making import each_way, saturating
from cellbed.archive.generation.model import LONGEST_NS, MILLISECOND_NS, SECOND_NS, SLOT_LTE, Model, Order, Parameter
from cellbed.archive.generation.presets import PRESETS
from cellbed.archive.generation.presets.opensignal import QUIETEST_HOUR
from cellbed.archive.generation.presets.study_moving import (
    COMPLETE_DB,
    COMPLETE_SHARE,
    DRIVING_NS,
    HUMAN_DB,
    LINE_OF_SIGHT,
    SUBWAY_NS,
    VEHICLE_DB,
    VEHICLE_SHARE,
)
from cellbed.archive.generation.radio import Handover, Obstacle, RadioLink
from cellbed.archive.generation.series import Generated
from cellbed.archive.generation.wander import Wander
from cellbed.archive.series import Content, Part
from cellbed.near_names import did_you_mean
from cellbed.units import BIT_RATE, DURATION
from cellbed.ways import WAYS

OWN: Final = "cellbed's own model"
_YOURS: Final = "Not published: all figures are set by the user."

PROFILES: Final = tuple(
    f"{band}-{condition}"
    for band in ("midband", "lowband")
    for condition in ("good", "weak", "crowded", "walking", "driving")
)
MOBILITY: Final = {"driving": DRIVING_NS, "subway": SUBWAY_NS}
OBSTACLES: Final = {
    "body": (HUMAN_DB, 1.0),
    "vehicle": (VEHICLE_DB, VEHICLE_SHARE),
    "complete": (COMPLETE_DB, COMPLETE_SHARE),
}


def _markov(order: Order) -> dict[Part, Generated]:
    from cellbed.archive.generation.markov import fit
    from cellbed.archive.generation.recorded import Like

    like, outage_ns = order.values["like"], order.values["outage"]
    assert isinstance(like, Like)
    parts: dict[Part, Generated] = {}
    for part, recorded in like.parts.items():
        try:
            model = fit(recorded, outage_ns)
        except ValueError as error:
            raise TraceError(f"'{like.name}' cannot be fitted: {part} {error}") from None
        parts |= each_way(
            model if part == "uplink" else None, model if part == "downlink" else None, model.grain
        )(order)  # fmt: skip
    return parts


def _wander(order: Order) -> dict[Part, Generated]:
    values = order.values

    def process(part: str) -> Wander:
        low, high = values[f"{part}-low"], values[f"{part}-high"]
        if low > high:
            raise TraceError(
                f"--{part}-low: {BIT_RATE.format(low)} is above --{part}-high, which is {BIT_RATE.format(high)}"
            )
        mean = values[f"{part}-mean"] or (low + high) / 2
        if not low <= mean <= high:
            bounds = f"--{part}-low, {BIT_RATE.format(low)}, to --{part}-high, {BIT_RATE.format(high)}"
            raise TraceError(f"--{part}-mean: {BIT_RATE.format(mean)} is not from {bounds}")
        deviation = values["deviation"] * (high - low)
        return Wander(mean, deviation, low, high, values["memory"], values["outages"] / 60, values["outage-length"])

    return each_way(process("uplink"), process("downlink"), SLOT_LTE)(order)


def _radio(order: Order) -> dict[Part, Generated]:
    values = order.values
    mobility, what = values["mobility"], values["obstacle"]
    if mobility == "profile" and values["handover"] is not None:
        raise TraceError("--handover: with --mobility driving or --mobility subway only: the profile has its own")
    handover = None if mobility == "profile" else Handover(values["handover"] or MOBILITY[mobility])
    behind = None
    if what != "none":
        times = tuple(values["obstacle-at"])
        if any(later - at < values["obstacle-for"] for at, later in pairwise(times)):
            raise TraceError("--obstacle-at: obstacles overlap: see --obstacle-for")
        if min(times) >= order.duration_ns:
            lasts = DURATION.format(order.duration_ns)
            raise TraceError(f"--obstacle-at: no obstacle within the duration of {lasts}: see --duration")
        behind = Obstacle(*OBSTACLES[what], times, values["obstacle-for"])
    if values["profile"] == "mmwave":
        seen = LINE_OF_SIGHT
        link = RadioLink(
            seen.profile, seen.uplink, seen.downlink, handover, behind, seen.fading_db, delay_ns=seen.delay_ns
        )  # fmt: skip
    elif behind is not None:
        raise TraceError(
            "--obstacle: the drop behind an obstacle is published for mmWave, and none was seen at lower frequencies: "
            "write --profile mmwave, or leave it out"
        )
    else:
        link = RadioLink(values["profile"], handover=handover)
    return saturating(link)(order)


def _daily(order: Order) -> dict[Part, Generated]:
    values = order.values

    def process(part: str) -> Daily:
        quietest, busiest = values[f"{part}-quietest"], values[f"{part}-busiest"]
        if busiest > quietest:
            raise TraceError(
                f"--{part}-busiest: {BIT_RATE.format(busiest)} is above --{part}-quietest, "
                f"{BIT_RATE.format(quietest)}: who shares with others has less"
            )
        return Daily(
            quietest, busiest, values["quietest-hour"], values["busiest-hour"],
            values["begins"], values["spread"],
        )  # fmt: skip

    if (values["quietest-hour"] - values["busiest-hour"]) % 24 == 0:
        raise TraceError("--busiest-hour: is the --quietest-hour too: give two hours of the day")
    return each_way(process("uplink"), process("downlink"), SLOT_LTE, content=Content.RATE)(order)


def _each_way_rates(low: str, high: str, words: tuple[str, str], defaults: dict[str, str]) -> tuple[Parameter, ...]:
    return tuple(
        Parameter(f"{part}-{name}", "rate", defaults[f"{part}-{name}"], f"{part.capitalize()}: {text}.")
        for part in WAYS
        for name, text in ((low, words[0]), (high, words[1]))
    )


GENERAL: Final = (
    Model(
        name="markov",
        summary="Like a recording: a Markov-modulated rate with outages, fitted to it.",
        about={},
        citation="Markov-modulated rates after Fischer & Meier-Hellstern, The Markov-modulated Poisson process (MMPP) "
        "cookbook, Performance Evaluation 18, 1993; the two chains and the fit are cellbed's own",
        cited="Fitted; the closeness of the fit is measured and printed.",
        duration="",
        make=_markov,
        parameters=(
            Parameter("like", "text", "", "Recording to fit: an entry of the archive, or a file.", required=True),
            Parameter("outage", "duration", "200 ms", "Minimum time without opportunities that counts as an outage.",
                least=MILLISECOND_NS, most=3600 * SECOND_NS),
        ),
    ),
    Model(
        name="wander",
        summary="A rate that wanders between two bounds, with outages.",
        about={},
        citation="after Winstein, Sivaraman, Balakrishnan, Stochastic Forecasts Achieve High Throughput and Low Delay "
        "over Cellular Networks, NSDI 2013, §3.1",
        cited=_YOURS,
        duration="120 s",
        make=_wander,
        parameters=(
            *_each_way_rates(
                "low", "high", ("the lowest rate", "the highest rate"),
                {"uplink-low": "5 Mbit/s", "uplink-high": "20 Mbit/s", "downlink-low": "10 Mbit/s",
                 "downlink-high": "80 Mbit/s"},
            ),
            Parameter("uplink-mean", "rate", "", "Uplink: mean to which the rate reverts. Default: the middle."),
            Parameter("downlink-mean", "rate", "", "Downlink: mean to which the rate reverts. Default: the middle."),
            Parameter("deviation", "number", "0.25", "Standard deviation as a share of the range.", most=10),
            Parameter("memory", "duration", "2 s", "Time constant of the reversion.",
                least=MILLISECOND_NS, most=LONGEST_NS),
            Parameter("outages", "number", "2", "Outages per minute.", most=1000),
            Parameter("outage-length", "duration", "125 ms", "Mean length of outages.", most=3600 * SECOND_NS),
        ),
    ),
    Model(
        name="radio",
        summary="The radio model under saturation, with handovers and obstacles.",
        about={"technology": "5g"},
        citation="docs/reference/radio.md; handovers and obstacles: Lim et al., An Empirical Study of 5G, IEEE "
        "Transactions on Mobile Computing, 2023, §VI",
        cited="docs/reference/radio.md states which parts of the radio model are published. Published: time between "
        "handovers; loss behind obstacles. Ours: length of gaps, how an obstacle comes and goes.",
        duration="120 s",
        make=_radio,
        parameters=(
            Parameter(
                "profile", "choice", "midband-good", "Profile: see docs/reference/radio.md.", (*PROFILES, "mmwave")
            ),
            Parameter(
                "mobility", "choice", "profile",
                "Handovers every 33.3 s (driving), 14 s (subway; §VI-B), or the profile's.", ("profile", *MOBILITY),
            ),
            Parameter("handover", "duration", "", "Another mean time between handovers, with --mobility.",
                least=100 * MILLISECOND_NS, most=LONGEST_NS),
            Parameter(
                "obstacle", "choice", "none",
                "26 dB (body), 29 dB (vehicle; §VI-A) or complete, in front of mmwave.", ("none", *OBSTACLES),
            ),
            Parameter("obstacle-at", "durations", "20 s, 40 s", "Time of the obstacle.", most=LONGEST_NS),
            Parameter("obstacle-for", "duration", "10 s", "Duration of the obstacle.",
                least=MILLISECOND_NS, most=LONGEST_NS),
        ),
    ),
    Model(
        name="daily",
        summary="The load of a day: rates of a quiet night and a busy evening.",
        about={},
        citation=OWN,
        cited=_YOURS,
        duration="24 h",
        make=_daily,
        parameters=(
            *_each_way_rates(
                "busiest", "quietest", ("mean rate in the busiest hour", "mean rate in the quietest hour"),
                {"uplink-busiest": "5 Mbit/s", "uplink-quietest": "10 Mbit/s", "downlink-busiest": "15 Mbit/s",
                 "downlink-quietest": "30 Mbit/s"},
            ),
            Parameter("busiest-hour", "number", "21", "Hour of the day, 0 to 24.", most=24),
            Parameter("quietest-hour", "number", f"{QUIETEST_HOUR:g}", "Hour of the day, 0 to 24.", most=24),
            Parameter("begins", "number", "0", "Hour of the day at which the series begins.", most=24),
            Parameter("spread", "number", "0.2", "Deviation around the hour's mean, as a share of it.", most=10),
        ),
        begins=lambda order: float(order.values["begins"]),
    ),
)  # fmt: skip

GENERATORS: Final = {model.name: model for model in (*GENERAL, *PRESETS)}
"""All of them, general ones first."""


def generator(name: str) -> Model:
    """The generator called `name`. Raises TraceError with the nearest."""
    if name not in GENERATORS:
        hint = did_you_mean(name.lower(), GENERATORS).strip() or "`cellbed traces generate` lists them"
        raise TraceError(f"unknown generator '{name}': {hint}")
    return GENERATORS[name]
