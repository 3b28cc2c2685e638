"""Expectations of predicted runs and of sweeps: verdicts, exit statuses and JUnit XML."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import polars as pl
import pytest

import cellbed as library
from cellbed.experiments.run import Outcome, exit_code
from cellbed.experiments.virtual import profile as profiles
from cellbed.measure.verdicts import judge, judge_point, verdicts_without_run
from cellbed.report import formats, junit
from cellbed.support.errors import CellbedError
from cellbed.support.limits import Limit
from in_process import cellbed
from scenario_text import app_table, scenario_head
from small_scenario import SERVED

SCENARIO = scenario_head(
    {"endpoint": {"cpus": 1.0, "memory": "512 MiB"}, "edge": {"cpus": 1.0, "memory": "512 MiB"}},
    mobile={"base_delay": "5 ms"},
    name="shop",
    duration="20 s",
    seed=5,
    transport={"congestion_control": "reno"},
)
SHORT = SCENARIO.replace('"20 s"', '"2 s"')
APP = app_table(
    "NAME",
    "http",
    url="http://{server.address}:8080/",
    rate="20 /s",
    deadline="50 ms",
    server={"on": "edge", "command": "python3 -m http.server 8080"},
)
WEB, BAD = APP.replace("NAME", "web"), APP.replace("NAME", "bad").replace("8080", "8081")
PASSES = '[expect]\np99_latency = "< 300 ms"\non_time_share = ">= 99 %"\nthroughput = "> 19 /s"\nlate_p99_s = "< 1 s"\n'


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The times of the servers: `bad` answers with an error only."""
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    profiles.Profile("the test", {"web": [SERVED] * 20, "bad": [SERVED | {"code": 500}] * 20}).write(path)
    return path


def run(folder: Path, profile: Path, text: str, *options: str) -> Any:
    (folder / "shop.toml").write_text(text)
    return cellbed("run", "shop.toml", "--virtual", "--profile", profile, *options, cwd=folder)


def messages(file: Path) -> dict[tuple[str, str], str | None]:
    return {
        (case.attrib["classname"], case.attrib["name"]): None
        if (failure := case.find("failure")) is None
        else failure.attrib["message"]
        for case in ElementTree.parse(file).getroot().iter("testcase")
    }


def test_a_prediction_is_checked(tmp_path: Path, profile: Path) -> None:
    # The emulator's lateness, which a prediction has not, is a missing measure.
    done = run(tmp_path, profile, SCENARIO + WEB + PASSES, "--check", "--junit", "shop.xml")
    assert done.returncode == 5
    lines = [line for line in done.stdout.splitlines() if line.startswith(("met: ", "NOT MET: "))]
    assert [line.split(": ")[0] for line in lines] == ["met", "met", "met", "NOT MET"]
    assert lines[3] == "NOT MET: web: late_p99_s < 1 s: the run has no late_p99_s"
    assert list(messages(tmp_path / "shop.xml").values())[:3] == [None] * 3

    fine = SCENARIO + WEB + PASSES.replace("late_p99_s", "network_p99_s")
    assert run(tmp_path, profile, fine, "--check").returncode == 0
    shown = run(tmp_path, profile, SHORT + WEB + '[expect]\nmedian_latency = "< 1 ms"\n')
    assert shown.returncode == 0, "without --check it is only shown"
    assert "NOT MET: web: median_latency < 1 ms: " in shown.stdout
    assert "deadline 50.0 ms · on time 100 % · goodput 800 kbit/s" in shown.stdout


