"""A standing testbed on the page, in a real browser, and in a terminal."""

import json
import os
import pty
import re
import select
import signal
import struct
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ
from typing import Any

import pytest

from moving_services import Place
from run_commands import needs_limits
from scenario_text import app_table, scenario_head, server_keys
from tests.ui.test_server import Page

HEAD = scenario_head(
    {
        "endpoint": {"count": 2, "cpus": 0.5, "memory": "128 MiB"},
        "edge": {"cpus": 0.5, "memory": "256 MiB"},
        "spare": {"class": "edge", "cpus": 0.5, "memory": "256 MiB"},
    },
    mobile={"up": "20 Mbit/s", "down": "20 Mbit/s", "base_delay": "5 ms"},
    core={"edge": "1 ms"},
    name="standing",
    duration="600 s",
)
WEB = app_table(
    "web",
    "http",
    url="http://{server.address}:8080/",
    rate="5 /s",
    server=server_keys("python3 -m http.server --protocol HTTP/1.1 8080", 8080, on="edge"),
)
WIDTHS = (380, 768, 1280)
pytestmark = [pytest.mark.needs_tun, needs_limits]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place in which a testbed with load is up."""
    place = Place(tmp_path_factory.mktemp("live"), HEAD + WEB)
    done = place.run("up", "x.toml", "--name", "first", "--start", "--no-proof", "--overcommit")
    assert done.returncode == 0, done.stderr
    yield place
    place.run("down", "--all")
    for record in (place.folder / "state" / "cellbed" / "live").glob("testbed-*.json"):
        os.kill(json.loads(record.read_text())["process"], signal.SIGKILL)
    place.cellbed("clean")


@pytest.fixture
def page(place: Place) -> Iterator[Page]:
    with place.popen("ui", "--no-browser") as process:
        yield Page(process)
        process.send_signal(signal.SIGTERM)
        assert (process.wait(), process.stderr.read()) == (0, "")


def opened(browser: Any, page: Page, width: int = 1280, scheme: str = "light") -> Any:
    """The page in a browser, when it shows the testbed with requests. Its `found` has what it may not do."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    shown = context.new_page()
    shown.found = found = []
    shown.on("pageerror", lambda error: found.append(str(error)))
    shown.on("console", lambda message: found.append(message.text) if message.type in ("error", "warning") else None)
    shown.on(
        "request", lambda request: None if request.url.startswith("http://127.0.0.1:") else found.append(request.url)
    )
    shown.goto(page.address)
    shown.locator("#requests tr").first.wait_for()
    return shown


def test_top_prints_a_snapshot(place: Place) -> None:
    (bed,) = json.loads(place.cellbed("top", "first", "--json").stdout)
    assert (bed["name"], bed["kind"], bed["state"]) == ("first", "testbed", "up")
    assert {node["cpus"] for node in bed["nodes"].values()} == {0.5}
    assert bed["directions"]["mobile-0.uplink"]["from"] == "endpoint-0"
    assert set(bed["links"]) == set(bed["directions"])
    assert bed["programs"]["web.edge-0.server"]["state"] == "ready"
    lines = place.cellbed("top", "--once").stdout.splitlines()
    assert lines[0].startswith("first  testbed up for")
    assert any(line.startswith("mobile-1.downlink ") for line in lines)
    assert place.cellbed("top", "second").returncode == 2


class Screen:
    """`cellbed top` on a terminal."""

    def __init__(self, place: Place, lines: int, columns: int) -> None:
        self.ours, theirs = pty.openpty()
        self.resize(lines, columns)
        options: Any = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        before, place.variables = place.variables, {**place.variables, "TERM": "xterm"}
        self.process = place.popen("top", **options)
        place.variables = before
        os.close(theirs)
        self.seen = ""

    def resize(self, lines: int, columns: int) -> None:
        ioctl(self.ours, TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def picture(self) -> list[str]:
        """The lines of the next whole picture."""
        self.seen = ""
        while self.seen.count("\x1b[H") < 3:
            assert select.select([self.ours], [], [], 200)[0]
            self.seen += os.read(self.ours, 1 << 16).decode(errors="replace")
        text = self.seen.split("\x1b[H")[-2]
        return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in text.split("\n")]


