"""The state of live runs from the bytes of their files, and the files of finished runs."""

import io
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cellbed.measure.meter import Reading
from cellbed.support.console import Console
from cellbed.ui.finished import entries, find, scenario_files
from cellbed.ui.reader import Tail
from cellbed.ui.snapshot import Bed, difference
from cellbed.ui.terminal import draw
from scenario_text import GOOD

SECOND = 1_000_000_000
RUN = {
    "format": 1,
    "name": "two",
    "clock": "real",
    "status": "complete",
    "started": "2026-11-29T10:00:00+00:00",
    "nodes": [
        {"name": "endpoint-0", "class": "endpoint", "cpus": 1.0, "memory_bytes": 100, "limits_enforced": True},
        {"name": "edge-0", "class": "edge", "cpus": 2.0, "limits_enforced": False, "clock": {"offset_ns": 500}},
    ],
    "applications": [{"name": "web", "title": "a web", "clients": ["endpoint-0"], "servers": ["edge-0"]}],
}
STAGES = [{"kind": "delay", "fixed_ns": 1_000_000}]


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def bed() -> Bed:
    made = Bed("two", "testbed", "/runs/two")
    made.take_description(RUN)
    return made


def event(name: str, what: str, **more: Any) -> dict[str, Any]:
    return {"time_ns": 3 * SECOND, "at_s": 1.5, "event": name, "what": what, **more}


def test_a_request_has_the_parts_that_its_programs_have_stamped() -> None:
    found = bed()
    found.take_events(lines({**event("schedule started", "two"), "time_ns": SECOND}))
    client = {"endpoint": "endpoint-0", "status": "ok", "intended_ns": 2 * SECOND, "sent_ns": 2 * SECOND + 1_000_000}
    # The clock of the edge is 500 ns ahead.
    served = {"endpoint": "endpoint-0", "received_ns": 2 * SECOND + 11_000_500, "sent_ns": 2 * SECOND + 31_000_500}
    found.take_served("web", "edge-0", lines({**served, "request": 0}))
    requests = lines(
        {**client, "request": 0, "reply_ns": 2 * SECOND + 36_000_000},
        {**client, "request": 1, "reply_ns": 2 * SECOND + 37_000_000},
        {**client, "request": 2, "reply_ns": None, "status": "timed-out"},
        "no object",
        {"request": "malformed"},
    )
    found.take_requests([("web", "endpoint-0", requests + b'{"cut short')])
    third, first, second = found.content()["requests"].values()
    assert first["parts"] == {"endpoint": 1, "uplink": 10, "remote": 20, "downlink": 5}
    assert (first["latency"], first["at_s"], first["node"]) == (36, 1, "endpoint-0")
    assert second["parts"] == {"endpoint": 1, "path": 36}
    assert third["status"] == "timed-out"
    assert "latency" not in third


def test_nodes_show_their_use_beside_their_limits() -> None:
    found = bed()
    samples = [
        {"time_ns": tenth * SECOND // 10, "cpu_ns": tenth * SECOND // 20, "memory_bytes": 50, "node": "endpoint-0"}
        for tenth in range(30)
    ]
    found.take_samples(lines(*samples, {"node": "edge-0", "cpu_ns": None, "memory_bytes": None}, {"node": "x"}))
    nodes = found.content()["nodes"]
    assert nodes["endpoint-0"] == {"type": "endpoint", "cpus": 1.0, "memory_limit": 100, "cpu": 0.5, "memory": 50}
    assert nodes["edge-0"] == {"type": "edge"}, "limits are not enforced, and use is unknown"


def test_faults_and_moves_last_from_their_begin_to_their_end() -> None:
    found = bed()
    found.take_events(
        lines(
            event("program started", "web.edge-0.server", node="edge-0", pid=7),
            event("fault began", "edge-0 crashes", fault=3),
            event("move began", "web to edge-0"),
            event("program ended", "web.edge-0.server", node="edge-0", status=-9),
            event("link changed", "mobile-0.uplink", **{"from": "5 Mbit/s", "to": "1 Mbit/s"}),
            event("move ended", "web to edge-0", failed="no reply"),
        )
    )
    content = found.content()
    assert content["programs"] == {"web.edge-0.server": {"node": "edge-0", "state": "ended with status -9"}}
    assert list(content["now"].values()) == ["fault: edge-0 crashes"]
    texts = [each["text"] for each in content["events"].values()]
    assert texts[-2:] == [
        "link changed: mobile-0.uplink, from 5 Mbit/s to 1 Mbit/s",
        "move ended: web to edge-0, failed no reply",
    ]


def test_a_shell_has_links_alone() -> None:
    shell = Bed("shell-1", "shell", None)
    shell.take_directions([{"name": "link.uplink", "from": "inside", "to": "outside", "stages": STAGES}])
    reading = Reading("link.uplink", 1e6, 100, 1, None, None, {"loss": 2}, closed=True)
    shell.take_readings([reading])
    content = shell.content()
    unknown = {"delay_ms": None, "longest_ms": None}
    assert Reading("link.uplink", **unknown | content["links"]["link.uplink"]) == reading
    assert content["directions"]["link.uplink"]["does"] == "1 ms one way"
    assert (content["state"], content["nodes"]) == ("running", {})


JSON = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner),
    max_leaves=8,
)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


