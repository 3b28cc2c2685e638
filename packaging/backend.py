"""The build backend of the core: maturin, but a wheel built from source has its programs, too."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from maturin import *  # noqa: F403

NEEDS = {"cargo": "Rust 1.88 or newer from https://rustup.rs", "cc": "a C compiler: sudo apt install gcc libc6-dev"}


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Return no further package. Exits with an error where a compiler is missing, for maturin would download Rust."""
    missing = [remedy for command, remedy in NEEDS.items() if shutil.which(command) is None]
    if missing:
        sys.exit(f"error: to build cellbed from source, install {' and '.join(missing)}")
    return []


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Build the wheel and what is compiled beside the Python code; return the wheel's name."""
    for script in Path("scripts").glob("*.sh"):
        script.chmod(0o755)  # a source distribution has no permissions
    subprocess.run(["scripts/build.sh", "wheel", "."], env=os.environ | {"BUILD_PYTHON": sys.executable}, check=True)
    (wheel,) = Path("build/dist").glob("cellbed-*.whl")
    return Path(shutil.copy(wheel, wheel_directory)).name
