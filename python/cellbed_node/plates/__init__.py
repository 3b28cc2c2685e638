"""Frames of a camera, and a reader of licence plates."""


def plain(text: str) -> str:
    """Return the letters and digits of a plate, for comparison of readings."""
    return "".join(each for each in text.upper() if each.isascii() and each.isalnum())


def plate_of(name: str) -> str:
    """Return the plate of a frame by its name, such as ``"007-AB12CDE.jpg"``."""
    return name.partition("-")[2].partition(".")[0]
