"""The data bank: photographs of persons in the size of Cityscapes.

Cityscapes, the data set of Lim et al. (IEEE Transactions on Mobile Computing, 2024, §VII-D), has PNGs of 2048 × 1024
pixels. The images here are mirrored crops of a photograph in Matplotlib, about 2.4 MB each.
"""

import random
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.workloads.cache import Note, silent
from cellbed.workloads.image_classification import photographs
from cellbed_node.offloading.person import PHOTOGRAPH

if TYPE_CHECKING:
    from PIL import Image

SEED = 1

NOTE = "the photographs are crops of one that Matplotlib carries, with the size of Cityscapes’ images"
"""The note on the data in reports."""

_FORMAT = 1


def data_bank(cache: Path, *, count: int, seed: int = SEED, note: Note = silent) -> Path:
    """Return the folder of ``count`` photographs under ``cache``, built if missing. Raises CellbedError."""
    return photographs.build_if_missing(cache, f"scenes-{_FORMAT}", count, seed, note, _build)


def _build(folder: Path, count: int, seed: int) -> None:
    original = photographs.original()
    for number in range(count):
        scene(original, random.Random(f"{seed}/{number}")).save(folder / f"{number:03d}.png")


def scene(original: "Image.Image", generator: random.Random) -> "Image.Image":
    """Return a photograph of 2048 × 1024 pixels: the original next to its mirror image, at a random position."""
    from PIL import Image

    full_width, full_height = PHOTOGRAPH
    height = int(full_height * generator.uniform(1, 1.3))
    person = original.resize((round(original.width * height / original.height), height), Image.Resampling.LANCZOS)
    found = Image.new("RGB", PHOTOGRAPH)
    left, mirrored = -generator.randrange(person.width), generator.random() < 0.5
    while left < full_width:
        found.paste(person.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else person, (left, 0))
        left, mirrored = left + person.width, not mirrored
    return found
