"""MobileNetV2 as an ONNX graph with seeded weights: the compute of the real network, without its training.

Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, Table 2
and Figure 4(d), at 224 × 224 and width 1.0. Batch normalisation has neutral statistics and is folded into the biases
of the convolutions, as an exporter for inference does.
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

SIDE = 224
CLASSES = 1000
SEED = 1

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


def write(path: Path, seed: int = SEED) -> None:
    """Build the model and write it; the same seed gives the same bytes."""
    path.write_bytes(build(seed).SerializeToString(deterministic=True))


def build(seed: int = SEED) -> "onnx.ModelProto":
    """Return the model: input ``image`` float32 [1, 3, 224, 224], output ``logits`` float32 [1, 1000]."""
    return _Builder(seed).model()


class _Builder:
    """Appends layers and remembers the name of the newest activation."""

    def __init__(self, seed: int) -> None:
        import numpy

        self._numpy = numpy
        self._random = numpy.random.Generator(numpy.random.PCG64(seed))
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._newest = "image"
        self._channels = 3

    def model(self) -> "onnx.ModelProto":
        from onnx import TensorProto, helper

        self._weigh("zero", self._numpy.float32(0))
        self._weigh("six", self._numpy.float32(6))
        self._convolution(_FIRST, kernel=3, stride=2)
        for expansion, channels, repetitions, stride in _BOTTLENECKS:
            for repetition in range(repetitions):
                self._bottleneck(expansion, channels, stride if repetition == 0 else 1)
        self._convolution(_LAST)
        self._append("GlobalAveragePool", [self._newest])
        self._append("Flatten", [self._newest], axis=1)
        # Not rectified after the pooling, but the mean of rectified values: as after a rectifier, see _convolution.
        self._weigh("classifier.weight", self._normal((CLASSES, _LAST), 2 / _LAST))
        self._weigh("classifier.bias", self._numpy.zeros(CLASSES, self._numpy.float32))
        self._append("Gemm", [self._newest, "classifier.weight", "classifier.bias"], output="logits", transB=1)
        graph = helper.make_graph(
            self._nodes,
            "MobileNetV2",
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, CLASSES])],
            initializer=self._weights,
            doc_string=NOTE,
        )
        return helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="cellbed",
        )

    def _bottleneck(self, expansion: int, channels: int, stride: int) -> None:
        """Expand, filter depthwise, project without a rectifier; a residual where the shape stays (Figure 4(d))."""
        entered, entered_channels = self._newest, self._channels
        if expansion != 1:
            self._convolution(entered_channels * expansion)
        self._convolution(self._channels, kernel=3, stride=stride, depthwise=True, rectified_input=True)
        self._convolution(channels, rectified_input=True, rectify=False)
        if stride == 1 and entered_channels == channels:
            self._append("Add", [entered, self._newest])

    def _convolution(
        self,
        channels: int,
        *,
        kernel: int = 1,
        stride: int = 1,
        depthwise: bool = False,
        rectified_input: bool = False,
        rectify: bool = True,
    ) -> None:
        inputs = 1 if depthwise else self._channels
        fan_in = inputs * kernel * kernel
        name = f"convolution{len(self._nodes)}"
        # He et al., ICCV 2015, §2.2: variance 2 / fan-in keeps the scale behind a rectifier, 1 / fan-in elsewhere.
        variance = (2 if rectified_input else 1) / fan_in
        self._weigh(f"{name}.weight", self._normal((channels, inputs, kernel, kernel), variance))
        self._weigh(f"{name}.bias", self._numpy.zeros(channels, self._numpy.float32))
        self._append(
            "Conv",
            [self._newest, f"{name}.weight", f"{name}.bias"],
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=self._channels if depthwise else 1,
        )
        self._channels = channels
        if rectify:
            self._append("Clip", [self._newest, "zero", "six"])  # ReLU6

    def _normal(self, shape: tuple[int, ...], variance: float) -> Any:
        return (self._random.standard_normal(shape) * variance**0.5).astype(self._numpy.float32)

    def _weigh(self, name: str, value: Any) -> None:
        from onnx import numpy_helper

        self._weights.append(numpy_helper.from_array(self._numpy.asarray(value), name))

    def _append(self, operator: str, inputs: list[str], output: str | None = None, **attributes: Any) -> None:
        from onnx import helper

        self._newest = output or f"{operator.lower()}{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [self._newest], **attributes))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
