"""Policies of migrations, as tables of what they see and what they decide, and errors of their lines."""

from dataclasses import replace
from pathlib import Path

import pytest

from cellbed.scenario.policies.follow import Follow
from cellbed.scenario.policies.latency import Latency
from cellbed.scenario.policies.policy import Decision, Policy, Reply, State
from cellbed.scenario.policies.python import Python
from cellbed.support.errors import CellbedError
from scenario_text import refusal

SCENARIO = """
name = "policies"
duration = "10 s"
[nodes]
endpoint = { cpus = 0.5, memory = "128 MiB" }
cloud = { cpus = 0.5, memory = "128 MiB" }
edge = { cpus = 0.5, memory = "128 MiB" }
[links]
mobile = { up = "50 Mbit/s", down = "50 Mbit/s" }
core = { edge = "2 ms", cloud = "50 ms" }
[apps.shop]
kind = "http"
url = "http://{server.address}:8080/"
rate = "20 /s"
server = { on = "cloud", command = "python3 -m http.server 8080" }
"""
MOVE = '[[migrations]]\napp = "shop"\nstrategy = "redeploy"\n'
ALONE = 'to = "edge-0"\npolicy = { kind = "latency", above = "1 s" }\n'
CONTEXT = {"folder": Path()}
TWO = {"cloud-0": None, "edge-0": None}


def replies(*milliseconds: float | None, until_s: float = 20.0) -> list[Reply]:
    """Ten replies with this latency in each of the last seconds; none where there is no latency."""
    begin = until_s - len(milliseconds)
    return [
        Reply(begin + second + tenth / 10, value / 1e3, "endpoint-0")
        for second, value in enumerate(milliseconds)
        if value is not None
        for tenth in range(10)
    ]


def state(place: str = "cloud-0", *, since_s: float = 0.0, seen: list[Reply] | None = None) -> State:
    return State(20.0, place, since_s, TWO, {"endpoint-0": None}, seen or [])


def latency(**keys: object) -> Latency:
    text = {"kind": "latency", "above": "100 ms", "back_below": "40 ms", "for": "3 s", **keys}
    return Latency.model_validate(text, context=CONTEXT)


def node(policy: Policy, seen: State) -> str | None:
    found = policy.decider()(seen)
    return None if found is None else found[0]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (state(seen=replies(120, 110, 101)), "edge-0"),
        (state(seen=replies(500, 120, 110, 99)), None),
        (state(seen=replies(99, 120, 110, 101)), "edge-0"),
        (state(seen=replies(120, 110, None)), "edge-0"),
        (state(seen=replies(120, None, None)), None),
        (state(seen=[]), None),
        (state(seen=replies(120, 110, 101), since_s=18.0), None),
        (state("edge-0", seen=replies(120, 110, 101)), None),
        (state("edge-0", seen=replies(39, 39, 30)), "cloud-0"),
        (state("edge-0", seen=replies(39, 41, 30)), None),
        (state("other-0", seen=replies(120, 110, 101)), None),
    ],
)
def test_latency_moves_beyond_a_threshold_for_its_time(seen: State, expected: str | None) -> None:
    assert node(latency(), seen) == expected


def test_latency_uses_the_percentile_of_each_second() -> None:
    few_late = [replace(each, latency_s=0.2 if each.time_s % 1 > 0.85 else 0.05) for each in replies(1, 1, 1)]
    assert node(latency(percentile=50), state(seen=few_late)) is None
    assert node(latency(percentile=95), state(seen=few_late)) == "edge-0"
    assert node(latency(back_below=None), state("edge-0", seen=replies(1, 1, 1))) is None


def written(folder: Path, text: str) -> Python:
    (folder / "mine.py").write_text(text)
    keys = {"kind": "python", "file": "mine.py", "nodes": ["edge-0"]}
    return Python.model_validate(keys, context={"folder": folder})


