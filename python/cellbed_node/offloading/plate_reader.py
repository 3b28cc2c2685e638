"""The task of the kind: PP-OCRv4 finds the text in a frame and reads it, in ONNX Runtime.

Text is found by differentiable binarisation (Liao et al., AAAI 2020) and read by a network with connectionist temporal
classification (Graves et al., ICML 2006). Networks, thresholds and pre-processing are from the package
rapidocr-onnxruntime, which is not imported because it needs OpenCV.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cellbed_node.offloading import inference
from cellbed_node.offloading.camera import plain
from cellbed_node.offloading.images import decode
from cellbed_node.offloading.runtimes import open_session
from cellbed_node.offloading.task import Task

DETECTION, RECOGNITION = "ch_PP-OCRv4_det_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx"

_LONGER_SIDE = 480
"""Longer side of the image for text detection, pixels: the plate of a near vehicle is then some 75 pixels wide."""
_TEXT, _BOX = 0.3, 0.5  # minimum probability of a pixel; minimum mean probability of a box
_UNCLIP = 1.6
"""Liao et al., §3.5: a box of area A and perimeter L grows by A × ratio / L on each side."""
_LINE = 48
"""Height of a line of text, pixels."""
_NARROWEST = 320
_FEWEST = 4  # minimum letters and digits of a plate


def load(model: str, code: str = "") -> Task:
    """Return the task, warmed up with a grey frame. model: folder of PP-OCRv4, or with `code` the user's network.
    Raises ModelError."""
    if code:
        return inference.load(model, code)
    reader = Reader(Path(model))
    reader.compute(Image.new("RGB", (1280, 720), (128, 128, 128)))
    reader.read(Image.new("RGB", (160, _LINE), (128, 128, 128)))
    return reader


class Reader:
    """Text detection and recognition."""

    def __init__(self, folder: Path) -> None:
        """Load the networks in a folder. Raises ModelError."""
        self._detection, self._recognition = (open_session(folder / name) for name in (DETECTION, RECOGNITION))
        characters = self._recognition.get_modelmeta().custom_metadata_map["character"].splitlines()
        self._characters = ["", *characters, " "]

    def decode(self, payload: bytes) -> Image.Image:
        """Return the frame. Raises ValueError for a damaged one."""
        return decode(payload)

    def compute(self, decoded: Image.Image) -> str:
        """Return the most certain text of at least four letters and digits; empty if there is none."""
        found = [self.read(decoded.crop(box)) for box in self.boxes(decoded)]
        plates = [(certainty, plain(text)) for text, certainty in found]
        return max((each for each in plates if len(each[1]) >= _FEWEST), default=(0.0, ""))[1]

    def boxes(self, frame: Image.Image) -> list[tuple[int, int, int, int]]:
        """Return the boxes of text: left, top, right and bottom, pixels."""
        from scipy import ndimage

        scale = _LONGER_SIDE / max(frame.size)
        width, height = (max(32, round(side * scale / 32) * 32) for side in frame.size)
        (output,) = self._detection.run(None, {self._detection.get_inputs()[0].name: _pixels(frame, width, height)})
        probability = output[0, 0]
        # Dilated by one pixel, as in the package.
        labels, count = ndimage.label(ndimage.binary_dilation(probability > _TEXT, np.ones((2, 2))))
        certainties = ndimage.mean(probability, labels, range(1, count + 1))
        found = []
        for (rows, columns), certainty in zip(ndimage.find_objects(labels, count), certainties, strict=True):
            high, wide = rows.stop - rows.start, columns.stop - columns.start
            if min(high, wide) < 3 or certainty < _BOX:
                continue
            more = high * wide * _UNCLIP / (2 * (high + wide))
            left, right = ((at * frame.width / width) for at in (columns.start - more, columns.stop + more))
            top, bottom = ((at * frame.height / height) for at in (rows.start - more, rows.stop + more))
            box = (max(0, left), max(0, top), min(frame.width, right), min(frame.height, bottom))
            found.append((round(box[0]), round(box[1]), round(box[2]), round(box[3])))
        return found

    def read(self, line: Image.Image) -> tuple[str, float]:
        """Return the text of a line, and its mean character probability."""
        width = max(8, round(line.width * _LINE / line.height))
        pixels = _pixels(line, width, _LINE)
        if width < _NARROWEST:
            pixels = np.pad(pixels, ((0, 0), (0, 0), (0, 0), (0, _NARROWEST - width)))
        (output,) = self._recognition.run(None, {self._recognition.get_inputs()[0].name: pixels})
        best, certainty = output[0].argmax(axis=1), output[0].max(axis=1)
        kept = (best != 0) & (np.diff(best, prepend=0) != 0)
        text = "".join(self._characters[number] for number in best[kept])
        return text, float(certainty[kept].mean()) if kept.any() else 0.0


def _pixels(image: Image.Image, width: int, height: int) -> NDArray[np.float32]:
    """Return an image as float32 [1, 3, height, width] from -1 to 1, blue first."""
    resized = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR), np.float32)
    blue_first = np.ascontiguousarray(resized[:, :, ::-1].transpose(2, 0, 1))[np.newaxis]
    found: NDArray[np.float32] = blue_first / np.float32(127.5) - np.float32(1)
    return found
