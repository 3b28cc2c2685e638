"""A scenario file means what it says, with every default filled in."""

import json
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cellbed.scenario import Scenario, ScenarioError, load, parse
from cellbed.scenario.core import CoreDelay
from cellbed.scenario.fields import ConstantRate, QueueLimit, Unlimited
from cellbed.scenario.queues import DropTail
from cellbed.scenario.table import Ways
from link_examples import EXAMPLES
from scenario_text import GOOD

SCENARIOS = Path(__file__).parents[2] / "scenarios"
MS = 1_000_000


def _parse(text: str, folder: Path = SCENARIOS) -> Scenario:
    return parse(text, source="test.toml", folder=folder)


def test_values_are_canonical_numbers() -> None:
    scenario = _parse(GOOD)
    assert scenario.duration == 60_000 * MS
    assert scenario.nodes["endpoint"].memory == 512 * 2**20
    mobile = scenario.links.mobile
    assert mobile.up == ConstantRate(12_000_000)
    assert mobile.down == Unlimited()
    assert mobile.base_delay == Ways(10 * MS, 10 * MS)
    assert mobile.queue == Ways(DropTail(kind="droptail"), DropTail(kind="droptail"))
    assert mobile.queue.uplink.limit == QueueLimit(bytes=1_000_000)
    assert scenario.links.core.edge == CoreDelay(500_000, "base-edge")
    assert scenario.workload.rate == 2.0
    assert (scenario.workload.client.on, scenario.workload.server.on) == ("endpoint", "edge")


def test_defaults() -> None:
    short = "\n".join(
        line
        for line in GOOD.splitlines()
        if not line.startswith(("seed", "count", "base", "queue", "start", "arrivals"))
    )
    scenario = _parse(short)
    assert scenario == _parse(GOOD)
    resolved = scenario.resolved()
    assert resolved["links"]["mobile"]["queue"] == {"kind": "droptail", "limit": "1 MB"}
    assert (resolved["workload"]["timeout"], resolved["workload"]["workers"]) == ("10 s", 2)


@pytest.mark.parametrize(("cpus", "workers"), [("0.5", 1), ("1.9", 1), ("2.0", 2), ("4", 4)])
def test_one_worker_for_each_whole_cpu_unless_given(cpus: str, workers: int) -> None:
    assert _parse(GOOD + "workers = 7\n").applications["workload"].workers == 7
    assert _parse(GOOD.replace("cpus = 2.0", f"cpus = {cpus}")).applications["workload"].workers == workers


def test_model_by_path(tmp_path: Path) -> None:
    (tmp_path / "mine.onnx").write_bytes(b"")
    workload = _parse(GOOD + 'model = "mine.onnx"\n', tmp_path).workload
    assert workload.model == tmp_path / "mine.onnx"


def test_byte_order_mark_is_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load(path).name == "test"


VALUES = st.one_of(
    st.text(string.printable).map(json.dumps),
    st.sampled_from(GOOD.replace("\n", " ").split()),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["true", "1979-05-27T07:32:00Z", "[]", "[1, [2]]", "{}", '{ kind = "infinite" }', "{ a.b = 1 }", "''"]
    ),
)
KEYS = st.one_of(
    st.sampled_from(
        ["name", "up", "queue", "queue.kind", "loss", "count", "kind", "on", "edge", "links.mobile.up", "model"]
    ),
    st.text(string.ascii_letters + string.digits + "_-.", min_size=1, max_size=12),
    st.text(max_size=12).map(json.dumps),
)
ODD = """\
at = "5 s"
[[links.mobile.changes]]
down = { kind = "series" }
loss = { uplink = [] }
base_delay = { uplink = { kind = "series", points = [[]] } }
queue = { uplink = {}, kind = 3 }
"""
LINES = st.one_of(
    st.builds("{} = {}".format, KEYS, VALUES),
    st.builds("[{}]".format, KEYS),
    st.builds("[[{}]]".format, KEYS),
    st.sampled_from([*GOOD.splitlines(), *EXAMPLES, *ODD.splitlines()]),
    st.text(),
)


@given(
    at=st.integers(0, len(GOOD.splitlines())),
    removed=st.integers(0, 3) | st.just(99),
    added=st.lists(LINES, max_size=12),
)
def test_any_text_and_spoilt_scenario_is_a_scenario_or_answered_by_its_lines(
    at: int, removed: int, added: list[str]
) -> None:
    lines = GOOD.splitlines()
    lines[at : at + removed] = added
    found = ""
    try:
        _parse("\n".join(lines))
    except ScenarioError as problem:
        found = str(problem)
    assert all(line.startswith("test.toml:") for line in found.splitlines())