def test_a_function_of_the_user_sees_the_state_and_names_a_node(tmp_path: Path) -> None:
    policy = written(
        tmp_path,
        "def place(state):\n"
        "    recent = [each.latency_s for each in state.replies if each.time_s > state.time_s - 2]\n"
        "    if recent and max(recent) > 0.1:\n"
        "        return 'edge-0'\n",
    )
    assert node(policy, state(seen=replies(120, 50, 50))) is None
    decision: Decision | None = policy.decider()(state(seen=replies(50, 50, 120)))
    assert decision == ("edge-0", "place() of mine.py")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def place(state):\n    return 1 / 0\n", "mine.py:2: ZeroDivisionError: division by zero"),
        ("def place(state):\n    return 'egde-0'\n", "returned 'egde-0': return None or one of cloud-0, edge-0"),
        ("def place(state):\n    return 7\n", "mine.py: place() returned 7"),
        ("def place():\n    return None\n", "TypeError"),
        ("import sys\ndef place(state):\n    sys.exit(3)\n", "mine.py:3: SystemExit: 3"),
        ("def place(state):\n    while True:\n        pass\n", "mine.py:2: place() takes longer than 1 s"),
    ],
)
def test_a_function_that_fails_is_an_error_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    decide = written(tmp_path, text).decider()
    with pytest.raises(CellbedError) as error:
        decide(state())
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ('to = "edge-0"', "write either a time here, or a policy"),
        ('policy = { kind = "latency", above = "1 s" }', "missing: write the name of a node"),
        ('to = "egde-0"\npolicy = { kind = "latency", above = "1 s" }', "did you mean 'edge-0'?"),
        ('to = "edge-0"\npolicy = { kind = "latency", above = "1 s", back_below = "1 s" }', "would move back at once"),
        ('to = "edge-0"\npolicy = { kind = "latency", above = "1 s", for = "2 h" }', "write at most '60 s'"),
        ('to = "edge-0"\npolicy = { kind = "latncy", above = "1 s" }', "did you mean 'latency'?"),
        ('policy = { kind = "follow", nodes = ["edge-0"] }', "the endpoints stay at one site"),
        ('policy = { kind = "python", file = "none.py", nodes = ["edge-0"] }', "none.py"),
        ('policy = { kind = "python", file = "wrong.py", nodes = ["edge-0"] }', "wrong.py:1: "),
        ('policy = { kind = "python", file = "empty.py", nodes = ["edge-0"] }', "write def place(state)"),
        ('to = "edge-0"\npolicy = { kind = "python", file = "mine.py", nodes = ["edge-0"] }', "remove this key"),
        (f'{ALONE}{MOVE}to = "edge-0"\nat = "1 s"', "only the policy moves 'shop'"),
    ],
)
def test_a_wrong_policy_is_an_error_of_its_line(tmp_path: Path, keys: str, words: str) -> None:
    (tmp_path / "mine.py").write_text("def place(state): ...\n")
    (tmp_path / "wrong.py").write_text("def place(state:\n")
    (tmp_path / "empty.py").write_text("")
    assert words in refusal(f"{SCENARIO}{MOVE}{keys}\n", tmp_path)


SITES = {"north-0": "north", "south-0": "south"}
NORTH, SOUTH = "north", "south"


@pytest.mark.parametrize(
    ("place", "endpoints", "expected"),
    [
        ("north-0", [SOUTH], "south-0"),
        ("north-0", [NORTH], None),
        ("south-0", [NORTH], "north-0"),
        ("north-0", [NORTH, SOUTH], None),
        ("south-0", [NORTH, SOUTH], None),
        ("north-0", [NORTH, SOUTH, SOUTH], "south-0"),
        ("elsewhere-0", [SOUTH], "south-0"),
        ("north-0", [], None),
    ],
)
def test_a_service_follows_most_of_its_endpoints(place: str, endpoints: list[str | None], expected: str | None) -> None:
    names = {f"endpoint-{number}": site for number, site in enumerate(endpoints)}
    policy = Follow.model_validate({"kind": "follow", "nodes": list(SITES)}, context=CONTEXT)
    assert node(policy, State(5.0, place, 0.0, SITES, names)) == expected
