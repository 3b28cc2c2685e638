"""MobileNetV2 as an ONNX graph with seeded weights: the compute of the real network, without its training.

Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, Table 2
and Figure 4(d), at 224 × 224 and width 1.0.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.workloads.cache import Note, silent
from cellbed.workloads.offloading.graph import SEED, Graph, built_model, write

if TYPE_CHECKING:
    import onnx

NOTE = "seeded weights: compute is real, labels are not"
NOTE_DETAIL = (
    "The model’s weights come from a seed, not from training; it does the work of a trained one, but its answers mean "
    "nothing."
)

SIDE = 224
CLASSES = 1000

_FORMAT = 1

# Table 2: expansion t, output channels c, repetitions n, stride s of the first.
_BOTTLENECKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_FIRST, _LAST = 32, 1280


def seeded_model(cache: Path, *, seed: int = SEED, note: Note = silent) -> Path:
    """Return the model's file under ``cache``, built where it is missing. Raises CellbedError when it cannot be
    built."""
    return built_model(cache, f"mobilenetv2-{_FORMAT}-{SIDE}", "MobileNetV2", __name__, seed, note)


def build(seed: int = SEED) -> "onnx.ModelProto":
    """Return the model: input ``image`` float32 [1, 3, 224, 224], output ``logits`` float32 [1, 1000]."""
    import numpy

    graph = Graph(seed)
    graph.weigh("zero", numpy.float32(0))
    graph.weigh("six", numpy.float32(6))
    _convolution(graph, _FIRST, kernel=3, stride=2)
    for expansion, channels, repetitions, stride in _BOTTLENECKS:
        for repetition in range(repetitions):
            _bottleneck(graph, expansion, channels, stride if repetition == 0 else 1)
    _convolution(graph, _LAST)
    graph.append("GlobalAveragePool", [graph.newest])
    graph.append("Flatten", [graph.newest], axis=1)
    # Not rectified after the pooling, but the mean of rectified values: as after a rectifier, see Graph.convolution.
    graph.weigh("classifier.weight", graph.normal((CLASSES, _LAST), 2 / _LAST))
    graph.weigh("classifier.bias", numpy.zeros(CLASSES, numpy.float32))
    graph.append("Gemm", [graph.newest, "classifier.weight", "classifier.bias"], output="logits", transB=1)
    return graph.model("MobileNetV2", [1, 3, SIDE, SIDE], [1, CLASSES], NOTE)


def _bottleneck(graph: Graph, expansion: int, channels: int, stride: int) -> None:
    """Expand, filter depthwise, project without a rectifier; a residual where the shape stays (Figure 4(d))."""
    entered, entered_channels = graph.newest, graph.channels
    if expansion != 1:
        _convolution(graph, entered_channels * expansion)
    _convolution(graph, graph.channels, kernel=3, stride=stride, depthwise=True, rectified_input=True)
    graph.convolution(channels, rectified_input=True)
    if stride == 1 and entered_channels == channels:
        graph.append("Add", [entered, graph.newest])


def _convolution(graph: Graph, channels: int, **options: Any) -> None:
    """Append a convolution and ReLU6."""
    graph.convolution(channels, **options)
    graph.append("Clip", [graph.newest, "zero", "six"])


if __name__ == "__main__":
    write(build(int(sys.argv[2])), Path(sys.argv[1]))
