"""The data bank: camera frames of 166 to 187 kB, each with a licence plate whose text is known.

COSM-IC has frames of these sizes (Table VII). The scene is generated: a vehicle before a blurred background, its plate
rotated and sheared, with sensor noise. The name of a frame contains the text of its plate.
"""

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING

from cellbed.workloads.cache import Note, silent
from cellbed.workloads.image_classification import photographs
from cellbed_node.inputs import package_path
from cellbed_node.offloading.camera import plain

if TYPE_CHECKING:
    from PIL import Image

SEED = 1
WIDTH, HEIGHT = 1280, 720
SMALLEST, LARGEST = 166_000, 187_000  # bytes

NOTE = "the frames are generated, each with a licence plate whose text is known"
"""The note on the data in reports."""

_FORMAT = 1
_LETTERS, _DIGITS = "ABCDEFGHJKLMNPRSTUVWXYZ", "0123456789"
"""Letters without I, O and Q, which many countries leave out because they look like digits."""
_PATTERNS = ("AA 99 AAA", "AAA 9999", "AA 999 AA", "999 AAA 9")


def data_bank(cache: Path, *, count: int, seed: int = SEED, note: Note = silent) -> Path:
    """Return the folder of ``count`` frames under ``cache``, built if missing. Raises CellbedError."""
    return photographs.build_if_missing(cache, f"plates-{_FORMAT}", count, seed, note, _build)


def _build(folder: Path, count: int, seed: int) -> None:
    for number in range(count):
        generator = random.Random(f"{seed}/{number}")
        plate = _plate(generator)
        (folder / f"{number:03d}-{plain(plate)}.jpg").write_bytes(frame(plate, generator))


def _plate(generator: random.Random) -> str:
    pools = {"A": _LETTERS, "9": _DIGITS, " ": " "}
    return "".join(generator.choice(pools[each]) for each in generator.choice(_PATTERNS))


def frame(plate: str, generator: random.Random) -> bytes:
    """Return a JPEG of 1280 × 720 pixels with this plate, of SMALLEST to LARGEST bytes."""
    import numpy as np
    from PIL import Image

    pixels = np.asarray(_scene(plate, generator), np.float32)
    normal = np.random.Generator(np.random.PCG64(generator.getrandbits(64))).standard_normal(pixels.shape, np.float32)
    limit = generator.uniform(SMALLEST * 1.03, LARGEST)
    # Noise makes most of the size; the JPEG quality sets the rest.
    for noise in (6, 8, 10, 13, 16, 20):
        noisy = np.clip(pixels + noise * normal, 0, 255).astype(np.uint8)
        content = photographs.encode(Image.fromarray(noisy), limit)
        if len(content) >= SMALLEST:
            return content
    raise AssertionError(f"a frame of {len(content)} bytes")


def _scene(plate: str, generator: random.Random) -> "Image.Image":
    from PIL import Image, ImageDraw, ImageFilter

    uniform = generator.uniform
    coarse = Image.frombytes("L", (16, 9), generator.randbytes(16 * 9))
    found = coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).filter(ImageFilter.GaussianBlur(24)).convert("RGB")
    draw = ImageDraw.Draw(found)
    x, y = uniform(0.4, 0.6) * WIDTH, uniform(0.55, 0.75) * HEIGHT
    wide = uniform(420, 620)
    body, dark = (tuple(generator.randrange(*span) for _ in range(3)) for span in ((30, 200), (5, 40)))
    draw.rounded_rectangle((x - wide / 2, y - 0.62 * wide, x + wide / 2, y + 0.2 * wide), 60, body)
    draw.rounded_rectangle((x - 0.4 * wide, y - 0.58 * wide, x + 0.4 * wide, y - 0.28 * wide), 40, dark)
    for side in (-1, 1):
        lamp = x + side * 0.4 * wide
        draw.ellipse((lamp - 0.07 * wide, y - 0.2 * wide, lamp + 0.07 * wide, y - 0.08 * wide), (250, 245, 220))
    sign = _sign(plate, generator)
    scale = uniform(0.32, 0.5) * wide / sign.width
    shear, tilt = uniform(-0.15, 0.15), math.radians(uniform(-7, 7))
    size = (round(sign.width * scale), round(sign.height * scale * uniform(0.85, 1)))
    small = sign.resize(size, Image.Resampling.LANCZOS)
    # Map positions in a box to positions on the plate: rotated about its centre, and sheared.
    cosine, sine = math.cos(tilt), math.sin(tilt)
    box = (round(size[0] * 1.3), round(size[1] + size[0] * 0.4))
    a, b, d, e = cosine + shear * sine, sine - shear * cosine, -sine, cosine
    c, f = (size[0] - a * box[0] - b * box[1]) / 2, (size[1] - d * box[0] - e * box[1]) / 2
    turned = small.transform(box, Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BICUBIC)
    found.paste(turned.convert("RGB"), (round(x - box[0] / 2), round(y - box[1] / 2)), turned.getchannel("A"))
    return found.filter(ImageFilter.GaussianBlur(uniform(0.4, 1.6)))


def _sign(plate: str, generator: random.Random) -> "Image.Image":
    """Return a plate with dark letters on white or yellow."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(package_path("matplotlib", "mpl-data/fonts/ttf/DejaVuSans-Bold.ttf"), 80)
    left, top, right, bottom = font.getbbox(plate)
    found = Image.new("RGBA", (round(right - left) + 60, round(bottom - top) + 44), (20, 20, 20, 255))
    ground = generator.choice(((240, 240, 235), (240, 200, 60)))
    draw = ImageDraw.Draw(found)
    draw.rectangle((6, 6, found.width - 7, found.height - 7), ground)
    draw.text((30 - left, 22 - top), plate, (25, 25, 30), font)
    return found
