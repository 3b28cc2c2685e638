"""The report of a sweep: as data, as a self-contained page, and as tables on the terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import polars as pl
from rich.text import Text

from cellbed.measure.factors import Study, refusal
from cellbed.measure.run_folder import MeasureError, replace
from cellbed.measure.statistics import CONFIDENCE, PRACTICAL
from cellbed.report import factor_figures, figures, formats, html, plot
from cellbed.report.figures import Ending
from cellbed.report.head import Head, expectations
from cellbed.report.html import AssetError
from cellbed.report.plot import Drawing
from cellbed.report.terminal import Listing, as_html, new_console, show_verdicts
from cellbed.support.errors import CellbedError
from cellbed.support.limits import OWN

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from cellbed.measure.verdicts import Verdict
    from cellbed.support.console import Console

MEASURES = ("latency_p50_s", "latency_p99_s", "failed_share", "lost_share")
"""Default measures."""
_THROUGHPUTS = ("throughput_up_mbit_s", "throughput_down_mbit_s")
CONNECTION_MEASURES = (*_THROUGHPUTS, "round_trip_p50_s", "fairness")
"""Default measures for applications without known requests, after the measures that their programs wrote."""
_MOST_OWN = 6
_MOST_TILES, _MOST_ANSWERS = 4, 6
_FEWEST = 3
"""Minimum number of repetitions for an interval."""
_FLOWS = {
    "flows": "Each flow in bins of 200 ms: boxes from the 25th to the 75th percentile, lines from the 5th to the 95th, "
    "and a dot at the medians. Distributions of the same bins.",
    "recovery": "Mean throughput of flows around outages of their links.",
    "fairness": "Share of the bytes that each law gets beside a rival: 50 % is fair. Means over trials.",
}
_SHOWN = 30
"""Number of rows of a table before the fold, and on the terminal."""


def usual_measures(study: Study) -> tuple[str, ...]:
    """Return the default measures of a sweep."""
    requests = study.trials.group_by("app").max()["requests"].fill_null(1)  # null: all trials have failed
    own = [name for name in study.measures if name.startswith(OWN)][:_MOST_OWN]
    of_requests = () if (requests == 0).all() else MEASURES
    found = [*of_requests, *own, *(CONNECTION_MEASURES if (requests == 0).any() else ())]
    mean = {name: study.trials[name].mean() or 0.0 for name in found if name in study.measures}
    most = max((mean.get(name, 0.0) for name in _THROUGHPUTS), default=0.0)
    idle = {name for name in _THROUGHPUTS if mean.get(name, 0.0) < PRACTICAL * most}
    # A single connection has no fairness.
    empty = {"fairness"} if "fairness" in mean and not study.trials["fairness"].count() else set()
    return tuple(name for name in mean if name not in idle | empty)


class Trials(Protocol):
    """The kind of a sweep's trials (:class:`cellbed.experiments.sweep.kinds.TrialKind`)."""

    def write_page(self, folder: Path) -> None: ...
    def drawings(self, study: Study, folder: Path) -> Mapping[str, Mapping[str, Drawing]]: ...


