"""A link can do all that the path model can, in each direction, and change while the workload runs."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.scenario import Scenario, ScenarioError, parse
from cellbed.scenario.fields import ConstantRate, QueueLimit
from cellbed.scenario.json_schema import json_schema
from cellbed.scenario.mobile import MobileLink
from cellbed.scenario.queues import QUEUES
from cellbed.scenario.series import advance
from cellbed.scenario.table import Ways
from cellbed.support.units import BIT_RATE, DURATION
from link_examples import EXAMPLES, PAGE, REPLACED, read, write_recordings
from scenario_text import GOOD

MS = 1_000_000
CHANGES = "\n[[links.mobile.changes]]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recordings that the examples name."""
    path = tmp_path_factory.mktemp("recordings")
    write_recordings(path)
    return path


def link(line: str, folder: Path = Path()) -> MobileLink:
    return read(line, folder).links.mobile


def error(line: str, folder: Path = Path()) -> str:
    with pytest.raises(ScenarioError) as caught:
        read(line, folder)
    message = str(caught.value)
    assert message.count("\n") == 0, message
    for jargon in ("Input should", "validation error", "pydantic", "plain", "both ways", "each way"):
        assert jargon not in message
    return message


def test_the_page_has_an_example_of_every_kind() -> None:
    tables = MobileLink.model_json_schema()["$defs"].values()
    kinds = {table["properties"].get("kind", {}).get("const") for table in tables} - {None}
    assert kinds == {kind for line in EXAMPLES for kind in re.findall(r'kind = "(\S+)"', line)}


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_of_the_page_is_a_scenario(line: str, folder: Path) -> None:
    scenario = read(line, folder)
    resolved = json.loads(json.dumps(scenario.resolved()))
    assert Scenario.model_validate(resolved, context={"folder": folder}) == scenario


