"""A malformed scenario is answered by one line per mistake: file, line, key, what is wrong and what would be right."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from cellbed.experiments.virtual import run as prediction
from cellbed.scenario import ScenarioError, load, parse
from cellbed.scenario.fields import Command
from cellbed.testbed import testbed
from cellbed.testbed.plan import make_plan
from cellbed.testbed.testbed import congestion_problem
from scenario_text import GOOD

MISTAKES = r"""
mistyped key | queue = | qeue = | 18 links.mobile.qeue | unknown key ; 'queue'
mistyped table beside right ones | [nodes.edge] | [node.edge] | 10 node | unknown key ; did you mean 'nodes'?
mistyped table | [workload] | [worklod] | 24 worklod | unknown key ; 'workload'
key of another table | seed = 1 | seed = 1\nbase_delay = "5 ms" | 4 base_delay | unknown key here ; [links.mobile]
key twice by typo | start = "0 s" | start = "0 s"\nstarts = "1 s" | 20 links.mobile.starts | 'start' already exists
image --help | "512 MiB" | "512 MiB"\nbackend = { kind = "container", image = "--help" } |
    9 nodes.endpoint.backend.image | cannot be used here ; docker.io/library/redis
image a\u0000b | "512 MiB" | "512 MiB"\nbackend = { kind = "container", image = "a\u0000b" } |
    9 nodes.endpoint.backend.image | cannot be used here ; docker.io/library/redis
loss in per cent as number | queue = | loss = 5\nqueue = | 18 links.mobile.loss | 0.05 ; '5 %'
nodes of a program beside it | [workload] |
    [apps.web]\nkind = "http"\non = "edge"\nurl = "http://{server.address}/"\nrate = "1 /s"\n[workload] |
    26 apps.web.on | unknown key here ; [apps.web.server]
duration as number | "60 s" | 60 | 2 duration | 60 has no unit ; '60 s'
cell without users | [nodes.edge] | [cells.macro]\n[nodes.edge] | 10 cells.macro | no group of nodes
priority without a cell | cpus = 1.0 | cpus = 1.0\npriority = 1 | 8 nodes.endpoint.priority | only users of a cell
route without a cell | [nodes.edge] | [[nodes.endpoint.route]]\nat = "1 s"\ncell = "x"\n[nodes.edge] |
    10 nodes.endpoint.route | begins in a cell
cell of an edge | cpus = 2.0 | cpus = 2.0\ncell = "macro" | 12 nodes.edge.cell | only endpoints
zero nodes | count = 1 | count = 0 | 6 nodes.endpoint.count | 0 is too small ; at least 1
half a node | count = 1 | count = 1.5 | 6 nodes.endpoint.count | 1.5 is not a whole number
group without class | [nodes.edge] | [nodes.near] | 10 nodes.near.class |
    missing: write class = "endpoint" or "edge" or "cloud"
two groups of clients | [workload] | [workload]\nclient = ["endpoint", "edge"] | 25 workload.client |
    one group: write one, and another [apps.NAME]
unknown class | [nodes.edge] | [nodes.near]\nclass = "egde" | 11 nodes.near.class | 'egde' ; did you mean 'edge'
mobile link of an edge | cpus = 2.0 | link = { start = "1 s" }\ncpus = 2.0 | 11 nodes.edge.link |
    not for nodes of class edge ; core
key in a group's link | cpus = 1.0 | link = { strat = "1 s" }\ncpus = 1.0 | 7 nodes.endpoint.link.strat |
    did you mean 'start'
both forms of applications | [workload] |
    [apps.a]\nkind = "image-classification"\nserver = "edge"\nrate = "1 /s"\n[workload] | 28 workload |
    both ; [apps.NAME]
application that begins too late | on = "edge" | on = "edge"\nstart = "60 s" | 27 workload.start | ends after 60 s
application that ends too early | on = "edge" | on = "edge"\nstart = "9 s"\nstop = "9 s" | 28 workload.stop |
    not after 'start'
