"""A CI that must fail and does: servers that answer half of their requests with an error, are too slow, or end."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import cellbed as library
from in_process import cellbed
from scenario_text import scenario_head

pytestmark = pytest.mark.needs_tun
SERVER = """
import http.server, itertools, sys, time

pause, every = float(sys.argv[2]), int(sys.argv[3])
counter = itertools.count(1)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        time.sleep(pause)
        self.send_response(500 if every and next(counter) % every == 0 else 200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(bytes(1000))

http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""
HEAD = scenario_head(
    {"endpoint": {"cpus": 1.0, "memory": "512 MiB"}, "edge": {"cpus": 1.0, "memory": "512 MiB"}},
    mobile={"base_delay": "2 ms"},
    core={"edge": "1 ms"},
    name="ci",
    duration="2 s",
)
APP = """
[apps.NAME]
kind = "http"
url = "http://{server.address}:PORT/"
rate = "10 /s"
drain = "2 s"
deadline = "100 ms"

[apps.NAME.server]
on = "edge"
command = ["PYTHON", "server.py", "PORT", ARGUMENTS]
copy_in = { "server.py" = "server.py" }
ready = { port = PORT }
"""
EXPECT = """
[expect.broken]
failed_share = "< 1 %"
requests = ">= 10"

[expect.slow]
on_time_share = "> 99 %"
failed_share = "< 1 %"
"""


def app(name: str, port: int, arguments: str) -> str:
    text = APP.replace("NAME", name).replace("PORT", str(port)).replace("ARGUMENTS", arguments)
    return text.replace("PYTHON", sys.executable)


def cases(file: Path) -> dict[tuple[str, str], str | None]:
    """The message of the failure of each test case, by class and name."""
    root = ElementTree.parse(file).getroot()
    found = {}
    for case in root.iter("testcase"):
        failure = case.find("failure")
        found[case.attrib["classname"], case.attrib["name"]] = None if failure is None else failure.attrib["message"]
    assert (root.tag, int(root.attrib["tests"])) == ("testsuite", len(found))
    assert int(root.attrib["failures"]) == sum(message is not None for message in found.values())
    return found


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a scenario that was run with --check."""
    folder = tmp_path_factory.mktemp("ci")
    (folder / "server.py").write_text(SERVER)
    text = HEAD + app("broken", 8080, '"0", "2"') + app("slow", 8081, '"0.15", "0"') + EXPECT
    (folder / "ci.toml").write_text(text)
    done = cellbed("run", "ci.toml", "--no-limits", "--check", "--junit", "ci.xml", cwd=folder, status=5)
    (folder / "output").write_text(done.stdout)
    return folder


def test_failures_and_slow_replies_fail_a_checked_run(checked: Path) -> None:
    lines = (checked / "output").read_text().splitlines()
    assert [line for line in lines if line.startswith(("met", "NOT MET"))] == [
        next(line for line in lines if line.startswith("NOT MET: broken: failed_share < 1 %: ")),
        "met: broken: requests >= 10: 20",
        "NOT MET: slow: on_time_share > 99 %: 0 %",
        next(line for line in lines if line.startswith("met: slow: failed_share < 1 %: 0 %")),
    ]


def test_the_verdicts_are_test_cases_in_junit_xml(checked: Path) -> None:
    found = cases(checked / "ci.xml")
    assert [key for key, message in found.items() if message is not None] == [
        ("ci.broken", "failed_share < 1 %"),
        ("ci.slow", "on_time_share > 99 %"),
    ]
    assert found["ci.slow", "on_time_share > 99 %"] == "slow: on_time_share > 99 %: 0 %"


def test_a_report_shows_expectations_and_checks_them_on_demand(checked: Path) -> None:
    (run,) = (checked / "runs").iterdir()
    before = json.loads((run / "summary.json").read_text())["expectations"]
    plain = cellbed("report", run, status=0)
    assert "NOT MET: slow: on_time_share > 99 %: 0 %" in plain.stdout
    page = (run / "report.html").read_text()
    assert "<h2>Expectations</h2>" in page
    assert page.count(">not met</span>") == 2
    again = cellbed("report", run, "--check", "--json", "--junit", checked / "again.xml", status=5)
    assert json.loads(again.stdout)["expectations"] == before
    assert again.stderr.count("NOT MET: ") == 2
    assert cases(checked / "again.xml") == cases(checked / "ci.xml")
    assert [each.met for each in library.load(run).summary.expectations] == [False, True, False, True]


def test_goodput_counts_the_payload_of_requests_on_time(checked: Path) -> None:
    (run,) = (checked / "runs").iterdir()
    broken, slow = library.load(run).summary.applications
    timely = library.load(run).requests.filter(app="broken", status="ok")
    timely = timely.filter(timely["latency_s"] <= 0.1)
    assert broken.on_time_share == pytest.approx(len(timely) / broken.requests.total)
    assert broken.goodput_bit_s == pytest.approx(8 * 1000 * len(timely) / 2.0)
    assert (slow.deadline_s, slow.on_time_share, slow.goodput_bit_s) == (0.1, 0.0, 0.0)
    assert slow.requests.ok > 0, "the timeout is not the deadline"


def test_a_run_that_does_not_start_meets_no_expectation(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("raise SystemExit(3)")
    (tmp_path / "ci.toml").write_text(HEAD + app("gone", 8080, '"0"') + '[expect]\nrequests = "> 1"\n')
    done = cellbed("run", "ci.toml", "--no-limits", "--check", "--junit", "ci.xml", cwd=tmp_path)
    assert done.returncode not in (0, 5)
    assert "NOT MET: gone: requests > 1: " in done.stdout
    ((key, message),) = cases(tmp_path / "ci.xml").items()
    assert key == ("ci.gone", "requests > 1")
    assert message is not None
    assert "gone.edge-0.server" in message
