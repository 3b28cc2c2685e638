"""The task of image classification, in ONNX Runtime: from the bytes of a JPEG to a class."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cellbed_node.offloading import inference
from cellbed_node.offloading.images import decode
from cellbed_node.offloading.runtimes import open_session
from cellbed_node.offloading.task import ModelError, Task

# Mean and standard deviation of ImageNet's channels, with which published classifiers were trained.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32) * 255

DEFAULT_SIDE = 224
"""Side in pixels of inputs whose shape is open."""


@dataclass(frozen=True, slots=True)
class Input:
    """The input of a model. channels_first: NCHW, otherwise NHWC; height and width in pixels."""

    name: str
    channels_first: bool
    height: int
    width: int


class Classifier:
    """A model in ONNX Runtime with one image as its input, and the preparation of the input."""

    def __init__(self, path: Path) -> None:
        """Load the model. Raises ModelError."""
        self._session = open_session(path)
        self.input = _input(path, [(each.name, each.type, each.shape) for each in self._session.get_inputs()])
        self._output = self._session.get_outputs()[0].name

    def decode(self, photograph: bytes) -> NDArray[np.float32]:
        """Return the photograph as the model's input: decoded, resized, with the mean and standard deviation of
        ImageNet's. Raises ValueError for a damaged photograph."""
        pixels = decode(photograph).resize((self.input.width, self.input.height), Image.Resampling.BILINEAR)
        array: NDArray[np.float32] = (np.asarray(pixels, np.float32) - _MEAN) / _DEVIATION
        if self.input.channels_first:
            array = np.ascontiguousarray(array.transpose(2, 0, 1))
        return array[np.newaxis]

    def compute(self, image: NDArray[np.float32]) -> str:
        """Return the class with the highest score, such as ``"class 417"``."""
        return f"class {int(np.argmax(self._session.run([self._output], {self.input.name: image})[0]))}"


def load(model: str, code: str = "") -> Task:
    """Return the classifier of a model file, warmed up with a grey image. code: the processing of the network
    (:mod:`.inference`); without it, a model in ONNX with one image. Raises ModelError."""
    if code:
        return inference.load(model, code)
    classifier = Classifier(Path(model))
    grey = Image.new("RGB", (classifier.input.width, classifier.input.height), (128, 128, 128))
    buffer = io.BytesIO()
    grey.save(buffer, "JPEG")
    try:
        classifier.compute(classifier.decode(buffer.getvalue()))
    except Exception as error:
        raise ModelError(f"the model cannot classify a grey image: {str(error).strip().splitlines()[0]}") from error
    return classifier


def _input(path: Path, inputs: list[tuple[str, str, list[Any]]]) -> Input:
    """Return the input of a model. inputs: name, type and shape of each."""
    needed = "needed is one float32 input [1, 3, height, width] or [1, height, width, 3]"
    if len(inputs) != 1:
        names = ", ".join(name for name, *_ in inputs) or "none"
        raise ModelError(f"{path}: the model has {len(inputs)} inputs ({names}); {needed}")
    ((name, kind, sizes),) = inputs
    shape = [int(size) if not isinstance(size, str) and size is not None and size > 0 else None for size in sizes]
    shown = f"{kind} [{', '.join(str(size) for size in sizes)}]"
    refused = ModelError(f"{path}: the model's input '{name}' is {shown}; {needed}")
    if kind != "tensor(float)" or len(shape) != 4 or shape[0] not in (1, None):
        raise refused
    if shape[1] == 3:
        channels_first, (height, width) = True, shape[2:]
    elif shape[3] == 3:
        channels_first, (height, width) = False, shape[1:3]
    else:
        raise refused
    return Input(name, channels_first, height or DEFAULT_SIDE, width or DEFAULT_SIDE)
