#!/usr/bin/env python3
"""Check the licences of all Python packages in the environment; print each package whose licence is not allowed."""

import re
import sys
from importlib.metadata import Distribution, distributions

# Licences that permit use and redistribution beside code under Apache-2.0. The MPL applies to its own files alone.
ALLOWED = re.compile(
    r"\b(apache|0?bsd|cc0|isc|mit|mozilla public|mpl|psf|python software foundation|zlib)\b", re.IGNORECASE
)


def licence(package: Distribution) -> str:
    """Return the licence that the package's metadata names: an SPDX expression, classifiers or free text."""
    metadata = package.metadata
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier", []) if "License ::" in line]
    texts = [metadata.get("License-Expression"), " OR ".join(classifiers), metadata.get("License")]
    return next((text for text in texts if text), "none named")


def is_allowed(text: str) -> bool:
    """Return whether a choice of the licence exists whose parts are all allowed."""
    return any(all(map(ALLOWED.search, choice.split(" AND "))) for choice in text.split(" OR "))


def main() -> int:
    """Return 1 if a licence is not allowed."""
    packages = sorted(distributions(), key=lambda package: package.name.lower())
    refused = [package for package in packages if not is_allowed(licence(package))]
    for package in refused:
        print(f"{package.name} {package.version}: licence not allowed: {licence(package)[:200]}")
    print(f"{len(packages)} Python packages checked, {len(refused)} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
