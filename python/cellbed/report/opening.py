"""Showing the report in a browser, where there is a desktop to show it on."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import Literal


def open_page(page: Path, when: Literal["auto", "yes", "no"] | str, *, quiet: bool = False) -> bool:
    """Open `page`: always, never, or (auto) on a terminal with a display and not `quiet`. Says whether it did."""
    wanted = when == "yes" or (when == "auto" and not quiet and _on_a_desktop())
    return wanted and webbrowser.open(page.resolve().as_uri())


def _on_a_desktop() -> bool:
    # A browser does not run as root, and one on a text terminal would take the terminal over.
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(display) and sys.stdout.isatty() and os.geteuid() != 0
