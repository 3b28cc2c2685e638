"""Numbers for readers: three significant digits, a space, a unit."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from cellbed.support.limits import OWN

if TYPE_CHECKING:
    from cellbed.measure.comparison import Interval, SettingDifference
    from cellbed.measure.statistics import Percentile
    from cellbed.measure.summary import ApplicationSummary

NOTHING = "–"


def duration(seconds: float | None) -> str:
    """Return a time as text: ``"127 ms"``, ``"1.76 s"``, ``"85 µs"``."""
    if seconds is None:
        return NOTHING
    size = abs(seconds)
    if size == 0:
        return "0 ms"
    if round_to(size, 3) >= 1:
        return f"{_digits(seconds)} s"
    if round_to(size, 3) >= 1e-3:
        return f"{_digits(seconds * 1e3)} ms"
    return f"{_digits(seconds * 1e6)} µs"


MARKED = "* no interval: too few independent requests for one"


def mark(at: "Percentile") -> str:
    """Return a star for a value without an interval."""
    return "" if at.has_interval else "*"


def _difference(seconds: float) -> str:
    """Return a duration with its sign: ``"+12.4 ms"``, ``"−3.00 ms"``."""
    sign = "+" if seconds > 0 else "−" if seconds < 0 else "±"
    return f"{sign}{duration(abs(seconds))}"


def format_difference(each: "Interval", note: str | None = None, unit: str | None = None) -> tuple[str, str, str]:
    """Return value, interval and verdict of a difference between runs. unit: a program's measure's; else seconds."""
    difference = _difference if unit is None else partial(measure_difference, OWN, unit=unit)
    verdict = (note or "").removeprefix("refused: ")
    if each.distinct is not None and not verdict:
        verdict = judgement(each.distinct, (each.low or -math.inf) > 0 or (each.high or math.inf) < 0)
    value = difference(each.value) if each.value is not None else NOTHING
    if each.low is None and each.high is None:
        return value, NOTHING, verdict
    low = difference(each.low) if each.low is not None else "−∞"
    high = difference(each.high) if each.high is not None else "∞"
    return value, f"{low} to {high}", verdict


def judgement(distinct: bool, significant: bool) -> str:
    """Return the verdict on a difference: real, of no practical size, or perhaps chance."""
    from cellbed.measure.statistics import PRACTICAL

    return "differs" if distinct else f"below {PRACTICAL * 100:g} %" if significant else "may be none"


def scenario_names(each: "SettingDifference") -> str:
    """Return the two scenarios of a difference."""
    return f"scenario {each.scenario} minus {each.against}, {each.pairs} pairs of runs of equal seed"


def milliseconds(seconds: float | None) -> str:
    """Return a time in ms without the unit, for columns: ``"127"``, ``"0.085"``."""
    if seconds is None:
        return NOTHING
    value = seconds * 1e3
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def seconds(value: float) -> str:
    """Return a time in seconds without the unit, to a tenth: ``"8.1"``, ``"20"``."""
    return f"{value:.1f}".removesuffix(".0")


def format_reach(measured: float, planned: float) -> str:
    """Return the measured and planned length of a run: ``"20.0 s"``, ``"8.1 of 20 s"``."""
    far, whole = seconds(measured), seconds(planned)
    return duration(planned) if far == whole else f"{far} of {whole} s"


def outcome(status: str, disturbed: bool = False, predicted: bool = False, failure: str | None = None) -> str:
    """Return the status of a run in words; the file of a killed run still contains ``running``."""
    words = "did not end" if status == "running" else status
    return words + ", no good reply" * (failure is not None) + ", disturbed" * disturbed + ", predicted" * predicted


def titles(applications: "Sequence[ApplicationSummary]") -> str:
    """Return titles of applications: ``"image classification on edge"``; with names if there are several."""
    if len(applications) == 1:
        return applications[0].title
    return ", ".join(f"{each.name} ({each.title})" for each in applications)


def machine(figures: Mapping[str, Any]) -> str:
    """Describe the machine during a run in one line; empty without records. figures: ``machine`` of a summary."""
    words = []
    if (lateness := figures["lateness_s"]) is not None:
        words.append(f"packets left the emulator at most {duration(lateness)} late")
        words.append(f"{share(figures['late_share'])} of them by more than 1 ms")
    if (cause := figures["late_cause"]) is not None:
        words.append(f"the emulator's longest delay was {cause}")
    if (used := figures["foreign_cpus"]) is not None:
        words.append(f"other programs used {number(round(used, 2))} of {figures['cpus']} processors")
    if (pressure := figures["pressure"]) is not None:
        peak = f", at most {share(figures['pressure_peak'])} of a second" if pressure else ""
        words.append(f"programs waited for a processor in {share(pressure)} of the time (PSI){peak}")
    elif figures["cpus"] is not None:
        words.append("the kernel does not report CPU pressure (there is no /proc/pressure/cpu)")
    if (waiting := figures["waiting"]) is not None:
        words.append(f"no node waited more than {duration(waiting)} per second for other programs")
    return ", ".join(words)


def describe_added(applications: Sequence[Mapping[str, Any]]) -> str:
    """Return the latency that the machine added to each application's percentiles, in one line; empty without
    percentiles."""
    words = [
        f"{duration(seconds)} to the {label} of {each['name']}"
        for each in applications
        for label, seconds in each["added_s"].items()
    ]
    return f"the machine added {', '.join(words)}" if words else ""


def cell(figures: Mapping[str, Any]) -> str:
    """Describe a cell and its fairness in one line. figures: an element of ``cells`` of a summary."""
    words = [figures["description"]] if figures["description"] else []
    words.append(f"{rate(figures['throughput_mbit_s'])} in all")
    indices = [("throughputs", figures["fairness"]), ("shares of time", figures["time_fairness"])]
    found = [f"{value:.3f} of {what}" for what, value in indices if value is not None]
    return ", ".join([*words, *([f"Jain's index {' and '.join(found)}"] if found else [])])


def describe_server(figures: Mapping[str, Any]) -> str:
    """Return the server of some requests, and its site. figures: an element of ``servers`` of a summary."""
    server, site = figures["server"], figures["site"]
    return "none" if server is None else f"{server} at {site}" if site is not None else str(server)


def share(fraction: float | None) -> str:
    """Return a share as text: ``"64 %"``, ``"0.04 %"``."""
    if fraction is None:
        return NOTHING
    percent = fraction * 100
    return f"{percent:.0f} %" if abs(percent) >= 9.95 or percent == 0 else f"{_digits(percent, 2)} %"


def rate(mbit_s: float | None) -> str:
    """Return a rate as text: ``"8.03 Mbit/s"``; ``"unlimited"`` for None."""
    return "unlimited" if mbit_s is None else f"{_digits(mbit_s)} Mbit/s"


def bit_rate(bit_s: float | None) -> str:
    """Return a bit rate as text: ``"8.03 Mbit/s"``, ``"96.0 kbit/s"``."""
    return _scale(bit_s, 1000, ("bit/s", "kbit/s", "Mbit/s", "Gbit/s"))


def timely(applications: "Sequence[ApplicationSummary]") -> list[tuple[str, list[str]]]:
    """Return deadline, share of requests on time and goodput of an application in several runs, each with its label;
    empty if no run has a deadline."""
    if all(each.deadline_s is None for each in applications):
        return []
    return [
        ("deadline", [duration(each.deadline_s) for each in applications]),
        ("on time", [share(each.on_time_share) for each in applications]),
        ("goodput", [bit_rate(each.goodput_bit_s) for each in applications]),
    ]


def verdict(figures: Mapping[str, Any]) -> str:
    """Return an expectation with the measured value, and why it is not met, if so. figures: a verdict
    (:class:`cellbed.measure.verdicts.Verdict`)."""
    where = f"{figures['point']}: {figures['app']}" if figures["point"] else figures["app"]
    words = [f"{where}: {figures['name']} {figures['limit']}"]
    if figures["value"] is not None or figures["note"] is None:
        words.append(format_verdict(figures))
    return ": ".join([*words, *([figures["note"]] if figures["note"] else [])])


def format_verdict(figures: Mapping[str, Any]) -> str:
    """Return the value of a verdict; shares have four digits, since limits of shares are near 0 or 100 %."""
    measure, value = figures["measure"], figures["value"]
    if measure.startswith("own_"):
        return f"{number(value)} {figures['unit']}".rstrip()
    return f"{100 * value:.4g} %" if value is not None and measure.endswith("_share") else measure_value(measure, value)


def size(count: float | None) -> str:
    """Return a size as text: ``"250 kB"`` (decimal, as sizes of bottleneck queues)."""
    return _scale(count, 1000, ("B", "kB", "MB", "GB"))


def memory(count: float | None) -> str:
    """Return a memory size as text: ``"310 MiB"`` (binary, as usual for memory)."""
    return _scale(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def number(value: float | None) -> str:
    """Return a number as text: ``"1.98"``, ``"1,204"``."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else _digits(value)


