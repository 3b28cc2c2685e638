"""Pictures into files, by the ending of their name."""

from __future__ import annotations

from pathlib import Path

from cellbed.errors import CellbedError
from cellbed.report.gallery.panel import Picture
from cellbed.whole_files import write_whole

ENDINGS = (".png", ".svg", ".html")


class PictureError(CellbedError):
    """A picture cannot be written where it was asked for."""


def require_ending(path: Path) -> str:
    """The ending of a picture's file. Raises PictureError for one that nobody can draw."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise PictureError(f"{path}: a picture's name ends with {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    return ending


def write_picture(picture: Picture, path: Path) -> None:
    """Write a picture whole or not at all. Raises PictureError, and AssetError for HTML without the chart library."""
    ending = require_ending(path)
    if ending == ".html":
        from cellbed.report.gallery.page import picture_page

        content = picture_page(picture).encode()
    else:
        from cellbed.report.gallery.drawing import draw

        content = draw(picture, "png" if ending == ".png" else "svg")
    write_content(content, path)


def write_content(content: bytes, path: Path) -> None:
    """Write a file whole or not at all. Raises PictureError."""
    try:
        write_whole(path, lambda file: file.write_bytes(content))
    except OSError as error:
        raise PictureError(f"{path}: cannot be written: {error.strerror}") from None
