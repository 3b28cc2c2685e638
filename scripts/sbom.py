"""Writes what a wheel ships besides cellbed's own files: ``python scripts/sbom.py BOM LICENCES CRATE...``.

BOM is written in CycloneDX 1.5, LICENCES with the texts of the licences. Listed are the crates that the CRATEs link,
the libraries of their compilers, and, for the core, the libraries in JavaScript and the C library in the static
program. The Python packages that a wheel requires are in its metadata.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PLAYERS = ROOT / "python/cellbed/workloads/video/players"
LIBRARIES = {
    "uplot": (ROOT / "web", ROOT / "python/cellbed/report/assets/uPlot.LICENSE.txt"),
    "dashjs": (ROOT / "web/players", PLAYERS / "dash.LICENSE.txt"),
    "hls.js": (ROOT / "web/players", PLAYERS / "hls.LICENSE.txt"),
}
"""Folder with package-lock.json, and text of the licence."""
STATIC = "cellbed-init"
"""The program that contains the C library."""


def crates(roots: list[str]) -> list[dict[str, Any]]:
    """Return the packages of cargo that programs and modules contain."""
    target = os.environ.get("CARGO_BUILD_TARGET", "x86_64-unknown-linux-gnu")
    command = ["cargo", "metadata", "--format-version=1", "--locked", f"--filter-platform={target}"]
    data = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = {each["id"]: each for each in data["packages"]}
    nodes = {each["id"]: each for each in data["resolve"]["nodes"]}
    reached, waiting = set[str](), [key for key, each in packages.items() if each["name"] in roots]
    while waiting:
        if (key := waiting.pop()) in reached or any("proc-macro" in each["kind"] for each in packages[key]["targets"]):
            continue  # a procedural macro runs in the compiler
        reached.add(key)
        linked = (each for each in nodes[key]["deps"] if any(kind["kind"] is None for kind in each["dep_kinds"]))
        waiting += [each["pkg"] for each in linked]
    return [each for key, each in sorted(packages.items()) if key in reached and each["source"] is not None]


def component(kind: str, name: str, version: str, licence: str) -> dict[str, Any]:
    """Return a component of CycloneDX. licence: an SPDX expression."""
    licences = [{"expression": licence.replace("/", " OR ")}]
    about = {"type": "library", "name": name, "version": version, "licenses": licences}
    return about | {"purl": f"pkg:{kind}/{name}@{version}", "bom-ref": f"{kind}:{name}@{version}"}


def main() -> None:
    bom_path, texts_path, roots = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    found, texts = [], dict[str, list[str]]()
    for each in crates(roots):
        found.append(component("cargo", each["name"], each["version"], each["license"]))
        for path in sorted(Path(each["manifest_path"]).parent.iterdir()):
            if path.is_file() and re.match(r"(?i)(licen[cs]e|copying|notice|unlicense)", path.name):
                texts.setdefault(path.read_text("utf-8").strip(), []).append(f"{each['name']} {each['version']}")
    rust = subprocess.run(["rustc", "--version"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()[
        1
    ]
    found.append(component("generic", "rust-std", rust, "MIT OR Apache-2.0"))
    found.append(component("pypi", "ziglang", importlib.metadata.version("ziglang"), "Apache-2.0 WITH LLVM-exception"))
    if STATIC in roots:
        for name, (lock, text) in LIBRARIES.items():
            package = json.loads((lock / "package-lock.json").read_text("utf-8"))["packages"][f"node_modules/{name}"]
            found.append(component("npm", name, package["version"], package["license"]))
            texts.setdefault(text.read_text("utf-8").strip(), []).append(f"{name} {package['version']}")
        version = os.confstr("CS_GNU_LIBC_VERSION") or "glibc unknown"
        found.append(component("generic", "glibc", version.split()[-1], "LGPL-2.1-or-later"))
        texts.setdefault("LGPL-2.1-or-later; sources: https://sourceware.org/glibc", []).append(f"glibc in {STATIC}")
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": found}
    bom_path.parent.mkdir(parents=True, exist_ok=True)
    bom_path.write_text(json.dumps(bom, indent=1) + "\n", "utf-8")
    parts = (f"{', '.join(dict.fromkeys(names))}\n\n{text}\n" for text, names in sorted(texts.items()))
    texts_path.write_text(f"\n{'=' * 80}\n".join(parts), "utf-8")


if __name__ == "__main__":
    main()
