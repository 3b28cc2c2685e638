"""Files that packages of Python ship: photographs, fonts and trained models."""

import importlib.util
from pathlib import Path

from cellbed_node.errors import CellbedError


def package_path(package: str, name: str, requirements: str = "demo") -> Path:
    """Return the path of a file or folder in a package, which is not imported, as that may take long.

    requirements: name of the file in ``requirements/`` that pins it. Raises CellbedError where it is missing.
    """
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations if found else None) or []:
        if (path := Path(folder) / name).exists():
            return path
    remedy = f".venv/bin/pip install --force-reinstall --no-deps -r requirements/{requirements}.txt"
    raise CellbedError(f"{name} of the package {package} is missing: {remedy}")