@given(st.dictionaries(st.sampled_from("xyz"), JSON), st.dictionaries(st.sampled_from("xyz"), JSON))
def test_a_difference_turns_one_state_into_the_next(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert merge(before, difference(before, after)) == after
    assert difference(after, after) == {}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
GOOD_LINES: list[dict[str, Any]] = [
    {"node": "edge-0", "time_ns": 1, "cpu_ns": 1, "memory_bytes": 1},
    {"node": "edge-0", "time_ns": SECOND, "cpu_ns": SECOND, "memory_bytes": 1},
    {"request": 1, "endpoint": "endpoint-0", "intended_ns": 1, "sent_ns": 2, "reply_ns": 3, "status": "ok"},
    *(event(name, "x") for name in ("schedule started", "program started", "fault began", "fault ended")),
    event("link changed", "mobile-0.uplink", to="1 Mbit/s"),
    {"name": "x", "class": "edge", "cpus": 1.0, "memory_bytes": 1, "limits_enforced": True, "title": "", "clients": []},
]
SPOILT = st.builds(
    lambda good, number, value: good | {[*good][number % len(good)]: value},
    st.sampled_from(GOOD_LINES),
    st.integers(0, 10),
    VALUES,
)


@given(st.lists(SPOILT | st.sampled_from(GOOD_LINES), max_size=5))
def test_any_lines_of_programs_leave_a_state_that_a_page_can_read(values: list[dict[str, Any]]) -> None:
    found = bed()
    content = lines(*values)
    found.take_events(content)
    found.take_samples(content)
    found.take_served("web", "edge-0", content)
    found.take_requests([("web", "endpoint-0", content)])
    found.take_description({"nodes": values, "applications": values})
    state = json.loads(json.dumps(found.content(), allow_nan=False))
    Console(width=80, file=io.StringIO()).print(draw(state, rows=24, width=80))


def test_a_file_is_read_line_by_line_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    tail = Tail(path)
    assert tail.read() == b"", "there is no such file yet"
    path.write_bytes(b"one\ntw")
    assert tail.read() == b"one\n"
    path.write_bytes(b"one\ntwo\n")
    assert [tail.read(), tail.read()] == [b"two\n", b""]
    with path.open("ab") as file:
        file.write(b"x" * 2_000_000 + b"\nlast\n")
    assert tail.read() == b"last\n", "only the latest megabyte"
    path.unlink()
    path.mkdir()
    assert tail.read() == b""


def test_finished_runs_and_sweeps_are_listed(tmp_path: Path) -> None:
    for name, started in (("one", "2026-11-28"), ("two", "2026-11-29")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(RUN | {"started": started}))
    application = {
        "name": "web",
        "requests": {"total": 9, "ok": 7, "late": 1},
        "percentiles": [{"quantile": 0.5, "value": 0.1}, {"quantile": 0.99, "value": None}],
    }
    summary = {"applications": [application], "disturbances": ["busy"], "expectations": [{"met": True}]}
    (tmp_path / "one" / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "one" / "report.html").write_text("")
    (tmp_path / "sweep" / "trials" / "a").mkdir(parents=True)
    (tmp_path / "sweep" / "sweep.toml").write_text("")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "run.json").write_text("[]")
    (tmp_path / "other").mkdir()
    found = {each["key"]: each for each in entries(tmp_path)}
    assert [*found] == ["two", "one", "sweep"] or [*found] == ["sweep", "two", "one"]
    assert found["one"]["apps"] == [{"name": "web", "requests": 9, "answered": 8, "median": 0.1}]
    assert (found["one"]["status"], found["one"]["verdict"]) == ("disturbed", "1 of 1 met")
    assert (found["one"]["report"], found["two"]["report"], found["sweep"]["trials"]) == (True, False, 1)
    assert find(tmp_path, "one") == tmp_path / "one"
    for key in ("", ".", "..", "../x", "one/..", "/", "other", "none"):
        assert find(tmp_path, key) is None
    assert entries(tmp_path / "none") == []


def test_scenario_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "a.toml").write_text(GOOD)
    (tmp_path / "pyproject.toml").write_text("[project]")
    assert scenario_files(tmp_path) == ["scenarios/a.toml"]
