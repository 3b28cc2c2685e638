"""Expectations of a scenario: names of measures, operators and units, and errors of their lines."""

import math
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from any_text import NUMBERS, ODD_TEXT, UNITS, many, value_or_sentence, words
from cellbed.scenario import ScenarioError, parse
from cellbed.scenario.expectations import ALIASES, KNOWN
from cellbed.support.limits import Limit
from scenario_text import GOOD

SEVERAL = (
    GOOD.replace("[workload]", "[apps.photographs]")
    + '[apps.web]\nkind = "http"\nserver = "edge"\nrate = "1 /s"\nurl = "http://{server.address}/"\n'
)
TIMELY = GOOD + 'deadline = "100 ms"\n'


def limits(text: str) -> dict[str, tuple[Limit, ...]]:
    return parse(text, source="x.toml", folder=Path()).expectations()


def problem(text: str) -> str:
    with pytest.raises(ScenarioError) as error:
        limits(text)
    return str(error.value)


@pytest.mark.parametrize(
    ("key", "measure", "sign", "value", "shown"),
    [
        ('p99_latency = "< 300 ms"', "latency_p99_s", "<", 0.3, "< 300 ms"),
        ('median_latency = "> 1 µs"', "latency_p50_s", ">", 1e-6, "> 1 µs"),
        ('failed_share = "< 1 %"', "failed_share", "<", 0.01, "< 1 %"),
        ('on_time_share = ">=  100 %"', "on_time_share", ">=", 1.0, ">= 100 %"),
        ('goodput = "> 1.5 Mbit/s"', "goodput_bit_s", ">", 1.5e6, "> 1.5 Mbit/s"),
        ('requests = "> 100"', "requests", ">", 100.0, "> 100"),
        ('throughput = "> 300 /min"', "throughput_per_s", ">", 5.0, "> 300 /min"),
        ('part_inference_p99_s = "< 20 ms"', "part_inference_p99_s", "<", 0.02, "< 20 ms"),
    ],
)
def test_a_limit_has_the_unit_of_its_measure(key: str, measure: str, sign: Any, value: float, shown: str) -> None:
    (limit,) = limits(f"{TIMELY}\n[expect]\n{key}\n")["workload"]
    assert limit == Limit(key.partition(" ")[0], measure, sign, pytest.approx(value), shown)


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [("> -2.5", -2.5, ""), ("> 95 %", 95.0, "%"), ("> 24fps", 24.0, "fps"), ("> 5  ms", 5.0, "ms")],
)
def test_a_limit_of_a_programs_own_measure_has_any_unit(text: str, value: float, unit: str) -> None:
    (limit,) = limits(f'{GOOD}\n[expect]\nown_x = "{text}"\n')["workload"]
    assert (limit.measure, limit.value, limit.unit) == ("own_x", value, unit)


def test_a_value_is_compared_by_the_operator() -> None:
    for sign, held in (("<", (1, 0, 0)), ("<=", (1, 1, 0)), (">", (0, 0, 1)), (">=", (0, 1, 1))):
        assert tuple(Limit("x", "x", sign, 2.0, "").holds(value) for value in (1, 2, 3)) == held


@pytest.mark.parametrize(
    ("key", "name", "words"),
    [
        ('p99_latncy = "< 300 ms"', "p99_latncy", "there is no measure 'p99_latncy': did you mean 'p99_latency'?"),
        ('xyzzy = "< 1"', "xyzzy", "there is no measure 'xyzzy': write one of median_latency, p90_latency"),
        ('p99_latency = "300 ms"', "p99_latency", "'300 ms' is not a limit: write p99_latency = '< 300 ms'"),
        ("p99_latency = 300", "p99_latency", "300 is not a limit: write p99_latency = '< 300 ms'"),
        ('p99_latency = "< 300"', "p99_latency", "'300' has no unit: write '300 ms' or '300 s'"),
        ('failed_share = "< 300 ms"', "failed_share", "'300 ms' is not a probability"),
        ('failed_share = "< 101 %"', "failed_share", "is outside 0 to 1"),
        ('requests = "> 5 /s"', "requests", "'5 /s' is not a number: write '> 100'"),
        ('own_score = "> five"', "own_score", "'five' is not a number, with or without a unit"),
        ('on_time_share = "> 99 %"', "on_time_share", "'workload' has no deadline: write deadline = '100 ms'"),
        ('web.requests = "> 1"', "web", "there is no application 'web': write one of workload"),
    ],
)
def test_a_wrong_limit_is_an_error_of_its_line(key: str, name: str, words: str) -> None:
    text = f"{GOOD}\n[expect]\nanswered = '> 1'\n{key}\n"
    found = problem(text)
    assert found.startswith(f"x.toml:{text.splitlines().index(key) + 1}: expect.{name}: ")
    assert words in found
    assert "\n" not in found


def test_several_applications_have_a_table_each() -> None:
    found = limits(SEVERAL + '[expect.web]\nrequests = "> 1"\n[expect.photographs]\nfailed_share = "< 1 %"\n')
    assert {app: [each.measure for each in of] for app, of in found.items()} == {
        "web": ["requests"],
        "photographs": ["failed_share"],
    }
    assert "expect.requests: which application? Write it in [expect.photographs] or [expect.web]" in problem(
        SEVERAL + '[expect]\nrequests = "> 1"\n'
    )
    unknown = problem(SEVERAL + '[expect.wbe]\nrequests = "> 1"\n')
    assert "expect.wbe: there is no application 'wbe': did you mean 'web'?" in unknown


def test_a_scenario_with_expectations_is_resolved_to_itself() -> None:
    scenario = parse(GOOD + '[expect]\np99_latency = "< 300 ms"\n', source="x.toml", folder=Path())
    assert scenario.resolved()["expect"] == {"p99_latency": "< 300 ms"}
    assert type(scenario).model_validate(scenario.resolved(), context={"folder": Path()}) == scenario


NAMES = st.sampled_from([*ALIASES, *KNOWN, "own_x", "part_server_p50_s"]) | ODD_TEXT.filter(bool)
TEXTS = words(*NUMBERS, *UNITS, "<", ">", "<=", ">=", "=", " ", "/s", "/min")


@many
@given(name=NAMES, text=TEXTS)
def test_any_text_is_a_limit_or_one_sentence(name: str, text: str) -> None:
    for value in (text, {name: text}, [text]):
        written = TIMELY + tomli_w.dumps({"expect": {name: value}})
        found = value_or_sentence(lambda written=written: limits(written))  # type: ignore[misc]
        for limit in (found or {}).get("workload", ()):
            assert math.isfinite(limit.value)
            assert limit.text.isprintable()
            assert limit.holds(limit.value) == ("=" in limit.operator)


@many
@given(
    sign=st.sampled_from(["<", "<=", ">", ">="]),
    value=st.integers(0, 10**9),
    space=st.sampled_from(["", " ", "  ", "\t"]),
)
def test_a_limit_is_read_back_from_its_text(sign: str, value: int, space: str) -> None:
    text = f"{space}{sign}{space}{value} us{space}"
    (limit,) = limits(GOOD + tomli_w.dumps({"expect": {"p99_latency": text}}))["workload"]
    assert (limit.operator, limit.value) == (sign, pytest.approx(value / 1e6))
    assert limits(GOOD + tomli_w.dumps({"expect": {"p99_latency": limit.text}}))["workload"] == (limit,)
