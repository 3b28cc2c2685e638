"""PSPNet-50 as an ONNX graph with seeded weights, and the processing around it.

Zhao, Shi, Qi, Wang, Jia, "Pyramid Scene Parsing Network", CVPR 2017: ResNet-50 whose last two stages are dilated (§3.3,
output at an eighth of the input), the pyramid of averages over 1, 2, 3 and 6 bins (Figure 3), for the 19 classes of
Cityscapes at 473 × 473. Its stem has three convolutions of 3 × 3, as in the authors' code.
"""

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.workloads.cache import Note, silent
from cellbed.workloads.offloading.graph import SEED, Graph, built_model, write

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray
    from PIL import Image

NOTE = "seeded weights: compute is real, masks are not"
NOTE_DETAIL = (
    "PSPNet’s weights come from a seed, not from training; it does the work of a trained network, but its masks mean "
    "nothing."
)

SIDE = 473
CLASSES = 19

_FORMAT = 1
_WIDTH = 64
_STAGES = ((1, 3, 1, 1), (2, 4, 2, 1), (4, 6, 1, 2), (8, 3, 1, 4))
"""Of ResNet-50: width, blocks, stride of the first, dilation."""
_BINS = (1, 2, 3, 6)
_PALETTE = [part * number % 256 for number in range(CLASSES) for part in (67, 131, 197)]


def seeded_model(cache: Path, *, seed: int = SEED, note: Note = silent) -> Path:
    """Return the model's file under ``cache``, built where it is missing. Raises CellbedError when it cannot be
    built."""
    return built_model(cache, f"pspnet50-{_FORMAT}-{SIDE}", "PSPNet-50", __name__, seed, note)


def build(seed: int = SEED, side: int = SIDE, width: int = _WIDTH) -> "onnx.ModelProto":
    """Return the model: input ``image`` float32 [1, 3, side, side], output scores float32 [1, 19, side, side].

    side: an eighth of it, rounded up, is a multiple of 6. width: channels of the stem, 64 of the network proper.
    """
    import numpy as np

    graph = Graph(seed)
    graph.weigh("root", np.float32(0.5**0.5))
    for channels, stride in ((width, 2), (width, 1), (2 * width, 1)):
        _convolution(graph, channels, kernel=3, stride=stride, rectified_input=channels != width or stride == 1)
    graph.append("MaxPool", [graph.newest], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for factor, blocks, stride, dilation in _STAGES:
        for block in range(blocks):
            _bottleneck(graph, factor * width, stride if block == 0 else 1, dilation)
    _pyramid(graph, (side + 7) // 8, 8 * width)
    _convolution(graph, 8 * width, kernel=3, rectified_input=True)
    graph.convolution(CLASSES, rectified_input=True)
    _resize(graph, side)
    return graph.model("PSPNet-50", [1, 3, side, side], [1, CLASSES, side, side], NOTE)


def _convolution(graph: Graph, channels: int, **options: Any) -> None:
    """Append a convolution and a rectifier."""
    graph.convolution(channels, **options)
    graph.append("Relu", [graph.newest])


def _bottleneck(graph: Graph, channels: int, stride: int, dilation: int) -> None:
    """Append a block of ResNet-50, with a projection where the shape changes."""
    entered, entered_channels = graph.newest, graph.channels
    _convolution(graph, channels, rectified_input=True)
    _convolution(graph, channels, kernel=3, stride=stride, dilation=dilation, rectified_input=True)
    graph.convolution(4 * channels, rectified_input=True)
    computed = graph.newest
    if entered_channels != 4 * channels:
        graph.newest, graph.channels = entered, entered_channels
        graph.convolution(4 * channels, stride=stride, rectified_input=True)
        entered = graph.newest
    graph.append("Add", [entered, computed])
    graph.append("Mul", [graph.newest, "root"])  # so that activations keep their scale
    graph.append("Relu", [graph.newest])


def _pyramid(graph: Graph, size: int, channels: int) -> None:
    """Append averages over bins, at the size of the features, behind these."""
    features, entered_channels = graph.newest, graph.channels
    levels = [features]
    for bins in _BINS:
        graph.newest, graph.channels = features, entered_channels
        graph.append("AveragePool", [features], kernel_shape=[size // bins] * 2, strides=[size // bins] * 2)
        _convolution(graph, channels, rectified_input=True)
        _resize(graph, size)
        levels.append(graph.newest)
    graph.append("Concat", levels, axis=1)
    graph.channels = entered_channels + len(_BINS) * channels


def _resize(graph: Graph, size: int) -> None:
    """Append a bilinear interpolation to a square."""
    import numpy as np

    shape = f"{graph.newest}.size"
    graph.weigh(shape, np.array([1, graph.channels, size, size], np.int64))
    graph.append("Resize", [graph.newest, "", "", shape], mode="linear", coordinate_transformation_mode="align_corners")


def preprocess(image: "Image.Image") -> "NDArray[np.float32]":
    """Return the input of the network: float32 [1, 3, 473, 473], standardised as ImageNet's."""
    import numpy as np

    from cellbed.workloads.image_classification.classifier import standardised

    return np.ascontiguousarray(standardised(image, SIDE, SIDE).transpose(2, 0, 1))[np.newaxis]


def postprocess(outputs: "list[NDArray[Any]]") -> bytes:
    """Return the mask, a PNG of 473 × 473 pixels with a colour for each class."""
    import numpy as np
    from PIL import Image

    mask = Image.fromarray(outputs[0][0].argmax(axis=0).astype(np.uint8)).convert("P")
    mask.putpalette(_PALETTE)
    buffer = io.BytesIO()
    mask.save(buffer, "PNG")
    return buffer.getvalue()


if __name__ == "__main__":
    write(build(int(sys.argv[2])), Path(sys.argv[1]))