def test_every_example_is_valid_by_the_schema(folder: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is missing: pip install cellbed[dev]")
    validator = jsonschema.Draft202012Validator(json_schema())
    for line in EXAMPLES:
        key = line.split("=")[0].strip()
        assert [e.message for e in validator.iter_errors(tomllib.loads(GOOD.replace(REPLACED[key], line)))] == [], line
    change = PAGE.partition("## Changes\n\n```toml\n")[2].partition("```")[0]
    assert validator.is_valid(tomllib.loads(GOOD + change))
    assert not validator.is_valid(tomllib.loads(GOOD + change.replace("up =", "upp =")))
    assert not validator.is_valid(tomllib.loads(GOOD.replace(REPLACED["queue"], 'queue = { kind = "codl" }')))


def test_capacities(folder: Path) -> None:
    series = link(next(line for line in EXAMPLES if "Mbit/s" in line and "steps" in line), folder).up
    assert series.pairs == ((0, 12_000_000), (250 * MS, 3_000_000))
    assert series.period == 1000 * MS
    recorded = link('up = { kind = "series", file = "rates.csv" }', folder).up
    assert recorded.pairs == ((0, 12_500_000), (250 * MS, 3_000_000))


def test_delays(folder: Path) -> None:
    each = link('base_delay = { downlink = { kind = "normal", mean = "20 ms", deviation = "3 ms" } }').base_delay
    assert (each.uplink, each.downlink.mean, each.downlink.deviation) == (10 * MS, 20 * MS, 3 * MS)
    both = link('base_delay = { kind = "series", file = "delays.csv" }', folder).base_delay
    assert both.uplink == both.downlink
    assert both.uplink.pairs == ((0, 10 * MS), (500 * MS, 12_250_000))
    drawn = link('base_delay = { kind = "empirical", file = "observed.csv" }', folder).base_delay.uplink
    assert drawn.file.values == (9 * MS, 11 * MS)


def test_losses(folder: Path) -> None:
    assert link("loss = 0.01").loss == Ways(0.01, 0.01)
    assert link("loss = { downlink = 0.02 }").loss == Ways(0.0, 0.02)
    bursts = link('loss = { kind = "gilbert-elliott", to_bad = "1 %", to_good = 0.25 }').loss.uplink
    assert (bursts.to_bad, bursts.to_good, bursts.loss_bad, bursts.loss_good) == (0.01, 0.25, 1.0, 0.0)
    steps = link('loss = { uplink = { kind = "series", steps = [["0 s", 0], ["1 s", "100 %"]] } }').loss
    assert steps.uplink.pairs == ((0, 0.0), (1000 * MS, 1.0))
    assert steps.downlink == 0.0
    assert link('outage = [["8 s", "1.5 s"]]').outage == Ways(((8000 * MS, 1500 * MS),), ((8000 * MS, 1500 * MS),))
    assert link('outage = { downlink = [["0 s", "1 s"]] }').outage == Ways((), ((0, 1000 * MS),))
    assert link('duplication = { uplink = "1 %" }').duplication == Ways(0.01, 0.0)


def test_queues_have_the_defaults_of_their_rfcs() -> None:
    def queue(kind: str) -> Any:
        return link(f'queue = {{ kind = "{kind}" }}').queue.uplink

    codel, fair, pie, red, dual = map(queue, ("codel", "fqcodel", "pie", "red", "dualpi2"))
    assert (codel.target, codel.interval, codel.ecn) == (5 * MS, 100 * MS, False)
    assert (fair.flows, fair.quantum, fair.ecn, fair.limit) == (1024, 1514, True, QueueLimit(packets=10240))
    assert (pie.target, pie.update, pie.alpha, pie.beta, pie.burst) == (15 * MS, 15 * MS, 0.125, 1.25, 150 * MS)
    assert (red.minimum, red.maximum, red.probability, red.gentle, red.adaptive) == (7500, 22500, 0.1, True, False)
    assert (dual.target, dual.update, dual.alpha, dual.beta) == (15 * MS, 16 * MS, 0.16, 3.2)
    assert (dual.coupling, dual.threshold, dual.range, dual.classic_share) == (2.0, 800_000, 400_000, 10)


def test_changes_are_values_of_the_link(folder: Path) -> None:
    text = GOOD + CHANGES + 'at = "10 s"\nup = "1 Mbit/s"\nloss = { uplink = "1 %" }\n' + CHANGES
    text += 'at = "20 s"\ndown = { kind = "series", file = "rates.csv" }\nbase_delay = "40 ms"\n'
    text += 'queue = { kind = "codel" }\n'
    text += CHANGES + 'at = "30 s"\nup = "0 Mbit/s"\nloss = { downlink = "100 %" }\n'
    first, second, outage = parse(text, source="x.toml", folder=folder).links.mobile.changes
    assert (outage.up, outage.loss) == (ConstantRate(0), Ways(None, 1.0))
    assert (first.at, first.up, first.loss) == (10_000 * MS, ConstantRate(1_000_000), Ways(0.01, None))
    assert (first.down, first.base_delay, first.queue) == (None, None, None)
    assert second.base_delay == Ways(40 * MS, 40 * MS)
    assert isinstance(second.queue.downlink, QUEUES["codel"])


@pytest.mark.parametrize(
    ("line", "key", "words"),
    [
        ('loss = { kind = "burst" }', "loss.kind", ("'burst' is not known", '"gilbert-elliott", "series", "on-off"')),
        ('loss = { kind = "gilbert-elliott", to_bad = 0.1 }', "loss.to_good", ("missing: write to_good = 0.25",)),
        ('loss = { uplnk = "1 %" }', "loss.uplnk", ("did you mean 'uplink'",)),
        ('loss = { kind = "series" }', "loss", ("write either 'steps' or 'file'",)),
        ('loss = { kind = "series", steps = [["0 s", 2]] }', "loss.steps", ("entry 1: 2 is no probability",)),
        ('loss = { kind = "series", steps = [["1 s", 0], ["1 s", 0]] }', "loss.steps", ("entry 2", "times must rise")),
        ('up = { kind = "series", steps = [["1 s", "1 Mbit/s"]] }', "up", ("must hold from time 0",)),
        (
            'up = { kind = "series", steps = [["0 s", "1 Mbit/s"], ["1 s", "2 Mbit/s"]], period = "1 s" }',
            "up",
            ("the period, 1 s, must lie behind the last time, 1 s",),
        ),
        ('up = "0 Mbit/s"', "up", ("a link begins with", "an outage is a change of it")),
        ('base_delay = { kind = "normal", mean = "20 ms" }', "base_delay.deviation", ('deviation = "3 ms"',)),
        ('queue = { kind = "dualpi2", ecn = true }', "queue.ecn", ("unknown key for kind = 'dualpi2'",)),
        ('queue = { kind = "red", minimum = "30 kB" }', "queue", ("must be less than", "maximum = '90000 B'")),
        ('queue = { kind = "classes" }', "queue.classes", ("missing", "dscp = [46]")),
        ('queue = { kind = "classes", classes = [] }', "queue.classes", ("0 classes: write 1 to 64",)),
        ('queue = { kind = "classes", classes = 3 }', "queue.classes", ("3 is not a list: write classes = [",)),
        (
            'queue = { kind = "classes", classes = [{ dscp = 10 }] }',
            "queue.classes[0].dscp",
            ("list: write dscp = [46]",),
        ),
        (
            'queue = { kind = "classes", classes = [{ weight = "2" }] }',
            "queue.classes[0].weight",
            ("write weight = 3",),
        ),
        ('queue = { kind = "classes", classes = [{ dscp = ["ef"] }] }', "queue.classes[0].dscp[0]", ("dscp = [46]",)),
        (
            'queue = { kind = "classes", classes = [{}, {}] }',
            "queue.classes",
            ("classes[0] gets no packets: write its",),
        ),
        (
            'queue = { kind = "classes", classes = [{ limit = "100" }] }',
            "queue.classes[0].limit",
            ("'100' has no unit: write '100 MB' or '100 packets'",),
        ),
        (
            'queue = { kind = "droptail", limit = "100 pkt" }',
            "queue.limit",
            ("unknown unit", "'1 MB' or '100 packets'"),
        ),
        ('queue = { kind = "classes", classes = [{ dscp = [64] }] }', "queue.classes[0].dscp[0]", ("63",)),
        ('queue = { kind = "classes", classes = [{ weight = 0 }] }', "queue.classes[0].weight", ("1",)),
        (
            'queue = { kind = "classes", classes = [{ dscp = [0] }, { dscp = [0] }] }',
            "queue.classes",
            ("DSCP 0 belongs to two classes",),
        ),
        ('outage = [["8 s", "2 s"], ["10 s", "1 s"]]', "outage", ("at 10 s does not begin after the end of",)),
        ('outage = [["8 s", 1.5]]', "outage", ("entry 1: 1.5 is not a length",)),
        ('outage = { downlink = [["70 s", "1 s"]] }', "outage", ("no outage at 70 s: the workload ends after 60 s",)),
        ('outage = "8 s"', "outage", ('write pairs of begin and length, [["0 s", "1.5 s"], …]',)),
        ("changes = [3]", "changes[0]", ("not a table",)),
    ],
)
def test_a_mistake_is_told_with_its_key_and_remedy(line: str, key: str, words: tuple[str, ...], folder: Path) -> None:
    message = error(line, folder)
    assert f": links.mobile.{key}: " in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("changes", "line", "key", "words"),
    [
        ('at = "70 s"\nup = "1 Mbit/s"', 31, "changes[0].at", "the workload ends after 60 s"),
        ('at = "10 s"', 30, "changes[0]", "no change given"),
        ('up = "1 Mbit/s"', 30, "changes[0].at", 'missing: write at = "30 s"'),
        (f'at = "9 s"\nup = "1 Mbit/s"\n{CHANGES}at = "9 s"\nup = "2 Mbit/s"', 35, "changes[1].at", "order of time"),
        ('at = "9 s"\nstart = "4 s"', 32, "changes[0].start", "belongs to [links.mobile]"),
        ('at = "9 s"\nup = "bad.up"', 32, "changes[0].up", "bad.up:1: "),
    ],
)
def test_a_mistake_in_a_change_is_told_with_its_line(
    changes: str, line: int, key: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.up").write_text("x\n")
    with pytest.raises(ScenarioError) as caught:
        parse(GOOD + CHANGES + changes, source="x.toml", folder=tmp_path)
    assert str(caught.value).startswith(f"x.toml:{line}: links.mobile.{key}: "), caught.value
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        ("", "", "no values: the first line names the columns, as in 'time_s,rate_bit_s'"),
        ("time,rate\n0,1\n", ":1", "no column of the rate: name one rate_bit_s"),
        ("time_s,rate_mbit_s\n0,fast\n", ":2", "'fast' is not a number"),
        ("time_s,rate_mbit_s\n0,1\n0,2\n", ":3", "times must rise"),
        ("time_s,rate_mbit_s\n0,1\n1\n", ":3", "1 cells where the first line has 2"),
        ("time_s,rate_mbit_s\n0,-1\n", ":2", "rate -1 is outside 0 to"),
        ("time_s,rate_mbit_s\n-1,1\n", ":2", "a time is outside 0"),
        ("time_s,rate_mbit_s\n0,nan\n", ":2", "'nan' is not a number"),
    ],
)
def test_a_recording_that_cannot_be_used_is_told_with_its_line(
    content: str, place: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "rates.csv").write_text(content)
    message = error('up = { kind = "series", file = "rates.csv" }', tmp_path)
    assert f"links.mobile.up.file: {tmp_path / 'rates.csv'}{place}: " in message
    assert words in message


