"""MediaPipe's network for persons in landscape images, and its pre- and post-processing: a probability per pixel."""

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed_node.inputs import package_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

WIDTH, HEIGHT = 256, 144
PHOTOGRAPH = 2048, 1024
"""Width and height of the photographs, pixels."""


def model() -> Path:
    """Return the path of the network. Raises CellbedError if the package, or the network in it, is missing."""
    name = "modules/selfie_segmentation/selfie_segmentation_landscape.tflite"
    return package_path("mediapipe", name, "vision")


def preprocess(image: "Image.Image") -> "NDArray[np.float32]":
    """Return the input of the network: float32 [1, 144, 256, 3], from 0 to 1."""
    import numpy as np
    from PIL import Image

    pixels = image.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
    return np.asarray(pixels, np.float32)[np.newaxis] / np.float32(255)


def postprocess(outputs: "list[NDArray[Any]]") -> bytes:
    """Return the mask, a PNG of 256 × 144 pixels that is white where a person is more likely than not."""
    import numpy as np
    from PIL import Image

    mask = Image.fromarray(np.where(outputs[0][0, :, :, 0] > 0.5, 255, 0).astype(np.uint8))
    buffer = io.BytesIO()
    mask.save(buffer, "PNG")
    return buffer.getvalue()