def migration(each: Mapping[str, Any]) -> str:
    """Return a migration of a summary in one line."""
    text = f"at {each['begin_s']:.1f} s {each['strategy']} of {each['app']} from {each['source']} to {each['target']}"
    text += f" ({each['reason']})" if each["reason"] is not None else ""
    if each["failed"] is not None:
        return f"{text}: failed, it stays on {each['source']}: {each['failed']}"
    if each["end_s"] is None:
        return f"{text}: under way when the run ended"
    return f"{text} in {duration(each['end_s'] - each['begin_s'])}, {size(each['bytes'])} sent"


def migration_as_seen(each: Mapping[str, Any]) -> list[str]:
    """Return a migration's effect on its users, and its facts, in sentences. each: a migration of a summary."""
    lines = _gap(each) if each["gap_s"] is not None else []
    facts = [
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else number(value)}"
        for name, value in each["facts"].items()
        if not name.endswith("_s")
    ]
    facts += [
        f"{name[:-2].replace('_', ' ')} {duration(value)}"
        for name, value in each["facts"].items()
        if name.endswith("_s")
    ]
    return [*lines, ", ".join(facts)] if facts else lines


def _gap(each: Mapping[str, Any]) -> list[str]:
    target = f", the first by {each['target']} after {duration(each['first_reply_s'])}" if each["first_reply_s"] else ""
    where = f"{each['gap_user']} at {duration(each['gap_at_s'])}"
    gap = f"longest time between replies {duration(each['gap_s'])} ({where})"
    if each["users"] > 1:
        p90 = f", P90 {duration(each['gap_p90_s'])}" if each["gap_p90_s"] is not None else ""
        gap = (
            f"longest time between replies to each of {each['users']} users: median {duration(each['gap_p50_s'])}{p90}"
        )
        gap += f", at most {duration(each['gap_s'])} ({where})"
    lines = [
        f"{gap}; before it {duration(each['usual_gap_s'])}",
        f"requests meanwhile: {each['served_before']} served by {each['source']}, {each['served_after']} by "
        f"{each['target']}{target}; {each['delayed']} delayed, {each['failed_requests']} without a good reply",
    ]
    if each["silent_endpoints"]:
        lines.append(f"{each['silent_endpoints']} endpoints that had replies before have had none since")
    if each["failed"] is None and each["before_s"] is not None and each["after_s"] is not None:
        paid = "it does not pay"
        if each["paid_s"] is not None:
            paid = f"it {'has paid' if each['has_paid'] else 'would pay'} {duration(each['paid_s'])} after its end"
        lines.append(f"median latency {duration(each['before_s'])} before, {duration(each['after_s'])} after: {paid}")
    return lines


