"""Build the documentation as a site in build/site: `make docs`.

Pages keep their places in the repository, so that their links work on the forge and on the site. Navigation comes from
docs/README.md. Only the site has the pages that this program generates: the help of each verb, and the gallery.

    python scripts/docs_site.py                   # draws the gallery, about a minute
    python scripts/docs_site.py --keep-figures    # uses the figures of an earlier build
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w
import typer
from library_reference import generate

from cellbed.cli.main import VERBS, app
from cellbed.support.errors import CellbedError

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
PAGES, FIGURES = BUILD / "docs", BUILD / "figures"
SOURCES = ("*.md", "docs/**/*", "datacentre/*.md", "datacentre/docs/**/*", "datacentre/examples/*", "papers/*.md")
SOURCES += ("papers/docs/**/*", "datacentre/python/cellbed_datacentre/headers/*.h")
COMMANDS = Path("docs/reference/commands")
GALLERY = Path("docs/gallery.md")

_RUN = 'cellbed run scenarios/transfers-5g.toml --virtual --out "$OUT/runs"'
_LAWS = 'cellbed cc compare --laws cubic,bbr,copa --links "20 Mbit/s" --flows 1,4 --virtual --out "$OUT/laws"'
_CALIBRATION = 'cellbed calibrate --virtual lowband-good --seed 2 --out "$OUT/lowband"'
SHOWN = [
    (
        "A run: where the time goes",
        [_RUN, 'cellbed report "$OUT"/runs/* --figures "$OUT/run"'],
        {
            "run/edge-latency.svg": "Distribution of the latency of transfers, with percentiles and their intervals",
            "run/edge-parts.svg": "Parts of the latency of a transfer, by node and direction",
            "run/link-mobile-0.svg": "Latency of each request above capacity, use and queue of the link, both ways",
        },
    ),
    (
        "Congestion control laws beside each other",
        [_LAWS, 'cellbed sweep report "$OUT/laws/laws-virtual" --figures "$OUT/sweep"'],
        {
            "sweep/bulk-throughput_down_mbit_s-law.svg": "Throughput under CUBIC, BBR and Copa, one and four flows",
            "sweep/bulk-round_trip_p50_s-law.svg": "Median round trip under CUBIC, BBR and Copa, one and four flows",
        },
    ),
    (
        "A trace, and two traces compared",
        [
            'cellbed traces plot lte-suburban -o "$OUT/trace.svg"',
            'cellbed traces compare lte-suburban 5g-midband -o "$OUT/traces.svg"',
        ],
        {
            "trace.svg": "Rate of the trace lte-suburban over time, its outages, and distributions of the rate",
            "traces.svg": "Rates, outages and distributions of the traces lte-suburban and 5g-midband",
        },
    ),
    (
        "The calibration of a link",
        [_CALIBRATION],
        {
            "lowband/arrivals-downlink.svg": "Arrivals within packet trains: the longer the train, the faster",
            "lowband/gaps-downlink.svg": "Completion time of packet trains over the gap between them",
        },
    ),
]
"""Sections of the gallery: title, commands, figures with their descriptions. All data are synthetic."""


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield each command with its words, groups first."""
    yield " ".join(words), command
    if hasattr(command, "list_commands"):
        context = typer.Context(command, info_name="cellbed")
        for name in command.list_commands(context):
            yield from leaves(command.resolve_command(context, [name])[1], (*words, name))


def help_page(verb: str) -> str:
    """Return the page of a verb: its help, and the help of its commands."""
    text = f"# cellbed {verb}\n\n{VERBS[verb]}\n"
    root = typer.main.get_command(app)
    try:
        command = root.resolve_command(typer.Context(root, info_name="cellbed"), [verb])[1]
    except CellbedError as error:  # of a sibling that is not installed
        return f"{text}\n{error}\n"
    for words, each in leaves(command, (verb,)):
        if verb == "record":  # the recorder has its own parser
            shown = subprocess.run([sys.executable, "-m", "cellbed", verb, "--help"], stdout=subprocess.PIPE, text=True)
            described = shown.stdout if shown.returncode == 0 else f"{each.get_short_help_str()}\n"
        else:
            context = typer.Context(each, info_name=f"cellbed {words}", terminal_width=100, max_content_width=100)
            described = each.get_help(context)
        text += (f"\n## cellbed {words}\n" if words != verb else "") + f"\n```text\n{described.rstrip()}\n```\n"
    return text