@pytest.mark.parametrize(("lines", "columns"), [(24, 80), pytest.param(10, 40, marks=pytest.mark.slow)])
def test_top_fits_its_terminal_and_ends_with_ctrl_c(place: Place, lines: int, columns: int) -> None:
    screen = Screen(place, 50, 120)
    # On a busy machine the emulator answers a picture or two later.
    assert any(line.startswith("mobile-1.uplink") for _ in range(20) for line in screen.picture())
    screen.resize(lines, columns)
    shown = screen.picture()
    while len(shown) > lines or max(len(line.rstrip("\r")) for line in shown) > columns:  # pictures before the change
        shown = screen.picture()
    assert "first" in shown[0]
    screen.process.send_signal(signal.SIGINT)
    while True:
        try:
            end = os.read(screen.ours, 1 << 16)
        except OSError:
            break
        screen.seen += end.decode(errors="replace")
        if not end:
            break
    assert screen.process.wait() == 130
    assert "\x1b[?1049l" in screen.seen, "the terminal is as before"
    os.close(screen.ours)


def test_a_command_pauses_a_node_that_has_no_other_fault(page: Page) -> None:
    for node, status in (("spare-0", 200), ("spare-0", 400), ("none", 400)):
        assert page.do(["pause", "first", node, "5 s"], X_Cellbed_Token=page.token).status == status


@pytest.mark.slow
def test_the_page_shows_a_testbed_and_changes_it(place: Place, page: Page, browser: Any) -> None:
    shown = opened(browser, page)
    assert "token" not in shown.url
    assert shown.locator("#topology").get_attribute("aria-label").startswith("5 places, 4 links: mobile-0, mobile-1")
    nodes = shown.locator("#nodes tr")
    assert nodes.all_inner_texts()[2].split()[:1] == ["edge-0"]
    nodes.first.get_by_text(" of 0.50").wait_for()
    assert shown.locator("#requests .stack i").count() > 0
    # The keyboard is enough: choose a link in the table, and change it.
    shown.get_by_role("button", name="mobile-1.uplink").focus()
    shown.keyboard.press("Enter")
    shown.locator("#does", has_text="mobile-1.uplink").wait_for()
    shown.get_by_label("Rate", exact=True).focus()
    shown.keyboard.type("3 Mbit/s")
    shown.keyboard.press("Enter")
    shown.get_by_role("status").get_by_text("mobile-1.uplink: 20 Mbit/s -> 3 Mbit/s").wait_for()
    directions = json.loads(place.cellbed("link", "show", "first", "--json").stdout)
    assert [each["name"] for each in directions if "3 Mbit/s" in each["description"]] == ["mobile-1.uplink"]
    shown.get_by_label("Link or direction").select_option("mobile-1")
    shown.get_by_role("button", name="Begin an outage").click()
    shown.locator("#links tr.chosen", has_text="outage").nth(1).wait_for()
    shown.locator("#events", has_text="link changed: mobile-1.uplink, from up to down").wait_for()
    shown.get_by_role("button", name="End the outage").click()
    # Move the service, and see the move.
    shown.locator("#to").select_option("spare-0")
    shown.get_by_role("button", name="Move", exact=True).click()
    shown.locator("#events", has_text="move ended").wait_for()
    shown.locator("#nodes tr", has_text="spare-0").get_by_text("web server").wait_for()
    # Pause a node.
    shown.locator("#paused").select_option("edge-0")
    shown.get_by_label("For", exact=True).fill("1 s")
    shown.get_by_role("button", name="Pause the node").click()
    shown.locator("#events", has_text="fault ended: pause of edge-0 for 1 s").wait_for()
    # An error is shown as in a terminal.
    shown.get_by_label("Rate", exact=True).fill("fast")
    shown.get_by_role("button", name="Change the link").click()
    shown.get_by_role("status").get_by_text("rate").wait_for()
    assert shown.found == []
    shown.context.close()


