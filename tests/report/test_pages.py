"""All kinds of pages in a browser, by structure: widths, themes, names, headings, contrast, keyboard and print."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import tomli_w

from cellbed.experiments.sweep.library import Execution
from cellbed.experiments.sweep.store import Result as Row
from cellbed.experiments.sweep.store import dataset
from cellbed.experiments.sweep.trials import Trial
from cellbed.measure.comparison import compare
from cellbed.measure.migrations import MigrationSummary, Phase
from cellbed.measure.summary import collect
from cellbed.report import comparison, html
from cellbed.report.html import ASSETS
from cellbed.report.plot import PAPER_DARK
from in_process import cellbed
from predicted_runs import change_json, make_run
from shell_world import wait_until
from sweep_results import make_sweep

AXE = Path(__file__).parents[2] / "web" / "axe" / "axe.min.js"
PRINTED = 703
"""Width between the margins of A4, pixels."""
PAPER = {"light": (255, 255, 255), "dark": tuple(bytes.fromhex(PAPER_DARK[1:]))}
PROBLEMS = Path(__file__).with_name("page_problems.js").read_text()

needs_assets = pytest.mark.skipif(not (ASSETS / "uPlot.iife.min.js").exists(), reason="the chart library is missing")


def run(folder: Path, name: str = "run", **changes: Any) -> Path:
    make_run(folder / name, **{"duration": 6, "endpoints": 2, "outages": ((2, 1),), "timeout": 1} | changes)
    collect(folder / name)
    return html.write(folder / name)


def run_of_many_doubts(folder: Path) -> Path:
    return run(folder, "x" * 80, other=2, no_limits=True, status="interrupted", warnings=["a warning"], loss=0.02)


def migration(folder: Path) -> Path:
    run(folder)
    phases = [Phase("round 1", 2.0, 3.0, 10**7), Phase("switch", 3.0, 3.1)]
    moved = MigrationSummary("workload", "state", "cloud-0", "edge-0", 2.0, 3.1, None, 10**7, phases)
    latency = {"before_s": 0.122, "before_p90_s": 0.131, "after_s": 0.0347, "after_p90_s": 0.0519, "gap_s": None}
    change_json(folder / "run" / "summary.json", lambda found: found.update(migrations=[asdict(moved) | latency]))
    return html.write(folder / "run")


def comparison_of_runs(folder: Path) -> Path:
    for name, uplink in (("one", 8), ("two", 5)):
        run(folder, name, uplink=uplink)
    comparison.write(compare([folder / "one", folder / "two"]), folder / "comparison.html")
    return folder / "comparison.html"


def sweep(folder: Path) -> Path:
    def values(trial: Trial) -> dict[str, float]:
        rate, noise = float(trial.point.labels["rate"].split()[0]), trial.repetition * 1e-3
        parts = {"generator": 1e-3, "uplink_queue": rate * 5e-3, "inference": 0.01, "own_service": 2e-3}
        means = {f"part_{name}_mean_s": value + noise for name, value in parts.items()}
        return means | {"latency_p50_s": rate * 8e-3 + noise, "latency_p99_s": rate * 0.02 + noise, "lost_share": 0.0}

    factors = {
        "rate": {"key": "workload.rate", "levels": ["2 /s", "5 /s"]},
        "place": {"key": "links.mobile.base_delay", "levels": {"near": "1 ms", "far away from here": "40 ms"}},
    }
    make_sweep(folder, factors, values, failed=((1, 2),), disturbed=((0, 1),), repetitions=4)
    cellbed("sweep", "report", folder, "--open", "no", status=0)
    return folder / "report.html"


def reproduction(folder: Path) -> Path:
    publication = pytest.importorskip("cellbed_papers.publications.thesis").PUBLICATION
    from cellbed_papers.publication import Trials
    from cellbed_papers.reproduce import page
    from cellbed_papers.reproduce.swept import Sweeps

    sweeps = Sweeps(publication, ["E1"], folder, Execution(), short=True, running=False)
    ((_, found),) = sweeps.plans
    table = dataset(found, {key: Row("complete", 1, 0, 1.0, rows=[]) for key in found.distinct})
    places = ("endpoint", "remote", "uplink", "network", "latency")
    measures = [f"{place}_{at}_s" for place in places for at in ("p50", "p99")]
    measures += ["mean_uplink_queue", "mean_inference", "bytes_up_p50", "packets_p50"]
    of = {name: 0.01 * (1 + number) for number, name in enumerate(measures)}
    chance = 1 + pl.col("repetition") / 100
    table = table.drop(measures, strict=False).with_columns(
        **{name: pl.lit(value) * chance for name, value in of.items()}
    )
    result = page.Result(publication, {"E1": Trials(table)}, sweeps.played, True, "cellbed reproduce", "2 processors")
    (folder / "page.html").write_text(page.page(result))
    return folder / "page.html"


def simulation(folder: Path) -> Path:
    pytest.importorskip("cellbed_datacentre")
    (folder / "sizes.txt").write_text("# packets\n1 1 0\n1 1 0.5\n3 1 0.8\n100 1 1\n")
    file = {
        "name": "small",
        "topology": {"kind": "leaf-spine", "racks": 2, "hosts_per_rack": 3, "spines": 2},
        "transport": {"kind": "pdcell"},
        "traffic": {"flows": 300, "load": 0.5, "sizes": "sizes.txt"},
    }
    (folder / "small.toml").write_text(tomli_w.dumps(file))
    done = cellbed("simulate", folder / "small.toml", "--seeds", 3, "--json", "--out", folder, cwd=folder, status=0)
    return Path(json.loads(done.stdout)["folder"]) / "report.html"


def trace(folder: Path) -> Path:
    cellbed("traces", "plot", "lte-suburban", "-o", folder / "trace.html", status=0)
    return folder / "trace.html"


def traces(folder: Path) -> Path:
    cellbed("traces", "compare", "lte-suburban", "5g-midband", "-o", folder / "traces.html", status=0)
    return folder / "traces.html"


QUICK = (run, sweep, simulation)
SLOW = (run_of_many_doubts, migration, comparison_of_runs, reproduction, trace, traces)


@needs_assets
@pytest.mark.parametrize(
    "build",
    [pytest.param(each, id=each.__name__, marks=[pytest.mark.slow] * (each in SLOW)) for each in (*QUICK, *SLOW)],
)
def test_a_page_is_readable_at_each_width_in_each_theme_and_in_print(
    request: pytest.FixtureRequest, browser: Any, tmp_path: Path, build: Callable[[Path], Path]
) -> None:
    if build in (trace, traces):
        request.getfixturevalue("archive")
    path = build(tmp_path)
    page = browser.new_page(color_scheme="light")
    requested: list[str] = []
    page.on("request", lambda sent: requested.append(sent.url))
    page.set_default_timeout(0)  # a busy machine takes long; the test has a time limit
    page.goto(path.as_uri())
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert colour(page, "getComputedStyle(document.body).backgroundColor") == PAPER[theme]
        for width in (380, 768, 1280):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate(PROBLEMS) == [], (theme, width)
        if AXE.exists():
            page.evaluate(AXE.read_text())
            found = page.evaluate(
                "axe.run().then(found => found.violations.map(each => [each.id, each.nodes[0].html]))"
            )
            assert found == [], theme
    assert requested == [path.as_uri()]
    assert page.locator("dl.summary dt").all_inner_texts() == ["Asked", "Answer", "Trust", "Next"]
    assert page.locator("h2").first.inner_text() == "Summary"
    for link in page.locator("nav a").all():
        assert page.locator(link.get_attribute("href")).count() == 1

    page.set_viewport_size({"width": PRINTED, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert colour(page, "getComputedStyle(document.body).backgroundColor") == PAPER["light"]
    assert page.evaluate(PROBLEMS) == []
    cut = "all => all.filter(each => each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML)"
    assert page.eval_on_selector_all("table, svg, canvas, .track, pre", cut) == []
    page.close()
    if not AXE.exists():
        pytest.skip("the rest passed, but axe-core is missing: scripts/fetch_assets.py axe")


def colour(page: Any, script: str) -> tuple[int, ...]:
    return tuple(int(part) for part in page.evaluate(f"{script}.match(/\\d+/g)"))[:3]


@needs_assets
def test_the_head_of_a_migration_is_before_and_after(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(migration(tmp_path).as_uri())
    assert (
        page.inner_text(".headline") == "Median latency 122 ms → 34.7 ms, P90 131 ms → 51.9 ms, before → after the move"
    )
    assert page.locator("h2").all_inner_texts()[1] == "Migrations"


def test_parts_are_stacked_bars_for_each_level_of_a_sweep(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page()
    page.goto(sweep(tmp_path).as_uri())
    by_rate, by_place = page.locator("figure.bars").all()
    shown = by_rate.locator("p").all_inner_texts()
    assert [re.fullmatch(r"rate (\d /s) (\d\d)\.\d ms", text).groups() for text in shown] == [
        ("2 /s", "34"),
        ("5 /s", "48"),
    ]
    assert by_place.locator("p").count() == 2
    spoken = by_rate.locator(".track").first.get_attribute("aria-label")
    assert spoken.startswith("rate 2 /s: generator 3.83 ms, uplink queue 12.8 ms")
    lengths = [
        bar.locator("i").evaluate_all("all => all.map(each => each.offsetWidth)")
        for bar in by_rate.locator(".track").all()
    ]
    assert [len(parts) for parts in lengths] == [4, 4]
    assert sum(lengths[0]) < sum(lengths[1])
    figures = tmp_path / "figures"
    cellbed("sweep", "report", tmp_path, "--figures", figures, "--open", "no", status=0)
    assert "mean of the parts of a request, ms" in (figures / "workload-parts-rate.svg").read_text()


@needs_assets
def test_charts_are_read_and_zoomed_by_keyboard_and_follow_the_theme(browser: Any, tmp_path: Path) -> None:
    page = browser.new_page(color_scheme="light")
    page.goto(run(tmp_path).as_uri())
    chart = page.locator("#charts figure").first
    assert (
        chart.locator("[role=img]").get_attribute("aria-label").endswith("over time since the start of the schedule, s")
    )
    chart.locator("[role=img]").focus()
    page.keyboard.press("ArrowRight")
    assert chart.locator("output").inner_text().startswith("request ")
    page.keyboard.press("+")
    assert page.locator("#reset").is_visible()
    page.keyboard.press("0")
    assert page.locator("#reset").is_hidden()
    pixels = "document.querySelector('#charts canvas').toDataURL()"
    light = page.evaluate(pixels)
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: page.evaluate(pixels) != light)  # the page's policy forbids wait_for_function
    dark = page.evaluate(pixels)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = page.evaluate("[...document.querySelectorAll('canvas')].map(each => each.offsetWidth)")
    assert max(printed) <= PRINTED
    assert dark != page.evaluate(pixels)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(pixels) == dark


@needs_assets
def test_latencies_of_a_large_run_appear_on_zoom(browser: Any, tmp_path: Path) -> None:
    run(tmp_path, endpoints=1)
    table = tmp_path / "run" / "requests.parquet"
    number = pl.int_range(30_000, eager=True)
    # In slices of five requests, the first is the fastest and the third is the slowest.
    latency = pl.Series([0.1, 0.2, 0.3, 0.25, 0.15] * 6_000)
    many = pl.read_parquet(table)[:1].select(pl.all().repeat_by(30_000).list.explode())
    many.with_columns(request=number, intended_s=number / 5_000, latency_s=latency).write_parquet(table)
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(html.write(tmp_path / "run").as_uri())
    chart = page.locator("figure.chart", has_text="Latency of each request").first
    drawn = chart.locator("div[role=img]")
    drawn.focus()

    def seen() -> set[int]:
        drawn.press("Home")
        found = set()
        for _ in range(30):
            drawn.press("ArrowRight")
            found.add(int(re.findall(r"request (\d+) at", chart.locator("output").inner_text())[0]) % 5)
        return found

    assert seen() <= {0, 2}
    for _ in range(8):
        drawn.press("+")
    assert seen() > {0, 2}
    assert errors == []
    page.close()