TIMES = st.lists(st.integers(0, 10**12), min_size=1, max_size=20, unique=True).map(sorted)


@given(times=TIMES, data=st.data())
def test_steps_are_the_pairs_that_were_written(times: list[int], data: st.DataObject) -> None:
    times[0] = 0
    rates = data.draw(st.lists(st.integers(1, 10**12), min_size=len(times), max_size=len(times)))
    steps = [[DURATION.format(time), BIT_RATE.format(rate)] for time, rate in zip(times, rates, strict=True)]
    up = link(f'up = {{ kind = "series", steps = {json.dumps(steps, ensure_ascii=False)} }}').up
    assert up.pairs == tuple(zip(times, rates, strict=True))
    assert up.model_dump(mode="json")["steps"] == steps


@given(
    times=TIMES,
    values=st.lists(st.integers(0, 10**9), min_size=20, max_size=20),
    by=st.integers(0, 10**12),
    later=st.integers(0, 10**12),
)
def test_a_series_from_a_later_position_on_is_the_same_series(
    times: list[int], values: list[int], by: int, later: int
) -> None:
    points = tuple(zip(times, values, strict=False))
    held = advance(points, by, linear=False)
    assert _held(held, later) == _held(points, by + later)
    slope = advance(points, by, linear=True)
    assert abs(_linear(slope, later) - _linear(points, by + later)) <= 1


