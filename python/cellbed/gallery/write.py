"""Pictures into files, by the ending of their name."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path

from cellbed.errors import CellbedError
from cellbed.gallery.panel import Picture

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
        from cellbed.gallery.page import picture_page

        content = picture_page(picture).encode()
    else:
        from cellbed.gallery.drawing import draw

        content = draw(picture, "png" if ending == ".png" else "svg")
    write_whole(path, content)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name and rename it. Raises PictureError."""
    temporary = path.with_name(f".{path.name[:80]}.{secrets.token_hex(4)}")
    try:
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise PictureError(f"{path}: cannot be written: {error.strerror}") from None
