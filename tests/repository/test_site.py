"""The documentation's site, built by `make docs`, in a real browser: search, network, accessibility."""

import functools
import http.server
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
AXE = ROOT / "web" / "axe" / "axe.min.js"
QUESTIONS = tomllib.loads(Path(__file__).with_name("questions.toml").read_text())["questions"]
LOOKS = [(width, mode) for width in (380, 1280) for mode in ("light", "dark")]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def site() -> str:
    """The site's address: its folder, without a server."""
    pytest.importorskip("zensical", reason="zensical is not installed: make docs")
    build = [sys.executable, ROOT / "scripts" / "docs_site.py", "--keep-figures"]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE.as_uri()


@pytest.fixture(scope="module")
def server(site: str) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=SITE)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def first_result(page: Any, text: str) -> str:
    """Search as a reader does; return the address of the first result."""
    box = page.get_by_role("combobox", name="Search")
    while not box.is_visible():  # until the page's scripts have run
        page.keyboard.press("Control+k")
        page.wait_for_timeout(200)
    box.fill(text)
    result = page.locator("[role=listbox] a").first
    result.wait_for()
    return str(result.evaluate("link => link.href"))


@pytest.mark.parametrize("where", ["site", "server"])
def test_the_first_result_of_a_search_answers_a_newcomer(
    where: str, browser: Any, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(where)
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda each: requests.append(each.url))
    wrong = []
    for each in QUESTIONS:
        page.goto(f"{address}/index.html")
        found = first_result(page, each["search"]).removeprefix(f"{address}/")
        if re.sub(r"\.html.*", "", found) not in each["pages"]:
            wrong.append((each["search"], found))
    page.close()
    assert wrong == []
    assert [url for url in requests if not url.startswith((address, "data:", "blob:", "about:"))] == []


def test_no_page_overflows_a_telephone_or_violates_a_rule_of_axe(site: str, browser: Any) -> None:
    pages = sorted(SITE.rglob("*.html"))
    assert len(pages) > 100
    problems = []
    for number, file in enumerate(pages):
        width, mode = LOOKS[number % len(LOOKS)]
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=mode)
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            problems.append((file.name, width, "overflows"))
        page.evaluate(AXE.read_text())
        for each in page.evaluate("axe.run()")["violations"]:
            problems.append((file.name, (width, mode), each["id"], [node["html"] for node in each["nodes"]][:3]))
        page.close()
    assert problems == []


def test_a_link_to_a_missing_heading_ends_the_build(site: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[Missing](#none)\n")
    config = (ROOT / "build" / "zensical.toml").read_text()
    (tmp_path / "zensical.toml").write_text(re.sub(r"(?ms)^(nav|extra_\w+) = \[.*?^\]\n", "", config))
    build = [sys.executable, "-m", "zensical", "build", "--strict", "-f", tmp_path / "zensical.toml"]
    assert subprocess.run(build, capture_output=True, check=False).returncode != 0