no CPU | cpus = 1.0 | cpus = 0 | 7 nodes.endpoint.cpus | too small ; at least 0.1
infinite CPUs | cpus = 1.0 | cpus = inf | 7 nodes.endpoint.cpus | not a number ; cpus = 1.0
no endpoint | [nodes.endpoint]\ncount = 1\ncpus = 1.0\nmemory = "512 MiB"\n | - | 20 workload.client |
    missing ; [nodes.endpoint]
no name | name = "test"\n | - | 1 name | missing ; name = "
name of a folder | "test" | "../test" | 1 name | '../test' ; letters, digits
huge seed | seed = 1 | seed = 9223372036854775808 | 3 seed | too large ; 9223372036854775808
certain loss | start = "0 s" | loss = { uplink = 1.0 } | 19 links.mobile.loss.uplink | too large ; less than 1
loss in quotes | start = "0 s" | loss = { uplink = "0.02" } | 19 links.mobile.loss.uplink |
    in quotes ; 0.02, or '2 %'
loop in text | start = "0 s" | loop = "yes" | 19 links.mobile.loop | true or false
loss of all | start = "0 s" | loss = { uplink = "100 %" } | 19 links.mobile.loss.uplink | outside 0 to below 1
queue as text | { kind = "droptail", limit = "1 MB" } | "droptail" | 18 links.mobile.queue | not a table ; kind =
queue for no packet | "1 MB" | "100 B" | 18 links.mobile.queue.limit | one packet ; '1500 B'
unknown place | on = "edge" | on = "moon" | 26 workload.on | 'moon' has no nodes ; endpoint, edge
command of a server of cellbed | on = "edge" | server = { on = "edge", command = "x" } | 26 workload.server.command |
    the server of this kind is a program of cellbed
open loop without rate | rate = "2 /s"\n | - | 24 workload.rate | missing ; rate = "8 /s"
closed loop with rate | "periodic" | "closed" | 27 workload.rate | closed loop ; remove
arrivals with their own rate | "periodic" | { kind = "bursts", size = 5, interval = "2 s" } | 27 workload.rate |
    have their own rate ; remove
ramp without requests | rate = "2 /s"\narrivals = "periodic" |
    arrivals = { kind = "ramp", from = "0 /s", to = "0 /s" } | 27 workload.arrivals | both rates are 0 ; 'to'
recorded times in disorder | rate = "2 /s"\narrivals = "periodic" |
    arrivals = { kind = "recorded", times = ["2 s", "1 s"] } | 27 workload.arrivals | time 2, 1 s, is before ; sort
recorded times after the load | rate = "2 /s"\narrivals = "periodic" |
    arrivals = { kind = "recorded", times = ["60 s"] } | 27 workload.arrivals | within the load's 60 s ; earlier
policy of the rate in a closed loop | rate = "2 /s"\narrivals = "periodic" |
    arrivals = { kind = "closed" }\npolicy = { kind = "halve" } | 28 workload.policy | closed loop ; other arrivals
unknown preset | edge = "base-edge" | edge = "us-west-1" | 22 links.core.edge |
    not a preset ; 'base-edge' ; 'eu-central-1' ; 'eu-west-3' ; 'us-east-1' ; '3 ms'
remote class without core | edge = "base-edge"\n | - | 21 links.core.edge | missing ; [nodes.edge] ; base-edge
unknown trace | "12 Mbit/s" | "lte-subrban.up" | 15 links.mobile.up |
    did you mean 'lte-suburban.up' ; 5g-midband.down
trace file not there | "12 Mbit/s" | "traces/x.up" | 15 links.mobile.up | there is no file
model not there | on = "edge" | on = "edge"\nmodel = "mine.onnx" | 27 workload.model |
    there is no file 'mine.onnx' in
congestion control with spaces | [links.core] | [transport]\ncongestion_control = "my own"\n[links.core] |
    22 transport.congestion_control | 'my own' ; 'cubic'
node class is a list | [nodes.edge] | [[nodes.edge]] | 10 nodes.edge | a list is not a table
host without its address | [nodes.edge] | [nodes.edge]\nbackend = { kind = "host" } | 11 nodes.edge.backend.ssh |
    missing