@dataclass(frozen=True)
class SweepReport:
    """The contents of a report.

    folder: the sweep's folder. planned: points and repetitions of the sweep file. measures: columns of the dataset.
    predicted: whether the trials are predictions. Thousands of predictions take seconds, but their pages take minutes,
    so missing pages are not written. expectations: verdicts on the points.

    Raises MeasureError for an unknown measure and for a dataset without trials.
    """

    name: str
    folder: Path
    study: Study
    planned: tuple[int, int]
    kind: Trials
    measures: Sequence[str] = MEASURES
    predicted: bool = False
    expectations: Sequence[Verdict] = ()

    def __post_init__(self) -> None:
        if not len(self.study.trials):
            raise MeasureError(f"{self.folder}: no trial has a result yet: run the sweep first")
        for measure in self.measures:
            self.study.check(measure)

    def _repr_html_(self) -> str:
        """Return the printed report, for notebooks."""
        return as_html(partial(show, self))

    @property
    def _runs(self) -> pl.DataFrame:
        """Return a row for each trial."""
        return self.study.trials.unique(["point", "repetition"], keep="first").sort("point", "repetition")

    @cached_property
    def content(self) -> dict[str, Any]:
        """Return the report without figures, for JSON."""

        study, runs = self.study, self._runs
        counts = dict(runs.group_by("status").len().sort("status").rows())
        points, repetitions = self.planned
        if missing := points * repetitions - len(runs):
            counts["missing"] = missing
        about = [
            "point",
            "repetition",
            *(factor.name for factor in study.factors),
            "key",
            "folder",
            "status",
            "attempts",
            "reason",
        ]
        unusual = runs.filter(pl.col("status") != "complete").select(about).to_dicts()
        for each in unusual:
            each["used"] = each["status"] in study.statuses
            each["reason"] = (each["reason"] or "").partition("\n")[0] or None
        return {
            "name": self.name,
            "folder": str(self.folder),
            "factors": [factor.name for factor in study.factors],
            "statistic": study.statistic,
            "half_width": study.half_width,
            "points": points,
            "repetitions": repetitions,
            "trials": counts,
            "unusual": unusual,
            "expectations": [asdict(each) for each in self.expectations],
            "applications": [self._application(app, kind) for app, kind in _applications(study)],
        }

    def _application(self, app: str, kind: str) -> dict[str, Any]:
        of_app = self.study.trials.filter(app=app)
        found: list[dict[str, Any]] = []
        without = {}
        for measure in self.measures:
            if of_app[measure].fill_nan(None).is_null().all():
                without[measure] = refusal(of_app, measure) or "no trial has a value"
                continue
            points = self.study.intervals(app, measure).to_dicts()
            effects = self.study.effects(app, measure).to_dicts()
            values = of_app[measure].drop_nulls()
            constant = len(values) > 1 and values.n_unique() == 1
            about = {"measure": measure, "unit": self.study.unit(app, measure), "constant": constant}
            found.append(about | {"points": points, "effects": effects})
        return {"name": app, "kind": kind, "measures": found, "without": without}

    def figures(self) -> list[factor_figures.FactorFigure]:
        """Return the figures of all measures that have a value and differ between trials."""
        return [
            figure
            for app in self.content["applications"]
            for each in app["measures"]
            if not each["constant"] and any(row["value"] is not None for row in each["points"])
            for figure in factor_figures.make_figures(self.study, app["name"], each["measure"])
        ]

    @cached_property
    def _drawings(self) -> Mapping[str, Mapping[str, Drawing]]:
        return self.kind.drawings(self.study, self.folder)

    def write_figures(self, folder: Path, ending: Ending) -> list[Path]:
        """Write each figure; return the files."""
        drawings: dict[str, Callable[[], Figure]] = {}
        drawings |= {each.name: partial(each.draw, self.study.trials) for each in self.figures()}
        for app in self.content["applications"]:
            for factor, bars in factor_figures.draw_parts(self.study, app["name"]).items():
                drawings[f"{app['name']}-parts-{factor}"] = bars.figure
        for app, found in self._drawings.items():
            drawings |= {f"{app}-{name}": drawing.figure for name, drawing in found.items()}
        return figures.save(drawings, folder, ending)

    def write(self, page: Path) -> None:
        """Write the page, and missing reports of runs. Raises MeasureError for a file that cannot be
        written."""
        content = self.content
        drawn: dict[tuple[str, str], list[str]] = {}
        for figure in self.figures():
            name = formats.measure_name(figure.measure)
            title = f"{name[:1].upper()}{name[1:]} by {figure.factor}"
            caption = f"{title}: {self.study.statistic} over repetitions with 95 % intervals"
            if figure.pooled > 1:
                caption += f", of the mean over the {figure.pooled} points with this level"
                caption += "; a mark needs repetitions with all of them"
            element = plot.element(title, partial(figure.draw, self.study.trials), f"{caption}.")
            drawn.setdefault((figure.app, figure.measure), []).append(element)
        text = html.fill_template(
            "sweep.html",
            self._head(),
            report=content,
            figures=drawn,
            parts={
                app["name"]: [
                    bars.element(f"Parts of the latency by {factor}")
                    for factor, bars in factor_figures.draw_parts(self.study, app["name"]).items()
                ]
                for app in content["applications"]
            },
            flows={
                app: [each.element(f"{name.capitalize()} of {app}", _FLOWS[name]) for name, each in found.items()]
                for app, found in self._drawings.items()
            },
            links=self._links(page),
            shown=_SHOWN,
            formats=formats,
            interval=_interval,
            point_value=point_value,
            effects=_effects,
            uncorrected=explain_uncorrected,
            needed=describe_repetitions,
            notes=notes,
            absent=absent,
            points={app["name"]: self._points(app) for app in content["applications"]},
            levels=levels,
        )
        replace(page, text)

    def _head(self) -> Head:
        """Return the head of the page."""
        content = self.content
        names = list(dict.fromkeys(formats.measure_name(each) for each in self.measures))
        factors = [f"{each.name} ({len(each.levels)} levels)" for each in self.study.factors]
        asked = f"The effect of {' and '.join(factors) or 'chance'} on {'; '.join(names)}."
        trials, few = content["trials"], content["repetitions"] < _FEWEST
        reasons = [f"{trials.get('complete', 0)} of {sum(trials.values())} trials complete"]
        reasons += ["predicted in virtual time"] if self.predicted else []
        reasons += [f"{content['repetitions']} repetitions, too few for intervals"] if few else []
        treated = describe_treatment(content) if content["unusual"] else ""
        measured = [each for app in content["applications"] for each in app["measures"]]
        short = next((each for each in measured if any(row["more"] for row in each["points"])), None)
        more = describe_repetitions(short, self.study.half_width) if short else ""
        effects = [line for app in content["applications"] for line in _effects_in_words(app)]
        steps = [(f"Add repetitions of {formats.measure_name(short['measure'])} {more}", "")] if short else []
        command = f"cellbed sweep report {self.folder.name} --figures figures --format pdf"
        return Head(
            title=self.name,
            kind="sweep",
            asked=[asked, summary(content)],
            tiles=[tile for app in content["applications"][:1] for tile in _tiles(app)],
            answers=[*expectations(self.expectations), *effects],
            trust="with care" if treated or few or self.predicted or "missing" in trials else "yes",
            reasons=reasons,
            doubts=[f"{treated} They are red among the runs of each point, and listed at the end."] if treated else [],
            next=[*steps, ("Write its figures for a paper", command)],
        )

    def _points(self, app: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a row for each point: `at`, its index in the values of a measure, its number and its levels."""
        names = [factor.name for factor in self.study.factors]
        rows = self.study.trials.filter(app=app["name"]).unique("point").sort("point").select("point", *names)
        return rows.with_row_index("at").to_dicts()

    def _links(self, page: Path) -> dict[int, list[dict[str, Any]]]:
        """Return for each repetition, by point: its number, its status, and the address of the run's report relative to
        the page, or None."""
        found: dict[int, list[dict[str, Any]]] = {}
        for row in self._runs.iter_rows(named=True):
            run = self.folder / row["folder"] if row["folder"] else None
            report = None if run is None else self._page(run)
            href = None if report is None else quote(os.path.relpath(report.resolve(), page.resolve().parent))
            found.setdefault(row["point"], []).append(
                {"repetition": row["repetition"], "status": row["status"], "href": href}
            )
        return found

    def _page(self, trial: Path) -> Path | None:
        """Return the page of a trial; write it if it is missing. Return None if the trial has too little data."""
        page = trial / "report.html"
        if not page.is_file() and not self.predicted:
            try:
                self.kind.write_page(trial)
            except AssetError:
                raise
            except CellbedError:
                return None
        return page if page.is_file() else None


def _applications(study: Study) -> list[tuple[str, str]]:
    return list(study.trials.select("app", "kind").unique(maintain_order=True).iter_rows())


def _tiles(app: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the range of each measure over the points."""
    tiles = []
    for each in app["measures"][:_MOST_TILES]:
        values = [row["value"] for row in each["points"] if row["value"] is not None]
        if values:
            ends = [formats.measure_value(each["measure"], end(values), each["unit"]) for end in (min, max)]
            name = formats.measure_name(each["measure"])
            tiles.append((name[:1].upper() + name[1:], " to ".join(dict.fromkeys(ends)), f"over {len(values)} points"))
    return tiles


def _effects_in_words(app: Mapping[str, Any]) -> list[str]:
    """Return the largest effect of each factor on each measure in a sentence, and the factors without one."""
    lines, without = [], []
    for each in app["measures"]:
        name = formats.measure_name(each["measure"])
        for factor in dict.fromkeys(row["factor"] for row in each["effects"] if not each["constant"]):
            judged = [row for row in each["effects"] if row["factor"] == factor and not row["note"]]
            rows = [row for row in judged if row["distinct"]]
            if judged and not rows:
                without.append(f"{factor} on {name}")
            for row in sorted(rows, key=lambda row: -abs(row["difference"]))[:1]:
                change = formats.measure_difference(each["measure"], row["difference"], each["unit"])
                bounds = _interval(each, row, True)
                lines.append(f"{name}: {change} ({bounds}) with {factor} {row['level']} in place of {row['first']}.")
    lines = lines[:_MOST_ANSWERS] + ([f"no clear effect of {'; '.join(without[:_MOST_ANSWERS])}."] if without else [])
    return [f"{app['name']}: {line}" for line in lines]


def p_value(p: float | None) -> str:
    """Return a p-value as text: ``"0.03"``, ``"< 0.001"``."""
    return formats.NOTHING if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"


def levels(report: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return the levels of a point in words."""
    return ", ".join(f"{name} = {row[name]}" for name in report["factors"]) or "the scenario as it is"


def notes(measured: Mapping[str, Any]) -> list[str]:
    """Return the distinct reasons why points of a measure have no value or no interval."""
    found: dict[str, list[int]] = {}
    for row in measured["points"]:
        if row["note"]:
            found.setdefault(row["note"].removeprefix("refused: "), []).append(row["point"])
    return [f"{_points(numbers, len(measured['points']))}: {note}" for note, numbers in found.items()]


def absent(app: Mapping[str, Any]) -> list[str]:
    """Return the distinct reasons why measures of an application have no value in any trial."""
    found: dict[str, list[str]] = {}
    for measure, why in app["without"].items():
        found.setdefault(why, []).append(formats.measure_name(measure))
    return [f"{'; '.join(names)}: {why}" for why, names in found.items()]


def _points(numbers: list[int], of: int) -> str:
    if len(numbers) == of:
        return "all points"
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"{len(numbers)} of {of} points ({shown})" if len(numbers) > 1 else f"point {shown}"


def summary(report: Mapping[str, Any]) -> str:
    """Return points, repetitions and trials in words."""
    states = ", ".join(f"{count} {state}" for state, count in report["trials"].items())
    return f"{report['points']} points × {report['repetitions']} repetitions; trials: {states}"


def describe_treatment(report: Mapping[str, Any]) -> str:
    """Describe the treatment of incomplete trials, and the remedy for disturbed trials."""
    used = sum(each["used"] for each in report["unusual"])
    disturbed = any(each["status"] == "disturbed" and not each["used"] for each in report["unusual"])
    hint = (
        " Disturbed trials: run the sweep again with a higher --repeats, or report --with-disturbed."
        if disturbed
        else ""
    )
    counts = {"left out of all values": len(report["unusual"]) - used, "disturbed and used": used}
    parts = [f"{count} trial{'s' * (count > 1)} {what}" for what, count in counts.items() if count]
    return f"{', '.join(parts)}.{hint}"


def describe_repetitions(measured: Mapping[str, Any], half_width: float) -> str:
    """Describe the number of further repetitions that the points of a measure need."""
    more = [row["more"] for row in measured["points"] if row["more"] is not None]
    if not more:
        return ""
    text = f"for 95 % intervals of the mean of ±{formats.share(half_width)}: "
    short = sum(each > 0 for each in more)
    text += (
        f"{max(more)} more repetitions at most, at {short} of {len(more)} points" if short else "no more repetitions"
    )
    return text


def show(report: SweepReport, console: Console | None = None) -> None:
    """Print the report."""
    console = console or new_console()
    content = report.content
    console.print(Text.assemble("\n", (content["name"], "bold"), f"  {summary(content)}"))
    failed = [each for each in content["unusual"] if each["status"] == "failed"]
    for each in failed[:_SHOWN]:
        text = f"failed, left out: {levels(content, each)}, repetition {each['repetition']}"
        console.print(Text(f"{text}: {each['reason']}" if each["reason"] else text, style="red"))
    _more(console, len(failed), "trials")
    if content["unusual"]:
        console.print(Text(f"{describe_treatment(content)} The page and --json list them.", style="yellow"))
    show_verdicts(report.expectations, console)
    for app in content["applications"]:
        for each in app["measures"]:
            measure = each["measure"]
            value = partial(formats.measure_value, measure, unit=each["unit"])
            if each["constant"]:
                same = next((row["value"] for row in each["points"] if row["value"] is not None), None)
                console.print(Text(f"\n{app['name']}: {formats.measure_name(measure)}: {value(same)} in every trial"))
                continue
            console.print(Text(f"\n{app['name']}: {formats.measure_name(measure)}", style="bold"))
            columns: dict[str, Any] = {
                "point": lambda row: str(row["point"]),
                "levels": lambda row: Text(levels(content, row)),
                content["statistic"]: partial(point_value, each),
                "95 % interval": partial(interval, shown=value),
                "repetitions": lambda row: str(row["repetitions"]),
                "more": lambda row: formats.number(row["more"]),
            }
            table = Listing(each["points"][:_SHOWN], columns).table(whole=True)
            console.print(table)
            _more(console, len(each["points"]), "points")
            if each["effects"]:
                console.print()
                console.print(_effects(each, each["effects"][:_SHOWN]))
                _more(console, len(each["effects"]), "levels")
            for line in (explain_uncorrected(each), *notes(each), describe_repetitions(each, content["half_width"])):
                if line:
                    console.print(Text(line, style="dim"))
        for line in absent(app):
            console.print(Text(f"{app['name']}: {line}", style="dim"))


def _effects(measured: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    difference = partial(formats.measure_difference, measured["measure"], unit=measured["unit"])
    columns: dict[str, Any] = {
        "effect of": lambda row: Text(row["factor"]),
        "level": lambda row: Text(f"{row['level']} minus {row['first']}"),
        "difference": lambda row: difference(row["difference"]),
        "95 % interval": partial(interval, shown=difference),
        "ratio": lambda row: formats.ratio(row["ratio"]),
        "interval of ratio": lambda row: interval({"low": row["ratio_low"], "high": row["ratio_high"]}, formats.ratio),
        "repetitions": lambda row: str(row["repetitions"]),
        "p (Holm)": lambda row: p_value(row["p_adjusted"]),
        "verdict": lambda row: Text(verdict(row)),
    }
    return Listing(rows, columns).table(whole=True)


def verdict(row: Mapping[str, Any]) -> str:
    """Describe the result of an effect."""
    if row["note"]:
        return str(row["note"]).removeprefix("refused: ")
    return formats.judgement(row["distinct"], row["p_adjusted"] < 1 - CONFIDENCE)


def point_value(measured: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return the value of a point, or a note that it is refused."""
    refused = row["value"] is None and (row["note"] or "").startswith("refused")
    return "refused" if refused else formats.measure_value(measured["measure"], row["value"], measured["unit"])


def interval(row: Mapping[str, Any], shown: Any) -> str:
    """Return the bounds of an interval."""
    if row["low"] is None and row["high"] is None:
        return formats.NOTHING
    low, high = ("∞" if row[end] is None else shown(row[end]) for end in ("low", "high"))
    return f"{low} to {high}"


def explain_uncorrected(measured: Mapping[str, Any]) -> str:
    """Return why an interval and the verdict of its row may differ; empty if no row is affected."""
    rows = [row for row in measured["effects"] if row["low"] is not None]
    if all((row["low"] > 0 or row["high"] < 0) == (row["p_adjusted"] < 1 - CONFIDENCE) for row in rows):
        return ""
    return "each interval is for its row alone; p and the verdict are corrected for all rows"


def _interval(measured: Mapping[str, Any], row: Mapping[str, Any], signed: bool = False) -> str:
    shown = formats.measure_difference if signed else formats.measure_value
    return interval(row, partial(shown, measured["measure"], unit=measured["unit"]))


def _more(console: Console, rows: int, what: str) -> None:
    if rows > _SHOWN:
        console.print(f"… and {rows - _SHOWN} more {what}: see the page or --json", style="dim")
