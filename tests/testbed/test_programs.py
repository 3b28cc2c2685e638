"""Unmodified programs: readiness, restarts, exit statuses, output and files; each on a node that is this machine."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cellbed.testbed.machine.process import ProgramError
from cellbed.testbed.nodes.backend import Backend, Clock
from cellbed.testbed.nodes.copies import copy, read
from cellbed.testbed.programs import unmodified
from cellbed.testbed.programs.supervise import Supervisor
from cellbed.testbed.programs.unmodified import Command, Ready, Stop, UnmodifiedProgram
from cellbed_node.agent import use_of
from cellbed_node.processes import Running
from run_commands import free_port, has_ended
from shell_world import wait_until

SECOND = 1_000_000_000
PATIENCE_NS = 200 * SECOND
LISTEN = """
import socket, sys, time
port, address = sys.argv[1:]
server = socket.create_server((address, int(port)), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
time.sleep(600)
"""


class ThisMachine:
    """A node without namespaces and limits; what a check needs is started through `spawn`, as on a distant machine."""

    place = group = None

    use = staticmethod(use_of)
    memory_kills, describe_end = Backend.memory_kills, Backend.describe_end

    def __init__(self, folder: Path) -> None:
        self.name, self.folder, self.clock = "edge-0", folder, Clock()
        self.facts: dict[str, Any] = {}

    def spawn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        cgroups: Sequence[str] = (),
        **to: Any,
    ) -> Running:
        where = self.folder / (folder or "")
        to = {"stdin": subprocess.DEVNULL, **to}
        variables = {**os.environ, **(environment or {})}
        return subprocess.Popen(list(command), cwd=where, env=variables, start_new_session=True, **to)

    def output(self, command: Sequence[str]) -> bytes:
        return subprocess.run(command, capture_output=True, check=True).stdout

    def sample(self) -> None:
        return None

    def copy_in(self, source: Path, target: str) -> None:
        copy(("/", source), ("/", self.folder / target))

    def copy_out(self, source: str, target: Path) -> None:
        copy(("/", self.folder / source), ("/", target))

    def read(self, source: str, most: int) -> bytes:
        return read("/", self.folder / source, most)


class Site:
    def __init__(self, folder: Path) -> None:
        self.raw = folder / "raw"
        self.raw.mkdir()
        (folder / "node").mkdir()
        self.node: Any = ThisMachine(folder / "node")
        self.supervisor = Supervisor(self.raw, "test")

    def command(self, *words: str, name: str = "web.edge-0.server", **more: Any) -> Command:
        return Command(name, "edge-0", words, files=self.raw.parent / "files", **more)

    def python(self, code: str, *arguments: str, **more: Any) -> Command:
        return self.command(sys.executable, "-c", code, *arguments, **more)

    def start(self, *commands: Command) -> list[UnmodifiedProgram]:
        self.supervisor.start_all(commands, {"edge-0": self.node})
        return [each for each in self.supervisor.programs if isinstance(each, UnmodifiedProgram)]

    def load(self, *programs: UnmodifiedProgram, s: float = 3600, **more: int) -> None:
        """Begin loads that take so long."""
        now = time.monotonic_ns()
        for each in programs:
            each.send_command({"t0_ns": now, "end_ns": now + round(s * SECOND), **more})

    def until_begun(self, *programs: UnmodifiedProgram) -> None:
        self.until(lambda: all(each.process is not None and "begun" in output(self, each.name) for each in programs))

    def until_done(self, *programs: UnmodifiedProgram) -> None:
        self.until(lambda: all({"event": "done"} in each.events for each in programs))

    def stop(self) -> None:
        """End all programs; others may be started then."""
        self.supervisor.stop()
        self.supervisor = Supervisor(self.raw, "again")

    def until(self, happened: Any) -> None:
        assert self.supervisor.wait(happened, time.monotonic_ns() + PATIENCE_NS)

    def refusal(self, *commands: Command) -> str:
        with pytest.raises(ProgramError) as caught:
            self.start(*commands)
        return str(caught.value)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.supervisor.stop()


def output(site: Site, name: str = "web.edge-0.server") -> str:
    return (site.raw / f"{name}.out").read_text()


def test_a_server_is_ready_when_it_listens_and_nothing_connects_to_find_out(site: Site) -> None:
    port = free_port()
    code = """
import socket, sys, time
time.sleep(0.2)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
server.settimeout(1)
try: server.accept(); print("somebody connected", flush=True)
except TimeoutError: print("nobody came", flush=True)
time.sleep(600)
"""
    (program,) = site.start(site.python(code, str(port), ready=Ready(port=port)))
    assert {"event": "ready"} in program.events
    site.until(lambda: "\n" in output(site) or program.has_died())
    assert output(site) == "nobody came\n"


def test_an_expression_that_takes_too_long_in_its_output_ends_a_program(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unmodified, "MATCHING_S", 0.2)
    speak = "import time; print('a' * 40 + '!', flush=True); time.sleep(600)"
    refusal = site.refusal(site.python(speak, ready=Ready(line="(a+)+$")))
    assert "'(a+)+$' took 0.2 s of processor time in its output: simplify it" in refusal


def test_ready_by_line_file_reply_and_command(site: Site) -> None:
    port = free_port()
    serve = (
        "import http.server, sys\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    seen = 0\n"
        "    def do_GET(self):\n"
        "        Handler.seen += 1\n"
        "        self.send_response(200 if Handler.seen > 2 else 503); self.end_headers()\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()"
    )
    speak = "echo one; echo server started on 80 >&2; exec sleep 600"
    twice = "sh", "-c", "echo $X; test -e once || { touch once; exit 1; }"
    again = "test -e begun || { touch begun; exit 1; }; touch up2; exec sleep 600"
    programs = site.start(
        site.command("sh", "-c", speak, name="a", ready=Ready(line=r"^server \w+ on \d+$")),
        site.command("sh", "-c", "sleep 0.2; touch up; exec sleep 600", name="b", ready=Ready(file="up")),
        site.python(serve, str(port), name="c", ready=Ready(http=f"http://127.0.0.1:{port}/")),
        site.command("sleep", "600", name="d"),
        site.command("sh", "-c", "printf '> '; exec sleep 600", name="e", ready=Ready(line="^> $")),
        site.command("sleep", "600", name="f", environment={"X": "x"}, restart="always", ready=Ready(command=twice)),
        # It is started again before it is ready, as one whose database is not there yet.
        site.command("sh", "-c", again, name="g", restart="on-failure", ready=Ready(file="up2")),
    )
    assert all({"event": "ready"} in program.events for program in programs)


@pytest.mark.parametrize(
    ("code", "ready", "message"),
    [
        ("echo no such table; exit 3", Ready(port=1), "ended with status 3 before it was ready: no such"),
        ("", Ready(port=1), "ended with status 0 before it was ready; it must stay in the foreground, without any"),
        (
            "echo loading; exec sleep 600",
            Ready(port=1, timeout_ns=5 * SECOND),
            "was not ready within 5 s, since it did not listen on port 1: loading",
        ),
        ("kill -KILL $$", Ready(line="never"), "was killed by signal 9 before it was ready"),
        ("sleep 600", Ready(file="x", timeout_ns=SECOND // 10), "since there was no file 'x', without any output"),
    ],
)
def test_a_program_that_does_not_become_ready_is_one_error(site: Site, code: str, ready: Ready, message: str) -> None:
    text = site.refusal(site.command("sh", "-c", code, ready=ready))
    assert text.startswith("web.edge-0.server on edge-0 ")
    assert re.search(message, text)
    assert re.search(r"\n  its output: \S+raw/web.edge-0.server.(out|err)$", text)


def test_a_missing_program_and_a_taken_port_are_errors(site: Site) -> None:
    absent = "cannot start web.edge-0.server on edge-0: No such file or directory: 'nosuch'"
    assert absent in site.refusal(site.command("nosuch"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        text = site.refusal(site.command("true", name="other", ready=Ready(port=port)))
    assert text == f"other: port {port} of edge-0 is in use already: choose another one"


def test_a_server_that_dies_is_reported_and_one_that_ends_well_is_noted(site: Site) -> None:
    wait = "until test -e go; do sleep 0.01; done; exit"
    died, well = site.start(
        site.command("sh", "-c", f"{wait} 7", name="died"), site.command("sh", "-c", f"{wait} 0", name="well")
    )
    (site.node.folder / "go").touch()
    site.until(lambda: died.has_died() and well.notes)
    (event,) = [each for each in died.events if each["event"] == "died"]
    assert event["what"] == "died ended with status 7"
    assert not died.ended  # the run continues
    assert well.notes == ["well ended with status 0 before the run did"]


def test_a_server_that_dies_while_others_start_is_an_error(site: Site) -> None:
    text = site.refusal(
        site.command("sh", "-c", "sleep 0.1; echo out of luck >&2; exit 1", name="first"),
        site.command("sleep", "600", name="second", stage=1, ready=Ready(file="never")),
    )
    assert "first on edge-0 ended with status 1: out of luck" in text


@pytest.mark.parametrize(
    ("restart", "status", "again"), [("on-failure", 1, True), ("on-failure", 0, False), ("always", 0, True)]
)
def test_restarts_follow_their_policy_and_are_counted(site: Site, restart: Any, status: int, again: bool) -> None:
    code = f"""
        echo x >> tries; n=$(wc -l < tries); echo try $n
        until test -e go; do sleep 0.01; done
        [ $n = 3 ] && exec sleep 600; exit {status}
    """
    # Before it is ready its end would be an error.
    (program,) = site.start(site.command("sh", "-c", code, restart=restart))
    (site.node.folder / "go").touch()
    site.until(lambda: "try 3" in output(site) if again else program.notes)
    assert program.restarts == (2 if again else 0)
    assert not program.has_died()


# In short steps: Python defers a signal that comes just before a sleep until the sleep's end.
FOREVER = "import time; print('begun', flush=True)\nwhile True: time.sleep(0.1)"


def test_a_load_runs_from_its_start_to_its_end(site: Site) -> None:
    long, short, wrong, expected = site.start(
        *(
            site.python(code, name=name, load=True, **more)
            for name, code, more in (
                ("long", FOREVER, {}),
                ("short", "print('done')", {}),
                ("wrong", "raise SystemExit('cannot resolve host')", {}),
                ("expected", "raise SystemExit(28)", {"status": (0, 28)}),
            )
        )
    )
    assert not (site.raw / "short.out").exists()  # nothing runs before the load
    site.load(short, wrong, expected)
    site.until_done(short, expected)
    site.until(lambda: wrong.ended)
    assert str(wrong.failure()).startswith("wrong on edge-0 ended with status 1: cannot resolve host\n  its output: ")
    site.load(long, s=2)
    site.until_done(long)
    assert not long.ended


def test_a_load_that_leaves_processes_behind_is_noted(site: Site) -> None:
    fork, alone = site.start(
        site.command("sh", "-c", "(exec sleep 600) & echo $!", name="fork", load=True),
        site.command("sh", "-c", "(exec sleep 0.01) & wait", name="alone", load=True),
    )
    site.load(fork, alone)
    site.until_done(fork, alone)
    assert "fork ended while processes that it had started still ran, and they were killed" in fork.notes[0]
    wait_until(lambda: has_ended(int(output(site, "fork"))))


def test_a_load_that_is_ended_at_its_end_is_noted_unless_it_ends_in_order(site: Site) -> None:
    in_order = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit())\n"
    write = "import time; print('begun', flush=True); time.sleep(1.5); print('written')"
    late, orderly, drained = site.start(
        site.python(FOREVER, name="late", load=True),
        site.python(in_order + FOREVER, name="orderly", load=True),
        site.python(write, name="drained", load=True),
    )
    site.load(late, orderly)
    site.until_begun(late, orderly)
    site.load(late, orderly, s=1, drain_ns=0)
    site.load(drained, s=1, drain_ns=3600 * SECOND)
    site.until_done(late, orderly, drained)
    (note,) = late.notes
    assert note.startswith("late still ran after 1 s, the end of its load, and was ended: what it had not written is ")
    assert (orderly.notes, drained.notes) == ([], [])
    assert output(site, "drained") == "begun\nwritten\n"


def test_a_program_is_ended_by_its_signal_and_killed_after_its_grace_time(site: Site) -> None:
    write = "import signal, sys; signal.signal(signal.SIGINT, lambda *_: (print('written', flush=True), sys.exit(3)))\n"
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    writing, deaf = site.start(
        site.python(write + FOREVER, name="writing", load=True, stop=Stop(signal.SIGINT, 3600 * SECOND)),
        site.python(ignore + FOREVER, name="deaf", load=True, stop=Stop(signal.SIGTERM, SECOND // 20)),
    )
    site.load(writing, deaf)
    site.until_begun(writing, deaf)
    site.load(writing, deaf, s=0)
    site.until_done(writing, deaf)
    assert (writing.notes, output(site, "writing")) == ([], "begun\nwritten\n")
    assert "deaf was killed, since it had not ended 0.05 s after SIGTERM" in deaf.notes[0]


def test_a_load_that_has_ended_when_its_end_is_due_is_done_and_measured(site: Site) -> None:
    (load,) = site.start(site.python("print('done')", name="short", load=True))
    counted: list[int] = []
    load._count = counted.append
    begin = time.monotonic_ns()
    load.send_command({"t0_ns": begin, "end_ns": begin + 3600 * SECOND})
    load.step(begin)
    process = load.process.pid
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    load.step(begin + 3600 * SECOND)  # the supervisor comes back late
    assert load.events == [{"event": "ready"}, {"event": "done"}]
    assert counted == [process]


def test_environment_folder_and_files(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words").write_text("hello")
    (tmp_path / "one.txt").write_text("1")
    code = 'mkdir deep; echo "$(cat words)$MORE$(cat ../one)" > deep/result; echo written; exec sleep 600'
    (program,) = site.start(
        site.command(
            *("sh", "-c", code),
            environment={"MORE": " there"},
            folder="in",
            copy_in=((tmp_path / "data", "in"), (tmp_path / "one.txt", "one")),
            copy_out=("in/deep/result", "missing"),
            ready=Ready(line="written"),
        )
    )
    site.stop()
    assert (tmp_path / "files" / "in" / "deep" / "result").read_text() == "hello there1\n"
    assert program.notes == ["web.edge-0.server: cannot copy missing from edge-0: No such file or directory"]


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("", None),
        ("open('result.json', 'w').truncate(64 << 20)", None),
        ("open('result.json', 'w').truncate((64 << 20) + 1)", "larger than 64 MiB: write less"),
        ("import os; os.mkfifo('result.json')", "not a file"),
        ("import os; os.symlink('/proc/kmsg', 'result.json')", "not a file"),
        ("import os; os.mkdir('result.json')", "not a file"),
    ],
)
def test_a_file_of_measures_is_kept_if_it_is_one_of_bounded_size(site: Site, code: str, why: str | None) -> None:
    run = f"{code}\nprint('written', flush=True)\nimport time; time.sleep(600)"
    command = site.python(run, measures="result.json", ready=Ready(line="written"))
    (program,) = site.start(command)
    site.stop()
    kept = site.raw / f"{command.name}.measures.json"
    if why is None:
        assert kept.exists() == bool(code), "a program that wrote none is found when the run is measured"
        assert program.notes == []
    else:
        assert not kept.exists()
        (note,) = program.notes
        assert note.startswith("web.edge-0.server: cannot read its measures, result.json on edge-0: ")
        assert note.endswith(why)


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_only_files_and_folders_are_copied_to_a_node(site: Site, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "source"
    os.mkfifo(source) if kind == "pipe" else source.symlink_to("/dev/zero")
    with pytest.raises(ProgramError, match=f"cannot copy .*a {kind}, not a file"):
        site.start(site.command("true", copy_in=((source, "x"),)))


def test_output_is_kept_up_to_a_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmodified, "OUTPUT_LIMIT", 1 << 20)
    (program,) = site.start(site.python("while True: print('x' * 999)"))
    site.until(lambda: program.notes)
    site.stop()
    assert (site.raw / "web.edge-0.server.out").stat().st_size == 1 << 20
    assert program.notes == ["web.edge-0.server: of its output only the first 1 MiB are kept"]


def test_what_a_program_has_started_ends_with_it(site: Site) -> None:
    site.start(site.command("sh", "-c", "sleep 600 & echo $!; wait", ready=Ready(line="[0-9]")))
    child = int(output(site))
    site.stop()
    wait_until(lambda: has_ended(child))


def test_listening_ports_are_read_from_the_kernels_tables() -> None:
    table = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:C001 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 3
   3: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4 2 0 0
"""
    found = {port: {*map(str, each)} for port, each in unmodified.find_listeners(table).items()}
    assert found == {8080: {"0.0.0.0"}, 80: {"::"}, 53: {"0.0.0.0"}}
    # Another machine's may be anything.
    assert unmodified.find_listeners("0: x:0016 0:0000 0A\n1: 00:zz 0:0000 0A\n2: 01:1 0:0000 07\n\0\n:::") == {}
    bound = "  0: 0100007F:1F90 00000000:0000 0A 0\n  1: 0000000000000000FFFF00000100007F:0050 0:0000 0A 0\n"
    assert all(unmodified.is_loopback(each) for port in (8080, 80) for each in unmodified.find_listeners(bound)[port])


@pytest.mark.parametrize(("address", "by_http"), [("127.0.0.1", False), ("::1", False), ("127.0.0.1", True)])
def test_a_server_that_others_do_not_reach_is_an_error_with_the_remedy(site: Site, address: str, by_http: bool) -> None:
    port = free_port()
    command, ready = site.python(LISTEN, str(port), address), Ready(port=port)
    if by_http:
        command = site.command(sys.executable, "-m", "http.server", "--bind", address, str(port))
        ready = Ready(http=f"http://localhost:{port}/")
    text = site.refusal(replace(command, ready=ready, reached=True))
    assert f"listens on {address} alone (port {port}), which other nodes do not reach" in text
    assert "--host 0.0.0.0" in text


def test_a_server_for_its_own_node_alone_is_noted(site: Site) -> None:
    port = free_port()
    (program,) = site.start(site.python(LISTEN, str(port), "127.0.0.1", ready=Ready(port=port)))
    assert program.notes == [f"{program.name} listens on 127.0.0.1 alone (port {port}), which other nodes do not reach"]