def test_what_cannot_be_checked_is_an_error_before_the_run(tmp_path: Path, profile: Path) -> None:
    for options, words in (
        (["--check"], 'shop.toml: --check needs expectations: add [expect], such as p99_latency = "< 300 ms"'),
        (["--junit", "x.xml"], "--junit needs --check: add it"),
        (["--check", "--junit", "no/x.xml"], "--junit no/x.xml: there is no folder no"),
    ):
        done = run(tmp_path, profile, SCENARIO + WEB, *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    empty = run(tmp_path, profile, SCENARIO + WEB + "[expect.web]\n", "--check")
    assert (empty.returncode, "needs expectations" in empty.stderr) == (2, True)
    dry = run(tmp_path, profile, SCENARIO + WEB + '[expect]\np99_latncy = "< 1 ms"\n', "--dry-run")
    line = len((SCENARIO + WEB).splitlines()) + 2
    assert f"shop.toml:{line}: expect.p99_latncy: there is no measure 'p99_latncy'" in dry.stderr
    assert not (tmp_path / "runs").exists()


def test_an_application_without_a_good_reply_fails_the_run(tmp_path: Path, profile: Path) -> None:
    text = SHORT + WEB + BAD + '[expect.web]\nfailed_share = "< 1 %"\n[expect.bad]\np90_latency = "< 1 s"\n'
    done = run(tmp_path, profile, text, "--check", "--junit", "shop.xml")
    assert done.returncode == 1
    assert "error: none of the 40 requests of bad got a good reply: 40 × HTTP status 500" in done.stderr
    assert messages(tmp_path / "shop.xml") == {
        ("shop.web", "failed_share < 1 %"): None,
        ("shop.bad", "p90_latency < 1 s"): "bad: p90_latency < 1 s: not finite: it falls among requests without a good "
        "reply",
    }


@pytest.mark.needs_tun
def test_a_run_that_does_not_start_meets_no_expectation(tmp_path: Path) -> None:
    ends = WEB.replace("python3 -m http.server 8080", "sh -c 'exit 3'")
    (tmp_path / "shop.toml").write_text(SCENARIO + ends + '[expect]\nrequests = "> 1"\n')
    done = cellbed("run", "shop.toml", "--no-limits", "--check", "--junit", "shop.xml", cwd=tmp_path)
    assert done.returncode not in (0, 5)
    assert "NOT MET: web: requests > 1: " in done.stdout
    ((key, message),) = messages(tmp_path / "shop.xml").items()
    assert key == ("shop.web", "requests > 1")
    assert "web.edge-0.server" in str(message)


def test_the_status_of_a_failed_or_disturbed_run_has_precedence() -> None:
    unmet = verdicts_without_run({"web": (Limit("requests", "requests", ">", 1.0, "> 1"),)}, "why")
    outcome = Outcome(None, "complete", verdicts=unmet)
    assert [exit_code(outcome), exit_code(outcome, check=True)] == [0, 5]
    outcome.disturbed = True
    assert [exit_code(outcome, check=True), exit_code(outcome, check=True, strict=True)] == [5, 4]
    outcome.error = CellbedError("no")
    assert exit_code(outcome, check=True) == 2
    assert exit_code(Outcome(None, "interrupted", verdicts=unmet), check=True) == 130


P99 = Limit("p99_latency", "latency_p99_s", "<", 0.3, "< 300 ms")


@pytest.mark.parametrize(
    ("row", "failure", "met", "value", "note"),
    [
        ({"latency_p99_s": 0.2}, None, True, 0.2, None),
        ({"latency_p99_s": 0.3}, None, False, 0.3, None),
        ({"latency_p99_s": 0.2}, "the run was interrupted", False, 0.2, "the run was interrupted"),
        ({"latency_p99_s": math.inf}, None, False, None, "not finite: it falls among requests without a good reply"),
        ({"latency_p99_s": None}, None, False, None, "the run has no latency_p99_s"),
        ({"latency_p99_s": math.nan}, None, False, None, "the run has no latency_p99_s"),
        ({"latency_p90_s": 0.1}, None, False, None, "the run has no latency_p99_s: did you mean 'latency_p90_s'?"),
    ],
)
def test_a_missing_or_infinite_measure_fails_with_the_reason(
    row: dict[str, Any], failure: str | None, met: bool, value: float | None, note: str | None
) -> None:
    found = judge("web", P99, row, failure)
    assert (found.met, found.value, found.note) == (met, value, note)


def test_an_own_measure_is_not_refused_for_percentiles_of_requests() -> None:
    limit = Limit("own_x", "own_x", "<", 1.0, "< 1", "")
    requests = "there are 30 requests: P90 at least 36, P99 at least 368"
    row = {"own_x": None, "refused": f"{requests}; game.phone-0.client: no measures: the program wrote no such file"}
    assert judge("game", limit, row).note == (
        "refused: game.phone-0.client: no measures: the program wrote no such file"
    )
    assert judge("game", P99, row).note == f"refused: {requests}"
    assert judge("game", limit, {"refused": requests}).note == "the run has no own_x"


@pytest.mark.parametrize(
    ("text", "value", "unit", "measured_in", "met", "shown"),
    [
        ("> 24", 24.0, "", "fps", True, "25 fps"),
        ("< 0.03 s", 0.03, "s", "ms", True, "25 ms"),
        ("< 20000 us", 20000.0, "us", "ms", False, "25 ms"),
        ("> 24 fps", 24.0, "fps", "Hz", False, "25 Hz: its unit is Hz, not fps"),
        ("> 24 fps", 24.0, "fps", "", False, "25: its unit is not stated, not fps"),
    ],
)
def test_an_own_measure_is_compared_in_the_unit_of_its_limit(
    text: str, value: float, unit: str, measured_in: str, met: bool, shown: str
) -> None:
    limit = Limit("own_x", "own_x", text[0], value, text, unit)  # type: ignore[arg-type]
    units = json.dumps({"own_x": measured_in}) if measured_in else None
    found = judge("game", limit, {"own_x": 25.0, "units": units})
    assert found.met == met
    assert formats.verdict(asdict(found)) == f"game: own_x {text}: {shown}"


def test_each_repetition_of_a_point_must_meet_an_expectation() -> None:
    rows = {number: ({"latency_p99_s": value}, None) for number, value in enumerate((0.1, 0.4, 0.2), 1)}
    found = judge_point("rate = 5 /s", "web", P99, rows | {4: ({}, "not run")})
    assert (found.met, found.value) == (False, 0.4)
    assert found.note == "not in 2 of 4 repetitions: 2, 4 (not run)"
    assert judge_point("", "web", P99, {1: rows[1], 3: rows[3]}).met
    least = Limit("requests", "requests", ">=", 2.0, ">= 2")
    assert judge_point("", "web", least, {1: ({"requests": 5.0}, None), 2: ({"requests": 3.0}, None)}).value == 3.0


def test_junit_has_no_character_that_xml_excludes(tmp_path: Path) -> None:
    (verdict,) = verdicts_without_run({"web": (P99,)}, "it ended with \x1b[31m\ufffe<&>\ud800")
    junit.write(tmp_path / "x.xml", "n\x00", [verdict])
    root = ElementTree.parse(tmp_path / "x.xml").getroot()
    assert root.attrib == {"name": "n\\u0000", "tests": "1", "failures": "1", "errors": "0"}
    (failure,) = root.iter("failure")
    assert failure.attrib["message"].endswith("it ended with \\u001b[31m\\ufffe<&>\\ud800")


SWEEP = """
name = "place"
scenario = "shop.toml"
repetitions = 2
vary_start = false

[factors.core]
key = "links.core.edge"
levels = ["3 ms", "100 ms"]
"""


def sweep(folder: Path, profile: Path, text: str, *options: str, scenario: str = "") -> Any:
    (folder / "place.toml").write_text(SWEEP + text)
    (folder / "shop.toml").write_text(SCENARIO + WEB + scenario)
    asked = ("place.toml", "--virtual", "--jobs", 1, "--profile", profile)
    return cellbed("sweep", *asked, *options, cwd=folder)


def test_a_sweep_is_checked_at_each_point_over_its_repetitions(tmp_path: Path, profile: Path) -> None:
    of_sweep, of_scenario = '[expect]\non_time_share = "> 99 %"\n', '[expect]\nfailed_share = "< 1 %"\n'
    done = sweep(tmp_path, profile, of_sweep, "--check", "--junit", "place.xml", scenario=of_scenario)
    assert done.returncode == 5, done.stderr
    assert [line for line in done.stdout.splitlines() if "met: " in line.lower()] == [
        "met: core = 3 ms: web: failed_share < 1 %: 0 %",
        "met: core = 3 ms: web: on_time_share > 99 %: 100 %",
        "met: core = 100 ms: web: failed_share < 1 %: 0 %",
        "NOT MET: core = 100 ms: web: on_time_share > 99 %: 0 %: not in 2 of 2 repetitions: 1, 2",
    ]
    found = messages(tmp_path / "place.xml")
    assert len(found) == 4
    assert [key for key, message in found.items() if message] == [("place.core = 100 ms.web", "on_time_share > 99 %")]
    folder = tmp_path / "sweeps" / "place-virtual"
    dataset = pl.read_parquet(folder / "trials.parquet")
    assert dataset["on_time_share"].to_list() == [1.0, 1.0, 0.0, 0.0]
    assert (dataset["goodput_bit_s"] > 0).to_list() == [True, True, False, False]
    assert dataset.select("late_share", "timed_out_share").sum().row(0) == (0.0, 0.0)

    report = cellbed("sweep", "report", folder, "-m", "goodput_bit_s")
    assert "NOT MET: core = 100 ms: web: on_time_share > 99 %: 0 %" in report.stdout
    assert (folder / "report.html").read_text().count(">not met</span>") == 1
    content = json.loads(cellbed("sweep", "report", folder, "--json").stdout)
    assert [each["met"] for each in content["expectations"]] == [True, True, True, False]

    # Other expectations judge the same trials.
    again = sweep(tmp_path, profile, '[expect]\non_time_share = ">= 0 %"\n', "--check", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["ran"] == 0
    assert again.stderr.count("\nmet: ") + again.stderr.startswith("met: ") == 2
    assert sweep(tmp_path, profile, "").returncode == 0
    assert not (folder / "expectations.json").exists()
    (folder / "expectations.json").write_text("{")
    with pytest.raises(CellbedError, match=r"expectations.json: damaged"):
        library.Sweep.load(folder).report()


@pytest.mark.parametrize(
    ("text", "scenario", "words"),
    [
        ('[expect]\np99_latncy = "< 1 s"\n', "", "place.toml:{}: expect.p99_latncy: there is no measure 'p99_latncy'"),
        ('[expect.wbe]\nrequests = "> 1"\n', "", "expect.wbe: there is no application 'wbe': did you mean 'web'?"),
        ("", '[expect]\nrequests = "> x"\n', "shop.toml:{}: expect.requests: 'x' is not a number"),
        (
            '[factors.limit]\nkey = "expect.requests"\nlevels = ["> 1", "1"]\n',
            "",
            "factors.limit.levels[1]: expect.requests: '1' is not a limit",
        ),
    ],
)
def test_wrong_expectations_of_a_sweep_are_errors_of_their_lines(
    tmp_path: Path, profile: Path, text: str, scenario: str, words: str
) -> None:
    done = sweep(tmp_path, profile, text, "--dry-run", scenario=scenario)
    whole = SCENARIO + WEB + scenario if scenario else SWEEP + text
    assert done.returncode == 2
    assert words.format(len(whole.splitlines())) in done.stderr
    assert done.stderr.count("\n") == 1