def draw() -> None:
    """Run the commands of the gallery."""
    shutil.rmtree(FIGURES, ignore_errors=True)
    FIGURES.mkdir(parents=True)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for _, commands, _ in SHOWN:
        for command in commands:
            environment = {**os.environ, "OUT": str(FIGURES), "PATH": path}
            done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"error: {command}: exit status {done.returncode}\n{done.stderr}")


def gallery_page() -> str:
    """Return the gallery."""
    text = "# Gallery\n\nFigures that cellbed's commands made for this page, from synthetic data. `OUT` is a folder.\n"
    for title, commands, figures in SHOWN:
        text += f"\n## {title}\n\n```sh\n" + "\n".join(commands) + "\n```\n"
        for file, words in figures.items():
            text += f"\n![{words}](figures/{file})\n\n*{words}.*\n"
    return text


def navigation() -> list[Any]:
    """Return the site's navigation: sections and groups of docs/README.md, in its order."""
    tree: list[Any] = ["README.md"]
    for section in re.split(r"^## ", (ROOT / "docs/README.md").read_text(), flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        inside: list[Any] = []
        for entry in re.split(r"^\* ", body, flags=re.MULTILINE)[1:]:
            pages = [os.path.normpath(f"docs/{link}") for link in re.findall(r"\]\(([^)#]+\.md)\)", entry)]
            pages += ["docs/reference/scenario"] * ("docs/reference/scenario.md" in pages)
            pages = [each for page in pages for each in _expand(page)]
            label = re.match(r"([^\[\]]+?):\s", entry)
            inside += [{" ".join(label[1].split()): pages}] if label else pages
        if title == "Reference":
            inside.append({"Commands": [str(COMMANDS / f"{verb}.md") for verb in VERBS]})
        if title == "Tutorial":
            inside.append(str(GALLERY))
        tree.append({title: inside})
    return tree


def _expand(page: str) -> list[str]:
    return [page] if page.endswith(".md") else [str(each.relative_to(ROOT)) for each in sorted((ROOT / page).iterdir())]


def main() -> None:
    """Build the site."""
    if "--keep-figures" not in sys.argv or not FIGURES.exists():
        draw()
    shutil.rmtree(PAGES, ignore_errors=True)
    for source in {each for pattern in SOURCES for each in ROOT.glob(pattern) if each.is_file()}:
        target = PAGES / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    library = PAGES / "docs/reference/library.md"
    library.write_text(generate(library.read_text()))
    (PAGES / COMMANDS).mkdir()
    for verb in VERBS:
        (PAGES / COMMANDS / f"{verb}.md").write_text(help_page(verb))
    (PAGES / GALLERY).write_text(gallery_page())
    for file in (file for _, _, figures in SHOWN for file in figures):
        (PAGES / "docs/figures" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIGURES / file, PAGES / "docs/figures" / file)
    for name in ("site.css", "site.js"):
        shutil.copy(ROOT / "web/docs" / name, PAGES)
    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    config["project"] |= {"docs_dir": "docs", "site_dir": "site", "nav": navigation()}
    (BUILD / "zensical.toml").write_text(tomli_w.dumps(config))
    zensical = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    if subprocess.run([*zensical, "-f", BUILD / "zensical.toml"]).returncode:
        sys.exit("error: the site was not built")
    _finish_pages()
    print(BUILD / "site" / "index.html")


def _finish_pages() -> None:
    """Replace the one file that pages would fetch from the network, for a search without a server, and empty headings
    of tables, which a screen reader would announce."""
    if not (BUILD / "web/iframe-worker.js").exists():
        subprocess.run(
            [sys.executable, ROOT / "scripts/fetch_assets.py", "docs"], check=True, stdout=subprocess.DEVNULL
        )
    site = BUILD / "site"
    for name in ("iframe-worker.js", "iframe-worker.LICENSE.txt"):
        shutil.copy(BUILD / "web" / name, site / "assets/javascripts")
    (site / "404.html").unlink()  # only works at the root of a server
    for page in site.rglob("*.html"):
        address = "../" * (len(page.relative_to(site).parts) - 1) + "assets/javascripts/iframe-worker.js"
        text = page.read_text().replace("https://unpkg.com/iframe-worker/shim", address)
        page.write_text(re.sub(r"<th([^>]*)></th>", r"<td\1></td>", text))


if __name__ == "__main__":
    main()