def around(moves: Sequence[Mapping[str, Any]], label: str) -> str:
    """Return a percentile of an application before and after each of its migrations: ``"122 ms → 27.6 ms"``; empty
    without migrations. label: name of the percentile."""
    key = {"median": "s", "P90": "p90_s"}.get(label)
    done = [each for each in moves if each["failed"] is None and each["end_s"] is not None]
    if key is None or not done:
        return ""
    values = list(map(duration, [done[0][f"before_{key}"], *(each[f"after_{key}"] for each in done)]))
    return " → ".join(values if len(values) <= 5 else [*values[:3], "…", values[-1]])


OF_UNIT: dict[str, Callable[[float], str]] = {"s": duration, "B": size, "Mbit/s": rate, "": number}
"""Format of the measures that applications declare, by unit."""
_KINDS: dict[str, tuple[Callable[[float], str], tuple[str, float]]] = {
    "_bytes": (size, ("kB", 1e-3)),
    "_mbit_s": (rate, ("Mbit/s", 1.0)),
    "_per_s": (lambda value: f"{number(value)} /s", ("/s", 1.0)),
    "_bit_s": (bit_rate, ("Mbit/s", 1e-6)),
    "_s": (duration, ("ms", 1e3)),
    "_share": (share, ("%", 100.0)),
    "": (number, ("", 1.0)),
}
"""Format of measures by suffix of their column, with the unit of the axis and axis units per unit."""