alias is another node | [nodes.edge] | [nodes.edge]\naliases = ["endpoint-0"] | 11 nodes.edge.aliases[0] |
    another node's name
table is a value | [nodes.edge]\ncpus = 2.0\nmemory | [nodes]\nedge | 11 nodes.edge | not a table
no quotes | "60 s" | 60 s | 2 | not TOML ; duration = "60 s"
quote not closed | "60 s" | "60 s | 2 | not TOML ; close the quotes: duration = "60 s"
colon for equals | seed = 1 | seed: 1 | 3 | not TOML ; key = value
bracket not closed | [nodes.edge] | [nodes.edge | 10 | not TOML ; [nodes.edge
key twice | seed = 1 | seed = 1\nseed = 2 | 4 | not TOML ; once
"""
"""Name, text of the good scenario, its replacement, line and key of the error, and words of it. Long ones continue on
an indented line."""


def _mistakes() -> Iterator[Any]:
    for row in MISTAKES.strip().replace("|\n    ", "| ").splitlines():
        name, was, becomes, place, words = row.split(" | ")
        edit = [each.replace("\\n", "\n") for each in (was, "" if becomes == "-" else becomes)]
        line, _, key = place.partition(" ")
        yield pytest.param(*edit, int(line), key, words.split(" ; "), id=name)


def _error(path: Path) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(path)
    return str(caught.value)


def _write(folder: Path, text: str) -> Path:
    path = folder / "bad.toml"
    path.write_text(text, encoding="utf-8")
    return path


LATE = pytest.param(
    GOOD[GOOD.index("up =") : GOOD.index("\n\n[links.core]")],
    'up = "5g-midband.up"\ndown = "unlimited"\nloop = false\nstart = "120 s"',
    18,
    "links.mobile.start",
    ["'5g-midband.up' ends after 120 s", "loop = true"],
    id="start after the end",
)


@pytest.mark.parametrize(("was", "becomes", "line", "key", "words"), [*_mistakes(), LATE])
def test_one_mistake_gives_one_line_with_place_and_remedy(
    was: str, becomes: str, line: int, key: str, words: list[str], tmp_path: Path
) -> None:
    assert was in GOOD
    path = _write(tmp_path, GOOD.replace(was, becomes, 1))
    message = _error(path)
    assert message.count("\n") == 0, message
    assert message.startswith(f"{path}:{line}: {key}: " if key else f"{path}:{line}: ")
    for word in words:
        assert word in message
    for jargon in ("Input should", "validation error", "pydantic", "dict", "str_type", "(at line"):
        assert jargon not in message


def test_all_mistakes_are_reported_in_order_of_lines(tmp_path: Path) -> None:
    text = GOOD.replace('"60 s"', '"60"').replace("queue =", "qeue =").replace('"2 /s"', '"2"')
    lines = _error(_write(tmp_path, text)).splitlines()
    keys = [line.split(": ")[1] for line in lines]
    assert keys == ["duration", "links.mobile.qeue", "workload.rate"]


@pytest.mark.parametrize(
    ("command", "syntax"),
    [
        *(("a | b", "|"), ("a && b", "&&"), ("a; b", ";"), ("a > b", ">"), ("a 2>&1", "2>"), ("a $HOME", "$H")),
        *(("cp *.txt b", "*"), ("a `b`", "`"), ("a &", "&")),
    ],
)
def test_syntax_of_shells_in_a_command_is_an_error_that_names_sh(command: str, syntax: str) -> None:
    role = TypeAdapter(Command)
    with pytest.raises(ValidationError) as refused:
        role.validate_python(command)
    assert f"has {syntax!r}, and no shell runs it" in str(refused.value)
    assert "sh" in role.validate_python(f"sh -c '{command}'")
    assert role.validate_python(["a", syntax]) == ["a", syntax]


@pytest.mark.parametrize(
    "command",
    ["psql -c 'SELECT * FROM a; b'", "curl http://a/?b=1&c=2", "uvicorn --forwarded-allow-ips=*", 'a "$b" \\*'],
)
def test_words_that_a_shell_would_pass_on_are_a_command(command: str) -> None:
    assert TypeAdapter(Command).validate_python(command) == shlex.split(command)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("offload-ltw.toml", True), ("offload-lte", True), ("scenario.toml", False), ("pyproject.toml", False)],
)
def test_missing_file_is_answered_by_a_similar_name_only(tmp_path: Path, typed: str, meant: bool) -> None:
    right = tmp_path / "offload-lte.toml"
    right.write_text(GOOD)
    assert all(part in _error(tmp_path) for part in ("a folder", str(right)))
    message = _error(tmp_path / typed)
    assert "no such file" in message
    assert (f"did you mean {right}?" in message) is meant
    assert meant or str(right) not in message


def test_pipe_and_device_that_never_end() -> None:
    assert _error(Path("/dev/zero")).startswith("/dev/zero: a device, not a scenario file")
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        assert "larger than 1 MiB" in _error(Path(f"/dev/fd/{endless.stdout.fileno()}"))
        endless.stdout.close()


def test_pipe_with_a_scenario() -> None:
    receiving, sending = os.pipe()
    os.write(sending, GOOD.encode())
    os.close(sending)
    assert load(f"/dev/fd/{receiving}").name == "test"
    os.close(receiving)


def test_congestion_control_that_the_kernel_lacks() -> None:
    lacking = "'vegas' is not available: this kernel has reno bbr now; try: sudo modprobe tcp_vegas"
    assert lacking in str(congestion_problem("vegas", ("reno", "bbr")))
    assert "did you mean 'bbr'?" in str(congestion_problem("bbrr", ("reno", "bbr")))
    assert congestion_problem("mine", None) is None  # of an unknown kernel


def test_congestion_control_that_the_machine_refuses_to_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("tcp_available_", "reno cubic westwood"), ("tcp_allowed_", "reno"), ("tcp_", "cubic")):
        (tmp_path / f"{name}congestion_control").write_text(text + "\n")
    monkeypatch.setattr(testbed, "_CONGESTION_CONTROLS", tmp_path / "tcp_available_congestion_control")

    def problems(control: str) -> list[str]:
        text = f'{GOOD}[transport]\ncongestion_control = "{control}"\n'
        scenario = parse(text, source="x.toml", folder=tmp_path)
        return [str(each) for each in testbed.obstacles(scenario, running=True, limits=False)]

    assert problems("reno") == problems("cubic") == []
    (problem,) = problems("westwood")
    assert 'net.ipv4.tcp_allowed_congestion_control="reno westwood"' in problem


@pytest.mark.parametrize(
    ("name", "real", "virtual"),
    [
        ("xyzzy", "try: sudo modprobe tcp_xyzzy", "see `cellbed cc ls`"),
        ("htcp", "tcp_htcp, or write 'htcp-cellbed'", "did you mean 'htcp-cellbed'?"),
        ("highspeed", "tcp_highspeed, or write 'highspeed-cellbed'", "did you mean 'highspeed-cellbed'?"),
    ],
)
def test_only_a_real_run_needs_a_congestion_control_of_the_kernel(
    name: str, real: str, virtual: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(testbed, "available_congestion_controls", lambda: ("reno", "cubic"))
    text = f'{GOOD}[transport]\ncongestion_control = "{name}"\n'
    scenario = parse(text, source="x.toml", folder=Path())
    with pytest.raises(ScenarioError, match=rf"^x\.toml:30: transport\.congestion_control: '{name}' is .*{real}$"):
        testbed.check(scenario, text, "x.toml", running=False, limits=False)
    with pytest.raises(prediction.NoModelError) as caught:
        prediction.check(make_plan(scenario))
    assert f"no model in virtual time for\n  congestion control '{name}': {virtual}\n" in str(caught.value)
    assert "kernel" not in str(caught.value)


def test_unreadable_file(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read every file")
    path = _write(tmp_path, GOOD)
    path.chmod(0)
    assert "Permission denied" in _error(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'name = "x"\n# caf\xe9\n', "bad.toml:2: not UTF-8"),
        (b"seed = " + b"9" * 5000, "too long"),
        (b"a = " + b"[" * 100_000, "nested"),
        (bytes(1 << 21), "larger than 1 MiB"),
    ],
    ids=["encoding", "digits", "depth", "size"],
)
def test_odd_content_is_one_error(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "bad.toml").write_bytes(content)
    assert words in _error(tmp_path / "bad.toml")


def test_empty_file_says_what_is_missing(tmp_path: Path) -> None:
    message = _error(_write(tmp_path, ""))
    for key in ("name", "duration", "nodes"):
        assert f": {key}: missing" in message


HOSTILE = {
    "a key of 50,000 parts": ".".join(["a"] * 50_000) + " = 1",
    "a key of 500,000 quoted parts": '"\\"".' * 200_000 + "a = 1",
    "a table of 50,000 parts": "[" + ".".join(["a"] * 50_000) + "]",
    "tables in tables": "x = " + "{a.a.a.a.a.a.a.a = " * 60 + "1" + "}" * 60,
    "90,000 unknown keys": "\n".join(f"k{number} = 1" for number in range(90_000)),
    "a long name for 50,000 keys": f"[{'a' * 400_000}]\n" + "\n".join(f"k{number} = 1" for number in range(50_000)),
    "an unknown key of 1 MB": f"{'a' * 1_000_000} = 1",
    "9,000 wrong changes": GOOD + "[[links.mobile.changes]]\nx = 1\n" * 9_000,
}


def test_hostile_scenarios_cost_little_memory_and_get_short_answers(tmp_path: Path) -> None:
    for name, text in HOSTILE.items():
        (tmp_path / name).write_text(text)
    # One process for all: to start one takes longer than an answer.
    code = (
        "import json, pathlib, resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from cellbed.scenario import ScenarioError, load\n"
        "for path in pathlib.Path(sys.argv[1]).iterdir():\n"
        "    try: load(path)\n"
        "    except ScenarioError as error: print(json.dumps([path.name, str(error)]))\n"
    )
    command = [sys.executable, "-P", "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = dict(map(json.loads, done.stdout.splitlines()))
    assert answers.keys() == HOSTILE.keys()
    assert answers["90,000 unknown keys"].splitlines()[-1].endswith(" more problems")
    for answer in answers.values():
        assert len(answer.splitlines()) <= 42
        assert len(answer) < 30_000


SECRET = "admin:$6$uGh0:19000:0:99999:7:::\nkey = hunter2\n"


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ('up = "12 Mbit/s"', 'up = "{file}"'),
        ('up = "12 Mbit/s"', 'up = {{ kind = "series", file = "{file}" }}'),
        ('up = "12 Mbit/s"', 'up = {{ kind = "cellreplay", light = "{file}", heavy = "{file}", idle = "1 ms" }}'),
        ('base_delay = "10 ms"', 'base_delay = {{ kind = "empirical", file = "{file}" }}'),
        ('edge = "base-edge"', 'edge = {{ kind = "round-trips", record = "{file}" }}'),
    ],
)  # fmt: skip
def test_a_file_that_is_something_else_is_not_quoted(was: str, becomes: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    reported = _error(_write(tmp_path, GOOD.replace(was, becomes.format(file=file))))
    assert str(file) in reported
    for part in ("admin", "uGh0", "hunter2"):
        assert part not in reported
    with pytest.raises(ScenarioError) as error:
        load(file)
    assert "not a scenario" in str(error.value)
    for part in ("admin", "uGh0", "hunter2"):
        assert part not in str(error.value)


def test_a_pipe_without_a_writer_can_be_interrupted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-P", "-m", "cellbed", "run", "--dry-run", str(tmp_path / "pipe")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wchan = Path(f"/proc/{process.pid}/syscall")
    # poll(2) or ppoll(2): waiting for a writer.
    until = time.monotonic() + 200
    while wchan.read_text().split()[0] not in ("7", "271") and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, reported = process.communicate(timeout=200)
    assert process.returncode == 130, reported
    assert reported.splitlines() == ["interrupted"]
