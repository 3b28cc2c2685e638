"""An image classifier in ONNX Runtime: from the bytes of a JPEG to a class."""

import io
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

# Mean and standard deviation of ImageNet's channels: what published classifiers were trained on.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32) * 255
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32) * 255

DEFAULT_SIDE = 224
"""Side in pixels of an input whose shape leaves it open."""


class ModelError(ValueError):
    """A model that cannot classify photographs here. The text has the model, the reason and the remedy."""


@dataclass(frozen=True, slots=True)
class Input:
    """What a model takes. channels_first: NCHW, otherwise NHWC; height and width in pixels."""

    name: str
    channels_first: bool
    height: int
    width: int


def load_onnx_runtime() -> Any:
    """The module ``onnxruntime``, imported without its vendor's telemetry.

    Else it writes an identifier of the device below the cache folder and, after some seconds, resolves the name of its
    vendor's host: lookups that would be part of what is measured.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: TID251 - here, after the setting

    return onnxruntime


class Classifier:
    """A loaded model, on one thread that sleeps when it has nothing to do."""

    def __init__(self, path: Path) -> None:
        """Load the model. Raises ModelError."""
        onnxruntime = load_onnx_runtime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if not path.is_file():
            raise ModelError(f"{path}: no such model file")
        try:
            self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        # ONNX Runtime has a class for each kind of failure, and no common one.
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise ModelError(f"{path}: ONNX Runtime cannot load this model: {reason}") from error
        self.input = _input(path, self._session.get_inputs())
        self._output = self._session.get_outputs()[0].name

    def decode(self, photograph: bytes) -> NDArray[np.float32]:
        """The photograph as the model's input: decoded, resized, normalised. Raises ValueError for a damaged one."""
        size = (self.input.width, self.input.height)
        try:
            with Image.open(io.BytesIO(photograph)) as image:
                # An image can claim to be huge in a few bytes; what a camera makes is far below this.
                if image.width * image.height > 200_000_000:
                    raise ValueError(f"{image.width} × {image.height} pixels are too many")
                pixels = image.convert("RGB").resize(size, Image.Resampling.BILINEAR)
        # Pillow's decoders raise many kinds of errors for damaged files, SyntaxError and struct.error among them.
        except Exception as error:
            raise ValueError(f"cannot be decoded: {error}") from error
        array = (np.asarray(pixels, np.float32) - _MEAN) / _DEVIATION
        if self.input.channels_first:
            array = np.ascontiguousarray(array.transpose(2, 0, 1))
        return array[np.newaxis]

    def classify(self, image: NDArray[np.float32]) -> int:
        """The number of the class with the highest score."""
        scores = self._session.run([self._output], {self.input.name: image})[0]
        return int(np.argmax(scores))


def check_model(path: Path) -> None:
    """Load a user's model and classify a grey image with it. Raises ModelError.

    In a separate process: ONNX Runtime starts threads and fills memory, and our caller may be about to fork.
    """
    command = [sys.executable, "-P", "-m", "cellbed.workloads.classifier", str(path)]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()
        raise ModelError(reason[-1] if reason else f"{path}: the model's check ended with status {result.returncode}")


def _input(path: Path, inputs: list[Any]) -> Input:
    needed = "needed is one float32 input [1, 3, height, width] or [1, height, width, 3]"
    if len(inputs) != 1:
        names = ", ".join(entry.name for entry in inputs) or "none"
        raise ModelError(f"{path}: the model has {len(inputs)} inputs ({names}); {needed}")
    (entry,) = inputs
    shape = [size if isinstance(size, int) else None for size in entry.shape]
    shown = f"{entry.type} [{', '.join(str(size) for size in entry.shape)}]"
    refused = ModelError(f"{path}: the model's input '{entry.name}' is {shown}; {needed}")
    if entry.type != "tensor(float)" or len(shape) != 4 or shape[0] not in (1, None):
        raise refused
    if shape[1] == 3:
        channels_first, (height, width) = True, shape[2:]
    elif shape[3] == 3:
        channels_first, (height, width) = False, shape[1:3]
    else:
        raise refused
    return Input(entry.name, channels_first, height or DEFAULT_SIDE, width or DEFAULT_SIDE)


def warm_up(classifier: Classifier) -> None:
    """Classify a grey image, so that the first request does not pay for allocations. Raises ModelError."""
    grey = Image.new("RGB", (classifier.input.width, classifier.input.height), (128, 128, 128))
    buffer = io.BytesIO()
    grey.save(buffer, "JPEG")
    try:
        classifier.classify(classifier.decode(buffer.getvalue()))
    except Exception as error:
        raise ModelError(f"the model cannot classify a grey image: {str(error).strip().splitlines()[0]}") from error


if __name__ == "__main__":
    try:
        warm_up(Classifier(Path(sys.argv[1])))
    except ModelError as error:
        sys.exit(str(error))