def _kind(measure: str) -> tuple[Callable[[float], str], tuple[str, float]]:
    return next(kind for end, kind in _KINDS.items() if measure.endswith(end))


def measure_name(measure: str) -> str:
    """Return a measure's column in words: ``"latency, median"`` for ``latency_p50_s``."""
    stem = re.sub("(_per|_m?bit)?_s$|_bytes$", "", measure).removeprefix("part_").removeprefix(OWN)
    stem, statistic = match.groups() if (match := re.fullmatch(r"(.+)_(p\d\d|mean)", stem)) else (stem, "")
    shown = {"p50": "median", "p01": "P1"}.get(statistic, statistic.upper() if statistic != "mean" else "mean")
    return ", ".join(filter(None, [{"fct": "flow completion time"}.get(stem, stem.replace("_", " ")), shown]))


def own_value(value: float, unit: str = "") -> str:
    """Return a value of a program's own measure, with its unit."""
    plain = value == 0 or 1e-4 <= abs(value) < 1e9
    return f"{number(value) if plain else f'{value:.3g}'} {unit}".rstrip()


def measure_value(measure: str, value: float | None, unit: str = "") -> str:
    """Return a value of a measure's column with its unit. unit: of a program's own measure."""
    if value is None:
        return NOTHING
    return own_value(value, unit) if measure.startswith(OWN) else _kind(measure)[0](value)


def measure_difference(measure: str, value: float | None, unit: str = "") -> str:
    """Return a difference of two values of a measure's column, with its sign."""
    if value is None:
        return NOTHING
    return f"{'+' if value > 0 else '−' if value < 0 else '±'}{measure_value(measure, abs(value), unit)}"


def ratio(value: float | None) -> str:
    """Return a ratio as text: ``"× 1.50"``."""
    return NOTHING if value is None else f"× {_digits(value)}"


def measure_axis(measure: str, most: float, unit: str = "") -> tuple[str, float]:
    """Return the label of an axis with its unit, and axis units per unit of the measure, for values up to `most`. unit:
    of a program's own measure."""
    scale = 1.0
    if not measure.startswith(OWN):
        unit, scale = _kind(measure)[1]
        if unit == "ms" and most >= 2:
            unit, scale = "s", 1.0
        elif unit == "kB" and most >= 1e6:
            unit, scale = "MB", 1e-6
    return ", ".join(filter(None, [measure_name(measure), unit])), scale


def round_to(value: float, digits: int) -> float:
    """Return a value rounded to `digits` significant digits."""
    return 0.0 if value == 0 else round(value, digits - 1 - math.floor(math.log10(abs(value))))


def _digits(value: float, digits: int = 3) -> str:
    if value == 0:
        return "0"
    rounded = round_to(value, digits)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def _scale(count: float | None, step: int, units: tuple[str, ...]) -> str:
    if count is None:
        return NOTHING
    value = float(count)
    for unit in units[:-1]:
        if round_to(abs(value), 3) < step:
            return f"{_digits(value)} {unit}" if unit != units[0] else f"{value:.0f} {unit}"
        value /= step
    return f"{_digits(value)} {units[-1]}"
