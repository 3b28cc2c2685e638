"""MobileNetV2 as an ONNX graph with seeded weights: the compute of the real network, without its training.

Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, Table 2
and Figure 4(d), at 224 × 224 and width 1.0. Batch normalisation has neutral statistics and is folded into the biases of
the convolutions, as an exporter for inference does.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cellbed.workloads.cache import Note, build_elsewhere, build_file, silent

if TYPE_CHECKING:
    import onnx

NOTE = "seeded weights: compute is real, labels are not"
NOTE_DETAIL = (
    "The model’s weights come from a seed, not from training; it does the work of a trained one, but its answers mean "
    "nothing."
)

SEED = 1
SIDE = 224
CLASSES = 1000

_FORMAT = 1
_OPSET = 17
_IR_VERSION = 8

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
    path = cache / f"mobilenetv2-{_FORMAT}-{SIDE}-{seed}.onnx"
    if not path.is_file():
        note(f"building MobileNetV2 with seeded weights, once: {path}")
        build_file(path, lambda temporary: build_elsewhere("MobileNetV2", __name__, temporary, seed))
    return path


def build(seed: int = SEED) -> "onnx.ModelProto":
    """Return the model: input ``image`` float32 [1, 3, 224, 224], output ``logits`` float32 [1, 1000]."""
    import numpy

    graph = _Graph(seed)
    graph.weigh("zero", numpy.float32(0))
    graph.weigh("six", numpy.float32(6))
    _convolution(graph, _FIRST, kernel=3, stride=2)
    for expansion, channels, repetitions, stride in _BOTTLENECKS:
        for repetition in range(repetitions):
            _bottleneck(graph, expansion, channels, stride if repetition == 0 else 1)
    _convolution(graph, _LAST)
    graph.append("GlobalAveragePool", [graph.newest])
    graph.append("Flatten", [graph.newest], axis=1)
    # Not rectified after the pooling, but the mean of rectified values: as after a rectifier, see _Graph.convolution.
    graph.weigh("classifier.weight", graph.normal((CLASSES, _LAST), 2 / _LAST))
    graph.weigh("classifier.bias", numpy.zeros(CLASSES, numpy.float32))
    graph.append("Gemm", [graph.newest, "classifier.weight", "classifier.bias"], output="logits", transB=1)
    return graph.model()


class _Graph:
    """A network to which layers are appended. newest: name of the newest activation; channels: its channels. The same
    seed and layers give the same bytes."""

    def __init__(self, seed: int) -> None:
        """Begin with the input ``image`` of three channels."""
        import numpy

        self._numpy = numpy
        self._random = numpy.random.Generator(numpy.random.PCG64(seed))
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self.newest = "image"
        self.channels = 3

    def model(self) -> "onnx.ModelProto":
        """Return the model, whose output is the newest activation."""
        from onnx import TensorProto, helper

        graph = helper.make_graph(
            self._nodes,
            "MobileNetV2",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
            [helper.make_tensor_value_info(self.newest, TensorProto.FLOAT, [1, CLASSES])],
            initializer=self._weights,
            doc_string=NOTE,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="cellbed",
        )

    def convolution(
        self,
        channels: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        depthwise: bool = False,
        rectified_input: bool = False,
    ) -> None:
        """Append a convolution that keeps the size, divided by `stride`."""
        inputs = 1 if depthwise else self.channels
        fan_in = inputs * kernel * kernel
        name = f"convolution{len(self._nodes)}"
        # He et al., ICCV 2015, §2.2: variance 2 / fan-in keeps the scale behind a rectifier, 1 / fan-in elsewhere.
        variance = (2 if rectified_input else 1) / fan_in
        self.weigh(f"{name}.weight", self.normal((channels, inputs, kernel, kernel), variance))
        self.weigh(f"{name}.bias", self._numpy.zeros(channels, self._numpy.float32))
        self.append(
            "Conv",
            [self.newest, f"{name}.weight", f"{name}.bias"],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=self.channels if depthwise else 1,
        )
        self.channels = channels

    def normal(self, shape: tuple[int, ...], variance: float) -> Any:
        """Return normally distributed weights."""
        return (self._random.standard_normal(shape) * variance**0.5).astype(self._numpy.float32)

    def weigh(self, name: str, value: Any) -> None:
        """Add a constant."""
        from onnx import numpy_helper

        self._weights.append(numpy_helper.from_array(self._numpy.asarray(value), name))

    def append(self, operator: str, inputs: list[str], output: str | None = None, **attributes: Any) -> None:
        """Append an operator."""
        from onnx import helper

        self.newest = output or f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [self.newest], **attributes))


def _bottleneck(graph: _Graph, expansion: int, channels: int, stride: int) -> None:
    """Expand, filter depthwise, project without a rectifier; a residual where the shape stays (Figure 4(d))."""
    entered, entered_channels = graph.newest, graph.channels
    if expansion != 1:
        _convolution(graph, entered_channels * expansion)
    _convolution(graph, graph.channels, kernel=3, stride=stride, depthwise=True, rectified_input=True)
    graph.convolution(channels, rectified_input=True)
    if stride == 1 and entered_channels == channels:
        graph.append("Add", [entered, graph.newest])


def _convolution(graph: _Graph, channels: int, **options: Any) -> None:
    """Append a convolution and ReLU6."""
    graph.convolution(channels, **options)
    graph.append("Clip", [graph.newest, "zero", "six"])


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(build(int(sys.argv[2])).SerializeToString(deterministic=True))
