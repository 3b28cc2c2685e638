"""The data bank: photographs of realistic sizes, made from a photograph in Matplotlib.

Crop, size and compression of each photograph are drawn with a fixed seed, so that every machine with the same version
of Pillow gets the same bytes. Sizes are lognormal, cut off at 7 and 170 KB, with a median of 65 KB.
"""

import io
import math
import random
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

from cellbed.workloads.cache import Note, build_folder, silent
from cellbed_node.inputs import package_path

if TYPE_CHECKING:
    from PIL import Image

COUNT = 100
SEED = 1
SMALLEST, MEDIAN, LARGEST = 7_000, 65_000, 170_000  # bytes
SPREAD = 0.9  # standard deviation of the logarithm, before the cut
_CENTRE = 11.318485231684885
"""Mean of the logarithm before the cut, so that the median after it is MEDIAN."""

NOTE = "the photographs are crops of one that Matplotlib carries, with realistic sizes"
"""The note on the data in reports."""

_FORMAT = 3


def data_bank(cache: Path, *, count: int = COUNT, seed: int = SEED, note: Note = silent) -> Path:
    """Return the folder of ``count`` photographs under ``cache``, built if missing.

    Raises CellbedError when Matplotlib's photograph or the cache cannot be used.
    """
    return build_if_missing(cache, f"photographs-{_FORMAT}", count, seed, note, _build)


def build_if_missing(
    cache: Path, name: str, count: int, seed: int, note: Note, build: Callable[[Path, int, int], None]
) -> Path:
    """Return the folder of a data bank under ``cache``, built if missing by `build(folder, count, seed)`.

    The folder's name contains Pillow's version, as versions encode differently. Raises CellbedError.
    """
    import PIL

    folder = cache / f"{name}-{count}-{seed}-pillow{PIL.__version__}"
    if not folder.is_dir():
        note(f"building the data bank of {count} images, once: {folder}")
        build_folder(folder, lambda temporary: build(temporary, count, seed))
    return folder


def target_sizes(count: int, seed: int) -> list[int]:
    """Return target sizes in bytes: lognormal, cut off at SMALLEST and LARGEST, median MEDIAN, in random order.

    One size is drawn from the middle of each of ``count`` equally likely strata, so that even a small bank has the
    shape of the distribution.
    """
    low, high = math.log(SMALLEST), math.log(LARGEST)
    normal = NormalDist(_CENTRE, SPREAD)
    first, last = normal.cdf(low), normal.cdf(high)
    sizes = [
        round(math.exp(normal.inv_cdf(first + (last - first) * (stratum + 0.5) / count))) for stratum in range(count)
    ]
    random.Random(f"{seed}/sizes").shuffle(sizes)
    return sizes


def _build(folder: Path, count: int, seed: int) -> None:
    source = original()
    for number, size in enumerate(target_sizes(count, seed)):
        content = _photograph(source, size, random.Random(f"{seed}/{number}"))
        (folder / f"{number:0{max(3, len(str(count - 1)))}d}.jpg").write_bytes(content)


def _photograph(original: "Image.Image", size: int, generator: random.Random) -> bytes:
    """Return a JPEG of ``size`` bytes (± 3 %) of a random part of ``original``."""
    from PIL import Image

    share = generator.uniform(0.5, 1.0)  # of the original's width and height
    width, height = round(original.width * share), round(original.height * share)
    left = generator.randint(0, original.width - width)
    top = generator.randint(0, original.height - height)
    crop = original.crop((left, top, left + width, top + height))
    if generator.random() < 0.5:
        crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    # Cameras use 1.2 to 2.4 bits per pixel; the quality sets the rest.
    pixels = size * 8 / generator.uniform(1.2, 2.4)
    while True:
        scale = math.sqrt(pixels / (width * height))
        resized = crop.resize((max(16, round(width * scale)), max(16, round(height * scale))), Image.Resampling.LANCZOS)
        content = encode(resized, min(1.03 * size, LARGEST))
        if len(content) >= 0.97 * size:
            return content
        # Too smooth for the size even at the best quality: use more pixels. No quality fits: use fewer.
        pixels *= 1.25 if content else 0.8


def encode(image: "Image.Image", limit: float) -> bytes:
    """Return the JPEG of the best quality from 30 to 95 that is not larger than ``limit``; empty if there is none."""
    low, high = 30, 95
    best = b""
    while low <= high:
        quality = (low + high) // 2
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= limit:
            best = buffer.getvalue()
            low = quality + 1
        else:
            high = quality - 1
    return best


def original() -> "Image.Image":
    """Return the photograph for the data bank. Raises CellbedError if Matplotlib no longer contains it."""
    from PIL import Image

    with Image.open(package_path("matplotlib", "mpl-data/sample_data/grace_hopper.jpg")) as image:
        found = image.convert("RGB")
    found.info.clear()  # remove the comment
    return found
