"""Files that packages of Python ship: photographs, fonts and trained models."""

import importlib.util
from pathlib import Path

from cellbed.support.errors import CellbedError

MATPLOTLIB = "--force-reinstall matplotlib"


def packaged(package: str, name: str, remedy: str) -> Path:
    """Return the path of a file or folder in a package, which is not imported, as that may take long.

    remedy: arguments of pip that install it. Raises CellbedError where it is missing.
    """
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations if found else None) or []:
        if (path := Path(folder) / name).exists():
            return path
    raise CellbedError(f"{name} of the package {package} is missing: .venv/bin/pip install {remedy}")
