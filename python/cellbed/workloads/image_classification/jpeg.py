"""The client of image classification: photographs that are checked for exposure and sent without metadata.

The picture itself is not encoded again, unless a policy reduces its resolution: the endpoint sends the bytes that the
camera wrote, less its notes.
Run as ``python -m cellbed.workloads.image_classification.jpeg --config FILE.json``;
:class:`cellbed.workloads.offloading.endpoint.Settings` describes the file.
"""

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from cellbed.workloads.image_classification.photographs import open_bank
from cellbed.workloads.offloading import endpoint
from cellbed.workloads.offloading.endpoint import UnusableInputError

Image.preinit()  # loads the decoders; a fork finds them loaded

# Exposure: mean luminance (0 to 255) outside this range means a picture that is black or burnt out.
DARKEST, BRIGHTEST = 8.0, 247.0

_START, _END, _SCAN = 0xD8, 0xD9, 0xDA
_COMMENT = 0xFE
_APPLICATION = range(0xE0, 0xF0)
# Decoders need these three: JFIF (pixel aspect), ICC profile and Adobe (colour transform).
_KEPT_APPLICATION = (0xE0, 0xE2, 0xEE)


class Photographs:
    """The inputs of image classification; see :class:`cellbed.workloads.offloading.endpoint.Inputs`."""

    def __init__(self, folder: Path) -> None:
        """Open the data bank in `folder`."""
        bank = open_bank(folder)
        self.names: Sequence[str] = [photograph.name for photograph in bank.photographs]
        self._photographs = dict(zip(self.names, bank.load(), strict=True))

    def payload(self, name: str, scale: float = 1.0) -> bytes:
        """Return the photograph of this name as it is sent. Raises UnusableInputError."""
        return preprocess(self._photographs[name][:], scale)


def preprocess(photograph: bytes, scale: float = 1.0) -> bytes:
    """Return the photograph as it is sent: checked for exposure, without metadata, and below a `scale` of 1 with this
    share of its width and height. Raises UnusableInputError."""
    check_exposure(photograph)
    return strip_metadata(photograph) if scale == 1 else reduce(photograph, scale)


def reduce(photograph: bytes, scale: float) -> bytes:
    """Return the photograph with `scale` times its width and height, at least one pixel, encoded with the quantisation
    of the original and without metadata but the colour profile. Raises UnusableInputError."""
    buffer = io.BytesIO()
    try:
        with Image.open(io.BytesIO(photograph), formats=("JPEG",)) as image:
            profile, tables = image.info.get("icc_profile"), image.quantization  # type: ignore[attr-defined]
            size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
            image.draft(image.mode, size)  # decodes at the next power of two, which is faster
            image.resize(size, Image.Resampling.BOX).save(buffer, "JPEG", qtables=tables, icc_profile=profile)
    except Exception as error:  # as in `check_exposure`
        raise UnusableInputError(f"cannot be reduced: {error}") from error
    return buffer.getvalue()


def check_exposure(photograph: bytes) -> float:
    """Mean luminance (0 to 255) of the photograph, decoded at an eighth of its size. Raises UnusableInputError.

    A JPEG decoder gives an eighth of the size from the DC coefficients alone, at a fraction of the cost (Pillow's
    ``draft``).
    """
    try:
        with Image.open(io.BytesIO(photograph), formats=("JPEG",)) as image:
            image.draft("L", (max(1, image.width // 8), max(1, image.height // 8)))
            histogram = image.convert("L").histogram()
    # Pillow's decoders raise many kinds of errors for damaged files, SyntaxError and struct.error among them.
    except Exception as error:
        raise UnusableInputError(f"cannot be decoded: {error}") from error
    mean = sum(level * count for level, count in enumerate(histogram)) / max(1, sum(histogram))
    if not DARKEST <= mean <= BRIGHTEST:
        raise UnusableInputError(f"mean luminance {mean:.0f} of 255 is outside {DARKEST:.0f} to {BRIGHTEST:.0f}")
    return mean


def strip_metadata(photograph: bytes) -> bytes:
    """Return the same picture without EXIF, XMP, IPTC and comments; all other bytes unchanged (ITU-T T.81, Annex
    B.1.1).

    Raises UnusableInputError where the headers before the first scan are not those of a JPEG.
    """
    if photograph[:2] != bytes((0xFF, _START)):
        raise UnusableInputError("does not begin like a JPEG")
    kept = [photograph[:2]]
    position = 2
    while True:
        begin = position
        if photograph[position : position + 1] != b"\xff":
            raise UnusableInputError(f"no marker at byte {position}")
        while photograph[position : position + 1] == b"\xff":  # a marker may be preceded by fill bytes
            position += 1
        if position + 3 > len(photograph):
            raise UnusableInputError("ends before its first scan")
        marker = photograph[position]
        if marker in (_SCAN, _END):
            return b"".join([*kept, photograph[begin:]])
        length = int.from_bytes(photograph[position + 1 : position + 3], "big")
        position += 1 + length
        if length < 2 or position > len(photograph):
            raise UnusableInputError(f"the segment at byte {begin} has a wrong length")
        if marker != _COMMENT and (marker not in _APPLICATION or marker in _KEPT_APPLICATION):
            kept.append(photograph[begin:position])


open_inputs = Photographs

if __name__ == "__main__":
    endpoint.run(open_inputs)