@pytest.mark.slow
def test_the_page_starts_and_stops_testbeds(place: Place, page: Page, browser: Any) -> None:
    shown = opened(browser, page)
    (place.folder / "small.toml").write_text(HEAD.replace("standing", "small") + WEB)
    shown.get_by_label("Scenario file").fill("small.toml")
    shown.get_by_label("Name of the testbed").fill("second")
    shown.get_by_label("without proof").check()
    shown.get_by_role("button", name="Start", exact=True).click()
    shown.locator("#beds option", has_text="second").wait_for(state="attached", timeout=60_000)
    shown.get_by_label("Live testbeds").select_option("second")
    shown.get_by_role("heading", name="second").wait_for()
    shown.get_by_role("status").get_by_text("second is up").wait_for(timeout=60_000)
    shown.get_by_role("button", name="Stop", exact=True).click()
    shown.get_by_role("button", name="Keep it").click()
    shown.get_by_role("button", name="Stop", exact=True).click()
    shown.get_by_role("button", name="Stop it").click()
    shown.get_by_role("status").get_by_text("second is down").wait_for()
    assert json.loads(place.cellbed("status", "--json").stdout)[0]["name"] == "first"
    # Its folder is among the finished runs; its report is made there, and opens in a sandbox.
    row = shown.locator("#runs tr", has_text="small")
    row.get_by_role("button", name="Make its report").click()
    with shown.context.expect_page() as report:
        row.get_by_role("link").click()
    report.value.get_by_text("small").first.wait_for()
    assert report.value.evaluate("origin") == "null"
    # A run is started and stopped likewise.
    shown.get_by_role("button", name="Run", exact=True).click()
    shown.get_by_label("Live testbeds").locator("option", has_text="small").wait_for(state="attached", timeout=60_000)
    shown.get_by_label("Live testbeds").select_option(index=1)
    shown.locator("#facts", has_text="run running").wait_for()
    shown.get_by_role("button", name="Stop", exact=True).click()
    shown.get_by_role("button", name="Stop it").click()
    shown.get_by_role("status").get_by_text("Failed: cellbed run small.toml").wait_for()
    shown.locator("#runs tr", has_text="run, interrupted").wait_for()
    for number in (0, 1):
        shown.locator("#runs [type=checkbox]").nth(number).check()
    shown.get_by_role("link", name="Compare 2 runs").wait_for()
    shown.get_by_label("Filter runs").fill("interrupted")
    assert shown.locator("#runs tr:visible").count() == 1
    assert shown.found == []
    shown.context.close()


PROBLEMS = (Path(__file__).parents[1] / "report" / "page_problems.js").read_text()
"""As of reports: contrast, headings, names, width."""
NAMELESS = """() => [...document.querySelectorAll("button, a, input, select")].filter((node) => {
  const label = node.ariaLabel || node.labels?.[0]?.textContent || node.textContent;
  return node.checkVisibility() && !label.trim();
}).length"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_at_each_width_and_for_a_screen_reader(page: Page, browser: Any, scheme: str) -> None:
    for width in WIDTHS:
        shown = opened(browser, page, width, scheme)
        for each in ("#runs", "#links"):
            shown.locator(f"{each} tr").first.wait_for()
        assert shown.evaluate(PROBLEMS) == []
        assert shown.evaluate(NAMELESS) == 0
        tree = str(shown.locator("body").aria_snapshot())
        for wanted in ("banner", "navigation", "main", "status", "heading", "link"):
            assert f"- {wanted}" in tree, wanted
        assert shown.found == []
        shown.context.close()


@pytest.mark.slow
def test_hostile_texts_stay_texts(place: Place, page: Page, browser: Any) -> None:
    (folder,) = (place.folder / "runs").glob("standing-*")
    hostile = "<img src=x onerror=alert(1)>\"'&\u202e"
    record = {"endpoint": "endpoint-0", "request": 1, "intended_ns": time.monotonic_ns(), "status": hostile}
    with (folder / "raw" / f"{hostile.replace('/', '')}.x.requests.jsonl").open("w") as file:
        file.write(json.dumps(record) + "\n")
    with (folder / "events.jsonl").open("a") as file:
        event = {"time_ns": 1, "at_s": 1.0, "event": "fault began", "what": hostile}
        file.write(json.dumps(event) + "\n")
    shown = opened(browser, page)
    shown.locator("#now li", has_text="onerror").wait_for()
    shown.locator("#requests td", has_text="onerror").first.wait_for()
    assert shown.locator("img").count() == 0
    assert shown.found == []
    shown.context.close()
