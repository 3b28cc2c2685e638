"""The documentation's links lead somewhere."""

import re
from pathlib import Path

import pytest

from cellbed.scenario import load

ROOT = Path(__file__).parents[2]
SIBLINGS = ("datacentre", "papers")
PAGES = sorted(
    page for place in (".", *SIBLINGS) for each in ("*.md", "docs/**/*.md") for page in (ROOT / place).glob(each)
)


def anchors(page: Path) -> set[str]:
    """The anchors that the forge makes of a page's headings."""
    found: dict[str, int] = {}
    names = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = found[name] = found.get(name, -1) + 1
        names.add(f"{name}-{number}" if number else name)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    missing = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            missing.append(link)
    assert not missing


def test_every_page_is_in_the_index() -> None:
    indices = ROOT / "docs" / "README.md", ROOT / "docs" / "reference" / "scenario.md"
    links = [(index.parent, link) for index in indices for link in re.findall(r"\]\(([^)#\s]+)", index.read_text())]
    linked = {(folder / link).resolve() for folder, link in links}
    assert {page for page in PAGES if page.parent != ROOT and page.name != "README.md"} - linked == set()


def test_the_scenario_of_the_tutorial_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial/first-run.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "walk.toml").write_text(text)
    assert load(tmp_path / "walk.toml").duration == 20_000_000_000
