"""Photographs as Pillow's images, and the processing of classifiers of ImageNet's 1,000 classes."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

SIDE = 224
"""Width and height of the input, pixels."""


def decode(photograph: bytes) -> "Image.Image":
    """Return a photograph in RGB. Raises ValueError for a damaged one."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(photograph)) as image:
            # A few bytes can claim a huge image; images of cameras are far below this limit.
            if image.width * image.height > 200_000_000:
                raise ValueError(f"{image.width} × {image.height} pixels are too many")
            return image.convert("RGB")
    # Pillow's decoders raise many kinds of errors for damaged files, SyntaxError and struct.error among them.
    except Exception as error:
        raise ValueError(f"cannot be decoded: {error}") from error


def preprocess(image: "Image.Image") -> "NDArray[np.float32]":
    """Return the input of Keras's MobileNetV2: float32 [1, 224, 224, 3], from -1 to 1."""
    import numpy as np
    from PIL import Image

    pixels = np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR), np.float32)
    scaled: NDArray[np.float32] = pixels[np.newaxis] / np.float32(127.5) - np.float32(1)
    return scaled


def postprocess(outputs: "list[NDArray[Any]]") -> bytes:
    """Return the class with the highest score, such as ``b"class 417"``."""
    return f"class {int(outputs[0].argmax())}".encode()