def _held(points: tuple[tuple[int, int], ...], at: int) -> int | None:
    return next((value for time, value in reversed(points) if time <= at), None)


def _linear(points: tuple[tuple[int, int], ...], at: int) -> float:
    before = [point for point in points if point[0] <= at]
    after = [point for point in points if point[0] > at]
    if not before or not after:
        return (before or after[:1])[-1][1]
    (begin, low), (end, high) = before[-1], after[0]
    return low + (high - low) * (at - begin) / (end - begin)


def test_a_proxy_that_cannot_be_is_one_error(folder: Path) -> None:
    unlimited = GOOD.replace('start = "0 s"', 'proxy = { kind = "mmcptp" }')
    with pytest.raises(ScenarioError, match=r"links.mobile.down: the proxy mmcptp needs the rate of the radio link"):
        parse(unlimited, source="scenario.toml", folder=folder)
    assert "'horizon'" in error('proxy = { kind = "mmcptp", horizont = "5 ms" }', folder)
    assert "20 ms" in error('proxy = { kind = "mmcptp", horizon = "30 ms" }', folder)


def test_a_table_of_rates_as_a_trace_is_refused_with_the_setting_to_write(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("time_s,rate_mbit_s\n0,10\n1,12\n")
    message = error('up = "rates.csv"', tmp_path)
    assert 'for a table of rates write { kind = "series", file = "rates.csv" }' in message
