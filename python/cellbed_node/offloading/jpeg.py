"""The client of image classification, which checks the exposure of photographs and sends them unchanged.

A photograph is encoded again only if a policy reduces its resolution.
Run as ``python -m cellbed_node.offloading.jpeg --config FILE.json``;
:class:`cellbed_node.offloading.endpoint.Settings` describes the file.
"""

import io

from PIL import Image

from cellbed_node import lifecycle
from cellbed_node.offloading import endpoint
from cellbed_node.offloading.endpoint import Images, UnusableInputError

Image.preinit()  # loads the decoders; a fork finds them loaded

# Minimum and maximum mean luminance (0 to 255); others mean a black or overexposed picture.
DARKEST, BRIGHTEST = 8.0, 247.0


class Photographs(Images):
    """The inputs of image classification."""

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the photograph of this name as sent. Raises UnusableInputError."""
        return preprocess(super().payload(name), scale)


def preprocess(photograph: bytes, scale: float = 1.0) -> bytes:
    """Return the photograph as sent: checked for exposure, and for a `scale` below 1 reduced to this share of its width
    and height. Raises UnusableInputError."""
    check_exposure(photograph)
    return photograph if scale == 1 else reduce(photograph, scale)


def reduce(photograph: bytes, scale: float) -> bytes:
    """Return the photograph with `scale` times its width and height, at least one pixel, encoded with the original's
    quantisation. Raises UnusableInputError."""
    buffer = io.BytesIO()
    try:
        with Image.open(io.BytesIO(photograph), formats=("JPEG",)) as image:
            tables = image.quantization  # type: ignore[attr-defined]
            size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            image.draft(image.mode, size)  # decodes at the next power-of-two scale, which is faster
            image.resize(size, Image.Resampling.BOX).save(buffer, "JPEG", qtables=tables)
    except Exception as error:  # as in `check_exposure`
        raise UnusableInputError(f"cannot be reduced: {error}") from error
    return buffer.getvalue()


def check_exposure(photograph: bytes) -> float:
    """Return the mean luminance (0 to 255) of the photograph, decoded at an eighth of its size. Raises
    UnusableInputError.

    A JPEG decoder obtains an eighth of the size from the DC coefficients alone, at a fraction of the cost (Pillow's
    ``draft``).
    """
    try:
        with Image.open(io.BytesIO(photograph), formats=("JPEG",)) as image:
            image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
            histogram = image.convert("L").histogram()
    # Pillow's decoders raise many kinds of errors for damaged files, e.g. SyntaxError and struct.error.
    except Exception as error:
        raise UnusableInputError(f"cannot be decoded: {error}") from error
    mean = sum(level * count for level, count in enumerate(histogram)) / max(1, sum(histogram))
    if not DARKEST <= mean <= BRIGHTEST:
        raise UnusableInputError(f"mean luminance {mean:.0f} of 255 is outside {DARKEST:.0f} to {BRIGHTEST:.0f}")
    return mean


open_inputs = Photographs
main = endpoint.program(open_inputs)

if __name__ == "__main__":
    lifecycle.run(main)
