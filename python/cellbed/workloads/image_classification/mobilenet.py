"""MobileNetV2 as an ONNX graph with seeded weights: the compute of the real network, without its training.

Sandler, Howard, Zhu, Zhmoginov, Chen, "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, Table 2
and Figure 4(d), at 224 × 224 and width 1.0. Batch normalisation has neutral statistics and is folded into the biases of
the convolutions, as an exporter for inference does. The messages of ONNX (onnx.proto, IR version 8) are written here,
without the library.
"""

import sys
from pathlib import Path
from typing import Any

from cellbed.workloads.cache import Note, build_elsewhere, build_file, silent
from cellbed_node.offloading.runtimes import RUNTIMES

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
_FLOAT, _INT, _INTS = 1, 2, 7
"""Values of TensorProto.DataType and AttributeProto.AttributeType."""

# Table 2: expansion t, output channels c, repetitions n, stride s of the first repetition.
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


def seeded_model(cache: Path, runtime: str = "onnx", *, seed: int = SEED, note: Note = silent) -> Path:
    """Return the model's file for a runtime under ``cache``, built if missing. Raises CellbedError if it cannot be
    built."""
    path = cache / f"mobilenetv2-{_FORMAT}-{SIDE}-{seed}{RUNTIMES[runtime].suffixes[0]}"
    if not path.is_file():
        note(f"building MobileNetV2 with seeded weights, once: {path}")
        build_file(path, lambda temporary: build_elsewhere("MobileNetV2", __name__, temporary, seed, path.suffix))
    return path


def write(path: Path, seed: int, suffix: str) -> None:
    """Write the model's file. suffix: ending of files of the runtime."""
    if suffix == ".onnx":
        path.write_bytes(build(seed))
        return
    from tensorflow import keras

    keras.utils.set_random_seed(seed)
    keras.applications.MobileNetV2(weights=None).save(whole := path.with_suffix(suffix))
    whole.rename(path)


def build(seed: int = SEED) -> bytes:
    """Return the model's file: input ``image`` float32 [1, 3, 224, 224], output ``logits`` float32 [1, 1000].

    The same seed gives the same bytes.
    """
    import numpy

    graph = _Graph(seed)
    graph.weigh("zero", numpy.float32(0))
    graph.weigh("six", numpy.float32(6))
    newest, channels = graph.convolve("image", (3, _FIRST), kernel=3, stride=2), _FIRST
    for expansion, outputs, repetitions, first_stride in _BOTTLENECKS:
        for repetition in range(repetitions):
            # Expand, filter depthwise, project without a rectifier; a residual if the shape stays (Figure 4(d)).
            entered, stride, wide = newest, 1 if repetition else first_stride, channels * expansion
            if expansion != 1:
                newest = graph.convolve(newest, (channels, wide))
            newest = graph.convolve(newest, (0, wide), kernel=3, stride=stride, after_relu=True)
            newest = graph.convolve(newest, (wide, outputs), after_relu=True, relu=False)
            if stride == 1 and channels == outputs:
                newest = graph.append("Add", entered, newest)
            channels = outputs
    newest = graph.append("GlobalAveragePool", graph.convolve(newest, (channels, _LAST)))
    newest = graph.append("Flatten", newest, axis=1)
    # Pooling returns means of rectified values, so the variance is as after a rectifier.
    graph.weigh("classifier.weight", graph.normal((CLASSES, _LAST), 2 / _LAST))
    graph.weigh("classifier.bias", numpy.zeros(CLASSES, numpy.float32))
    newest = graph.append("Gemm", newest, "classifier.weight", "classifier.bias", output="logits", transB=1)
    ends = (_field(11, _value_info("image", 1, 3, SIDE, SIDE)), _field(12, _value_info(newest, 1, CLASSES)))
    made = (*(_field(1, each) for each in graph.nodes), _field(2, "MobileNetV2"))
    made = (*made, *(_field(5, each) for each in graph.weights), _field(10, NOTE), *ends)
    opset = _field(1, "") + _field(2, _OPSET)
    return _field(1, _IR_VERSION) + _field(2, "cellbed") + _field(7, b"".join(made)) + _field(8, opset)


def _field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a message in the format of Protocol Buffers."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = []
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*groups, value))


def _value_info(name: str, *shape: int) -> bytes:
    """Return a ValueInfoProto: the name and shape of an input or output."""
    sizes = b"".join(_field(1, _field(1, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, _FLOAT) + _field(2, sizes)))


class _Graph:
    """The present operators and weights of the model."""

    def __init__(self, seed: int) -> None:
        import numpy

        self._random = numpy.random.Generator(numpy.random.PCG64(seed))
        self.nodes: list[bytes] = []
        self.weights: list[bytes] = []

    def weigh(self, name: str, value: Any) -> str:
        """Add a constant."""
        import numpy

        content = numpy.asarray(value, "<f4")
        sizes = b"".join(_field(1, size) for size in content.shape)
        self.weights.append(sizes + _field(2, _FLOAT) + _field(8, name) + _field(9, content.tobytes()))
        return name

    def normal(self, shape: tuple[int, ...], variance: float) -> Any:
        """Draw normally distributed weights."""
        return (self._random.standard_normal(shape) * variance**0.5).astype("float32")

    def append(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Append an operator; return the name of its output."""
        newest = output or f"{operator.lower()}{len(self.nodes)}"
        node = [*(_field(1, each) for each in inputs), _field(2, newest), _field(4, operator)]
        for name, value in sorted(attributes.items()):
            if isinstance(value, int):
                content = _field(3, value) + _field(20, _INT)
            else:
                content = b"".join(_field(8, each) for each in value) + _field(20, _INTS)
            node.append(_field(5, _field(1, name) + content))
        self.nodes.append(b"".join(node))
        return newest

    def convolve(
        self,
        newest: str,
        channels: tuple[int, int],
        *,
        kernel: int = 1,
        stride: int = 1,
        after_relu: bool = False,
        relu: bool = True,
    ) -> str:
        """Append a convolution that keeps the size, divided by `stride`. channels: channels of input and output; input
        0 for a depthwise convolution. relu: ReLU6 follows."""
        import numpy

        inputs, outputs = channels
        name, shape = f"convolution{len(self.nodes)}", (outputs, inputs or 1, kernel, kernel)
        # He et al., ICCV 2015, §2.2: variance 2 / fan-in keeps the scale behind a rectifier, 1 / fan-in elsewhere.
        variance = (2 if after_relu else 1) / (shape[1] * kernel * kernel)
        kernels = self.weigh(f"{name}.weight", self.normal(shape, variance))
        bias = self.weigh(f"{name}.bias", numpy.zeros(outputs, numpy.float32))
        newest = self.append(
            "Conv",
            *(newest, kernels, bias),
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=[kernel // 2] * 4,
            group=1 if inputs else outputs,
        )
        return self.append("Clip", newest, "zero", "six") if relu else newest


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
